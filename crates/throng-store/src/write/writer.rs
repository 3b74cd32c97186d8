//! The writer thread: group commit.
//!
//! The writer takes all queued requests, plans their changes (see `planner.rs`), applies them in
//! key order in a single transaction, makes them durable, and wakes the tickets. Key order matters:
//! neighbours share a leaf page, and each touched page is written once. Keys above all existing
//! keys are appended, which fills pages to the end.
//!
//! A small group is deferred: its callers are acknowledged once it is in the journal, and the
//! transaction stays open, so that several groups share a commit (see `deferred.rs`). The group is
//! applied after the acknowledgement, while the callers make their next writes; if requests are
//! queued already, it is applied together with them.
//!
//! When a group does not fit, it is halved until the batch that does not fit stands alone, so a
//! large batch cannot spoil the small batches beside it.
//!
//! When the outcome of a commit is unknown, queued work is handed back and the engine is reopened.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::Waker;
use std::time::{Duration, Instant};
use std::{io, mem};

use crate::disk::commit::Commit;
use crate::disk::environment::Environment;
use crate::disk::journal::Failed;
use crate::disk::lmdb::{self, Env};
use crate::error::is_lack_of_room;
use crate::write::backoff::Backoff;
use crate::write::batch::Change;
use crate::write::deferred::{Deferred, Fingerprint, KEYS_MAX};
use crate::write::foreign;
use crate::write::group_delay::GroupDelay;
use crate::write::planner::{ChangePlanner, Outcome};
use crate::write::queue::{Queue, Request, Taken};
use crate::write::ticket::Work;
use crate::{Batch, WriteError};

/// Counters of the writer's work. Plain counters: no other access is ordered by them.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    pub(crate) commits: AtomicU64,
    pub(crate) batches: AtomicU64,
    pub(crate) recoveries: AtomicU64,
}

/// Runs on the writer thread until the queue is closed and drained.
pub(crate) fn run(environment: &Environment, queue: &Arc<Queue>, counters: &Counters) {
    // If this thread unwinds, no caller and no reader keeps waiting.
    struct Abandon<'q>(&'q Queue, &'q Deferred);
    impl Drop for Abandon<'_> {
        fn drop(&mut self) {
            self.0.abandon();
            self.1.fail();
        }
    }
    let _abandon = Abandon(queue, environment.deferred());

    while let Some(env) = environment.env() {
        if Writer::new(environment, &env, counters).serve(queue) {
            break;
        }
        drop(env);
        if !environment.reopen(|| !queue.is_closed()) {
            break;
        }
        environment.deferred().recover();
        counters.recoveries.fetch_add(1, Ordering::Relaxed);
        queue.end_recovery();
    }
    environment.close_journal();
}

struct Writer<'w> {
    environment: &'w Environment,
    env: &'w Arc<Env>,
    counters: &'w Counters,
    /// Whether the engine refuses further work; see [`Failure::Unknown`].
    broken: bool,
    /// Groups that are acknowledged, but not visible to readers.
    open_commit: Option<OpenCommit<'w>>,
    /// Suspends deferring after it did not pay.
    backoff: Backoff,
    /// Time that the last commit waited for the disk.
    flush: Duration,
    wakers: Vec<Waker>,
}

/// A commit that stays open for more groups. Its groups are in the journal and acknowledged.
struct OpenCommit<'w> {
    commit: Commit<'w>,
    since: Instant,
    groups: u32,
    size: Size,
}

impl<'w> OpenCommit<'w> {
    fn of(commit: Commit<'w>) -> OpenCommit<'w> {
        OpenCommit { commit, since: Instant::now(), groups: 0, size: Size::default() }
    }

    /// Returns the time at which the commit must end.
    fn until(&self) -> Instant {
        self.since + DEFER_MAX
    }
}

/// Size of changes.
#[derive(Clone, Copy, Debug, Default)]
struct Size {
    keys: usize,
    bytes: usize,
}

impl Size {
    /// The most that may be deferred: few pages, so that a reader that requests a commit does not
    /// wait for long.
    const MAX: Size = Size { keys: KEYS_MAX, bytes: 1 << 20 };

