//! [`Commit`]: the commit of a group: into the log, then into memory, then visible.
//!
//! ```text
//! plan ──▶ room in memory, in LMDB? ──yes──▶ log.append ──▶ memtable ──▶ publish
//!                    │ no                        │ no room on the disk
//!                    └──────▶ drain ──▶ LMDB ◀───┘              one transaction, no record
//! ```
//!
//! An acknowledged change cannot be refused later. So a group goes to the log only if LMDB will have room
//! for everything in memory, by an estimate that is too high; otherwise LMDB takes the group at once, and
//! decides itself.

use std::sync::MutexGuard;
use std::time::{Duration, Instant};
use std::{io, mem};

use crate::disk::environment::Environment;
use crate::disk::lmdb;
use crate::error::is_lack_of_room;
use crate::log::{AppendError, Log};
use crate::memtable::Memtable;
use crate::memtable::change::Changes;
use crate::write::sequencer::Stamp;

/// A commit in progress, which excludes all others, loads, and new databases.
#[derive(Debug)]
pub(crate) struct Commit<'e> {
    environment: &'e Environment,
    log: MutexGuard<'e, Log>,
}

#[derive(Debug)]
pub(crate) enum Failure {
    /// No room in the map or on the disk. Nothing was written.
    Full(io::Error),
    /// No room in the map or on the disk for what is in memory already. Nothing was written.
    Clogged(io::Error),
    /// Too much for one record or transaction. Nothing was written.
    TooLarge(io::Error),
    /// Any other reason for which nothing was written.
    Failed(io::Error),
    /// The log or the engine refuses work until it has recovered. Nothing was written.
    Recovering,
    /// The record or the transaction may be on the disk.
    Unknown(io::Error),
}

const GROUP_BYTES_MAX: usize = 1 << 30;

