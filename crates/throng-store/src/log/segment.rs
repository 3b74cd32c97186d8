//! [`Segment`]: a file of the log, and the encoding of its records.
//!
//! | bytes     | content                                                    |
//! |-----------|------------------------------------------------------------|
//! | 0..512    | the head                                                   |
//! | 512..1024 | a copy of the head                                         |
//! | 4096..    | records, each from a multiple of 512 on                    |
//!
//! | head      |                                                            |
//! |-----------|------------------------------------------------------------|
//! | 0..8      | `throngL1`                                                 |
//! | 8..16     | id of the store                                            |
//! | 16..24    | number of the segment                                      |
//! | 24..36    | the point at which it begins: position, checksum           |
//! | 508..512  | CRC-32 of all before                                       |
//!
//! | record    |                                                            |
//! |-----------|------------------------------------------------------------|
//! | 0..4      | CRC-32 of the checksum of the record before, the id of the store, the number of the segment, and all that follows |
//! | 4..8      | length of the changes                                      |
//! | 8..16     | position of the first change                               |
//! | 16..20    | number of changes                                          |
//! | 20..24    | zeros                                                      |
//! | 24..32    | time of the commit, in milliseconds since 1970             |
//! | 32..      | the changes (see `memtable/change.rs`)                     |
//!
//! Numbers are little endian. A disk writes 512 bytes atomically, at least, so writing a record damages no
//! other record.

use std::io::{self, IoSlice};
use std::path::Path;
use std::sync::Arc;

use super::Point;
use super::files::{Files, OpenFile};
use crate::disk::damage::{Damage, found};
use crate::disk::identity::lost;

/// Size that a disk writes atomically, at least.
pub(super) const SECTOR_BYTES: u64 = 512;
pub(super) const RECORDS_START: u64 = 4096;
/// Length of a record without its changes.
pub(super) const HEADER_BYTES: u64 = 32;

const MAGIC: &[u8; 8] = b"throngL1";
const HEAD_BYTES: usize = SECTOR_BYTES as usize;
const HEAD_CRC: usize = HEAD_BYTES - 4;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Head {
    pub(super) store: u64,
    pub(super) number: u64,
    /// The point after the last record before the segment.
    pub(super) begin: Point,
}

#[derive(Debug)]
pub(super) struct Segment {
    file: Arc<dyn OpenFile>,
    head: Head,
    length: u64,
}

/// Header of a record, without its checksum.
#[derive(Clone, Copy, Debug)]
pub(super) struct Header {
    pub(super) bytes: u32,
    pub(super) first: u64,
    pub(super) count: u32,
    /// Time of the commit, in milliseconds since 1970.
    pub(super) time: u64,
}

pub(super) fn name(number: u64) -> String {
    format!("{number:016x}.log")
}

pub(super) fn number(name: &str) -> Option<u64> {
    let number = u64::from_str_radix(name.strip_suffix(".log")?, 16).ok()?;
    (self::name(number) == name).then_some(number)
}

impl Head {
    fn to_bytes(self) -> [u8; HEAD_BYTES] {
        let mut bytes = [0; HEAD_BYTES];
        bytes[..8].copy_from_slice(MAGIC);
        bytes[8..16].copy_from_slice(&self.store.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.number.to_le_bytes());
        bytes[24..32].copy_from_slice(&self.begin.position.to_le_bytes());
        bytes[32..36].copy_from_slice(&self.begin.chain.to_le_bytes());
        let crc = crc32fast::hash(&bytes[..HEAD_CRC]);
        bytes[HEAD_CRC..].copy_from_slice(&crc.to_le_bytes());
        bytes
    }

    fn from_bytes(bytes: &[u8]) -> Option<Head> {
        let crc = crc32fast::hash(&bytes[..HEAD_CRC]).to_le_bytes();
        if !bytes.starts_with(MAGIC) || bytes[HEAD_CRC..] != crc {
            return None;
        }
        let begin = Point { position: u64_at(bytes, 24), chain: u32_at(bytes, 32) };
        Some(Head { store: u64_at(bytes, 8), number: u64_at(bytes, 16), begin })
    }
}

impl Segment {
    /// Creates a file with room for a segment, and flushes it if it `is_durable`.
    pub(super) fn create(
        (files, path): (&dyn Files, &Path),
        head: &Head,
        length: u64,
        is_durable: bool,
    ) -> io::Result<Segment> {
        let file = files.create(path)?;
        file.allocate(length)?;
        Segment { file, head: *head, length }.begin(is_durable)
    }

    /// Makes a segment of a file that is there, and flushes it if it `is_durable`.
    pub(super) fn reuse(
        (files, path): (&dyn Files, &Path),
        head: &Head,
        is_durable: bool,
    ) -> io::Result<Segment> {
        let file = files.open(path, true)?;
        let length = file.length()?;
        Segment { file, head: *head, length }.begin(is_durable)
    }

