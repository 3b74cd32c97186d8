//! The two files of the journal: heads and records.
//!
//! | bytes      | content                                                         |
//! |------------|-----------------------------------------------------------------|
//! | 0..512     | a head, or arbitrary bytes                                      |
//! | 512..1024  | a copy of the head                                              |
//! | 4096..     | records, each from a multiple of 512 on                         |
//!
//! | head    |                                                                    |
//! |---------|--------------------------------------------------------------------|
//! | 0..8    | `throngJ1`                                                         |
//! | 8..16   | the salt                                                           |
//! | 16..24  | its generation, one more than that of the head before              |
//! | 24..32  | the number of the last record whose changes the data file has      |
//! | 32..40  | the size of its pages                                              |
//! | 40..    | its two meta pages, as they begin                                  |
//! | 508..   | CRC-32 of all before                                               |
//!
//! | record  |                                                                    |
//! |---------|--------------------------------------------------------------------|
//! | 0..4    | CRC-32 of the salt and all that follows                            |
//! | 4..12   | the length of the log                                              |
//! | 12..20  | its number, one more than that of the record before                |
//! | 20..28  | the generation of the newest head when it was written              |
//! | 28..    | the log (see `log.rs`)                                             |
//!
//! Numbers are little endian, except in the meta pages, which are the engine's. The salt is a
//! random number of each opening: a program that writes values cannot know it, so no value looks
//! like a record.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};

use crate::disk::pages::{META_BYTES, Metas};

/// Size that a disk writes atomically, at least: records begin at a multiple of it, so writing a
/// record overwrites no other.
pub(super) const SECTOR_BYTES: u64 = 512;

/// Offset of the first record.
pub(super) const RECORDS_START: u64 = 4096;

const MAGIC: &[u8; 8] = b"throngJ1";
const HEAD_BYTES: usize = SECTOR_BYTES as usize;
const RECORD_HEADER_BYTES: usize = 28;

/// State of the data file to which the following records apply.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Head {
    pub(super) salt: u64,
    pub(super) generation: u64,
    pub(super) number: u64,
    pub(super) metas: Metas,
}

/// The record of a single commit.
#[derive(Debug)]
pub(super) struct Record {
    pub(super) number: u64,
    /// Generation of the newest head when the record was written.
    pub(super) generation: u64,
    pub(super) log: Vec<u8>,
}

impl Head {
    fn to_bytes(&self) -> [u8; HEAD_BYTES] {
        let mut bytes = [0; HEAD_BYTES];
        bytes[..8].copy_from_slice(MAGIC);
        bytes[8..16].copy_from_slice(&self.salt.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.generation.to_le_bytes());
        bytes[24..32].copy_from_slice(&self.number.to_le_bytes());
        bytes[32..40].copy_from_slice(&(self.metas.page_bytes as u64).to_le_bytes());
        for (index, meta) in self.metas.pages.iter().enumerate() {
            let start = 40 + index * META_BYTES;
            bytes[start..start + META_BYTES].copy_from_slice(meta);
        }
        let checksum = crc32fast::hash(&bytes[..508]);
        bytes[508..].copy_from_slice(&checksum.to_le_bytes());
        bytes
    }

    fn from_bytes(bytes: &[u8; HEAD_BYTES]) -> Option<Head> {
        let checksum = crc32fast::hash(&bytes[..508]).to_le_bytes();
        if !bytes.starts_with(MAGIC) || bytes[508..] != checksum {
            return None;
        }
        let mut metas = Metas {
            page_bytes: usize::try_from(u64_at(bytes, 32)?).ok()?,
            pages: [[0; META_BYTES]; 2],
        };
        for (index, meta) in metas.pages.iter_mut().enumerate() {
            let start = 40 + index * META_BYTES;
            meta.copy_from_slice(&bytes[start..start + META_BYTES]);
        }
        let word = |start| u64_at(bytes, start);
        Some(Head { salt: word(8)?, generation: word(16)?, number: word(24)?, metas })
    }

    /// Writes the head; it is durable with the next flush.
    pub(super) fn write(&self, file: &File) -> io::Result<()> {
        let bytes = self.to_bytes();
        write_at(file, &[bytes, bytes].concat(), 0)
    }

    /// Erases the head of a file; the erasure is durable with the next flush.
    pub(super) fn erase(file: &File) -> io::Result<()> {
        write_at(file, &[0; 2 * HEAD_BYTES], 0)
    }
}

/// Stores a record in `bytes`, in whole sectors; `log` appends its part.
pub(super) fn record(
    bytes: &mut Vec<u8>,
    salt: u64,
    generation: u64,
    number: u64,
    log: impl FnOnce(&mut Vec<u8>),
) {
    bytes.clear();
    bytes.resize(RECORD_HEADER_BYTES, 0);
    log(bytes);
    let length = (bytes.len() - RECORD_HEADER_BYTES) as u64;
    bytes[4..12].copy_from_slice(&length.to_le_bytes());
    bytes[12..20].copy_from_slice(&number.to_le_bytes());
    bytes[20..28].copy_from_slice(&generation.to_le_bytes());
    let checksum = checksum(salt, &bytes[4..]);
    bytes[..4].copy_from_slice(&checksum.to_le_bytes());
    bytes.resize(bytes.len().next_multiple_of(SECTOR_BYTES as usize), 0);
}

/// Contents of a file.
#[derive(Debug)]
pub(super) struct Content {
    pub(super) head: Option<Head>,
    bytes: Vec<u8>,
}