    fn plus(self, other: Size) -> Option<Size> {
        let (keys, bytes) = (self.keys + other.keys, self.bytes + other.bytes);
        (keys <= Size::MAX.keys && bytes <= Size::MAX.bytes).then_some(Size { keys, bytes })
    }
}

/// Longest time for which writes are deferred, and for which another process that begins to read
/// waits.
const DEFER_MAX: Duration = Duration::from_millis(10);

/// Pages that must be free before writes are deferred, because an acknowledged write cannot be
/// refused later: for each key its leaf and the pages on the way there, four times over.
const ROOM_PAGES_MIN: u64 = 16 * KEYS_MAX as u64;

/// Groups that must share a commit before a reader requests it, so that deferring pays: the reader
/// waits for the pages to be written.
const GROUPS_MIN: u32 = 4;
/// Used instead of [`GROUPS_MIN`] if commits flush, because the reader then waits for the flush as
/// well.
const FLUSHES_MIN: u32 = 16;

/// Reason why a group was not committed.
#[derive(Debug)]
enum Failure {
    /// No room in the map or on the disk. Rolled back.
    Full(io::Error),
    /// Too much for one transaction. Rolled back.
    TooLarge(io::Error),
    /// Anything else that was rolled back.
    Failed(io::Error),
    /// The engine refused the work, because an earlier commit failed half-way.
    Recovering,
    /// The last step, switching to the new tree, failed half-way.
    Unknown(io::Error),
}

impl<'w> Writer<'w> {
    fn new(environment: &'w Environment, env: &'w Arc<Env>, counters: &'w Counters) -> Writer<'w> {
        Writer {
            environment,
            env,
            counters,
            broken: false,
            open_commit: None,
            backoff: Backoff::default(),
            flush: Duration::ZERO,
            wakers: Vec::new(),
        }
    }

    /// Works until the queue is closed and drained, which returns `true`, or until the engine
    /// refuses further work.
    fn serve(&mut self, queue: &Queue) -> bool {
        let deferred = self.environment.deferred();
        let (mut group, mut spare) = (Vec::new(), Vec::new());
        let mut group_delay = GroupDelay::default();
        loop {
            let taken = if queue.len() == 0 && self.apply_deferred().is_err() {
                Taken::Publish
            } else {
                let until = self.open_commit.as_ref().map(OpenCommit::until);
                queue.take(&mut group, &mut spare, &mut group_delay, deferred, until)
            };
            match taken {
                Taken::Group => {
                    let acked = group.len();
                    self.commit(&mut group);
                    group_delay.committed(acked, queue.len(), mem::take(&mut self.flush));
                }
                Taken::Publish | Taken::End => self.publish(),
            }
            // The queue refuses batches before any caller learns of the failure.
            if self.broken {
                queue.begin_recovery();
                deferred.fail();
                self.hand_back(queue.take_waiting());
            }
            // Every outcome of the group is in place before any foreign code runs.
            self.wakers.drain(..).for_each(foreign::wake);
            if self.broken || taken == Taken::End {
                return !self.broken;
            }
        }
    }

    /// Commits or defers the requests, leaves `group` empty, and stores each outcome in its ticket.
    fn commit(&mut self, group: &mut Vec<Request>) {
        let size = self.size(group).filter(|_| !self.environment.deferred().is_suspended());
        let joins = |open: &OpenCommit<'_>| {
            let fits = size.is_some_and(|size| open.size.plus(size).is_some());
            fits && open.until() > Instant::now()
        };
        if self.open_commit.as_ref().is_some_and(|open| !joins(open)) {
            self.publish();
        }
        match size {
            Some(size) if self.open_commit.is_some() || self.may_defer() => self.defer(group, size),
            _ => self.commit_now(group),
        }
    }

    /// Returns the size of the changes, if the group may be deferred. An update, which may read for
    /// long, a sync, and a `clear`, whose keys are not listed, may not.
    fn size(&self, group: &[Request]) -> Option<Size> {
        let mut size = Size::default();
        for request in group {
            let batch = request.batch()?;
            size = size.plus(Size { keys: batch.len(), bytes: batch.bytes() })?;
            if batch.is_ordered() && batch.iter().any(|(_, change)| change == Change::Clear) {
                return None;
            }
        }
        (size.keys > 0).then_some(size)
    }

