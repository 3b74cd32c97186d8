//! Addresses of processes, typed ([`Address`]) and untyped ([`Pid`]): eight bytes, free to copy.

pub(crate) mod ask;
pub(crate) mod call;
pub(crate) mod client;
pub(crate) mod cycle;
pub(crate) mod deadline;
pub(crate) mod delivery;
pub(crate) mod message_timer;
mod raw;
pub(crate) mod recipient;
pub(crate) mod send_all;
pub(crate) mod timeout;

pub(crate) use self::raw::{Patience, RawAddress};

use crate::address::ask::{Ask, ReplyTo};
use crate::address::call::Call;
use crate::address::delivery::Delivery;
use crate::address::recipient::Recipient;
use crate::cell::extension::{ExitCallback, callback_key};
use crate::cell::{Cell, CellRef};
use crate::error::SendError;
use crate::exit::ExitReason;
use crate::mailbox::Generation;
use crate::mailbox::dead_letters::DropReason;
use crate::mailbox::envelope::{Cast, Route};
use crate::scheduler;
use crate::scheduler::worker::Worker;
use crate::signal::{self, Signal};
use crate::sync::atomic::{self, AtomicPtr};
use crate::turn::process::{Exactly, Handle, Message, Process, Stop, Turn};
use crate::turn::waker;
use std::cmp::Ordering;
use std::fmt;
use std::future::{Future, poll_fn};
use std::hash::{Hash, Hasher};
use std::marker::PhantomData;
use std::mem;
use std::pin::Pin;
use std::ptr::NonNull;
use std::task::{Poll, Waker};

/// Identifies a process of any type. By its pid a process can be linked, monitored, asked to exit
/// or killed; sending it a message takes its typed [`Address`].
///
/// Links, monitors, exits and the like travel as *signals*. No mailbox bound and no budget refuses
/// a signal, though a signal's bytes count in the gauges and in the budget. A process acts on
/// signals as soon as its turn waits or is over. A process that leaves 16,777,216 signals unread
/// (one GiB), because its turn does not end, is killed, with an [`ExitReason::Other`] that says so:
/// in mid-turn if its turn waits, else when the turn is over. The process acts on earlier signals
/// first; any further signal is answered as if the process had exited. Messages are not affected. A
/// process with 1,048,576 unread signals answers no [`info`] and the like, so questions alone never
/// kill it.
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

    /// Returns the number that `Display` prints in hexadecimal.
    pub(crate) fn to_bits(self) -> u64 {
        self.0.0.as_ptr().addr() as u64
    }

    /// Returns the memory address of the slot that a pid with this number would name.
    pub(crate) fn slot_of_bits(bits: u64) -> usize {
        let (_, slot) = Generation::untag(std::ptr::without_provenance_mut::<Cell>(bits as usize));
        slot.addr()
    }

    /// Whether the process has not exited yet.
    pub fn is_alive(self) -> bool {
        self.0.is_alive()
    }

    /// Sends an exit signal without a sender ([`Exit::pid`](crate::Exit::pid) is `None`).
    ///
    /// A process that traps exits gets the signal as a message ([`Process::exit`]). Any other
    /// process exits with this reason, before it handles the messages that are queued: in mid-turn
    /// if its turn is waiting, after the turn if it is running. [`ExitReason::Normal`] has no
    /// effect on a process that does not trap exits. Nothing happens if the process has exited.
    pub fn exit(self, reason: ExitReason) {
        signal::send(self, Signal::Exit { from: None, reason, by_link: false });
    }

    /// Ends the process, even if it traps exits. A turn that waits is dropped, and
    /// [`Process::stopping`] does not run.
    ///
    /// A turn that is running cannot be interrupted: it runs until it is over or would wait.
    pub fn kill(self) {
        signal::send(self, Signal::Kill);
    }

    /// Waits until the process has exited, and returns the reason; [`ExitReason::NoProcess`] if it
    /// had exited before.
    ///
    /// When this returns, the process has sent its last message, and its names are free. Within a
    /// process, [`Context::monitor`](crate::Context::monitor) is cheaper and does not keep a turn
    /// waiting.
    ///
    /// Within a turn of the process itself this returns [`ExitReason::Cycle`] at once, because the
    /// process exits only when the turn is over.
    ///
    /// Dropping the future removes its watcher from the process.
    ///
    /// Cost: two allocations and a signal to the process; another signal if the future is dropped
    /// early.
    pub async fn exited(self) -> ExitReason {
        let (sender, mut reason) = tokio::sync::oneshot::channel();
        let callback: ExitCallback = Box::new(|reason| drop(sender.send(reason)));
        let watching = Watching { pid: self, key: callback_key(&callback) };
        signal::send(self, Signal::Watch(callback));
        let reason = poll_fn(|cx| match Pin::new(&mut reason).poll(cx) {
            // The watcher is dropped uncalled only if the runtime went down with the process in it.
            Poll::Ready(reason) => Poll::Ready(Some(reason.unwrap_or(ExitReason::Shutdown))),
            Poll::Pending if self.waits_here(cx.waker()) => Poll::Ready(None),
            Poll::Pending => Poll::Pending,
        });
        let Some(reason) = reason.await else { return ExitReason::Cycle };
        mem::forget(watching);
        reason
    }

    /// Whether a turn of the process, which this thread runs, is what waits with this waker. A turn may also
    /// poll a future that it passes on to a task.
    fn waits_here(self, waker: &Waker) -> bool {
        let is_own = |cell: &CellRef| self.0.is_in(*cell) && waker::is_of(waker, *cell);
        scheduler::with_worker(|worker| worker.and_then(Worker::running).filter(is_own).is_some())
    }
}

