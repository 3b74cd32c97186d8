//! `store-mega`: elmdb's benchmark of many processes. 16 writers, 20 readers and 8 listers share a
//! store, which is loaded beforehand with four times as many entries as each writer puts.
//!
//! ```text
//! load │ 16 × put × N                                      │ check everything
//!      │ 20 × get × N, a pause each 5,000 │                │
//!      │ 8 × 5 passes over ≤ 2N/5 rows │                   │
//!      ├──────────────────────────────────────── wall_s ───┤
//! ```
//!
//! - The keys, the requested keys and the listers' starting points scale with N as the original's
//!   do with its 250,000. The original's values are longer than it states, because it computes the
//!   length of the padding wrongly; the values here are as long as the original's.
//! - A writer puts an entry and waits for it before the next, unless `inflight` is above 1.
//! - The rates `original_…` use the original's formulas: each role's work divided by the wall time
//!   of all three roles, counting only the hits among the gets. The other rates divide a role's
//!   attempts by its own time.
//! - `values=premade` takes the generation of random values out of the writers' time; with
//!   `roles=whole` readers and listers continue until the writers are done.
//! - Every hit and row is checked as it is read, and so is every miss of a key that is certain to
//!   exist or to be absent. Every entry is checked at the end.

mod threads;
mod throng;

use std::io;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use super::prelude::*;
use super::records::{Key as RecordKey, Random, RoleStats, Values, rate, scattered};
use crate::stores::{Directory, Engine, Fjall, Heed, OpenOptions, Read, Redb, View};

pub(crate) fn run(row: &str, settings: &Settings) -> Measured {
    match row {
        "throng" => throng::run(settings),
        "heed" => threads::run::<Heed>(settings),
        "redb" => threads::run::<Redb>(settings),
        "fjall" => threads::run::<Fjall>(settings),
        _ => Err(runtimes::no_row(row)),
    }
}

pub(crate) const WRITERS: u64 = 16;
pub(crate) const READERS: u64 = 20;
pub(crate) const LISTERS: u64 = 8;
const PASSES: u64 = 5;

/// Number of gets after which a reader pauses for one to three milliseconds.
const GETS_BETWEEN_PAUSES: u64 = 5_000;

/// Number of gets per timed get, so that few gets pay for reading the clock. Odd, so that all four
/// kinds of get are sampled.
const GETS_PER_SAMPLE: u64 = 7;

/// Distance between the first numbers of two writers' keys: writer w starts at w times this.
const WRITER_STRIDE: u64 = 10_000_000;

#[derive(Clone, Copy)]
struct Plan {
    count: u64,
    inflight: u64,
    premade: bool,
    whole: bool,
}

impl Plan {
    fn of(settings: &Settings) -> Plan {
        Plan {
            count: settings.count,
            inflight: settings.get("inflight"),
            premade: settings.word("values") == "premade",
            whole: settings.word("roles") == "whole",
        }
    }

    fn loaded(&self) -> u64 {
        4 * self.count
    }

    fn rows_max(&self) -> u64 {
        (self.loaded() / 10).max(1)
    }

    /// Number of the first row of a lister; listers are numbered from 1.
    fn listed_from(&self, lister: u64) -> u64 {
        (lister * self.loaded() / LISTERS).max(1)
    }

    /// The key and its number of a reader's `n`th get, counted from 1, and whether the key must
    /// exist (`Some(true)`), cannot exist (`Some(false)`) or may exist (`None`).
    fn asked(&self, n: u64) -> (RecordKey, u64, Option<bool>) {
        match n % 4 {
            0 => (loaded_key(n + 1), n + 1, Some(true)),
            1 => {
                let number = WRITER_STRIDE + n % self.count + 1;
                (writer_key(1, number), number, None)
            }
            2 => {
                let writer = 2 + n % (WRITERS - 1);
                let number = writer * WRITER_STRIDE + n % self.rows_max() + 1;
                (writer_key(writer, number), number, None)
            }
            _ => (RecordKey::new(format_args!("random_key{n:010}")), n, Some(false)),
        }
    }
}

fn loaded_key(number: u64) -> RecordKey {
    RecordKey::new(format_args!("key{number:010}"))
}

