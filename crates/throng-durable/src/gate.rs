//! [`OutputGate`]: holds the replies and actions of turns until the turns' records are durable.
//!
//! ```text
//!  turn ──▶ submit ──▶ number ──▶ held: (number, reply) … ──▶ reply
//!                         │                                     ▲
//!                         └──▶ the store settles the number ────┘  or the error, if it was lost
//! ```
//!
//! A process of the node releases the held replies and actions whenever the store has settled further
//! submissions. So replies reach their callers on a worker of the runtime, and the store's writer thread
//! goes on. If that process has ended, the writer thread releases them itself.
//!
//! Invariants: everything held is released once its submission, and those held before, are settled; in the
//! order in which it was held. If the store settled a submission before it was held here, the thread that
//! brings it releases replies, and leaves actions to the process: user code that blocks must not keep an
//! entity from its next message.

use std::collections::VecDeque;
use std::future::Future;
use std::io;
use std::mem;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, TryLockError, Weak};
use std::task::{Context, Wake, Waker};

use throng::{Address, Handle, Message, Process, ReplyTo, RuntimeHandle};
use throng_store::{CommitFailure, Outcomes, Settled, Submission};

use crate::EntityError;
use crate::users::{catch, drop_user_value};

/// The output gate of a node.
pub(crate) struct OutputGate {
    outcomes: Outcomes,
    held: Mutex<VecDeque<(Submission, Box<dyn Held>)>>,
    /// Locked while a thread releases, so that actions run in order.
    releasing: Mutex<()>,
    /// The process that releases; `None` if the runtime had no room for it.
    process: OnceLock<Address<Releaser>>,
    /// The next settlement, for which the gate waits: one future, so that it has one wake-up however often it is polled.
    next: Mutex<Settled>,
    waker: Waker,
}

/// Anything that waits for a submission.
pub(crate) trait Held: Send {
    fn release(self: Box<Self>, outcome: Result<(), CommitFailure>);

    /// Whether the release runs code of the user's.
    fn is_action(&self) -> bool {
        false
    }
}

/// A reply and the caller that waits for it.
pub(crate) struct Answer<R> {
    pub(crate) reply: R,
    pub(crate) to: ReplyTo<Result<R, EntityError>>,
}

impl<R: Send> Held for Answer<R> {
    fn release(self: Box<Self>, outcome: Result<(), CommitFailure>) {
        let Answer { reply, to } = *self;
        match outcome {
            Ok(()) => answer(to, Ok(reply)),
            Err(failure) => {
                drop_user_value(reply);
                answer(to, Err(failure.into()));
            }
        }
    }
}

/// An action of the user's that follows the commit.
pub(crate) struct After<F>(pub(crate) F);

impl<F: FnOnce() + Send> Held for After<F> {
    fn release(self: Box<Self>, outcome: Result<(), CommitFailure>) {
        match outcome {
            Ok(()) => {
                if let Err(panic) = catch(self.0) {
                    tracing::error!(%panic, "an action after a commit panicked");
                }
            }
            Err(_) => drop_user_value(self.0),
        }
    }

    fn is_action(&self) -> bool {
        true
    }
}

/// Answers a caller. If it has given up, drops the answer.
pub(crate) fn answer<R>(to: ReplyTo<Result<R, EntityError>>, outcome: Result<R, EntityError>) {
    if let Err(unwanted) = to.send(outcome) {
        drop_user_value(unwanted);
    }
}

impl OutputGate {
    /// Starts the gate of a store.
    pub(crate) fn start(outcomes: Outcomes, runtime: &RuntimeHandle) -> Arc<OutputGate> {
        let next = outcomes.settled_after(outcomes.settled_through());
        let gate = Arc::new_cyclic(|gate| OutputGate {
            outcomes,
            next: Mutex::new(next),
            held: Mutex::default(),
            releasing: Mutex::default(),
            process: OnceLock::new(),
            waker: Waker::from(Arc::new(Progress(gate.clone()))),
        });
        if let Ok(process) = runtime.spawn(Releaser) {
            let _ = gate.process.set(process);
        }
        gate.release_and_wait();
        gate
    }

    /// Ends the gate's process.
    pub(crate) fn close(&self) {
        if let Some(process) = self.process.get() {
            process.kill();
        }
        self.release();
    }

    /// Returns the outcomes of the store's submissions.
    pub(crate) fn outcomes(&self) -> &Outcomes {
        &self.outcomes
    }

    /// Whether the outcomes of a submission, and of all before it, are known.
    pub(crate) fn is_settled(&self, submission: Submission) -> bool {
        submission <= self.outcomes.settled_through()
    }

