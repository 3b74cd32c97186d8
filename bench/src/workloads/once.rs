//! `once`: calls to durable counters with an id each, which take effect once however often they are repeated, beside
//! the same calls without.
//!
//! ```text
//! add 1 to each of E │ add 1 × N/4, add 1 once × N/4, four times in turn │ all ids again │ read, check
//!                    ├── plain_per_s and turns_per_s ────────────────────┤├ repeats_per_s
//! ```
//!
//! - All calls are as in `durable-turns`. The parts alternate, so that both kinds of calls meet the same store.
//! - An id is new, and has twenty random digits. Its call is repeated with the same counter, and must get the first
//!   reply. All values are checked after that, and again when all was closed and opened.
//! - The percentiles are of calls with an id.

use std::str;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bench_steps::Error;
use bench_steps::turns::SAMPLE;

use super::durable::{
    self, Acknowledged, Calls, Counters, Home, Order, Tasks, ThrongCounters, ThrongHome, call_all,
    key, on_node,
};
use super::prelude::*;
use super::records::rate;

/// Number of parts of each kind.
const PARTS: u64 = 4;

/// Counters whose additions each have an id of their own.
#[derive(Clone)]
struct OnceCounters {
    counters: ThrongCounters,
    next: Arc<AtomicU64>,
    /// The counter and the reply of the call with each id.
    made: Arc<[(AtomicU64, AtomicU64)]>,
}

impl OnceCounters {
    async fn add_once(&self, number: u64, call: u64) -> Result<u64, Error> {
        let id = key(call);
        self.counters.add_once(number, str::from_utf8(&id)?).await
    }
}

impl Tasks for OnceCounters {
    fn start(&self, task: impl Future<Output = ()> + Send + 'static) {
        self.counters.start(task);
    }
}

impl Counters for OnceCounters {
    async fn add(&self, number: u64) -> Result<u64, Error> {
        let call = self.next.fetch_add(1, Ordering::Relaxed);
        let reply = self.add_once(number, call).await?;
        let (counter, first) = &self.made[call as usize];
        counter.store(number, Ordering::Relaxed);
        first.store(reply, Ordering::Relaxed);
        Ok(reply)
    }

    /// Repeats a call, and returns 1 if its reply is the first one's.
    async fn read(&self, call: u64) -> Result<u64, Error> {
        let (counter, first) = &self.made[call as usize];
        let reply = self.add_once(counter.load(Ordering::Relaxed), call).await?;
        Ok(u64::from(reply == first.load(Ordering::Relaxed)))
    }

    async fn close(self) -> Result<(), Error> {
        self.counters.close().await
    }
}

pub(crate) fn run(_: &str, settings: &Settings) -> Measured {
    let processes = durable::processes(settings.get("entities"), settings.get("inflight"));
    on_node(settings, processes, measure)
}

async fn measure(home: ThrongHome, settings: Settings) -> Measured {
    let entities = settings.get("entities");
    let live_max = durable::unlimited(entities);
    let counters = home.open(live_max).await?;
    let acknowledged = Acknowledged::all(entities, 0).into();
    let created = call_all(&counters, Calls::creating(entities), &acknowledged).await?;
    let mut wrong = created.wrong;

    let part = settings.count.div_ceil(PARTS);
    let ids = part * PARTS;
    let made = (0..ids).map(|_| Default::default()).collect();
    let inflight = settings.get("inflight");
    let once = OnceCounters { counters: counters.clone(), next: Arc::default(), made };
    let (mut plain_time, mut once_time) = (Duration::ZERO, Duration::ZERO);
    let mut latencies = latency::histogram()?;
    for seed in 0..PARTS {
        let order = Order::Random(seed);
        let calls = Calls { order, inflight, count: part, ..Calls::creating(entities) };
        let plain = call_all(&counters, calls.clone(), &acknowledged).await?;
        let replies = call_all(&once, calls, &acknowledged).await?;
        plain_time += plain.time;
        once_time += replies.time;
        wrong += plain.wrong + replies.wrong;
        latencies.add(replies.latencies())?;
    }
    let repeats = Calls { order: Order::Rounds, inflight, reads: 100, ..Calls::creating(ids) };
    let repeated = call_all(&once, repeats, &Acknowledged::all(ids, 1).into()).await?;
    drop(once);

    let (mut outcome, check) = (Outcome::default(), durable::check_values);
    check(&counters, &acknowledged, SAMPLE, "after the run", &mut outcome).await?;
    counters.close().await?;
    let reopened = home.open(live_max).await?;
    check(&reopened, &acknowledged, SAMPLE, "when opened again", &mut outcome).await?;
    reopened.close().await?;

    outcome.metric("turns_per_s", rate(ids, once_time));
    outcome.metric("plain_per_s", rate(ids, plain_time));
    outcome.metric("time_ratio", once_time.as_secs_f64() / plain_time.as_secs_f64());
    outcome.metric("repeats_per_s", rate(repeated.count, repeated.time));
    latency::report(&mut outcome, "", &latencies);
    outcome.check("counters created", created.count, entities);
    outcome.check("wrong replies", wrong, 0);
    outcome.check("repeats", repeated.count, ids);
    outcome.check("repeats with another reply", repeated.wrong, 0);
    Ok(outcome)
}
