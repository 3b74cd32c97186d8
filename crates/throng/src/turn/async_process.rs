//! Async processes: a future that takes its messages itself, as an Erlang process does.
//!
//! ```text
//!            one long turn of the process
//! ┌──────────────────────────────────────────────────┐
//! │ user's future ──owns──▶ Inbox                     │
//! │       │ recv ◀── wanted ──┐                       │
//! │       ▼                   │ arriving              │
//! │ next message's own turn, nested: Handle::handle   │
//! │                           │ passed over           │
//! │                           ▼                       │
//! │ the process's state: messages kept                │
//! └──────────────────────────────────────────────────┘
//! ```
//!
//! The user's future is the process's first turn and its only one; when it ends, so does the
//! process. A receive takes the next message from the mailbox and runs its turn *inside* this
//! one: the handler puts the message down for the receive, and the sender's side (calls, trains,
//! requests to stop) is what it is for any other process. With nothing to take, the receive marks
//! the mailbox as `AWAITING` and is pending; see `mailbox`.
//!
//! A message that a receive passes over is kept in the process's state (`kept`) and counts as
//! queued: the mailbox budget is charged for it, the cell's extension has the number for whoever
//! looks at the process (`cell::inspect`), and in a bounded mailbox it goes on to hold its place
//! (`bounded`). [`change_kept`] and [`Taken`] keep all three up to date.
//!
//! Who may touch what:
//!
//! | what | who | when |
//! |---|---|---|
//! | [`Inbox`] | whoever owns it; there is one for each process | as Rust has it |
//! | [`AsyncProcess`] (the state in the cell) | the nested turn | while it runs |
//! | the same | the receive, and the turn around the future | otherwise, on the thread that polls the turn |
//! | what `arriving` points to | the nested turn | while it runs; then the pointer is taken back |
//!
//! Invariants:
//! 1. A reference to the state does not outlast the function that made it, and none is made while
//!    a nested turn runs: that one's borrow is the only one. A receive's condition, which is the
//!    user's, runs under such a reference; it cannot reach the state, for the inbox is lent to the
//!    receive.
//! 2. The state is reached only by [`Inbox::with_current`], which has seen that the calling thread
//!    is the one that polls this very process, and so holds its token.
//! 3. A nested turn begins in a receive only, which borrows the inbox exclusively; so turns are
//!    never nested twice, and `arriving` points to nothing that is used otherwise.

mod kept;

use self::kept::{Arrived, Kept};
use crate::address::deadline::Deadline;
use crate::address::{Address, Pid};
use crate::cell::CurrentProcess;
use crate::cell::extension::KeptLoad;
use crate::error::SpawnError;
use crate::exit::{ExitReason, IntoExitReason, catch, drop_users};
use crate::process::{Down, Exit, Handle, Message, Process, Turn};
use crate::runtime::RuntimeHandle;
use crate::runtime::spawner::Spawner;
use crate::scheduler::worker::Worker;
use crate::scheduler::{self, Phase};
use crate::turn::context::Context;
use crate::turn::frame::After;
use crate::turn::waker;
use std::fmt;
use std::future::{Future, poll_fn};
use std::marker::PhantomData;
use std::mem;
use std::pin::Pin;
use std::ptr;
use std::task::{Poll, Waker};
use std::time::Duration;

