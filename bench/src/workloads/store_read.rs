//! Shared parts of `store-get` and `store-scan`: the entries they read, the reading threads, and
//! the concurrent writing threads.

use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use super::records::{Key as RecordKey, RoleStats, Values, rate};
use crate::settings::Settings;
use crate::stores::writers::{Committer, with_committer};
use crate::stores::{Directory, Engine, OpenOptions};

/// The entries that are read: 200 to 500 bytes each, with even numbers.
pub(super) struct Entries {
    pub(super) count: u64,
    values: Values,
}

impl Entries {
    pub(super) fn key(&self, number: u64) -> RecordKey {
        RecordKey::numbered(b"get", number)
    }

    pub(super) fn value(&self, number: u64) -> &[u8] {
        self.values.get(number)
    }

    pub(super) fn numbers(&self) -> impl Iterator<Item = u64> + use<> {
        (0..self.count).map(|index| 2 * index)
    }

    fn load(&self, engine: &impl Engine) -> io::Result<()> {
        let mut batch = Vec::new();
        for number in self.numbers() {
            batch.push((self.key(number), self.value(number)));
            if batch.len() == 1_000 {
                engine.commit(&batch)?;
                batch.clear();
            }
        }
        if batch.is_empty() { Ok(()) } else { engine.commit(&batch) }
    }
}

pub(super) struct Read<R> {
    pub(super) results: Vec<R>,
    /// Time from the start of the first reading thread to the end of the last.
    pub(super) wall: Duration,
    /// The writers' rate during that time.
    pub(super) puts_per_second: f64,
}

/// Loads the entries and runs `read`, with the number of the thread, on as many threads as there
/// are workers, concurrently with the writing threads.
pub(super) fn on_threads<E: Engine, R: Send>(
    settings: &Settings,
    read: impl Fn(&E, &Entries, u64) -> io::Result<R> + Sync,
) -> io::Result<Read<R>> {
    let directory = Directory::make(settings)?;
    let engine = E::open(directory.path(), OpenOptions::of(settings))?;
    let entries = Entries { count: settings.count, values: Values::of(200..=500) };
    entries.load(&engine)?;
    thread::sleep(Duration::from_secs(settings.get("rest")));
    let (writers, pace) = (settings.get("writers"), settings.get("pace"));
    let interval = (pace > 0).then(|| Duration::from_secs(writers).div_f64(pace as f64));
    with_committer(&engine, writers as usize, |committer| {
        let (stop, puts) = (AtomicBool::new(false), AtomicU64::new(0));
        thread::scope(|scope| {
            let (stop, puts, entries, engine, read) = (&stop, &puts, &entries, &engine, &read);
            let writing: Vec<_> = (0..writers)
                .map(|writer| {
                    scope.spawn(move || write(committer, writer, interval, entries, stop, puts))
                })
                .collect();
            let (begun, puts_before) = (Instant::now(), puts.load(Ordering::Relaxed));
            let reading: Vec<_> = (0..settings.workers as u64)
                .map(|reader| scope.spawn(move || read(engine, entries, reader)))
                .collect();
            let results: io::Result<Vec<R>> = reading
                .into_iter()
                .map(|thread| thread.join().unwrap_or_else(|_| Err(panicked())))
                .collect();
            let wall = begun.elapsed();
            let puts = puts.load(Ordering::Relaxed) - puts_before;
            stop.store(true, Ordering::Relaxed);
            for thread in writing {
                thread.join().unwrap_or_else(|_| Err(panicked()))?;
            }
            Ok(Read { results: results?, wall, puts_per_second: rate(puts, wall) })
        })
    })
}

/// Puts in a loop until `stop` is set, at the given interval or without pauses.
fn write<E: Engine>(
    committer: &Committer<'_, E>,
    writer: u64,
    interval: Option<Duration>,
    entries: &Entries,
    stop: &AtomicBool,
    puts: &AtomicU64,
) -> io::Result<()> {
    let mut writer_handle = committer.writer_handle(writer as usize, 1);
    let mut role = RoleStats::new()?;
    // A key has ten digits: room for a hundred writers.
    let mut number = writer * 100_000_000;
    while !stop.load(Ordering::Relaxed) {
        let begun = Instant::now();
        let value = entries.value(number).to_vec();
        writer_handle.put(RecordKey::numbered(b"put", number), value, &mut role)?;
        puts.fetch_add(1, Ordering::Relaxed);
        number += 1;
        if let Some(rest) = interval.and_then(|interval| interval.checked_sub(begun.elapsed())) {
            thread::sleep(rest);
        }
    }
    Ok(())
}

fn panicked() -> io::Error {
    io::Error::other("a thread panicked")
}
