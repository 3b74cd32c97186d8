//! Ten workloads of the Savina suite: S. Imam and V. Sarkar, "Savina – An Actor Benchmark Suite", AGERE! 2014.
//!
//! ```text
//! driver    start the first actor │ wait for its report
//!           ├────────────────── wall_s ───────────────┤
//! ```
//!
//! - Each file below is a workload. Its actors, messages and defaults are Savina's, but for numbers that
//!   are integers here, and for the checks, most of which Savina does not make.
//! - The first actor starts all others, or has them started. It reports to the driver when it knows that
//!   all work is done.
//! - A workload is written once for all hosts, in terms of [`Actor`]. A message has the
//!   address of an actor where its receiver cannot know that address, and otherwise the actor's index.
//! - Random numbers are those of Savina's own generator, started with the actor's index plus one.

pub(crate) mod banking;
pub(crate) mod barber;
pub(crate) mod big;
pub(crate) mod buffer;
pub(crate) mod chameneos;
pub(crate) mod dictionary;
pub(crate) mod philosophers;
pub(crate) mod queens;
pub(crate) mod sieve;
pub(crate) mod smokers;

use std::hint::black_box;
use std::time::Instant;

use tokio::sync::oneshot;

use super::prelude::*;
use super::tally::{TIMEOUT, sum_below};
use crate::host::{Actor, ActorContext, ActorHost, OnActors};

const METRICS: &str = "wall_s";

const MULTIPLIER: u32 = 1309;
const INCREMENT: u32 = 13849;

/// Savina's generator of random numbers below 65536.
#[derive(Clone, Copy)]
struct Random(u32);

impl Random {
    fn of(index: u64) -> Self {
        Self(index as u32 + 1)
    }

    fn next(&mut self) -> u32 {
        self.step(MULTIPLIER, INCREMENT)
    }

    fn step(&mut self, multiplier: u32, increment: u32) -> u32 {
        self.0 = self.0.wrapping_mul(multiplier).wrapping_add(increment) & 0xFFFF;
        self.0
    }

    /// Draws an index below a bound, which must be positive.
    fn below(&mut self, bound: u64) -> u64 {
        u64::from(self.next()) % bound
    }

    fn add(&mut self, number: u32) {
        self.0 = self.0.wrapping_add(number) & 0xFFFF;
    }

    /// Advances by a number of steps; returns the last number.
    fn advance(&mut self, steps: u64) -> u32 {
        // If the compiler knew the numbers, it would merge several steps into one.
        let (multiplier, increment) = black_box((MULTIPLIER, INCREMENT));
        for _ in 0..steps {
            self.step(multiplier, increment);
        }
        self.0
    }
}

fn busy(steps: u64) {
    black_box(Random(steps as u32 & 0xFFFF).advance(steps));
}

/// The way from an actor to the driver, for a single report.
struct Reporter<R>(Option<oneshot::Sender<R>>);

impl<R> Reporter<R> {
    fn report(&mut self, report: R) {
        if let Some(driver) = self.0.take() {
            // If the driver has given up, it has noted the report as missing.
            let _ = driver.send(report);
        }
    }
}

/// Starts the first actor, which `make` creates, and waits for its report; returns the report, and the
/// outcome with the time. A missing report is a failed check.
async fn measure<H: ActorHost, A: Actor<H>, R: Default>(
    host: H,
    make: impl FnOnce(Reporter<R>) -> A,
) -> (R, Outcome) {
    let (reporter, report) = oneshot::channel();
    let clock = Instant::now();
    // An actix actor exits when nobody has its address.
    let first = host.start_actor(make(Reporter(Some(reporter))));
    let report = tokio::time::timeout(TIMEOUT, report).await;
    let elapsed = clock.elapsed();
    drop(first);

    let report = report.ok().and_then(Result::ok);
    let mut outcome = Outcome::default();
    outcome.metric(METRICS, elapsed.as_secs_f64());
    outcome.check("reports of the first actor", u64::from(report.is_some()), 1);
    (report.unwrap_or_default(), outcome)
}
