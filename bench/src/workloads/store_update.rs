//! `store-update`: single puts of random keys over many that exist, and what they cost on the disk.
//!
//! ```text
//! load K in order │ put × N at random, `inflight` in flight │ check all
//!                 ├────────────────────────────────── wall_s┤
//! ```
//!
//! - A key has ten bytes, and a value has sixteen: the key's number and the number of the put.
//! - throng has a put for each ticket. The other stores have no groups of their own: a thread sorts
//!   `inflight` puts and commits them in a transaction. A put's latency lasts from its submission, or from
//!   the beginning of its transaction, until it is as durable as the setting asks for.
//! - The bytes written per put are those that the process has caused to be sent to the disk, as the kernel
//!   counts them, from the first put until the store is closed. The bytes per entry are the disk's blocks at
//!   the end, before the store is closed.

use std::collections::VecDeque;
use std::io;
use std::time::Instant;

use bench_steps::disk;
use throng_store::{Batch, Ticket};

use super::prelude::*;
use super::records::{Key as RecordKey, Random, RoleStats};
use crate::stores::{Directory, Engine, Fjall, Heed, OpenOptions, Read, Redb, Throng, View};

pub(crate) fn run(row: &str, settings: &Settings) -> Measured {
    match row {
        "throng" => run_pipelined(settings),
        "heed" => run_batched::<Heed>(settings),
        "redb" => run_batched::<Redb>(settings),
        "fjall" => run_batched::<Fjall>(settings),
        _ => Err(runtimes::no_row(row)),
    }
}

const LOADED_AT_ONCE: usize = 10_000;

/// The entries that are due: of each key the number of its last put, or 0.
struct Expected {
    turns: Vec<u64>,
    random: Random,
    puts: u64,
}

fn entry(number: u64, turn: u64) -> (RecordKey, [u8; 16]) {
    let value = u128::from(number) << 64 | u128::from(turn);
    (RecordKey::numbered(b"", number), value.to_le_bytes())
}

impl Expected {
    fn of(settings: &Settings) -> Expected {
        let keys = settings.get("keys").max(1);
        // The number of keys fits, because each takes memory here and room in the store.
        Expected { turns: vec![0; keys as usize], random: Random::new(1), puts: 0 }
    }

    fn put(&mut self) -> (RecordKey, [u8; 16]) {
        let number = self.random.below(self.turns.len() as u64);
        self.puts += 1;
        self.turns[number as usize] = self.puts;
        entry(number, self.puts)
    }

    fn load(&self, engine: &impl Engine) -> io::Result<()> {
        let mut numbers = 0..self.turns.len() as u64;
        loop {
            let entries: Vec<_> =
                numbers.by_ref().take(LOADED_AT_ONCE).map(|number| entry(number, 0)).collect();
            if entries.is_empty() {
                return Ok(());
            }
            engine.commit(&entries)?;
        }
    }

    /// Reports the puts, and checks all entries.
    fn report<E: Engine>(
        self,
        puts: &RoleStats,
        written: u64,
        directory: &Directory,
        engine: E,
        settings: &Settings,
    ) -> Measured {
        let disk = directory.disk_bytes()?;
        let mut due = (0..).zip(&self.turns);
        let mut wrong = 0;
        let rows = engine.reader(View::Latest)?.scan(b"0", u64::MAX, |key, value| {
            let right = due.next().is_some_and(|(number, turn)| {
                let (due_key, due_value) = entry(number, *turn);
                *due_key == *key && due_value == value
            });
            wrong += u64::from(!right);
        })?;
        drop(engine);
        let written = disk::written_bytes("self")?.saturating_sub(written);
        let keys = self.turns.len() as u64;
        let mut outcome = Outcome::default();
        outcome.metric("wall_s", puts.time.as_secs_f64());
        puts.report(&mut outcome, "put");
        outcome.metric("written_bytes_per_put", written as f64 / settings.count.max(1) as f64);
        outcome.metric("bytes_per_entry", disk as f64 / keys as f64);
        outcome.check("completed puts", puts.attempts, settings.count);
        outcome.check("entries at the end", rows, keys);
        outcome.check("wrong entries at the end", wrong, 0);
        Ok(outcome)
    }
}

fn run_pipelined(settings: &Settings) -> Measured {
    let directory = Directory::make(settings)?;
    let inflight = settings.get("inflight").max(1);
    let engine = Throng::open_for(directory.path(), OpenOptions::of(settings), inflight)?;
    let mut expected = Expected::of(settings);
    expected.load(&engine)?;
    let written = disk::written_bytes("self")?;
    let mut puts = RoleStats::new()?;
    let mut tickets: VecDeque<(Instant, Ticket)> = VecDeque::new();
    let complete = |puts: &mut RoleStats, (begun, ticket): (Instant, Ticket)| {
        ticket.wait().map_err(io::Error::other)?;
        puts.record(begun.elapsed());
        puts.attempts += 1;
        io::Result::Ok(())
    };
    let begun = Instant::now();
    for _ in 0..settings.count {
        let (key, value) = expected.put();
        tickets.push_back((
            Instant::now(),
            engine.store.write(engine.put(Batch::new(), &key, &value)),
        ));
        if tickets.len() as u64 >= inflight
            && let Some(oldest) = tickets.pop_front()
        {
            complete(&mut puts, oldest)?;
        }
    }
    tickets.into_iter().try_for_each(|ticket| complete(&mut puts, ticket))?;
    puts.time = begun.elapsed();
    expected.report(&puts, written, &directory, engine, settings)
}

fn run_batched<E: Engine>(settings: &Settings) -> Measured {
    let directory = Directory::make(settings)?;
    let engine = E::open(directory.path(), OpenOptions::of(settings))?;
    let mut expected = Expected::of(settings);
    expected.load(&engine)?;
    let written = disk::written_bytes("self")?;
    let (mut puts, mut batch) = (RoleStats::new()?, Vec::new());
    let begun = Instant::now();
    while puts.attempts < settings.count {
        let clock = Instant::now();
        let number = settings.get("inflight").max(1).min(settings.count - puts.attempts);
        batch.clear();
        batch.extend((0..number).map(|_| expected.put()));
        // A stable sort: of several puts of a key the last one counts.
        batch.sort_by_key(|entry| entry.0);
        batch.reverse();
        batch.dedup_by_key(|entry| entry.0);
        batch.reverse();
        engine.commit(&batch)?;
        puts.record_many(clock.elapsed(), number);
        puts.attempts += number;
    }
    puts.time = begun.elapsed();
    expected.report(&puts, written, &directory, engine, settings)
}
