//! [`Mark`]: how far the log goes for certain.
//!
//! | bytes  | content                                                  |
//! |--------|----------------------------------------------------------|
//! | 0..8   | `throngM1`                                               |
//! | 8..16  | id of the store                                          |
//! | 16..24 | number of the mark: one more than that of the mark before |
//! | 24..32 | number of the segment                                    |
//! | 32..40 | offset of the end of its last record                     |
//! | 40..52 | the point after this record: position, checksum          |
//! | 508..  | CRC-32 of all before                                     |
//!
//! Two sectors are written in turn, so that one of them is always whole.

use std::io::{self, IoSlice};
use std::path::Path;
use std::sync::Arc;

use super::files::OpenFile;
use super::segment::{SECTOR_BYTES, u32_at, u64_at};
use super::{Location, Point};
use crate::disk::damage::{Damage, found};
use crate::disk::identity::lost;

#[derive(Debug)]
pub(super) struct Mark {
    file: Arc<dyn OpenFile>,
    store: u64,
    /// The last mark whose write succeeded.
    last: Marked,
    /// Whether a write failed since, which may have written everything.
    is_doubtful: bool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Marked {
    pub(super) segment: u64,
    pub(super) end: u64,
    pub(super) point: Point,
    pub(super) sequence: u64,
}

const NAME: &str = "mark";
const MAGIC: &[u8; 8] = b"throngM1";
const SECTOR: usize = SECTOR_BYTES as usize;
const CRC: usize = SECTOR - 4;

impl Mark {
    pub(super) fn create(
        location: &Location,
        segment: u64,
        end: u64,
        point: Point,
    ) -> io::Result<Mark> {
        let file = location.platform.files.create(&location.directory.join(NAME))?;
        let last = Marked { segment, end, point, sequence: 0 };
        let mut mark = Mark { file, store: location.store, last, is_doubtful: false };
        // Both sectors are valid from the beginning.
        mark.write(segment, end, point)?;
        mark.write(segment, end, point)?;
        Ok(mark)
    }

    pub(super) fn open(location: &Location) -> Result<Mark, Damage> {
        let path = location.directory.join(NAME);
        let file = location.platform.files.open(&path, true).map_err(missing)?;
        let last = read_from(&*file, location.store)?;
        Ok(Mark { file, store: location.store, last, is_doubtful: false })
    }

    pub(super) fn write(&mut self, segment: u64, end: u64, point: Point) -> io::Result<()> {
        let sequence = self.last.sequence + 1;
        let mut bytes = [0; SECTOR];
        bytes[..8].copy_from_slice(MAGIC);
        bytes[8..16].copy_from_slice(&self.store.to_le_bytes());
        bytes[16..24].copy_from_slice(&sequence.to_le_bytes());
        bytes[24..32].copy_from_slice(&segment.to_le_bytes());
        bytes[32..40].copy_from_slice(&end.to_le_bytes());
        bytes[40..48].copy_from_slice(&point.position.to_le_bytes());
        bytes[48..52].copy_from_slice(&point.chain.to_le_bytes());
        let crc = crc32fast::hash(&bytes[..CRC]);
        bytes[CRC..].copy_from_slice(&crc.to_le_bytes());
        // A failed write may have written everything.
        self.is_doubtful = true;
        self.file.write(&mut [IoSlice::new(&bytes)], sequence % 2 * SECTOR_BYTES)?;
        (self.last, self.is_doubtful) = (Marked { segment, end, point, sequence }, false);
        Ok(())
    }

    /// Writes the newest valid mark again and flushes it. A mark whose write failed is overwritten.
    pub(super) fn restore(&mut self) -> io::Result<()> {
        if self.is_doubtful {
            let Marked { segment, end, point, .. } = self.last;
            self.write(segment, end, point)?;
            self.is_doubtful = true;
            self.sync()?;
            self.is_doubtful = false;
        }
        Ok(())
    }

    pub(super) fn sync(&self) -> io::Result<()> {
        self.file.flush_all()
    }

    pub(super) fn check_at(&self, directory: &Path) -> io::Result<()> {
        match self.file.is_at(&directory.join(NAME))? {
            true => Ok(()),
            false => Err(lost(&format!("log/{NAME}"))),
        }
    }
}

pub(super) fn exists(location: &Location) -> bool {
    location.platform.files.exists(&location.directory.join(NAME)).unwrap_or(false)
}

pub(super) fn read(location: &Location) -> Result<Marked, Damage> {
    let file = location.platform.files.open(&location.directory.join(NAME), false);
    read_from(&*file.map_err(missing)?, location.store)
}

fn missing(error: io::Error) -> Damage {
    match error.kind() {
        io::ErrorKind::NotFound => found(format!("log/{NAME} is missing")),
        _ => Damage::Io(error),
    }
}

fn read_from(file: &dyn OpenFile, store: u64) -> Result<Marked, Damage> {
    let mut bytes = [0; 2 * SECTOR];
    match file.read(&mut bytes, 0) {
        Err(error) if error.kind() != io::ErrorKind::UnexpectedEof => {
            return Err(Damage::Io(error));
        }
        _ => {}
    }
    let valid = bytes.chunks_exact(SECTOR).filter(|sector| {
        let crc = crc32fast::hash(&sector[..CRC]).to_le_bytes();
        sector.starts_with(MAGIC) && sector[CRC..] == crc
    });
    let newest = valid.max_by_key(|sector| u64_at(sector, 16));
    let newest = newest.ok_or_else(|| found(format!("log/{NAME} is damaged")))?;
    if u64_at(newest, 8) != store {
        return Err(found(format!("log/{NAME} belongs to another store")));
    }
    Ok(Marked {
        segment: u64_at(newest, 24),
        end: u64_at(newest, 32),
        point: Point { position: u64_at(newest, 40), chain: u32_at(newest, 48) },
        sequence: u64_at(newest, 16),
    })
}
