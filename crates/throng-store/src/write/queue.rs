//! [`Queue`]: the bounded queue from any thread to the writer thread.
//!
//! The writer takes all queued requests at once, so the lock is held for the length of a push or of
//! a pointer swap. While a commit flushes, the next group queues: the slower the disk, the larger
//! the group. The writer may wait a little for the callers that it has just acknowledged (see
//! `group_delay.rs`).

use std::future::Future;
use std::io;
use std::mem;
use std::pin::Pin;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Instant;

use crate::write::copy::Control;
use crate::write::foreign;
use crate::write::group_delay::GroupDelay;
use crate::write::submission::{CommitFailure, Submission, Submissions, SubmitError, Submitted};
use crate::write::ticket::{Completion, Entry, Ticket, Work, ticket};
use crate::{Batch, Options, Rejection, WriteError};

/// Accepted work in the writer's hands.
#[derive(Debug)]
pub(crate) struct Request {
    pub(crate) work: Work,
    pub(crate) completion: Completion,
}

impl Request {
    pub(crate) fn batch(&self) -> Option<&Batch> {
        match &self.work {
            Work::Batch(batch) | Work::Submitted(Submitted { batch, .. }) => Some(batch),
            Work::Update(_) | Work::Sync => None,
        }
    }

    pub(crate) fn count(&self) -> u64 {
        match &self.work {
            Work::Submitted(submitted) => submitted.count as u64,
            _ => 1,
        }
    }

    /// Number of the last submission, if the work is submissions.
    pub(crate) fn last_submission(&self) -> Option<Submission> {
        match &self.work {
            Work::Submitted(submitted) => Some(submitted.last),
            _ => None,
        }
    }
}

#[derive(Debug)]
pub(crate) struct Queue {
    waiting: Mutex<Waiting>,
    /// Wakes the writer's thread.
    arrived: Condvar,
    /// Wakes the writer of a simulation, which has no thread.
    stepper: OnceLock<Waker>,
    submissions: Arc<Submissions>,
    batches_max: usize,
    bytes_max: usize,
    /// Id of the store whose databases a batch may name.
    store: u64,
}

#[derive(Debug)]
struct Waiting {
    /// Queued entries. Cancelled entries count until the writer takes them.
    entries: Vec<Entry>,
    /// Number of requests in `entries`; an entry may have many submissions.
    requests: usize,
    bytes: usize,
    /// News of the shared log, in a copy. Bounded by those who tell them.
    controls: Vec<Control>,
    admission: Admission,
    /// Number of requests that wakes the sleeping writer; 0 if it does not sleep.
    wanted: usize,
    /// Wakers of tasks that wait for room. Each task holds its batch back, so the list is bounded
    /// by the number of such tasks.
    waiters: Vec<Waker>,
}

/// A future that resolves when the store's queue has room, from
/// [`Store::room_for`](crate::Store::room_for).
#[must_use = "futures do nothing unless they are awaited"]
#[derive(Debug)]
pub struct QueueRoom {
    queue: Arc<Queue>,
    bytes: usize,
}

impl Future for QueueRoom {
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        // The waker is cloned before the lock is taken, and dropped after its release if it is not
        // needed.
        let waker = cx.waker().clone();
        let mut waiting = self.queue.lock();
        // Without admission there is nothing to wait for.
        if waiting.admission != Admission::Open || self.queue.fits(&waiting, self.bytes) {
            return Poll::Ready(());
        }
        waiting.waiters.push(waker);
        Poll::Pending
    }
}

#[derive(Debug)]
pub(crate) enum Taken {
    /// Commit the group, which has this number of requests.
    Group(usize),
    /// Hear the news of the shared log, of which the store is a copy.
    Controls(Vec<Control>),
    /// Come again after the next wake-up.
    Nothing,
    /// Exit: the queue is closed and drained.
    End,
}

/// Patience of the writer when it takes work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wait {
    ForWork,
    Never,
}

/// Work that the writer of a copy takes, beside news of the shared log. Another writer takes all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Appetite {
    Work,
    /// Work from some time on, or once there is enough.
    WorkFrom {
        until: Instant,
        enough: usize,
    },
    Controls,
}

/// Whether batches are accepted, and the reason if they are not. Ordered by precedence.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Admission {
    Open,
    /// No batches until the store leads its shared log.
    Standby,
    /// No batches until the engine has been reopened, because the outcome of a commit is unknown.
    Recovering,
    /// No batches, because the store was opened read-only.
    ReadOnly,
    Closed,
}

