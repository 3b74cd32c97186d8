//! The writer thread: group commit.
//!
//! It takes everything that waits, lays the operations of all batches in key order (the last one
//! of a key wins), applies them in one transaction, flushes, and wakes the tickets. Key order
//! matters: neighbours share a leaf page, and each touched page is written once. Keys above all
//! there are are appended, which fills pages to the end.
//!
//! What looks at the store before it writes (an update, a `put_new`), or empties a database, comes
//! between those before and those after it, in the same transaction.
//!
//! When a group does not fit, it is halved until the batch that does not fit stands alone, so one
//! large batch cannot spoil the small ones that happened to be queued beside it.
//!
//! When a commit breaks off, what waits is handed back, and the engine is opened anew.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::Waker;

use crate::batch::{Change, counter};
use crate::database::{Kind, Place};
use crate::environment::Environment;
use crate::lmdb::{self, Env, Put, WriteCursor, WriteTxn};
use crate::queue::{Queue, Request};
use crate::ticket::Work;
use crate::update::Update;
use crate::{Batch, ReadError, WriteError, record};

/// What the writer has done so far. Plain counters: nothing is ordered by them.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    pub(crate) commits: AtomicU64,
    pub(crate) batches: AtomicU64,
    pub(crate) recoveries: AtomicU64,
}

/// Runs on the writer thread until the queue is closed and drained.
pub(crate) fn run(environment: &Environment, queue: &Arc<Queue>, counters: &Counters) {
    // Should this thread ever unwind, nobody may be left waiting.
    struct Abandon<'q>(&'q Queue);
    impl Drop for Abandon<'_> {
        fn drop(&mut self) {
            self.0.abandon();
        }
    }
    let _abandon = Abandon(queue);

    let mut writer = Writer { environment, counters, broken: false, wakers: Vec::new() };
    let (mut group, mut spare) = (Vec::new(), Vec::new());
    while queue.take(&mut group, &mut spare) {
        writer.commit(&mut group);
        // The door is shut before anyone hears of it.
        if writer.broken {
            queue.break_off();
            writer.hand_back(queue.take_waiting());
        }
        // Every outcome of the group is in place before any foreign code runs.
        writer.wakers.drain(..).for_each(Waker::wake);
        if writer.broken && environment.reopen(|| !queue.is_closed()) {
            writer.broken = false;
            counters.recoveries.fetch_add(1, Ordering::Relaxed);
            queue.recover();
        }
    }
}

struct Writer<'w> {
    environment: &'w Environment,
    counters: &'w Counters,
    /// The engine has given up; see [`Failure::Unknown`].
    broken: bool,
    wakers: Vec<Waker>,
}

/// Why a group was not committed.
#[derive(Debug)]
enum Failure {
    /// No room in the map or on the disk. Rolled back.
    Full(io::Error),
    /// Too much for one transaction. Rolled back.
    TooLarge(io::Error),
    /// Anything else that was rolled back.
    Failed(io::Error),
    /// The engine had given up before.
    BrokenOff,
    /// The very last step, switching to the new tree, failed half-way.
    Unknown(io::Error),
}

/// What became of one request in a group that was committed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Outcome {
    Applied,
    /// Left out, because a key is there.
    KeyExists,
}

