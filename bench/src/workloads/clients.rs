//! `calls` and `outside`: many callers at once, each of which calls its own callee, each call after the
//! reply to the previous call.
//!
//! ```text
//! driver    call every callee once │ start callers │ wait │ start callers │ wait
//! callers                          │ call × M/callers     │ (clock, call, clock) × samples/callers
//!                                  ├─── round_trip_ns ────┤ p50_ns, p99_ns
//! ```
//!
//! - In `calls` the callers are processes; in `outside` they are tokio tasks, as the handlers of a web server are, on a
//!   runtime with as many threads as the settings have workers. For tokio and the actors on it, this is the runtime of
//!   the callee; for throng it is a runtime beside throng's own workers.
//! - Caller i calls the callee i modulo the number of callees.
//! - A call carries a `u64`; its reply is that number plus one, and every reply is checked.
//! - `round_trip_ns` is the time of all calls divided by their number, so it falls with each worker
//!   that helps. The percentiles are of single calls, while all callers call.
use std::ops::Range;
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use super::prelude::*;
use super::tally::{Tally, share};
use crate::host::{ActorHost, OnActors, Service, Successor};
use crate::runtimes::{Measured, Work};

pub(crate) struct Calls;

impl OnActors for Calls {
    fn measure<H: ActorHost>(host: H, settings: Settings) -> impl Work {
        let (callers, callees) = (settings.get("callers"), settings.get("callees"));
        measure(host, settings, Callers::Processes, callers, callees)
    }
}

pub(crate) struct Outside;

impl OnActors for Outside {
    const OUTSIDE: bool = true;

    fn measure<H: ActorHost>(host: H, settings: Settings) -> impl Work {
        let tasks = settings.get("tasks");
        measure(host, settings, Callers::Tasks, tasks, 1)
    }
}

/// Callers that are done, and the number of their calls with a correct reply.
static DONE: Tally = Tally::new();
static LATENCIES: Mutex<Vec<u64>> = Mutex::new(Vec::new());

#[derive(Clone, Copy, PartialEq, Eq)]
enum Callers {
    Processes,
    Tasks,
}

async fn measure<H: ActorHost>(
    host: H,
    settings: Settings,
    place: Callers,
    callers: u64,
    callee_count: u64,
) -> Measured {
    let samples = settings.get("samples");
    let mut callees = Vec::new();
    let mut replies = 0;
    for value in 0..callee_count {
        let callee = host.serve(Successor).await;
        replies += u64::from(host.call(&callee, value).await == Some(Successor.reply(value)));
        callees.push(callee);
    }

    let group = Group { host, place, callees };
    DONE.arm(callers);
    let clock = Instant::now();
    for caller in 0..callers {
        let values = share(settings.count, caller, callers);
        group.start(caller, |host, callee| call_all(host, callee, values)).await;
    }
    DONE.complete().await;
    let elapsed = clock.elapsed();

    DONE.arm(2 * callers);
    for caller in 0..callers {
        let values = share(samples, caller, callers);
        group.start(caller, |host, callee| sample_all(host, callee, values)).await;
    }
    DONE.complete().await;
    let times = std::mem::take(&mut *LATENCIES.lock().unwrap_or_else(PoisonError::into_inner));
    let latencies = latency::of(times)?;

    let mut outcome = Outcome::default();
    outcome.metric("round_trip_ns", elapsed.as_nanos() as f64 / settings.count as f64);
    latency::report(&mut outcome, "", &latencies);
    outcome.check("callers that finished, in two rounds", DONE.count(), 2 * callers);
    outcome.check("correct replies", replies + DONE.sum(), callee_count + settings.count + samples);
    outcome.check("calls that were timed separately", latencies.len(), samples);
    Ok(outcome)
}

struct Group<H: ActorHost> {
    host: H,
    place: Callers,
    callees: Vec<H::ServiceAddress<Successor>>,
}

impl<H: ActorHost> Group<H> {
    /// Starts a caller whose calls are those of `calls`, given the host and the callee.
    async fn start<F: Future<Output = u64> + Send + 'static>(
        &self,
        caller: u64,
        calls: impl FnOnce(H, H::ServiceAddress<Successor>) -> F,
    ) {
        let callee = self.callees[caller as usize % self.callees.len()].clone();
        let calls = calls(self.host.clone(), callee);
        let caller = async { DONE.add(calls.await) };
        match self.place {
            Callers::Processes => self.host.run(caller).await,
            Callers::Tasks => drop(tokio::spawn(caller)),
        }
    }
}

async fn call_all<H: ActorHost>(
    host: H,
    callee: H::ServiceAddress<Successor>,
    values: Range<u64>,
) -> u64 {
    let mut replies = 0;
    for value in values {
        replies += u64::from(host.call(&callee, value).await == Some(Successor.reply(value)));
    }
    replies
}

/// Calls once with each value and times each call; returns the number of correct replies.
async fn sample_all<H: ActorHost>(
    host: H,
    callee: H::ServiceAddress<Successor>,
    values: Range<u64>,
) -> u64 {
    let mut replies = 0;
    let mut latencies = Vec::with_capacity((values.end - values.start) as usize);
    for value in values {
        let clock = Instant::now();
        let reply = host.call(&callee, value).await;
        latencies.push(clock.elapsed().as_nanos() as u64);
        replies += u64::from(reply == Some(Successor.reply(value)));
    }
    LATENCIES.lock().unwrap_or_else(PoisonError::into_inner).append(&mut latencies);
    replies
}