/// The messages of an async process, for it to take in the order and at the time it likes.
///
/// ```
/// use throng::prelude::*;
/// use std::time::Duration;
///
/// enum Event { Login(&'static str), Said(&'static str) }
/// impl Message for Event { type Reply = (); }
///
/// # fn main() -> Result<(), throng::Error> {
/// # let (heard, hears) = tokio::sync::oneshot::channel();
/// let runtime = Runtime::builder().workers(1).start()?;
/// let session = runtime.spawn_async(|mut inbox: Inbox<Event>| async move {
///     // Others wait, in their order, until somebody has logged in.
///     let login = inbox.recv_match(|event| matches!(event, Event::Login(_))).await;
///     let mut words = Vec::new();
///     while let Some(event) = inbox.recv_timeout(Duration::from_millis(20)).await {
///         if let Event::Said(word) = event {
///             words.push(word);
///         }
///     }
/// #   let Event::Login(_) = login else { panic!("chosen above") };
/// #   let _ = heard.send(words);
/// })?;
/// session.send(Event::Said("hello"))?;
/// session.send(Event::Login("ann"))?;
/// # let words = runtime.block_on(async |_| hears.await).unwrap_or_default();
/// # assert_eq!(words, ["hello"]);
/// # Ok(())
/// # }
/// ```
///
/// It works inside its own process only: it may be lent to functions and moved into other futures
/// there, but not to another task or thread.
///
/// Receiving is safe to cancel: a receive that is dropped has taken no message.
///
/// When the runtime shuts down, a receive that would have to wait ends the process instead.
pub struct Inbox<M> {
    pid: Pid,
    messages: PhantomData<fn() -> M>,
}

/// A process written as a future, as its address knows it. See
/// [`spawn_async`](RuntimeHandle::spawn_async).
///
/// It takes one type of message, often an enum. A call with it returns when the process takes the
/// message out of its mailbox; [`ask`](Address::ask) is for answers.
pub struct AsyncProcess<M> {
    /// Where the nested turn puts its message; null while none runs.
    arriving: *mut Arrived<M>,
    seldom: Option<Box<Seldom<M>>>,
}

// SAFETY: the pointer is null whenever the process changes threads, for a nested turn does not
// outlast a poll; see the file's invariant 3. The rest is `Send`.
unsafe impl<M: Send> Send for AsyncProcess<M> {}

/// What most async processes never need.
struct Seldom<M> {
    kept: Kept<M>,
    /// A nested turn, a signal, the shutdown or the process itself wants it to exit.
    exit: Option<After>,
    /// A receive waits with a waker that is not the process's own.
    waiting: Option<Waker>,
    on_down: Option<fn(Down) -> M>,
    on_exit: Option<fn(Exit) -> M>,
}

/// Outcome of a search through the mailbox.
enum Searched<M> {
    Found(M),
    /// There is no such message.
    Nothing,
    /// The process has had its share of the worker; there may be more.
    Yield,
    /// The process is to exit at its next wait.
    Exiting,
}

impl<M: Message<Reply = ()>> Inbox<M> {
    /// Waits for the next message.
    pub fn recv(&mut self) -> impl Future<Output = M> + Send {
        self.recv_match(|_| true)
    }

    /// Waits for the next message, but no longer than this; none if the time is over.
    ///
    /// With no time at all it takes what is in the mailbox and does not wait. The time counts
    /// from the first poll, is kept to a few milliseconds, and is never cut short.
    pub fn recv_timeout(&mut self, timeout: Duration) -> impl Future<Output = Option<M>> + Send {
        self.recv_match_timeout(|_| true, timeout)
    }

    /// Waits for the first message that matches. Those before it stay in their order, and later
    /// receives look at them first.
    ///
    /// A message that is passed over stays queued, as in OTP: it counts in
    /// [`ProcessInfo`](crate::ProcessInfo), against the
    /// [`mailbox_budget`](crate::RuntimeBuilder::mailbox_budget), and in a
    /// [bounded](crate::MailboxBound) mailbox it takes a place until a receive takes it. Where such
    /// messages fill the mailbox, the one that is waited for does not get in: senders that wait for
    /// room and this receive then wait for each other until the first of their deadlines is over.
    /// Only [`Overflow::DropOldest`](crate::Overflow::DropOldest) makes room: it drops the message
    /// that was passed over first. So a selective receive from a bounded mailbox wants a
    /// [time-out](Self::recv_match_timeout).
    ///
    /// Cost: a look at each message that is passed over, at every such receive anew. Memory: the
    /// message and a byte, rounded up to its alignment; about 300 bytes for a process's first one.
    pub fn recv_match(
        &mut self,
        mut matches: impl FnMut(&M) -> bool + Send,
    ) -> impl Future<Output = M> + Send {
        let mut passed = 0;
        poll_fn(move |task| {
            self.poll(task, &mut matches, &mut passed, None).map(|received| match received {
                Some(message) => message,
                None => unreachable!("without a deadline there is no end of waiting"),
            })
        })
    }

