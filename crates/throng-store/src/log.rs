//! [`Log`]: the changes since the last checkpoint, on the disk in the order of their positions.
//!
//! ```text
//! log/0000000000000001.log │ head │ 1–4 │ 5 │ 6–9 │        older segments go when LMDB has their changes
//! log/0000000000000002.log │ head: begins after 9 │ 10–31 │ 32 │ ░░ room
//! log/mark                 │ segment 2, position 32 │      what was flushed
//! log/spare0 … spare3      │ segments for reuse │
//! log/kept/                  older segments, if they are to be kept
//! ```
//!
//! A record has the changes of a group. Its checksum covers the checksum of the record before it, so a
//! record fits in one place of one log only. After a flush the mark says how far the log goes. The mark
//! lies in a file of its own, where a log that is cut cannot take it along, and it is never flushed: it is
//! exact after a crash of the process, and may be too low after a power failure.
//!
//! Invariants:
//! - Positions rise by one from change to change, except where LMDB got changes without a record.
//! - A record that is invalid and not above the mark is damage. Above the mark it is a torn record, and
//!   the end of the log.
//! - A record that was refused is never read again. If its write failed, it is erased. If its flush failed,
//!   nothing in its segment can be believed from there on: the next segment begins before it, and
//!   *supersedes* it.
//! - A durable log has flushed a segment before another follows it.

pub(crate) mod files;
#[cfg(feature = "fuzzing")]
pub(crate) mod fuzzing;
mod mark;
mod replay;
mod segment;
#[cfg(test)]
mod tests;

use std::io::IoSlice;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use std::{io, iter, mem};

use crate::disk::damage::Damage;
use crate::platform::Platform;
use crate::write::sequencer::Stamp;
use files::Files;
#[cfg(test)]
pub(crate) use files::faults;
use mark::Mark;
pub(crate) use replay::{Access, Replay, ReplayError};
use segment::{Head, RECORDS_START, SECTOR_BYTES, Segment};

/// A point between two changes: the position of the change before it, and the checksum of the last record
/// up to there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Point {
    pub(crate) position: u64,
    pub(crate) chain: u32,
}

/// The point up to which the data file has all changes, and in a copy the state of the shared log there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Applied {
    pub(crate) point: Point,
    pub(crate) stamp: Option<Stamp>,
}

impl From<Point> for Applied {
    fn from(point: Point) -> Applied {
        Applied { point, stamp: None }
    }
}

#[derive(Clone, Debug)]
pub(crate) struct Location {
    pub(crate) directory: PathBuf,
    pub(crate) platform: Arc<Platform>,
    pub(crate) store: u64,
    pub(crate) is_durable: bool,
    pub(crate) is_kept: bool,
}

#[derive(Debug)]
pub(crate) struct Record<'r> {
    pub(crate) first: u64,
    pub(crate) count: u32,
    /// Time of the commit, in milliseconds since 1970.
    pub(crate) time: u64,
    pub(crate) changes: &'r [u8],
}

impl Record<'_> {
    pub(crate) fn last(&self) -> u64 {
        self.first + u64::from(self.count) - 1
    }
}

#[derive(Debug)]
pub(crate) struct Log {
    location: Location,
    segment: Segment,
    point: Point,
    end: u64,
    /// Offset up to which the blocks of the segment have been written before, so that a flush there writes
    /// no metadata.
    zeroed: u64,
    mark: Mark,
    is_broken: bool,
    archive: Arc<Archive>,
    /// State of the shared log at the point, in a copy: its own log has no records.
    stamp: Option<Stamp>,
}

#[derive(Debug)]
pub(crate) enum AppendError {
    /// The record is not a part of the log, and never will be.
    Refused(io::Error),
    /// The record may be found by a recovery until the log is mended.
    Unknown(io::Error),
}

#[derive(Debug)]
pub(crate) struct Archive {
    files: Arc<dyn Files>,
    directory: PathBuf,
    is_kept: bool,
    /// Greatest length of a segment without a longer record.
    segment_bytes: u64,
    state: Mutex<Archived>,
}

#[derive(Debug, Default)]
struct Archived {
    /// Number of each older segment, and the position at which the next one begins; ascending.
    segments: Vec<(u64, u64)>,
    holds: usize,
    /// Whether the name of the segment after these may be gone after a power failure.
    is_unsettled: bool,
}

/// Keeps all segments of a log until it is dropped.
#[derive(Debug)]
pub(crate) struct Retention(Arc<Archive>);

