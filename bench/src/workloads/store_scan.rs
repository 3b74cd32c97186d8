//! `store-scan`: each of W threads scans all entries in order, several times.
//!
//! - Each row is read in full: the sum over all keys and values is checked, and each key must be
//!   greater than the key before.
//! - `rows_per_s` is the rate per thread. Each pass reads a snapshot: in heed, redb and fjall the
//!   same snapshot for all passes of a thread, in throng the latest state at the start of the pass.

use std::time::Instant;

use super::prelude::*;
use super::records::RoleStats;
use super::store_read;
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
    let passes = settings.get("passes");
    let read = store_read::on_threads(settings, |engine: &E, entries, _| {
        let from = entries.key(0);
        let mut due = Sum::default();
        for number in entries.numbers() {
            due.add(&entries.key(number), entries.value(number));
        }
        let mut reader = engine.reader(View::Frozen)?;
        let mut role = RoleStats::new()?;
        for _ in 0..passes {
            let mut sum = Sum::default();
            let clock = Instant::now();
            let rows = reader.scan(&from, entries.count, |key, value| sum.add(key, value))?;
            let took = clock.elapsed();
            role.record(took);
            role.time += took;
            role.attempts += rows;
            role.wrong += u64::from(sum != due);
        }
        Ok(role)
    })?;

    let mut rows = RoleStats::new()?;
    for role in &read.results {
        rows.merge(role)?;
    }
    let threads = settings.workers as u64;
    let mut outcome = Outcome::default();
    outcome.metric("wall_s", read.wall.as_secs_f64());
    outcome.metric("rows_per_s", rows.per_second() / threads as f64);
    rows.report_percentiles(&mut outcome, "pass");
    outcome.metric("puts_meanwhile_per_s", read.puts_per_second);
    outcome.check("rows", rows.attempts, threads * passes * settings.count);
    outcome.check("passes with a wrong sum or order", rows.wrong, 0);
    Ok(outcome)
}

#[derive(Default, PartialEq, Eq)]
struct Sum {
    rows: u64,
    /// Number of rows whose key is not greater than the key before.
    disordered: u64,
    last: u64,
    bytes: u64,
}

impl Sum {
    fn add(&mut self, key: &[u8], value: &[u8]) {
        self.rows += 1;
        // The last eight digits of the number, as a word.
        let number = key.last_chunk().map_or(0, |digits| u64::from_be_bytes(*digits));
        self.disordered += u64::from(number <= self.last);
        self.last = number;
        let (words, rest) = value.as_chunks::<8>();
        let words = words.iter().map(|word| u64::from_le_bytes(*word));
        let sum = words.fold(number, u64::wrapping_add);
        let sum = rest.iter().fold(sum, |sum, byte| sum.wrapping_add(u64::from(*byte)));
        self.bytes = self.bytes.wrapping_add(sum);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sum(rows: &[(&[u8], &[u8])]) -> Sum {
        let mut sum = Sum::default();
        rows.iter().for_each(|(key, value)| sum.add(key, value));
        sum
    }

    #[test]
    fn another_byte_another_order_and_a_missing_row_change_the_sum() {
        let (one, two) = (&b"get00000001"[..], &b"get00000002"[..]);
        let rows = sum(&[(one, b"a value of a row"), (two, b"another")]);
        assert!(rows == sum(&[(one, b"a value of a row"), (two, b"another")]));
        assert!(rows != sum(&[(two, b"another"), (one, b"a value of a row")]));
        assert!(rows != sum(&[(one, b"a value of a row"), (two, b"anothes")]));
        assert!(rows != sum(&[(one, b"b value of a row"), (two, b"another")]));
        assert!(rows != sum(&[(one, b"a value of a row")]));
    }
}
