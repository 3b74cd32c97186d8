//! The writer thread: group commit.
//!
//! It takes everything that waits, lays the operations of all batches in key order (the last one
//! of a key wins), applies them in one transaction, flushes, and wakes the tickets. Key order
//! matters: neighbours share a leaf page, and each touched page is written once.
//!
//! When a group does not fit, it is halved until the batch that does not fit stands alone, so one
//! large batch cannot spoil the small ones that happened to be queued beside it.

use std::io::{self, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::Waker;

use heed::{MdbError, RwTxn};

use crate::batch::{Change, counter};
use crate::environment::Environment;
use crate::error::io_error;
use crate::queue::{Queue, Request};
use crate::{Batch, WriteError, record};

/// What the writer has done so far. Plain counters: nothing is ordered by them.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    pub(crate) commits: AtomicU64,
    pub(crate) batches: AtomicU64,
}

/// Runs on the writer thread until the queue is closed and drained.
pub(crate) fn run(environment: &Environment, queue: &Arc<Queue>, counters: &Counters) {
    // Should this thread ever unwind, nobody may be left waiting.
    struct Abandon<'q>(&'q Queue);
    impl Drop for Abandon<'_> {
        fn drop(&mut self) {
            drop(self.0.abandon());
        }
    }
    let _abandon = Abandon(queue);

    let mut writer = Writer { environment, queue, counters, broken: false, wakers: Vec::new() };
    let mut spare = Vec::new();
    while let Some(mut group) = queue.take(spare) {
        writer.commit(&mut group);
        spare = group;
        // Every outcome of the group is in place before any foreign code runs.
        writer.wakers.drain(..).for_each(Waker::wake);
    }
}

struct Writer<'w> {
    environment: &'w Environment,
    queue: &'w Queue,
    counters: &'w Counters,
    /// The engine has given up writing; see [`Failure::Unknown`].
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
    /// The very last step, switching to the new tree, failed half-way.
    Unknown(io::Error),
}

impl Writer<'_> {
    /// Commits the requests and leaves `group` empty, each outcome in its ticket.
    fn commit(&mut self, group: &mut Vec<Request>) {
        if self.broken {
            for Request { batch, completion } in group.drain(..) {
                self.wakers.extend(completion.complete(Err(WriteError::BrokenOff(batch))));
            }
            return;
        }
        let failure = match transact(self.environment, group) {
            Ok(flushed) => {
                self.counters.commits.fetch_add(u64::from(flushed), Ordering::Relaxed);
                self.counters.batches.fetch_add(group.len() as u64, Ordering::Relaxed);
                for Request { completion, .. } in group.drain(..) {
                    self.wakers.extend(completion.complete(Ok(())));
                }
                return;
            }
            Err(failure) => failure,
        };
        if matches!(failure, Failure::Full(_) | Failure::TooLarge(_)) && group.len() > 1 {
            let mut later = group.split_off(group.len() / 2);
            self.commit(group);
            self.commit(&mut later);
            return;
        }
        if matches!(failure, Failure::Unknown(_)) {
            self.broken = true;
            self.queue.break_off();
        }
        for Request { batch, completion } in group.drain(..) {
            let error = failure.to_error(batch);
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
            Failure::Unknown(source) => WriteError::Unknown { source: copy(source) },
        }
    }

    /// Sorts an error of the engine that was followed by a roll-back.
    fn rolled_back(error: heed::Error) -> Failure {
        let kind = match &error {
            heed::Error::Mdb(MdbError::MapFull) => io::ErrorKind::StorageFull,
            heed::Error::Mdb(MdbError::TxnFull) => {
                return Failure::TooLarge(io_error(error));
            }
            heed::Error::Io(error) => error.kind(),
            _ => io::ErrorKind::Other,
        };
        match kind {
            io::ErrorKind::StorageFull
            | io::ErrorKind::QuotaExceeded
            | io::ErrorKind::FileTooLarge => Failure::Full(io_error(error)),
            _ => Failure::Failed(io_error(error)),
        }
    }
}

/// `io::Error` cannot be cloned, and each batch of a group gets its own.
fn copy(error: &io::Error) -> io::Error {
    match error.raw_os_error() {
        Some(code) => io::Error::from_raw_os_error(code),
        None => io::Error::new(error.kind(), error.to_string()),
    }
}

