//! [`Submissions`]: the outcomes of writes that have a number instead of a ticket.
//!
//! A submission gets the next number when it is queued, and submissions are committed in the order of their
//! numbers. So a single number tells the outcome of all of them, apart from those that were lost.
//!
//! ```text
//!    durable, or in a range of `lost`     queued, or being committed
//! ├──────────────────────────── settled ┼────────────────── submitted ┤
//! ```
//!
//! Invariants:
//! - A submission that is lost takes with it all that are queued behind it.
//! - A submission that builds on a lost one is refused. Losses are recorded, and submissions checked, under
//!   the lock of the queue.

use std::collections::VecDeque;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use crate::write::block::block_on;
use crate::{Batch, Rejection};

/// The number of an accepted submission, from [`Store::submit`](crate::Store::submit).
///
/// Numbers ascend in the order in which submissions are committed. They begin again at each opening of
/// the store.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Submission(pub(crate) u64);

impl Submission {
    /// The default: before all submissions.
    pub const START: Submission = Submission(0);
}

/// The outcomes of a store's submissions, from [`Store::outcomes`](crate::Store::outcomes). Cheap to clone,
/// and does not keep the store open.
#[derive(Clone, Debug)]
pub struct Outcomes(pub(crate) Arc<Submissions>);

impl Outcomes {
    /// Returns the submission through which all outcomes are known. Costs a read of memory.
    pub fn settled_through(&self) -> Submission {
        self.0.settled()
    }

    /// Returns the failure by which a submission was lost; `None` if it is durable, or not settled yet.
    ///
    /// The store remembers some 50 failed commits. A submission before all of these counts as lost.
    pub fn failure_of(&self, submission: Submission) -> Option<CommitFailure> {
        self.0.loss(submission)
    }

    /// Returns the last submission that was lost, or the first number of all if none was. Costs a read of memory.
    pub fn lost_through(&self) -> Submission {
        // Acquire: pairs with the release in `lose`, so that the range of the loss is known as well.
        Submission(self.0.lost_through.load(Ordering::Acquire))
    }

    /// Returns a future that resolves when the submission is durable, or lost. A number that this store has not
    /// given to a submission, such as one of another store, counts as lost.
    pub fn settled(&self, submission: Submission) -> Settled {
        Settled { submissions: self.0.clone(), submission, is_future: false, registered: None }
    }

    /// Returns a future that resolves when the submission after this one is durable, or lost, also if that one is
    /// yet to be made. For a task that acts on each settlement; it waits for ever if nothing is submitted.
    pub fn settled_after(&self, Submission(number): Submission) -> Settled {
        let submission = Submission(number.saturating_add(1));
        Settled { submissions: self.0.clone(), submission, is_future: true, registered: None }
    }
}