/// Names of segments for reuse, and of one that is not complete. A checkpoint releases two or three
/// segments at a time. With one of them for reuse, a flood writes fresh files half of the time, and writes
/// zeros ahead in them: durable puts of 350 bytes are 12 % slower, volatile ones 14 %.
const SPARES: [&str; 4] = ["spare0", "spare1", "spare2", "spare3"];
const KEPT: &str = "kept";
/// Length of the first segment, and the greatest length that is planned: each is twice as long as the one
/// before, up to [`segment_bytes`].
const LENGTH_MIN: u64 = 256 << 10;
const LENGTH_MAX: u64 = 64 << 20;
/// Bytes of zeros that are written ahead of the records at a time.
const ZEROS_STEP: u64 = 1 << 20;

impl Log {
    /// Creates the log of a new store, which begins at a point, durably. The directory must not exist.
    pub(crate) fn create(location: &Location, at: Point) -> io::Result<()> {
        let files = &*location.platform.files;
        files.create_directory(&location.directory)?;
        let head = Head { store: location.store, number: 1, begin: at };
        let draft = location.directory.join(SPARES[0]);
        let segment = Segment::create((files, &draft), &head, LENGTH_MIN, true)?;
        files.rename(&draft, &location.path(1))?;
        let mark = Mark::create(location, segment.head().number, RECORDS_START, at)?;
        mark.sync()?;
        location.flush_names()
    }

    pub(crate) fn go_on(mut replay: Replay, segment_bytes: u64) -> Result<Log, Damage> {
        let files = replay.location.platform.files.clone();
        if replay.location.is_kept {
            // Its name is flushed by `settle`.
            files.create_directory(&replay.location.directory.join(KEPT)).map_err(Damage::Io)?;
        }
        replay.settle()?;
        let Replay { location, segment, point, offset, older, .. } = replay;
        let mark = Mark::open(&location)?;
        let directory = location.directory.clone();
        for (length, path) in spares(&*files, &directory) {
            if length > spare_bytes_max(segment_bytes) {
                // Of a time with larger checkpoints. If it stays, it is used once more.
                let _ = files.remove(&path);
            }
        }
        let state = Mutex::new(Archived { segments: older, ..Archived::default() });
        let is_kept = location.is_kept;
        let archive = Arc::new(Archive { files, directory, is_kept, segment_bytes, state });
        // Blocks after the end may never have been written.
        let zeroed = offset;
        let is_broken = false;
        let (end, stamp) = (offset, None);
        Ok(Log { location, segment, point, end, zeroed, mark, is_broken, archive, stamp })
    }

    pub(crate) fn point(&self) -> Point {
        self.point
    }

    /// Appends a record of encoded changes, as durably as the log is. Returns the time that the flush took.
    pub(crate) fn append(
        &mut self,
        chunks: &[Box<[u8]>],
        count: u32,
    ) -> Result<Duration, AppendError> {
        if self.is_broken {
            return Err(AppendError::Refused(io::Error::other("the log is broken")));
        }
        self.segment.check().map_err(AppendError::Refused)?;
        let changes = chunks.iter().map(|chunk| chunk.len()).sum();
        let bytes = segment::record_bytes(changes);
        if self.end + bytes > self.segment.length() {
            self.roll(bytes).map_err(AppendError::Refused)?;
        }
        let now = self.location.platform.clock.since_1970();
        let (header, chain) = segment::encode(
            (self.segment.head(), self.point),
            (count, now.as_millis() as u64),
            chunks,
            changes,
        );
        if let Err(error) = self.write(&header, chunks, bytes) {
            return Err(self.take_back(error));
        }
        let began = Instant::now();
        if self.location.is_durable
            && let Err(error) = self.segment.flush()
        {
            return Err(self.give_up(error));
        }
        let flush = began.elapsed();
        let (end, point) =
            (self.end + bytes, Point { position: self.point.position + u64::from(count), chain });
        // A record above the mark would be taken for torn if it were damaged, and no other process would
        // see it.
        if let Err(error) = self.mark.write(self.segment.head().number, end, point) {
            // A mark of a record that is not there is damage.
            return Err(match self.mark.restore() {
                Ok(()) => self.take_back(error),
                Err(_) => {
                    self.is_broken = true;
                    AppendError::Unknown(error)
                }
            });
        }
        (self.end, self.point) = (end, point);
        Ok(flush)
    }

