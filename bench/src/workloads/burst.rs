//! `burst`: messages queue up for receivers that do not take them, are then taken, and the memory
//! is given back, or not.
//!
//! ```text
//! driver    one message to each receiver │ RSS │ start sender, wait │ RSS │ open │ wait │ settle │ RSS
//! sender                                       │ send × M           │
//! receivers                              │ wait at the latch                     │ receive │
//! ```
//!
//! - Every receiver waits in the handler of its first message until all M messages are queued, so
//!   `bytes_per_message`, the growth of resident memory until then, counts exactly M messages. With
//!   `receivers=1` that is the queue of a slow consumer.
//! - `rss_after_bytes` is the whole program's resident memory, `settle` seconds after the last
//!   message was handled.
//! - See [`collector`] for the checks.

use std::io;

use super::collector::{self, Chunks, Sender};
use super::receiver::Latch;
use super::shape::{self, Shape, ShapeHost};
use super::tally::Tally;
use crate::memory;
use crate::outcome::Outcome;
use crate::runtimes::{Measured, Work};
use crate::settings::Settings;

pub(crate) fn run(row: &str, settings: &Settings) -> Measured {
    shape::run::<Burst>(row, settings)
}

static LATCH: Latch = Latch::closed();
static SENT: Tally = Tally::new();

struct Burst;

impl Shape for Burst {
    fn measure<H: ShapeHost>(host: H, settings: Settings) -> impl Work {
        measure(host, settings)
    }
}

/// Drives the workload: its order and checks.
async fn measure<H: ShapeHost>(host: H, settings: Settings) -> io::Result<Outcome> {
    let chunks = Chunks::new(settings.get("receivers"), 0, settings.count);
    let mut sender = Sender::start(&host, chunks, Some(&LATCH)).await;
    let resident_before = memory::resident_bytes()?;

    SENT.arm(1);
    host.run(async move {
        sender.send_chunk();
        SENT.add(0);
    })
    .await;
    SENT.complete().await;
    let resident = memory::resident_bytes()?;
    LATCH.open();
    collector::received().await;

    let grown = resident.saturating_sub(resident_before) as f64;
    let mut outcome = Outcome::default();
    outcome.metric("bytes_per_message", grown / settings.count as f64);
    outcome.metric(memory::PEAK, memory::peak_resident_bytes()? as f64);
    outcome.metric("rss_after_bytes", memory::settled_bytes(&settings).await? as f64);
    chunks.check(&mut outcome);
    Ok(outcome)
}
