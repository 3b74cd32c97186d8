//! [`Commit`]: a commit in progress, in the journal group by group and in LMDB at its end.

use std::sync::{Arc, MutexGuard};
use std::time::Duration;

use crate::disk::environment::Environment;
use crate::disk::journal::{Failed, Journal, Log, ReaderGate, Recorded};
use crate::disk::lmdb::{self, Env, Table, WriteTxn};

/// A commit in progress, which excludes all others. Its groups are recorded in the journal one by
/// one, and committed in LMDB at its end; dropping it earlier rolls it back.
#[derive(Debug)]
pub(crate) struct Commit<'e> {
    pub(super) environment: &'e Environment,
    pub(super) env: &'e Arc<Env>,
    pub(super) txn: WriteTxn<'e>,
    /// Changes of the commit. All writes to the transaction go through this log.
    pub(crate) log: Log,
    pub(super) last: Option<Recorded>,
    /// Closed to readers of other processes if callers are acknowledged before the end: then the
    /// records stay, whatever the engine reports.
    pub(super) reader_gate: Option<ReaderGate>,
    /// Lock on the journal, dropped last.
    pub(super) journal: MutexGuard<'e, Option<Journal>>,
}

impl<'e> Commit<'e> {
    /// Applies all planned changes, and returns the transaction for reading.
    pub(crate) fn txn(&mut self) -> Result<&WriteTxn<'e>, lmdb::Error> {
        self.log.apply(&mut self.txn)?;
        Ok(&self.txn)
    }

    /// Returns the transaction without the changes planned since the last call of
    /// [`txn`](Commit::txn).
    pub(crate) fn applied(&self) -> &WriteTxn<'e> {
        &self.txn
    }

    /// Removes all keys of the table.
    pub(crate) fn clear(&mut self, table: Table) -> Result<(), lmdb::Error> {
        self.log.clear(table, &mut self.txn)
    }

    /// Makes the changes since the last record as durable as the environment is. Their callers may
    /// be acknowledged from then on. Returns the time that the disk took.
    pub(crate) fn record(&mut self) -> Result<Duration, Failed> {
        let journal = self.journal.as_mut().ok_or(Failed::Recovering)?;
        let name = |table| self.environment.stored_name(table);
        let Some(recorded) = journal.record(self.env, &self.log, name)? else {
            return Ok(Duration::ZERO);
        };
        self.log.recorded();
        Ok(self.last.insert(recorded).flush)
    }

    /// Closes the reader gate, so that callers may be acknowledged before the end. Returns `false`
    /// if another process reads, which could learn of the writes and not see them.
    pub(crate) fn may_acknowledge(&mut self) -> bool {
        self.reader_gate = self.journal.as_ref().and_then(Journal::close_reader_gate);
        self.reader_gate.is_some()
    }

    /// Commits in LMDB. On an error the last record is taken back; if its callers were
    /// acknowledged, the record stays, and the reopened engine applies it.
    pub(crate) fn end(mut self) -> Result<(), Failed> {
        let applied = self.log.apply(&mut self.txn);
        let journal = self.journal.as_mut().ok_or(Failed::Recovering)?;
        match (applied.and_then(|()| self.txn.commit()), &self.last) {
            (Ok(()), _) => {
                journal.keep_log(self.log);
                journal.committed(self.env);
                Ok(())
            }
            (Err(_), _) if self.reader_gate.is_some() => Err(Failed::Recovering),
            (Err(error), None) => Err(Failed::Engine(error)),
            (Err(error), Some(last)) => {
                journal.take_back(last).map_err(Failed::Unknown)?;
                Err(Failed::Engine(error))
            }
        }
    }
}
