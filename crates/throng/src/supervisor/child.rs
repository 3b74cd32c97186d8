//! The handle of a supervised child, which survives its restarts.

use super::engine::Key;
use crate::address::ask::{Ask, ReplyTo};
use crate::address::call::Call;
use crate::address::delivery::Delivery;
use crate::address::{Address, AtomicPid, Pid};
use crate::error::SendError;
use crate::process::{Exactly, Process, Turn};
use crate::sync::{Mutex, lock};
use std::fmt;
use std::marker::PhantomData;
use std::sync::{Arc, OnceLock};

/// Slot of a child: the pid of its last incarnation, shared by its spec, its supervisor and its
/// handles.
///
/// It keeps the last incarnation's pid when that has died: it cannot reach anybody else, and whoever
/// sends there is told.
///
/// Invariant: it belongs to the supervisor that took it last, which was the present one in its own
/// slot then. A supervisor whose own was killed goes on until it hears of that: it may start children
/// again, and among them supervisors, when those that replace them all have been started.
#[derive(Default, Debug)]
pub(crate) struct ChildSlot {
    pid: AtomicPid,
    /// Whose child it is.
    supervisor: Mutex<Option<Pid>>,
    /// Which child of its supervisor it is: the same of each incarnation of the supervisor, for
    /// only what is in its spec outlives that.
    key: OnceLock<Key>,
}

impl ChildSlot {
    /// The child's process has been started, by this supervisor.
    pub(crate) fn set(&self, pid: Pid, supervisor: Pid) {
        let owner = lock(&self.supervisor);
        if *owner == Some(supervisor) {
            // Within the lock, so that no other takes the slot in between.
            self.pid.store(pid);
        }
    }

    /// A supervisor has this child from here on; `own` is where it is a child itself.
    pub(crate) fn take(&self, key: Key, supervisor: Pid, own: Option<&ChildSlot>) {
        // Held while the child's changes hands. Locks are taken downwards only.
        let _held = own.map(|own| lock(&own.supervisor));
        if own.is_none_or(|own| own.last() == Some(supervisor)) {
            *lock(&self.supervisor) = Some(supervisor);
        }
        let known = *self.key.get_or_init(|| key);
        assert_eq!(known, key, "a child has one key among its siblings");
    }

    pub(crate) fn key(&self) -> Option<Key> {
        self.key.get().copied()
    }

    fn last(&self) -> Option<Pid> {
        self.pid.load()
    }
}

/// A supervised child, whichever incarnation of it runs. Cloning it costs a reference count.
///
/// What is sent through it goes to the incarnation that runs at that moment. What was queued when
/// one died is not carried over to the next, for it may be what it died of: messages that were
/// sent are dropped, and callers are told [`CallError::Died`](crate::CallError::Died). What is
/// sent after that, and before the next has been started, is handed back.
///
/// ```
/// # use throng::{ChildSpec, Supervisor, prelude::*};
/// # #[derive(Default)]
/// # struct Echo;
/// # impl Process for Echo {}
/// # struct Say(u32);
/// # impl Message for Say { type Reply = u32; }
/// # impl Handle<Say> for Echo {
/// #     async fn handle(&mut self, Say(number): Say, _: &mut Context<Self>) -> u32 { number }
/// # }
/// # fn main() -> Result<(), throng::Error> {
/// # let runtime = Runtime::builder().workers(1).start()?;
/// let echo = ChildSpec::new(|| Echo);
/// let handle = echo.handle();
/// assert!(handle.address().is_none(), "not started yet");
///
/// Supervisor::one_for_one().child("echo", echo).start(&runtime)?;
/// let said = runtime.block_on(async |_| handle.call(Say(2)).await)?;
/// assert_eq!(said, 2);
/// # Ok(())
/// # }
/// ```
pub struct Child<P> {
    slot: Arc<ChildSlot>,
    process: Exactly<P>,
}

impl<P: Process> Child<P> {
    pub(crate) fn new(slot: Arc<ChildSlot>) -> Child<P> {
        Child { slot, process: PhantomData }
    }

    pub(crate) fn slot(&self) -> &Arc<ChildSlot> {
        &self.slot
    }

    /// The address of the present incarnation, if one runs.
    pub fn address(&self) -> Option<Address<P>> {
        self.last().filter(|address| address.is_alive())
    }

    /// Sends a message to the present incarnation; see [`Address::send`].
    ///
    /// # Errors
    /// As [`Address::send`]; [`SendError::NoProcess`] also if none runs at the moment.
    pub fn send<T: Turn<P>>(&self, message: T) -> Result<(), SendError<T>> {
        match self.last() {
            Some(address) => address.send(message),
            None => Err(SendError::NoProcess(message)),
        }
    }

    /// Calls the incarnation that is present now; see [`Address::call`].
    ///
    /// # Errors
    /// As [`Address::call`]; [`CallError::NoProcess`](crate::CallError::NoProcess) also if none
    /// runs at the moment.
    pub fn call<T: Turn<P>>(&self, message: T) -> Call<T, T::Reply> {
        match self.last() {
            Some(address) => address.call(message),
            None => Call::refused(message),
        }
    }

    /// Sends a message to the incarnation that is present now, and waits for room where there is
    /// none; see [`Address::deliver`].
    ///
    /// # Errors
    /// As [`Address::deliver`]; [`SendError::NoProcess`] also if none runs at the moment.
    pub fn deliver<T: Turn<P>>(&self, message: T) -> Delivery<T> {
        match self.last() {
            Some(address) => address.deliver(message),
            None => Delivery::refused(message),
        }
    }

    /// Asks the incarnation that is present now; see [`Address::ask`].
    ///
    /// # Errors
    /// As [`Address::ask`]; [`CallError::NoProcess`](crate::CallError::NoProcess) also if none
    /// runs at the moment.
    pub fn ask<T: Turn<P>, R: Send + 'static>(
        &self,
        question: impl FnOnce(ReplyTo<R>) -> T,
    ) -> Ask<T, R> {
        match self.last() {
            Some(address) => address.ask(question),
            None => Ask::refused(question),
        }
    }

    fn last(&self) -> Option<Address<P>> {
        self.slot.last().map(|pid| Address::from_raw(pid.raw()))
    }
}

impl<P> Clone for Child<P> {
    fn clone(&self) -> Self {
        Child { slot: self.slot.clone(), process: PhantomData }
    }
}

impl<P: Process> fmt::Debug for Child<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.address() {
            Some(address) => write!(f, "Child({address:?})"),
            None => f.write_str("Child(not running)"),
        }
    }
}
