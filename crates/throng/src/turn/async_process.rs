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
//! The user's future is the process's first and only turn; when the future ends, the process
//! exits. A receive takes the next message from the mailbox and runs its turn *inside* this turn:
//! the handler hands the message to the receive, and the sender's side (calls, trains, requests to
//! stop) is the same as for any other process. If the mailbox is empty, the receive marks it as
//! `AWAITING` and is pending; see `mailbox`.
//!
//! A message that a receive passes over is kept in the process's state (`kept`) and counts as
//! queued: the mailbox budget is charged for it, the cell's extension has the number for an
//! inspection of the process (`cell::inspect`), and in a bounded mailbox the message goes on to
//! hold its place (`bounded`). [`change_kept`] and [`Taken`] keep all three up to date.
//!
//! Access:
//!
//! | data | accessed by | when |
//! |---|---|---|
//! | [`Inbox`] | its owner; each process has a single inbox | under Rust's borrow rules |
//! | [`AsyncProcess`] (the state in the cell) | the nested turn | while it runs |
//! | the same | the receive, and the turn around the future | otherwise, on the thread that polls the turn |
//! | the target of [`Receiving`] | the nested turn, on the thread that runs it | while it runs |
//!
//! Invariants:
//! 1. A reference to the state does not outlast the function that made it, and none is made while
//!    a nested turn runs: then the nested turn's borrow is the only borrow. A receive's condition
//!    is user code and runs under such a reference; it cannot reach the state, because the inbox
//!    is lent to the receive.
//! 2. The state is reached only by [`Inbox::with_current`], which has checked that the calling
//!    thread is polling this very process, and by that poll itself (`Life`). Either way the thread
//!    holds the process's token.
//! 3. A nested turn begins only in a receive, which borrows the inbox exclusively. So turns are
//!    never nested twice, and nothing else uses the target of [`Receiving`]. It is reached through the worker and
//!    never through the state, which user code is lent and may swap with that of another process.

mod kept;

use self::kept::{Arrived, Kept};
use crate::address::deadline::Deadline;
use crate::address::{Address, Pid};
use crate::cell::extension::KeptLoad;
use crate::cell::{CellRef, CurrentProcess};
use crate::error::SpawnError;
use crate::exit::{ExitReason, IntoExitReason, catch, drop_users};
use crate::mailbox::bound::Overflow;
use crate::mailbox::dead_letters::{DeadLetter, DropReason};
use crate::mailbox::envelope::Cast;
use crate::runtime::RuntimeHandle;
use crate::runtime::spawner::Spawner;
use crate::scheduler::worker::Worker;
use crate::scheduler::{self, Phase};
use crate::turn::after::After;
use crate::turn::context::{Context, OwnContext};
use crate::turn::process::{Down, Exactly, Exit, Handle, Message, Process, Turn};
use crate::turn::waker;
use std::any::type_name;
use std::fmt;
use std::future::{Future, poll_fn};
use std::marker::PhantomData;
use std::mem;
use std::pin::Pin;
use std::ptr::NonNull;
use std::task::{Poll, Waker};
use std::time::Duration;

/// The mailbox of an async process, from which the process takes messages when and in the order it
/// likes.
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
/// let session = runtime.spawner().spawn_async(|mut inbox: Inbox<Event>| async move {
///     // Other events wait, in their order, until a user has logged in.
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
/// An inbox works inside its own process only: it may be lent to functions and moved into other
/// futures there, but not to another task or thread.
///
/// Receiving is cancel-safe: a receive that is dropped has taken no message.
///
/// When the runtime shuts down, a receive that would have to wait ends the process instead.
pub struct Inbox<M> {
    pid: Pid,
    messages: Exactly<M>,
}

/// The type, in an [`Address`], of a process that is written as a future. See
/// [`spawn_async`](Spawner::spawn_async).
///
/// The process takes a single type of message, often an enum. A call with such a message returns
/// when the process takes the message out of its mailbox; use [`ask`](Address::ask) for answers.
pub struct AsyncProcess<M> {
    seldom: Option<Box<Seldom<M>>>,
}

