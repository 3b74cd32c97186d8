//! [`Writer`]: group commit.
//!
//! The writer takes all queued requests, plans their changes (see `planner.rs`), commits them as one group
//! (see `commit.rs`), and wakes the tickets. That is a *step*. A thread makes one step after another, or a
//! simulation does.
//!
//! When a group does not fit, it is halved until the batch that does not fit stands alone, so a
//! large batch cannot spoil the small batches beside it. A group is not halved if even what is in memory
//! does not fit.
//!
//! When the outcome of a commit is unknown, queued work is handed back until the log and the engine have
//! recovered.
//!
//! The writer of a copy of a shared log makes other steps (see `copy.rs`).

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::Waker;
use std::time::Duration;
use std::{io, mem, thread};

use crate::disk::environment::Environment;
use crate::write::commit::{Commit, Failure};
use crate::write::copy::Copy;
use crate::write::foreign;
use crate::write::group_delay::GroupDelay;
use crate::write::planner::{Outcome, Planner};
use crate::write::queue::{Appetite, Queue, Request, Taken, Wait};
use crate::write::sequencer::Sequencer;
use crate::write::submission::CommitFailure;
use crate::write::ticket::{Entry, Work};
use crate::{Batch, WriteError};

/// Counters of the writer's work. Plain counters: no other access is ordered by them.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    pub(crate) commits: AtomicU64,
    pub(crate) batches: AtomicU64,
    pub(crate) flush_nanoseconds: AtomicU64,
    pub(crate) recoveries: AtomicU64,
    /// Whether a write has failed because of the disk, and none has succeeded since.
    pub(crate) is_failing: AtomicBool,
}

/// Time between two attempts to recover.
const RECOVERY_INTERVAL: Duration = Duration::from_millis(20);