    /// Whether to begin deferring.
    fn may_defer(&mut self) -> bool {
        let room_min = ROOM_PAGES_MIN * self.env.page_bytes();
        !self.broken && self.backoff.is_over() && !self.environment.lacks_room(room_min) && {
            let free = self.env.map_bytes().saturating_sub(self.env.used_bytes());
            free > room_min
        }
    }

    /// Applies the deferred groups while their callers make their next writes. A failure here
    /// repeats in [`publish`](Writer::publish).
    fn apply_deferred(&mut self) -> Result<(), lmdb::Error> {
        self.open_commit.as_mut().map_or(Ok(()), |open| open.commit.txn().map(drop))
    }

    /// Records the requests and acknowledges their callers before the commit.
    fn defer(&mut self, group: &mut Vec<Request>, size: Size) {
        let mut open = match self.open_commit.take() {
            Some(open) => open,
            None => {
                let commit = self.environment.commit(self.env).ok();
                match commit.and_then(|mut commit| commit.may_acknowledge().then_some(commit)) {
                    Some(commit) => OpenCommit::of(commit),
                    None => return self.commit_now(group),
                }
            }
        };
        let mut outcomes = vec![Outcome::Applied; group.len()];
        let planned = self.plan(&mut open.commit, group, &mut outcomes);
        match planned.and_then(|()| self.record(&mut open.commit)) {
            Ok(flush) => {
                open.groups += 1;
                open.size = open.size.plus(size).unwrap_or(Size::MAX);
                self.open_commit = Some(open);
                self.environment.deferred().defer(self.fingerprints(group));
                self.committed(group, &outcomes, Some(flush));
            }
            Err(failure @ (Failure::Unknown(_) | Failure::Recovering)) => {
                self.refuse(group, &failure);
            }
            Err(_) if open.groups == 0 => {
                drop(open);
                self.commit_now(group);
            }
            Err(_) if open.commit.log.take_back() => {
                self.open_commit = Some(open);
                self.publish();
                self.commit_now(group);
            }
            // Acknowledged groups are rolled back with this group; they are in the journal.
            Err(_) => self.refuse(group, &Failure::Recovering),
        }
    }

    /// Returns the fingerprints of the keys that a deferred group changes.
    fn fingerprints(&self, group: &[Request]) -> impl Iterator<Item = Fingerprint> {
        let entries = self.environment.entries();
        let batches = group.iter().filter_map(Request::batch);
        let operations = batches.flat_map(move |batch| batch.operations(entries));
        operations.map(|(table_ref, key, _)| Fingerprint::of(table_ref.table, key))
    }

    /// Commits the deferred groups, if there are any, and makes them visible.
    fn publish(&mut self) {
        let deferred = self.environment.deferred();
        let Some(open) = self.open_commit.take() else { return deferred.publish() };
        let flushes = self.environment.is_durable();
        if open.groups >= if flushes { FLUSHES_MIN } else { GROUPS_MIN } {
            self.backoff.reset();
        } else if deferred.is_commit_requested() {
            self.backoff.grow();
        }
        if open.commit.end().is_ok() {
            self.environment.committed(self.env);
            deferred.publish();
        } else {
            self.broken = true;
        }
    }

    /// Commits the requests at once.
    fn commit_now(&mut self, group: &mut Vec<Request>) {
        if self.broken {
            return self.hand_back(group.drain(..));
        }
        let mut outcome = self.transact(group);
        if matches!(outcome, Err(Failure::Full(_))) && self.environment.free_pages(self.env) {
            outcome = self.transact(group);
        }
        let failure = match outcome {
            Ok((flush, outcomes)) => {
                if flush.is_some() {
                    self.environment.committed(self.env);
                }
                return self.committed(group, &outcomes, flush);
            }
            Err(failure) => failure,
        };
        if matches!(failure, Failure::Full(_) | Failure::TooLarge(_)) && group.len() > 1 {
            let mut later = group.split_off(group.len() / 2);
            self.commit_now(group);
            self.commit_now(&mut later);
            return;
        }
        self.refuse(group, &failure);
    }

