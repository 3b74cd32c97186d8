//! Addresses: where to send, eight bytes, free to copy.

pub(crate) mod ask;
pub(crate) mod call;
pub(crate) mod cycle;
pub(crate) mod deadline;
pub(crate) mod delivery;
mod raw;
pub(crate) mod recipient;
pub(crate) mod send_all;

pub(crate) use self::raw::RawAddress;

use crate::address::ask::{Ask, ReplyTo};
use crate::address::call::Call;
use crate::address::delivery::Delivery;
use crate::address::recipient::Recipient;
use crate::cell::Cell;
use crate::cell::extension::{Watcher, watcher_key};
use crate::error::SendError;
use crate::exit::ExitReason;
use crate::mailbox::Generation;
use crate::mailbox::envelope::{Cast, Route};
use crate::process::{Exactly, Handle, Message, Process, Stop, Turn};
use crate::scheduler;
use crate::scheduler::worker::Worker;
use crate::signal::{self, Signal};
use crate::sync::atomic::{self, AtomicPtr};
use std::cmp::Ordering;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::marker::PhantomData;
use std::mem;
use std::ptr::NonNull;

/// Which process, whatever its type: an address to which nothing typed can be sent.
///
/// Links, monitors, exits and the like travel as *signals*, which no mailbox bound and no budget
/// refuses, though their bytes count in both gauges and budget. A process acts on them as soon as its
/// turn waits or is over. One that leaves 16,777,216 of them unread (one GiB), because its turn does not
/// come to an end, is killed, with an [`ExitReason::Other`] that says so: in mid-turn where its turn waits,
/// or when it is over. Signals sent before are acted on first; any further signal is answered as if the
/// process had exited; messages are not concerned. A process that has 1,048,576 unread answers no
/// [`info`] and the like, so questions alone never kill it.
///
/// [`info`]: crate::RuntimeHandle::info
///
/// ```
/// # use throng::prelude::*;
/// # struct Idle;
/// # impl Process for Idle {}
/// # fn main() -> Result<(), throng::Error> {
/// let runtime = Runtime::builder().workers(1).start()?;
/// let idle = runtime.spawn(Idle)?;
/// let pid = idle.pid();
/// pid.kill();
/// let reason = runtime.block_on(async |_| pid.exited().await);
/// assert!(matches!(reason, ExitReason::Killed | ExitReason::NoProcess));
/// assert!(!pid.is_alive());
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Pid(RawAddress);

const _: () = assert!(size_of::<Option<Pid>>() == 8, "a pid is one word");

impl Pid {
    pub(crate) fn from_raw(raw: RawAddress) -> Pid {
        Pid(raw)
    }

    pub(crate) fn raw(self) -> RawAddress {
        self.0
    }

    /// The number that this prints as, in hexadecimal.
    pub(crate) fn to_bits(self) -> u64 {
        self.0.0.as_ptr().addr() as u64
    }

    /// Where in memory the slot of a pid with this number would be.
    pub(crate) fn slot_of_bits(bits: u64) -> usize {
        let (_, slot) = Generation::untag(std::ptr::without_provenance_mut::<Cell>(bits as usize));
        slot.addr()
    }

    /// Whether the process has not exited yet.
    pub fn is_alive(self) -> bool {
        self.0.is_alive()
    }

    /// Sends an exit signal from nobody in particular.
    ///
    /// A process that traps exits gets it as a message ([`Process::exit`]); any other exits with
    /// this reason, in mid-turn if its turn is waiting, after the turn if it runs, and before the
    /// messages that are queued. [`ExitReason::Normal`] has no effect on a process that does not
    /// trap. Nothing happens if the process has exited.
    pub fn exit(self, reason: ExitReason) {
        signal::send(self, Signal::Exit { from: None, reason, by_link: false });
    }

    /// Ends the process whether it traps exits or not: its turn is dropped where it waits, and
    /// [`Process::stopping`] does not run.
    ///
    /// What cannot be interrupted is a turn that is running: it runs up to where it would wait.
    pub fn kill(self) {
        signal::send(self, Signal::Kill);
    }

    /// Waits until the process has exited, and says why; [`ExitReason::NoProcess`] if it had
    /// exited before.
    ///
    /// It has sent all it was going to by then, and its names are free. Within a process,
    /// [`Context::monitor`](crate::Context::monitor) is cheaper and does not keep a turn waiting.
    ///
    /// Dropping the future takes the watcher away again.
    ///
    /// Cost: two allocations and a signal to the process; another one if it is dropped early.
    pub async fn exited(self) -> ExitReason {
        let (sender, reason) = tokio::sync::oneshot::channel();
        let watcher: Watcher = Box::new(|reason| drop(sender.send(reason)));
        let watching = Watching { pid: self, key: watcher_key(&watcher) };
        signal::send(self, Signal::Watch(watcher));
        // Unsent only if the runtime went down with the process in it.
        let reason = reason.await.unwrap_or(ExitReason::Shutdown);
        mem::forget(watching);
        reason
    }
}