    /// Waits for the first message that matches, but no longer than this; see
    /// [`recv_match`](Self::recv_match) and [`recv_timeout`](Self::recv_timeout).
    pub fn recv_match_timeout(
        &mut self,
        mut matches: impl FnMut(&M) -> bool + Send,
        timeout: Duration,
    ) -> impl Future<Output = Option<M>> + Send {
        let mut passed = 0;
        let mut limit = if timeout.is_zero() {
            Limit::NoWait
        } else {
            Limit::Deadline(Deadline::within(timeout))
        };
        poll_fn(move |task| self.poll(task, &mut matches, &mut passed, Some(&mut limit)))
    }

    /// Takes the next message, if one is there.
    ///
    /// # Panics
    /// Outside of this process.
    pub fn try_recv(&mut self) -> Option<M> {
        self.with_current(|worker, current| {
            match search(worker, current, &mut |_| true, &mut 0, false) {
                Searched::Found(message) => Some(message),
                _ => None,
            }
        })
    }

    /// The address of this process.
    pub fn address(&self) -> Address<AsyncProcess<M>> {
        Address::from_raw(self.pid.raw())
    }

    /// Has the ends of the processes that this one [monitors](Context::monitor) come as messages.
    ///
    /// ```
    /// use throng::prelude::*;
    ///
    /// enum Event { Down(Down) }
    /// impl Message for Event { type Reply = (); }
    /// # struct Idle;
    /// # impl Process for Idle {}
    ///
    /// # fn main() -> Result<(), throng::Error> {
    /// let runtime = Runtime::builder().workers(1).start()?;
    /// let idle = runtime.spawn(Idle)?;
    /// # let (sender, receiver) = tokio::sync::oneshot::channel();
    /// runtime.spawn_async(move |mut inbox: Inbox<Event>| async move {
    ///     inbox.on_down(Event::Down);
    ///     let monitor = inbox.context(|cx| cx.monitor(idle));
    ///     idle.stop();
    ///     let Event::Down(down) = inbox.recv().await;
    ///     assert_eq!((down.monitor, down.reason), (monitor, ExitReason::Normal));
    /// #   sender.send(()).expect("is waited for");
    /// })?;
    /// # runtime.block_on(async |_| receiver.await).expect("no assertion has failed");
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// Without this they are dropped.
    ///
    /// # Panics
    /// Outside of this process; and so for the functions below.
    pub fn on_down(&mut self, message: fn(Down) -> M) {
        self.with_state(|state| state.seldom().on_down = Some(message));
    }

    /// [Traps](Context::trap_exits) exit signals and has them come as messages.
    pub fn on_exit(&mut self, message: fn(Exit) -> M) {
        self.with_state(|state| state.seldom().on_exit = Some(message));
        self.context(|cx| cx.trap_exits(true));
    }

    /// Does something that only a process can, as a handler does with its context: links,
    /// monitors, timers. After [`stop`](Context::stop) the process exits when it next waits.
    pub fn context<R>(&mut self, f: impl FnOnce(&mut Context<AsyncProcess<M>>) -> R) -> R {
        self.with_current(|_, current| {
            let mut cx = Context::new(current);
            let result = f(&mut cx);
            obey::<M>(current, cx.into_after());
            result
        })
    }

    /// Which process this is.
    pub fn pid(&self) -> Pid {
        self.pid
    }

    /// The runtime this process lives in.
    pub fn runtime(&mut self) -> RuntimeHandle {
        self.with_current(|_, current| current.runtime().clone())
    }

