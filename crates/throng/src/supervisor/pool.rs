//! Pools: a fixed number of supervised processes of a type, the workers, each with room for so many messages.
//!
//! ```text
//!  Pool ── any ──▶ the worker with the most room ─┐       ┌──▶ mailbox ──▶ turn
//!     ├─── key ──▶ the worker of the key ─────────┴ place ┘                  │
//!     └─── no room ──▶ line ── the oldest that may ──▲                       │
//!                                                    └─ free when it is over ┘
//! ```
//! A message that finds no room waits in the pool's `line`, without a place. The thread that frees a
//! place sends the oldest message of the line that the worker may handle. So the sender, who may be
//! polled late or never again, holds up no other.
//!
//! | event | the line |
//! |---|---|
//! | a turn is over, and its worker goes on | moves up |
//! | a message is dropped: its worker exits, or its mailbox made room for another | the worker is asked whether it goes on ([`Relief`]), and moves it up if so |
//! | a worker is started again | moves up |
//! | a worker has exited | messages for it alone go back to their senders; all, if no other worker runs |
//! | a sender gives up | loses its message |
//!
//! Invariants:
//! 1. A worker has at most `room` messages of the pool, including the message that it handles. A message's place
//!    is freed once, when its turn is over, or when the message is dropped, whatever the reason.
//! 2. Messages with the same key go to the same worker. A sender that sends them one after the other has them
//!    handled in that order.
//! 3. While a message waits that a running worker may handle, the worker has no free place, or one of the events
//!    above is under way.
//! 4. No code of users runs under the lock of the line: messages are sent and dropped, and wakers called, after it.

mod line;

use self::line::{Found, Line, Ticket};
use super::child::Child;
use super::spec::{ChildSpec, SupervisorSpec};
use crate::address::Address;
use crate::address::call::Call;
use crate::address::deadline::Deadline;
use crate::error::{CallError, SendError};
use crate::exit::{catch, drop_users};
use crate::mailbox::envelope::Route;
use crate::scheduler;
use crate::scheduler::worker::Worker;
use crate::signal::registry::table::shard_of;
use crate::supervisor::Supervisor;
use crate::sync::{Mutex, lock};
use crate::turn::context::Context;
use crate::turn::process::{Process, Turn};
use std::fmt;
use std::future::{Future, poll_fn};
use std::hash::Hash;
use std::mem;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{self, Poll, Waker};

/// A fixed number of processes of a type, the workers, that share the messages sent to the pool. Cloning this
/// handle costs a reference count.
///
/// A message goes to the worker with the most room; messages with the same [key](Self::keyed) all go to the same
/// worker. When no worker has room, senders get their message back, or wait. A pool that is too slow therefore
/// slows its callers down, instead of filling the memory.
///
/// ```
/// use throng::{ChildSpec, Pool, prelude::*};
///
/// #[derive(Default)]
/// struct Hasher { done: u64 }
/// #[process]
/// impl Hasher {
///     #[message]
///     fn digest(&mut self, bytes: Vec<u8>) -> u64 {
///         self.done += 1;
///         bytes.iter().fold(0, |sum, byte| sum * 31 + u64::from(*byte))
///     }
/// }
///
/// # fn main() -> Result<(), throng::Error> {
/// let runtime = Runtime::builder().workers(2).start()?;
/// // Four workers, each with room for eight messages.
/// let (hashers, supervisor) = Pool::new(4, 8, || ChildSpec::new(Hasher::default));
/// supervisor.start(&runtime)?;
/// runtime.block_on(async |_| {
///     assert_eq!(hashers.call(Digest { bytes: vec![1, 2] }).await?, 33);
///     // A single worker handles all messages with the key "alice", in order.
///     assert_eq!(hashers.keyed("alice").call(Digest { bytes: vec![7] }).await?, 7);
///     Ok(())
/// })
/// # }
/// ```
///
/// The pool's supervisor restarts a worker that panics. Messages that wait in the worker's mailbox are lost, and
/// its callers get [`CallError::Died`].
pub struct Pool<P: Process>(Arc<Workers<P>>);

struct Workers<P: Process> {
    children: Box<[Child<P>]>,
    room: usize,
    line: Mutex<Line<Box<dyn Waiting<P>>>>,
}

