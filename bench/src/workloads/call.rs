//! `call`: a process calls another process M times, each call after the reply to the previous call.
//!
//! ```text
//! driver   call every callee once │ call × M             │ (clock, call, clock) × samples
//!                                 ├ round_trip_ns, mean ─┤ p50_ns, p99_ns
//! ```
//!
//! - A call carries a `u64`; its reply is that number plus one, and every reply is checked.
//! - With several callees each call goes to a random callee, chosen by the same generator in every
//!   runtime. Each callee was called once before the clock starts, so that no first touch of its
//!   memory is measured.
//! - The percentiles come from separate calls, since reading the clock around each call would add
//!   to the mean. The percentiles include that reading, some 20 ns.
use std::time::Instant;

use super::prelude::*;
use super::records::Random;
use crate::host::{Host, OnHost, Service, Successor, on_host};
use crate::runtimes::throng::feature;

pub(crate) fn run(row: &str, settings: &Settings) -> Measured {
    if feature::is_none(settings) {
        on_host::<Call>(row, settings)
    } else {
        feature::call(settings)
    }
}

struct Call;

impl OnHost for Call {
    async fn measure<H: Host>(host: H, settings: Settings) -> Measured {
        let mut callees = Vec::new();
        for _ in 0..settings.get("callees") {
            callees.push(host.serve(Successor).await);
        }
        measure(Hosted { host, callees }, settings).await
    }
}

/// A runtime's callees, which are running; used in a process of the runtime.
pub(crate) trait Callees: Send + Sync {
    /// Calls a callee with a value and awaits its reply; returns `None` if no reply came.
    fn call(&self, callee: usize, value: u64) -> impl Future<Output = Option<u64>> + Send;
}

/// The callees of a runtime, as plain services without features.
struct Hosted<H: Host> {
    host: H,
    callees: Vec<H::ServiceAddress<Successor>>,
}

impl<H: Host> Callees for Hosted<H> {
    async fn call(&self, callee: usize, value: u64) -> Option<u64> {
        self.host.call(&self.callees[callee], value).await
    }
}

pub(crate) async fn measure<C: Callees>(callees: C, settings: Settings) -> Measured {
    let callee_count = settings.get("callees");
    let samples = settings.get("samples");
    let mut latencies = latency::histogram()?;
    let mut pick = Pick::among(callee_count);
    let mut replies = 0;
    for callee in 0..callee_count {
        replies +=
            u64::from(callees.call(callee as usize, callee).await == Some(Successor.reply(callee)));
    }

    let clock = Instant::now();
    for value in 0..settings.count {
        replies +=
            u64::from(callees.call(pick.next(), value).await == Some(Successor.reply(value)));
    }
    let elapsed = clock.elapsed();
    for value in 0..samples {
        let callee = pick.next();
        let clock = Instant::now();
        let answer = callees.call(callee, value).await;
        latencies.saturating_record(clock.elapsed().as_nanos() as u64);
        replies += u64::from(answer == Some(Successor.reply(value)));
    }

    let mut outcome = Outcome::default();
    outcome.metric("round_trip_ns", elapsed.as_nanos() as f64 / settings.count as f64);
    latency::report(&mut outcome, "", &latencies);
    outcome.check("correct replies", replies, callee_count + settings.count + samples);
    Ok(outcome)
}

/// Random indices below a bound, the same in each language.
struct Pick {
    random: Random,
    bound: u64,
}

impl Pick {
    fn among(bound: u64) -> Self {
        Self { random: Random::of(0x9E37_79B9_7F4A_7C15), bound }
    }

    fn next(&mut self) -> usize {
        self.random.below(self.bound) as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn picks_spread_over_all_indices() {
        let mut seen = [0u32; 10];
        let mut pick = Pick::among(10);
        for _ in 0..10_000 {
            seen[pick.next()] += 1;
        }
        assert!(seen.iter().all(|&times| (800..1200).contains(&times)), "{seen:?}");
    }
}