    /// Does all the work of the group in a single transaction. Returns the time that the disk took,
    /// if there was anything to do.
    fn transact(&self, group: &mut [Request]) -> Result<(Option<Duration>, Vec<Outcome>), Failure> {
        let mut outcomes = vec![Outcome::Applied; group.len()];
        let idle = group.iter().all(|request| match &request.work {
            Work::Batch(batch) => batch.is_empty(),
            Work::Update(_) => false,
            Work::Sync => true,
        });
        if idle {
            return Ok((None, outcomes));
        }
        let commit = self.environment.commit(self.env).map_err(Failure::rolled_back);
        let flush = commit.and_then(|mut commit| {
            self.plan(&mut commit, group, &mut outcomes)?;
            commit.txn().map_err(Failure::rolled_back)?;
            let flush = self.record(&mut commit)?;
            commit.end().map_err(|failed| Failure::of_commit(failed, self.env))?;
            Ok(flush)
        });
        match flush {
            Ok(flush) => Ok((Some(flush), outcomes)),
            Err(failure) => Err(failure.explained(self.environment, group)),
        }
    }

    fn plan(
        &self,
        commit: &mut Commit<'_>,
        group: &mut [Request],
        outcomes: &mut [Outcome],
    ) -> Result<(), Failure> {
        let mut planner = ChangePlanner::new(self.environment, commit);
        planner.plan(group, outcomes).map_err(Failure::rolled_back)
    }

    fn record(&self, commit: &mut Commit<'_>) -> Result<Duration, Failure> {
        commit.record().map_err(|failed| Failure::of_commit(failed, self.env))
    }

    /// Counts and acknowledges a group that is as durable as promised.
    fn committed(
        &mut self,
        group: &mut Vec<Request>,
        outcomes: &[Outcome],
        flush: Option<Duration>,
    ) {
        self.flush = flush.unwrap_or_default();
        self.counters.commits.fetch_add(u64::from(flush.is_some()), Ordering::Relaxed);
        self.counters.batches.fetch_add(group.len() as u64, Ordering::Relaxed);
        self.acknowledge(group, outcomes);
    }

    /// Resolves the tickets of a group that was not committed.
    fn refuse(&mut self, group: &mut Vec<Request>, failure: &Failure) {
        self.broken |= matches!(failure, Failure::Unknown(_) | Failure::Recovering);
        for Request { work, completion } in group.drain(..) {
            let error = failure.to_error(work.into_batch());
            self.wakers.extend(completion.complete(Err(error)));
        }
    }

    /// Resolves the tickets of a group that was committed.
    fn acknowledge(&mut self, group: &mut Vec<Request>, outcomes: &[Outcome]) {
        for (Request { work, completion }, outcome) in group.drain(..).zip(outcomes) {
            let outcome = match (&work, outcome) {
                (_, Outcome::KeyExists) => Err(WriteError::KeyExists(work.into_batch())),
                (Work::Sync, Outcome::Applied) => self
                    .environment
                    .sync(self.env)
                    .map_err(|source| WriteError::Failed { batch: Batch::new(), source }),
                (_, Outcome::Applied) => {
                    self.wakers.extend(completion.succeed(work));
                    continue;
                }
            };
            self.wakers.extend(completion.complete(outcome));
        }
    }

    fn hand_back(&mut self, requests: impl IntoIterator<Item = Request>) {
        for Request { work, completion } in requests {
            let error = WriteError::Recovering(work.into_batch());
            self.wakers.extend(completion.complete(Err(error)));
        }
    }
}

impl Failure {
    /// Returns the error for the owner of one batch of the group.
    fn to_error(&self, batch: Batch) -> WriteError {
        match self {
            Failure::Full(source) | Failure::TooLarge(source) => {
                WriteError::Full { batch, source: copy(source) }
            }
            Failure::Failed(source) => WriteError::Failed { batch, source: copy(source) },
            Failure::Recovering => WriteError::Recovering(batch),
            Failure::Unknown(source) => WriteError::Unknown { source: copy(source) },
        }
    }

    /// Reclassifies an error of the disk as a lack of room, if the disk has less room than the
    /// group may need: the engine reports a partial write as an error of the disk.
    fn explained(self, environment: &Environment, group: &[Request]) -> Failure {
        match self {
            Failure::Failed(error)
                if error.raw_os_error() == Some(SHORT_WRITE)
                    && environment.lacks_room(room_for(group)) =>
            {
                Failure::Full(io::ErrorKind::StorageFull.into())
            }
            other => other,
        }
    }