    /// Runs `f` if this thread is polling the inbox's process.
    fn with_current<R>(&mut self, f: impl FnOnce(&Worker, CurrentProcess) -> R) -> R {
        scheduler::with_turn_of(self.pid.raw(), f)
            .unwrap_or_else(|| panic!("an inbox was used outside of its own process"))
    }

    fn with_state<R>(&mut self, f: impl FnOnce(&mut AsyncProcess<M>) -> R) -> R {
        // SAFETY: no nested turn runs, for the inbox is free; and the reference ends here.
        self.with_current(|_, current| f(unsafe { current.state::<AsyncProcess<M>>().as_mut() }))
    }

    fn poll(
        &mut self,
        task: &mut std::task::Context<'_>,
        matches: &mut impl FnMut(&M) -> bool,
        passed: &mut usize,
        mut limit: Option<&mut Limit>,
    ) -> Poll<Option<M>> {
        self.with_current(|worker, current| {
            loop {
                match search(worker, current, matches, passed, true) {
                    Searched::Found(message) => return Poll::Ready(Some(message)),
                    Searched::Nothing => {}
                    Searched::Yield => {
                        task.waker().wake_by_ref();
                        return Poll::Pending;
                    }
                    Searched::Exiting => return Poll::Pending,
                }
                let is_late = match &mut limit {
                    None => false,
                    Some(Limit::NoWait) => true,
                    Some(Limit::Deadline(deadline)) => deadline.is_late_in(worker, current.cell()),
                };
                if is_late {
                    return Poll::Ready(None);
                }
                if worker.scheduler().phase() != Phase::Running {
                    obey::<M>(current, After::exit(ExitReason::Shutdown));
                    return Poll::Pending;
                }
                if !waker::is_of(task.waker(), current.cell()) {
                    // SAFETY: the same.
                    unsafe { current.state::<AsyncProcess<M>>().as_mut() }.wait(task.waker());
                }
                if current.await_message() {
                    return Poll::Pending;
                }
            }
        })
    }
}

impl<M> fmt::Debug for Inbox<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Inbox({:?})", self.pid)
    }
}

/// How long a receive waits, if not for ever.
enum Limit {
    NoWait,
    Deadline(Deadline),
}

/// Looks for a message among those kept, and then takes one after the other from the mailbox.
fn search<M: Message<Reply = ()>>(
    worker: &Worker,
    current: CurrentProcess,
    matches: &mut impl FnMut(&M) -> bool,
    passed: &mut usize,
    budgeted: bool,
) -> Searched<M> {
    if let Some(message) = take_kept(worker, current, matches, passed) {
        return Searched::Found(message);
    }
    loop {
        // SAFETY: no nested turn runs, and the reference ends here.
        if unsafe { current.state::<AsyncProcess<M>>().as_mut() }.is_exiting() {
            return Searched::Exiting;
        }
        if budgeted && !worker.may_nest() {
            return Searched::Yield;
        }
        let mut arrived = Arrived::new();
        let Some(after) = run_nested(worker, current, &mut arrived) else {
            return Searched::Nothing;
        };
        obey::<M>(current, after);
        let mut taken = Taken { worker, current, arrived, is_given: false, passed };
        let found = taken.arrived.take(matches);
        taken.is_given = found.is_some();
        drop(taken);
        if let Some(message) = found {
            return Searched::Found(message);
        }
    }
}

/// Takes the first message that matches out of those kept, looking at none of the first `passed`.
fn take_kept<M: Message<Reply = ()>>(
    worker: &Worker,
    current: CurrentProcess,
    matches: &mut impl FnMut(&M) -> bool,
    passed: &mut usize,
) -> Option<M> {
    // SAFETY: no nested turn runs, and the reference ends here.
    let seldom = &unsafe { current.state::<AsyncProcess<M>>().as_mut() }.seldom;
    if seldom.as_ref().is_none_or(|seldom| seldom.kept.len() == 0) {
        return None;
    }
    if let Some(queue) = current.bounded_queue() {
        drop_oldest::<M>(worker, current, queue.take_doomed(), passed);
    }
    let taken = change_kept(worker, current, |kept| kept.take(matches, passed))?;
    if taken.is_counted
        && let Some(queue) = current.bounded_queue()
    {
        wake_all(queue.release());
    }
    Some(taken.message)
}

