//! [`Ticket`], the future of a single write, and its other ends: the [`Entry`] in the queue and the
//! [`Completion`] in the writer's hands.
//!
//! The three share a small allocation, which holds the work while it is queued and the outcome
//! afterwards. The lock inside is held for a few instructions and never while foreign code (a
//! waker, a batch being dropped) runs.
//!
//! ```text
//!  queued ──(the writer takes it)──► in progress ──► done ──(polled)──► taken
//!     └──(cancelled)──► cancelled
//! ```
//!
//! Invariants: every ticket resolves. A completion that is dropped unused, which happens only if
//! the writer thread dies, resolves it as [`WriteError::Unknown`]. Cancelled work is never started,
//! and started work is never cancelled.

use std::future::Future;
use std::io;
use std::mem;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::thread;
use std::time::{Duration, Instant};

use crate::write::block::{block_on, unpark};
use crate::write::foreign;
use crate::write::submission::Submitted;
use crate::write::update::Job;
use crate::{Batch, WriteError};

/// The outcome of a [`Store::write`](crate::Store::write): a future that resolves when the batch is
/// durable, was certainly not written, or has an unknown outcome.
///
/// Dropping a ticket does **not** cancel the write: an accepted batch is committed whether or not
/// its ticket is awaited. See [`cancel_on_drop`](Ticket::cancel_on_drop).
///
/// # Panics
///
/// When polled again after it has resolved.
#[must_use = "without its ticket it is unknown whether the write became durable"]
#[derive(Debug)]
pub struct Ticket {
    state: State,
    cancel_on_drop: bool,
}

#[derive(Debug)]
enum State {
    /// A write that the queue refused; it resolves at once.
    Refused(Option<Box<WriteError>>),
    Accepted(Arc<Slot>),
}

/// Result of [`Ticket::cancel`].
#[derive(Debug)]
pub enum Cancel {
    /// The writer had not started the write: nothing was written.
    TakenBack(Batch),
    /// The write had already resolved.
    Resolved(Result<(), WriteError>),
    /// The commit is in progress, so the outcome is not known yet. The ticket is handed back.
    UnderWay(Ticket),
}

#[derive(Debug)]
pub(crate) enum Work {
    Batch(Batch),
    /// Batches without tickets.
    Submitted(Submitted),
    Update(Job),
    /// Flush all commits.
    Sync,
}

#[derive(Debug)]
pub(crate) enum Entry {
    /// Work with a ticket.
    Ticketed(Arc<Slot>),
    /// Batches without tickets.
    Submitted(Submitted),
}

/// The writer thread's handle to a ticket, which it resolves; `None` for work without a ticket.
#[derive(Debug)]
pub(crate) struct Completion(Option<Arc<Slot>>);

#[derive(Debug)]
pub(crate) struct Slot(Mutex<Progress>);

#[derive(Debug)]
enum Progress {
    Queued(Work, Option<Waker>),
    UnderWay(Option<Waker>),
    /// The outcome. If a task waits, it also gets the completed work to drop: memory is freed
    /// fastest by the thread that allocated it.
    Done(Result<(), WriteError>, Option<Work>),
    Taken,
}

pub(crate) fn ticket(work: Work) -> (Ticket, Entry) {
    let slot = Arc::new(Slot(Mutex::new(Progress::Queued(work, None))));
    (Ticket { state: State::Accepted(slot.clone()), cancel_on_drop: false }, Entry::Ticketed(slot))
}

impl Work {
    /// Returns the batch to hand back; an empty batch for other work.
    pub(crate) fn into_batch(self) -> Batch {
        match self {
            Work::Batch(batch) => batch,
            Work::Submitted(_) | Work::Update(_) | Work::Sync => Batch::new(),
        }
    }
}

impl Ticket {
    pub(crate) fn refused(error: WriteError) -> Ticket {
        Ticket { state: State::Refused(Some(Box::new(error))), cancel_on_drop: false }
    }

    /// Makes dropping the ticket cancel the write, unless the writer has already started it.
    ///
    /// Use this in a process whose writes must not outlive it: a write that has not resolved when
    /// the process dies is cancelled, unless its commit has begun.
    pub fn cancel_on_drop(mut self) -> Ticket {
        self.cancel_on_drop = true;
        self
    }

    /// Cancels the write if the writer has not started it, and returns its state otherwise.
    ///
    /// ```
    /// # use throng_store::{Cancel, Store, Str};
    /// # let directory = tempfile::tempdir()?;
    /// # let store = Store::open(directory.path())?;
    /// let names = store.database::<Str, Str>("names")?;
    /// match names.put("key", "value").cancel() {
    ///     Cancel::TakenBack(batch) => assert_eq!(batch.len(), 1),
    ///     Cancel::Resolved(outcome) => outcome?,
    ///     Cancel::UnderWay(ticket) => ticket.wait()?,
    /// }
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn cancel(mut self) -> Cancel {
        self.cancel_on_drop = false;
        match &mut self.state {
            State::Refused(error) => match error.take() {
                Some(error) => Cancel::Resolved(Err(*error)),
                None => panic!("a ticket was cancelled after it had resolved"),
            },
            State::Accepted(slot) => {
                let taken = slot.lock().cancel();
                match taken {
                    Progress::Queued(work, _) => Cancel::TakenBack(work.into_batch()),
                    Progress::Done(outcome, _) => Cancel::Resolved(outcome),
                    Progress::UnderWay(_) => Cancel::UnderWay(self),
                    Progress::Taken => panic!("a ticket was cancelled after it had resolved"),
                }
            }
        }
    }