/// A receive of an async process that waits, on this thread, for the turn of a message.
#[derive(Clone, Copy)]
pub(crate) struct Receiving {
    /// The receiving process.
    cell: CellRef,
    /// Place for the messages of its type that the turn brings, for as long as the receive waits.
    target: NonNull<()>,
}

// SAFETY: a worker has one only while it runs a nested turn, and changes no thread meanwhile.
unsafe impl Send for Receiving {}

/// Fields that most async processes never need.
struct Seldom<M> {
    kept: Kept<M>,
    /// The exit that a nested turn, a signal, the shutdown or the process itself has requested.
    exit: Option<After>,
    /// The waker of a receive that waits, if it is not the process's own.
    waiting: Option<Waker>,
    on_down: Option<fn(Down) -> M>,
    on_exit: Option<fn(Exit) -> M>,
}

/// Outcome of a search through the mailbox.
enum Searched<M> {
    Found(M),
    /// No queued message matches.
    Nothing,
    /// The process has used up its share of the worker; more messages may be queued.
    Yield,
    /// The process is to exit at its next wait.
    Exiting,
}

impl<M: Message<Reply = ()>> Inbox<M> {
    /// Waits for the next message.
    pub fn recv(&mut self) -> impl Future<Output = M> + Send {
        self.recv_match(|_| true)
    }

    /// Waits for the next message, but no longer than `timeout`; returns `None` if no message has
    /// come by then.
    ///
    /// A timeout of zero takes a message that is queued and does not wait. The timeout counts from
    /// the first poll. It may expire some milliseconds late, but never early.
    pub fn recv_timeout(&mut self, timeout: Duration) -> impl Future<Output = Option<M>> + Send {
        self.recv_match_timeout(|_| true, timeout)
    }

    /// Waits for the first message for which `matches` returns true. The messages before it stay
    /// queued in their order, and later receives look at them first.
    ///
    /// A message that is passed over stays queued, as in OTP: it counts in
    /// [`ProcessInfo`](crate::ProcessInfo), against the
    /// [`mailbox_budget`](crate::RuntimeBuilder::mailbox_budget), and in a
    /// [bounded](crate::MailboxBound) mailbox it takes a place until a receive takes it. If such
    /// messages fill the mailbox, the awaited message does not get in: senders that wait for room
    /// and this receive then wait for each other until the first of their deadlines is over. Only
    /// [`Overflow::DropOldest`](crate::Overflow::DropOldest) makes room: it drops the message that
    /// was passed over first. So give a selective receive from a bounded mailbox a
    /// [time-out](Self::recv_match_timeout).
    ///
    /// Cost: a look at each message that is passed over, repeated at every such receive. Memory:
    /// the message and a byte, rounded up to its alignment; about 300 bytes for the first message
    /// that a process passes over.
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

    /// Waits for the first message for which `matches` returns true, but no longer than `timeout`;
    /// see [`recv_match`](Self::recv_match) and [`recv_timeout`](Self::recv_timeout).
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

    /// Takes the next message without waiting; `None` if no message is queued.
    ///
    /// # Panics
    /// If called outside of this process.
    pub fn try_recv(&mut self) -> Option<M> {
        self.with_current(|worker, current| {
            match search(worker, current, &mut |_| true, &mut 0, false) {
                Searched::Found(message) => Some(message),
                _ => None,
            }
        })
    }

    /// Returns the address of this process.
    pub fn address(&self) -> Address<AsyncProcess<M>> {
        Address::from_raw(self.pid.raw())
    }

    /// Delivers the exit of each process that this process [monitors](Context::monitor) as a
    /// message, which `message` makes from the [`Down`].
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
    /// runtime.spawner().spawn_async(move |mut inbox: Inbox<Event>| async move {
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
    /// Without this call, the exits of monitored processes are dropped.
    ///
    /// # Panics
    /// If called outside of this process.
    pub fn on_down(&mut self, message: fn(Down) -> M) {
        self.with_state(|state| state.seldom().on_down = Some(message));
    }

