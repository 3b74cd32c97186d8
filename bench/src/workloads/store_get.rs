//! `store-get`: each of W threads gets random keys that exist, then random keys that do not.
//!
//! ```text
//! load │ W × ( hits: get × M, (clock, get, clock) × samples │ misses: the same )
//!      │ writers × put, in a loop                           ┊
//! ```
//!
//! - Each value is compared in full with the value that was put. The missing keys lie between the
//!   existing keys.
//! - `hits_per_s` and `misses_per_s` are rates per thread, `gets_per_s` is the rate of all threads.
//! - heed and redb use a read transaction per thread and fjall a snapshot per thread, and so do not
//!   see concurrent writes; each get of throng's reader sees all earlier commits.

use std::io;
use std::time::Instant;

use super::prelude::*;
use super::records::{Random, RoleStats, rate};
use super::store_read::{self, Entries};
use crate::stores::{Engine, Fjall, Heed, Read, Redb, Throng, View};

pub(crate) fn run(row: &str, settings: &Settings) -> Measured {
    match row {
        "throng" => measure::<Throng>(settings),
        "heed" => measure::<Heed>(settings),
        "redb" => measure::<Redb>(settings),
        "fjall" => measure::<Fjall>(settings),
        _ => Err(runtimes::no_row(row)),
    }
}

fn measure<E: Engine>(settings: &Settings) -> Measured {
    let (gets, samples) = (settings.get("gets"), settings.get("samples"));
    let read = store_read::on_threads(settings, |engine: &E, entries, thread| {
        let mut reader = engine.reader(View::Frozen)?;
        let mut getting = Getting { reader: &mut reader, entries, random: Random::new(thread) };
        // Hits first, then misses, which are the odd numbers.
        Ok([getting.all(0, gets, samples)?, getting.all(1, gets, samples)?])
    })?;

    let (mut hits, mut misses) = (RoleStats::new()?, RoleStats::new()?);
    for [of_hits, of_misses] in &read.results {
        hits.merge(of_hits)?;
        misses.merge(of_misses)?;
    }
    let threads = settings.workers as f64;
    let mut outcome = Outcome::default();
    outcome.metric("wall_s", read.wall.as_secs_f64());
    outcome.metric("gets_per_s", rate(hits.attempts + misses.attempts, hits.time + misses.time));
    outcome.metric("hits_per_s", hits.per_second() / threads);
    outcome.metric("misses_per_s", misses.per_second() / threads);
    hits.report_percentiles(&mut outcome, "hit");
    misses.report_percentiles(&mut outcome, "miss");
    outcome.metric("puts_meanwhile_per_s", read.puts_per_second);
    outcome.check("wrong hits", hits.wrong, 0);
    outcome.check("wrong misses", misses.wrong, 0);
    Ok(outcome)
}

struct Getting<'g, R> {
    reader: &'g mut R,
    entries: &'g Entries,
    random: Random,
}

impl<R: Read> Getting<'_, R> {
    /// Makes `gets` gets, then `samples` gets that are timed separately. With `odd` 0 every number
    /// is even, a hit; with `odd` 1 every number is odd, a miss.
    fn all(&mut self, odd: u64, gets: u64, samples: u64) -> io::Result<RoleStats> {
        let mut role = RoleStats::new()?;
        let clock = Instant::now();
        for _ in 0..gets {
            let number = self.pick(odd);
            role.wrong += u64::from(!self.get(number)?);
        }
        role.time = clock.elapsed();
        role.attempts = gets;
        for _ in 0..samples {
            let number = self.pick(odd);
            let clock = Instant::now();
            let right = self.get(number)?;
            role.record(clock.elapsed());
            role.wrong += u64::from(!right);
        }
        Ok(role)
    }

    fn pick(&mut self, odd: u64) -> u64 {
        2 * self.random.below(self.entries.count) + odd
    }

    /// Gets a number's entry; returns whether the result is right.
    fn get(&mut self, number: u64) -> io::Result<bool> {
        let due = number.is_multiple_of(2).then(|| self.entries.value(number));
        self.reader.get(&self.entries.key(number), |value| value == due)
    }
}
