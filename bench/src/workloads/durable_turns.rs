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

use std::path::Path;

use bench_steps::Error;
use bench_steps::turns::{self, Sizes};

use super::durable::{self, Home, TellusHome, TokioHeedHome, live_max, on_node};
use super::prelude::*;
use crate::stores::Directory;

pub(crate) fn run(row: &str, settings: &Settings) -> Measured {
    match row {
        "throng" => run_throng(settings),
        "tokio+heed" => on_tokio(settings, |directory| Ok(TokioHeedHome::new(directory.path())?)),
        "tellus-memory" => on_tokio(settings, |_| Ok(TellusHome::default())),
        _ => Err(runtimes::no_row(row)),
    }
}

fn run_throng(settings: &Settings) -> Measured {
    let entities = settings.get("entities");
    let live = live_max(settings, entities).min(entities);
    let processes = durable::processes(live, settings.get("inflight"));
    on_node(settings, processes, |mut home, settings| async move {
        if let mebibytes @ 1.. = settings.get("checkpoint") {
            home = home.checkpoint_bytes(mebibytes << 20);
        }
        let directory = home.directory().to_owned();
        measure(home, &directory, settings).await
    })
}

fn on_tokio<H: Home + Send + Sync + 'static>(
    settings: &Settings,
    home: impl FnOnce(&Directory) -> Result<H, Error>,
) -> Measured {
    let directory = Directory::make(settings)?;
    let home = home(&directory)?;
    runtimes::tokio::drive(settings, false, |settings| async move {
        measure(home, directory.path(), settings).await
    })
}

async fn measure(home: impl Home, directory: &Path, settings: Settings) -> Measured {
    let sizes = Sizes::of(settings.count, durable::setting(&settings))?;
    let live_max = live_max(&settings, sizes.entities);
    turns::measure(&home, live_max, directory, &sizes).await
}