impl Queue {
    pub(crate) fn new(options: &Options, store: u64) -> Queue {
        Queue {
            waiting: Mutex::new(Waiting {
                entries: Vec::new(),
                requests: 0,
                bytes: 0,
                controls: Vec::new(),
                admission: match options {
                    Options { read_only: true, .. } => Admission::ReadOnly,
                    Options { sequencer: Some(_), .. } => Admission::Standby,
                    _ => Admission::Open,
                },
                wanted: 0,
                waiters: Vec::new(),
            }),
            arrived: Condvar::new(),
            stepper: OnceLock::new(),
            submissions: Arc::default(),
            // Without room for one, a caller that waits for room would wait for ever.
            batches_max: options.queue_batches_max.max(1),
            bytes_max: options.queue_bytes_max,
            store,
        }
    }

    /// Queues a batch that the engine can store, or hands it back.
    pub(crate) fn push(&self, batch: Batch) -> Ticket {
        if let Err(reason) = self.check(&batch) {
            return Ticket::refused(WriteError::Rejected { batch, reason });
        }
        let bytes = batch.bytes();
        self.push_work(Work::Batch(batch), bytes)
    }

    /// Queues any work, or hands it back.
    pub(crate) fn push_work(&self, work: Work, bytes: usize) -> Ticket {
        // An update, whose bytes are an estimate, fits into an empty queue at least.
        let bytes = bytes.min(self.bytes_max);
        let (ticket, entry) = ticket(work);
        let mut waiting = self.lock();
        let refusal: fn(Batch) -> WriteError = match waiting.admission {
            Admission::Closed => WriteError::Closed,
            Admission::ReadOnly => WriteError::ReadOnly,
            Admission::Standby => WriteError::Standby,
            Admission::Recovering => WriteError::Recovering,
            Admission::Open if !self.fits(&waiting, bytes) => WriteError::Overloaded,
            Admission::Open => {
                waiting.entries.push(entry);
                self.admit(waiting, bytes);
                return ticket;
            }
        };
        drop(waiting);
        let Some((work, completion)) = entry.begin() else { return ticket };
        let unheard = completion.complete(Err(refusal(work.into_batch())));
        debug_assert!(unheard.is_none(), "nobody has polled it yet");
        ticket
    }

    /// Queues a batch without a ticket, behind all others, and empties it.
    pub(crate) fn submit(
        &self,
        batch: &mut Batch,
        after: Submission,
    ) -> Result<Submission, SubmitError> {
        self.check(batch)?;
        if batch.is_conditional() {
            return Err(SubmitError::Rejected(Rejection::Conditional));
        }
        let bytes = batch.bytes();
        let mut waiting = self.lock();
        match waiting.admission {
            Admission::Closed => return Err(SubmitError::Closed),
            Admission::ReadOnly => return Err(SubmitError::ReadOnly),
            Admission::Standby => return Err(SubmitError::Standby),
            Admission::Recovering => return Err(SubmitError::Recovering),
            Admission::Open => {}
        }
        if let Some(loss) = self.submissions.loss(after) {
            return Err(SubmitError::Lost(loss));
        }
        if !self.fits(&waiting, bytes) {
            return Err(SubmitError::Overloaded);
        }
        let number = self.submissions.accept();
        let is_joined = match waiting.entries.last_mut() {
            Some(Entry::Submitted(before)) => before.join(batch, number),
            _ => false,
        };
        if !is_joined {
            waiting.entries.push(Entry::Submitted(Submitted::new(batch, number)));
        }
        self.admit(waiting, bytes);
        Ok(number)
    }

    /// Counts a request that was queued, and wakes the writer if it waits for no more.
    fn admit(&self, mut waiting: MutexGuard<'_, Waiting>, bytes: usize) {
        waiting.requests += 1;
        waiting.bytes += bytes;
        let wake = waiting.wanted > 0 && waiting.requests >= waiting.wanted;
        if wake {
            waiting.wanted = 0;
        }
        drop(waiting);
        if wake {
            self.wake();
        }
    }

    fn wake(&self) {
        self.arrived.notify_one();
        if let Some(stepper) = self.stepper.get() {
            stepper.wake_by_ref();
        }
    }

    /// Makes the queue wake the writer of a simulation, by the first waker that is given.
    #[cfg(feature = "sim")]
    pub(crate) fn wakes(&self, stepper: Waker) {
        let _ = self.stepper.set(stepper);
    }

