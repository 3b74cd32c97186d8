//! `workflow`: runs of a workflow of five steps, each of which is stored when it is over.
//!
//! ```text
//! N runs, `inflight` at a time │ `paced` runs, `pace` a second │ close, open │ read 10,000, check
//! ├ steps_per_s, runs_per_s ──┤
//! ```
//!
//! - A step is an async block that adds its place to the input of the run. The result of the run is the sum.
//! - A task starts a run, which is on the disk then, waits for its result, and begins the next.
//! - The percentiles are of the paced runs: from the start until the result is there.
//! - Each result is checked. When all was closed and opened again, results are read once more. Each step must have run
//!   once.

pub(crate) mod rest;

use std::io;
use std::ops::Range;
use std::str;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use hdrhistogram::Histogram;
use throng_durable::{Failure, Node, Retry, Steps, Workflow, WorkflowRun, Workflows};

use super::durable::{self, Counters, Home, Order, ThrongCounters, ThrongHome, in_turn, key};
use super::latency;
use super::records::rate;
use crate::outcome::Outcome;
use crate::runtimes::{self, Measured};
use crate::settings::Settings;
use crate::stores::Directory;

/// Number of steps of a run, which have the names below.
const STEPS: u64 = 5;
const NAMES: [&str; STEPS as usize] = ["check", "charge", "pack", "ship", "tell"];

/// Number of runs whose results are read again.
const SAMPLE: u64 = 10_000;

/// Number of tasks that read results.
const READERS: u64 = 1_000;

/// The numbers of a run of the benchmark.
struct Plan {
    steps: AtomicU64,
    right: AtomicU64,
    latencies: Mutex<Histogram<u64>>,
}

struct PlaceOrder(Arc<Plan>);

impl Workflow for PlaceOrder {
    const NAME: &'static str = "order";
    type Input = u64;
    type Output = u64;

    async fn run(&self, cx: &Steps, input: u64) -> Result<u64, Failure> {
        let mut sum = 0;
        for (place, name) in (0..).zip(NAMES) {
            let step = async || {
                self.0.steps.fetch_add(1, Ordering::Relaxed);
                Ok::<u64, io::Error>(input + place)
            };
            sum += cx.step(name, Retry::none(), step).await?;
        }
        Ok(sum)
    }
}

/// Returns the result of a run with this input.
fn result(input: u64) -> u64 {
    STEPS * input + STEPS * (STEPS - 1) / 2
}

/// Returns the run with a number. Its id has twenty digits, the hash of the number.
fn numbered<W: Workflow>(node: &Node, number: u64) -> WorkflowRun<W> {
    node.workflow(str::from_utf8(&key(number)).unwrap_or_default())
}

#[derive(Clone)]
struct Shop {
    counters: ThrongCounters,
    plan: Arc<Plan>,
}

impl Shop {
    async fn open(home: &ThrongHome, runs: u64, plan: &Arc<Plan>) -> io::Result<Shop> {
        let counters = home.open(durable::unlimited(runs)).await?;
        counters.node().run_workflows(Workflows::new().with(PlaceOrder(plan.clone())));
        Ok(Shop { counters, plan: plan.clone() })
    }

    async fn read(&self, number: u64) -> io::Result<()> {
        let run = numbered::<PlaceOrder>(self.counters.node(), number);
        let found = run.result().await.map_err(io::Error::other)?;
        self.plan.right.fetch_add(u64::from(found == result(number)), Ordering::Relaxed);
        Ok(())
    }

    /// Makes runs, `pace` a second in all unless that is 0, and notes their times then.
    async fn make(&self, runs: Range<u64>, inflight: u64, pace: u64) -> io::Result<()> {
        let shop = self.clone();
        let make = move |number| {
            let shop = shop.clone();
            async move {
                let begun = Instant::now();
                let run = numbered::<PlaceOrder>(shop.counters.node(), number);
                run.start(&number).await.map_err(io::Error::other)?;
                shop.read(number).await?;
                if pace > 0 {
                    let latencies = shop.plan.latencies.lock();
                    let mut latencies = latencies.unwrap_or_else(PoisonError::into_inner);
                    latencies.saturating_record(begun.elapsed().as_nanos() as u64);
                }
                Ok(())
            }
        };
        in_turn(&self.counters, runs, inflight, pace, make).await
    }

    async fn read_sample(&self, of: u64, sample: u64) -> io::Result<()> {
        let shop = self.clone();
        let read = move |number| {
            let shop = shop.clone();
            async move { shop.read(Order::Rounds.pick(number, of)).await }
        };
        in_turn(&self.counters, 0..sample, READERS, 0, read).await
    }
}

pub(crate) fn run(_: &str, settings: &Settings) -> Measured {
    let directory = Directory::make(settings)?;
    let runs = settings.count + settings.get("paced");
    let processes = durable::processes(2 * runs, settings.get("inflight"));
    runtimes::throng::drive_with(settings, processes, false, move |runtime, settings| async move {
        measure(ThrongHome::new(&runtime, directory.path()), settings).await
    })
}

async fn measure(home: ThrongHome, settings: Settings) -> io::Result<Outcome> {
    let (count, inflight) = (settings.count, settings.get("inflight"));
    let runs = count + settings.get("paced");
    let plan = Arc::new(Plan {
        steps: AtomicU64::new(0),
        right: AtomicU64::new(0),
        latencies: Mutex::new(latency::histogram()?),
    });
    let shop = Shop::open(&home, runs, &plan).await?;
    let clock = Instant::now();
    shop.make(0..count, inflight, 0).await?;
    let time = clock.elapsed();
    shop.make(count..runs, inflight, settings.get("pace")).await?;
    shop.counters.close().await?;

    let mut outcome = Outcome::default();
    outcome.check("right results", plan.right.swap(0, Ordering::Relaxed), runs);
    let (reopened, sample) = (Shop::open(&home, runs, &plan).await?, SAMPLE.min(runs));
    reopened.read_sample(runs, sample).await?;
    reopened.counters.close().await?;
    let right = plan.right.load(Ordering::Relaxed);
    outcome.check("right results when opened again", right, sample);
    outcome.check("steps", plan.steps.load(Ordering::Relaxed), STEPS * runs);
    outcome.metric("steps_per_s", rate(STEPS * count, time));
    outcome.metric("runs_per_s", rate(count, time));
    let latencies = plan.latencies.lock().unwrap_or_else(PoisonError::into_inner);
    latency::report(&mut outcome, "", &latencies);
    Ok(outcome)
}
