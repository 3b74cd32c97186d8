//! `churn`: spawn a process, call it once, make it exit; N times in sequence.
//!
//! ```text
//! driver   cycle × warmup, wait for exits │ RSS │ cycle × N, wait for exits │ RSS
//!                                               ├──────── cycle_ns ─────────┤
//! ```
//!
//! - The driver awaits the reply of each process but not its exit; all exits are awaited within the
//!   clock.
//! - A process replies with the sum of the call's number and its own number.
//! - Growth of resident memory over N cycles, beyond the memory that the warm-up needed, is memory
//!   that dead processes keep.
use std::ops::Range;
use std::time::Instant;

use super::prelude::*;
use super::tally::{Tally, sum_below};
use crate::host::{Host, OnHost, Service};

static EXITED: Tally = Tally::new();

/// The state of each process: a number, which the process adds to [`EXITED`] when it exits.
struct State(u64);

impl Service for State {
    fn reply(&self, value: u64) -> u64 {
        self.0.wrapping_add(value)
    }
}

impl Drop for State {
    fn drop(&mut self) {
        EXITED.add(self.0);
    }
}

pub(crate) struct Churn;

impl OnHost for Churn {
    async fn measure<H: Host>(host: H, settings: Settings) -> Measured {
        let warmup = settings.get("warmup");
        let cycles = warmup + settings.count;
        let mut replies = cycle_all(&host, 0..warmup).await;
        let resident_before = memory::resident_bytes()?;

        let clock = Instant::now();
        replies += cycle_all(&host, warmup..cycles).await;
        let elapsed = clock.elapsed();
        let resident = memory::resident_bytes()?;

        let mut outcome = Outcome::default();
        outcome.metric("cycle_ns", elapsed.as_nanos() as f64 / settings.count as f64);
        outcome.metric("rss_growth_bytes", resident.saturating_sub(resident_before) as f64);
        outcome.check("correct replies", replies, cycles);
        outcome.check("processes that exited", EXITED.count(), cycles);
        outcome.check("the sum of their states", EXITED.sum(), sum_below(cycles));
        Ok(outcome)
    }
}

/// Runs a cycle for each value, then waits until all processes so far have exited. Returns the
/// number of correct replies.
async fn cycle_all<H: Host>(host: &H, values: Range<u64>) -> u64 {
    let mut replies = 0;
    EXITED.arm(values.end);
    for value in values {
        let process = host.serve(State(value)).await;
        let reply = host.call(&process, 1).await;
        host.dismiss(process);
        replies += u64::from(reply == Some(value + 1));
    }
    EXITED.complete().await;
    replies
}