/// Error of a submission that the queue refuses: nothing was written.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SubmitError {
    /// The queue is full: try again once the writer has caught up.
    #[error("the write queue is full; try again later")]
    Overloaded,
    /// The batch can never be stored: change the batch.
    #[error("the batch cannot be stored: {0}")]
    Rejected(#[from] Rejection),
    /// The submission on which this one builds was lost: read the store again.
    #[error("an earlier write was lost: {0}")]
    Lost(#[from] CommitFailure),
    /// The store recovers from a commit whose outcome is unknown: try again later.
    #[error("the store is recovering from a failed commit and accepts no writes")]
    Recovering,
    /// The store was opened read-only.
    #[error("the store was opened read-only")]
    ReadOnly,
    /// The store is a copy of a shared log, which another node owns: ask that node.
    #[error("another node owns the shared log of the store")]
    Standby,
    /// The store is closed.
    #[error("the store is closed")]
    Closed,
}

/// Error of an accepted submission that did not become durable.
#[derive(Clone, Debug, thiserror::Error)]
pub enum CommitFailure {
    /// The commit failed, or one before it did: nothing was written.
    #[error("the write failed and was rolled back: {0}")]
    NotWritten(#[source] Arc<io::Error>),
    /// The commit failed while it was being written: the submission is on the disk as a whole or not at
    /// all. The store tells which once it has recovered.
    #[error("the outcome of the write is unknown; read the keys once the store has recovered: {0}")]
    Unknown(#[source] Arc<io::Error>),
}

/// A future that resolves when the outcome of a submission is known, from
/// [`Store::settled`](crate::Store::settled).
#[must_use = "futures do nothing unless they are awaited"]
#[derive(Debug)]
pub struct Settled {
    submissions: Arc<Submissions>,
    submission: Submission,
    /// Whether the submission may be yet to be made.
    is_future: bool,
    /// Waker that was registered for the outcome.
    registered: Option<Waker>,
}

#[derive(Debug, Default)]
pub(crate) struct Submissions {
    /// Number of the last submission that was accepted. Written under the lock of the queue.
    submitted: AtomicU64,
    settled: AtomicU64,
    /// Greatest number that was lost. Stored before `settled`.
    lost_through: AtomicU64,
    lost: Mutex<Lost>,
    waiters: Mutex<Vec<(u64, Waker)>>,
}

/// Ranges of numbers that were lost, in ascending order.
#[derive(Debug, Default)]
struct Lost {
    ranges: VecDeque<LostRange>,
    /// Number through which lost ranges have been forgotten.
    forgotten: u64,
}

#[derive(Debug)]
struct LostRange {
    first: u64,
    last: u64,
    loss: CommitFailure,
}

/// Most ranges that are remembered. An outcome is asked for soon after it is known; of an older number,
/// every outcome is reported as unknown.
const RANGES_MAX: usize = 64;

/// Consecutive submissions, as the queue holds them.
#[derive(Debug)]
pub(crate) struct Submitted {
    pub(crate) batch: Batch,
    pub(crate) last: Submission,
    pub(crate) count: usize,
    /// Bytes that they count towards the queue's limit.
    pub(crate) bytes: usize,
}

/// Bytes beyond which no further submission is added to others. Larger buffers would be new memory of the
/// system each time, see [`Changes`](crate::memtable::change::Changes).
const JOINED_BYTES_MAX: usize = 64 << 10;

impl Submitted {
    pub(crate) fn new(batch: &mut Batch, number: Submission) -> Submitted {
        let bytes = batch.bytes();
        let mut submitted = Submitted { batch: Batch::new(), last: number, count: 1, bytes };
        submitted.batch.append(batch);
        submitted
    }

    /// Adds the next submission, and empties its batch; returns whether there was room for it.
    pub(crate) fn join(&mut self, batch: &mut Batch, number: Submission) -> bool {
        let has_room = self.batch.bytes() + batch.bytes() <= JOINED_BYTES_MAX;
        if has_room {
            self.bytes += batch.bytes();
            self.batch.append(batch);
            self.last = number;
            self.count += 1;
        }
        has_room
    }
}

impl Submissions {
    pub(crate) fn submitted(&self) -> Submission {
        // Relaxed: a caller that has got a number sees it here, or it takes the lock of the queue.
        Submission(self.submitted.load(Ordering::Relaxed))
    }

    /// Gives the next number to a submission. For the holder of the queue's lock.
    pub(crate) fn accept(&self) -> Submission {
        Submission(self.submitted.fetch_add(1, Ordering::Relaxed) + 1)
    }

    pub(crate) fn settled(&self) -> Submission {
        // Acquire: a thread that sees the number also sees the commit and the losses before it.
        Submission(self.settled.load(Ordering::Acquire))
    }

    /// Returns the outcome of a submission, if it is known.
    pub(crate) fn outcome(&self, submission: Submission) -> Option<Result<(), CommitFailure>> {
        if submission > self.settled() {
            return None;
        }
        Some(self.loss(submission).map_or(Ok(()), Err))
    }

    /// Returns the loss of a submission, if it was lost.
    pub(crate) fn loss(&self, Submission(number): Submission) -> Option<CommitFailure> {
        // Acquire: pairs with the release in `lose`.
        if number == 0 || number > self.lost_through.load(Ordering::Acquire) {
            return None;
        }
        let lost = lock(&self.lost);
        if number <= lost.forgotten {
            let forgotten = "it was long ago, and is forgotten";
            return Some(CommitFailure::Unknown(Arc::new(io::Error::other(forgotten))));
        }
        let range = lost.ranges.iter().find(|range| number <= range.last)?;
        (range.first <= number).then(|| range.loss.clone())
    }

    /// Records that the submissions through `last` are durable, and appends the wakers that wait for it.
    pub(crate) fn settle(&self, Submission(last): Submission, wakers: &mut Vec<Waker>) {
        self.settled.store(last, Ordering::Release);
        let mut waiters = lock(&self.waiters);
        wakers
            .extend(waiters.extract_if(.., |(number, _)| *number <= last).map(|(_, waker)| waker));
    }

    /// Records that the submissions after those that are settled are lost, through `failed` for this reason
    /// and through `last` because they were queued behind. Appends the wakers that wait for it.
    pub(crate) fn lose(
        &self,
        failed: Submission,
        loss: CommitFailure,
        last: Submission,
        wakers: &mut Vec<Waker>,
    ) {
        let mut lost = lock(&self.lost);
        let behind = match &loss {
            CommitFailure::NotWritten(source) | CommitFailure::Unknown(source) => {
                CommitFailure::NotWritten(source.clone())
            }
        };
        let mut first = self.settled().0 + 1;
        for (Submission(last), loss) in [(failed, loss), (last, behind)] {
            if first <= last {
                lost.ranges.push_back(LostRange { first, last, loss });
                first = last + 1;
            }
        }
        while lost.ranges.len() > RANGES_MAX
            && let Some(range) = lost.ranges.pop_front()
        {
            lost.forgotten = range.last;
        }
        drop(lost);
        self.lost_through.store(last.0, Ordering::Release);
        self.settle(last, wakers);
    }
}

impl Settled {
    /// Blocks this thread until the outcome is known. For code outside async.
    ///
    /// # Errors
    ///
    /// [`CommitFailure`] if the submission was lost.
    pub fn wait(self) -> Result<(), CommitFailure> {
        block_on(self)
    }
}

impl Future for Settled {
    type Output = Result<(), CommitFailure>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<(), CommitFailure>> {
        let this = &mut *self;
        if let Some(outcome) = this.submissions.outcome(this.submission) {
            return Poll::Ready(outcome);
        }
        if !this.is_future && this.submission > this.submissions.submitted() {
            let unmade = "this store has accepted no submission with this number";
            let unmade = io::Error::new(io::ErrorKind::InvalidInput, unmade);
            return Poll::Ready(Err(CommitFailure::NotWritten(Arc::new(unmade))));
        }
        if this.registered.as_ref().is_some_and(|registered| registered.will_wake(cx.waker())) {
            return Poll::Pending;
        }
        let (waker, kept) = (cx.waker().clone(), cx.waker().clone());
        let mut waiters = lock(&this.submissions.waiters);
        // `settle` stores the number before it takes this lock: either it finds the waker here, or the number
        // is seen below.
        let outcome = this.submissions.outcome(this.submission);
        if outcome.is_none() {
            waiters.push((this.submission.0, waker));
        }
        drop(waiters);
        // A waker that this one replaces is dropped outside of the lock.
        drop(this.registered.replace(kept));
        outcome.map_or(Poll::Pending, Poll::Ready)
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // No step under these locks leaves a list half changed.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn failed(reason: &str) -> CommitFailure {
        CommitFailure::Unknown(Arc::new(io::Error::other(reason.to_owned())))
    }

    /// Describes the outcomes of the numbers from 0: durable, lost, unknown, or not known yet.
    fn outcomes(submissions: &Submissions, numbers: u64) -> String {
        let outcomes = (0..numbers).map(|number| match submissions.outcome(Submission(number)) {
            None => '?',
            Some(Ok(())) => 'd',
            Some(Err(CommitFailure::NotWritten(_))) => 'l',
            Some(Err(CommitFailure::Unknown(_))) => 'u',
        });
        outcomes.collect()
    }

    #[test]
    fn a_loss_takes_all_behind_it_and_none_before_it() {
        let (submissions, mut wakers) = (Submissions::default(), Vec::new());
        assert_eq!(outcomes(&submissions, 3), "d??");
        submissions.settle(Submission(2), &mut wakers);
        assert_eq!(outcomes(&submissions, 4), "ddd?");
        submissions.lose(Submission(4), failed("the disk broke"), Submission(6), &mut wakers);
        assert_eq!(outcomes(&submissions, 8), "ddduull?");
        submissions.settle(Submission(8), &mut wakers);
        assert_eq!(outcomes(&submissions, 10), "ddduulldd?");
    }

    #[test]
    fn old_losses_are_forgotten_and_their_numbers_count_as_lost() {
        let (submissions, mut wakers) = (Submissions::default(), Vec::new());
        for number in 1..=RANGES_MAX as u64 + 2 {
            let durable = Submission(2 * number - 1);
            submissions.settle(durable, &mut wakers);
            let lost = Submission(2 * number);
            submissions.lose(lost, failed("again"), lost, &mut wakers);
        }
        assert_eq!(outcomes(&submissions, 8), "duuuudud");
        assert!(lock(&submissions.lost).ranges.len() <= RANGES_MAX);
    }

    #[test]
    fn waiters_are_woken_when_their_number_is_settled() {
        struct Flag(std::sync::atomic::AtomicBool);
        impl std::task::Wake for Flag {
            fn wake(self: Arc<Self>) {
                self.0.store(true, Ordering::Relaxed);
            }
        }
        let submissions = Arc::new(Submissions::default());
        let outcomes = Outcomes(submissions.clone());
        (0..2).for_each(|_| _ = submissions.accept());
        let flag = Arc::new(Flag(false.into()));
        let (waker, mut wakers) = (Waker::from(flag.clone()), Vec::new());
        let cx = &mut Context::from_waker(&waker);
        let mut second = outcomes.settled(Submission(2));
        assert!(Pin::new(&mut second).poll(cx).is_pending());
        assert!(Pin::new(&mut second).poll(cx).is_pending());
        submissions.settle(Submission(1), &mut wakers);
        assert!(wakers.is_empty());
        submissions.settle(Submission(2), &mut wakers);
        assert_eq!(wakers.len(), 1, "a waiter that was polled twice waits once");
        wakers.drain(..).for_each(Waker::wake);
        assert!(flag.0.load(Ordering::Relaxed));
        assert!(matches!(Pin::new(&mut second).poll(cx), Poll::Ready(Ok(()))));
    }
}