fn writer_key(writer: u64, number: u64) -> RecordKey {
    RecordKey::new(format_args!("mega_w{writer}_key{number:010}"))
}

struct Maker {
    random: Random,
    premade: Option<Values>,
}

/// Average number of bytes by which the original's values exceed their stated length.
const EXCESS_BYTES: u64 = 30;

impl Maker {
    fn new(seed: u64, premade: bool) -> Maker {
        let premade = premade.then(|| Values::of(500..=500));
        Maker { random: Random::new(seed), premade }
    }

    /// Makes the value of a number, which contains the number, of about `nominal` bytes.
    fn make(&mut self, number: u64, nominal: u64) -> Vec<u8> {
        let bytes = (nominal + EXCESS_BYTES) as usize;
        let mut value = Vec::with_capacity(bytes);
        if let Some(premade) = &self.premade {
            value.extend_from_slice(format!("val{number}_").as_bytes());
            let rest = bytes - value.len();
            value.extend(premade.get(number).iter().cycle().take(rest));
            return value;
        }
        let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_nanos());
        let random = self.random.below(1_000_000) + 1;
        value.extend_from_slice(format!("val{number}_ts{now}_rnd{random}").as_bytes());
        while value.len() < bytes {
            for byte in self.random.next().to_le_bytes() {
                value.push(b'A' + ((u16::from(byte) * 26) >> 8) as u8);
            }
        }
        value.truncate(bytes);
        value
    }
}

/// Whether a value belongs to a number.
fn is_value(number: u64, value: &[u8]) -> bool {
    let Some(rest) = value.strip_prefix(b"val") else { return false };
    let digits = rest.iter().take_while(|byte| byte.is_ascii_digit());
    let found = digits.fold(0u64, |sum, digit| sum.wrapping_mul(10) + u64::from(digit - b'0'));
    found == number && value.len() > 150
}

/// A writer's entries; writers are numbered from 1.
struct WriterEntries {
    writer: u64,
    maker: Maker,
}

impl WriterEntries {
    fn new(plan: Plan, writer: u64) -> WriterEntries {
        WriterEntries { writer, maker: Maker::new(writer, plan.premade) }
    }

    /// Makes the writer's `n`th entry, counted from 1.
    fn entry(&mut self, n: u64) -> (RecordKey, Vec<u8>) {
        let number = self.writer * WRITER_STRIDE + n;
        (writer_key(self.writer, number), self.maker.make(number, 200 + n % 300))
    }
}

struct Reading {
    plan: Plan,
    n: u64,
    hits: RoleStats,
    misses: RoleStats,
    random: Random,
}

impl Reading {
    fn new(plan: Plan, reader: u64) -> io::Result<Reading> {
        let random = Random::new(100 + reader);
        Ok(Reading { plan, n: 0, hits: RoleStats::new()?, misses: RoleStats::new()?, random })
    }

    /// Makes the next get and checks its result.
    fn get(&mut self, reader: &mut impl Read) -> io::Result<()> {
        self.n = self.n % self.plan.count + 1;
        let (key, number, due) = self.plan.asked(self.n);
        let attempts = self.hits.attempts + self.misses.attempts;
        let clock = attempts.is_multiple_of(GETS_PER_SAMPLE).then(Instant::now);
        let found = reader.get(&key, |value| value.map(|value| is_value(number, value)))?;
        let role = if found.is_some() { &mut self.hits } else { &mut self.misses };
        if let Some(clock) = clock {
            role.record(clock.elapsed());
        }
        role.attempts += 1;
        role.wrong +=
            u64::from(found == Some(false) || due.is_some_and(|due| due != found.is_some()));
        Ok(())
    }

    fn is_done(&self) -> bool {
        self.n == self.plan.count
    }

    /// The length of the pause after the latest get, if the reader pauses.
    fn pause(&mut self) -> Option<Duration> {
        let pauses = self.n.is_multiple_of(GETS_BETWEEN_PAUSES);
        pauses.then(|| Duration::from_millis(1 + self.random.below(3)))
    }
}

struct Listing {
    plan: Plan,
    lister: u64,
    passes: u64,
    rows: RoleStats,
}