/// Removes the watcher of [`Pid::exited`] from the process if that future is dropped early.
struct Watching {
    pid: Pid,
    key: usize,
}

impl Drop for Watching {
    fn drop(&mut self) {
        // A process that has exited has no watchers. The process frees the watcher when it acts on
        // this signal, so until then no other watcher has the same address and thus the same key.
        let _ = signal::try_send(self.pid, Signal::Unwatch { key: self.key });
    }
}

/// Writes a hexadecimal number, by which [`RuntimeHandle::find`](crate::RuntimeHandle::find) finds
/// the process again.
impl fmt::Display for Pid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:x}", self.to_bits())
    }
}

/// Shared variable that holds a pid or none.
#[derive(Default, Debug)]
pub(crate) struct AtomicPid(AtomicPtr<Cell>);

impl AtomicPid {
    /// Stores a pid. Release: a thread that loads it sees that the process has been started.
    pub(crate) fn store(&self, pid: Pid) {
        self.0.store(pid.0.0.as_ptr(), atomic::Ordering::Release);
    }

    /// Loads the pid. Acquire: pairs with the release in [`store`](Self::store).
    pub(crate) fn load(&self) -> Option<Pid> {
        NonNull::new(self.0.load(atomic::Ordering::Acquire)).map(|raw| Pid(RawAddress(raw)))
    }
}

/// Shared variable that holds the address of a process or none.
pub struct AtomicAddress<P> {
    pid: AtomicPid,
    process: Exactly<P>,
}

impl<P: Process> AtomicAddress<P> {
    /// Stores the address of a process in place of the present one.
    pub fn store(&self, address: Address<P>) {
        self.pid.store(address.into());
    }

    /// Returns the address stored last.
    pub fn load(&self) -> Option<Address<P>> {
        self.pid.load().map(|pid| Address::from_raw(pid.raw()))
    }
}

impl<P> Default for AtomicAddress<P> {
    fn default() -> AtomicAddress<P> {
        AtomicAddress { pid: AtomicPid::default(), process: PhantomData }
    }
}

