//! Many at once: one message to many processes, and many processes in one go.

use crate::address::Address;
use crate::address::recipient::Recipient;
use crate::error::{SendAllError, SendError, SpawnManyError};
use crate::process::{Message, Process, Turn};
use crate::runtime::RuntimeHandle;
use crate::scheduler;

/// Sends one message to many processes: for slices of addresses and of recipients.
///
/// ```
/// use throng::prelude::*;
/// # struct Follower;
/// # impl Process for Follower {}
/// # impl Handle<Posted> for Follower {
/// #     async fn handle(&mut self, _: Posted, _: &mut Context<Self>) {}
/// # }
///
/// #[derive(Clone)]
/// struct Posted(u64);
/// impl Message for Posted { type Reply = (); }
///
/// # fn main() -> Result<(), throng::Error> {
/// # let runtime = Runtime::builder().workers(1).start()?;
/// let mut followers = runtime.spawn_many((0..500).map(|_| Follower))?;
/// # followers[3].kill();
/// # runtime.block_on(async |_| followers[3].pid().exited().await);
/// if let Err(error) = followers.send_all(Posted(7)) {
///     // Some have gone, and are forgotten.
///     for (gone, _) in error.failed {
///         followers.retain(|&follower| follower != gone);
///     }
/// }
/// # assert_eq!(followers.len(), 499);
/// # Ok(())
/// # }
/// ```
pub trait SendAll<T: Clone> {
    /// How each of the processes is addressed.
    type Address;

    /// Sends a message, cloned for each process but the last.
    ///
    /// Each gets it as by [`send`](Address::send): in order with what else is sent there from
    /// here, and whether or not others do.
    ///
    /// # Errors
    /// [`SendAllError`] says to which processes it could not be sent, and why; to all others it
    /// was.
    ///
    /// # Panics
    /// If the clone does; the message has then been sent to the processes before.
    ///
    /// Cost: that of as many sends, but sleeping workers are woken once.
    fn send_all(&self, message: T) -> Result<(), SendAllError<Self::Address, T>>;
}

impl<P: Process, T: Turn<P> + Clone> SendAll<T> for [Address<P>] {
    type Address = Address<P>;

    fn send_all(&self, message: T) -> Result<(), SendAllError<Address<P>, T>> {
        send_each(self, message, Address::send)
    }
}

impl<M: Message + Clone> SendAll<M> for [Recipient<M>] {
    type Address = Recipient<M>;

    fn send_all(&self, message: M) -> Result<(), SendAllError<Recipient<M>, M>> {
        send_each(self, message, Recipient::send)
    }
}

fn send_each<A: Copy, T: Clone>(
    addresses: &[A],
    message: T,
    send: impl Fn(A, T) -> Result<(), SendError<T>>,
) -> Result<(), SendAllError<A, T>> {
    let Some((&last, others)) = addresses.split_last() else { return Ok(()) };
    let mut failed = Vec::new();
    scheduler::batched(|| {
        let mut send = |to: A, message| {
            if let Err(error) = send(to, message) {
                failed.push((to, error));
            }
        };
        others.iter().for_each(|&to| send(to, message.clone()));
        send(last, message);
    });
    if failed.is_empty() { Ok(()) } else { Err(SendAllError { failed }) }
}

impl RuntimeHandle {
    /// Spawns many processes of one type; their addresses come in the order of the states.
    ///
    /// # Errors
    /// If there is not room for all, [`SpawnManyError`] gives the addresses of those that live, and
    /// hands back the rest.
    ///
    /// Cost: that of as many spawns; from outside of the workers less, for the locks are taken
    /// once. All states are held at once before the first process lives.
    pub fn spawn_many<P: Process>(
        &self,
        processes: impl IntoIterator<Item = P>,
    ) -> Result<Vec<Address<P>>, SpawnManyError<P>> {
        self.spawner().spawn_many(processes)
    }
}