impl Writer<'_> {
    /// Commits the requests and leaves `group` empty, each outcome in its ticket.
    fn commit(&mut self, group: &mut Vec<Request>) {
        let Some(env) = self.environment.env().filter(|_| !self.broken) else {
            return self.hand_back(group.drain(..));
        };
        let failure = match transact(self.environment, &env, group) {
            Ok(committed) => {
                if committed.flushed {
                    self.counters.commits.fetch_add(1, Ordering::Relaxed);
                    self.environment.committed(&env);
                }
                self.counters.batches.fetch_add(group.len() as u64, Ordering::Relaxed);
                return self.tell(group, &committed.outcomes, &env);
            }
            Err(failure) => failure.explained(self.environment, group),
        };
        if matches!(failure, Failure::Full(_) | Failure::TooLarge(_)) && group.len() > 1 {
            let mut later = group.split_off(group.len() / 2);
            self.commit(group);
            self.commit(&mut later);
            return;
        }
        self.broken |= matches!(failure, Failure::Unknown(_) | Failure::BrokenOff);
        for Request { work, completion } in group.drain(..) {
            let error = failure.to_error(work.into_batch());
            self.wakers.extend(completion.complete(Err(error)));
        }
    }

    /// Resolves the tickets of a group that was committed.
    fn tell(&mut self, group: &mut Vec<Request>, outcomes: &[Outcome], env: &Env) {
        for (Request { work, completion }, outcome) in group.drain(..).zip(outcomes) {
            let outcome = match (work, outcome) {
                (work, Outcome::KeyExists) => Err(WriteError::KeyExists(work.into_batch())),
                (Work::Sync, Outcome::Applied) => env.sync().map_err(|error| WriteError::Failed {
                    batch: Batch::new(),
                    source: error.into_io(),
                }),
                (_, Outcome::Applied) => Ok(()),
            };
            self.wakers.extend(completion.complete(outcome));
        }
    }

    fn hand_back(&mut self, requests: impl IntoIterator<Item = Request>) {
        for Request { work, completion } in requests {
            let error = WriteError::BrokenOff(work.into_batch());
            self.wakers.extend(completion.complete(Err(error)));
        }
    }
}

impl Failure {
    /// What the owner of one batch of the group is told.
    fn to_error(&self, batch: Batch) -> WriteError {
        match self {
            Failure::Full(source) | Failure::TooLarge(source) => {
                WriteError::Full { batch, source: copy(source) }
            }
            Failure::Failed(source) => WriteError::Failed { batch, source: copy(source) },
            Failure::BrokenOff => WriteError::BrokenOff(batch),
            Failure::Unknown(source) => WriteError::Unknown { source: copy(source) },
        }
    }

    /// The engine takes a write of which only the beginning found room for an error of the disk; so
    /// one of those counts as a lack of room where there is less than the group may need.
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

    /// Sorts an error of the engine that was followed by a roll-back.
    fn rolled_back(error: lmdb::Error) -> Failure {
        match error {
            lmdb::Error::TxnFull => Failure::TooLarge(error.into_io()),
            lmdb::Error::Panic => Failure::BrokenOff,
            error => {
                let error = error.into_io();
                match error.kind() {
                    io::ErrorKind::StorageFull
                    | io::ErrorKind::QuotaExceeded
                    | io::ErrorKind::FileTooLarge => Failure::Full(error),
                    _ => Failure::Failed(error),
                }
            }
        }
    }
}

/// `EIO`, which is 5 on every Unix.
const SHORT_WRITE: i32 = 5;

/// The most that a group may need on the disk, in bytes, roughly: besides the batches themselves
/// the pages from the root to each leaf, and the free ones.
fn room_for(group: &[Request]) -> u64 {
    let bytes = group.iter().map(|request| match &request.work {
        Work::Batch(batch) => batch.bytes() + batch.len() * (32 << 10),
        Work::Update(_) | Work::Sync => 64 << 10,
    });
    (1 << 20) + bytes.sum::<usize>() as u64
}

/// `io::Error` cannot be cloned, and each batch of a group gets its own.
fn copy(error: &io::Error) -> io::Error {
    match error.raw_os_error() {
        Some(code) => io::Error::from_raw_os_error(code),
        None => io::Error::new(error.kind(), error.to_string()),
    }
}

/// A group that was committed.
struct Committed {
    /// Whether there was anything to commit.
    flushed: bool,
    outcomes: Vec<Outcome>,
}

