//! `durable-live`: N live durable counters, their memory, and the time in which all of them leave it.
//!
//! ```text
//! start │ add 1 to each of N │ memory │ `settle` │ memory │ shut down │ start │ read 10,000, check
//!                                                         ├ shutdown_s┤
//! ```
//!
//! - Each counter has had a turn, so its state is on the disk and in memory.
//! - The bytes per counter are the growth of resident memory since the start of the node, divided by N. That includes
//!   the store's memory: its changes that are not in the data file yet, and the pages of its file that are mapped.
//! - The store writes its changes to the data file once it is idle, and returns their memory to the system. The
//!   settled memory is the resident memory of the whole program after some seconds, and its part that is not mapped
//!   from a file: the system can reclaim the mapped pages of the data file at any time.

use std::time::Instant;

use super::durable::{self, Acknowledged, Calls, Counters, Home, ThrongHome, call_all, on_node};
use super::prelude::*;

/// Number of counters that the check reads.
const SAMPLE: u64 = 10_000;

pub(crate) fn run(_: &str, settings: &Settings) -> Measured {
    on_node(settings, durable::processes(settings.count, 0), measure)
}

async fn measure(home: ThrongHome, settings: Settings) -> Measured {
    let count = settings.count;
    let acknowledged = Acknowledged::all(count, 0).into();
    let counters = home.open(durable::unlimited(count)).await?;
    let before = memory::resident_bytes()?;
    let created = call_all(&counters, Calls::creating(count), &acknowledged).await?;
    let grown = memory::resident_bytes()?.saturating_sub(before);
    let settled = memory::settled_bytes(&settings).await?;
    let anonymous = memory::anonymous_bytes()?;
    let live = counters.live();

    let clock = Instant::now();
    counters.close().await?;
    let shutdown = clock.elapsed();

    let mut outcome = Outcome::default();
    outcome.metric("bytes_per_entity", grown as f64 / count as f64);
    outcome.metric("settled_rss_bytes", settled as f64);
    outcome.metric("settled_anonymous_bytes", anonymous as f64);
    let reopened = home.open(durable::unlimited(count)).await?;
    let moment = "when opened again";
    durable::check_sample(&reopened, &acknowledged, SAMPLE, moment, &mut outcome).await?;
    reopened.close().await?;
    outcome.check("counters created", created.count, count);
    outcome.check("wrong replies", created.wrong, 0);
    outcome.check("live counters", live, count);
    outcome.metric("peak_rss_bytes", memory::peak_resident_bytes()? as f64);
    outcome.metric("shutdown_s", shutdown.as_secs_f64());
    Ok(outcome)
}
