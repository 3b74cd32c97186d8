//! [`Replay`]: reads the records of a log after a point, record by record.
//!
//! ```text
//!         applied              mark        end
//! ─ 7 ─ 8 ─│─ 9 ─ 10 ─ 11 ─ 12 ─│─ 13 ─ ✗ │      13 was written and not marked, ✗ is torn
//!          returned ───────────────────▶
//! ```
//!
//! A store that is opened for writing reads up to the first invalid record, which must be above the mark.
//! A process that reads beside another one that writes goes up to the mark, each time as far as it is then.
//!
//! A record after the mark may have been written and not flushed, or its flush may have failed. The
//! operating system may then have the record in memory and believe that the disk has it too. So the
//! record is written again before it is flushed: [`settle`](Replay::settle).

use std::io;
use std::path::Path;

use super::mark::{self, Mark, Marked};
use super::segment::{self, HEADER_BYTES, Head, Header, RECORDS_START, SECTOR_BYTES, Segment};
use super::{KEPT, Location, Point, Record};
use crate::disk::damage::{Damage, found};

/// A position in a log that is read; see the file's head.
#[derive(Debug)]
pub(crate) struct Replay {
    pub(super) location: Location,
    access: Access,
    pub(super) segment: Segment,
    /// The point after the last record read.
    pub(super) point: Point,
    pub(super) offset: u64,
    /// Older segments, each by its number and the position at which the segment after it begins.
    pub(super) older: Vec<(u64, u64)>,
    newer: Vec<Head>,
    mark: Marked,
    /// Damage after the last segment, in a salvage.
    cut: Option<Damage>,
    /// The point at which reading began, until the log is known to fit it.
    start: Option<Point>,
    /// Segments read since they were last settled: the number of each, and the offsets between which its
    /// records are above the mark.
    unsettled: Vec<(u64, u64, u64)>,
    /// Bytes of the segment from `buffer_start` on.
    buffer: Vec<u8>,
    buffer_start: u64,
}

/// Purpose of reading a log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Access {
    /// Recovery: up to the end, and then the log goes on.
    Write,
    /// Beside a process that may write: up to the mark.
    Read,
    /// The same, from kept segments, too.
    Feed,
    /// Reading where no process writes: up to the end.
    ReadAll,
    /// Restoring: up to the end, from kept segments, too. The mark may be missing.
    Kept,
    /// Salvage: the same, but damage after the point does not keep the records before it from being read.
    Salvage,
}

#[derive(Debug)]
pub(crate) enum ReplayError {
    /// The next positions have no records: LMDB got their changes at once. A reader needs LMDB's state as
    /// of these changes, or a later one. Without a process that writes, this is damage.
    Gap(Damage),
    /// The process that writes has removed what is needed: a reader must begin again at a later point.
    Behind,
    Damage(Damage),
}

const BUFFER_BYTES: u64 = 1 << 20;

impl Replay {
    /// Opens the log at the point up to which LMDB has all changes.
    pub(crate) fn open(
        location: &Location,
        applied: Point,
        access: Access,
    ) -> Result<Replay, Damage> {
        // The mark is read first: it names no segment that a later listing lacks.
        let (mark, mut cut) = match access {
            Access::Kept if !mark::exists(location) => (Marked::default(), None),
            Access::Salvage => mark::read(location)
                .map_or_else(|damage| (Marked::default(), Some(damage)), |mark| (mark, None)),
            _ => (mark::read(location)?, None),
        };
        let mut numbers = segment_numbers(location, &location.directory)?;
        if access.takes_kept() && location.exists(&location.directory.join(KEPT)) {
            // In this order: a segment that is released meanwhile is found there.
            numbers.extend(segment_numbers(location, &location.directory.join(KEPT))?);
            numbers.sort_unstable();
            numbers.dedup();
        }
        let (heads, after) = heads(location, &numbers, access, applied.position)?;
        let last = heads.last().map_or(0, |head| head.number);
        if after.is_some() {
            cut = after;
        } else if last < mark.segment {
            let missing = missing(last + 1);
            match access {
                Access::Salvage => cut = Some(missing),
                _ => return Err(missing),
            }
        }
        let at = heads.iter().rposition(|head| head.begin.position <= applied.position);
        let first = || numbers.first().map_or(1, |first| first.saturating_sub(1));
        let Some(at) = at else { return Err(cut.unwrap_or_else(|| missing(first()))) };
        let older = heads.windows(2).take(at);
        let older = older.map(|pair| (pair[0].number, pair[1].begin.position)).collect();
        let segment = open(location, heads[at].number, access)?;
        Ok(Replay {
            location: location.clone(),
            access,
            point: heads[at].begin,
            offset: RECORDS_START,
            older,
            newer: heads[at + 1..].to_vec(),
            mark,
            cut,
            start: Some(applied),
            unsettled: vec![(segment.head().number, 0, 0)],
            segment,
            buffer: Vec::new(),
            buffer_start: 0,
        })
    }

