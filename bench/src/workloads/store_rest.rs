//! `store-rest`: many small entries, loaded in order or at random, and their cost in disk and memory at rest.
//!
//! ```text
//! load N in batches │ update × U at random │ memory, disk │ get × M at random
//! ├───── loads_per_s┤                                     ├───────── gets_per_s
//! ```
//!
//! - Each transaction is sorted; with `order=random` its keys are drawn from all that are left.
//! - A key has ten bytes, and a value has sixteen bytes of random bits, which do not compress.
//! - Anonymous memory is the program's own; the system can reclaim cached pages of the data file at
//!   any time. The peak is the largest of about two hundred samples per second.

use std::collections::BTreeSet;
use std::io;
use std::time::Instant;

use super::prelude::*;
use super::records::{Key as RecordKey, Random, RoleStats, rate, scattered, shuffled};
use crate::stores::{Directory, Engine, Fjall, Heed, OpenOptions, Read, Redb, Throng, View};

pub(crate) fn run(row: &str, settings: &Settings) -> Measured {
    match row {
        "throng" => measure::<Throng>(settings),
        "heed" => measure::<Heed>(settings),
        "redb" => measure::<Redb>(settings),
        "fjall" => measure::<Fjall>(settings),
        _ => Err(runtimes::no_row(row)),
    }
}

/// The entry of a number, whose value changes with its updates.
fn entry(number: u64, updates: u8) -> (RecordKey, [u8; 16]) {
    let (one, two) = (scattered(number), scattered(!number).wrapping_add(updates.into()));
    let value = (u128::from(one) << 64 | u128::from(two)).to_le_bytes();
    (RecordKey::numbered(b"", number), value)
}

/// The numbers of the entries, and how often each has been updated.
struct Entries {
    count: u64,
    batch: usize,
    /// Empty before the first update.
    updates: Vec<u8>,
}

impl Entries {
    fn entry(&self, number: u64) -> (RecordKey, [u8; 16]) {
        entry(number, self.updates.get(number as usize).copied().unwrap_or(0))
    }

    fn put(&self, engine: &impl Engine, numbers: &mut [u64]) -> io::Result<()> {
        numbers.sort_unstable();
        let entries: Vec<_> = numbers.iter().map(|number| self.entry(*number)).collect();
        engine.commit(&entries)
    }

    fn load(&self, engine: &impl Engine, is_random: bool) -> io::Result<()> {
        if is_random {
            let mut numbers = shuffled(self.count);
            return numbers.chunks_mut(self.batch).try_for_each(|batch| self.put(engine, batch));
        }
        let mut next = 0;
        while next < self.count {
            let end = next.saturating_add(self.batch as u64).min(self.count);
            self.put(engine, &mut (next..end).collect::<Vec<_>>())?;
            next = end;
        }
        Ok(())
    }

    /// Updates a number of random entries, each at most once in a transaction.
    fn update(&mut self, engine: &impl Engine, updates: u64) -> io::Result<()> {
        // The number fits, because the entries have been loaded.
        self.updates = vec![0; self.count as usize];
        let (mut random, mut left) = (Random::new(2), updates);
        while left > 0 {
            let mut batch = BTreeSet::new();
            while left > 0 && batch.len() < self.batch.min(self.count as usize) {
                left -= u64::from(batch.insert(random.below(self.count)));
            }
            for number in &batch {
                let updates = &mut self.updates[*number as usize];
                *updates = updates.wrapping_add(1);
            }
            self.put(engine, &mut batch.into_iter().collect::<Vec<_>>())?;
        }
        Ok(())
    }
}

fn measure<E: Engine>(settings: &Settings) -> Measured {
    let directory = Directory::make(settings)?;
    let engine = E::open(directory.path(), OpenOptions::of(settings))?;
    let batch = usize::try_from(settings.get("batch").max(1)).unwrap_or(usize::MAX);
    let mut entries = Entries { count: settings.count, batch, updates: Vec::new() };
    let begun = Instant::now();
    let is_random = settings.word("order") == "random";
    let ((), peak) = memory::with_anonymous_peak(|| entries.load(&engine, is_random))?;
    let loaded = begun.elapsed();
    if settings.get("updates") > 0 {
        entries.update(&engine, settings.get("updates"))?;
    }
    let (anonymous, disk) = (memory::anonymous_bytes()?, directory.disk_bytes()?);

    let mut gets = RoleStats::new()?;
    let mut random = Random::new(1);
    let mut reader = engine.reader(View::Frozen)?;
    let getting = Instant::now();
    for _ in 0..settings.get("gets") {
        let (key, due) = entries.entry(random.below(settings.count));
        let clock = Instant::now();
        let right = reader.get(&key, |value| value == Some(&due))?;
        gets.record(clock.elapsed());
        gets.wrong += u64::from(!right);
        gets.attempts += 1;
    }
    gets.time = getting.elapsed();

    let mut outcome = Outcome::default();
    outcome.metric("wall_s", begun.elapsed().as_secs_f64());
    outcome.metric("loads_per_s", rate(settings.count, loaded));
    outcome.metric("bytes_per_entry", disk as f64 / settings.count as f64);
    outcome.metric("anonymous_bytes", anonymous as f64);
    outcome.metric("anonymous_peak_bytes", peak as f64);
    gets.report(&mut outcome, "get");
    outcome.check("wrong gets", gets.wrong, 0);
    let rows = reader.scan(b"0", u64::MAX, |_, _| ())?;
    outcome.check("entries at the end", rows, settings.count);
    Ok(outcome)
}