/// Handle of the worker that gets all messages with a key. Made by [`Pool::keyed`].
pub struct KeyedWorker<'a, P: Process> {
    pool: &'a Arc<Workers<P>>,
    at: usize,
}

impl<P: Process> Pool<P> {
    /// Returns a pool of `size` workers, each with room for `room` messages, and the spec of their supervisor. The
    /// caller starts the supervisor, or makes it the child of another supervisor. `child` makes the spec of a worker.
    ///
    /// The supervisor restarts workers one for one. Its [intensity](SupervisorSpec::intensity) is the default of
    /// all supervisors: raise it if workers are expected to fail.
    ///
    /// # Panics
    /// If `size` or `room` is zero.
    pub fn new<C>(size: usize, room: usize, child: impl Fn() -> C) -> (Pool<P>, SupervisorSpec)
    where
        C: Into<ChildSpec<P>>,
    {
        assert!(size > 0 && room > 0, "a pool has a worker, with room for a message");
        // No pool has so many messages; the sum of all places is a number.
        let room = room.min(usize::MAX / size);
        let mut supervisor = Supervisor::one_for_one();
        let mut children = Vec::with_capacity(size);
        for number in 0..size {
            let spec: ChildSpec<P> = child().into();
            children.push(spec.handle());
            supervisor = supervisor.child(number.to_string(), spec);
        }
        let line = Mutex::new(Line::new(size, room));
        let workers = Arc::new(Workers { children: children.into(), room, line });
        for (at, child) in workers.children.iter().enumerate() {
            let workers = Arc::downgrade(&workers);
            child.slot().on_start(move || {
                if let Some(workers) = workers.upgrade() {
                    workers.move_up(at, None);
                }
            });
        }
        (Pool(workers), supervisor)
    }

    /// Returns the worker of a key: always the same worker, also after a restart. A sender that sends messages one
    /// after the other has them handled in that order.
    pub fn keyed<K: Hash + ?Sized>(&self, key: &K) -> KeyedWorker<'_, P> {
        KeyedWorker { pool: &self.0, at: shard_of(key, self.0.children.len()) }
    }

    /// Sends a message to the worker with the most room.
    ///
    /// # Errors
    /// [`SendError::Overloaded`] if no worker has room, or the worker's own mailbox or the runtime's mailbox budget
    /// has none; [`SendError::NoProcess`] if no worker is running. Both hand the message back.
    ///
    /// Cost: a check of each worker, and a send.
    pub fn send<T: Turn<P>>(&self, message: T) -> Result<(), SendError<T>> {
        self.0.send(None, message)
    }

    /// Sends a message to the worker with the most room, and waits for room while there is none. A delivery that
    /// waits is sent in its turn even if it is not polled any more; dropping it ends the wait.
    ///
    /// # Errors
    /// [`SendError::NoProcess`] if no worker is running; [`SendError::Overloaded`] if the worker's own mailbox or
    /// the runtime's mailbox budget has no room. Both hand the message back.
    pub async fn deliver<T: Turn<P>>(&self, message: T) -> Result<(), SendError<T>> {
        self.0.deliver(None, message).await
    }

    /// Calls the worker with the most room. Waits at most five seconds for room, and at most five seconds for the
    /// reply.
    ///
    /// # Errors
    /// [`CallError`]: the same as for [`Address::call`](crate::Address::call). `NoProcess` means that no worker
    /// is running. `TimedOut` also means that there was no room in time.
    pub async fn call<T: Turn<P>>(&self, message: T) -> Result<T::Reply, CallError<T>> {
        self.0.call(None, message).await
    }

    /// Returns the number of messages of all workers: waiting messages, and messages that are being handled.
    pub fn len(&self) -> usize {
        self.0.children.len() * self.0.room - lock(&self.0.line).free_places()
    }

    /// Whether no worker has a message.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl<P: Process> KeyedWorker<'_, P> {
    /// Sends a message to the key's worker.
    ///
    /// # Errors
    /// The same as for [`Pool::send`], but for this worker alone.
    pub fn send<T: Turn<P>>(self, message: T) -> Result<(), SendError<T>> {
        self.pool.send(Some(self.at), message)
    }

    /// Sends a message to the key's worker, and waits while the worker has no room.
    ///
    /// # Errors
    /// The same as for [`Pool::deliver`], but for this worker alone.
    pub async fn deliver<T: Turn<P>>(self, message: T) -> Result<(), SendError<T>> {
        self.pool.deliver(Some(self.at), message).await
    }

    /// Calls the key's worker; see [`Pool::call`].
    ///
    /// # Errors
    /// The same as for [`Pool::call`], but for this worker alone.
    pub async fn call<T: Turn<P>>(self, message: T) -> Result<T::Reply, CallError<T>> {
        self.pool.call(Some(self.at), message).await
    }
}