impl<P> fmt::Debug for AtomicAddress<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("AtomicAddress").field(&self.pid.load()).finish()
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
/// An address names the same process for ever: once the process has exited, messages are handed
/// back, even if its memory serves another process by then. An address keeps nothing alive, and
/// copying it costs as much as copying a `u64`.
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
    /// Messages from the same sender to the same process arrive in the order of sending. The
    /// handler's result is dropped.
    ///
    /// # Errors
    /// [`SendError::NoProcess`] hands the message back if the process has exited. `Ok` does not
    /// mean that the process will live to handle the message; only a [`call`](Self::call) learns
    /// whether it did. [`SendError::Overloaded`] hands the message back if the process's mailbox is
    /// full and its [`MailboxBound`](crate::MailboxBound) rejects messages then, or if the
    /// runtime's [`mailbox_budget`](crate::RuntimeBuilder::mailbox_budget) is used up.
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

    /// Sends a message, and waits for room if the mailbox is full and bounded with
    /// [`Overflow::Wait`](crate::Overflow::Wait). With any other mailbox, the same as
    /// [`send`](Self::send).
    ///
    /// Nothing is sent until the future is polled. Waiting senders are admitted in the order in
    /// which they came. Dropping the future drops its message and gives its place to the next
    /// sender. There is no deadline: a process that waits for room in its own mailbox waits for
    /// ever.
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
    /// The same as for [`send`](Self::send); [`SendError::NoProcess`] also if the process exits
    /// before there is room.
    pub fn deliver<T: Turn<P>>(self, message: T) -> Delivery<T> {
        Delivery::new(self.raw, Cast::<P, T>::deliver, message)
    }

    /// Sends a message and waits for the reply.
    ///
    /// Nothing is sent until the future is polled. The deadline is five seconds; see
    /// [`Call::within`]. Dropping the future discards the reply; a message that is queued is still
    /// handled.
    ///
    /// # Errors
    /// See [`CallError`](crate::CallError).
    ///
    /// # Panics
    /// The future panics if it is awaited neither in a process nor in a tokio runtime, because it
    /// needs a timer for its deadline.
    pub fn call<T: Turn<P>>(self, message: T) -> Call<T, T::Reply> {
        Call::new(Route::to(self), message)
    }

    /// Sends a message that carries a [`ReplyTo`], and waits for the answer.
    ///
    /// Unlike a call's reply, the answer need not come from the turn that handles the message:
    /// see [`ReplyTo`].
    ///
    /// # Errors
    /// The same as for [`call`](Self::call), but
    /// [`CallError::Unanswered`](crate::CallError::Unanswered) instead of
    /// [`CallError::Died`](crate::CallError::Died) if the [`ReplyTo`] was dropped, perhaps because
    /// the process that had it exited.
    ///
    /// # Panics
    /// The same as for [`call`](Self::call).
    ///
    /// Cost: a call, and another pooled block.
    pub fn ask<T: Turn<P>, R: Send + 'static>(
        self,
        question: impl FnOnce(ReplyTo<R>) -> T,
    ) -> Ask<T, R> {
        Ask::new(self.raw, Cast::<P, T>::offer_or_wait, question)
    }

    /// Converts this address to a [`Recipient`], which names the message `M` instead of the
    /// process's type.
    pub fn recipient<M: Message>(self) -> Recipient<M>
    where
        P: Handle<M>,
    {
        self.into()
    }

    /// Sends a message to which no bound and no budget applies, in order with the messages that
    /// this turn has sent before; the message comes back if the process has exited.
    pub(crate) fn push<T: Turn<P>>(self, message: T) -> Result<(), T> {
        scheduler::with_worker(|worker| worker.map(Worker::end_streaks));
        Cast::<P, T>::push(self.raw, message)
    }

    /// Sends a message for which no sender waits, and returns whether it was sent. A message that could not be
    /// sent is counted as dropped.
    pub(crate) fn send_or_lose<T: Turn<P>>(self, message: T) -> bool {
        let sent = self.send(message);
        sent.map_err(|error| Cast::<P, T>::lose_unsent(self.raw, error)).is_ok()
    }

    /// Sends a message like [`push`](Self::push); if the process has exited, drops the message and returns false.
    pub(crate) fn push_or_lose<T: Turn<P>>(self, message: T) -> bool {
        let lose = |turn| Cast::<P, T>::lose(self.raw, turn, DropReason::NoProcess);
        self.push(message).map_err(lose).is_ok()
    }

    /// Sends a message to a raw address, for a [`Recipient`], which does not name the process's
    /// type.
    pub(crate) fn send_to<T: Turn<P>>(to: RawAddress, message: T) -> Result<(), SendError<T>> {
        Address::<P>::from_raw(to).send(message)
    }

    /// Asks the process to exit after the messages queued before this request. Returns `false` if
    /// the process has exited.
    ///
    /// A full mailbox takes this request too.
    pub fn stop(self) -> bool {
        scheduler::with_worker(|worker| worker.map(Worker::end_streaks));
        match self.raw.wake() {
            Some(token) => {
                token.ask_to_stop::<P>();
                scheduler::schedule_exit(token);
                true
            }
            None => Cast::<P, Stop>::push(self.raw, Stop).is_ok(),
        }
    }

    /// Whether the process has not exited yet.
    pub fn is_alive(self) -> bool {
        self.raw.is_alive()
    }

    /// Returns the pid of the process.
    pub fn pid(self) -> Pid {
        Pid(self.raw)
    }

    /// Sends an exit signal; see [`Pid::exit`].
    pub fn exit(self, reason: ExitReason) {
        self.pid().exit(reason);
    }

    /// Ends the process, even if it traps exits; see [`Pid::kill`].
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