    /// Counts positions whose changes LMDB got without a record.
    pub(crate) fn skip_to(&mut self, position: u64) {
        self.point.position = position;
    }

    /// Makes the log that of a copy, at a state of the shared log.
    pub(crate) fn stamp_at(&mut self, stamp: Stamp) {
        self.stamp = Some(stamp);
    }

    /// State of the shared log at the point; `None` if the store is no copy.
    pub(crate) fn stamp(&self) -> Option<Stamp> {
        self.stamp
    }

    pub(crate) fn applied(&self) -> Applied {
        Applied { point: self.point, stamp: self.stamp }
    }

    /// Moves the log of a copy to a position and to a state of the shared log.
    pub(crate) fn advance(&mut self, position: u64, stamp: Stamp) {
        self.skip_to(position);
        self.stamp_at(stamp);
    }

    /// Whether nothing can be appended before the log is mended.
    pub(crate) fn is_broken(&self) -> bool {
        self.is_broken
    }

    /// Makes the log accept records again after an unknown outcome.
    pub(crate) fn mend(&mut self) -> io::Result<()> {
        self.mark.restore()?;
        self.roll(0)?;
        self.is_broken = false;
        Ok(())
    }

    pub(crate) fn archive(&self) -> Arc<Archive> {
        self.archive.clone()
    }

    /// Flushes everything, also for a volatile store.
    pub(crate) fn sync(&mut self) -> io::Result<()> {
        if self.location.is_durable {
            return Ok(());
        }
        for (number, _) in &self.archive.lock().segments {
            self.location.platform.files.open(&self.location.path(*number), false)?.flush()?;
        }
        self.segment.flush()?;
        self.mark.sync()?;
        self.location.flush_names()
    }

    /// Writes a record of `bytes` bytes, the last of which are zeros, after the last one, without counting
    /// it yet.
    fn write(&mut self, header: &[u8], chunks: &[Box<[u8]>], bytes: u64) -> io::Result<()> {
        static ZEROS: [u8; ZEROS_STEP as usize] = [0; ZEROS_STEP as usize];
        let end = self.end + bytes;
        let changes = chunks.iter().map(|chunk| &**chunk);
        let mut parts: Vec<_> = iter::once(header).chain(changes).map(IoSlice::new).collect();
        let written: usize = parts.iter().map(|part| part.len()).sum();
        parts.push(IoSlice::new(&ZEROS[..bytes as usize - written]));
        self.segment.write_parts(&mut parts, self.end)?;
        if self.location.is_durable && end > self.zeroed {
            // A flush of blocks that were never written takes far longer. A fresh buffer would make each
            // later write to its memory a page fault, so the zeros are static.
            let until = (end + ZEROS_STEP).min(self.segment.length()).max(end);
            // Without the zeros the next flushes take longer.
            if self.segment.write(&ZEROS[..(until - end) as usize], end).is_ok() {
                self.zeroed = until;
            }
        }
        Ok(())
    }

    /// Erases a record whose write failed.
    fn take_back(&mut self, error: io::Error) -> AppendError {
        let mut erased = self.segment.write(&[0; SECTOR_BYTES as usize], self.end);
        if self.location.is_durable {
            erased = erased.and_then(|()| self.segment.flush());
        }
        match erased {
            Ok(()) => AppendError::Refused(error),
            Err(_) => self.give_up(error),
        }
    }

    /// Supersedes a record that may be on the disk.
    fn give_up(&mut self, error: io::Error) -> AppendError {
        match self.roll(0) {
            Ok(()) => AppendError::Refused(error),
            Err(_) => {
                self.is_broken = true;
                AppendError::Unknown(error)
            }
        }
    }