    /// Blocks this thread until the ticket resolves. For code outside async; in a handler, `.await`
    /// the ticket instead.
    ///
    /// # Errors
    ///
    /// The error to which the ticket resolves.
    pub fn wait(self) -> Result<(), WriteError> {
        block_on(self)
    }

    /// Blocks this thread for at most `timeout`, then cancels the write if that is still possible.
    ///
    /// # Errors
    ///
    /// The error to which the ticket resolves; [`WriteError::Cancelled`] or
    /// [`WriteError::UnderWay`] if the timeout expired.
    pub fn wait_timeout(mut self, timeout: Duration) -> Result<(), WriteError> {
        let deadline = Instant::now().checked_add(timeout);
        loop {
            if let Poll::Ready(outcome) =
                Pin::new(&mut self).poll(&mut Context::from_waker(&unpark()))
            {
                return outcome;
            }
            match deadline {
                None => thread::park(),
                Some(deadline) => match deadline.checked_duration_since(Instant::now()) {
                    Some(left) if !left.is_zero() => thread::park_timeout(left),
                    _ => break,
                },
            }
        }
        match self.cancel() {
            Cancel::TakenBack(batch) => Err(WriteError::Cancelled(batch)),
            Cancel::Resolved(outcome) => outcome,
            Cancel::UnderWay(ticket) => Err(WriteError::UnderWay(ticket)),
        }
    }
}

impl Future for Ticket {
    type Output = Result<(), WriteError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        match &mut self.state {
            State::Refused(error) => match error.take() {
                Some(error) => Poll::Ready(Err(*error)),
                None => panic!("a ticket was polled after it had resolved"),
            },
            State::Accepted(slot) => {
                let polled = slot.poll(cx.waker());
                // The work, if any, is dropped outside of the lock.
                polled.map(|(outcome, _work)| outcome)
            }
        }
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        if let (true, State::Accepted(slot)) = (self.cancel_on_drop, &self.state) {
            // The work is dropped here, outside of the lock.
            let _taken = slot.lock().cancel();
        }
    }
}

impl Entry {
    /// Starts the work, unless it was cancelled: returns it with the completion of its ticket.
    pub(crate) fn begin(self) -> Option<(Work, Completion)> {
        match self {
            Entry::Ticketed(slot) => {
                let work = slot.lock().begin()?;
                Some((work, Completion(Some(slot))))
            }
            Entry::Submitted(submitted) => Some((Work::Submitted(submitted), Completion(None))),
        }
    }
}

impl Completion {
    /// Resolves the ticket and returns the waker of its task. The caller wakes it after it has
    /// released its locks.
    #[must_use = "the waker must be woken"]
    pub(crate) fn complete(mut self, outcome: Result<(), WriteError>) -> Option<Waker> {
        self.0.take().and_then(|slot| slot.lock().finish(outcome))
    }

    /// Resolves the ticket as successful, and passes the completed work to a waiting task to drop;
    /// see [`complete`](Completion::complete).
    #[must_use = "the waker must be woken"]
    pub(crate) fn succeed(mut self, work: Work) -> Option<Waker> {
        let slot = self.0.take()?;
        let mut progress = slot.lock();
        if let Progress::Queued(_, None) | Progress::UnderWay(None) = &*progress {
            drop(progress);
            // Before anybody can see the outcome: an update may own a handle of the store, and its caller opens the
            // directory anew.
            drop(work);
            return slot.lock().finish(Ok(()));
        }
        let waker = progress.finish(Ok(()))?;
        if let Progress::Done(_, done) = &mut *progress {
            *done = Some(work);
        }
        Some(waker)
    }
}

impl Drop for Completion {
    fn drop(&mut self) {
        if let Some(slot) = self.0.take() {
            let source = io::Error::other("the writer thread ended");
            let waker = slot.lock().finish(Err(WriteError::Unknown { source }));
            if let Some(waker) = waker {
                foreign::wake(waker);
            }
        }
    }
}