/// Does all the work of the group in one transaction.
fn transact(
    environment: &Environment,
    env: &Env,
    group: &mut [Request],
) -> Result<Committed, Failure> {
    let mut outcomes = vec![Outcome::Applied; group.len()];
    let idle = group.iter().all(|request| match &request.work {
        Work::Batch(batch) => batch.is_empty(),
        Work::Update(_) => false,
        Work::Sync => true,
    });
    if idle {
        return Ok(Committed { flushed: false, outcomes });
    }
    let mut txn = env.begin_write().map_err(Failure::rolled_back)?;
    apply_all(environment, &mut txn, group, &mut outcomes).map_err(Failure::rolled_back)?;
    txn.commit().map_err(|error| {
        // The engine rolls a failed commit back, unless the failure hit the page that makes it
        // the current one; then it refuses all further writes, by which this case is known.
        if Environment::has_broken_off(env) {
            Failure::Unknown(error.into_io())
        } else {
            Failure::rolled_back(error)
        }
    })?;
    Ok(Committed { flushed: true, outcomes })
}

fn apply_all(
    environment: &Environment,
    txn: &mut WriteTxn<'_>,
    group: &mut [Request],
    outcomes: &mut [Outcome],
) -> Result<(), lmdb::Error> {
    let entries = environment.entries();
    let is_free = |request: &Request| match &request.work {
        Work::Batch(batch) => !batch.is_ordered(),
        Work::Update(_) => false,
        Work::Sync => true,
    };
    let mut start = 0;
    while start < group.len() {
        let free = group[start..].iter().take_while(|request| is_free(request)).count();
        let end = start + free;
        apply_sorted(environment, txn, &group[start..end])?;
        if let Some(Request { work, .. }) = group.get_mut(end) {
            match work {
                Work::Batch(batch) if key_exists(txn, batch, entries)? => {
                    outcomes[end] = Outcome::KeyExists;
                }
                Work::Batch(batch) => apply_in_order(txn, batch, entries)?,
                Work::Update(job) => {
                    let mut update = Update::new(environment, txn);
                    let applies = job.run(&mut update);
                    let batch = update.into_batch();
                    if applies {
                        apply_in_order(txn, &batch, entries)?;
                    }
                }
                Work::Sync => {}
            }
        }
        start = end + 1;
    }
    Ok(())
}

type Operation<'b> = (Place, &'b [u8], Change<'b>);

/// Applies batches that do not depend on each other's order but by key.
fn apply_sorted(
    environment: &Environment,
    txn: &mut WriteTxn<'_>,
    group: &[Request],
) -> Result<(), lmdb::Error> {
    let entries = environment.entries();
    let batches = group.iter().filter_map(|request| match &request.work {
        Work::Batch(batch) => Some(batch),
        Work::Update(_) | Work::Sync => None,
    });
    let mut operations: Vec<Operation<'_>> =
        batches.flat_map(|batch| batch.operations(entries)).collect();
    // A stable sort: among equal keys the order of arrival remains.
    operations.sort_by(|one, other| (one.0.table, one.1).cmp(&(other.0.table, other.1)));

    for same_table in operations.chunk_by(|one, other| one.0.table == other.0.table) {
        let Some((place, ..)) = same_table.first() else { continue };
        let mut cursor = txn.cursor_mut(place.table)?;
        if place.kind == Kind::Duplicates {
            for (place, key, change) in same_table {
                apply(&mut cursor, *place, key, &[*change], Put::Over)?;
            }
            continue;
        }
        let last = cursor.last_key()?.map(<[u8]>::to_vec);
        let mut how = Put::Over;
        let mut changes = Vec::new();
        for same_key in same_table.chunk_by(|one, other| one.1 == other.1) {
            let Some((place, key, _)) = same_key.first() else { continue };
            if how == Put::Over && last.as_deref().is_none_or(|last| *key > last) {
                how = Put::Append;
            }
            changes.clear();
            changes.extend(same_key.iter().map(|(.., change)| *change));
            apply(&mut cursor, *place, key, &changes, how)?;
        }
    }
    Ok(())
}

/// Applies one batch, operation by operation.
fn apply_in_order(
    txn: &mut WriteTxn<'_>,
    batch: &Batch,
    entries: Place,
) -> Result<(), lmdb::Error> {
    for (place, key, change) in batch.operations(entries) {
        match change {
            Change::Clear => txn.clear(place.table)?,
            change => {
                apply(&mut txn.cursor_mut(place.table)?, place, key, &[change], Put::Over)?;
            }
        }
    }
    Ok(())
}