/// Outcome of the attempt to give a message a place.
enum Entered<P: Process, T, O> {
    Permit(Permit<P>, T),
    /// The message waits in the line.
    Waits(InLine<P, O>),
    /// No worker is running.
    Gone(T),
}

impl<P: Process> Workers<P> {
    fn is_running(&self, at: usize) -> bool {
        self.children[at].address().is_some()
    }

    /// Takes a place, or adds the message to the line if the running workers have no room.
    fn enter<T, O, W: Waiting<P> + 'static>(
        self: &Arc<Self>,
        only: Option<usize>,
        turn: T,
        wait: impl FnOnce(T, Arc<Fate<O>>) -> W,
    ) -> Entered<P, T, O> {
        let mut line = lock(&self.line);
        match line.take(only, |at| self.is_running(at)) {
            Found::Place(at) => {
                drop(line);
                Entered::Permit(Permit { workers: self.clone(), at }, turn)
            }
            Found::Full => {
                let fate = Arc::new(Fate(Mutex::new(Progress::Open(None))));
                let ticket = line.join(only, Box::new(wait(turn, fate.clone())));
                drop(line);
                Entered::Waits(InLine { workers: self.clone(), ticket, fate })
            }
            Found::Gone => Entered::Gone(turn),
        }
    }

    // A worker that ends between the search and the send hands the message back, for another search.

    fn send<T: Turn<P>>(
        self: &Arc<Self>,
        only: Option<usize>,
        mut turn: T,
    ) -> Result<(), SendError<T>> {
        loop {
            let found = lock(&self.line).take(only, |at| self.is_running(at));
            match found {
                Found::Place(at) => match (Permit { workers: self.clone(), at }).send(turn) {
                    Err(SendError::NoProcess(back)) => turn = back,
                    outcome => return outcome,
                },
                Found::Full => return Err(SendError::Overloaded(turn)),
                Found::Gone => return Err(SendError::NoProcess(turn)),
            }
        }
    }

    async fn deliver<T: Turn<P>>(
        self: &Arc<Self>,
        only: Option<usize>,
        mut turn: T,
    ) -> Result<(), SendError<T>> {
        loop {
            match self.enter(only, turn, |turn, fate| Delivered { turn, fate }) {
                Entered::Permit(place, entered) => match place.send(entered) {
                    Err(SendError::NoProcess(back)) => turn = back,
                    outcome => return outcome,
                },
                Entered::Waits(in_line) => return in_line.await,
                Entered::Gone(turn) => return Err(SendError::NoProcess(turn)),
            }
        }
    }

    async fn call<T: Turn<P>>(
        self: &Arc<Self>,
        only: Option<usize>,
        mut turn: T,
    ) -> Result<T::Reply, CallError<T>> {
        let mut deadline = Deadline::usual();
        loop {
            let call = match self.enter(only, turn, |turn, fate| WaitingCall { turn, fate }) {
                Entered::Permit(place, entered) => match place.call(entered) {
                    Ok(call) => call,
                    Err(back) => {
                        turn = back;
                        continue;
                    }
                },
                Entered::Waits(mut in_line) => {
                    let mut has_left = false;
                    let sent = poll_fn(|cx| {
                        if let Poll::Ready(sent) = Pin::new(&mut in_line).poll(cx) {
                            return Poll::Ready(sent);
                        }
                        if !has_left && deadline.is_late(cx) {
                            has_left = true;
                            if in_line.leave() {
                                return Poll::Ready(Err(CallError::TimedOut { enqueued: false }));
                            }
                            // Another thread is sending the message, and wakes this task then.
                        }
                        Poll::Pending
                    });
                    sent.await?
                }
                Entered::Gone(turn) => return Err(CallError::NoProcess(turn)),
            };
            match call.await.map_err(|error| error.map(|pooled| pooled.turn)) {
                Err(CallError::NoProcess(back)) => turn = back,
                outcome => return outcome,
            }
        }
    }

    /// Frees a place of a worker, which `goes_on` if that is known, and lets the line move up.
    fn free(self: &Arc<Self>, at: usize, goes_on: bool) {
        let mut line = lock(&self.line);
        let is_awaited = line.free(at);
        // The place changes hands under one lock: a pool with a line never looks empty.
        let next = if goes_on { line.next(at) } else { None };
        drop(line);
        match next {
            Some(next) => self.move_up(at, Some(next)),
            None if is_awaited => self.ask(at),
            None => {}
        }
    }

    /// Sends the message that has `taken` a place of a worker, and gives the worker's free places to the line; if
    /// the worker has exited, returns the messages that no worker is left to handle.
    fn move_up(self: &Arc<Self>, at: usize, mut taken: Option<Next<P>>) {
        // The turn under way may have a train to the worker, which a message in the line must not join: its sender
        // may have sent another one since the train was pushed.
        scheduler::with_worker(|worker| worker.map(Worker::end_streaks));
        loop {
            if taken.is_none() && !self.is_running(at) {
                return self.refuse_stranded();
            }
            let Some((ticket, message)) = taken.take().or_else(|| lock(&self.line).next(at)) else {
                return;
            };
            if let Err(back) = message.admit(Permit { workers: self.clone(), at }) {
                let mut line = lock(&self.line);
                // The lock orders this check with a sender that gives up.
                let given_up = if back.is_given_up() {
                    Some(back)
                } else {
                    line.put_back(ticket, back);
                    None
                };
                drop(line);
                drop_users(given_up);
            }
        }
    }

    /// Asks a worker whether it goes on. If not, the line hears of its exit as the question is dropped.
    fn ask(self: &Arc<Self>, at: usize) {
        if lock(&self.line).set_asked(at, true) {
            return;
        }
        let unasked = match self.children[at].address() {
            None => true,
            Some(address) => match address.push(Relief { workers: Some(self.clone()), at }) {
                Ok(()) => false,
                Err(mut relief) => relief.workers.take().is_some(),
            },
        };
        if unasked {
            lock(&self.line).set_asked(at, false);
            self.refuse_stranded();
        }
    }

    fn refuse_stranded(&self) {
        let stranded = lock(&self.line).take_stranded(|at| self.is_running(at));
        stranded.into_iter().for_each(|message| message.refuse());
    }
}