/// Runs on the writer thread until the queue is closed and drained.
pub(crate) fn run(writer: Writer) {
    // If this thread unwinds, no caller keeps waiting.
    struct End(Writer);
    impl Drop for End {
        fn drop(&mut self) {
            self.0.abandon();
        }
    }
    let mut end = End(writer);
    loop {
        match end.0.step(Wait::ForWork) {
            Step::Commit | Step::Idle => {}
            Step::Recovering => thread::sleep(RECOVERY_INTERVAL),
            Step::End => return,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// The writer committed a group, or could not.
    Commit,
    /// Nothing was queued.
    Idle,
    /// The log or the engine has not recovered yet.
    Recovering,
    /// The queue is closed and drained, or closed while the store recovers.
    End,
}

#[derive(Debug)]
pub(crate) struct Writer {
    pub(super) environment: Arc<Environment>,
    pub(super) queue: Arc<Queue>,
    counters: Arc<Counters>,
    /// The groups in flight, in a copy of a shared log.
    copy: Option<Box<Copy>>,
    /// Whether the log or the engine refuses further work.
    is_broken: bool,
    /// Time that the last commit waited for the disk.
    flush: Duration,
    pub(super) group_delay: GroupDelay,
    /// Empty lists between two steps, which keep their memory.
    pub(super) group: Vec<Request>,
    pub(super) spare: Vec<Entry>,
    wakers: Vec<Waker>,
}

impl Writer {
    pub(crate) fn new(
        environment: Arc<Environment>,
        queue: Arc<Queue>,
        counters: Arc<Counters>,
        sequencer: Option<Arc<dyn Sequencer>>,
    ) -> Writer {
        Writer {
            environment,
            queue,
            counters,
            copy: sequencer.map(|sequencer| Box::new(Copy::new(sequencer))),
            is_broken: false,
            flush: Duration::ZERO,
            group_delay: GroupDelay::default(),
            group: Vec::new(),
            spare: Vec::new(),
            wakers: Vec::new(),
        }
    }

    /// Commits what is queued as a group, once the log and the engine have recovered.
    pub(crate) fn step(&mut self, wait: Wait) -> Step {
        if let Some(mut copy) = self.copy.take() {
            let step = self.step_copy(&mut copy, wait);
            self.copy = Some(copy);
            return step;
        }
        if self.is_broken {
            if !self.recovers() {
                return if self.queue.is_closed() { Step::End } else { Step::Recovering };
            }
            self.is_broken = false;
            self.counters.recoveries.fetch_add(1, Ordering::Relaxed);
            // A recovery has proved the disk.
            self.counters.is_failing.store(false, Ordering::Relaxed);
            self.queue.end_recovery();
        }
        let Writer { queue, group, spare, group_delay, .. } = self;
        let requests = match queue.take(group, spare, group_delay, (wait, Appetite::Work)) {
            Taken::Group(requests) => requests,
            Taken::Nothing | Taken::Controls(_) => return Step::Idle,
            Taken::End => {
                self.environment.close();
                return Step::End;
            }
        };
        let mut group = mem::take(&mut self.group);
        self.commit(&mut group);
        self.group = group;
        let (waiting, flush) = (self.queue.len(), mem::take(&mut self.flush));
        self.group_delay.committed(requests, waiting, flush);
        // The queue refuses batches before any caller learns of the failure.
        if self.is_broken {
            self.queue.begin_recovery();
            self.hand_back(self.queue.take_waiting());
        }
        self.wake_all();
        Step::Commit
    }

    /// Wakes those whose outcomes are in place: all of a group's, before any foreign code runs.
    pub(super) fn wake_all(&mut self) {
        self.wakers.drain(..).for_each(foreign::wake);
    }

    /// Sets the waker that is called when something is queued.
    #[cfg(feature = "sim")]
    pub(crate) fn wakes(&self, waker: Waker) {
        self.queue.wakes(waker);
    }

    /// Ends the store's work: closes the queue, and hands back what is in it.
    pub(crate) fn abandon(&self) {
        self.queue.abandon();
        self.environment.checkpoints().end();
    }

    /// Whether the log and the engine accept work, after an attempt to mend the log.
    fn recovers(&self) -> bool {
        let mut log = self.environment.log();
        let is_log_whole = log.as_mut().is_some_and(|log| !log.is_broken() || log.mend().is_ok());
        is_log_whole && !self.environment.engine().is_broken()
    }

    fn commit(&mut self, group: &mut Vec<Request>) {
        if self.is_broken {
            return self.hand_back(group.drain(..));
        }
        let mut outcomes = vec![Outcome::Applied; group.len()];
        let failure = match self.transact(group, &mut outcomes) {
            Ok(flush) => {
                self.flush = flush;
                self.count_batches(group);
                return self.acknowledge(group, &outcomes);
            }
            Err(failure) => failure,
        };
        if matches!(failure, Failure::Full(_) | Failure::TooLarge(_)) && group.len() > 1 {
            let mut later = group.split_off(group.len() / 2);
            self.commit(group);
            // A loss in the first half is also that of the submissions in the second.
            let settled = self.queue.submissions().settled();
            later.retain(|request| request.last_submission().is_none_or(|last| last > settled));
            self.commit(&mut later);
            return;
        }
        self.is_broken = matches!(failure, Failure::Unknown(_) | Failure::Recovering);
        self.note(&failure);
        self.refuse(group.drain(..), &failure, |batch| failure.to_error(batch));
    }

    /// Notes a failure of the disk. A batch that is too large for a transaction says nothing about the next.
    pub(super) fn note(&self, failure: &Failure) {
        let is_of_disk = !matches!(failure, Failure::TooLarge(_));
        self.counters.is_failing.fetch_or(is_of_disk, Ordering::Relaxed);
    }

    /// Loses the submissions among requests, with all behind them, and hands back the batches.
    pub(super) fn refuse(
        &mut self,
        requests: impl IntoIterator<Item = Request>,
        failure: &Failure,
        error: impl Fn(Batch) -> WriteError,
    ) {
        let mut last = None;
        for request in requests {
            last = request.last_submission().or(last);
            let Request { work, completion } = request;
            self.wakers.extend(completion.complete(Err(error(work.into_batch()))));
        }
        if let Some(last) = last {
            self.queue.lose(last, failure.to_loss(), &mut self.wakers);
        }
    }

    fn count_batches(&self, group: &[Request]) {
        let batches = group.iter().map(Request::count).sum();
        self.counters.batches.fetch_add(batches, Ordering::Relaxed);
    }

    /// Counts the commit of a group with changes, which took some time.
    fn note_commit(&self, took: Duration) {
        self.counters.commits.fetch_add(1, Ordering::Relaxed);
        if self.counters.is_failing.load(Ordering::Relaxed) {
            self.counters.is_failing.store(false, Ordering::Relaxed);
        }
        let nanoseconds = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX);
        self.counters.flush_nanoseconds.fetch_add(nanoseconds, Ordering::Relaxed);
    }

    /// Does the same for a group of a copy, and counts its batches.
    pub(super) fn count_commit(&self, group: &[Request], took: Duration) {
        self.count_batches(group);
        self.note_commit(took);
    }

    /// Commits the group as a whole. Returns the time that the disk took.
    fn transact(
        &self,
        group: &mut [Request],
        outcomes: &mut [Outcome],
    ) -> Result<Duration, Failure> {
        let commit = Commit::begin(&self.environment)?;
        let planner = Planner::new(&self.environment, commit.first());
        let (changes, makes_room) = planner.plan(group, outcomes)?;
        let count = changes.count();
        let flush = commit.finish(changes, makes_room)?;
        if count > 0 {
            self.note_commit(flush);
        }
        Ok(flush)
    }

    /// Resolves the tickets of a group that was committed.
    pub(super) fn acknowledge(&mut self, group: &mut Vec<Request>, outcomes: &[Outcome]) {
        if let Some(last) = group.iter().filter_map(Request::last_submission).next_back() {
            self.queue.submissions().settle(last, &mut self.wakers);
        }
        for (Request { work, completion }, outcome) in group.drain(..).zip(outcomes) {
            let outcome = match (&work, outcome) {
                (_, Outcome::KeyExists) => Err(WriteError::KeyExists(work.into_batch())),
                (Work::Sync, Outcome::Applied) => {
                    self.sync().map_err(|source| WriteError::Failed { batch: Batch::new(), source })
                }
                (_, Outcome::Applied) => {
                    self.wakers.extend(completion.succeed(work));
                    continue;
                }
            };
            self.wakers.extend(completion.complete(outcome));
        }
    }

    fn sync(&self) -> io::Result<()> {
        match self.environment.log() {
            Some(mut log) => self.environment.sync(&mut log),
            None => Ok(()),
        }
    }

    fn hand_back(&mut self, requests: impl IntoIterator<Item = Request>) {
        self.refuse(requests, &Failure::Recovering, WriteError::Recovering);
    }
}

impl Failure {
    pub(super) fn to_error(&self, batch: Batch) -> WriteError {
        match self {
            Failure::Full(source) | Failure::Clogged(source) | Failure::TooLarge(source) => {
                WriteError::Full { batch, source: copy(source) }
            }
            Failure::Failed(source) => WriteError::Failed { batch, source: copy(source) },
            Failure::Recovering => WriteError::Recovering(batch),
            Failure::Unknown(source) => WriteError::Unknown { source: copy(source) },
        }
    }

    /// Returns the error of the group's submissions.
    fn to_loss(&self) -> CommitFailure {
        match self {
            Failure::Full(source)
            | Failure::Clogged(source)
            | Failure::TooLarge(source)
            | Failure::Failed(source) => CommitFailure::NotWritten(Arc::new(copy(source))),
            Failure::Recovering => {
                let recovering = "the store is recovering from a failed commit";
                CommitFailure::NotWritten(Arc::new(io::Error::other(recovering)))
            }
            Failure::Unknown(source) => CommitFailure::Unknown(Arc::new(copy(source))),
        }
    }
}

/// Copies an `io::Error`, which cannot be cloned: each batch of a group gets its own.
fn copy(error: &io::Error) -> io::Error {
    match error.raw_os_error() {
        Some(code) => io::Error::from_raw_os_error(code),
        None => io::Error::new(error.kind(), error.to_string()),
    }
}