/// Drops so many of the kept messages that count, the oldest first: newer ones have their places.
fn drop_oldest<M: Message<Reply = ()>>(
    worker: &Worker,
    current: CurrentProcess,
    count: usize,
    passed: &mut usize,
) {
    for _ in 0..count {
        let oldest = change_kept(worker, current, Kept::<M>::take_oldest_counted);
        let Some((place, message)) = oldest else { return };
        if place < *passed {
            *passed -= 1;
        }
        drop_users(message);
    }
}

/// Changes what is kept, and has everybody know who counts it: the budget, and the cell for those
/// who look at it.
fn change_kept<M: Message<Reply = ()>, R>(
    worker: &Worker,
    mut current: CurrentProcess,
    change: impl FnOnce(&mut Kept<M>) -> R,
) -> R {
    // SAFETY: no nested turn runs, and the reference ends with this function, which the user's
    // condition, called by `change`, cannot call again: see the file's invariant 1.
    let kept = &mut unsafe { current.state::<AsyncProcess<M>>().as_mut() }.seldom().kept;
    let before = kept.len();
    let changed = change(kept);
    let after = kept.len();
    if before == after {
        return changed;
    }
    let bytes = |messages: usize| messages as u64 * Kept::<M>::BYTES;
    if after > before {
        worker.account.charge(bytes(after - before));
    } else {
        worker.account.discharge(bytes(before - after));
    }
    current.with_extension(|own| own.kept = KeptLoad::new(after, Kept::<M>::BYTES));
    changed
}

/// Calls the wakers of senders that were let into a bounded mailbox.
fn wake_all(wakers: Vec<Waker>) {
    for waker in wakers {
        // Any future may wait for room with a waker of its own.
        let _ = catch(|| waker.wake());
    }
}

/// The messages of a nested turn, of which the receive may take one. Dropping this keeps the others;
/// so none is lost if the receive's condition panics.
struct Taken<'a, M: Message<Reply = ()>> {
    worker: &'a Worker,
    current: CurrentProcess,
    arrived: Arrived<M>,
    /// Whether the receive has taken one.
    is_given: bool,
    passed: &'a mut usize,
}

impl<M: Message<Reply = ()>> Drop for Taken<'_, M> {
    fn drop(&mut self) {
        let Taken { worker, current, ref mut arrived, is_given, ref mut passed } = *self;
        let left = arrived.len();
        let settled = current.bounded_queue().map(|queue| queue.settle(left));
        if left > 0 {
            let is_counted = settled.as_ref().is_some_and(|settled| settled.is_counted);
            change_kept(worker, current, |kept| {
                while let Some(message) = arrived.pop() {
                    kept.push(message, is_counted);
                }
            });
            if !is_given {
                **passed += left;
            }
        }
        if let Some(settled) = settled {
            drop_oldest::<M>(worker, current, settled.doomed, passed);
            wake_all(settled.wakers);
        }
    }
}

/// Has the process exit, if that is wanted, when the user's future next waits.
fn obey<M: Message<Reply = ()>>(current: CurrentProcess, after: After) {
    match after {
        After::Exit(_) | After::Kill => {
            // SAFETY: called between nested turns, and the reference ends here.
            unsafe { current.state::<AsyncProcess<M>>().as_mut() }.want_exit(after);
        }
        // To stop when idle is not for a turn that only passes by.
        After::Next | After::ExitIfIdle => {}
        After::Ended(_) => unreachable!("the last turn of an exit is not in a mailbox"),
    }
}