    /// Loses submissions, through `failed` for this reason and the queued ones because they are behind.
    /// Appends the wakers of those that wait for the outcome.
    pub(crate) fn lose(&self, failed: Submission, loss: CommitFailure, wakers: &mut Vec<Waker>) {
        let mut waiting = self.lock();
        let is_lost = |entry: &mut Entry| matches!(entry, Entry::Submitted(_));
        let lost: Vec<_> = waiting.entries.extract_if(.., is_lost).collect();
        for entry in &lost {
            if let Entry::Submitted(Submitted { count, bytes, .. }) = entry {
                waiting.requests -= count;
                waiting.bytes -= bytes;
            }
        }
        self.submissions.lose(failed, loss, self.submissions.submitted(), wakers);
        wakers.append(&mut waiting.waiters);
    }

    pub(crate) fn submitted(&self) -> Submission {
        // The lock makes this call see every submission that was accepted before.
        let _waiting = self.lock();
        self.submissions.submitted()
    }

    pub(crate) fn submissions(&self) -> &Arc<Submissions> {
        &self.submissions
    }

    /// Tells the writer of a copy news, or hands them back once the store is closed.
    pub(crate) fn tell(&self, control: Control) -> Result<(), Control> {
        let mut waiting = self.lock();
        if waiting.admission == Admission::Closed {
            return Err(control);
        }
        waiting.controls.push(control);
        let wake = mem::take(&mut waiting.wanted) > 0;
        drop(waiting);
        if wake {
            self.wake();
        }
        Ok(())
    }

    /// Waits for work and moves all of it, in the order of arrival, into `group`, which must be
    /// empty. News come first.
    pub(crate) fn take(
        &self,
        group: &mut Vec<Request>,
        spare: &mut Vec<Entry>,
        group_delay: &mut GroupDelay,
        (wait, appetite): (Wait, Appetite),
    ) -> Taken {
        debug_assert!(group.is_empty() && spare.is_empty());
        let mut waiting = self.lock();
        loop {
            if !waiting.controls.is_empty() {
                waiting.wanted = 0;
                return Taken::Controls(mem::take(&mut waiting.controls));
            }
            let is_any = !waiting.entries.is_empty();
            if is_any && appetite == Appetite::Work {
                break;
            }
            if waiting.admission == Admission::Closed {
                return Taken::End;
            }
            // Requests that wake the writer, and the time until which it waits for them.
            let (wanted, left) = match appetite {
                Appetite::WorkFrom { until, enough } if is_any => {
                    (enough, Some(until.saturating_duration_since(Instant::now())))
                }
                Appetite::Controls => (usize::MAX, None),
                _ => (1, None),
            };
            let is_due = left.is_some_and(|left| left.is_zero() || wait == Wait::Never);
            if is_due || waiting.requests >= wanted {
                break;
            }
            waiting.wanted = wanted;
            if wait == Wait::Never {
                return Taken::Nothing;
            }
            waiting = match left {
                None => self.arrived.wait(waiting).unwrap_or_else(PoisonError::into_inner),
                Some(left) => {
                    let slept = self.arrived.wait_timeout(waiting, left);
                    slept.unwrap_or_else(PoisonError::into_inner).0
                }
            };
        }
        let here = waiting.requests;
        if (wait, appetite) == (Wait::ForWork, Appetite::Work)
            && let Some((wanted, delay)) = group_delay.wanted(here)
            && here < wanted
        {
            let until = Instant::now() + delay;
            while waiting.requests < wanted && waiting.admission == Admission::Open {
                let left = until.saturating_duration_since(Instant::now());
                if left.is_zero() {
                    break;
                }
                waiting.wanted = wanted;
                let slept = self.arrived.wait_timeout(waiting, left);
                waiting = slept.unwrap_or_else(PoisonError::into_inner).0;
            }
            group_delay.arrived(waiting.requests.saturating_sub(here), wanted - here);
        }
        waiting.wanted = 0;
        waiting.bytes = 0;
        let requests = mem::take(&mut waiting.requests);
        mem::swap(&mut waiting.entries, spare);
        let waiters = mem::take(&mut waiting.waiters);
        drop(waiting);
        waiters.into_iter().for_each(foreign::wake);
        let begun = spare.drain(..).filter_map(Entry::begin);
        group.extend(begun.map(|(work, completion)| Request { work, completion }));
        Taken::Group(requests)
    }

    /// Returns a future that resolves when the batch fits, or when the queue accepts no more
    /// batches.
    pub(crate) fn room_for(self: &Arc<Self>, batch: &Batch) -> QueueRoom {
        // A batch that never fits must be refused, so it does not wait.
        QueueRoom { queue: self.clone(), bytes: batch.bytes().min(self.bytes_max) }
    }

