//! Checkpoints: the frozen memtable is written to LMDB, on a thread of its own.
//!
//! ```text
//! writer ──▶ active ──freeze──▶ frozen ──write──▶ LMDB ──▶ release the older segments of the log
//!                                 in key order, in transactions of bounded size;
//!                                 the last one also has the point of the log
//! ```
//!
//! A crash between two transactions leaves LMDB with some changes after its point. The log has all
//! changes after the point, and each states an outcome. So a recovery that overlays them finds the same
//! state, whichever of them LMDB has already.
//!
//! The writer keeps pace with a checkpoint that is slower than the writes: once the active memtable is
//! [`BURST`] full, it fills no faster than LMDB takes the frozen one ([`Checkpoints::keep_pace`]). So the
//! writes behind it wait for milliseconds each, and not together for the rest of the checkpoint.
//!
//! Everything that needs LMDB complete (a load, a commit that found no room, the end of the store) writes
//! the memtables itself: [`Environment::drain`]. The lock on the engine keeps the two apart.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::task::Waker;
use std::thread;
use std::time::Duration;

use crate::disk::environment::Environment;
use crate::disk::format;
use crate::disk::lmdb::{self, Env, Put, Table, WriteTxn};
use crate::heap;
use crate::log::Point;
use crate::memtable::change::{Change, Operation};
use crate::memtable::{Layers, Memtable, Walk};

/// The state that the writer, the checkpoint thread and the end of the store share.
#[derive(Debug, Default)]
pub(crate) struct Checkpoints {
    state: Mutex<State>,
    changed: Condvar,
    /// Number of changes that the checkpoint in progress has applied, and of all.
    applied: [AtomicUsize; 2],
    /// Number of checkpoints that are done, and the nanoseconds that they took.
    finished: [AtomicU64; 2],
    /// Wakes the checkpoints of a simulation, which have no thread.
    stepper: OnceLock<Waker>,
}

#[derive(Debug, Default)]
struct State {
    /// Whether the thread shall look for work.
    is_asked: bool,
    /// Whether the last checkpoint failed.
    has_failed: bool,
    is_ended: bool,
}

/// Most bytes of changes in a transaction of a checkpoint.
const TXN_BYTES: usize = 4 << 20;
/// Time between two polls while the thread waits for snapshots to end, so that it can reopen the engine.
const REOPEN_INTERVAL: Duration = Duration::from_millis(20);
/// Time after which a store without writes is written to LMDB, which frees the memory and makes reads
/// cheaper; also the time between two attempts after a failure.
pub(crate) const IDLE: Duration = Duration::from_secs(1);

/// Share of the active memtable that fills at full speed while a checkpoint is in progress. A million random
/// changes of a hundred million keys are checkpointed in 15 s. Longest wait of a turn meanwhile, by this share:
///
/// | 0 | 1/4 | 1/2 | 3/4 | no pace |
/// |---|---|---|---|---|
/// | 1.3 s | 0.08 s | 0.10 s | 0.11 s | 2.7 s |
const BURST: f64 = 0.25;
/// Pause of a writer before it looks again how far the checkpoint is. The checkpoint of the table above applies
/// about 70 changes meanwhile, which is less than a group of a thousand turns in flight, so the writer is not
/// late by more than it would be with an exact wake.
const PACE: Duration = Duration::from_millis(1);

impl Checkpoints {
    /// Makes the thread look for a frozen memtable, or for an engine to reopen.
    pub(crate) fn ask(&self) {
        self.lock().is_asked = true;
        self.changed.notify_all();
        if let Some(stepper) = self.stepper.get() {
            stepper.wake_by_ref();
        }
    }

    /// Makes the writer wake the checkpoints of a simulation, by the first waker that is given.
    #[cfg(feature = "sim")]
    pub(crate) fn wakes(&self, stepper: Waker) {
        let _ = self.stepper.set(stepper);
    }

    /// Reports the outcome of a checkpoint to a writer that waits.
    pub(crate) fn report(&self, has_succeeded: bool) {
        self.lock().has_failed = !has_succeeded;
        self.changed.notify_all();
    }