    /// Returns a replay that goes on from here by itself, in a recovery. It settles only what it reads.
    pub(crate) fn fork(&self) -> Result<Replay, Damage> {
        debug_assert!(self.access == Access::Write && self.cut.is_none(), "a salvage reads once");
        Ok(Replay {
            location: self.location.clone(),
            segment: self.segment.reopen(),
            older: self.older.clone(),
            newer: self.newer.clone(),
            cut: None,
            unsettled: vec![(self.segment.head().number, 0, 0)],
            buffer: Vec::new(),
            ..*self
        })
    }

    /// The point after the last record read.
    pub(crate) fn point(&self) -> Point {
        self.point
    }

    /// Reads the next record; `None` at the end. Positions up to `applied` may be missing, because LMDB has
    /// their changes.
    pub(crate) fn next(&mut self, applied: u64) -> Result<Option<Record<'_>>, ReplayError> {
        let header = loop {
            if let Some(newer) = self.newer.first().copied() {
                let begin = newer.begin;
                let is_there = self.point.position == begin.position
                    || self.point.position < begin.position && begin.position <= applied;
                if is_there && self.point.chain == begin.chain {
                    self.point = begin;
                    self.go_to(newer)?;
                    continue;
                }
                if self.point.position >= begin.position {
                    return Err(self.damaged("does not follow the segment before it", newer.number));
                }
                if self.point.chain == begin.chain {
                    return Err(self.gap());
                }
            } else if self.access.is_beside_a_writer()
                && self.point.position >= self.mark.point.position
            {
                if !self.read_mark()? {
                    return Ok(None);
                }
                continue;
            }
            let Some((header, chain)) = self.read_record()? else {
                if self.find_start()? {
                    continue;
                }
                break None;
            };
            let last = header.first + u64::from(header.count) - 1;
            let is_next = header.first == self.point.position + 1
                || header.first > self.point.position && header.first <= applied + 1;
            if !is_next {
                return Err(self.gap());
            }
            let marked = self.mark.point;
            if last == marked.position && chain != marked.chain {
                return Err(
                    self.damaged("is not the segment of the mark", self.segment.head().number)
                );
            }
            if let Some(start) = self.start
                && last > start.position
            {
                self.check_start(start, header.first > start.position)?;
            }
            let end = self.offset + record_bytes(header);
            if last > self.mark.point.position
                && let Some((_, from, to)) = self.unsettled.last_mut()
            {
                *from = if *from == 0 { self.offset } else { *from };
                *to = end;
            }
            let offset = self.offset;
            (self.offset, self.point) = (end, Point { position: last, chain });
            if self.start.is_none() {
                break Some((header, offset));
            }
        };
        let Some((header, offset)) = header else {
            self.end(applied)?;
            return Ok(None);
        };
        let start = (offset + HEADER_BYTES - self.buffer_start) as usize;
        let changes = &self.buffer[start..start + header.bytes as usize];
        let Header { first, count, time, .. } = header;
        Ok(Some(Record { first, count, time, changes }))
    }

    /// Checks that the log may end at the present point.
    fn end(&mut self, applied: u64) -> Result<(), ReplayError> {
        let number = self.segment.head().number;
        // The bytes after the end may change while the log is written.
        self.buffer.clear();
        if self.access.is_beside_a_writer() {
            return Err(ReplayError::Behind);
        }
        if !self.newer.is_empty() {
            return Err(self.damaged("is cut or damaged", number));
        }
        if let Some(cut) = self.cut.take() {
            return Err(ReplayError::Damage(cut));
        }
        if let Some(start) = self.start {
            self.check_start(start, true)?;
        }
        let mark = self.mark.point;
        let is_skipped = mark.position <= applied && mark.chain == self.point.chain;
        if mark.position > self.point.position && !is_skipped {
            return Err(self.damaged("is cut or damaged", number));
        }
        if self.access == Access::ReadAll {
            // A process may write from here on.
            self.access = Access::Read;
        }
        Ok(())
    }

    /// Checks that the log is that of LMDB's state: at the position up to which LMDB has all changes, which
    /// lies between two records, the checksums agree.
    fn check_start(&mut self, start: Point, is_between: bool) -> Result<(), ReplayError> {
        if !is_between || self.point.chain != start.chain {
            let number = self.segment.head().number;
            return Err(self.damaged("belongs to another state of the store than data.mdb", number));
        }
        self.start = None;
        Ok(())
    }

    /// Finds the first record after the point at which reading began, for a salvage, if damage before the point
    /// ends the chain of records: its checksum covers that of the record at the point.
    fn find_start(&mut self) -> Result<bool, ReplayError> {
        let (Access::Salvage, Some(start)) = (self.access, self.start) else { return Ok(false) };
        let before = (self.offset, self.point);
        self.point = start;
        while let Some(bytes) = self.fill(HEADER_BYTES)? {
            if segment::header(bytes).first == start.position + 1 && self.read_record()?.is_some() {
                self.start = None;
                return Ok(true);
            }
            self.offset += SECTOR_BYTES;
        }
        let mark = self.mark.point;
        if mark.position <= start.position && mark.chain == start.chain {
            // There is none.
            self.start = None;
        } else {
            (self.offset, self.point) = before;
        }
        Ok(false)
    }

    /// The position up to which the log goes at least, as far as is known.
    pub(crate) fn last_known(&self) -> u64 {
        self.mark.point.position
    }

    /// The position up to which the log was marked when it was opened or last read up to its mark; `None` if
    /// it is read to its end.
    pub(crate) fn marked(&self) -> Option<u64> {
        (self.access == Access::Read).then_some(self.mark.point.position)
    }

    /// Makes the records read so far as durable as the log is, and marks them, if the log is read to be
    /// written.
    pub(crate) fn settle(&mut self) -> Result<(), Damage> {
        if self.access != Access::Write {
            return Ok(());
        }
        let current = self.segment.head().number;
        let mut mark = Mark::open(&self.location)?;
        for (number, from, to) in std::mem::take(&mut self.unsettled) {
            if !self.location.is_durable {
                continue;
            }
            let older;
            let segment = match number == current {
                true => &self.segment,
                false => {
                    let path = self.location.path(number);
                    let file = (&*self.location.platform.files, &*path);
                    older = Segment::open(file, (self.location.store, number), true)?;
                    &older
                }
            };
            let mut bytes = Vec::new();
            // The padding of the last record may be cut off.
            let to = to.min(segment.length());
            for start in (from..to).step_by(BUFFER_BYTES as usize) {
                bytes.resize((to - start).min(BUFFER_BYTES) as usize, 0);
                segment.read(&mut bytes, start).map_err(Damage::Io)?;
                segment.write(&bytes, start).map_err(Damage::Io)?;
            }
            segment.flush().map_err(Damage::Io)?;
        }
        if self.location.is_durable {
            self.location.flush_names().map_err(Damage::Io)?;
        }
        if self.point.position >= self.mark.point.position {
            mark.write(current, self.offset, self.point).map_err(Damage::Io)?;
            self.mark =
                Marked { segment: current, end: self.offset, point: self.point, ..self.mark };
        }
        self.unsettled = vec![(current, 0, 0)];
        Ok(())
    }

    fn go_to(&mut self, head: Head) -> Result<(), ReplayError> {
        let segment = open(&self.location, head.number, self.access);
        let segment = segment.map_err(|damage| self.examined(damage))?;
        if *segment.head() != head {
            return Err(self.damaged("has changed", head.number));
        }
        self.older.push((self.segment.head().number, head.begin.position));
        self.newer.remove(0);
        self.segment = segment;
        self.offset = RECORDS_START;
        self.unsettled.push((head.number, 0, 0));
        self.buffer.clear();
        Ok(())
    }

    /// Reads the mark again, and the heads of segments that were begun meanwhile. Returns whether the log goes
    /// on.
    fn read_mark(&mut self) -> Result<bool, ReplayError> {
        // The bytes after the last mark may have been read before they were written.
        self.buffer.clear();
        let before = self.mark;
        self.mark = mark::read(&self.location).map_err(ReplayError::Damage)?;
        let current = self.segment.head().number;
        for number in current + 1..=self.mark.segment {
            let segment = open(&self.location, number, self.access);
            self.newer.push(*segment.map_err(|_| ReplayError::Behind)?.head());
        }
        Ok(self.mark != before && self.mark.point.position > self.point.position
            || !self.newer.is_empty())
    }

    /// Reads the record at the current offset into the buffer; `None` if it is invalid.
    fn read_record(&mut self) -> Result<Option<(Header, u32)>, ReplayError> {
        let Some(bytes) = self.fill(HEADER_BYTES)? else { return Ok(None) };
        let header = segment::header(bytes);
        let record = HEADER_BYTES + u64::from(header.bytes);
        if header.count == 0 || header.first == 0 {
            return Ok(None);
        }
        let (head, chain) = (*self.segment.head(), self.point.chain);
        let Some(bytes) = self.fill(record)? else { return Ok(None) };
        let verified = segment::verify(&head, chain, bytes);
        let is_possible = header.first.checked_add(u64::from(header.count)).is_some();
        Ok(verified.filter(|_| is_possible).map(|chain| (header, chain)))
    }

    /// Returns bytes of the segment at the current offset; `None` if it is too short.
    fn fill(&mut self, bytes: u64) -> Result<Option<&[u8]>, ReplayError> {
        let end = self.offset + bytes;
        if end > self.segment.length() {
            return Ok(None);
        }
        let buffered = self.buffer_start..self.buffer_start + self.buffer.len() as u64;
        if !(buffered.contains(&self.offset) && end <= buffered.end) {
            let wanted = bytes.max(BUFFER_BYTES).min(self.segment.length() - self.offset);
            self.buffer.resize(wanted as usize, 0);
            self.buffer_start = self.offset;
            if let Err(error) = self.segment.read(&mut self.buffer, self.offset) {
                self.buffer.clear();
                return match error.kind() {
                    // The file was cut since it was opened.
                    io::ErrorKind::UnexpectedEof => Ok(None),
                    _ => Err(ReplayError::Damage(Damage::Io(error))),
                };
            }
        }
        let start = (self.offset - self.buffer_start) as usize;
        Ok(Some(&self.buffer[start..start + bytes as usize]))
    }

    fn damaged(&self, reason: &str, number: u64) -> ReplayError {
        self.examined(self.found(reason, number))
    }

    fn gap(&self) -> ReplayError {
        ReplayError::Gap(self.found("has a gap", self.segment.head().number))
    }

    fn found(&self, reason: &str, number: u64) -> Damage {
        let at = match number == self.segment.head().number {
            true => format!(" at byte {}", self.offset),
            false => String::new(),
        };
        found(format!("log/{}{at} {reason}", segment::name(number)))
    }

    /// Beside a process that writes, a file that does not fit may have been removed or reused.
    fn examined(&self, damage: Damage) -> ReplayError {
        match damage {
            Damage::Found(_) if self.access.is_beside_a_writer() => ReplayError::Behind,
            damage => ReplayError::Damage(damage),
        }
    }
}