/// A message that has left the line for a place.
type Next<P> = (Ticket, Box<dyn Waiting<P>>);

/// Question to a worker whether it goes on, after a message of the pool was dropped there. A worker that runs its
/// turn goes on; a worker that exits drops it.
struct Relief<P: Process> {
    /// `None` once the turn has begun.
    workers: Option<Arc<Workers<P>>>,
    at: usize,
}

impl<P: Process> Turn<P> for Relief<P> {
    type Reply = ();
    const COUNTED: bool = false;

    async fn run(mut self, _: &mut P, _: &mut Context<P>) {
        if let Some(workers) = self.workers.take() {
            lock(&workers.line).set_asked(self.at, false);
            workers.move_up(self.at, None);
        }
    }
}

impl<P: Process> Drop for Relief<P> {
    fn drop(&mut self) {
        if let Some(workers) = self.workers.take() {
            lock(&workers.line).set_asked(self.at, false);
            // The worker may still have an address while it drops its messages. Then the next question is dropped
            // when it has none.
            workers.ask(self.at);
        }
    }
}

/// Permit for a message to a worker. Its drop gives the worker's place back.
struct Permit<P: Process> {
    workers: Arc<Workers<P>>,
    at: usize,
}

impl<P: Process> Permit<P> {
    fn worker(&self) -> Option<Address<P>> {
        self.workers.children[self.at].address()
    }