    /// Refuses further batches; queued batches are still committed.
    pub(crate) fn close(&self) {
        self.refuse(Admission::Closed);
        self.wake();
    }

    pub(crate) fn len(&self) -> usize {
        self.lock().requests
    }

    /// Whether batches are accepted, as long as they fit.
    pub(crate) fn is_open(&self) -> bool {
        self.lock().admission == Admission::Open
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.lock().admission == Admission::Closed
    }

    /// Refuses batches until [`end_recovery`](Queue::end_recovery).
    pub(crate) fn begin_recovery(&self) {
        self.refuse(Admission::Recovering);
    }

    /// Accepts batches again, unless the queue was closed meanwhile.
    pub(crate) fn end_recovery(&self) {
        self.accept_after(Admission::Recovering);
    }

    /// Refuses batches until [`end_standby`](Queue::end_standby).
    pub(crate) fn begin_standby(&self) {
        self.refuse(Admission::Standby);
    }

    /// Accepts batches, unless the queue was closed.
    pub(crate) fn end_standby(&self) {
        self.accept_after(Admission::Standby);
    }

    fn accept_after(&self, reason: Admission) {
        let mut waiting = self.lock();
        if waiting.admission == reason {
            waiting.admission = Admission::Open;
        }
    }

    pub(crate) fn take_waiting(&self) -> Vec<Request> {
        let mut waiting = self.lock();
        (waiting.bytes, waiting.requests) = (0, 0);
        let entries = mem::take(&mut waiting.entries);
        drop(waiting);
        let begun = entries.into_iter().filter_map(Entry::begin);
        begun.map(|(work, completion)| Request { work, completion }).collect()
    }

    /// Closes the queue and hands back the remaining batches, for a writer thread that ends early.
    pub(crate) fn abandon(&self) {
        self.refuse(Admission::Closed);
        let (all, mut wakers) = (self.submitted(), Vec::new());
        let ended = Arc::new(io::Error::other("the writer thread ended"));
        self.lose(all, CommitFailure::Unknown(ended), &mut wakers);
        wakers.into_iter().for_each(foreign::wake);
        for Request { work, completion } in self.take_waiting() {
            let waker = completion.complete(Err(WriteError::Closed(work.into_batch())));
            waker.into_iter().for_each(foreign::wake);
        }
    }

    fn refuse(&self, admission: Admission) {
        let mut waiting = self.lock();
        // A closed queue stays closed.
        waiting.admission = waiting.admission.max(admission);
        let waiters = mem::take(&mut waiting.waiters);
        drop(waiting);
        waiters.into_iter().for_each(foreign::wake);
    }

    fn fits(&self, waiting: &Waiting, bytes: usize) -> bool {
        waiting.requests < self.batches_max && waiting.bytes.saturating_add(bytes) <= self.bytes_max
    }

    fn check(&self, batch: &Batch) -> Result<(), Rejection> {
        batch.check(self.store)?;
        let (bytes, bytes_max) = (batch.bytes(), self.bytes_max);
        if bytes > bytes_max {
            return Err(Rejection::BatchTooLarge { bytes, bytes_max });
        }
        Ok(())
    }

    fn lock(&self) -> MutexGuard<'_, Waiting> {
        // A panic while the lock is held can only be an allocation that failed in `Vec::push`,
        // which leaves the list as it was.
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::table::{Kind, Table, TableRef};

    fn queue(batches_max: usize, bytes_max: usize) -> Queue {
        let options = Options::default().queue_batches_max(batches_max).queue_bytes_max(bytes_max);
        Queue::new(&options, 1)
    }

    const FOR_WORK: (Wait, Appetite) = (Wait::ForWork, Appetite::Work);

    /// Takes the batches that the writer would get; `None` at the end.
    fn take(queue: &Queue) -> Option<Vec<Batch>> {
        let mut group = Vec::new();
        let taken = queue.take(&mut group, &mut Vec::new(), &mut GroupDelay::default(), FOR_WORK);
        (!matches!(taken, Taken::End))
            .then(|| group.into_iter().map(|request| request.work.into_batch()).collect())
    }

    fn batch(value_bytes: usize) -> Batch {
        let table_ref = TableRef { table: Table(0), kind: Kind::Checked };
        Batch::new().put_at(table_ref, b"k", &vec![0; value_bytes])
    }