/// The duty to take a watcher away that waits for no exit any more.
struct Watching {
    pid: Pid,
    key: usize,
}

impl Drop for Watching {
    fn drop(&mut self) {
        // A process that has exited has no watchers. Until this is acted on, the watcher's memory
        // serves no other, so the key is not given twice.
        let _ = signal::try_send(self.pid, Signal::Unwatch { key: self.key });
    }
}

/// A number in hexadecimal, by which [`RuntimeHandle::find`](crate::RuntimeHandle::find) finds the
/// process again.
impl fmt::Display for Pid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:x}", self.to_bits())
    }
}

/// A pid that changes, or none.
#[derive(Default, Debug)]
pub(crate) struct AtomicPid(AtomicPtr<Cell>);

impl AtomicPid {
    /// Releases what the storing thread did before: to whom it is, is alive by then.
    pub(crate) fn store(&self, pid: Pid) {
        self.0.store(pid.0.0.as_ptr(), atomic::Ordering::Release);
    }

    /// Acquires what `store` released.
    pub(crate) fn load(&self) -> Option<Pid> {
        NonNull::new(self.0.load(atomic::Ordering::Acquire)).map(|raw| Pid(RawAddress(raw)))
    }
}

impl fmt::Debug for Pid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Pid({:x})", self.0.0.as_ptr().addr())
    }
}

impl<P> From<Address<P>> for Pid {
    fn from(address: Address<P>) -> Pid {
        Pid(address.raw)
    }
}

/// The address of a process of type `P`.
///
/// It names one process for ever: once that has exited, whatever is sent here is handed back, even
/// if the memory serves another process by then. It keeps nothing alive, and copying it costs as
/// much as copying a `u64`.
///
/// ```
/// # use throng::prelude::*;
/// struct Echo;
/// impl Process for Echo {}
/// struct Say(u32);
/// impl Message for Say { type Reply = u32; }
/// impl Handle<Say> for Echo {
///     async fn handle(&mut self, Say(number): Say, _: &mut Context<Self>) -> u32 { number }
/// }
///
/// # fn main() -> Result<(), throng::Error> {
/// let runtime = Runtime::builder().workers(1).start()?;
/// let echo = runtime.spawn(Echo)?;
/// let said = runtime.block_on(async |_| {
///     echo.send(Say(1))?;
///     echo.call(Say(2)).await.map_err(throng::Error::from)
/// })?;
/// assert_eq!(said, 2);
/// # Ok(())
/// # }
/// ```
pub struct Address<P> {
    raw: RawAddress,
    process: Exactly<P>,
}

const _: () = assert!(size_of::<Option<Address<()>>>() == 8, "an address is one word");

impl<P: Process> Address<P> {
    pub(crate) fn from_raw(raw: RawAddress) -> Address<P> {
        Address { raw, process: PhantomData }
    }

    pub(crate) fn raw(self) -> RawAddress {
        self.raw
    }

    /// Sends a message without waiting for anything.
    ///
    /// Messages from one sender to one process arrive in the order of their sending. A reply, if
    /// there is one, is dropped.
    ///
    /// # Errors
    /// [`SendError::NoProcess`] hands the message back if the process has exited. That it is alive
    /// now does not mean that it will live to handle the message; who must know, calls.
    /// [`SendError::Overloaded`] hands it back if the process's mailbox is full, where its
    /// [`MailboxBound`](crate::MailboxBound) says so, or the runtime's
    /// [`mailbox_budget`](crate::RuntimeBuilder::mailbox_budget) is used up.
    ///
    /// Cost: a pooled block and one compare-exchange; in a flood, less. No system call unless a
    /// sleeping worker must be woken.
    #[inline]
    pub fn send<T: Turn<P>>(self, message: T) -> Result<(), SendError<T>> {
        scheduler::with_worker(|worker| match worker {
            Some(worker) => worker.send::<P, T>(self.raw, message),
            None => Cast::<P, T>::send(self.raw, message),
        })
    }

