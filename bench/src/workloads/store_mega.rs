//! `store-mega`: the benchmark of elmdb's many processes. 16 writers, 20 readers and 8 listers share
//! one store, into which four times as many entries as each writer puts were loaded before.
//!
//! ```text
//! load │ 16 × put × N                                      │ check everything
//!      │ 20 × get × N, a pause each 5,000 │                │
//!      │ 8 × 5 passes over ≤ 2N/5 rows │                   │
//!      ├──────────────────────────────────────── wall_s ───┤
//! ```
//!
//! - Sizes follow from N as the original's do from its 250,000: keys, what is asked, where listers
//!   begin. Its values are longer than it says, for it pads them by a length that it takes wrongly;
//!   ours are as long as its.
//! - A writer puts one entry at a time, and waits for it, unless `inflight` says otherwise.
//! - The rates `original_…` are by its formulas: each role's work, and of the gets only the hits, by
//!   the wall clock of all three. The others are attempts by the role's own time.
//! - `values=premade` takes the making of random values out of the writers' time; `roles=whole` lets
//!   readers and listers go on until the writers are done.
//! - Every hit, row and rate of misses is checked as it comes, and in the end every entry.

mod threads;
mod throng;

use std::io;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use super::Workload;
use super::records::{Key as RecordKey, Random, RoleStats, Values, rate, scattered};
use crate::outcome::Outcome;
use crate::settings::{Key, Kind, Settings};
use crate::stores::{self, Directory, Engine, Fjall, Heed, OpenOptions, Read, Redb, View};

pub(crate) const WORKLOAD: Workload = Workload {
    name: "store-mega",
    about: "16 writers, 20 readers and 8 listers share a store, each result checked",
    counts: "puts of each writer, and gets of each reader",
    count: 250_000,
    keys: &[
        Key {
            name: "durability",
            kind: Kind::Word(&["volatile", "durable"]),
            about: "whether a put that is done is with the operating system, or on the disk",
        },
        Key {
            name: "values",
            kind: Kind::Word(&["random", "premade"]),
            about: "whether a writer makes each value as it goes, letter by letter",
        },
        Key {
            name: "roles",
            kind: Kind::Word(&["once", "whole"]),
            about: "whether readers and listers do their share, or go on as long as writers do",
        },
        Key {
            name: "inflight",
            kind: Kind::Number(1),
            about: "how many puts of one writer may be under way",
        },
        stores::CHECKSUMS,
        stores::MAP,
        Directory::KEY,
    ],
    metrics: "wall_s puts_per_s put_p50_ns put_p99_ns put_p999_ns gets_per_s hits_per_s \
              misses_per_s hit_p50_ns hit_p99_ns hit_p999_ns miss_p50_ns miss_p99_ns \
              miss_p999_ns rows_per_s pass_p50_ns pass_p99_ns pass_p999_ns \
              original_puts_per_s original_gets_per_s original_rows_per_s \
              original_combined_per_s",
    peers: &[
        stores::peer("throng", env!("VERSION_THRONG"), throng::run).knowing(stores::MAPPED_WORDS),
        stores::peer("heed", env!("VERSION_HEED"), threads::run::<Heed>)
            .knowing(stores::MAPPED_WORDS),
        stores::peer("redb", env!("VERSION_REDB"), threads::run::<Redb>),
        stores::peer("fjall", env!("VERSION_FJALL"), threads::run::<Fjall>),
    ],
};

const WRITERS: u64 = 16;
const READERS: u64 = 20;
const LISTERS: u64 = 8;
const PASSES: u64 = 5;

/// A reader pauses for one to three milliseconds after so many gets.
const GETS_BETWEEN_PAUSES: u64 = 5_000;

/// One get in so many is timed by itself, so that reading the clock burdens few; odd, so that each
/// of the four kinds has its turn.
const GETS_PER_SAMPLE: u64 = 7;

/// Writers' keys have numbers from this times their number on.
const WRITER_STRIDE: u64 = 10_000_000;

/// What the settings come to.
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

    /// Where the lister of that number, from 1 on, begins.
    fn listed_from(&self, lister: u64) -> u64 {
        (lister * self.loaded() / LISTERS).max(1)
    }

    /// What a reader asks for at its `n`th get, from 1 on, and whether it must, or cannot, be there.
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

/// Makes values.
struct Maker {
    random: Random,
    premade: Option<Values>,
}

/// What the original's values are longer than it says, on average.
const OVERLONG: u64 = 30;