    /// Classifies the failure of a commit.
    fn of_commit(failed: Failed, env: &Env) -> Failure {
        match failed {
            Failed::Journal(error) => Failure::of_io(error),
            // The engine rolls a failed commit back, unless the failure hit the meta page, which
            // makes the commit the current one; then the engine refuses all further writes, and so
            // this case is recognised.
            Failed::Engine(error) if Environment::needs_recovery(env) => {
                Failure::Unknown(error.into_io())
            }
            Failed::Engine(error) => Failure::rolled_back(error),
            Failed::Unknown(error) => Failure::Unknown(error),
            Failed::Recovering => Failure::Recovering,
        }
    }

    /// Classifies an error of the engine that was followed by a roll-back.
    fn rolled_back(error: lmdb::Error) -> Failure {
        match error {
            lmdb::Error::TxnFull => Failure::TooLarge(error.into_io()),
            lmdb::Error::Panic => Failure::Recovering,
            error => Failure::of_io(error.into_io()),
        }
    }

    fn of_io(error: io::Error) -> Failure {
        if is_lack_of_room(&error) { Failure::Full(error) } else { Failure::Failed(error) }
    }
}

/// `EIO`, which is 5 on every Unix.
const SHORT_WRITE: i32 = 5;

/// Estimates the most that a group may need on the disk, in bytes: the batches themselves, the
/// pages from the root to each leaf, and the list of free pages.
fn room_for(group: &[Request]) -> u64 {
    let bytes = group.iter().map(|request| match &request.work {
        Work::Batch(batch) => batch.bytes() + batch.len() * (32 << 10),
        Work::Update(_) | Work::Sync => 64 << 10,
    });
    (1 << 20) + bytes.sum::<usize>() as u64
}

/// Copies an `io::Error`, which cannot be cloned: each batch of a group gets its own.
fn copy(error: &io::Error) -> io::Error {
    match error.raw_os_error() {
        Some(code) => io::Error::from_raw_os_error(code),
        None => io::Error::new(error.kind(), error.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Options;
    use crate::write::ticket::ticket;

    #[test]
    fn errors_are_classified_by_remedy() {
        let sorted = |error| match Failure::rolled_back(error) {
            Failure::Full(_) => "full",
            Failure::TooLarge(_) => "too large",
            Failure::Failed(_) => "failed",
            Failure::Recovering => "recovering",
            Failure::Unknown(_) => "unknown",
        };
        let io = |kind: io::ErrorKind| sorted(lmdb::Error::Io(kind.into()));
        assert_eq!(sorted(lmdb::Error::MapFull), "full");
        assert_eq!(sorted(lmdb::Error::TxnFull), "too large");
        assert_eq!(sorted(lmdb::Error::Panic), "recovering");
        assert_eq!(sorted(lmdb::Error::Corrupt(String::new())), "failed");
        assert_eq!(io(io::ErrorKind::StorageFull), "full");
        assert_eq!(io(io::ErrorKind::QuotaExceeded), "full");
        assert_eq!(io(io::ErrorKind::FileTooLarge), "full");
        assert_eq!(io(io::ErrorKind::TimedOut), "failed");
        assert_eq!(sorted(lmdb::Error::Io(io::Error::from_raw_os_error(5))), "failed");
    }

    #[test]
    fn after_a_broken_commit_everything_queued_is_handed_back() {
        let directory = tempfile::tempdir().unwrap();
        let environment = Environment::open(directory.path(), &Options::default()).unwrap();
        let (env, counters) = (environment.env().unwrap(), Counters::default());
        let mut writer = Writer::new(&environment, &env, &counters);
        writer.broken = true;
        let batch = Batch::new().put("key", "value");
        let (ticket, entry) = ticket(Work::Batch(batch.clone()));
        let (work, completion) = entry.begin().unwrap();
        writer.commit(&mut vec![Request { work, completion }]);
        let refused = ticket.wait();
        assert!(matches!(refused, Err(WriteError::Recovering(handed)) if handed == batch));
        assert_eq!(counters.commits.load(Ordering::Relaxed), 0);
    }
}
