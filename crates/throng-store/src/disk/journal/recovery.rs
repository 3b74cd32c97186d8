//! [`Recovery`]: replays the journal of a store that was not closed, and keeps other processes out
//! meanwhile.

use std::fs::{File, OpenOptions, TryLockError};
use std::io;
use std::path::Path;
use std::sync::Arc;

use super::NAMES;
use super::files::{self, Content, Head};
use super::log::{self, Unfit};
use crate::disk::lmdb::{self, Env, Table};
use crate::disk::pages::{Damage, Metas, found};

/// The journal's files while a store is opened, with the locks that keep processes apart.
///
/// A writer locks the first file *before* it claims the directory, until it has recovered. A reader
/// shares that lock while it checks whether a recovery is needed, and finds either no writer, or a
/// writer that has recovered. From then on the reader shares a lock on the second file. So a writer
/// that gets that lock exclusively knows that no process reads. A writer that does not get it knows
/// that readers were there first, and so that the system has not gone down since: then the data
/// file need not be restored, and must not be, because those processes read it.
///
/// A writer that defers acknowledged groups (see `deferred.rs`) also locks the second file
/// exclusively, so that no reader comes in before the commit; if it does not get the lock, it
/// defers nothing, because a process that reads may have learned of the writes.
#[derive(Debug)]
pub(crate) struct Recovery {
    pub(super) files: [File; 2],
    pub(super) found: Option<Found>,
}

/// Contents of a journal.
#[derive(Debug)]
pub(super) struct Found {
    /// Index of the file with the newest head.
    pub(super) at: usize,
    pub(super) head: Head,
    /// Logs of the records since that head.
    logs: Vec<Vec<u8>>,
    /// Number of the last of these records.
    pub(super) last: u64,
    /// Whether the data file shows another state than the state of the head.
    is_behind: bool,
}

impl Recovery {
    /// Locks the journal for writing, after waiting for processes that recover or inspect the
    /// store; `None` if there is no journal.
    pub(crate) fn to_write(directory: &Path) -> io::Result<Option<Recovery>> {
        let open =
            |name: &str| OpenOptions::new().read(true).write(true).open(directory.join(name));
        Recovery::enter(open, File::lock)
    }

    /// Locks the journal for reading; see [`to_write`](Recovery::to_write).
    pub(crate) fn to_read(directory: &Path) -> io::Result<Option<Recovery>> {
        Recovery::enter(|name: &str| File::open(directory.join(name)), File::lock_shared)
    }

    fn enter(
        open: impl Fn(&str) -> io::Result<File>,
        lock: impl Fn(&File) -> io::Result<()>,
    ) -> io::Result<Option<Recovery>> {
        let first = match open(NAMES[0]) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            first => first?,
        };
        lock(&first)?;
        Ok(Some(Recovery { files: [first, open(NAMES[1])?], found: None }))
    }

    /// Whether a journal exists. The caller found none before.
    pub(crate) fn exists(directory: &Path) -> bool {
        directory.join(NAMES[0]).exists()
    }

    /// Reads the journal, and checks whether it fits the data file.
    pub(crate) fn inspect(&mut self, data_file: &Path) -> Result<(), Damage> {
        let [first, second] = &mut self.files;
        let contents = [Content::read(first)?, Content::read(second)?];
        let [first, second] = contents.each_ref().map(|content| content.head.as_ref());
        let is_second = second.map(|head| head.generation) > first.map(|head| head.generation);
        let head = if is_second { second } else { first };
        let head = head.ok_or_else(|| found("its journal has no head"))?.clone();

        let records = contents.iter().map(|content| content.records(head.salt, head.number));
        let mut records: Vec<_> = records.flatten().collect();
        records.sort_by_key(|record| record.number);
        // A record that was taken back and a record with the same number are never both present.
        let mut last = head.number;
        for record in &records {
            last += 1;
            if record.number != last {
                return Err(found("a record of its journal is missing"));
            }
            if record.generation > head.generation {
                return Err(found("the newest head of its journal is missing"));
            }
        }

        let now = Metas::read(&mut File::open(data_file)?)?;
        // Since the head there were only commits.
        if now.commit_last() < head.metas.commit()? {
            return Err(found("its journal belongs to another one, or a later state of it"));
        }
        self.found = Some(Found {
            at: usize::from(is_second),
            last,
            is_behind: now != head.metas,
            head,
            logs: records.into_iter().map(|record| record.log).collect(),
        });
        Ok(())
    }

    /// Whether the data file is incomplete without the journal.
    pub(crate) fn is_needed(&self) -> bool {
        self.found.as_ref().is_some_and(|found| found.is_behind || !found.logs.is_empty())
    }

    /// Releases the journal, and returns the meta pages that the data file must have.
    pub(crate) fn into_metas(self) -> Option<Metas> {
        self.found.map(|found| found.head.metas)
    }

    /// Restores the data file to the state of the head, unless another process reads.
    pub(crate) fn put_back(&mut self, data_file: &Path) -> io::Result<()> {
        let Some(found) = &mut self.found else { return Ok(()) };
        match self.files[1].try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Ok(()),
            Err(TryLockError::Error(error)) => return Err(error),
        }
        if found.is_behind {
            let file = OpenOptions::new().write(true).open(data_file)?;
            for (number, page) in found.head.metas.pages.iter().enumerate() {
                files::write_at(&file, page, (number * found.head.metas.page_bytes) as u64)?;
            }
            found.is_behind = false;
        }
        Ok(())
    }

    /// Applies the records since the head.
    pub(crate) fn apply(
        &mut self,
        env: &Arc<Env>,
        data_file: &Path,
        table: impl Fn(&str) -> Option<Table>,
    ) -> Result<(), Damage> {
        let engine = |error: lmdb::Error| Damage::Io(error.into_io());
        let Some(newest) = &mut self.found else { return Ok(()) };
        // No page of this state may be overwritten before a head of a later state exists.
        let _pin = env.begin_read().map_err(engine)?;
        if newest.is_behind {
            // The state of the head may be overwritten already, if no process held it since the
            // crash. The changes may be applied to the current state just as well.
            env.sync().map_err(engine)?;
            let metas = Metas::read(&mut File::open(data_file)?)?;
            let generation = newest.head.generation + 1;
            let head = Head { generation, metas, ..newest.head };
            head.write(&self.files[1 - newest.at])?;
            self.files[1 - newest.at].sync_data()?;
            Head::erase(&self.files[newest.at])?;
            newest.at = 1 - newest.at;
            newest.head = head;
        }
        if newest.logs.is_empty() {
            return Ok(());
        }
        let mut txn = env.begin_write().map_err(engine)?;
        for log in &newest.logs {
            log::apply(log, &mut txn, &table).map_err(|unfit| match unfit {
                Unfit::Log => found("its journal has a record that does not fit it"),
                Unfit::Engine(error) => engine(error),
            })?;
        }
        txn.commit().map_err(engine)
    }

    /// Releases the first file, and keeps the shared lock of the second file as long as the
    /// returned file lives.
    pub(crate) fn into_reader_gate(self) -> io::Result<File> {
        let [first, second] = self.files;
        second.lock_shared()?;
        first.unlock()?;
        Ok(second)
    }
}