impl Maker {
    fn new(seed: u64, premade: bool) -> Maker {
        let premade = premade.then(|| Values::of(500..=500));
        Maker { random: Random::new(seed), premade }
    }

    /// The value of that number, which says so, of about so many bytes.
    fn make(&mut self, number: u64, nominal: u64) -> Vec<u8> {
        let bytes = (nominal + OVERLONG) as usize;
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

/// Whether this is a value of that number.
fn is_value(number: u64, value: &[u8]) -> bool {
    let Some(rest) = value.strip_prefix(b"val") else { return false };
    let digits = rest.iter().take_while(|byte| byte.is_ascii_digit());
    let found = digits.fold(0u64, |sum, digit| sum.wrapping_mul(10) + u64::from(digit - b'0'));
    found == number && value.len() > 150
}

/// What a writer, from 1 on, puts.
struct Writing {
    writer: u64,
    maker: Maker,
}

impl Writing {
    fn new(plan: Plan, writer: u64) -> Writing {
        Writing { writer, maker: Maker::new(writer, plan.premade) }
    }

    /// What it puts as its `n`th, from 1 on.
    fn entry(&mut self, n: u64) -> (RecordKey, Vec<u8>) {
        let number = self.writer * WRITER_STRIDE + n;
        (writer_key(self.writer, number), self.maker.make(number, 200 + n % 300))
    }
}

/// A reader under way.
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

    /// Gets once.
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

    /// Whether its share is done.
    fn is_done(&self) -> bool {
        self.n == self.plan.count
    }

    /// For how long it now pauses, if it does.
    fn pause(&mut self) -> Option<Duration> {
        let pauses = self.n.is_multiple_of(GETS_BETWEEN_PAUSES);
        pauses.then(|| Duration::from_millis(1 + self.random.below(3)))
    }
}

/// A lister under way.
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

    /// Goes once over its rows.
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

    /// Goes over the next rows of the pass, so many at most; whether there may be more.
    fn go_on(&mut self, pass: &mut Pass, reader: &mut impl Read, rows: u64) -> io::Result<bool> {
        let most = self.plan.rows_max();
        let limit = rows.min(most - pass.rows);
        let Pass { from, number, wrong, last, .. } = pass;
        let found = reader.scan(&from.clone(), limit, |key, value| {
            // As long as there are loaded ones, each follows on the one before; behind them the
            // writers' come, which follow each other in some order.
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
        // The next one behind that key.
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

/// A lister's pass under way.
struct Pass {
    /// The key that it goes on from.
    from: Vec<u8>,
    /// Of the loaded row that comes next, as long as there is one.
    number: u64,
    rows: u64,
    wrong: u64,
    /// The last key that was not loaded.
    last: Option<RecordKey>,
    clock: Instant,
}

/// What all three roles came to.
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

    fn report(&self, plan: Plan, engine: &impl Engine) -> io::Result<Outcome> {
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
        outcome.check("puts that were done", self.puts.attempts, WRITERS * plan.count);
        outcome.check("wrong hits", self.hits.wrong, 0);
        outcome.check("wrong misses", self.misses.wrong, 0);
        outcome.check("wrong rows", self.rows.wrong, 0);
        if !plan.whole {
            outcome.check("gets that were done", gets, READERS * plan.count);
            outcome.check("passes that were done", self.passes, LISTERS * PASSES);
        }
        let (rows, wrong) = check_all(plan, engine)?;
        outcome.check("entries in the end", rows, plan.loaded() + WRITERS * plan.count);
        outcome.check("wrong entries in the end", wrong, 0);
        Ok(outcome)
    }
}

/// Loads what is there before the clock starts.
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

/// Reads everything; how many entries there are, and how many are not what they should be.
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

/// The store, loaded.
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
    fn a_value_says_its_number_and_no_other() {
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
    fn at_the_original_size_the_original_is_asked() {
        let plan = Plan { count: 250_000, inflight: 1, premade: false, whole: false };
        assert_eq!(&*plan.asked(4).0, b"key0000000005");
        assert_eq!(&*plan.asked(250_000 - 3).0, b"mega_w1_key0010249998");
        assert_eq!(&*plan.asked(2).0, b"mega_w4_key0040000003");
        assert_eq!(&*plan.asked(7).0, b"random_key0000000007");
        assert_eq!((plan.loaded(), plan.rows_max()), (1_000_000, 100_000));
        assert_eq!((plan.listed_from(1), plan.listed_from(8)), (125_000, 1_000_000));
    }
}
