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

mod throng;

use std::io;
use std::time::Instant;

use super::latency;
use super::service::actix::Actix;
use super::service::kameo::Kameo;
use super::service::ractor::Ractor;
use super::service::smol::Smol;
use super::service::tellus::Tellus;
use super::service::threads::Threads;
use super::service::tokio::{Recv, Tokio};
use super::service::{Host, Service, Successor};
use crate::outcome::Outcome;
use crate::runtimes::{self, Measured};
use crate::settings::Settings;

pub(crate) fn run(row: &str, settings: &Settings) -> Measured {
    match row {
        "throng" => throng::run(settings),
        "tokio" => runtimes::tokio::drive(settings, |settings| measure_on(Tokio(Recv), settings)),
        "smol" => runtimes::smol::drive(settings, |settings| measure_on(Smol, settings)),
        "actix" => {
            runtimes::actix::drive(settings, |settings| measure_on(Actix::default(), settings))
        }
        "kameo" => runtimes::kameo::drive(settings, |settings| measure_on(Kameo, settings)),
        "ractor" => runtimes::ractor::drive(settings, |settings| measure_on(Ractor, settings)),
        "tellus" => runtimes::tellus::drive(settings, |driver, settings| {
            measure_on(Tellus { driver }, settings)
        }),
        "threads" => runtimes::threads::drive(settings, |timers, settings| {
            measure_on(Threads { timers }, settings)
        }),
        _ => Err(runtimes::no_row(row)),
    }
}

/// A runtime's callees, which are running; used in a process of the runtime.
trait Callees {
    /// Calls a callee with a value and awaits its reply; returns `None` if no reply came.
    async fn call(&self, callee: usize, value: u64) -> Option<u64>;
}

/// The callees of a runtime, as plain services without features.
struct Hosted<H: Host> {
    host: H,
    callees: Vec<H::Address<Successor>>,
}

impl<H: Host> Callees for Hosted<H> {
    async fn call(&self, callee: usize, value: u64) -> Option<u64> {
        self.host.call(&self.callees[callee], value).await
    }
}

/// Starts the callees and measures.
async fn measure_on<H: Host>(host: H, settings: Settings) -> io::Result<Outcome> {
    let mut callees = Vec::new();
    for _ in 0..settings.get("callees") {
        callees.push(host.start(Successor).await);
    }
    measure(Hosted { host, callees }, settings).await
}

/// Drives the workload: its order, clocks and checks.
async fn measure<C: Callees>(callees: C, settings: Settings) -> io::Result<Outcome> {
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
    latency::report(&mut outcome, "", "p50 p99", &latencies);
    outcome.check("correct replies", replies, callee_count + settings.count + samples);
    Ok(outcome)
}

/// Random indices below a bound: xorshift64* with a fixed seed.
struct Pick {
    state: u64,
    bound: u64,
}

impl Pick {
    fn among(bound: u64) -> Self {
        Self { state: 0x9E37_79B9_7F4A_7C15, bound }
    }

    fn next(&mut self) -> usize {
        self.state ^= self.state >> 12;
        self.state ^= self.state << 25;
        self.state ^= self.state >> 27;
        let random = self.state.wrapping_mul(0x2545_F491_4F6C_DD1D);
        ((u128::from(random) * u128::from(self.bound)) >> 64) as usize
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
