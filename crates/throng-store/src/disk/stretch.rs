//! [`Stretch`]: changes of the log that do not fit in memory, written to LMDB in the order of their keys.
//!
//! ```text
//!                  begin                           end       end of the log
//! log              │ d f a h b g a e c b h d f g c │ e a h … │
//! first reading    │ number of bytes, sample of keys         │
//! pass 1           │ · · a · b · a · c b · d · · c │         ▶ memtable a–d ▶ LMDB
//! pass 2           │ · f · h · g · e · · h · f g · │         ▶ memtable e–h ▶ LMDB ▶ applied point: end
//! ```
//!
//! 1. Each pass reads the whole stretch, and takes the changes of a range of keys that fits in memory. So a page of
//!    LMDB is written once, and not each time that memory is full. Reading a change again costs far less than
//!    writing a page.
//! 2. The applied point stays at the beginning until all ranges are written. A crash before leaves LMDB with
//!    changes after its applied point, as a crash within a checkpoint does.
//! 3. The sizes of the ranges are estimates. If a range does not fit, its memtable is written earlier, and the
//!    pass goes on.
//! 4. A table that the log clears is cleared before the first pass, and the passes leave out its changes before
//!    that. The log has them all until the applied point moves.
//! 5. A stretch has a bounded number of passes, so its length is bounded. It leaves changes at the end of the
//!    log that fit in memory.

use std::collections::{BTreeMap, VecDeque};
use std::mem;
use std::sync::Arc;

use crate::checkpoint::write;
use crate::disk::damage::{Damage, found};
use crate::disk::format;
use crate::disk::lmdb::{self, Env};
use crate::disk::recovery::Progress;
use crate::log::{Point, Replay, ReplayError};
use crate::memtable::change::{Change, Operation};
use crate::memtable::{CHANGE_BYTES, CHANGE_BYTES_MIN, Memtable};
use crate::table::Table;

/// Most passes over a stretch. A pass takes some 15 ns for a change that it leaves out.
const PASSES_MAX: usize = 16;

/// Number of keys of a stretch from which the borders of its ranges are chosen: with 16 ranges, a range then
/// has some 3 % more or less than another.
const SAMPLES: usize = 16 << 10;

/// Bytes of changes that are added to a memtable together.
const CHUNK_BYTES: usize = 64 << 10;

/// Returns the bytes of memory that are planned for a range.
const fn planned(bound: usize) -> usize {
    bound / 8 * 7
}

type TableKey = (Table, Box<[u8]>);

/// A stretch of the log; see the file's head.
pub(crate) struct Stretch {
    begin: Point,
    end: Point,
    bound: usize,
    size: Size,
    /// Keys of changes, about equally many in equally many bytes.
    samples: Vec<TableKey>,
    /// Tables that the log clears, each with the position of the last change that clears it.
    cleared: BTreeMap<Table, u64>,
}

#[derive(Clone, Copy, Default)]
struct Size {
    /// Estimate of the bytes that the changes take in a memtable.
    bytes: usize,
    changes: usize,
}

/// Changes of the log from some point on.
pub(crate) enum Extent {
    /// All changes up to the end of the log.
    Fits(Memtable),
    /// A stretch, and a replay that goes on after it.
    Exceeds(Stretch, Replay),
}

impl Stretch {
    /// Reads the log from a point on, up to its end or as far as a stretch may go.
    pub(crate) fn read(
        from: &mut Replay,
        begin: Point,
        tables: usize,
        bound: usize,
        progress: &mut Progress<'_>,
    ) -> Result<Extent, Damage> {
        let known = from.last_known().saturating_sub(begin.position);
        let is_longer = known.saturating_mul(CHANGE_BYTES_MIN) > bound as u64;
        let mut memtable = (!is_longer).then(|| Memtable::new(tables, 0));
        let bytes_max = planned(bound).saturating_mul(PASSES_MAX).max(1);
        let (mut size, mut cleared) = (Size::default(), BTreeMap::new());
        let (mut samples, mut sampled) = (Vec::new(), 0);
        // The points at which the stretch may end, and the size up to there.
        let mut ends: VecDeque<(Size, Replay)> = VecDeque::new();
        while memtable.is_some() || size.bytes < bytes_max {
            let record = from.next(begin.position).map_err(ReplayError::into_damage)?;
            let Some(record) = record else { break };
            progress.saw(&record);
            let (mut position, mut rest) = (record.first, record.changes);
            loop {
                let left = rest.len();
                let Some(change) = Change::take(&mut rest) else { break };
                if size.bytes >= sampled {
                    // Records may be sorted, so that every so many bytes there is the same part of the keys.
                    let step = 2 * (bytes_max / SAMPLES).max(1);
                    sampled = size.bytes + crc32fast::hash(change.key) as usize % step;
                    samples.push((change.table, change.key.into()));
                }
                if change.operation == Operation::Clear {
                    cleared.insert(change.table, position);
                }
                size.bytes += CHANGE_BYTES + left - rest.len();
                position += 1;
            }
            size.changes += record.count as usize;
            if let Some(kept) = &memtable {
                kept.add(record.first, record.changes.into());
                progress.replayed(record.count.into());
                if kept.bytes() >= bound {
                    progress.dropped(kept.changes() as u64);
                    memtable = None;
                }
            }
            if ends.back().is_none_or(|(last, _)| size.bytes - last.bytes > bound / 8) {
                ends.push_back((size, from.fork()?));
            }
            while ends.front().is_some_and(|(end, _)| size.bytes - end.bytes > bound / 2) {
                ends.pop_front();
            }
        }
        // The position that is known may be above a gap, with nothing to read.
        let nothing = || samples.is_empty().then(|| Memtable::new(tables, 0));
        if let Some(memtable) = memtable.or_else(nothing) {
            return Ok(Extent::Fits(memtable));
        }
        let (size, rest) = match ends.pop_front() {
            Some(end) => end,
            None => (size, from.fork()?),
        };
        let end = rest.point();
        samples.sort_unstable();
        let stretch = Stretch { begin, end, bound, size, samples, cleared };
        Ok(Extent::Exceeds(stretch, rest))
    }