impl Slot {
    /// Polls the outcome. Clones the waker, and drops the replaced waker, outside of the lock.
    fn poll(&self, waker: &Waker) -> Poll<(Result<(), WriteError>, Option<Work>)> {
        let mut cloned = None;
        loop {
            let mut progress = self.lock();
            match &mut *progress {
                Progress::Queued(_, stored) | Progress::UnderWay(stored) => {
                    if stored.as_ref().is_some_and(|stored| stored.will_wake(waker)) {
                        return Poll::Pending;
                    }
                    if cloned.is_some() {
                        mem::swap(stored, &mut cloned);
                        return Poll::Pending;
                    }
                }
                done => match mem::replace(done, Progress::Taken) {
                    Progress::Done(outcome, work) => return Poll::Ready((outcome, work)),
                    _ => panic!("a ticket was polled after it had resolved"),
                },
            }
            drop(progress);
            cloned = Some(waker.clone());
        }
    }

    fn lock(&self) -> MutexGuard<'_, Progress> {
        // No step below leaves the value half changed, so a panic elsewhere does not matter.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Progress {
    /// Takes the progress, unless the work is in progress.
    fn cancel(&mut self) -> Progress {
        match self {
            Progress::UnderWay(_) => Progress::UnderWay(None),
            _ => mem::replace(self, Progress::Taken),
        }
    }

    fn begin(&mut self) -> Option<Work> {
        match mem::replace(self, Progress::Taken) {
            Progress::Queued(work, waker) => {
                *self = Progress::UnderWay(waker);
                Some(work)
            }
            other => {
                *self = other;
                None
            }
        }
    }

    fn finish(&mut self, outcome: Result<(), WriteError>) -> Option<Waker> {
        match mem::replace(self, Progress::Done(outcome, None)) {
            Progress::Queued(_, waker) | Progress::UnderWay(waker) => waker,
            Progress::Done(..) | Progress::Taken => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use std::task::Wake;

    use super::*;
    use crate::table::{Kind, Table, TableRef};

    #[derive(Default)]
    struct Count(AtomicUsize);
    impl Wake for Count {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn batch() -> Batch {
        let table_ref = TableRef { table: Table(0), kind: Kind::Checked };
        Batch::new().put_at(table_ref, b"key", b"value")
    }

    #[test]
    fn the_latest_waker_is_woken_once() {
        let (mut ticket, entry) = ticket(Work::Batch(batch()));
        let counts: [Arc<Count>; 3] = Default::default();
        let mut poll = |count: &Arc<Count>| {
            let waker = Waker::from(count.clone());
            assert!(Pin::new(&mut ticket).poll(&mut Context::from_waker(&waker)).is_pending());
        };
        poll(&counts[0]);
        poll(&counts[1]);
        let (_, completion) = entry.begin().unwrap();
        poll(&counts[2]);
        completion.complete(Ok(())).unwrap().wake();
        let woken = counts.each_ref().map(|count| count.0.load(Ordering::Relaxed));
        assert_eq!(woken, [0, 0, 1]);
        assert!(matches!(ticket.wait(), Ok(())));
    }

    #[test]
    fn a_lost_completion_resolves_as_unknown() {
        let (ticket, entry) = ticket(Work::Batch(batch()));
        let waiting = thread::spawn(move || ticket.wait());
        drop(entry.begin().unwrap());
        assert!(matches!(waiting.join().unwrap(), Err(WriteError::Unknown { .. })));
    }

    #[test]
    fn a_refused_ticket_hands_the_batch_back() {
        let ticket = Ticket::refused(WriteError::Overloaded(batch()));
        assert_eq!(ticket.wait().unwrap_err().into_batch(), Some(batch()));
    }

    #[test]
    fn queued_work_can_be_cancelled_and_started_work_cannot() {
        let (waiting, entry) = ticket(Work::Batch(batch()));
        assert!(matches!(waiting.cancel(), Cancel::TakenBack(taken) if taken == batch()));
        assert!(entry.begin().is_none());

        let (waiting, entry) = ticket(Work::Batch(batch()));
        let (_, completion) = entry.begin().unwrap();
        let Cancel::UnderWay(waiting) = waiting.cancel() else { panic!("it had begun") };
        assert!(completion.complete(Ok(())).is_none());
        assert!(matches!(waiting.cancel(), Cancel::Resolved(Ok(()))));
    }

    #[test]
    fn dropping_a_ticket_cancels_its_write_if_so_configured() {
        let (kept, entry) = ticket(Work::Batch(batch()));
        drop(kept);
        assert!(entry.begin().is_some());
        let (dropped, entry) = ticket(Work::Batch(batch()));
        drop(dropped.cancel_on_drop());
        assert!(entry.begin().is_none());
    }

    #[test]
    fn a_timeout_reports_cancelled_or_in_progress() {
        let (waiting, _entry) = ticket(Work::Batch(batch()));
        let outcome = waiting.wait_timeout(Duration::from_millis(1));
        assert!(matches!(outcome, Err(WriteError::Cancelled(taken)) if taken == batch()));

        let (waiting, entry) = ticket(Work::Batch(batch()));
        let (_, completion) = entry.begin().unwrap();
        let outcome = waiting.wait_timeout(Duration::from_millis(1));
        let Err(WriteError::UnderWay(waiting)) = outcome else { panic!("{outcome:?}") };
        drop(completion.complete(Ok(())));
        waiting.wait().unwrap();
    }
}
