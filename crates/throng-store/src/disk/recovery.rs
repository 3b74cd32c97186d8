//! Recovery: the records of a log after the applied point of LMDB, replayed.
//!
//! ```text
//! LMDB │ applied point │ ◀── stretches ── │ memtable │ ── records ── log
//! ```
//!
//! Changes that do not fit in memory are written to LMDB by stretches of the log (`stretch.rs`), and the last
//! ones stay in the memtable. A backup and a restore replay into a copy of LMDB, by checkpoints.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::checkpoint::write;
use crate::disk::damage::Damage;
use crate::disk::format;
use crate::disk::lmdb::{self, Env};
use crate::disk::stretch::{Extent, Stretch};
use crate::log::{self, Access, Location, Log, Point, Record, Replay, ReplayError};
use crate::memtable::Memtable;
use crate::table::Table;
use crate::{Options, Recovery};

const REPORT_INTERVAL: Duration = Duration::from_millis(100);

/// Least bound on the memory of a recovery: with less, a stretch of the log would be a record or two.
const BOUND_MIN: usize = 1 << 10;

/// Replays what LMDB lacks of the log, and goes on with the log. The memtable has the changes that are not
/// in LMDB afterwards; their memory is bounded.
pub(crate) fn recover(
    env: &Arc<Env>,
    format: Table,
    location: &Location,
    tables: usize,
    options: &Options,
) -> Result<(Log, Memtable), Damage> {
    let engine = |error: lmdb::Error| Damage::Io(error.into_io());
    let txn = env.begin_read().map_err(engine)?;
    let applied = format::applied(&txn, format).map_err(engine)?;
    drop(txn);
    let mut from = Replay::open(location, applied, Access::Write)?;
    let mut progress = Progress::new(&from, applied, options);
    let bound = options.checkpoint_bytes_bounded().max(BOUND_MIN);
    let mut begin = applied;
    let memtable = loop {
        let first = from.fork()?;
        match Stretch::read(&mut from, begin, tables, bound, &mut progress)? {
            Extent::Fits(memtable) => break memtable,
            Extent::Exceeds(stretch, rest) => {
                // LMDB must not have changes that the log might lose.
                from.settle()?;
                stretch.write(&first, (env, format), tables, &mut progress)?;
                (begin, from) = (rest.point(), rest);
            }
        }
    };
    progress.end();
    let segment_bytes = log::segment_bytes(options.checkpoint_bytes_bounded());
    let mut log = Log::go_on(from, segment_bytes)?;
    if log.point().position < applied.position {
        // The last commit had no record. It may have failed unseen, so that it is lost in a power failure.
        format::settle_applied(env, format, applied).map_err(engine)?;
        log.skip_to(applied.position);
    }
    Ok((log, memtable))
}

pub(crate) struct Progress<'o> {
    options: &'o Options,
    applied: u64,
    /// Position of the last change of the log, as far as it is known.
    last: u64,
    changes: u64,
    /// Number of changes that was reported last: a report never goes back.
    reported: u64,
    reported_at: Instant,
}

impl<'o> Progress<'o> {
    fn new(from: &Replay, applied: Point, options: &'o Options) -> Progress<'o> {
        let (applied, last) = (applied.position, from.last_known().max(applied.position));
        let (changes, reported, reported_at) = (0, 0, Instant::now());
        Progress { options, applied, last, changes, reported, reported_at }
    }

    pub(crate) fn saw(&mut self, record: &Record<'_>) {
        self.last = self.last.max(record.last());
    }

    pub(crate) fn replayed(&mut self, changes: u64) {
        self.changes += changes;
        if self.reported_at.elapsed() >= REPORT_INTERVAL {
            self.report();
        }
    }

    /// Takes changes back, which will be replayed once more.
    pub(crate) fn dropped(&mut self, changes: u64) {
        self.changes -= changes;
    }

    fn end(&mut self) {
        self.changes = self.last - self.applied;
        if self.changes > 0 {
            self.report();
        }
    }

    fn report(&mut self) {
        let total = self.last - self.applied;
        self.reported = self.reported.max(self.changes);
        self.options.on_recovery.report(Recovery { changes: self.reported, total });
        self.reported_at = Instant::now();
    }
}

/// Reads the records of a log after the applied point of LMDB, up to the position `until` and as long as the
/// caller takes them: to its end, or beside a process that writes up to the present mark or to a gap. Returns
/// their changes, and the point after them. Whenever the changes take `checkpoint_bytes`, writes them to
/// LMDB.
pub(crate) fn replay(
    from: &mut Replay,
    (env, format, applied): (&Env, Table, Point),
    tables: usize,
    checkpoint_bytes: usize,
    until: u64,
    mut takes: impl FnMut(&Record<'_>) -> bool,
) -> Result<(Memtable, Point), Damage> {
    // The mark moves on while the log is read.
    let marked = from.marked();
    let until = until.min(marked.unwrap_or(u64::MAX));
    let (mut memtable, mut at) = (Memtable::new(tables, 0), applied);
    while from.point().position < until {
        match from.next(applied.position) {
            Ok(Some(record)) if takes(&record) => {
                memtable.add(record.first, record.changes.into());
            }
            Ok(_) => break,
            Err(ReplayError::Gap(_)) if marked.is_some() => break,
            Err(error) => return Err(error.into_damage()),
        }
        at = from.point();
        if memtable.bytes() >= checkpoint_bytes {
            let full = Arc::new(std::mem::replace(&mut memtable, Memtable::new(tables, 0)));
            write::write(env, format, full, at, true, |_| {})
                .map_err(|error| Damage::Io(error.into_io()))?;
        }
    }
    Ok((memtable, at))
}