    /// Writes the changes to LMDB. The replay is at the beginning.
    pub(crate) fn write(
        &self,
        first: &Replay,
        (env, format): (&Env, Table),
        tables: usize,
        progress: &mut Progress<'_>,
    ) -> Result<(), Damage> {
        self.clear(env).map_err(damage)?;
        let ranges = (self.size.bytes / planned(self.bound).max(1) + 1).min(PASSES_MAX);
        let border = |range| &self.samples[range * (self.samples.len() - 1) / ranges];
        for range in 0..ranges {
            let from = (range > 0).then(|| border(range));
            let to = (range + 1 < ranges).then(|| border(range + 1));
            // An index for as many keys would be a waste in each of many tables.
            let is_one_table = border(range).0 == border(range + 1).0;
            let expected = if is_one_table { self.size.changes / ranges / 8 * 9 } else { 0 };
            let empty = || Memtable::new(tables, expected);
            let write = |memtable| {
                write::write(env, format, Arc::new(memtable), self.begin, true, |_| {})
                    .map_err(damage)
            };
            let mut memtable = empty();
            self.pass(&mut first.fork()?, (from, to), progress, |changes| {
                memtable.add(memtable.last() + 1, changes.into());
                if memtable.bytes() < self.bound {
                    return Ok(());
                }
                write(mem::replace(&mut memtable, empty()))
            })?;
            write(memtable)?;
        }
        format::settle_applied(env, format, self.end).map_err(damage)
    }

    fn clear(&self, env: &Env) -> Result<(), lmdb::Error> {
        if self.cleared.is_empty() {
            return Ok(());
        }
        let mut txn = env.begin_write()?;
        for table in self.cleared.keys() {
            txn.clear(*table)?;
        }
        txn.commit()
    }

    /// Reads the stretch, and passes the encoded changes between two keys on, in chunks.
    fn pass(
        &self,
        replay: &mut Replay,
        (from, to): (Option<&TableKey>, Option<&TableKey>),
        progress: &mut Progress<'_>,
        mut take: impl FnMut(&[u8]) -> Result<(), Damage>,
    ) -> Result<(), Damage> {
        let is_in = |change: &Change<'_>| {
            let is_below = |border: &TableKey| (change.table, change.key) < (border.0, &*border.1);
            !from.is_some_and(is_below) && to.is_none_or(is_below)
        };
        let mut chunk = Vec::new();
        while replay.point().position < self.end.position {
            let record = replay.next(self.begin.position);
            let record = record.map_err(ReplayError::into_damage)?;
            let record = record.ok_or_else(|| found("the log became shorter while it was read"))?;
            let (mut position, mut rest) = (record.first, record.changes);
            let mut taken = 0;
            loop {
                let bytes = rest;
                let Some(change) = Change::take(&mut rest) else { break };
                let cleared = self.cleared.get(&change.table).copied();
                if is_in(&change) {
                    taken += 1;
                    if cleared.is_none_or(|cleared| position > cleared) {
                        chunk.extend_from_slice(&bytes[..bytes.len() - rest.len()]);
                    }
                }
                position += 1;
            }
            progress.replayed(taken);
            if chunk.len() >= CHUNK_BYTES {
                take(&chunk)?;
                chunk.clear();
            }
        }
        if chunk.is_empty() { Ok(()) } else { take(&chunk) }
    }
}

fn damage(error: lmdb::Error) -> Damage {
    Damage::Io(error.into_io())
}
