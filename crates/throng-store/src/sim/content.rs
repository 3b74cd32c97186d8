//! [`Content`]: the content of a file on a disk, as a power cut may leave it. `model.rs` says what it assumes.

use std::collections::BTreeMap;

/// Size of the largest write that a disk performs atomically.
const SECTOR_BYTES: usize = 512;

type Sector = [u8; SECTOR_BYTES];

/// The part of the unflushed changes that a power cut loses.
#[derive(Clone, Copy, Debug)]
pub enum Loss {
    /// Every write since the last flush is lost.
    Everything,
    /// Every write since the last flush survives, as when the process is killed.
    Nothing,
    /// Half of the sectors; each other sector has any of its contents.
    Sectors,
    /// Half of the pages; each other page is there as a whole.
    Pages,
    /// An eighth of the sectors.
    Few,
    /// Seven eighths of the sectors.
    Most,
}

impl Loss {
    /// Returns the loss of a single file or directory: the same, everything, or nothing; nothing if nothing is
    /// lost at all, as when the process is killed.
    pub(crate) fn of_one(self, random: &mut fastrand::Rng) -> Loss {
        if matches!(self, Loss::Nothing) {
            return self;
        }
        let losses = [self, Loss::Everything, Loss::Nothing];
        losses[random.usize(..6).saturating_sub(3)]
    }
}

/// The content of a file on a disk, and the writes to it since the last flush. Each pending change
/// has the number of its event.
#[derive(Debug, Default)]
pub(crate) struct Content {
    flushed: Vec<Sector>,
    flushed_bytes: u64,
    /// By sector: the contents written to it since the last flush, in order. The number of a change that no flush
    /// writes any more is [`LEFT`].
    pending: BTreeMap<usize, Vec<(usize, Sector)>>,
    /// The lengths since the last flush, in order.
    pending_bytes: Vec<(usize, u64)>,
}

/// Number of a change that a failed flush has left.
const LEFT: usize = usize::MAX;

impl Content {
    pub(crate) fn of(bytes: &[u8], length: u64) -> Content {
        let (whole, rest) = bytes.as_chunks();
        let mut flushed = whole.to_vec();
        if !rest.is_empty() {
            let mut last = [0; SECTOR_BYTES];
            last[..rest.len()].copy_from_slice(rest);
            flushed.push(last);
        }
        Content { flushed, flushed_bytes: length, ..Content::default() }
    }

    /// A flush fails that would have put all writes before the event of this number on the disk.
    pub(crate) fn leave(&mut self, begun: usize) {
        for (number, _) in self.pending.values_mut().flatten() {
            *number = if *number < begun { LEFT } else { *number };
        }
    }

    pub(crate) fn write(&mut self, number: usize, offset: u64, bytes: &[u8]) {
        let mut offset = offset as usize;
        let mut rest = bytes;
        while !rest.is_empty() {
            let (index, start) = (offset / SECTOR_BYTES, offset % SECTOR_BYTES);
            let taken = rest.len().min(SECTOR_BYTES - start);
            let mut sector = self.latest(index);
            sector[start..start + taken].copy_from_slice(&rest[..taken]);
            self.pending.entry(index).or_default().push((number, sector));
            offset += taken;
            rest = &rest[taken..];
        }
        if offset as u64 > self.bytes() {
            self.pending_bytes.push((number, offset as u64));
        }
    }

    pub(crate) fn set_length(&mut self, number: usize, bytes: u64) {
        // Zeros come back if the file grows again.
        for index in bytes as usize / SECTOR_BYTES..self.bytes().div_ceil(512) as usize {
            let mut sector = self.latest(index);
            let kept = (bytes as usize).saturating_sub(index * SECTOR_BYTES);
            sector[kept.min(SECTOR_BYTES)..].fill(0);
            self.pending.entry(index).or_default().push((number, sector));
        }
        self.pending_bytes.push((number, bytes));
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.pending_bytes.last().map_or(self.flushed_bytes, |(_, bytes)| *bytes)
    }

