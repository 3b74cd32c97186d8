//! [`Writing`]: what the requests of a group come to, as final changes in the log of a commit.
//!
//! Batches that do not look at what there is are laid down in key order, as if they were one; the
//! last operation of a key wins. A batch that does, or that empties a database, and an update come
//! between those before and those after them.
//!
//! Only what looks at the store has everything before it applied; the rest may be applied later, when
//! its owners have been told.

use crate::database::{Kind, TableRef};
use crate::disk::environment::{Commit, Environment};
use crate::disk::lmdb;
use crate::disk::record;
use crate::write::batch::{Change, counter};
use crate::write::queue::Request;
use crate::write::ticket::Work;
use crate::write::update::Update;
use crate::{Batch, ReadError};

/// What became of one request in a group that was committed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    Applied,
    /// Left out, because a key is there.
    KeyExists,
}

/// See the module.
pub(crate) struct Writing<'w, 'e> {
    environment: &'w Environment,
    commit: &'w mut Commit<'e>,
}

type Operation<'b> = (TableRef, &'b [u8], Change<'b>);

impl<'w, 'e> Writing<'w, 'e> {
    pub(crate) fn of(environment: &'w Environment, commit: &'w mut Commit<'e>) -> Writing<'w, 'e> {
        Writing { environment, commit }
    }

    /// Lays down what the group changes, and what became of each request.
    pub(crate) fn lay_down(
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
            self.sorted(&group[start..end])?;
            if let Some(Request { work, .. }) = group.get_mut(end) {
                match work {
                    Work::Batch(batch) if self.key_exists(batch)? => {
                        outcomes[end] = Outcome::KeyExists;
                    }
                    Work::Batch(batch) => self.in_order(batch)?,
                    Work::Update(job) => {
                        let mut update = Update::new(self.environment, self.commit.txn()?);
                        let applies = job.run(&mut update);
                        let batch = update.into_batch();
                        if applies {
                            self.in_order(&batch)?;
                        }
                    }
                    Work::Sync => {}
                }
            }
            start = end + 1;
        }
        Ok(())
    }

    /// Of batches that do not depend on each other's order but by key.
    fn sorted(&mut self, group: &[Request]) -> Result<(), lmdb::Error> {
        let entries = self.environment.entries();
        let batches = group.iter().filter_map(Request::batch);
        let mut operations: Vec<Operation<'_>> =
            batches.flat_map(|batch| batch.operations(entries)).collect();
        // A stable sort: among equal keys the order of arrival remains.
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

    /// Of one batch, operation by operation.
    fn in_order(&mut self, batch: &Batch) -> Result<(), lmdb::Error> {
        for (table_ref, key, change) in batch.operations(self.environment.entries()) {
            if matches!(change, Change::Add(_)) {
                self.commit.txn()?;
            }
            self.put(table_ref, key, &[change])?;
        }
        Ok(())
    }

    /// Whether there is a key that the batch would make.
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

    /// The changes of one key as a single one; where a key has several values, there is one only.
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

    /// What a counter comes to, from the last put or delete on, or else from what is stored: what
    /// was laid down of this key before has been applied.
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
            // A damaged counter cannot be carried on, only begun anew.
            None => {
                let stored = self.commit.applied().get(table_ref.table, key)?;
                stored.and_then(|stored| table_ref.value(key, stored).ok()).map_or(0, counter)
            }
        };
        Ok(base.wrapping_add(sum).to_le_bytes())
    }
}

impl TableRef {
    /// The value in what is stored here under the key.
    pub(crate) fn value<'r>(self, key: &[u8], stored: &'r [u8]) -> Result<&'r [u8], ReadError> {
        match self.kind {
            Kind::Checked => record::value(key, stored),
            Kind::Plain | Kind::Duplicates => Ok(stored),
        }
    }
}
