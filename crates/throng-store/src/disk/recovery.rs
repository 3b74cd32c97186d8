//! Recovery: the records of a log after the applied point of LMDB, replayed.
//!
//! ```text
//! LMDB │ applied point │ ◀── checkpoints ── memtable ◀── records ── log
//! ```
//!
//! A backup and a restore replay in the same way, into a copy of LMDB.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::checkpoint;
use crate::disk::format;
use crate::disk::lmdb::{self, Env, Table};
use crate::disk::pages::Damage;
use crate::log::{Access, Location, Log, Point, Record, Replay, ReplayError};
use crate::memtable::Memtable;
use crate::{Options, Recovery};

/// Time between two reports of a recovery.
const REPORT_INTERVAL: Duration = Duration::from_millis(100);

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
    let lmdb = (&**env, format, applied);
    let (mut recovery, last) = (Recovery { changes: 0, total: 0 }, from.last_known());
    let mut reported = Instant::now();
    let counted = |record: &Record<'_>| {
        let changes = record.last() - applied.position;
        let total = changes.max(last.saturating_sub(applied.position));
        recovery = Recovery { changes, total };
        if reported.elapsed() >= REPORT_INTERVAL {
            options.on_recovery.report(recovery);
            reported = Instant::now();
        }
        true
    };
    let checkpoint_bytes = options.checkpoint_bytes_bounded();
    let (memtable, _) = replay(&mut from, lmdb, tables, checkpoint_bytes, u64::MAX, counted)?;
    if recovery.changes > 0 {
        options.on_recovery.report(recovery);
    }
    let mut log = Log::go_on(from)?;
    if log.point().position < applied.position {
        // The last commit had no record. It may have failed unseen, so that it is lost in a power failure.
        format::settle_applied(env, format, applied).map_err(engine)?;
        log.skip_to(applied.position);
    }
    Ok((log, memtable))
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
            // LMDB must not have changes that the log might lose.
            from.settle()?;
            let full = Arc::new(std::mem::replace(&mut memtable, Memtable::new(tables, 0)));
            checkpoint::write(env, format, full, at, true)
                .map_err(|error| Damage::Io(error.into_io()))?;
        }
    }
    Ok((memtable, at))
}