    /// Waits until `is_done`, until a checkpoint fails, or until `is_hopeless`; returns whether it is
    /// done.
    pub(crate) fn wait(&self, is_done: impl Fn() -> bool, is_hopeless: impl Fn() -> bool) -> bool {
        let mut state = self.lock();
        state.has_failed = false;
        state.is_asked = true;
        self.changed.notify_all();
        loop {
            if is_done() {
                return true;
            }
            if state.has_failed || state.is_ended || is_hopeless() {
                return false;
            }
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Waits while the active memtable, of which a share is `full`, is ahead of the checkpoint in progress; until
    /// `is_over`, or until the checkpoint fails.
    pub(crate) fn keep_pace(&self, full: f64, is_over: impl Fn() -> bool) {
        let is_ahead = || full > BURST + (1.0 - BURST) * self.share_applied();
        while is_ahead() && !is_over() {
            let State { has_failed, is_ended, .. } = *self.lock();
            if has_failed || is_ended {
                return;
            }
            thread::sleep(PACE);
        }
    }

    /// Notes how many of a checkpoint's changes are applied.
    pub(crate) fn advance(&self, done: usize, all: usize) {
        // Relaxed: a share that mixes two checkpoints makes a group wait a millisecond more, or less.
        self.applied[0].store(done, Ordering::Relaxed);
        self.applied[1].store(all, Ordering::Relaxed);
    }

    /// Counts a checkpoint that is done.
    pub(crate) fn count(&self, took: Duration) {
        // Relaxed: the numbers guard no other data.
        self.finished[0].fetch_add(1, Ordering::Relaxed);
        let nanoseconds = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX);
        self.finished[1].fetch_add(nanoseconds, Ordering::Relaxed);
    }

    /// Returns the number of checkpoints that are done, and the time that they took.
    pub(crate) fn finished(&self) -> (u64, Duration) {
        // Relaxed: as in `count`.
        let [number, nanoseconds] = [0, 1].map(|at| self.finished[at].load(Ordering::Relaxed));
        (number, Duration::from_nanos(nanoseconds))
    }

    /// Share of the checkpoint in progress that is applied.
    fn share_applied(&self) -> f64 {
        let [done, all] = [0, 1].map(|index| self.applied[index].load(Ordering::Relaxed) as f64);
        done / all.max(1.0)
    }

    /// Ends the thread after the checkpoint in progress.
    pub(crate) fn end(&self) {
        self.lock().is_ended = true;
        self.changed.notify_all();
    }

    pub(crate) fn is_ended(&self) -> bool {
        self.lock().is_ended
    }

    /// Waits until the thread is asked, or for a while; returns `false` at the end.
    fn sleep(&self) -> bool {
        let state = self.lock();
        let is_idle = |state: &mut State| !state.is_asked && !state.is_ended;
        let slept = self.changed.wait_timeout_while(state, IDLE, is_idle);
        let (mut state, _) = slept.unwrap_or_else(PoisonError::into_inner);
        state.is_asked = false;
        !state.is_ended
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The checkpoints between two steps.
#[derive(Debug, Default)]
pub(crate) struct Progress {
    /// Position of the store at the last step.
    seen: u64,
    /// Whether the store was idle between the last two steps.
    is_idle: bool,
    /// Memory of the memtables that were written and not returned to the system, in bytes.
    freed: usize,
}

impl Progress {
    pub(crate) fn at(position: u64) -> Progress {
        Progress { seen: position, ..Progress::default() }
    }
}

/// Least memory that is returned to the system: the search for it stops threads that allocate for milliseconds.
const RETURNED_BYTES_MIN: usize = 16 << 20;

/// Runs on the checkpoint thread until the store ends.
pub(crate) fn run(environment: &Environment) {
    // If this thread unwinds, no writer keeps waiting.
    struct End<'e>(&'e Environment);
    impl Drop for End<'_> {
        fn drop(&mut self) {
            self.0.checkpoints().end();
        }
    }
    let _end = End(environment);
    let mut progress = Progress::at(environment.view().position());
    while environment.checkpoints().sleep() {
        step(environment, &mut progress);
        if progress.is_idle && progress.freed >= RETURNED_BYTES_MIN {
            // A store in use would need the memory again at once.
            heap::trim();
            progress.freed = 0;
        }
        if environment.is_engine_broken() {
            environment.reopen(REOPEN_INTERVAL, || !environment.checkpoints().is_ended());
        }
    }
}

/// Writes the frozen memtable to LMDB; before that, freezes the active one if the store has been idle since the
/// last step.
pub(crate) fn step(environment: &Environment, progress: &mut Progress) {
    // The writer holds its lock only while it commits, and then the store is not idle.
    let position = environment.view().position();
    progress.is_idle = position == progress.seen;
    if progress.is_idle && environment.view().frozen().is_none() {
        environment.freeze_if_free();
    }
    progress.seen = position;
    let bytes = environment.view().frozen().map_or(0, |(memtable, _)| memtable.bytes());
    let outcome = environment.checkpoint();
    if outcome.is_ok() {
        progress.freed += bytes;
    }
    environment.checkpoints().report(outcome.is_ok());
}

/// An event of [`write`].
pub(crate) enum Event {
    /// A change is applied next, after so many of `all` at most.
    Apply { done: usize, all: usize },
    /// A transaction is committed that is not the last.
    Committed,
}

/// Writes all changes of a memtable, which ends at a point of the log, to LMDB: in transactions of bounded
/// size, or in a single one. Reports to `report`.
pub(crate) fn write(
    env: &Env,
    format: Table,
    memtable: Arc<Memtable>,
    at: Point,
    is_bounded: bool,
    report: impl Fn(Event),
) -> Result<(), lmdb::Error> {
    let max = if is_bounded { (env.platform().txn_changes, TXN_BYTES) } else { UNBOUNDED };
    let mut left = max;
    let tables: Vec<Table> = memtable.tables().collect();
    let layers = Layers { memtables: Arc::new([memtable]), after: 0, upto: u64::MAX };
    let mut walks: Vec<_> = tables.iter().map(|table| layers.walk(*table)).collect();
    walks.iter_mut().for_each(Walk::go_first);
    let all = walks.iter().map(Walk::keys).sum();
    let mut done = 0;
    let mut txn = env.begin_write()?;
    for (table, mut walk) in tables.into_iter().zip(walks) {
        if walk.is_cleared() {
            txn.clear(table)?;
        }
        let mut step = || {
            report(Event::Apply { done, all });
            done += 1;
            walk.step()
        };
        while apply(&mut txn, table, &mut step, &mut left)? {
            txn.commit()?;
            report(Event::Committed);
            txn = env.begin_write()?;
            left = max;
        }
    }
    format::put_applied(&mut txn, format, at)?;
    txn.commit()
}

/// No bound on the changes of a transaction and on their bytes.
pub(crate) const UNBOUNDED: (usize, usize) = (usize::MAX, usize::MAX);

/// Applies changes of a table in the order of their sort keys, while some number of changes and of bytes is
/// `left`; returns whether a bound was reached, so that more may follow. After an error the transaction is
/// of no use.
///
/// Neighbours share pages, and keys above all existing keys fill their pages to the end.
pub(crate) fn apply<'c>(
    txn: &mut WriteTxn<'_>,
    table: Table,
    mut changes: impl FnMut() -> Option<Change<'c>>,
    left: &mut (usize, usize),
) -> Result<bool, lmdb::Error> {
    let mut cursor = txn.cursor_mut(table)?;
    let last = cursor.last_key()?.map(<[u8]>::to_vec);
    let mut is_above = last.is_none();
    while left.0 > 0 && left.1 > 0 {
        let Some(Change { operation, key, value, .. }) = changes() else { return Ok(false) };
        is_above = is_above || last.as_deref().is_some_and(|last| key > last);
        match operation {
            Operation::Put if is_above => cursor.put(key, value, Put::Append)?,
            Operation::Put | Operation::PutValue => cursor.put(key, value, Put::Over)?,
            // Above all existing keys, there is nothing to delete.
            Operation::Delete if is_above => {}
            Operation::Delete => cursor.delete(key, false)?,
            Operation::DeleteAll => cursor.delete(key, true)?,
            Operation::DeleteValue => cursor.delete_value(key, value)?,
            // The caller clears the table.
            Operation::Clear => {}
        }
        left.0 -= usize::from(!is_above);
        left.1 = left.1.saturating_sub(key.len() + value.len());
    }
    Ok(true)
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    /// Returns how often a writer looks whether the checkpoint is over, which ends at the tenth time. Before each
    /// time, a tenth of the checkpoint is applied.
    fn pauses(checkpoints: &Checkpoints, full: f64) -> usize {
        let looks = Cell::new(0);
        checkpoints.advance(0, 10);
        checkpoints.keep_pace(full, || {
            looks.set(looks.get() + 1);
            checkpoints.advance(looks.get(), 10);
            looks.get() == 10
        });
        looks.get()
    }

    #[test]
    fn a_writer_waits_while_it_is_ahead_of_the_checkpoint() {
        let checkpoints = Checkpoints::default();
        let filled = [0.0, BURST, BURST + 0.01, 0.76, 0.9, 1.0, 1.5];
        let waited = filled.map(|full| pauses(&checkpoints, full));
        assert_eq!(waited, [0, 0, 1, 7, 9, 10, 10]);
    }

    #[test]
    fn a_writer_keeps_no_pace_with_a_checkpoint_that_failed_or_ended() {
        let checkpoints = Checkpoints::default();
        checkpoints.report(false);
        assert_eq!(pauses(&checkpoints, 1.0), 1);
        checkpoints.report(true);
        assert_eq!(pauses(&checkpoints, 1.0), 10);
        checkpoints.end();
        assert_eq!(pauses(&checkpoints, 1.0), 1);
    }
}