/// Runs the next message's turn, which puts what it carries into `arrived`; none if there is none.
fn run_nested<M: Message<Reply = ()>>(
    worker: &Worker,
    current: CurrentProcess,
    arrived: &mut Arrived<M>,
) -> Option<After> {
    // What it is about to learn must not be overtaken by what it has said.
    worker.end_streak();
    let state = current.state::<AsyncProcess<M>>();
    // SAFETY: by invariants 1 and 2 nobody else has the state; each reference ends at once. While
    // the nested turn runs, `arrived` is used by it alone, through the pointer.
    unsafe {
        (*state.as_ptr()).arriving = arrived;
        let after = current.run_nested(worker.current_turn());
        (*state.as_ptr()).arriving = ptr::null_mut();
        after
    }
}

impl<M> AsyncProcess<M> {
    fn seldom(&mut self) -> &mut Seldom<M> {
        self.seldom.get_or_insert_with(|| {
            Box::new(Seldom {
                kept: Kept::new(),
                exit: None,
                waiting: None,
                on_down: None,
                on_exit: None,
            })
        })
    }

    /// The first wish counts, but for a kill.
    fn want_exit(&mut self, after: After) {
        let exit = &mut self.seldom().exit;
        if exit.is_none() || matches!(after, After::Kill) {
            *exit = Some(after);
        }
    }

    fn is_exiting(&self) -> bool {
        self.seldom.as_ref().is_some_and(|seldom| seldom.exit.is_some())
    }

    fn wait(&mut self, waker: &Waker) {
        match &mut self.seldom().waiting {
            Some(waiting) => waiting.clone_from(waker),
            none => *none = Some(waker.clone()),
        }
    }

    fn take_waiting(&mut self) -> Option<Waker> {
        self.seldom.as_mut()?.waiting.take()
    }

    fn take_exit(&mut self) -> Option<After> {
        self.seldom.as_mut()?.exit.take()
    }
}

impl<M> AsyncProcess<M> {
    /// The nested turn puts down what it brings.
    fn arrive(&mut self, message: M) {
        // SAFETY: not null only while a receive waits for this turn to be over; see the file's
        // invariant 3.
        if let Some(arriving) = unsafe { self.arriving.as_mut() } {
            arriving.push(message);
        }
    }
}

impl<M: Send + 'static> Process for AsyncProcess<M> {
    async fn down(&mut self, down: Down, _: &mut Context<Self>) {
        if let Some(message) = self.seldom().on_down {
            self.arrive(message(down));
        }
    }

    async fn exit(&mut self, exit: Exit, _: &mut Context<Self>) {
        if let Some(message) = self.seldom().on_exit {
            self.arrive(message(exit));
        }
    }
}

impl<M: Message<Reply = ()>> Handle<M> for AsyncProcess<M> {
    async fn handle(&mut self, message: M, _: &mut Context<Self>) {
        self.arrive(message);
    }
}

impl<M> fmt::Debug for AsyncProcess<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("AsyncProcess")
    }
}

impl RuntimeHandle {
    /// Spawns a process that is written as a future and takes its messages itself.
    ///
    /// It exits when the future ends, normally or with the error it returns, or panics.
    /// [`Address::stop`] takes effect when the future, having taken all messages before, waits
    /// for another.
    ///
    /// See [`Inbox`] for an example. Turns that are not messages ([`Turn`]) run too, while the
    /// process is receiving, but may not wait for anything.
    ///
    /// # Errors
    /// [`SpawnError::Limit`] and [`SpawnError::ShutDown`] hand the function back.
    ///
    /// Cost: a slot of 64 bytes, and a pooled block for the future, which takes some 80 bytes more
    /// than it would without an inbox. A message costs one more turn that does not suspend.
    pub fn spawn_async<M, F, R>(&self, begin: F) -> Result<Address<AsyncProcess<M>>, SpawnError<F>>
    where
        M: Message<Reply = ()>,
        F: FnOnce(Inbox<M>) -> R + Send + 'static,
        R: Future<Output: IntoExitReason> + Send + 'static,
    {
        self.spawner().spawn_async(begin)
    }
}

