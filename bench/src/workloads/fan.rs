//! `fan`: a process sends messages, each a `u64`, to several receivers round robin, in one turn.
//!
//! ```text
//! driver    one message to each receiver │ start sender │       wait              │ settle │ RSS
//! sender                                 │ send × M (or × chunk, wait, …)         │
//!                                        ├──────── delivered_ns ──────────────────┤
//! ```
//!
//! - By default the sender never waits, so the receivers' backlog is part of the result. With a
//!   `chunk`, at most that many messages are in flight, and the backlog costs little.
//! - See [`collector`] for the checks.

use std::io;
use std::time::Instant;

use super::collector::{self, Chunks, Sender};
use super::shape::{self, Shape, ShapeHost};
use super::tally::Tally;
use crate::memory;
use crate::outcome::Outcome;
use crate::runtimes::{Measured, Work};
use crate::settings::Settings;

pub(crate) fn run(row: &str, settings: &Settings) -> Measured {
    shape::run::<Fan>(row, settings)
}

static SENT: Tally = Tally::new();

struct Fan;

impl Shape for Fan {
    fn measure<H: ShapeHost>(host: H, settings: Settings) -> impl Work {
        measure(host, settings)
    }
}

/// Drives the workload: its order, clock and checks.
async fn measure<H: ShapeHost>(host: H, settings: Settings) -> io::Result<Outcome> {
    let count = settings.count;
    let chunks = Chunks::new(settings.get("receivers"), settings.get("chunk"), count);
    let mut sender = Sender::start(&host, chunks, None).await;

    SENT.arm(1);
    let clock = Instant::now();
    host.run(async move {
        while !sender.is_done() {
            sender.send_chunk();
            collector::received().await;
        }
        SENT.add(0);
    })
    .await;
    SENT.complete().await;
    let elapsed = clock.elapsed();

    let mut outcome = Outcome::default();
    outcome.metric("delivered_ns", elapsed.as_nanos() as f64 / count as f64);
    outcome.metric("rss_after_bytes", memory::settled_bytes(&settings).await? as f64);
    chunks.check(&mut outcome);
    Ok(outcome)
}