    /// [Traps](Context::trap_exits) exit signals and delivers each as a message, which `message`
    /// makes from the [`Exit`].
    ///
    /// # Panics
    /// If called outside of this process.
    pub fn on_exit(&mut self, message: fn(Exit) -> M) {
        self.with_state(|state| state.seldom().on_exit = Some(message));
        self.context(|cx| cx.trap_exits(true));
    }

    /// Runs a closure with the context that a handler would have: for links, monitors and timers.
    /// After [`stop`](Context::stop) the process exits when it next waits.
    ///
    /// # Panics
    /// If called outside of this process.
    pub fn context<R>(&mut self, f: impl FnOnce(&mut Context<AsyncProcess<M>>) -> R) -> R {
        self.with_current(|_, current| {
            let mut cx = OwnContext::new(current);
            let result = f(&mut cx);
            obey::<M>(current, cx.into_after());
            result
        })
    }

    /// Returns the pid of this process.
    pub fn pid(&self) -> Pid {
        self.pid
    }

    /// Returns a handle to the runtime in which this process lives.
    ///
    /// # Panics
    /// If called outside of this process.
    pub fn runtime(&mut self) -> RuntimeHandle {
        self.with_current(|_, current| current.runtime().clone())
    }

    /// Runs `f` if this thread is polling the inbox's process; panics if it is not.
    fn with_current<R>(&mut self, f: impl FnOnce(&Worker, CurrentProcess) -> R) -> R {
        scheduler::with_turn_of(self.pid.raw(), f)
            .unwrap_or_else(|| panic!("an inbox was used outside of its own process"))
    }

