//! `store-recover`: how long a store takes to open after its process was killed, and how much memory.
//!
//! ```text
//! filler    put × N in transactions │ SIGKILL
//! run                               │ open, get of the first entry │ check all
//!                                   ├────────────────────── open_s ┤
//! ```
//!
//! - The filler is this program once more, with the same arguments. It kills
//!   itself as soon as the last transaction is complete, so the store is not closed.
//! - throng's filler lets the changes in memory grow without a bound, so that all entries are in the log and
//!   none is in the tree, as the run checks. The run opens the store with the bound `memory`.
//! - What another store must recover is its own affair, and the bytes read tell how much of its files it has
//!   looked at. redb has written everything to its tree, which a recovery reads and checks. fjall has merged
//!   most entries into its tables, and replays only its journal, the entries of the last 64 MiB or so. heed
//!   has nothing to recover, and is left out.
//! - redb is filled in transactions of a million entries at least: smaller ones write each page many times, which
//!   takes minutes and leaves the same tree. It has no row for volatile stores, because it keeps their
//!   transactions in memory until one is flushed, so that nothing is left after a kill.
//! - The processor time, instructions and resident memory of a row are those of the filler and the run together.
//! - The files are in the system's cache, as they are after the end of a process. A key has ten bytes.

use std::io;
use std::path::Path;
use std::time::Instant;

use bench_steps::Error;

use super::part;
use super::prelude::*;
use super::records::{Key as RecordKey, Values, rate, shuffled};
use crate::stores::{Directory, Engine, Fjall, OpenOptions, Read, Redb, Throng, View};

pub(crate) fn run(row: &str, settings: &Settings) -> Measured {
    match row {
        "throng" => run_logged(settings),
        "redb" => run_in_tree(settings),
        "fjall" => run_journaled(settings),
        _ => Err(runtimes::no_row(row)),
    }
}

struct Entries {
    count: u64,
    values: Values,
}

impl Entries {
    fn of(settings: &Settings) -> Entries {
        // The number fits, because a value fits in memory.
        let bytes = settings.get("value") as usize;
        Entries { count: settings.count, values: Values::of(bytes..=bytes) }
    }

    fn entry(&self, number: u64) -> (RecordKey, &[u8]) {
        (RecordKey::numbered(b"", number), self.values.get(number))
    }

    /// Puts all entries into a new store, and kills this process.
    fn fill<E: Engine>(&self, directory: &Path, settings: &Settings, batch: u64) -> Measured {
        let options =
            OpenOptions { checkpoint_bytes: Some(usize::MAX), ..OpenOptions::of(settings) };
        let engine = E::open(directory, options)?;
        let mut numbers = match settings.word("order") {
            "random" => shuffled(self.count),
            _ => (0..self.count).collect(),
        };
        let batch = usize::try_from(batch).unwrap_or(usize::MAX);
        for numbers in numbers.chunks_mut(batch) {
            numbers.sort_unstable();
            let entries: Vec<_> = numbers.iter().map(|number| self.entry(*number)).collect();
            engine.commit(&entries)?;
        }
        Err(part::kill_own().into())
    }

    fn check(&self, engine: &impl Engine, outcome: &mut Outcome) -> io::Result<()> {
        let (mut numbers, mut wrong) = (0..self.count, 0);
        let rows = engine.reader(View::Frozen)?.scan(b"0", u64::MAX, |key, value| {
            let right = numbers.next().is_some_and(|number| {
                let (due_key, due_value) = self.entry(number);
                *due_key == *key && due_value == value
            });
            wrong += u64::from(!right);
        })?;
        outcome.check("entries at the end", rows, self.count);
        outcome.check("wrong entries at the end", wrong, 0);
        Ok(())
    }
}

/// Least number of entries of a transaction that fills a store without a log.
const TREE_BATCH: u64 = 1_000_000;

/// Runs the workload on throng, and checks that the log had all entries.
fn run_logged(settings: &Settings) -> Measured {
    let (mut outcome, read) = recover::<Throng>(settings, settings.get("batch"))?;
    let bytes = settings.count.saturating_mul(10 + settings.get("value"));
    outcome.check("whether the log had all entries", u64::from(read >= bytes), 1);
    Ok(outcome)
}

fn run_in_tree(settings: &Settings) -> Measured {
    Ok(recover::<Redb>(settings, settings.get("batch").max(TREE_BATCH))?.0)
}

fn run_journaled(settings: &Settings) -> Measured {
    Ok(recover::<Fjall>(settings, settings.get("batch"))?.0)
}

/// Runs the workload with `batch` entries per transaction; returns also the bytes that the opening read.
fn recover<E: Engine>(settings: &Settings, batch: u64) -> Result<(Outcome, u64), Error> {
    let entries = Entries::of(settings);
    if let Some((_, directory)) = part::own() {
        return Ok((entries.fill::<E>(&directory, settings, batch)?, 0));
    }
    let directory = Directory::make(settings)?;
    part::run("fill", directory.path(), true)?;

    // A number that does not fit is more than any memory.
    let bound = usize::try_from(settings.get("memory").saturating_mul(1 << 20));
    let checkpoint_bytes = Some(bound.unwrap_or(usize::MAX));
    let options = OpenOptions { checkpoint_bytes, ..OpenOptions::of(settings) };
    let (first_key, first_value) = entries.entry(0);
    let (anonymous, read) = (memory::anonymous_bytes()?, memory::read_bytes()?);
    let begun = Instant::now();
    let ((engine, is_right, time), peak) = memory::with_anonymous_peak(|| {
        let engine = E::open(directory.path(), options)?;
        let mut reader = engine.reader(View::Frozen)?;
        let is_right = reader.get(&first_key, |value| value == Some(first_value))?;
        drop(reader);
        Ok((engine, is_right, begun.elapsed()))
    })?;
    let read = memory::read_bytes()?.saturating_sub(read);

    let mut outcome = Outcome::default();
    outcome.metric("open_s", time.as_secs_f64());
    outcome.metric("entries_per_s", rate(settings.count, time));
    outcome.metric("anonymous_peak_bytes", peak.saturating_sub(anonymous) as f64);
    outcome.metric("read_bytes", read as f64);
    outcome.check("wrong first gets", u64::from(!is_right), 0);
    entries.check(&engine, &mut outcome)?;
    Ok((outcome, read))
}