impl Listing {
    fn new(plan: Plan, lister: u64) -> io::Result<Listing> {
        Ok(Listing { plan, lister, passes: 0, rows: RoleStats::new()? })
    }

    fn pass(&mut self, reader: &mut impl Read) -> io::Result<()> {
        let mut pass = self.begin_pass();
        while self.go_on(&mut pass, reader, u64::MAX)? {}
        Ok(())
    }

    fn begin_pass(&self) -> Pass {
        let number = self.plan.listed_from(self.lister);
        let (rows, wrong, last) = (0, 0, None);
        Pass { from: loaded_key(number).to_vec(), number, rows, wrong, last, clock: Instant::now() }
    }

    /// Reads the next rows of the pass, at most `rows`; returns whether there may be more.
    fn go_on(&mut self, pass: &mut Pass, reader: &mut impl Read, rows: u64) -> io::Result<bool> {
        let most = self.plan.rows_max();
        let limit = rows.min(most - pass.rows);
        let Pass { from, number, wrong, last, .. } = pass;
        let found = reader.scan(&from.clone(), limit, |key, value| {
            // The loaded rows have consecutive numbers. The writers' rows come after them; their
            // keys only have to ascend.
            if *number <= self.plan.loaded() {
                *wrong += u64::from(*key != *loaded_key(*number) || !is_value(*number, value));
                *number += 1;
            } else {
                let key_now = RecordKey::new(format_args!("{}", String::from_utf8_lossy(key)));
                *wrong += u64::from(last.is_some_and(|last| last >= key_now));
                *last = Some(key_now);
            }
            from.clear();
            from.extend_from_slice(key);
        })?;
        // The smallest key above the last key read.
        from.push(0);
        pass.rows += found;
        if found == limit && pass.rows < most {
            return Ok(true);
        }
        self.rows.record(pass.clock.elapsed());
        let least = most.min(self.plan.loaded() - self.plan.listed_from(self.lister) + 1);
        self.rows.wrong += pass.wrong + u64::from(pass.rows < least);
        self.rows.attempts += pass.rows;
        self.passes += 1;
        Ok(false)
    }

    fn is_done(&self) -> bool {
        self.passes >= PASSES
    }
}

struct Pass {
    /// The key from which the pass continues.
    from: Vec<u8>,
    /// Number of the next loaded row; beyond the loaded rows once all have been read.
    number: u64,
    rows: u64,
    wrong: u64,
    /// The last key read that a writer put.
    last: Option<RecordKey>,
    clock: Instant,
}

struct StatsByRole {
    puts: RoleStats,
    hits: RoleStats,
    misses: RoleStats,
    rows: RoleStats,
    passes: u64,
    wall: Duration,
}

impl StatsByRole {
    fn new() -> io::Result<StatsByRole> {
        let role = RoleStats::new;
        let (wall, passes) = (Duration::ZERO, 0);
        Ok(StatsByRole {
            puts: role()?,
            hits: role()?,
            misses: role()?,
            rows: role()?,
            passes,
            wall,
        })
    }

    fn add_reading(&mut self, reading: &Reading) -> io::Result<()> {
        self.hits.merge(&reading.hits)?;
        self.misses.merge(&reading.misses)
    }

    fn add_listing(&mut self, listing: &Listing) -> io::Result<()> {
        self.passes += listing.passes;
        self.rows.merge(&listing.rows)
    }

