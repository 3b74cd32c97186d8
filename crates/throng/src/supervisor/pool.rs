//! Pools: a fixed number of supervised processes of a type, the workers, each with room for so many messages.
//!
//! ```text
//!  Pool ── any ──▶ the worker with the most room ─┐        ┌──▶ mailbox ──▶ turn
//!     └─── key ──▶ the worker of the key ─────────┴ permit ┘                  │
//!                            ▲                                                │
//!                            └──────── goes back when the turn is over ───────┘
//! ```
//! Invariants:
//! 1. A worker has at most `room` messages of the pool, including the message that it handles. A message's permit
//!    goes back when its turn is over, or when the message is dropped, whatever the reason.
//! 2. Messages with the same key go to the same worker. A sender that sends them one after the other has them
//!    handled in that order.

use super::child::Child;
use super::spec::{IntoChildSpec, SupervisorSpec};
use crate::address::deadline::Deadline;
use crate::error::{CallError, SendError};
use crate::process::{Process, Turn};
use crate::signal::registry::table::shard_of;
use crate::supervisor::Supervisor;
use crate::sync::atomic::{AtomicUsize, Ordering};
use crate::turn::context::Context;
use std::fmt;
use std::future::{Future, poll_fn};
use std::hash::Hash;
use std::sync::Arc;
use std::task::Poll;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

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
pub struct Pool<P>(Arc<Workers<P>>);

struct Workers<P> {
    all: Box<[Worker<P>]>,
    room: usize,
    /// Index of the worker at which the next search begins, so that idle workers take turns.
    next: AtomicUsize,
}

struct Worker<P> {
    child: Child<P>,
    room: Arc<Semaphore>,
}

/// Handle of the worker that gets all messages with a key. Made by [`Pool::keyed`].
pub struct KeyedWorker<'a, P> {
    pool: &'a Workers<P>,
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
        C: IntoChildSpec<Process = P>,
    {
        assert!(size > 0 && room > 0, "a pool has a worker, with room for a message");
        // A semaphore cannot have more permits, and no pool has so many messages.
        let room = room.min(Semaphore::MAX_PERMITS);
        let mut supervisor = Supervisor::one_for_one();
        let mut all = Vec::with_capacity(size);
        for number in 0..size {
            let spec = child().into_child_spec();
            all.push(Worker { child: spec.handle(), room: Arc::new(Semaphore::new(room)) });
            supervisor = supervisor.child(number.to_string(), spec);
        }
        let next = AtomicUsize::new(0);
        (Pool(Arc::new(Workers { all: all.into(), room, next })), supervisor)
    }

    /// Returns the worker of a key: always the same worker, also after a restart. A sender that sends messages one
    /// after the other has them handled in that order.
    pub fn keyed<K: Hash + ?Sized>(&self, key: &K) -> KeyedWorker<'_, P> {
        KeyedWorker { pool: &self.0, at: shard_of(key, self.0.all.len()) }
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

    /// Sends a message to the worker with the most room, and waits for room while there is none.
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
        self.0.all.iter().map(|worker| self.0.room - worker.room.available_permits()).sum()
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

/// Outcome of a search for a worker.
enum Found<'a, P> {
    Room(&'a Worker<P>, OwnedSemaphorePermit),
    /// The workers that are running have no room.
    Full,
    /// No worker is running.
    Gone,
}

impl<P: Process> Workers<P> {
    /// Returns the running workers that may handle a message: the worker `only`, or all.
    fn candidates(&self, only: Option<usize>) -> impl Iterator<Item = &Worker<P>> {
        let (before, from) = match only {
            Some(at) => (&[][..], &self.all[at..=at]),
            None => {
                // Relaxed: the search may begin at any worker.
                let first = self.next.fetch_add(1, Ordering::Relaxed) % self.all.len();
                self.all.split_at(first)
            }
        };
        from.iter().chain(before).filter(|worker| worker.child.address().is_some())
    }