    #[test]
    fn too_many_batches_are_handed_back_until_some_are_taken() {
        let queue = queue(2, 1 << 20);
        let accepted = [queue.push(batch(1)), queue.push(batch(2))];
        let refused = queue.push(batch(3)).wait();
        assert!(matches!(refused, Err(WriteError::Overloaded(handed)) if handed == batch(3)));
        assert_eq!(take(&queue), Some(vec![batch(1), batch(2)]));
        drop((accepted, queue.push(batch(3))));
        assert_eq!(take(&queue).unwrap().len(), 1);
    }

    #[test]
    fn too_many_bytes_are_handed_back() {
        let queue = queue(100, 1000);
        drop(queue.push(batch(600)));
        let refused = queue.push(batch(600)).wait();
        assert!(matches!(refused, Err(WriteError::Overloaded(_))));
        let hopeless = queue.push(batch(1000)).wait();
        assert!(matches!(
            hopeless,
            Err(WriteError::Rejected { reason: Rejection::BatchTooLarge { .. }, .. })
        ));
        drop(take(&queue));
        drop(queue.push(batch(600)));
        assert_eq!(take(&queue).unwrap().len(), 1);
    }

    #[test]
    fn tasks_that_wait_for_room_are_woken_when_there_is_some() {
        let poll =
            |room: &mut QueueRoom| Pin::new(room).poll(&mut Context::from_waker(Waker::noop()));
        let queue = Arc::new(queue(2, 1000));
        let mut room = queue.room_for(&batch(600));
        assert!(poll(&mut room).is_ready());
        drop(queue.push(batch(600)));
        assert!(poll(&mut room).is_pending());
        assert!(poll(&mut queue.room_for(&batch(1))).is_ready());

        let woken = std::thread::spawn({
            struct Unpark(std::thread::Thread);
            impl std::task::Wake for Unpark {
                fn wake(self: Arc<Self>) {
                    self.0.unpark();
                }
            }
            move || {
                let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
                while Pin::new(&mut room).poll(&mut Context::from_waker(&waker)).is_pending() {
                    std::thread::park();
                }
            }
        });
        while queue.lock().waiters.len() < 2 {
            std::thread::yield_now();
        }
        drop(take(&queue));
        woken.join().unwrap();

        drop(queue.push(batch(600)));
        let mut room = queue.room_for(&batch(600));
        assert!(poll(&mut room).is_pending());
        queue.close();
        assert!(poll(&mut room).is_ready());
    }

    #[test]
    fn a_closed_queue_is_drained_and_ends() {
        let queue = queue(2, 1000);
        drop(queue.push(batch(1)));
        queue.close();
        assert!(matches!(queue.push(batch(1)).wait(), Err(WriteError::Closed(_))));
        assert_eq!(take(&queue).unwrap().len(), 1);
        assert!(take(&queue).is_none());
    }

    #[test]
    fn lost_submissions_leave_their_room_in_the_queue() {
        let queue = queue(2000, 64 << 10);
        let kept = queue.push(batch(1));
        let mut last = Submission::START;
        while let Ok(number) = queue.submit(&mut batch(10), last) {
            last = number;
        }
        assert!(last > Submission(100));
        let failure = CommitFailure::NotWritten(Arc::new(io::Error::other("no room")));
        queue.lose(last, failure, &mut Vec::new());
        // The batch with a ticket is left.
        assert_eq!((queue.len(), queue.lock().bytes), (1, batch(1).bytes()));
        assert!(matches!(queue.submit(&mut batch(1), last), Err(SubmitError::Lost(_))));
        queue.submit(&mut batch(60 << 10), Submission::START).unwrap();
        assert_eq!(take(&queue).unwrap().len(), 2);
        drop(kept);
    }

    #[test]
    fn cancelled_batches_do_not_reach_the_writer() {
        let queue = queue(4, 1000);
        let tickets = [queue.push(batch(1)), queue.push(batch(2)), queue.push(batch(3))];
        let [first, second, third] = tickets;
        drop(second.cancel_on_drop());
        assert_eq!(take(&queue), Some(vec![batch(1), batch(3)]));
        drop((first, third));
    }

    #[test]
    fn after_a_broken_commit_batches_are_refused_as_such() {
        let queue = queue(2, 1000);
        assert!(queue.is_open());
        queue.begin_recovery();
        assert!(!queue.is_open());
        assert!(matches!(queue.push(batch(1)).wait(), Err(WriteError::Recovering(_))));
        queue.end_recovery();
        assert!(queue.is_open());
        queue.begin_recovery();
        queue.close();
        queue.end_recovery();
        assert!(matches!(queue.push(batch(1)).wait(), Err(WriteError::Closed(_))));
    }
}