impl Access {
    /// Whether kept segments are read, too.
    fn takes_kept(self) -> bool {
        matches!(self, Access::Feed | Access::Kept | Access::Salvage)
    }

    /// Whether the log is read up to its mark.
    fn is_beside_a_writer(self) -> bool {
        matches!(self, Access::Read | Access::Feed)
    }
}

impl ReplayError {
    pub(crate) fn into_damage(self) -> Damage {
        match self {
            ReplayError::Behind => found("its log goes on faster than it can be read"),
            ReplayError::Gap(damage) | ReplayError::Damage(damage) => damage,
        }
    }
}

fn record_bytes(header: Header) -> u64 {
    (HEADER_BYTES + u64::from(header.bytes)).next_multiple_of(SECTOR_BYTES)
}

fn missing(number: u64) -> Damage {
    found(format!("log/{} is missing", segment::name(number)))
}

/// Reads the heads of segments, which must all be there and valid. In a salvage, returns the heads of the last
/// segments in a row that begin at or before a position, and the damage after them.
fn heads(
    location: &Location,
    numbers: &[u64],
    access: Access,
    position: u64,
) -> Result<(Vec<Head>, Option<Damage>), Damage> {
    let (mut heads, mut cut) = (Vec::<Head>::new(), None);
    for number in numbers {
        let next = heads.last().map_or(*number, |before| before.number + 1);
        let is_next = if *number == next { Ok(()) } else { Err(missing(next)) };
        let head = open(location, *number, access).map(|segment| *segment.head());
        if access != Access::Salvage {
            is_next?;
            heads.push(head?);
            continue;
        }
        cut = cut.or(is_next.err());
        match head {
            Ok(head) if cut.is_some() && head.begin.position > position => break,
            Ok(head) => {
                if cut.take().is_some() {
                    heads.clear();
                }
                heads.push(head);
            }
            Err(damage) => cut = cut.or(Some(damage)),
        }
    }
    Ok((heads, cut))
}

fn open(location: &Location, number: u64, access: Access) -> Result<Segment, Damage> {
    let path = location.path(number);
    let files = &*location.platform.files;
    let opened = Segment::open((files, &path), (location.store, number), access == Access::Write);
    // Asked afterwards, because the segment may have been released meanwhile.
    if access.takes_kept() && opened.is_err() && !location.exists(&path) {
        let path = location.directory.join(KEPT).join(segment::name(number));
        return Segment::open((files, &path), (location.store, number), false);
    }
    opened
}

/// Returns the numbers of the segments in a directory, in order. Other files are left alone.
fn segment_numbers(location: &Location, directory: &Path) -> Result<Vec<u64>, Damage> {
    let names = location.platform.files.list(directory).map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => found("log is missing"),
        _ => Damage::Io(error),
    })?;
    let mut numbers: Vec<u64> = names.iter().filter_map(|name| segment::number(name)).collect();
    numbers.sort_unstable();
    Ok(numbers)
}