    /// Reads bytes as they are without a power cut; bytes that were never written are zeros.
    pub(crate) fn read(&self, offset: u64, mut bytes: &mut [u8]) {
        let mut offset = offset as usize;
        while !bytes.is_empty() {
            let (index, start) = (offset / SECTOR_BYTES, offset % SECTOR_BYTES);
            let taken = bytes.len().min(SECTOR_BYTES - start);
            let (here, rest) = bytes.split_at_mut(taken);
            here.copy_from_slice(&self.latest(index)[start..start + taken]);
            offset += taken;
            bytes = rest;
        }
    }

    /// Puts all writes before the event of this number on the disk.
    pub(crate) fn flush(&mut self, begun: usize) {
        self.flush_to(begun, 0..usize::MAX);
        let flushed = self.pending_bytes.partition_point(|(number, _)| *number < begun);
        if let Some((_, bytes)) = self.pending_bytes.drain(..flushed).next_back() {
            self.flushed_bytes = bytes;
        }
    }

    /// Puts the sectors of a write on the disk, and makes the file long enough for them.
    pub(crate) fn flush_write(&mut self, begun: usize, offset: u64, bytes: usize) {
        let (start, end) = (offset as usize, offset as usize + bytes);
        self.flush_to(begun, start / SECTOR_BYTES..end.div_ceil(SECTOR_BYTES));
        self.flushed_bytes = self.flushed_bytes.max(end as u64);
    }

    pub(crate) fn is_flushed(&self) -> bool {
        self.pending.is_empty() && self.pending_bytes.is_empty()
    }

    /// Returns the beginning of the file as it may be found after a power cut, and its length.
    pub(crate) fn after_power_cut(&self, loss: Loss, random: &mut fastrand::Rng) -> (Vec<u8>, u64) {
        let lengths = || self.pending_bytes.iter().map(|(_, bytes)| *bytes);
        let shortest = lengths().fold(self.flushed_bytes, u64::min);
        let longest = lengths().fold(self.flushed_bytes, u64::max);
        let length = match loss {
            Loss::Everything => self.flushed_bytes,
            Loss::Nothing => self.bytes(),
            _ => match random.u8(..4) {
                0 => shortest,
                1 => random.u64(shortest..=longest),
                _ => longest,
            },
        };
        // Most of a long file may never have been written.
        let pending = self.pending.last_key_value().map_or(0, |(index, _)| index + 1);
        let written = self.flushed.len().max(pending) * SECTOR_BYTES;
        let mut image: Vec<u8> = self.flushed.as_flattened().to_vec();
        image.resize(written.min(length as usize), 0);
        let mut page = (usize::MAX, false);
        for (&index, contents) in &self.pending {
            let is_there = match loss {
                Loss::Everything => false,
                Loss::Nothing => true,
                Loss::Sectors => random.bool(),
                Loss::Few => random.u8(..8) > 0,
                Loss::Most => random.u8(..8) == 0,
                Loss::Pages => {
                    if page.0 != index / 8 {
                        page = (index / 8, random.bool());
                    }
                    page.1
                }
            };
            let last = contents.len() - 1;
            let chosen = match loss {
                Loss::Sectors | Loss::Few | Loss::Most => random.usize(..=last),
                _ => last,
            };
            let start = index * SECTOR_BYTES;
            if is_there && start < image.len() {
                let end = image.len().min(start + SECTOR_BYTES);
                image[start..end].copy_from_slice(&contents[chosen].1[..end - start]);
            }
        }
        (image, length)
    }

    fn latest(&self, index: usize) -> Sector {
        let pending = self.pending.get(&index).and_then(|contents| contents.last());
        let latest = pending.map(|(_, sector)| sector).or_else(|| self.flushed.get(index));
        *latest.unwrap_or(&[0; SECTOR_BYTES])
    }

    fn flush_to(&mut self, begun: usize, range: std::ops::Range<usize>) {
        for (index, contents) in self.pending.range_mut(range) {
            let flushed = contents.iter().rposition(|(number, _)| *number < begun);
            let flushed = flushed.map_or(0, |last| last + 1);
            if let Some((_, sector)) = contents.drain(..flushed).next_back() {
                if self.flushed.len() <= *index {
                    self.flushed.resize(index + 1, [0; SECTOR_BYTES]);
                }
                self.flushed[*index] = sector;
            }
        }
        self.pending.retain(|_, contents| !contents.is_empty());
    }
}