    /// Begins another segment, with room for a record of this size.
    fn roll(&mut self, record_bytes: u64) -> io::Result<()> {
        let number = self.segment.head().number + 1;
        let doubled = LENGTH_MIN << (number - 1).min(8);
        let length = doubled.min(self.archive.segment_bytes).max(RECORDS_START + record_bytes);
        let head = Head { store: self.location.store, number, begin: self.point };
        let is_durable = self.location.is_durable;
        let files = &*self.location.platform.files;
        // A directory that was put in the place of this one is another store's.
        self.segment.check_at(&self.location.path(self.segment.head().number))?;
        self.mark.check_at(&self.location.directory)?;
        // A release meanwhile would replace a spare segment.
        let mut archived = self.archive.lock();
        let [shortest, .., longest] = spares(files, &self.location.directory);
        let (segment, path, zeroed) = if longest.0 >= length {
            if is_durable {
                // A head in a file that had its old name still would look like damage.
                self.location.flush_names()?;
            }
            let segment = Segment::reuse((files, &longest.1), &head, is_durable)?;
            let zeroed = segment.length();
            (segment, longest.1, zeroed)
        } else {
            let segment = Segment::create((files, &shortest.1), &head, length, is_durable)?;
            (segment, shortest.1, RECORDS_START)
        };
        files.rename(&path, &self.location.path(number))?;
        let older = mem::replace(&mut self.segment, segment).head().number;
        archived.segments.push((older, self.point.position));
        archived.is_unsettled = is_durable;
        drop(archived);
        (self.end, self.zeroed) = (RECORDS_START, zeroed);
        if is_durable && let Err(error) = self.location.flush_names() {
            // The segment is there, and may be gone after a power failure.
            self.is_broken = true;
            return Err(error);
        }
        self.archive.lock().is_unsettled = false;
        let _ = self.mark.write(number, self.end, self.point);
        Ok(())
    }
}

impl Location {
    fn path(&self, number: u64) -> PathBuf {
        self.directory.join(segment::name(number))
    }

    fn exists(&self, path: &Path) -> bool {
        self.platform.files.exists(path).unwrap_or(false)
    }

    fn flush_names(&self) -> io::Result<()> {
        self.platform.files.flush_names(&self.directory)
    }
}

impl Archive {
    /// Releases the segments whose changes are all at or below a position: moves them to those that are kept;
    /// or removes them, but for some for reuse.
    ///
    /// The names in the directory of those that are kept may be flushed before the name of the next segment.
    pub(crate) fn release(&self, applied: u64) {
        let mut state = self.lock();
        while state.holds == 0
            && !state.is_unsettled
            && let Some((number, end)) = state.segments.first().copied()
            && end <= applied
        {
            let path = self.directory.join(segment::name(number));
            // The longest segments are the most useful ones.
            let files = &*self.files;
            let [shortest, ..] = spares(files, &self.directory);
            let length = files.length(&path).unwrap_or(0);
            let gone = if self.is_kept {
                files.rename(&path, &self.directory.join(KEPT).join(segment::name(number)))
            } else if length > shortest.0 && length <= spare_bytes_max(self.segment_bytes) {
                files.rename(&path, &shortest.1)
            } else {
                files.remove(&path)
            };
            if gone.is_err_and(|error| error.kind() != io::ErrorKind::NotFound) {
                // The next checkpoint tries again.
                return;
            }
            state.segments.remove(0);
        }
    }

    /// Keeps all segments until the returned value is dropped.
    pub(crate) fn hold(self: &Arc<Archive>) -> Retention {
        self.lock().holds += 1;
        Retention(self.clone())
    }

    fn lock(&self) -> MutexGuard<'_, Archived> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Retention {
    fn drop(&mut self) {
        self.0.lock().holds -= 1;
    }
}

/// Returns the length up to which segments grow for checkpoints of this size: two segments have the changes of
/// a checkpoint, so that those that wait for the end of one take no more room than they need.
pub(crate) fn segment_bytes(checkpoint_bytes: usize) -> u64 {
    (checkpoint_bytes as u64 / 2).clamp(LENGTH_MIN, LENGTH_MAX)
}

/// Returns the length of the longest segment that is kept for reuse. Some have a record that is longer than a
/// segment.
fn spare_bytes_max(segment_bytes: u64) -> u64 {
    2 * segment_bytes
}

/// Returns the lengths and paths of the segments for reuse, the shortest one first; 0 for one that is missing.
fn spares(files: &dyn Files, directory: &Path) -> [(u64, PathBuf); SPARES.len()] {
    let length = |path: PathBuf| (files.length(&path).unwrap_or(0), path);
    let mut spares = SPARES.map(|name| length(directory.join(name)));
    spares.sort();
    spares
}

/// Returns the point up to which a log goes at least.
pub(crate) fn marked(location: &Location) -> Result<Point, Damage> {
    mark::read(location).map(|mark| mark.point)
}

/// Returns the size of all files of a log, without kept segments, in bytes.
pub(crate) fn bytes(Location { directory, platform, .. }: &Location) -> io::Result<u64> {
    let mut bytes = 0;
    for name in platform.files.list(directory)? {
        match platform.files.length(&directory.join(name)) {
            Ok(length) => bytes += length,
            // The segment was removed meanwhile.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
    }
    Ok(bytes)
}