    /// Sends a message, and waits for room where a mailbox is full and bounded with
    /// [`Overflow::Wait`](crate::Overflow::Wait). Anywhere else this is [`send`](Self::send).
    ///
    /// Nothing is sent until the future is polled. Those who wait are served in the order of their
    /// coming; one that is dropped gives its place on, and its message is dropped. There is no
    /// deadline: a process that waits for room in its own mailbox waits for ever.
    ///
    /// ```
    /// use throng::{MailboxBound, Overflow, prelude::*};
    /// # struct Counter(u64);
    /// # impl Process for Counter {}
    /// struct Add(u64);
    /// impl Message for Add { type Reply = u64; }
    /// impl Handle<Add> for Counter {
    ///     async fn handle(&mut self, Add(number): Add, _: &mut Context<Self>) -> u64 {
    ///         self.0 += number;
    ///         self.0
    ///     }
    /// }
    ///
    /// # fn main() -> Result<(), throng::Error> {
    /// # let runtime = Runtime::builder().start()?;
    /// let bound = MailboxBound::new(10, Overflow::Wait);
    /// let counter = runtime.spawner().mailbox(bound).spawn(Counter(0))?;
    /// let sum = runtime.block_on(async |_| {
    ///     for number in 0..1000 {
    ///         counter.deliver(Add(number)).await?;
    ///     }
    ///     counter.call(Add(0)).await.map_err(throng::Error::from)
    /// })?;
    /// assert_eq!(sum, 499_500);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`send`](Self::send); [`SendError::NoProcess`] also if the process exits before there is
    /// room.
    pub fn deliver<T: Turn<P>>(self, message: T) -> Delivery<T> {
        Delivery::new(self.raw, Cast::<P, T>::offer_or_wait, message)
    }

    /// Sends a message and waits for the reply.
    ///
    /// Nothing is sent until the future is polled. The deadline is five seconds; see
    /// [`Call::within`]. Dropping the future gives the reply up, not the message.
    ///
    /// # Errors
    /// See [`CallError`](crate::CallError).
    ///
    /// # Panics
    /// The future panics if it is awaited neither in a process nor in a tokio runtime, for then
    /// nobody could keep its deadline.
    pub fn call<T: Turn<P>>(self, message: T) -> Call<T, T::Reply> {
        Call::new(Route::to(self), message)
    }

    /// Sends a message that carries the way to answer it, and waits for the answer.
    ///
    /// Unlike a call's reply, the answer need not come from the turn that handles the message:
    /// see [`ReplyTo`].
    ///
    /// # Errors
    /// As for [`call`](Self::call), and [`CallError::Unanswered`](crate::CallError::Unanswered) if
    /// the [`ReplyTo`] is dropped; also because the process that had it has exited.
    ///
    /// # Panics
    /// As for [`call`](Self::call).
    ///
    /// Cost: one pooled block more than a call.
    pub fn ask<T: Turn<P>, R: Send + 'static>(
        self,
        question: impl FnOnce(ReplyTo<R>) -> T,
    ) -> Ask<T, R> {
        Ask::new(self.raw, Cast::<P, T>::offer_or_wait, question)
    }

    /// This process as one of all those that handle an `M`.
    pub fn recipient<M: Message>(self) -> Recipient<M>
    where
        P: Handle<M>,
    {
        self.into()
    }

    /// Sends what no bound and no budget holds up, in order with what this turn has sent before;
    /// the message comes back if the process has exited.
    pub(crate) fn push<T: Turn<P>>(self, message: T) -> Result<(), T> {
        scheduler::with_worker(|worker| worker.map(Worker::end_streak));
        Cast::<P, T>::push(self.raw, message)
    }

    /// [`send`](Self::send), for whoever has forgotten the process's type.
    pub(crate) fn send_to<T: Turn<P>>(to: RawAddress, message: T) -> Result<(), SendError<T>> {
        Address::<P>::from_raw(to).send(message)
    }

    /// Asks the process to exit, after the messages queued before; false if it has exited.
    ///
    /// There is room for this in a full mailbox too.
    pub fn stop(self) -> bool {
        scheduler::with_worker(|worker| {
            worker.map(Worker::end_streak);
            let pushed = Cast::<P, Stop>::push(self.raw, Stop).is_ok();
            if let Some(worker) = worker {
                worker.run_exit_next(self.raw.parts().1);
            }
            pushed
        })
    }

    /// Whether the process has not exited yet.
    pub fn is_alive(self) -> bool {
        self.raw.is_alive()
    }

    /// Which process this is the address of.
    pub fn pid(self) -> Pid {
        Pid(self.raw)
    }

    /// Sends an exit signal; see [`Pid::exit`].
    pub fn exit(self, reason: ExitReason) {
        self.pid().exit(reason);
    }

    /// Ends the process without asking it; see [`Pid::kill`].
    pub fn kill(self) {
        self.pid().kill();
    }
}

impl<P> Clone for Address<P> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<P> Copy for Address<P> {}

impl<P> PartialEq for Address<P> {
    fn eq(&self, other: &Self) -> bool {
        self.raw == other.raw
    }
}

impl<P> Eq for Address<P> {}

impl<P> PartialOrd for Address<P> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl<P> Ord for Address<P> {
    fn cmp(&self, other: &Self) -> Ordering {
        self.raw.cmp(&other.raw)
    }
}

impl<P> Hash for Address<P> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.raw.hash(state);
    }
}

impl<P> fmt::Debug for Address<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = std::any::type_name::<P>();
        write!(f, "{}@{:x}", name.rsplit("::").next().unwrap_or(name), self.raw)
    }
}
