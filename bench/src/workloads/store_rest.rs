//! `store-rest`: many small entries, loaded in order, and their cost in disk and memory at rest.
//!
//! ```text
//! load N in batches │ memory, disk │ get × M at random
//! ├───── loads_per_s┤              ├───────── gets_per_s
//! ```
//!
//! - A key has ten bytes, and a value has sixteen bytes of random bits, which do not compress.
//! - Anonymous memory is the program's own; the system can reclaim cached pages of the data file at
//!   any time. The peak is the largest of about two hundred samples per second.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use super::Workload;
use super::records::{Key as RecordKey, Random, RoleStats, rate, scattered};
use crate::memory;
use crate::outcome::Outcome;
use crate::settings::{Key, Kind, Settings};
use crate::stores::{self, Directory, Engine, Fjall, Heed, OpenOptions, Read, Redb, Throng, View};

pub(crate) const WORKLOAD: Workload = Workload {
    name: "store-rest",
    about: "N entries (key 10 bytes, value 16 bytes) loaded in order: disk, memory, gets",
    counts: "entries",
    count: 100_000_000,
    keys: &[
        Key {
            name: "batch",
            kind: Kind::Number(10_000),
            about: "number of entries per transaction",
        },
        Key { name: "gets", kind: Kind::Number(1_000_000), about: "number of gets after the load" },
        stores::DURABILITY,
        stores::CHECKSUMS,
        Directory::KEY,
    ],
    metrics: "wall_s loads_per_s bytes_per_entry anonymous_bytes anonymous_peak_bytes \
              gets_per_s get_p50_ns get_p99_ns get_p999_ns",
    processes: Settings::sum,
    peers: &stores::peers([run::<Throng>, run::<Heed>, run::<Redb>, run::<Fjall>]),
};

/// Interval at which memory is sampled while entries are loaded.
const SAMPLE_INTERVAL: Duration = Duration::from_millis(5);

/// The entry of a number.
fn entry(number: u64) -> (RecordKey, [u8; 16]) {
    let (one, two) = (scattered(number), scattered(!number));
    let value = (u128::from(one) << 64 | u128::from(two)).to_le_bytes();
    (RecordKey::numbered(b"", number), value)
}

fn run<E: Engine>(settings: &Settings) -> io::Result<Outcome> {
    let directory = Directory::make(settings)?;
    let engine = E::open(directory.path(), OpenOptions::of(settings))?;
    let begun = Instant::now();
    let peak = with_memory_sampler(|| load(settings, &engine))?;
    let loaded = begun.elapsed();
    let (anonymous, disk) = (memory::anonymous_bytes()?, directory.disk_bytes()?);

    let mut gets = RoleStats::new()?;
    let mut random = Random::new(1);
    let mut reader = engine.reader(View::Frozen)?;
    let getting = Instant::now();
    for _ in 0..settings.get("gets") {
        let (key, due) = entry(random.below(settings.count));
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
    outcome.metric("anonymous_peak_bytes", peak.max(anonymous) as f64);
    gets.report(&mut outcome, "get");
    outcome.check("wrong gets", gets.wrong, 0);
    let rows = reader.scan(b"0", u64::MAX, |_, _| ())?;
    outcome.check("entries at the end", rows, settings.count);
    Ok(outcome)
}

fn load(settings: &Settings, engine: &impl Engine) -> io::Result<()> {
    let mut batch = Vec::new();
    let mut next = 0;
    while next < settings.count {
        let end = next.saturating_add(settings.get("batch")).min(settings.count);
        batch.clear();
        batch.extend((next..end).map(entry));
        engine.commit(&batch)?;
        next = end;
    }
    Ok(())
}

/// Runs `work` and returns the peak of anonymous memory sampled during it.
fn with_memory_sampler(work: impl FnOnce() -> io::Result<()>) -> io::Result<u64> {
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        let sampler = scope.spawn(|| {
            let mut peak = 0;
            while !done.load(Ordering::Relaxed) {
                peak = peak.max(memory::anonymous_bytes()?);
                thread::sleep(SAMPLE_INTERVAL);
            }
            Ok(peak)
        });
        let result = work();
        done.store(true, Ordering::Relaxed);
        let peak =
            sampler.join().unwrap_or_else(|_| Err(io::Error::other("the memory sampler panicked")));
        result.and(peak)
    })
}