    fn send<T: Turn<P>>(self, turn: T) -> Result<(), SendError<T>> {
        match self.worker() {
            Some(worker) => worker
                .send(Pooled { turn, place: self })
                .map_err(|error| error.map(|pooled| pooled.turn)),
            None => Err(SendError::NoProcess(turn)),
        }
    }

    /// Returns a call that is not sent yet; the message comes back if the worker is not running.
    fn call<T: Turn<P>>(self, turn: T) -> Result<PooledCall<P, T>, T> {
        match self.worker() {
            Some(worker) => Ok(Call::new(Route::to(worker), Pooled { turn, place: self })),
            None => Err(turn),
        }
    }

    /// Frees the place after a turn.
    fn free(self, goes_on: bool) {
        let (workers, at) = (self.workers.clone(), self.at);
        mem::forget(self);
        workers.free(at, goes_on);
    }
}

impl<P: Process> Drop for Permit<P> {
    fn drop(&mut self) {
        self.workers.free(self.at, false);
    }
}

type PooledCall<P, T> = Call<Pooled<P, T>, <T as Turn<P>>::Reply>;
type SentCall<P, T> = Result<PooledCall<P, T>, CallError<T>>;

/// A message of a pool with its place, in the mailbox or in its turn.
struct Pooled<P: Process, T> {
    turn: T,
    place: Permit<P>,
}

impl<P: Process, T: Turn<P>> Turn<P> for Pooled<P, T> {
    type Reply = T::Reply;

    async fn run(self, process: &mut P, cx: &mut Context<P>) -> T::Reply {
        let Pooled { turn, place } = self;
        let reply = turn.run(process, cx).await;
        place.free(cx.goes_on());
        reply
    }
}

/// A message in the line, of any type.
trait Waiting<P: Process>: Send {
    /// Sends the message, or returns it if the worker has exited.
    fn admit(self: Box<Self>, place: Permit<P>) -> Result<(), Box<dyn Waiting<P>>>;

    /// Returns the message to its sender, because no worker is left to handle it.
    fn refuse(self: Box<Self>);

    /// Whether the sender has given up.
    fn is_given_up(&self) -> bool;
}

/// A message in the line whose sender waits until it is sent.
struct Delivered<T> {
    turn: T,
    fate: Arc<Fate<Result<(), SendError<T>>>>,
}

impl<P: Process, T: Turn<P>> Waiting<P> for Delivered<T> {
    fn admit(self: Box<Self>, place: Permit<P>) -> Result<(), Box<dyn Waiting<P>>> {
        let Delivered { turn, fate } = *self;
        match place.send(turn) {
            Err(SendError::NoProcess(turn)) => return Err(Box::new(Delivered { turn, fate })),
            outcome => fate.settle(outcome),
        }
        Ok(())
    }

    fn refuse(self: Box<Self>) {
        self.fate.settle(Err(SendError::NoProcess(self.turn)));
    }

    fn is_given_up(&self) -> bool {
        self.fate.is_given_up()
    }
}

/// A message in the line whose sender waits for the reply.
struct WaitingCall<P: Process, T: Turn<P>> {
    turn: T,
    fate: Arc<Fate<SentCall<P, T>>>,
}

impl<P: Process, T: Turn<P>> Waiting<P> for WaitingCall<P, T> {
    fn admit(self: Box<Self>, place: Permit<P>) -> Result<(), Box<dyn Waiting<P>>> {
        let WaitingCall { turn, fate } = *self;
        let sent = match place.call(turn) {
            // The sender learns of the reply by the waker that it has left here.
            Ok(call) => fate.with_waker(|waker| call.sent(waker)),
            Err(turn) => return Err(Box::new(WaitingCall { turn, fate })),
        };
        match sent.map_err(|error| error.map(|pooled| pooled.turn)) {
            Err(CallError::NoProcess(turn)) => return Err(Box::new(WaitingCall { turn, fate })),
            outcome => fate.settle(outcome),
        }
        Ok(())
    }

    fn refuse(self: Box<Self>) {
        self.fate.settle(Err(CallError::NoProcess(self.turn)));
    }

    fn is_given_up(&self) -> bool {
        self.fate.is_given_up()
    }
}

