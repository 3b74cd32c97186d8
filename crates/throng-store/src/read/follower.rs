//! [`Follower`]: the view of a process that reads beside a process that writes.
//!
//! ```text
//! LMDB as the process that writes left it at its last checkpoint        log
//! │ applied position │ ◀── transaction ──▶ memtables ◀── records up to the mark
//! ```
//!
//! Each new snapshot begins a transaction first, and then reads the log up to the mark. The mark includes
//! every change that the transaction may have, perhaps a part of an unfinished checkpoint. Changes up to
//! the applied position of the transaction do not count, because a bulk load may have overwritten them.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use crate::ReadError;
use crate::disk::format;
use crate::disk::lmdb::ReadTxn;
use crate::log::{Access, Location, Replay, ReplayError};
use crate::memtable::{Layers, Memtable};
use crate::table::Table;

/// The log's changes since the last checkpoint, in a process that reads; see the file's head.
#[derive(Debug)]
pub(crate) struct Follower {
    location: Location,
    format: Table,
    tables: usize,
    /// Size at which a memtable is followed by another, so that they can be dropped one by one.
    memtable_bytes: usize,
    /// The position in the log; `None` before the first use, and after the log has changed too much.
    replay: Option<Replay>,
    memtables: Arc<[Arc<Memtable>]>,
}

/// Number of attempts to find the log and LMDB in a state that fit, and of those beside no process that
/// writes, which may begin or end meanwhile.
const ATTEMPTS: u32 = 50;
const ATTEMPTS_ALONE: u32 = 5;
const PAUSE: Duration = Duration::from_millis(2);

impl Follower {
    pub(crate) fn new(
        location: Location,
        format: Table,
        tables: usize,
        memtable_bytes: usize,
    ) -> Follower {
        let memtables = Arc::default();
        Follower { location, format, tables, memtable_bytes, replay: None, memtables }
    }

    /// Begins to read: returns a transaction that `begin` begins, and the layers over it. Where no process
    /// `is_written` to the log, it counts up to its end, and whatever keeps it from being recovered is an
    /// error: up to its mark, which may be too low, it would show a part of what is acknowledged.
    pub(crate) fn begin(
        &mut self,
        begin: impl Fn() -> Result<ReadTxn, ReadError>,
        is_written: impl Fn() -> io::Result<bool>,
    ) -> Result<(ReadTxn, Layers), ReadError> {
        let (mut damage, mut alone) = (None, 0);
        for _ in 0..ATTEMPTS {
            let txn = begin()?;
            let applied = format::applied(&txn, self.format).map_err(ReadError::from_engine)?;
            let mut is_alone = false;
            let followed = match &mut self.replay {
                Some(_) => Ok(()),
                empty => {
                    is_alone = !is_written().map_err(ReadError::Io)?;
                    let access = if is_alone { Access::ReadAll } else { Access::Read };
                    Replay::open(&self.location, applied, access)
                        .map(|replay| {
                            *empty = Some(replay);
                            self.memtables = Arc::default();
                        })
                        .map_err(ReplayError::Damage)
                }
            };
            match followed.and_then(|()| self.follow(applied.position)) {
                Ok(position) => {
                    let memtables = self.memtables.clone();
                    let upto = position.max(applied.position);
                    return Ok((txn, Layers { memtables, after: applied.position, upto }));
                }
                Err(error) => {
                    self.replay = None;
                    alone += u32::from(is_alone);
                    if is_alone && alone == ATTEMPTS_ALONE {
                        return Err(ReadError::from_damage(error.into_damage()));
                    }
                    damage = Some(error);
                }
            }
            // The process that writes has gone on meanwhile: a later transaction fits.
            drop(txn);
            std::thread::sleep(PAUSE);
        }
        Err(match damage {
            Some(ReplayError::Damage(damage)) => ReadError::from_damage(damage),
            _ => ReadError::Io(io::Error::other("the log goes on faster than it can be read")),
        })
    }

    pub(crate) fn memtables(&self) -> &Arc<[Arc<Memtable>]> {
        &self.memtables
    }

    /// Reads the log up to the mark, and returns the position.
    fn follow(&mut self, applied: u64) -> Result<u64, ReplayError> {
        let Some(replay) = &mut self.replay else { return Ok(applied) };
        if self.memtables.iter().any(|memtable| memtable.last() <= applied) {
            let newer = self.memtables.iter().filter(|memtable| memtable.last() > applied);
            self.memtables = newer.cloned().collect();
        }
        while let Some(record) = replay.next(applied)? {
            if record.first + u64::from(record.count) <= applied + 1 {
                continue;
            }
            let is_full = |newest: &Arc<Memtable>| newest.bytes() >= self.memtable_bytes;
            if self.memtables.first().is_none_or(is_full) {
                let newest = Arc::new(Memtable::new(self.tables, 0));
                let older = self.memtables.iter().cloned();
                self.memtables = std::iter::once(newest).chain(older).collect();
            }
            self.memtables[0].add(record.first, record.changes.into());
        }
        Ok(replay.point().position)
    }
}