impl Content {
    pub(super) fn read(file: &mut File) -> io::Result<Content> {
        let mut bytes = Vec::new();
        file.seek(SeekFrom::Start(0))?;
        file.read_to_end(&mut bytes)?;
        let heads = bytes.chunks_exact(HEAD_BYTES).take(2);
        let head = heads.filter_map(|head| Head::from_bytes(head.try_into().ok()?)).next();
        Ok(Content { head, bytes })
    }

    /// Returns all records with this salt and a number above `after`, in the order of the file.
    pub(super) fn records(&self, salt: u64, after: u64) -> Vec<Record> {
        let mut records = Vec::new();
        let mut start = RECORDS_START as usize;
        while let Some(rest) = self.bytes.get(start..).filter(|rest| !rest.is_empty()) {
            let record = parse(rest, salt, after);
            let bytes = record.as_ref().map_or(1, |record| RECORD_HEADER_BYTES + record.log.len());
            start += bytes.next_multiple_of(SECTOR_BYTES as usize);
            records.extend(record);
        }
        records
    }
}

fn parse(bytes: &[u8], salt: u64, after: u64) -> Option<Record> {
    let (number, generation) = (u64_at(bytes, 12)?, u64_at(bytes, 20)?);
    // Compared first, because the checksum may cover the whole rest of the file.
    if number <= after {
        return None;
    }
    let length = usize::try_from(u64_at(bytes, 4)?).ok()?;
    let whole = bytes.get(..RECORD_HEADER_BYTES.checked_add(length)?)?;
    if whole[..4] != checksum(salt, &whole[4..]).to_le_bytes() {
        return None;
    }
    Some(Record { number, generation, log: whole[RECORD_HEADER_BYTES..].to_vec() })
}

fn checksum(salt: u64, bytes: &[u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(&salt.to_le_bytes());
    hasher.update(bytes);
    hasher.finalize()
}

fn u64_at(bytes: &[u8], start: usize) -> Option<u64> {
    Some(u64::from_le_bytes(*bytes.get(start..)?.first_chunk()?))
}

/// Writes all bytes at `offset`, and ignores the file's position.
#[cfg(unix)]
pub(crate) fn write_at(file: &File, bytes: &[u8], offset: u64) -> io::Result<()> {
    std::os::unix::fs::FileExt::write_all_at(file, bytes, offset)
}

/// Writes all bytes at `offset`, and ignores the file's position.
#[cfg(windows)]
pub(crate) fn write_at(file: &File, mut bytes: &[u8], mut offset: u64) -> io::Result<()> {
    while !bytes.is_empty() {
        let written = std::os::windows::fs::FileExt::seek_write(file, bytes, offset)?;
        bytes = &bytes[written..];
        offset += written as u64;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn head(number: u64) -> Head {
        let metas = Metas { page_bytes: 4096, pages: [[1; META_BYTES], [2; META_BYTES]] };
        Head { salt: 7, generation: 5, number, metas }
    }

    #[test]
    fn a_head_is_read_as_it_was_written_from_either_copy() {
        let mut file = tempfile::tempfile().unwrap();
        head(9).write(&file).unwrap();
        assert_eq!(Content::read(&mut file).unwrap().head, Some(head(9)));
        write_at(&file, &[0; 10], 100).unwrap();
        assert_eq!(Content::read(&mut file).unwrap().head, Some(head(9)));
        write_at(&file, &[0; 10], 700).unwrap();
        assert_eq!(Content::read(&mut file).unwrap().head, None);
        head(9).write(&file).unwrap();
        Head::erase(&file).unwrap();
        assert_eq!(Content::read(&mut file).unwrap().head, None);
    }

    #[test]
    fn records_are_found_and_torn_ones_and_those_of_others_are_not() {
        let record = |salt, generation, number, log: &dyn Fn(&mut Vec<u8>)| {
            let mut bytes = vec![1; 10];
            record(&mut bytes, salt, generation, number, log);
            bytes
        };
        let mut file = tempfile::tempfile().unwrap();
        let mut start = RECORDS_START;
        for (number, salt, bytes) in
            [(1, 7, 0), (2, 7, 0), (2, 7, 1000), (3, 8, 10), (4, 7, 484), (5, 7, 485)]
        {
            let record = record(salt, 1, number, &|log| log.extend(vec![number as u8; bytes]));
            assert!((record.len() as u64).is_multiple_of(SECTOR_BYTES));
            write_at(&file, &record, start).unwrap();
            start += record.len() as u64;
        }
        // A value that looks like a record to a reader without the salt.
        let inner = record(0, 1, 6, &|log| log.push(1));
        let outer = record(7, 1, 6, &|log| {
            log.resize(SECTOR_BYTES as usize - RECORD_HEADER_BYTES, 0);
            log.extend(&inner);
        });
        write_at(&file, &outer, start).unwrap();
        write_at(&file, &[1], start + 30).unwrap();

        let found = |file: &mut File| -> Vec<(u64, usize)> {
            let records = Content::read(file).unwrap().records(7, 1);
            records.iter().map(|record| (record.number, record.log.len())).collect()
        };
        assert_eq!(found(&mut file), [(2, 0), (2, 1000), (4, 484), (5, 485)]);
        write_at(&file, &[1], RECORDS_START + 1024 + 600).unwrap();
        assert_eq!(found(&mut file), [(2, 0), (4, 484), (5, 485)]);
    }
}
