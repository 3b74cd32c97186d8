//! `activate`: calls that bring durable counters at rest into memory.
//!
//! ```text
//! child   store E
//! run             │ start │ read × N, each a counter at rest, `inflight` in flight │ stop
//!                         ├──────────────────────────────────── activations_per_s┤      │ disk_reads_per_s
//! ```
//!
//! - The counters come up in random order, each once, and then all of them again. So each call activates its
//!   counter if far fewer may be live than there are (`cap`); without a limit no counter comes up twice, and there
//!   are at most as many calls as counters. The node's own count confirms the number of activations.
//! - The memory that grows is memory that is not mapped from a file: the mean over the last tenth of the time less the
//!   mean over the first tenth. The system can reclaim the mapped pages of the data file at any time.
//! - With `cold=1` the files' pages are dropped from the system's cache before the node starts. After it has stopped
//!   they are dropped again, and as many threads as there were calls in flight read random blocks of 4 KiB
//!   of the data file for two seconds, or each block once: `disk_reads_per_s`, which is 0 otherwise. This is the limit
//!   that the disk sets to a node that reads a block per activation.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use rustix::fs::{Advice, fadvise};

use super::durable::{
    self, Acknowledged, Calls, Counters, Home, Order, ThrongHome, call_all, live_max, on_node_at,
};
use super::part;
use super::prelude::*;
use super::records::rate;
use crate::memory::{self, AnonymousSampler};
use crate::stores::{Directory, files_below};

const BLOCK_BYTES: u64 = 4_096;

const DISK_TIME: Duration = Duration::from_secs(2);

pub(crate) fn run(_: &str, settings: &Settings) -> Measured {
    let entities = settings.get("entities");
    if let Some((_, directory)) = part::own() {
        return durable::load(settings, &directory, entities);
    }
    let directory = Directory::make(settings)?;
    part::run("load", directory.path(), false)?;
    let is_cold = settings.get("cold") > 0;
    if is_cold {
        drop_cached(directory.path())?;
    }
    let inflight = settings.get("inflight");
    let live = live_max(settings, entities).min(entities);
    let processes = durable::processes(live, inflight);
    let mut outcome = on_node_at(directory.path(), settings, processes, measure)?;
    if is_cold {
        measure_disk(directory.path(), inflight, &mut outcome)?;
    } else {
        outcome.metric("disk_reads_per_s", 0.0);
    }
    Ok(outcome)
}

async fn measure(home: ThrongHome, settings: Settings) -> Measured {
    let entities = settings.get("entities");
    let acknowledged = Acknowledged::all(entities, 1).into();
    let live_max = live_max(&settings, entities);
    let mut calls = Calls { reads: 100, ..durable::calls(&settings, Order::Rounds) };
    if live_max >= entities {
        calls.count = calls.count.min(entities);
    }
    let due = calls.count;
    let counters = home.open(live_max).await?;
    let sampler = AnonymousSampler::start();
    let activations = call_all(&counters, calls, &acknowledged).await?;
    let growth = sampler.growth()?;
    let (live, activated) = (counters.live(), counters.activations()?);
    counters.close().await?;

    let mut outcome = Outcome::default();
    activations.report(&mut outcome, "activations_per_s");
    outcome.metric("rss_growth_bytes", growth as f64);
    outcome.check("wrong values", activations.wrong, 0);
    if settings.get("seconds") == 0 {
        outcome.check("activations", activations.count, due);
    }
    // A counter that left between the call's look at it and the message is activated once more.
    let all = activations.count;
    outcome.check("calls that activated", activated.min(all), all);
    if live_max >= entities {
        outcome.check("live counters", live, activations.count);
    }
    Ok(outcome)
}

/// Drops all files below a directory from the system's cache, after a flush. Pages that are mapped stay.
fn drop_cached(directory: &Path) -> io::Result<()> {
    for path in files_below(directory)? {
        let file = File::open(path)?;
        file.sync_all()?;
        fadvise(&file, 0, None, Advice::DontNeed)?;
    }
    Ok(())
}

/// Reads random blocks of a store's data file, and checks that they come from the disk.
fn measure_disk(directory: &Path, threads: u64, outcome: &mut Outcome) -> io::Result<()> {
    drop_cached(directory)?;
    let file = File::open(directory.join("data.mdb"))?;
    let blocks = file.metadata()?.len() / BLOCK_BYTES;
    // Otherwise the system would read neighbouring blocks as well.
    fadvise(&file, 0, None, Advice::Random)?;
    let (next, before) = (AtomicU64::new(0), memory::disk_read_bytes()?);
    let begun = Instant::now();
    let read_all = || {
        let mut block = [0; BLOCK_BYTES as usize];
        while begun.elapsed() < DISK_TIME {
            let read = next.fetch_add(1, Ordering::Relaxed);
            if read >= blocks {
                return io::Result::Ok(());
            }
            file.read_exact_at(&mut block, Order::Rounds.pick(read, blocks) * BLOCK_BYTES)?;
        }
        Ok(())
    };
    thread::scope(|scope| {
        let threads: Vec<_> = (0..threads).map(|_| scope.spawn(read_all)).collect();
        threads.into_iter().try_for_each(|thread| {
            thread.join().unwrap_or_else(|_| Err(io::Error::other("a reading thread panicked")))
        })
    })?;
    let reads = next.into_inner().min(blocks);
    outcome.metric("disk_reads_per_s", rate(reads, begun.elapsed()));
    let read = memory::disk_read_bytes()?.saturating_sub(before);
    // A page may stay in the cache because a process maps it, or because it is being written.
    let is_from_disk = read >= reads * BLOCK_BYTES * 9 / 10;
    outcome.check("whether blocks came from the disk", u64::from(is_from_disk), 1);
    Ok(())
}