/// Applies all operations of the group in one durable transaction; false if there are none.
fn transact(environment: &Environment, group: &[Request]) -> Result<bool, Failure> {
    let mut operations: Vec<_> = group.iter().flat_map(|request| request.batch.iter()).collect();
    if operations.is_empty() {
        return Ok(false);
    }
    // A stable sort: among equal keys the order of arrival remains.
    operations.sort_by_key(|(key, _)| *key);

    let mut txn = environment.begin_write().map_err(Failure::rolled_back)?;
    for same_key in operations.chunk_by(|(one, _), (other, _)| one == other) {
        apply(environment, &mut txn, same_key).map_err(Failure::rolled_back)?;
    }
    txn.commit().map_err(|error| {
        // The engine rolls a failed commit back, unless the failure hit the page that makes it
        // the current one; then it refuses all further writes, by which this case is known.
        if environment.has_broken_off() {
            Failure::Unknown(io_error(error))
        } else {
            Failure::rolled_back(error)
        }
    })?;
    Ok(true)
}

/// Applies the operations on one key, of which there is at least one, as a single write.
fn apply(
    environment: &Environment,
    txn: &mut RwTxn<'_>,
    same_key: &[(&[u8], Change<'_>)],
) -> Result<(), heed::Error> {
    let entries = environment.entries();
    let Some((key, last)) = same_key.last() else { return Ok(()) };
    let counted;
    let value = match last {
        Change::Put(value) => *value,
        Change::Delete => return entries.delete(txn, key).map(drop),
        Change::Add(_) => {
            // From the last put or delete on, or else from what is stored.
            let mut sum = 0i64;
            let mut base = None;
            for (_, change) in same_key.iter().rev() {
                match change {
                    Change::Add(difference) => sum = sum.wrapping_add(*difference),
                    Change::Put(value) => base = Some(counter(value)),
                    Change::Delete => base = Some(0),
                }
                if base.is_some() {
                    break;
                }
            }
            let base = match base {
                Some(base) => base,
                // A damaged counter cannot be carried on, only begun anew.
                None => entries
                    .get(txn, key)?
                    .and_then(|record| record::value(key, record).ok())
                    .map_or(0, counter),
            };
            counted = base.wrapping_add(sum).to_le_bytes();
            &counted
        }
    };
    entries.put_reserved(txn, key, record::HEADER_BYTES + value.len(), |space| {
        space.write_all(&record::header(key, value))?;
        space.write_all(value)
    })
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
            Failure::Unknown(_) => "unknown",
        };
        let io = |kind: io::ErrorKind| sorted(heed::Error::Io(kind.into()));
        assert_eq!(sorted(heed::Error::Mdb(MdbError::MapFull)), "full");
        assert_eq!(sorted(heed::Error::Mdb(MdbError::TxnFull)), "too large");
        assert_eq!(sorted(heed::Error::Mdb(MdbError::Corrupted)), "failed");
        assert_eq!(io(io::ErrorKind::StorageFull), "full");
        assert_eq!(io(io::ErrorKind::QuotaExceeded), "full");
        assert_eq!(io(io::ErrorKind::FileTooLarge), "full");
        assert_eq!(io(io::ErrorKind::TimedOut), "failed");
        assert_eq!(sorted(heed::Error::Io(io::Error::from_raw_os_error(5))), "failed");
    }

    #[test]
    fn after_a_broken_commit_everything_queued_is_handed_back() {
        let directory = tempfile::tempdir().unwrap();
        let environment = Environment::open(directory.path(), &Options::default()).unwrap();
        let queue = Queue::new(&Options::default());
        let counters = Counters::default();
        let mut writer = Writer {
            environment: &environment,
            queue: &queue,
            counters: &counters,
            broken: true,
            wakers: Vec::new(),
        };
        let batch = Batch::new().put("key", "value");
        let (ticket, completion) = ticket();
        writer.commit(&mut vec![Request { batch: batch.clone(), completion }]);
        let refused = ticket.wait();
        assert!(matches!(refused, Err(WriteError::BrokenOff(handed)) if handed == batch));
        assert_eq!(counters.commits.load(Ordering::Relaxed), 0);
    }
}