/// Whether there is a key that the batch would make.
fn key_exists(txn: &WriteTxn<'_>, batch: &Batch, entries: Place) -> Result<bool, lmdb::Error> {
    for (place, key, change) in batch.operations(entries) {
        if matches!(change, Change::PutNew(_)) && txn.get(place.table, key)?.is_some() {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Applies the changes of one key as a single write; where a key has several values, there is one
/// change only.
fn apply(
    cursor: &mut WriteCursor<'_>,
    place: Place,
    key: &[u8],
    changes: &[Change<'_>],
    how: Put,
) -> Result<(), lmdb::Error> {
    let Some(last) = changes.last() else { return Ok(()) };
    let counted;
    let value = match *last {
        Change::Put(value) | Change::PutNew(value) if place.kind == Kind::Duplicates => {
            return cursor.put_value(key, value);
        }
        Change::Put(value) | Change::PutNew(value) => value,
        // Above all keys there are, there is nothing to delete.
        Change::Delete if how == Put::Append => return Ok(()),
        Change::Delete => return cursor.delete(key, place.kind == Kind::Duplicates).map(drop),
        Change::DeleteValue(value) => return cursor.delete_value(key, value).map(drop),
        Change::Clear => unreachable!("a batch that clears is applied in order"),
        Change::Add(_) => {
            // From the last put or delete on, or else from what is stored.
            let mut sum = 0i64;
            let mut base = None;
            for change in changes.iter().rev() {
                match change {
                    Change::Add(difference) => sum = sum.wrapping_add(*difference),
                    Change::Put(value) | Change::PutNew(value) => base = Some(counter(value)),
                    Change::Delete | Change::DeleteValue(_) | Change::Clear => base = Some(0),
                }
                if base.is_some() {
                    break;
                }
            }
            let base = match base {
                Some(base) => base,
                // A damaged counter cannot be carried on, only begun anew.
                None => cursor
                    .get(key)?
                    .and_then(|stored| place.value(key, stored).ok())
                    .map_or(0, counter),
            };
            counted = base.wrapping_add(sum).to_le_bytes();
            &counted
        }
    };
    match place.kind {
        Kind::Checked => cursor.put(key, [&record::header(key, value), value], how),
        Kind::Plain | Kind::Duplicates => cursor.put(key, [&[], value], how),
    }
}

impl Place {
    /// The value in what is stored here under the key.
    pub(crate) fn value<'r>(self, key: &[u8], stored: &'r [u8]) -> Result<&'r [u8], ReadError> {
        match self.kind {
            Kind::Checked => record::value(key, stored),
            Kind::Plain | Kind::Duplicates => Ok(stored),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Options;
    use crate::ticket::ticket;

    #[test]
    fn errors_are_sorted_by_what_can_be_done() {
        let sorted = |error| match Failure::rolled_back(error) {
            Failure::Full(_) => "full",
            Failure::TooLarge(_) => "too large",
            Failure::Failed(_) => "failed",
            Failure::BrokenOff => "broken off",
            Failure::Unknown(_) => "unknown",
        };
        let io = |kind: io::ErrorKind| sorted(lmdb::Error::Io(kind.into()));
        assert_eq!(sorted(lmdb::Error::MapFull), "full");
        assert_eq!(sorted(lmdb::Error::TxnFull), "too large");
        assert_eq!(sorted(lmdb::Error::Panic), "broken off");
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
        let counters = Counters::default();
        let mut writer = Writer {
            environment: &environment,
            counters: &counters,
            broken: true,
            wakers: Vec::new(),
        };
        let batch = Batch::new().put("key", "value");
        let (ticket, entry) = ticket(Work::Batch(batch.clone()));
        let (work, completion) = entry.begin().unwrap();
        writer.commit(&mut vec![Request { work, completion }]);
        let refused = ticket.wait();
        assert!(matches!(refused, Err(WriteError::BrokenOff(handed)) if handed == batch));
        assert_eq!(counters.commits.load(Ordering::Relaxed), 0);
    }
}
