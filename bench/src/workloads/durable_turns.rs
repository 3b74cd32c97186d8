//! `durable-turns`: calls to durable counters, each of which changes a counter and is replied to when the change is
//! on the disk.
//!
//! ```text
//! add 1 to each of E │ add 1 × N at random, `inflight` in flight │ read, check │ close, open │ read, check
//!                    ├─────────────────────────────── turns_per_s┤
//!                    ├──────────────────────────── written_bytes_per_turn ───┤
//!                                                                            └─ disk_bytes_per_entity
//! ```
//!
//! - All counters are live when the clock starts, unless `cap` limits their number.
//! - The percentiles are of the latency of a call, replies that only read included.
//! - The bytes written per turn are counted from the first turn until all is closed; the changes of the preparation
//!   that are in memory until then are written meanwhile, and count. `written` are the bytes that the process has
//!   caused to be sent to the disk, as the kernel counts them, which are several times too many where files have
//!   large folios; `device` are the bytes that the disk was sent, by other programs too, or 0 if the system
//!   does not say.
//! - The bytes per entity are the disk's blocks after that, logs included.
//! - The value of each counter is compared with the number of its acknowledged additions, before and after
//!   all is closed and opened again; of more than a million, of 100,000 at random.

use std::io;

use super::durable::{
    self, Acknowledged, Calls, Counters, Home, Order, TellusHome, ThrongHome, TokioHeedHome,
    call_all,
};
use crate::memory;
use crate::outcome::Outcome;
use crate::runtimes::{self, Measured};
use crate::settings::Settings;
use crate::stores::Directory;

pub(crate) fn run(row: &str, settings: &Settings) -> Measured {
    match row {
        "throng" => run_throng(settings),
        "tokio+heed" => run_tokio_heed(settings),
        "tellus-memory" => run_tellus(settings),
        _ => Err(runtimes::no_row(row)),
    }
}

/// The limit of live counters in the settings, above the number of counters if there is none.
pub(super) fn live_max(settings: &Settings, counters: u64) -> u64 {
    match settings.get("cap") {
        0 => durable::unlimited(counters),
        cap => cap,
    }
}

/// Number of counters that a check reads if there are more than a million.
const SAMPLE: u64 = 100_000;

fn run_throng(settings: &Settings) -> Measured {
    let directory = Directory::make(settings)?;
    let entities = settings.get("entities");
    let live = live_max(settings, entities).min(entities);
    let processes = durable::processes(live, settings.get("inflight"));
    runtimes::throng::drive_with(settings, processes, false, move |runtime, settings| async move {
        let mut home = ThrongHome::new(&runtime, directory.path());
        if let mebibytes @ 1.. = settings.get("checkpoint") {
            home = home.checkpoint_bytes(mebibytes << 20);
        }
        measure(home, directory, settings).await
    })
}

fn run_tokio_heed(settings: &Settings) -> Measured {
    let directory = Directory::make(settings)?;
    let home = TokioHeedHome::new(directory.path())?;
    runtimes::tokio::drive(settings, false, |settings| measure(home, directory, settings))
}

fn run_tellus(settings: &Settings) -> Measured {
    let directory = Directory::make(settings)?;
    runtimes::tokio::drive(settings, false, |settings| {
        measure(TellusHome::default(), directory, settings)
    })
}

async fn measure<H: Home>(
    home: H,
    directory: Directory,
    settings: Settings,
) -> io::Result<Outcome> {
    let entities = settings.get("entities");
    let live_max = live_max(&settings, entities);
    let counters = home.open(live_max).await?;
    let acknowledged = Acknowledged::all(entities, 0).into();
    let created = call_all(&counters, Calls::creating(entities), &acknowledged).await?;

    let written = memory::disk_written_bytes()?;
    let device = memory::device_written_bytes(directory.path())?;
    let calls = Calls { reads: settings.get("reads"), ..Calls::of(&settings, Order::Random(1)) };
    let due = calls.count;
    let turns = call_all(&counters, calls, &acknowledged).await?;

    let mut outcome = Outcome::default();
    let check = durable::check_values;
    check(&counters, &acknowledged, SAMPLE, "after the run", &mut outcome).await?;
    counters.close().await?;
    let written = memory::disk_written_bytes()?.saturating_sub(written);
    let device = match (device, memory::device_written_bytes(directory.path())?) {
        (Some(before), Some(after)) => after.saturating_sub(before),
        _ => 0,
    };
    let disk = directory.disk_bytes()?;
    let reopened = home.open(live_max).await?;
    check(&reopened, &acknowledged, SAMPLE, "when opened again", &mut outcome).await?;
    reopened.close().await?;

    turns.report(&mut outcome, "turns_per_s");
    outcome.metric("written_bytes_per_turn", written as f64 / turns.count.max(1) as f64);
    outcome.metric("device_bytes_per_turn", device as f64 / turns.count.max(1) as f64);
    outcome.metric("disk_bytes_per_entity", disk as f64 / entities as f64);
    outcome.check("counters created", created.count, entities);
    if settings.get("seconds") == 0 {
        outcome.check("turns", turns.count, due);
    }
    outcome.check("wrong replies", created.wrong + turns.wrong, 0);
    Ok(outcome)
}