    /// Opens a segment, which is that of a log's store and has a certain number.
    pub(super) fn open(
        (files, path): (&dyn Files, &Path),
        (store, number): (u64, u64),
        is_written: bool,
    ) -> Result<Segment, Damage> {
        let file = files.open(path, is_written).map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => found(format!("log/{} is missing", name(number))),
            _ => Damage::Io(error),
        })?;
        let length = file.length().map_err(Damage::Io)?;
        let mut bytes = [0; 2 * HEAD_BYTES];
        if length >= RECORDS_START {
            file.read(&mut bytes, 0).map_err(Damage::Io)?;
        }
        let head = bytes.chunks_exact(HEAD_BYTES).find_map(Head::from_bytes);
        let damaged = |reason: &str| found(format!("log/{} {reason}", name(number)));
        match head {
            None => Err(damaged("has no valid head")),
            Some(head) if head.store != store => Err(damaged("belongs to another store")),
            Some(head) if head.number != number => Err(damaged("is another segment of the log")),
            Some(head) => Ok(Segment { file, head, length }),
        }
    }

    fn begin(self, is_durable: bool) -> io::Result<Segment> {
        let bytes = self.head.to_bytes();
        self.write(&[bytes, bytes].concat(), 0)?;
        if is_durable {
            self.file.flush_all()?;
        }
        Ok(self)
    }

    /// Returns a second handle of this segment.
    pub(super) fn reopen(&self) -> Segment {
        Segment { file: self.file.clone(), ..*self }
    }

    pub(super) fn head(&self) -> &Head {
        &self.head
    }

    pub(super) fn length(&self) -> u64 {
        self.length
    }

    pub(super) fn write(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        self.write_parts(&mut [IoSlice::new(bytes)], offset)
    }

    pub(super) fn write_parts(&self, parts: &mut [IoSlice<'_>], offset: u64) -> io::Result<()> {
        self.file.write(parts, offset)
    }

    pub(super) fn read(&self, bytes: &mut [u8], offset: u64) -> io::Result<()> {
        #[cfg(test)]
        reads::count(bytes.len());
        self.file.read(bytes, offset)
    }

    pub(super) fn flush(&self) -> io::Result<()> {
        self.file.flush()
    }

    /// Checks that the file has a name, so that a record written to it is not lost.
    pub(super) fn check(&self) -> io::Result<()> {
        match self.file.has_name()? {
            true => Ok(()),
            false => Err(lost(&self.shown())),
        }
    }

    /// Checks that the file has its name in the directory.
    pub(super) fn check_at(&self, path: &Path) -> io::Result<()> {
        match self.file.is_at(path)? {
            true => Ok(()),
            false => Err(lost(&self.shown())),
        }
    }

    fn shown(&self) -> String {
        format!("log/{}", name(self.head.number))
    }
}

/// Returns the length on the disk of a record with this many bytes of changes.
pub(super) fn record_bytes(changes: usize) -> u64 {
    (HEADER_BYTES + changes as u64).next_multiple_of(SECTOR_BYTES)
}

/// Returns the encoded header of a record that follows a point and has `bytes` bytes of changes, and its
/// checksum.
pub(super) fn encode(
    (head, after): (&Head, Point),
    (count, time): (u32, u64),
    chunks: &[Box<[u8]>],
    bytes: usize,
) -> ([u8; HEADER_BYTES as usize], u32) {
    let mut header = [0; HEADER_BYTES as usize];
    header[4..8].copy_from_slice(&(bytes as u32).to_le_bytes());
    header[8..16].copy_from_slice(&(after.position + 1).to_le_bytes());
    header[16..20].copy_from_slice(&count.to_le_bytes());
    header[24..32].copy_from_slice(&time.to_le_bytes());
    let changes = chunks.iter().map(|chunk| &**chunk);
    let chain = checksum(head, after.chain, [&header[4..]].into_iter().chain(changes));
    header[..4].copy_from_slice(&chain.to_le_bytes());
    (header, chain)
}

pub(super) fn header(bytes: &[u8]) -> Header {
    Header {
        bytes: u32_at(bytes, 4),
        first: u64_at(bytes, 8),
        count: u32_at(bytes, 16),
        time: u64_at(bytes, 24),
    }
}

/// Returns the checksum of a whole record, without padding, if it is that of the record after `chain`.
pub(super) fn verify(head: &Head, chain: u32, record: &[u8]) -> Option<u32> {
    #[cfg(test)]
    reads::count(record.len());
    let stored = u32_at(record, 0);
    (checksum(head, chain, [&record[4..]]) == stored).then_some(stored)
}

fn checksum<'b>(head: &Head, chain: u32, parts: impl IntoIterator<Item = &'b [u8]>) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(&chain.to_le_bytes());
    hasher.update(&head.store.to_le_bytes());
    hasher.update(&head.number.to_le_bytes());
    parts.into_iter().for_each(|part| hasher.update(part));
    hasher.finalize()
}

/// Reads a number; the bytes are long enough.
pub(super) fn u64_at(bytes: &[u8], start: usize) -> u64 {
    bytes.get(start..).and_then(|bytes| bytes.first_chunk()).map_or(0, |n| u64::from_le_bytes(*n))
}

pub(super) fn u32_at(bytes: &[u8], start: usize) -> u32 {
    bytes.get(start..).and_then(|bytes| bytes.first_chunk()).map_or(0, |n| u32::from_le_bytes(*n))
}

/// Number of bytes of segments that a thread has read, and of records that it has checked, for tests.
#[cfg(test)]
pub(super) mod reads {
    use std::cell::Cell;

    thread_local! {
        static READ: Cell<usize> = const { Cell::new(0) };
    }

    pub(super) fn count(bytes: usize) {
        READ.set(READ.get() + bytes);
    }

    /// Returns the number since the last call.
    pub(crate) fn take() -> usize {
        READ.take()
    }
}