/// The sender's side of a message in the line. Dropping it ends the wait, and drops the message unless that was sent.
struct InLine<P: Process, O> {
    workers: Arc<Workers<P>>,
    ticket: Ticket,
    fate: Arc<Fate<O>>,
}

impl<P: Process, O> InLine<P, O> {
    /// Drops the message; false if the message is not in the line.
    fn leave(&self) -> bool {
        let left = lock(&self.workers.line).leave(self.ticket);
        let has_left = left.is_some();
        drop_users(left);
        has_left
    }
}

impl<P: Process, O> Future for InLine<P, O> {
    type Output = O;

    fn poll(self: Pin<&mut Self>, cx: &mut task::Context<'_>) -> Poll<O> {
        self.fate.poll(cx.waker()).map_or(Poll::Pending, Poll::Ready)
    }
}

impl<P: Process, O> Drop for InLine<P, O> {
    fn drop(&mut self) {
        let mut line = lock(&self.workers.line);
        // Given up under the lock of the line, so that a message that could not be sent is not put back after this.
        let (left, progress) = (line.leave(self.ticket), self.fate.give_up());
        drop(line);
        drop_users(left);
        drop_users(progress);
    }
}

/// Outcome of a wait in the line, shared by the message there and its sender.
struct Fate<O>(Mutex<Progress<O>>);

enum Progress<O> {
    /// The sender waits, with this waker if it has been polled.
    Open(Option<Waker>),
    Settled(O),
    /// The sender has the outcome, or has given up.
    Over,
}

impl<O> Fate<O> {
    /// Returns the outcome if it is there; otherwise the waker is called when it is.
    fn poll(&self, waker: &Waker) -> Option<O> {
        let next = Progress::Open(Some(waker.clone()));
        let mut progress = lock(&self.0);
        let before = match *progress {
            Progress::Open(_) => mem::replace(&mut *progress, next),
            _ => mem::replace(&mut *progress, Progress::Over),
        };
        drop(progress);
        match before {
            Progress::Settled(outcome) => return Some(outcome),
            Progress::Open(replaced) => drop_users(replaced),
            Progress::Over => panic!("a wait in a pool's line was polled after it had completed"),
        }
        None
    }

    /// Runs `f` with the sender's waker, or with a waker without effect.
    fn with_waker<R>(&self, f: impl FnOnce(&Waker) -> R) -> R {
        let taken = match &mut *lock(&self.0) {
            Progress::Open(waker) => waker.take(),
            _ => None,
        };
        let result = f(taken.as_ref().unwrap_or(Waker::noop()));
        let unneeded = match &mut *lock(&self.0) {
            // The sender has not been polled meanwhile.
            Progress::Open(waker @ None) => mem::replace(waker, taken),
            _ => taken,
        };
        drop_users(unneeded);
        result
    }

    fn settle(&self, outcome: O) {
        let mut progress = lock(&self.0);
        if !matches!(*progress, Progress::Open(_)) {
            drop(progress);
            // The sender has given up.
            return drop_users(outcome);
        }
        let before = mem::replace(&mut *progress, Progress::Settled(outcome));
        drop(progress);
        if let Progress::Open(Some(waker)) = before {
            // The waker may be the user's: any future may wait for room with its own waker.
            let _ = catch(|| waker.wake());
        }
    }

    /// Ends the wait; returns what the sender does not want any more.
    fn give_up(&self) -> Progress<O> {
        mem::replace(&mut *lock(&self.0), Progress::Over)
    }

    fn is_given_up(&self) -> bool {
        matches!(*lock(&self.0), Progress::Over)
    }
}

impl<P: Process> Clone for KeyedWorker<'_, P> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<P: Process> Copy for KeyedWorker<'_, P> {}

impl<P: Process> Clone for Pool<P> {
    fn clone(&self) -> Self {
        Pool(self.0.clone())
    }
}

impl<P: Process> fmt::Debug for Pool<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Pool({} workers, {} messages)", self.0.children.len(), self.len())
    }
}

impl<P: Process> fmt::Debug for KeyedWorker<'_, P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "KeyedWorker({:?})", self.pool.children[self.at])
    }
}
