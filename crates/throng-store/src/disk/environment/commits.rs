//! Commits of LMDB: of a checkpoint, and of changes that go there at once.

use std::io;
use std::sync::atomic::Ordering;
use std::sync::{Arc, MutexGuard, PoisonError, TryLockError};
use std::time::Instant;

use super::Environment;
use crate::LoadFailure;
use crate::checkpoint::write::{self, Event, UNBOUNDED};
use crate::disk::format;
use crate::disk::lmdb::{self, Env};
use crate::log::{Log, Point};
use crate::memtable::Memtable;
use crate::memtable::change::Change;
use crate::table::Table;

impl Environment {
    /// Commits changes in LMDB at once, after everything that is in memory, and gives them the next
    /// `positions` of the log. The caller's transaction stores the point.
    pub(crate) fn commit_in_engine<T>(
        &self,
        log: &mut Log,
        positions: u64,
        commit: impl FnOnce(&Env, Point) -> Result<T, lmdb::Error>,
    ) -> Result<T, lmdb::Error> {
        if log.is_broken() {
            // A record of unknown outcome would be replayed over the changes.
            return Err(lmdb::Error::Panic);
        }
        self.drain(log)?;
        let _writing = self.writing();
        let env = self.env().ok_or(lmdb::Error::Panic)?;
        let point = log.point();
        let at = Point { position: point.position + positions, ..point };
        let committed = self.examined(&env, commit(&env, at))?;
        log.skip_to(at.position);
        self.readers.publish_commit(at.position, &env);
        Ok(committed)
    }

    /// Stores changes of a table beside the writer, as durably as the store is. The changes come in the
    /// order of their sort keys.
    pub(crate) fn load(&self, table: Table, mut changes: &[u8]) -> Result<(), LoadFailure> {
        let mut log = self.log().ok_or(LoadFailure::ReadOnly)?;
        if log.stamp().is_some() {
            return Err(LoadFailure::Shared);
        }
        self.drain(&log).map_err(LoadFailure::from_engine)?;
        // The entries lie side by side, so they need no copies of pages but those of one place.
        if !self.keeps_reserve(changes.len(), 1).map_err(LoadFailure::from_engine)? {
            return Err(LoadFailure::Full(io::ErrorKind::StorageFull.into()));
        }
        let stored = self.commit_in_engine(&mut log, 1, |env, at| {
            let mut txn = env.begin_write()?;
            let next = || Change::take(&mut changes);
            write::apply(&mut txn, table, next, &mut { UNBOUNDED })?;
            format::put_applied(&mut txn, self.format, at)?;
            txn.commit()
        });
        stored.map_err(LoadFailure::from_engine)
    }

    /// Commits changes of a memtable, which are `count`, in a single transaction of LMDB.
    pub(crate) fn write_at_once(
        &self,
        log: &mut Log,
        memtable: Memtable,
        count: u32,
    ) -> Result<(), lmdb::Error> {
        self.commit_in_engine(log, count.into(), |env, at| {
            write::write(env, self.format, Arc::new(memtable), at, false, |_| {})
        })
    }

    /// Freezes the active memtable for the next checkpoint. There is no frozen memtable.
    pub(crate) fn freeze(&self, log: &Log) {
        let expected = self.view().memtables()[0].changes();
        self.view().freeze(Memtable::new(self.readers.tables_max(), expected), log.applied());
        self.ask_for_room();
        self.checkpoints.advance(0, 1);
        self.checkpoints.ask();
    }

    /// Makes the writer ask for room again before the next group.
    fn ask_for_room(&self) {
        // Relaxed: the writer may use the old answer once more.
        self.room.iter().for_each(|room| room.store(0, Ordering::Relaxed));
    }

    /// Freezes the active memtable if it has changes and no commit is in progress.
    pub(crate) fn freeze_if_free(&self) {
        let Some((log, _)) = &self.log else { return };
        let log = match log.try_lock() {
            Ok(log) => log,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => return,
        };
        if self.view().memtables()[0].changes() > 0 && self.view().frozen().is_none() {
            self.freeze(&log);
        }
    }

    /// Writes the frozen memtable to LMDB, if there is one.
    pub(crate) fn checkpoint(&self) -> Result<(), lmdb::Error> {
        let _writing = self.writing();
        let env = self.env().ok_or(lmdb::Error::Panic)?;
        self.write_frozen(&env)
    }

    /// Writes everything in memory to LMDB. The caller holds the log.
    pub(crate) fn drain(&self, log: &Log) -> Result<(), lmdb::Error> {
        let _writing = self.writing();
        let env = self.env().ok_or(lmdb::Error::Panic)?;
        self.write_frozen(&env)?;
        if self.view().memtables()[0].changes() > 0 {
            self.freeze(log);
            self.write_frozen(&env)?;
        }
        Ok(())
    }

    fn write_frozen(&self, env: &Env) -> Result<(), lmdb::Error> {
        let Some((memtable, at)) = self.view().frozen() else { return Ok(()) };
        // Readers that come meanwhile see a part of the checkpoint, and do not retain the pages that it frees.
        let report = |event| match event {
            Event::Apply { done, all } => self.checkpoints.advance(done, all),
            Event::Committed => self.readers.sweep(env),
        };
        let began = Instant::now();
        let written = write::write(env, self.format, memtable, at, true, report);
        self.ask_for_room();
        self.examined(env, written)?;
        self.checkpoints.count(began.elapsed());
        self.readers.committed(env);
        self.view().drop_frozen();
        if let Some((_, archive)) = &self.log {
            archive.release(at.point.position);
        }
        Ok(())
    }

    /// Makes the checkpoint thread reopen LMDB after an error that calls for it.
    fn examined<T>(&self, env: &Env, result: Result<T, lmdb::Error>) -> Result<T, lmdb::Error> {
        if self.engine().examine(env, &result) {
            self.checkpoints.ask();
        }
        result
    }

    pub(super) fn writing(&self) -> MutexGuard<'_, ()> {
        self.writing.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