    fn report(&self, plan: Plan, engine: &impl Engine) -> Measured {
        let mut outcome = Outcome::default();
        let gets = self.hits.attempts + self.misses.attempts;
        let time = self.hits.time.max(self.misses.time);
        outcome.metric("wall_s", self.wall.as_secs_f64());
        self.puts.report(&mut outcome, "put");
        outcome.metric("gets_per_s", rate(gets, time));
        outcome.metric("hits_per_s", rate(self.hits.attempts, time));
        outcome.metric("misses_per_s", rate(self.misses.attempts, time));
        self.hits.report_percentiles(&mut outcome, "hit");
        self.misses.report_percentiles(&mut outcome, "miss");
        outcome.metric("rows_per_s", self.rows.per_second());
        self.rows.report_percentiles(&mut outcome, "pass");
        let original = [
            ("puts", self.puts.attempts),
            ("gets", self.hits.attempts),
            ("rows", self.rows.attempts),
            ("combined", self.puts.attempts + self.hits.attempts + self.rows.attempts),
        ];
        for (name, times) in original {
            outcome.metric(&format!("original_{name}_per_s"), rate(times, self.wall));
        }
        outcome.check("completed puts", self.puts.attempts, WRITERS * plan.count);
        outcome.check("wrong hits", self.hits.wrong, 0);
        outcome.check("wrong misses", self.misses.wrong, 0);
        outcome.check("wrong rows", self.rows.wrong, 0);
        if !plan.whole {
            outcome.check("completed gets", gets, READERS * plan.count);
            outcome.check("completed passes", self.passes, LISTERS * PASSES);
        }
        let (rows, wrong) = check_all(plan, engine)?;
        outcome.check("entries at the end", rows, plan.loaded() + WRITERS * plan.count);
        outcome.check("wrong entries at the end", wrong, 0);
        Ok(outcome)
    }
}

fn load(plan: Plan, engine: &impl Engine) -> io::Result<()> {
    const BATCH: u64 = 1_000;
    let mut maker = Maker::new(scattered(0), plan.premade);
    let mut batch = Vec::new();
    for number in 1..=plan.loaded() {
        batch.push((loaded_key(number), maker.make(number, 150)));
        if number.is_multiple_of(BATCH) || number == plan.loaded() {
            engine.commit(&batch)?;
            batch.clear();
        }
    }
    Ok(())
}

/// Reads all entries; returns the number of entries and the number of wrong entries.
fn check_all(plan: Plan, engine: &impl Engine) -> io::Result<(u64, u64)> {
    let mut writers: Vec<u64> = (1..=WRITERS).collect();
    writers.sort_by_key(|&writer| writer_key(writer, 0));
    let loaded = (1..=plan.loaded()).map(|number| (loaded_key(number), number));
    let written = writers.into_iter().flat_map(|writer| {
        (1..=plan.count).map(move |n| {
            let number = writer * WRITER_STRIDE + n;
            (writer_key(writer, number), number)
        })
    });
    let mut due = loaded.chain(written);
    let mut wrong = 0;
    let rows = engine.reader(View::Latest)?.scan(b"key", u64::MAX, |key, value| {
        let right = due.next().is_some_and(|(due, number)| *due == *key && is_value(number, value));
        wrong += u64::from(!right);
    })?;
    Ok((rows, wrong))
}

/// Opens a store in a new directory and loads it.
fn prepare<E: Engine>(
    settings: &Settings,
    open: impl FnOnce(&Directory, OpenOptions) -> io::Result<E>,
) -> io::Result<(Directory, E)> {
    let directory = Directory::make(settings)?;
    let engine = open(&directory, OpenOptions::of(settings))?;
    load(Plan::of(settings), &engine)?;
    Ok((directory, engine))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_belongs_to_its_number_and_no_other() {
        for premade in [false, true] {
            let mut maker = Maker::new(1, premade);
            let value = maker.make(160_000_017, 200);
            assert_eq!(value.len(), 230);
            assert!(is_value(160_000_017, &value));
            assert!(!is_value(160_000_018, &value));
            assert!(!is_value(160_000_017, &value[1..]));
        }
    }

    #[test]
    fn at_the_original_size_the_keys_are_the_originals() {
        let plan = Plan { count: 250_000, inflight: 1, premade: false, whole: false };
        assert_eq!(&*plan.asked(4).0, b"key0000000005");
        assert_eq!(&*plan.asked(250_000 - 3).0, b"mega_w1_key0010249998");
        assert_eq!(&*plan.asked(2).0, b"mega_w4_key0040000003");
        assert_eq!(&*plan.asked(7).0, b"random_key0000000007");
        assert_eq!((plan.loaded(), plan.rows_max()), (1_000_000, 100_000));
        assert_eq!((plan.listed_from(1), plan.listed_from(8)), (125_000, 1_000_000));
    }
}