impl Spawner<'_> {
    /// Spawns a process that is written as a future; see [`RuntimeHandle::spawn_async`].
    ///
    /// # Errors
    /// As [`RuntimeHandle::spawn_async`].
    pub fn spawn_async<M, F, R>(self, begin: F) -> Result<Address<AsyncProcess<M>>, SpawnError<F>>
    where
        M: Message<Reply = ()>,
        F: FnOnce(Inbox<M>) -> R + Send + 'static,
        R: Future<Output: IntoExitReason> + Send + 'static,
    {
        let process = AsyncProcess { arriving: ptr::null_mut(), seldom: None };
        self.spawn_first(process, Begin(begin, PhantomData))
            .map_err(|error| error.map(|(_, Begin(begin, _))| begin))
    }
}

const _: () = assert!(size_of::<AsyncProcess<[u8; 100]>>() <= 16, "fits the smallest slot");
const _: () = assert!(size_of::<Inbox<u64>>() == 8, "lies in each process's future, often twice");

/// The one turn of an async process.
struct Begin<F, R>(F, PhantomData<fn() -> R>);

impl<M, F, R> Turn<AsyncProcess<M>> for Begin<F, R>
where
    M: Message<Reply = ()>,
    F: FnOnce(Inbox<M>) -> R + Send + 'static,
    R: Future<Output: IntoExitReason> + Send + 'static,
{
    type Reply = ();

    // Not an `async fn`: its future would hold on to the borrow of the state.
    fn run(
        self,
        _: &mut AsyncProcess<M>,
        cx: &mut Context<AsyncProcess<M>>,
    ) -> impl Future<Output = ()> + Send {
        cx.has_begun();
        Life { stage: Stage::Begins(self.0), cx }
    }
}

/// The user's future, and its end as the process's. Written out, for an `async` block would have room
/// for the inbox and the future twice: where each comes from, and where it is pinned.
struct Life<'a, M, F, R> {
    stage: Stage<F, R>,
    cx: &'a mut Context<AsyncProcess<M>>,
}

enum Stage<F, R> {
    /// To be called when polled, for before that the state is still borrowed.
    Begins(F),
    Runs(R),
    /// It has panicked as it was called.
    Over,
}

impl<M, F, R> Future for Life<'_, M, F, R>
where
    M: Message<Reply = ()>,
    F: FnOnce(Inbox<M>) -> R,
    R: Future<Output: IntoExitReason>,
{
    type Output = ();

    fn poll(self: Pin<&mut Self>, task: &mut std::task::Context<'_>) -> Poll<()> {
        // SAFETY: a future that runs is not moved: its stage is not left while this lives. Neither the
        // function nor the context needs a pin.
        let Life { stage, cx } = unsafe { self.get_unchecked_mut() };
        let current = cx.current();
        if matches!(stage, Stage::Begins(_))
            && let Stage::Begins(begin) = mem::replace(stage, Stage::Over)
        {
            if let Some(queue) = current.bounded_queue() {
                queue.hold_taken();
            }
            *stage = Stage::Runs(begin(Inbox { pid: current.pid(), messages: PhantomData }));
        }
        let Stage::Runs(future) = stage else { unreachable!("is not polled after a panic") };
        // SAFETY: as above.
        let future = unsafe { Pin::new_unchecked(future) };
        // SAFETY: this is the process's turn, no nested one runs, and the reference ends here.
        let waiting = unsafe { current.state::<AsyncProcess<M>>().as_mut() }.take_waiting();
        if let Some(waker) = waiting {
            waker.wake();
        }
        let polled = future.poll(task);
        // SAFETY: the same.
        let after = match unsafe { current.state::<AsyncProcess<M>>().as_mut() }.take_exit() {
            Some(after) => after,
            None => match polled {
                Poll::Ready(outcome) => After::exit(outcome.into_exit_reason()),
                Poll::Pending => return Poll::Pending,
            },
        };
        cx.end(after);
        Poll::Ready(())
    }
}