    fn with_state<R>(&mut self, f: impl FnOnce(&mut AsyncProcess<M>) -> R) -> R {
        // SAFETY: no nested turn runs, because no receive borrows the inbox (invariant 3); the
        // reference ends with `f` (invariant 1).
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
                    // SAFETY: `search` has returned, so no nested turn runs; the reference ends
                    // with this statement (invariant 1).
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

/// Limit of a receive's wait, if it has a limit.
enum Limit {
    NoWait,
    Deadline(Deadline),
}

/// Searches the kept messages, then takes message after message from the mailbox until one matches.
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
        // SAFETY: no nested turn runs between two rounds of this loop, and the reference ends with
        // this condition (invariant 1).
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

/// Takes the first kept message that matches, skipping the first `passed`.
fn take_kept<M: Message<Reply = ()>>(
    worker: &Worker,
    current: CurrentProcess,
    matches: &mut impl FnMut(&M) -> bool,
    passed: &mut usize,
) -> Option<M> {
    // SAFETY: no nested turn runs outside `run_nested`, and the reference ends with the check in
    // the next line (invariant 1).
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

/// Drops the oldest `count` of the kept messages that hold places: newer messages have taken the
/// places.
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
        current.runtime().drops().count(DeadLetter {
            to: current.pid(),
            process: type_name::<AsyncProcess<M>>(),
            message: type_name::<M>(),
            reason: DropReason::Overflow(Overflow::DropOldest),
            messages: 1,
        });
    }
}

/// Changes the kept messages, and updates the budget and the cell's extension, which inspections
/// read.
fn change_kept<M: Message<Reply = ()>, R>(
    worker: &Worker,
    mut current: CurrentProcess,
    change: impl FnOnce(&mut Kept<M>) -> R,
) -> R {
    // SAFETY: no nested turn runs outside `run_nested`, and the reference ends with this function.
    // The user's condition, which `change` calls, cannot reach the state (invariant 1).
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
    current.with_extension(|own| own.rare().kept = KeptLoad::new(after, Kept::<M>::BYTES));
    changed
}

/// Calls the wakers of senders that were let into a bounded mailbox.
fn wake_all(wakers: Vec<Waker>) {
    for waker in wakers {
        // Any future may wait for room with a waker of its own, which may panic.
        let _ = catch(|| waker.wake());
    }
}

/// The messages of a nested turn. The receive may take one of them; the drop keeps the others, so
/// none is lost if the receive's condition panics.
struct Taken<'a, M: Message<Reply = ()>> {
    worker: &'a Worker,
    current: CurrentProcess,
    arrived: Arrived<M>,
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

/// Notes an exit that `after` asks for: the process exits when the user's future next waits.
fn obey<M: Message<Reply = ()>>(current: CurrentProcess, after: After) {
    match after {
        After::Exit(_) | After::Kill => {
            // SAFETY: `obey` is only called between nested turns, and the reference ends with this
            // statement (invariant 1).
            unsafe { current.state::<AsyncProcess<M>>().as_mut() }.want_exit(after);
        }
        // A nested turn leaves the process in its outer turn, so it cannot stop as idle.
        After::Next | After::ExitIfIdle => {}
        After::Ended(_) => unreachable!("the last turn of an exit is not in a mailbox"),
    }
}

/// Runs the next message's turn, which puts the message into `arrived`; `None` if none is queued.
fn run_nested<M: Message<Reply = ()>>(
    worker: &Worker,
    current: CurrentProcess,
    arrived: &mut Arrived<M>,
) -> Option<After> {
    // Later sends may depend on the message that is about to be received, so they must not join a
    // train that was begun before it.
    worker.end_streaks();
    // So that no train goes on by itself: each nested turn brings a single message.
    worker.end_run_early();
    let _receiving =
        worker.receive(Receiving { cell: current.cell(), target: NonNull::from(arrived).cast() });
    // SAFETY: by invariants 1 and 2 no reference to the state is in use.
    unsafe { current.run_nested(worker.current_turn()) }
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

    /// Requests an exit. The first request counts, but a kill replaces it.
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

/// Hands the nested turn's message to the receive. On a thread that the turn has lent its context to, sends
/// the message to the process once more.
fn arrive<M: Send + 'static>(message: M, cx: &Context<AsyncProcess<M>>) {
    let current = cx.current();
    let left = scheduler::with_worker(|worker| {
        let receiving = worker.and_then(Worker::receiving).filter(|it| it.cell == current.cell());
        let Some(Receiving { target, .. }) = receiving else { return Some(message) };
        // SAFETY: the receive is of this turn's process, which takes messages `M`: the context, which
        // nobody can replace, says so. It waits in `run_nested` on this thread for the turn to be
        // over, and meanwhile only this function uses its `arrived` (invariant 3).
        unsafe { target.cast::<Arrived<M>>().as_mut() }.push(message);
        None
    });
    if let Some(message) = left {
        let _ = Cast::<AsyncProcess<M>, _>::push(current.pid().raw(), Arrives(message));
    }
}

/// A message that a nested turn has sent on to its own process.
struct Arrives<M>(M);

impl<M: Send + 'static> Turn<AsyncProcess<M>> for Arrives<M> {
    type Reply = ();

    async fn run(self, _: &mut AsyncProcess<M>, cx: &mut Context<AsyncProcess<M>>) {
        arrive(self.0, cx);
    }
}

impl<M: Send + 'static> Process for AsyncProcess<M> {
    async fn down(&mut self, down: Down, cx: &mut Context<Self>) {
        if let Some(message) = self.seldom().on_down {
            arrive(message(down), cx);
        }
    }

    async fn exit(&mut self, exit: Exit, cx: &mut Context<Self>) {
        if let Some(message) = self.seldom().on_exit {
            arrive(message(exit), cx);
        }
    }
}

impl<M: Message<Reply = ()>> Handle<M> for AsyncProcess<M> {
    async fn handle(&mut self, message: M, cx: &mut Context<Self>) {
        arrive(message, cx);
    }
}

