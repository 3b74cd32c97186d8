//! `store-put`: P processes put entries of 200 to 500 bytes. Each process puts in the order of its
//! own keys, and waits for its oldest put only when `inflight` of its puts are in flight.
//!
//! ```text
//! P × put, at most `inflight` of each in flight │ check everything
//! ├──────────────────────────────────── wall_s ─┤
//! ```
//!
//! - The other stores have no processes: a single thread takes the same entries round-robin from
//!   the P sequences, sorts `batch` entries, and commits them in a transaction. So no store has
//!   more neighbouring keys in a transaction than another.
//! - The latency of a put lasts from its submission until it is as durable as the setting
//!   `durability` asks for; the puts of a batch start together, before the batch is sorted.
//! - The values are slices of noise, which cost nothing to make, and all are compared at the end.

mod throng;

use std::time::{Duration, Instant};

use super::prelude::*;
use super::records::{Key as RecordKey, RoleStats, Values};
use crate::stores::{Directory, Engine, Fjall, Heed, OpenOptions, Read, Redb, View};

pub(crate) fn run(row: &str, settings: &Settings) -> Measured {
    match row {
        "throng" => throng::run(settings),
        "heed" => measure::<Heed>(settings),
        "redb" => measure::<Redb>(settings),
        "fjall" => measure::<Fjall>(settings),
        _ => Err(runtimes::no_row(row)),
    }
}

/// The entries. Process p of P puts the entries whose number is p modulo P.
struct Entries {
    count: u64,
    processes: u64,
    values: Values,
}

impl Entries {
    fn of(settings: &Settings) -> Entries {
        let (count, processes) = (settings.count, settings.get("processes"));
        Entries { count, processes, values: Values::of(200..=500) }
    }

    fn key(&self, number: u64) -> RecordKey {
        let (process, turn) = (number % self.processes, number / self.processes);
        RecordKey::new(format_args!("put{process:05}_{turn:010}"))
    }

    fn value(&self, number: u64) -> &[u8] {
        self.values.get(number)
    }

    /// The numbers of a process's entries.
    fn of_process(&self, process: u64) -> impl Iterator<Item = u64> + use<> {
        (process..self.count).step_by(self.processes as usize)
    }

    /// Reports the metrics, and checks that every entry is in the store.
    fn report(&self, puts: &RoleStats, wall: Duration, engine: &impl Engine) -> Measured {
        let mut outcome = Outcome::default();
        outcome.metric("wall_s", wall.as_secs_f64());
        puts.report(&mut outcome, "put");
        let mut due = (0..self.processes).flat_map(|process| self.of_process(process));
        let mut wrong = 0;
        let rows = engine.reader(View::Latest)?.scan(b"put", u64::MAX, |key, value| {
            let right =
                due.next().is_some_and(|due| *self.key(due) == *key && self.value(due) == value);
            wrong += u64::from(!right);
        })?;
        outcome.check("completed puts", puts.attempts, self.count);
        outcome.check("entries at the end", rows, self.count);
        outcome.check("wrong entries at the end", wrong, 0);
        Ok(outcome)
    }
}

/// Runs the workload on a store that leaves batching to its users, in a single thread.
fn measure<E: Engine>(settings: &Settings) -> Measured {
    let directory = Directory::make(settings)?;
    let engine = E::open(directory.path(), OpenOptions::of(settings))?;
    let entries = Entries::of(settings);
    let mut puts = RoleStats::new()?;
    let mut batch = Vec::new();
    let begun = Instant::now();
    let mut next = 0;
    while next < entries.count {
        let end = next.saturating_add(settings.get("batch")).min(entries.count);
        let clock = Instant::now();
        batch.clear();
        batch.extend((next..end).map(|number| (entries.key(number), entries.value(number))));
        batch.sort_unstable_by_key(|entry| entry.0);
        engine.commit(&batch)?;
        puts.record_many(clock.elapsed(), end - next);
        puts.attempts += end - next;
        next = end;
    }
    let wall = begun.elapsed();
    puts.time = wall;
    entries.report(&puts, wall, &engine)
}