    /// Returns the outcome of a submission, if it is known.
    pub(crate) fn outcome(&self, submission: Submission) -> Option<Result<(), CommitFailure>> {
        let outcome = || self.outcomes.failure_of(submission).map_or(Ok(()), Err);
        self.is_settled(submission).then(outcome)
    }

    /// Returns the failure by which a submission was lost.
    pub(crate) fn failure_of(&self, submission: Submission) -> Option<CommitFailure> {
        self.outcomes.failure_of(submission)
    }

    /// Releases replies and actions until none is ready, and asks the store for a wake-up unless one is to come.
    fn release_and_wait(&self) {
        loop {
            self.release();
            // No user code runs under the lock.
            let mut next = self.next.lock().unwrap_or_else(PoisonError::into_inner);
            if Pin::new(&mut *next).poll(&mut Context::from_waker(&self.waker)).is_pending() {
                return;
            }
            *next = self.outcomes.settled_after(self.outcomes.settled_through());
        }
    }

    /// Waits until a submission is settled.
    pub(crate) async fn settled(&self, submission: Submission) -> Result<(), CommitFailure> {
        self.outcomes.settled(submission).await
    }

    /// Releases something once the submission is settled.
    pub(crate) fn hold(&self, submission: Submission, held: Box<dyn Held>) {
        self.lock().push_back((submission, held));
        if self.is_settled(submission) {
            self.release_if(|held| !held.is_action());
            if self.has_ready() {
                self.waker.wake_by_ref();
            }
        }
    }

    /// Releases everything whose submission is settled, in the order in which it was held.
    pub(crate) fn release(&self) {
        self.release_if(|_| true);
    }

    /// Does the same up to the first one that may not be released on this thread.
    fn release_if(&self, may_release: impl Fn(&dyn Held) -> bool) {
        // If another thread releases, or an action on this thread holds something, the first one goes on.
        while self.first_is(|held| may_release(held)) {
            let _releasing = match self.releasing.try_lock() {
                Ok(releasing) => releasing,
                Err(TryLockError::Poisoned(releasing)) => releasing.into_inner(),
                Err(TryLockError::WouldBlock) => return,
            };
            let settled = self.outcomes.settled_through();
            let mut held = self.lock();
            let is_ready = |(submission, held): &(Submission, Box<dyn Held>)| {
                *submission <= settled && may_release(&**held)
            };
            let ready = held.iter().position(|held| !is_ready(held)).unwrap_or(held.len());
            let ready: Vec<_> = held.drain(..ready).collect();
            drop(held);
            for (submission, held) in ready {
                // A panic, as of a tracing subscriber, must not keep others from their replies.
                let _ = catch(|| self.outcome(submission).map(|outcome| held.release(outcome)));
            }
        }
    }

    /// Releases everything that is left with an unknown outcome.
    pub(crate) fn abandon(&self) {
        let left = mem::take(&mut *self.lock());
        for (_, held) in left {
            let ended = Arc::new(io::Error::other("the node ended before the outcome was known"));
            held.release(Err(CommitFailure::Unknown(ended)));
        }
    }

    fn has_ready(&self) -> bool {
        self.first_is(|_| true)
    }

    /// Whether the first one is ready, and is such a one.
    fn first_is(&self, is_such: impl Fn(&dyn Held) -> bool) -> bool {
        let held = self.lock();
        held.front()
            .is_some_and(|(submission, held)| self.is_settled(*submission) && is_such(&**held))
    }

    fn lock(&self) -> MutexGuard<'_, VecDeque<(Submission, Box<dyn Held>)>> {
        // No user code runs under the lock.
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for OutputGate {
    fn drop(&mut self) {
        self.abandon();
    }
}

/// The process of a gate.
struct Releaser;

impl Process for Releaser {}

/// Message that the store has settled further submissions. Its drop releases them, so that they are released
/// as well if the process ends before it handles the message.
struct Release(Arc<OutputGate>);

impl Drop for Release {
    fn drop(&mut self) {
        self.0.release_and_wait();
    }
}

impl Message for Release {
    type Reply = ();
}

impl Handle<Release> for Releaser {
    async fn handle(&mut self, release: Release, _: &mut throng::Context<Self>) {
        drop(release);
    }
}

/// The waker of a gate, called on the store's writer thread.
struct Progress(Weak<OutputGate>);

impl Wake for Progress {
    fn wake(self: Arc<Self>) {
        if let Some(gate) = self.0.upgrade() {
            let release = Release(gate.clone());
            if let Some(process) = gate.process.get() {
                // A message that is refused, as in the shutdown of the runtime, is dropped on this thread.
                let _ = process.send(release);
            }
        }
    }
}
