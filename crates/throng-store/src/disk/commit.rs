//! [`Commit`]: a commit under way, in the journal group by group and in LMDB at its end.

use std::sync::{Arc, MutexGuard};
use std::time::Duration;

use crate::disk::environment::Environment;
use crate::disk::journal::{Failed, Journal, Log, ReaderGate, Recorded};
use crate::disk::lmdb::{self, Env, Table, WriteTxn};

/// A commit under way, which excludes all others: in the journal by parts, in the engine at its
/// end, or not at all if it is dropped before.
#[derive(Debug)]
pub(crate) struct Commit<'e> {
    pub(super) environment: &'e Environment,
    pub(super) env: &'e Arc<Env>,
    pub(super) txn: WriteTxn<'e>,
    /// What it changes: through here alone the transaction is written to.
    pub(crate) log: Log,
    pub(super) last: Option<Recorded>,
    /// Closed to readers of other processes if callers are acknowledged before the end: then the
    /// records stay, whatever the engine reports.
    pub(super) reader_gate: Option<ReaderGate>,
    /// Dropped last.
    pub(super) journal: MutexGuard<'e, Option<Journal>>,
}

impl<'e> Commit<'e> {
    /// The transaction, to read in it, with everything applied.
    pub(crate) fn txn(&mut self) -> Result<&WriteTxn<'e>, lmdb::Error> {
        self.log.apply(&mut self.txn)?;
        Ok(&self.txn)
    }

    /// The same, without the changes planned since that was last asked for.
    pub(crate) fn applied(&self) -> &WriteTxn<'e> {
        &self.txn
    }

    /// Removes all keys of the table.
    pub(crate) fn clear(&mut self, table: Table) -> Result<(), lmdb::Error> {
        self.log.clear(table, &mut self.txn)
    }

    /// Makes what was changed since the last record as durable as the environment is: its owners
    /// may be told from then on. Returns how long the disk took.
    pub(crate) fn record(&mut self) -> Result<Duration, Failed> {
        let journal = self.journal.as_mut().ok_or(Failed::Recovering)?;
        let name = |table| self.environment.stored_name(table);
        let Some(recorded) = journal.record(self.env, &self.log, name)? else {
            return Ok(Duration::ZERO);
        };
        self.log.recorded();
        Ok(self.last.insert(recorded).flush)
    }

    /// Whether the owners of what will be recorded may be told of it before the end: not where
    /// another process reads, which may hear of it as well.
    pub(crate) fn may_acknowledge(&mut self) -> bool {
        self.reader_gate = self.journal.as_ref().and_then(Journal::close_reader_gate);
        self.reader_gate.is_some()
    }

    /// Ends it. On an error, the record is taken back; where its owners were told, the engine is to
    /// be opened anew, to which it is applied then.
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
