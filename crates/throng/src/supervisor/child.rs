//! The handle of a supervised child, which survives its restarts.

use super::engine::Key;
use crate::address::ask::{Ask, ReplyTo};
use crate::address::call::Call;
use crate::address::client::{AskClient, Client, client};
use crate::address::delivery::Delivery;
use crate::address::{Address, AtomicPid, Pid};
use crate::error::{CallError, SendError};
use crate::sync::{Mutex, lock};
use crate::turn::process::{Exactly, Handle, Message, Process, Turn};
use std::fmt;
use std::marker::PhantomData;
use std::panic::AssertUnwindSafe;
use std::sync::{Arc, OnceLock};

/// Slot of a child: the pid of its last incarnation, shared by its spec, its supervisor and its
/// handles.
///
/// The slot keeps the pid of an incarnation that has died: the pid reaches no other process, and a
/// sender gets an error.
///
/// Invariant: a slot belongs to the supervisor that took it last, which at that time was the last
/// incarnation in its own slot. A supervisor whose parent supervisor was killed keeps running until
/// it learns of that. Meanwhile it may restart children, including supervisors, although their
/// replacements have already been started.
#[derive(Default)]
pub(crate) struct ChildSlot {
    pid: AtomicPid,
    supervisor: Mutex<Option<Pid>>,
    /// Key of the child in its supervisor's engine. The same in each incarnation of the supervisor:
    /// only slots in the supervisor's spec outlive an incarnation.
    key: OnceLock<Key>,
    /// Function of a pool, which is called whenever an incarnation has been started. It unwinds from no code of
    /// users.
    on_start: OnceLock<AssertUnwindSafe<Box<dyn Fn() + Send + Sync>>>,
}

impl fmt::Debug for ChildSlot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ChildSlot({:?})", self.last())
    }
}

impl ChildSlot {
    /// Stores the pid of an incarnation that `supervisor` has started, if the slot still belongs to
    /// that supervisor.
    pub(crate) fn set(&self, pid: Pid, supervisor: Pid) {
        let owner = lock(&self.supervisor);
        if *owner == Some(supervisor) {
            // Under the lock, so that no other supervisor takes the slot in between.
            self.pid.store(pid);
        }
        drop(owner);
        if let Some(on_start) = self.on_start.get() {
            (on_start.0)();
        }
    }

    /// Has a function called whenever an incarnation has been started.
    pub(crate) fn on_start(&self, call: impl Fn() + Send + Sync + 'static) {
        let is_first = self.on_start.set(AssertUnwindSafe(Box::new(call))).is_ok();
        debug_assert!(is_first, "a child is a worker of one pool");
    }

    /// Makes `supervisor` the owner of this slot. If the supervisor is a child itself, it must be
    /// the last incarnation in `own`, its own slot; otherwise the owner stays.
    pub(crate) fn take(&self, key: Key, supervisor: Pid, own: Option<&ChildSlot>) {
        // `own` stays locked while this slot changes owner. Locks are taken from parent to child
        // only.
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

/// A handle to a supervised child. The handle survives restarts: it reaches the incarnation that
/// runs at the moment. Cloning it costs a reference count.
///
/// A message goes to the incarnation that runs when it is sent. Messages still queued when an
/// incarnation dies are not carried over to the next, because they may be the cause of the death:
/// sent messages are dropped, and callers get [`CallError::Died`](crate::CallError::Died). Between
/// the death and the next start, messages are handed back to their senders.
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

    /// Returns the address of the present incarnation, or `None` if the child is not running.
    pub fn address(&self) -> Option<Address<P>> {
        self.last().filter(|address| address.is_alive())
    }

    /// Sends a message to the present incarnation; see [`Address::send`].
    ///
    /// # Errors
    /// The same as [`Address::send`]; [`SendError::NoProcess`] also if the child is not running.
    pub fn send<T: Turn<P>>(&self, message: T) -> Result<(), SendError<T>> {
        match self.last() {
            Some(address) => address.send(message),
            None => Err(SendError::NoProcess(message)),
        }
    }

    /// Calls the present incarnation; see [`Address::call`].
    ///
    /// # Errors
    /// The same as [`Address::call`]; [`CallError::NoProcess`](crate::CallError::NoProcess) also if
    /// the child is not running.
    pub fn call<T: Turn<P>>(&self, message: T) -> Call<T, T::Reply> {
        match self.last() {
            Some(address) => address.call(message),
            None => Call::refused(message),
        }
    }

    /// Sends a message to the present incarnation, and waits while its mailbox is full; see
    /// [`Address::deliver`].
    ///
    /// # Errors
    /// The same as [`Address::deliver`]; [`SendError::NoProcess`] also if the child is not running.
    pub fn deliver<T: Turn<P>>(&self, message: T) -> Delivery<T> {
        match self.last() {
            Some(address) => address.deliver(message),
            None => Delivery::refused(message),
        }
    }

    /// Asks the present incarnation; see [`Address::ask`].
    ///
    /// # Errors
    /// The same as [`Address::ask`]; [`CallError::NoProcess`](crate::CallError::NoProcess) also if
    /// the child is not running.
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

// By reference, like all methods of a handle: the methods are found on a handle and on a reference
// to a handle.
client!(&Child<P>: Child);