impl<M> fmt::Debug for AsyncProcess<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("AsyncProcess")
    }
}

impl Spawner<'_> {
    /// Spawns a process that is written as a future and takes its messages itself.
    ///
    /// The process exits when the future panics or ends, normally or with the error it returns.
    /// [`Address::stop`] takes effect when the future has taken all messages before it and waits
    /// for another.
    ///
    /// See [`Inbox`] for an example. Turns that are not messages ([`Turn`]) run as well while the
    /// process is receiving, but may not wait for anything.
    ///
    /// # Errors
    /// [`SpawnError::Limit`] and [`SpawnError::ShutDown`] hand the function back.
    ///
    /// Cost: a slot of 64 bytes, and a pooled block for the future, which takes some 80 bytes more
    /// than it would without an inbox. A message costs an additional turn that does not suspend.
    pub fn spawn_async<M, F, R>(self, begin: F) -> Result<Address<AsyncProcess<M>>, SpawnError<F>>
    where
        M: Message<Reply = ()>,
        F: FnOnce(Inbox<M>) -> R + Send + 'static,
        R: Future<Output: IntoExitReason> + Send + 'static,
    {
        let process = AsyncProcess { seldom: None };
        self.spawn_first(process, Begin(begin, PhantomData))
            .map_err(|error| error.map(|(_, Begin(begin, _))| begin))
    }
}

const _: () = assert!(size_of::<AsyncProcess<[u8; 100]>>() <= 16, "fits the smallest slot");
const _: () = assert!(size_of::<Inbox<u64>>() == 8, "lies in each process's future, often twice");

/// Returns the name of the type of messages that an async process takes, from the name of its type.
pub(crate) fn message_of(process: &'static str) -> &'static str {
    let of = process.split_once('<').and_then(|(_, of)| of.strip_suffix('>'));
    of.unwrap_or(process)
}

/// The only turn of an async process, apart from nested turns.
struct Begin<F, R>(F, PhantomData<fn() -> R>);

impl<M, F, R> Turn<AsyncProcess<M>> for Begin<F, R>
where
    M: Message<Reply = ()>,
    F: FnOnce(Inbox<M>) -> R + Send + 'static,
    R: Future<Output: IntoExitReason> + Send + 'static,
{
    type Reply = ();
    const COUNTED: bool = false;

    // Not an `async fn`, whose future would keep the borrow of the state.
    fn run(
        self,
        _: &mut AsyncProcess<M>,
        cx: &mut Context<AsyncProcess<M>>,
    ) -> impl Future<Output = ()> + Send {
        cx.has_begun();
        Life { stage: Stage::Begins(self.0), cx }
    }
}

/// The user's future; its end is the process's exit. Written by hand, because an `async` block
/// would have room for the inbox and the future twice: where each is made, and where it is pinned.
struct Life<'a, M, F, R> {
    stage: Stage<F, R>,
    cx: &'a mut Context<AsyncProcess<M>>,
}

enum Stage<F, R> {
    /// The user's function, called at the first poll, because the state is still borrowed before
    /// it.
    Begins(F),
    Runs(R),
    /// The user's function has panicked.
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
        // SAFETY: the future in `Stage::Runs` is never moved, because no other stage follows that
        // stage. Neither the function nor the context needs a pin.
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
        // SAFETY: the future stays in `Stage::Runs` until `self`, which is pinned, is dropped.
        let future = unsafe { Pin::new_unchecked(future) };
        // SAFETY: this is the process's turn, so this thread holds the token (invariant 2). No
        // nested turn runs, and the reference ends with this statement (invariant 1).
        let waiting = unsafe { current.state::<AsyncProcess<M>>().as_mut() }.take_waiting();
        if let Some(waker) = waiting {
            waker.wake();
        }
        let polled = future.poll(task);
        // SAFETY: the token is still held (invariant 2). The future's poll has returned, so no
        // nested turn runs; the reference ends with this expression (invariant 1).
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