    /// Takes a permit of the worker with the most room.
    fn find(&self, only: Option<usize>) -> Found<'_, P> {
        loop {
            let most = |worker: &&Worker<P>| worker.room.available_permits();
            // If several workers have the most room, the last of them.
            let Some(worker) = self.candidates(only).max_by_key(most) else { return Found::Gone };
            if let Ok(permit) = worker.room.clone().try_acquire_owned() {
                return Found::Room(worker, permit);
            }
            if most(&worker) == 0 {
                return Found::Full;
            }
        }
    }

    /// Waits for room in any of the workers that may handle a message. `None` if the deadline passes first, and
    /// `Gone` if no worker is running.
    async fn wait(
        &self,
        only: Option<usize>,
        mut deadline: Option<&mut Deadline>,
    ) -> Option<Found<'_, P>> {
        loop {
            match self.find(only) {
                Found::Full => {}
                found => return Some(found),
            }
            // Waits in the queue of each worker's semaphore, and leaves all of them when a permit has come.
            let mut lines: Vec<_> = self
                .candidates(only)
                .map(|worker| (worker, Box::pin(worker.room.clone().acquire_owned())))
                .collect();
            let room = poll_fn(|cx| {
                for (worker, line) in &mut lines {
                    if let Poll::Ready(Ok(permit)) = line.as_mut().poll(cx) {
                        return Poll::Ready(Some(Found::Room(*worker, permit)));
                    }
                }
                let is_late = deadline.as_mut().is_some_and(|deadline| deadline.is_late(cx));
                if is_late { Poll::Ready(None) } else { Poll::Pending }
            });
            match room.await? {
                // The permit is free because the worker has exited: search again.
                Found::Room(worker, _) if worker.child.address().is_none() => {}
                found => return Some(found),
            }
        }
    }

    // A worker that ends between the search and the send hands the message back, for another search.

    fn send<T: Turn<P>>(&self, only: Option<usize>, mut turn: T) -> Result<(), SendError<T>> {
        loop {
            match self.find(only) {
                Found::Room(worker, permit) => match worker.send(turn, permit) {
                    Err(SendError::NoProcess(back)) => turn = back,
                    outcome => return outcome,
                },
                Found::Full => return Err(SendError::Overloaded(turn)),
                Found::Gone => return Err(SendError::NoProcess(turn)),
            }
        }
    }

    async fn deliver<T: Turn<P>>(
        &self,
        only: Option<usize>,
        mut turn: T,
    ) -> Result<(), SendError<T>> {
        loop {
            match self.wait(only, None).await {
                Some(Found::Room(worker, permit)) => match worker.send(turn, permit) {
                    Err(SendError::NoProcess(back)) => turn = back,
                    outcome => return outcome,
                },
                _ => return Err(SendError::NoProcess(turn)),
            }
        }
    }

    async fn call<T: Turn<P>>(
        &self,
        only: Option<usize>,
        mut turn: T,
    ) -> Result<T::Reply, CallError<T>> {
        let mut deadline = Deadline::usual();
        loop {
            match self.wait(only, Some(&mut deadline)).await {
                Some(Found::Room(worker, permit)) => {
                    let outcome = worker.child.call(Pooled { turn, permit }).await;
                    match outcome.map_err(|error| error.map(|pooled| pooled.turn)) {
                        Err(CallError::NoProcess(back)) => turn = back,
                        outcome => return outcome,
                    }
                }
                Some(_) => return Err(CallError::NoProcess(turn)),
                None => return Err(CallError::TimedOut { enqueued: false }),
            }
        }
    }
}

impl<P: Process> Worker<P> {
    fn send<T: Turn<P>>(&self, turn: T, permit: OwnedSemaphorePermit) -> Result<(), SendError<T>> {
        self.child.send(Pooled { turn, permit }).map_err(|error| error.map(|pooled| pooled.turn))
    }
}

/// A message of a pool with its permit, in the mailbox or in its turn.
struct Pooled<T> {
    turn: T,
    permit: OwnedSemaphorePermit,
}

impl<P: Process, T: Turn<P>> Turn<P> for Pooled<T> {
    type Reply = T::Reply;

    async fn run(self, process: &mut P, cx: &mut Context<P>) -> T::Reply {
        let Pooled { turn, permit } = self;
        let reply = turn.run(process, cx).await;
        drop(permit);
        reply
    }
}

impl<P> Clone for KeyedWorker<'_, P> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<P> Copy for KeyedWorker<'_, P> {}

impl<P> Clone for Pool<P> {
    fn clone(&self) -> Self {
        Pool(self.0.clone())
    }
}

impl<P: Process> fmt::Debug for Pool<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Pool({} workers, {} messages)", self.0.all.len(), self.len())
    }
}

impl<P: Process> fmt::Debug for KeyedWorker<'_, P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "KeyedWorker({:?})", self.pool.all[self.at].child)
    }
}
