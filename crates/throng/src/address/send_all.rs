//! Sending a message to many processes.

use crate::address::Address;
use crate::address::recipient::Recipient;
use crate::error::{SendAllError, SendError};
use crate::scheduler;
use crate::turn::process::{Message, Process, Turn};

/// Sends a message to many processes: for slices of addresses and of recipients.
///
/// A slice is a list of the sender's own, which learns from the error which processes are gone. For processes
/// that come and go by themselves use a [`Group`](crate::Group); for one of several equal workers, a
/// [`Pool`](crate::Pool).
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
/// let mut followers = runtime.spawner().spawn_many((0..500).map(|_| Follower))?;
/// # followers[3].kill();
/// # runtime.block_on(async |_| followers[3].pid().exited().await);
/// if let Err(error) = followers.send_all(Posted(7)) {
///     // Some have exited: remove them from the list.
///     for (gone, _) in error.failed {
///         followers.retain(|&follower| follower != gone);
///     }
/// }
/// # assert_eq!(followers.len(), 499);
/// # Ok(())
/// # }
/// ```
pub trait SendAll<T: Clone> {
    /// Type of the addresses: [`Address`] or [`Recipient`].
    type Address;

    /// Sends a message, cloned for each process but the last.
    ///
    /// Equivalent to a [`send`](Address::send) to each process: in order with the sender's other
    /// messages to that process. A send that fails does not prevent the others.
    ///
    /// # Errors
    /// [`SendAllError`] lists the processes to which the message could not be sent, with the
    /// reasons. All other processes were sent the message.
    ///
    /// # Panics
    /// If cloning the message panics. The message has then been sent to the processes before.
    ///
    /// Cost: a send to each process, but sleeping workers are woken only once.
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
