//! [`ChangePlanner`]: turns the requests of a group into final changes in the log of a commit.
//!
//! Batches that do not read the store are planned together in key order, as if they were a single
//! batch; the last operation on a key wins. A batch that reads the store, a batch that empties a
//! database, and an update are planned alone, between the requests before and after them.
//!
//! Only a request that reads the store forces everything before it to be applied. All other changes
//! may be applied later, after their callers have been acknowledged.

use crate::database::{Kind, TableRef};
use crate::disk::commit::Commit;
use crate::disk::environment::Environment;
use crate::disk::lmdb;
use crate::disk::record;
use crate::write::batch::{Change, counter};
use crate::write::queue::Request;
use crate::write::ticket::Work;
use crate::write::update::Update;
use crate::{Batch, ReadError};

/// Outcome of a single request in a committed group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    Applied,
    /// Skipped because a key of a `put_new` exists.
    KeyExists,
}

/// Plans the changes of a group into the log of `commit`.
pub(crate) struct ChangePlanner<'w, 'e> {
    environment: &'w Environment,
    commit: &'w mut Commit<'e>,
}

type Operation<'b> = (TableRef, &'b [u8], Change<'b>);

impl<'w, 'e> ChangePlanner<'w, 'e> {
    pub(crate) fn new(
        environment: &'w Environment,
        commit: &'w mut Commit<'e>,
    ) -> ChangePlanner<'w, 'e> {
        ChangePlanner { environment, commit }
    }

    /// Plans the changes of the group, and stores the outcome of each request in `outcomes`.
    pub(crate) fn plan(
        &mut self,
        group: &mut [Request],
        outcomes: &mut [Outcome],
    ) -> Result<(), lmdb::Error> {
        let is_free = |request: &Request| match &request.work {
            Work::Batch(batch) => !batch.is_ordered(),
            Work::Update(_) => false,
            Work::Sync => true,
        };
        let mut start = 0;
        while start < group.len() {
            let free = group[start..].iter().take_while(|request| is_free(request)).count();
            let end = start + free;
            self.plan_sorted(&group[start..end])?;
            if let Some(Request { work, .. }) = group.get_mut(end) {
                match work {
                    Work::Batch(batch) if self.key_exists(batch)? => {
                        outcomes[end] = Outcome::KeyExists;
                    }
                    Work::Batch(batch) => self.plan_in_order(batch)?,
                    Work::Update(job) => {
                        let mut update = Update::new(self.environment, self.commit.txn()?);
                        let applies = job.run(&mut update);
                        let batch = update.into_batch();
                        if applies {
                            self.plan_in_order(&batch)?;
                        }
                    }
                    Work::Sync => {}
                }
            }
            start = end + 1;
        }
        Ok(())
    }

    /// Plans batches whose order matters only among operations on the same key.
    fn plan_sorted(&mut self, group: &[Request]) -> Result<(), lmdb::Error> {
        let entries = self.environment.entries();
        let batches = group.iter().filter_map(Request::batch);
        let mut operations: Vec<Operation<'_>> =
            batches.flat_map(|batch| batch.operations(entries)).collect();
        // A stable sort keeps the order of arrival among equal keys.
        operations.sort_by(|one, other| (one.0.table, one.1).cmp(&(other.0.table, other.1)));

        if operations.iter().any(|(.., change)| matches!(change, Change::Add(_))) {
            self.commit.txn()?;
        }
        let mut changes = Vec::new();
        for same_key in
            operations.chunk_by(|one, other| (one.0.table, one.1) == (other.0.table, other.1))
        {
            let Some((table_ref, key, _)) = same_key.first() else { continue };
            changes.clear();
            changes.extend(same_key.iter().map(|(.., change)| *change));
            if table_ref.kind == Kind::Duplicates {
                changes.iter().try_for_each(|change| self.put(*table_ref, key, &[*change]))?;
            } else {
                self.put(*table_ref, key, &changes)?;
            }
        }
        Ok(())
    }

    /// Plans a batch operation by operation.
    fn plan_in_order(&mut self, batch: &Batch) -> Result<(), lmdb::Error> {
        for (table_ref, key, change) in batch.operations(self.environment.entries()) {
            if matches!(change, Change::Add(_)) {
                self.commit.txn()?;
            }
            self.put(table_ref, key, &[change])?;
        }
        Ok(())
    }

    /// Whether a key exists that the batch would create with `put_new`.
    fn key_exists(&mut self, batch: &Batch) -> Result<bool, lmdb::Error> {
        for (table_ref, key, change) in batch.operations(self.environment.entries()) {
            if matches!(change, Change::PutNew(_))
                && self.commit.txn()?.get(table_ref.table, key)?.is_some()
            {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Plans all changes of a key as its final change. In a database with several values under a
    /// key, `changes` has a single element.
    fn put(
        &mut self,
        table_ref: TableRef,
        key: &[u8],
        changes: &[Change<'_>],
    ) -> Result<(), lmdb::Error> {
        let TableRef { table, kind } = table_ref;
        let Some(last) = changes.last() else { return Ok(()) };
        let counted;
        let value = match *last {
            Change::Put(value) | Change::PutNew(value) => value,
            Change::Delete => {
                self.commit.log.delete(table, key, kind == Kind::Duplicates);
                return Ok(());
            }
            Change::DeleteValue(value) => {
                self.commit.log.delete_value(table, key, value);
                return Ok(());
            }
            Change::Clear => return self.commit.clear(table),
            Change::Add(_) => {
                counted = self.count(table_ref, key, changes)?;
                &counted
            }
        };
        match kind {
            Kind::Checked => {
                let header = record::header(key, value);
                self.commit.log.put(table, key, [&*header, value]);
            }
            Kind::Plain => self.commit.log.put(table, key, [&[], value]),
            Kind::Duplicates => self.commit.log.put_value(table, key, value),
        }
        Ok(())
    }

    /// Returns the value of a counter: the sum since the last put or delete, or since the stored
    /// value. All changes of this key that were planned before have been applied.
    fn count(
        &mut self,
        table_ref: TableRef,
        key: &[u8],
        changes: &[Change<'_>],
    ) -> Result<[u8; 8], lmdb::Error> {
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
            // A damaged counter restarts at zero.
            None => {
                let stored = self.commit.applied().get(table_ref.table, key)?;
                stored.and_then(|stored| table_ref.value(key, stored).ok()).map_or(0, counter)
            }
        };
        Ok(base.wrapping_add(sum).to_le_bytes())
    }
}

impl TableRef {
    /// Extracts the value from the stored bytes of `key`.
    pub(crate) fn value<'r>(self, key: &[u8], stored: &'r [u8]) -> Result<&'r [u8], ReadError> {
        match self.kind {
            Kind::Checked => record::value(key, stored),
            Kind::Plain | Kind::Duplicates => Ok(stored),
        }
    }
}
