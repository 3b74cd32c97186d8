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
//! The writer waits for a checkpoint only if both memtables are full. Everything that needs LMDB
//! complete (a load, a commit that found no room, the end of the store) writes the memtables itself:
//! [`Environment::drain`]. The lock on the engine keeps the two apart.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::task::Waker;
use std::time::Duration;

use crate::disk::environment::Environment;
use crate::disk::format;
use crate::disk::lmdb::{self, Env, Put, Table, WriteTxn};
use crate::heap;
use crate::log::Point;
use crate::memtable::change::{Change, Operation};
use crate::memtable::{Layers, Memtable};

/// The state that the writer, the checkpoint thread and the end of the store share.
#[derive(Debug, Default)]
pub(crate) struct Checkpoints {
    state: Mutex<State>,
    changed: Condvar,
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

/// Writes all changes of a memtable, which ends at a point of the log, to LMDB: in transactions of bounded
/// size, or in a single one. Calls `committed` after each transaction but the last.
pub(crate) fn write(
    env: &Env,
    format: Table,
    memtable: Arc<Memtable>,
    at: Point,
    is_bounded: bool,
    committed: impl Fn(),
) -> Result<(), lmdb::Error> {
    let max = if is_bounded { (env.platform().txn_changes, TXN_BYTES) } else { UNBOUNDED };
    let mut left = max;
    let tables: Vec<Table> = memtable.tables().collect();
    let layers = Layers { memtables: Arc::new([memtable]), after: 0, upto: u64::MAX };
    let mut txn = env.begin_write()?;
    for table in tables {
        let mut walk = layers.walk(table);
        walk.go_first();
        if walk.is_cleared() {
            txn.clear(table)?;
        }
        while apply(&mut txn, table, || walk.step(), &mut left)? {
            txn.commit()?;
            committed();
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
