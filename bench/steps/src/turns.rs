//! The steps and checks of `durable-turns`: see `bench/src/workloads/durable_turns.rs`.

use std::path::Path;

use crate::Error;
use crate::counters::{Acknowledged, Calls, Counters, Home, Order, call_all, check_values};
use crate::disk;
use crate::outcome::Outcome;

/// Number of counters that a check reads if there are more than a million.
pub const SAMPLE: u64 = 100_000;

/// The settings of a run.
pub struct Sizes {
    /// Number of counters.
    pub entities: u64,
    /// Number of calls, unless they have a time.
    pub count: u64,
    /// Number of calls in flight.
    pub inflight: u64,
    /// Percentage of the calls that only read.
    pub reads: u64,
    /// Seconds for which calls are made; 0 if their number counts.
    pub seconds: u64,
}

impl Sizes {
    /// Reads the settings of a run with so many calls.
    ///
    /// # Errors
    /// That of a setting that is missing.
    pub fn of(count: u64, get: impl Fn(&str) -> Result<u64, Error>) -> Result<Sizes, Error> {
        Ok(Sizes {
            entities: get("entities")?,
            count,
            inflight: get("inflight")?,
            reads: get("reads")?,
            seconds: get("seconds")?,
        })
    }
}

/// Runs the workload on counters of which `live_max` may be live, with their files in a directory.
///
/// # Errors
/// That of a call, or of a number that the system does not tell.
pub async fn measure(
    home: &impl Home,
    live_max: u64,
    directory: &Path,
    sizes: &Sizes,
) -> Result<Outcome, Error> {
    let Sizes { entities, count, inflight, reads, seconds } = *sizes;
    let counters = home.open(live_max).await?;
    let acknowledged = Acknowledged::all(entities, 0).into();
    let created = call_all(&counters, Calls::creating(entities), &acknowledged).await?;

    let written = counters.written_bytes()?;
    let device = disk::device_written_bytes(directory)?;
    let calls = Calls { reads, ..Calls::adding(Order::Random(1), inflight, count, seconds) };
    let turns = call_all(&counters, calls, &acknowledged).await?;

    let mut outcome = Outcome::default();
    check_values(&counters, &acknowledged, SAMPLE, "after the run", &mut outcome).await?;
    counters.close().await?;
    let written = disk::written_bytes("self")?.saturating_sub(written);
    let device = disk::device_written_bytes(directory)?.saturating_sub(device);
    let disk = disk::disk_bytes(directory)?;
    let reopened = home.open(live_max).await?;
    check_values(&reopened, &acknowledged, SAMPLE, "when opened again", &mut outcome).await?;
    reopened.close().await?;

    turns.report(&mut outcome, "turns_per_s");
    let per_turn = |bytes| bytes as f64 / turns.count.max(1) as f64;
    outcome.metric("written_bytes_per_turn", per_turn(written));
    outcome.metric("device_bytes_per_turn", per_turn(device));
    outcome.metric("disk_bytes_per_entity", disk as f64 / entities as f64);
    outcome.check("counters created", created.count, entities);
    if seconds == 0 {
        outcome.check("turns", turns.count, count);
    }
    outcome.check("wrong replies", created.wrong + turns.wrong, 0);
    Ok(outcome)
}
