//! `churn`: spawn a process, call it once, make it exit; N times, one after the other.
//!
//! ```text
//! driver   cycle × warmup, wait for exits │ RSS │ cycle × N, wait for exits │ RSS
//!                                               ├──────── cycle_ns ─────────┤
//! ```
//!
//! - The driver awaits the reply of each process but not its exit; all exits are awaited within the
//!   clock.
//! - A process replies with the number it was called with plus the number it holds.
//! - What grows over N cycles, beyond what the warm-up needed, is memory that a dead process keeps.

mod actix;
mod kameo;
mod ractor;
mod tellus;
mod throng;
mod tokio;

use std::io;
use std::time::Instant;

use super::tally::{Tally, sum_below};
use super::{Metric, Workload};
use crate::memory;
use crate::outcome::Outcome;
use crate::runtimes;
use crate::settings::{Key, Kind, Settings};

pub(crate) const WORKLOAD: Workload = Workload {
    name: "churn",
    about: "spawn a process, call it, make it exit; N times, one after the other",
    counts: "cycles",
    count: 1_000_000,
    keys: &[Key {
        name: "warmup",
        kind: Kind::Number(10_000),
        about: "how many cycles come before the clock and the first look at the memory",
    }],
    metrics: &[
        Metric { name: "cycle_ns", unit: "ns" },
        Metric { name: "rss_growth_bytes", unit: "bytes" },
    ],
    peers: &[
        runtimes::throng::peer(throng::run),
        runtimes::tokio::peer(tokio::run),
        runtimes::actix::peer(actix::run),
        runtimes::kameo::peer(kameo::run),
        runtimes::ractor::peer(ractor::run),
        runtimes::tellus::peer(tellus::run),
        runtimes::erlang::PEER,
    ],
};

static EXITED: Tally = Tally::new();

/// What each process holds.
struct State(u64);

impl State {
    /// What a process replies.
    fn reply(&self, value: u64) -> u64 {
        self.0.wrapping_add(value)
    }
}

impl Drop for State {
    fn drop(&mut self) {
        EXITED.add(self.0);
    }
}

/// How a runtime does one cycle; called in one of its processes.
trait Cycle {
    /// Starts a process that holds this state, calls it with this value, and makes it exit; `None`
    /// if no reply came.
    async fn cycle(&self, state: State, value: u64) -> Option<u64>;
}

/// The workload's order, clocks and checks.
async fn measure<C: Cycle>(runtime: C, settings: Settings) -> io::Result<Outcome> {
    let warmup = settings.get("warmup");
    let cycles = warmup + settings.count;
    let mut replies = cycle_all(&runtime, 0..warmup).await;
    let resident_before = memory::resident_bytes()?;

    let clock = Instant::now();
    replies += cycle_all(&runtime, warmup..cycles).await;
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

/// One cycle for each of the values, then waits until all processes so far have exited; the number
/// of correct replies.
async fn cycle_all<C: Cycle>(runtime: &C, values: std::ops::Range<u64>) -> u64 {
    let mut replies = 0;
    EXITED.arm(values.end);
    for value in values {
        let reply = runtime.cycle(State(value), 1).await;
        replies += u64::from(reply == Some(value + 1));
    }
    EXITED.complete().await;
    replies
}