impl<'e> Commit<'e> {
    pub(crate) fn begin(environment: &'e Environment) -> Result<Commit<'e>, Failure> {
        let log = environment.log().ok_or(Failure::Recovering)?;
        if log.is_broken() || environment.engine().is_broken() {
            return Err(Failure::Recovering);
        }
        Ok(Commit { environment, log })
    }

    pub(crate) fn first(&self) -> u64 {
        self.log.point().position + 1
    }

    /// Commits the group's changes, and returns the time that the disk took. If the group `makes_room`, it may use
    /// the room that is kept for deletions.
    pub(crate) fn finish(
        mut self,
        changes: Changes,
        makes_room: bool,
    ) -> Result<Duration, Failure> {
        let count = changes.count();
        if count == 0 {
            return Ok(Duration::ZERO);
        }
        let mut chunks = changes.into_chunks();
        if chunks.iter().map(|chunk| chunk.len()).sum::<usize>() > GROUP_BYTES_MAX {
            return Err(Failure::TooLarge(io::ErrorKind::FileTooLarge.into()));
        }
        if !makes_room {
            self.environment.holds_reserve();
            return self.commit(&mut chunks, count, makes_room);
        }
        match self.commit(&mut chunks, count, makes_room) {
            Err(Failure::Full(_) | Failure::Clogged(_)) if self.environment.release_reserve() => {
                self.commit(&mut chunks, count, makes_room)
            }
            outcome => outcome,
        }
    }

    /// Commits the chunks of a group, and takes them. The chunks of a group that `makes_room` stay if they are not
    /// stored, so that the writer can try again.
    fn commit(
        &mut self,
        chunks: &mut Vec<Box<[u8]>>,
        count: u32,
        makes_room: bool,
    ) -> Result<Duration, Failure> {
        let bytes = chunks.iter().map(|chunk| chunk.len()).sum();
        self.make_room()?;
        if let Some(env) = self.environment.env() {
            env.check().map_err(Failure::Failed)?;
        }
        if self.environment.has_room(bytes, count as usize) {
            let first = self.first();
            match self.log.append(chunks, count) {
                Ok(flush) => {
                    self.environment.view().memtables()[0].add_all(first, mem::take(chunks));
                    self.environment.readers().publish(self.log.point().position);
                    return Ok(flush);
                }
                Err(AppendError::Unknown(error)) => return Err(Failure::Unknown(error)),
                // LMDB may have room in free pages.
                Err(AppendError::Refused(error)) if is_lack_of_room(&error) => {}
                Err(AppendError::Refused(error)) => return Err(Failure::Failed(error)),
            }
        }
        self.drain()?;
        if !makes_room {
            let keeps = self.environment.keeps_reserve(bytes, count as usize);
            if !keeps.map_err(|error| Failure::of_engine(self.environment, error))? {
                return Err(Failure::Full(io::ErrorKind::StorageFull.into()));
            }
        }
        // A group that makes room may be tried again.
        let chunks = if makes_room { chunks.clone() } else { mem::take(chunks) };
        self.finish_in_engine(chunks, count)
    }

    /// Begins a checkpoint if it is due. While the last one is not done, keeps pace with it.
    pub(super) fn make_room(&mut self) -> Result<(), Failure> {
        let environment = self.environment;
        let memtables = environment.view().memtables();
        let active = &memtables[0];
        let full = active.bytes() as f64 / environment.checkpoint_bytes() as f64;
        let is_free = || environment.view().frozen().is_none();
        // The thread that reopens the engine needs the log, which this commit holds.
        let is_hopeless = || environment.engine().is_broken();
        if memtables.len() > 1 && environment.has_threads() {
            environment.checkpoints().keep_pace(full, || is_free() || is_hopeless());
        }
        if active.changes() == 0 || full < 1.0 && !active.is_tiresome() {
            return Ok(());
        }
        if !is_free() {
            if full < 1.0 {
                return Ok(());
            }
            let is_done = match environment.has_threads() {
                true => environment.checkpoints().wait(is_free, is_hopeless),
                false => environment.checkpoint().is_ok(),
            };
            if !is_done {
                // The checkpoint failed: another attempt has the reason.
                return self.drain();
            }
        }
        environment.freeze(&self.log);
        Ok(())
    }

    /// Checks that LMDB will have room for these changes, which are not in memory yet, beside all that is.
    pub(super) fn check_room(&self, bytes: usize, count: usize) -> Result<(), Failure> {
        if self.environment.has_room(bytes, count) {
            return Ok(());
        }
        self.drain()?;
        let keeps = self.environment.keeps_reserve(bytes, count);
        match keeps.map_err(|error| Failure::of_engine(self.environment, error))? {
            true => Ok(()),
            false => Err(Failure::Full(io::ErrorKind::StorageFull.into())),
        }
    }

    /// Moves a copy up to a position, at a state of the shared log.
    pub(super) fn advance(&mut self, position: u64, stamp: Stamp) {
        self.log.advance(position, stamp);
    }

    fn drain(&self) -> Result<(), Failure> {
        self.environment.drain(&self.log).map_err(|error| {
            match Failure::of_engine(self.environment, error) {
                Failure::Full(error) | Failure::TooLarge(error) => Failure::Clogged(error),
                other => other,
            }
        })
    }

    /// Commits the group in LMDB, which has everything that is in memory.
    fn finish_in_engine(
        &mut self,
        chunks: Vec<Box<[u8]>>,
        count: u32,
    ) -> Result<Duration, Failure> {
        let environment = self.environment;
        let memtable = Memtable::new(environment.readers().tables_max(), 0);
        memtable.add_all(self.first(), chunks);
        let began = Instant::now();
        match environment.write_at_once(&mut self.log, memtable, count) {
            Ok(()) => Ok(began.elapsed()),
            // LMDB rolls a failed commit back, unless the failure hit the meta page.
            Err(error) if environment.engine().is_broken() => {
                Err(Failure::Unknown(error.into_io()))
            }
            Err(error) => Err(Failure::of_engine(environment, error)),
        }
    }
}

/// `EIO`, which is 5 on every Unix.
const SHORT_WRITE: i32 = 5;
/// Free room on the disk below which a partial write is taken for a full disk: more than a transaction of a
/// checkpoint takes.
const SHORT_WRITE_ROOM: u64 = 64 << 20;

impl Failure {
    /// Classifies an error of the engine after which nothing was written.
    pub(crate) fn of_engine(environment: &Environment, error: lmdb::Error) -> Failure {
        let error = match error {
            lmdb::Error::TxnFull => return Failure::TooLarge(error.into_io()),
            lmdb::Error::Panic => return Failure::Recovering,
            error => error.into_io(),
        };
        // LMDB reports a partial write as an error of the disk.
        if error.raw_os_error() == Some(SHORT_WRITE)
            && environment.engine().lacks_room(SHORT_WRITE_ROOM)
        {
            return Failure::Full(io::ErrorKind::StorageFull.into());
        }
        if is_lack_of_room(&error) { Failure::Full(error) } else { Failure::Failed(error) }
    }
}
