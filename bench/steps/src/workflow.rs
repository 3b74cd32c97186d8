//! The steps and checks of `workflow`: see `bench/src/workloads/workflow.rs`.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use crate::Error;
use crate::counters::Order;
use crate::latency::Latencies;
use crate::numbers::rate;
use crate::outcome::Outcome;
use crate::tasks::{Tasks, in_turn};

const STEPS: u64 = 5;

/// Names of the steps of a run.
pub const NAMES: [&str; STEPS as usize] = ["check", "charge", "pack", "ship", "tell"];

/// Number of runs whose results are read again.
pub const SAMPLE: u64 = 10_000;

/// Number of tasks that read results.
pub const READERS: u64 = 1_000;

/// The settings of a run of the benchmark.
pub struct Sizes {
    /// Number of runs that are made as fast as they go.
    pub count: u64,
    /// Number of runs at a time.
    pub inflight: u64,
    /// Number of runs that begin at a pace.
    pub paced: u64,
    /// Paced runs per second.
    pub pace: u64,
}

impl Sizes {
    /// Reads the settings of so many runs.
    ///
    /// # Errors
    /// That of a setting that is missing.
    pub fn of(count: u64, get: impl Fn(&str) -> Result<u64, Error>) -> Result<Sizes, Error> {
        Ok(Sizes { count, inflight: get("inflight")?, paced: get("paced")?, pace: get("pace")? })
    }

    /// Number of all runs.
    pub fn runs(&self) -> u64 {
        self.count + self.paced
    }
}

/// The numbers of a run of the benchmark.
pub struct Plan {
    steps: AtomicU64,
    right: AtomicU64,
    latencies: Latencies,
}

impl Plan {
    /// Makes a step of a run, and returns its result.
    pub fn step(&self, input: u64, place: u64) -> u64 {
        self.steps.fetch_add(1, Ordering::Relaxed);
        input + place
    }

    fn check(&self, number: u64, found: u64) {
        let due = STEPS * number + STEPS * (STEPS - 1) / 2;
        self.right.fetch_add(u64::from(found == due), Ordering::Relaxed);
    }
}

/// The place of workflows.
pub trait Home {
    /// The engine of the workflows when it is open.
    type Engine: Engine;

    /// Opens the engine with the runs that were stored there.
    fn open(&self, plan: &Arc<Plan>) -> impl Future<Output = Result<Self::Engine, Error>> + Send;
}

/// An open engine of workflows, whose runs are numbered. A run has its number for an input.
pub trait Engine: Tasks + Clone {
    /// Makes a run, and returns its result.
    fn run(&self, number: u64) -> impl Future<Output = Result<u64, Error>> + Send;

    /// Returns the result of a run that has ended.
    fn read(&self, number: u64) -> impl Future<Output = Result<u64, Error>> + Send;

    /// Closes the engine. Its runs stay.
    fn close(self) -> impl Future<Output = Result<(), Error>> + Send;
}

/// Makes runs, `pace` a second in all unless that is 0, and notes their times then.
async fn make(
    engine: &impl Engine,
    plan: &Arc<Plan>,
    runs: Range<u64>,
    inflight: u64,
    pace: u64,
) -> Result<(), Error> {
    let (own, plan) = (engine.clone(), plan.clone());
    let make = move |_, number| {
        let (engine, plan) = (own.clone(), plan.clone());
        async move {
            let begun = Instant::now();
            plan.check(number, engine.run(number).await?);
            if pace > 0 {
                plan.latencies.record(begun.elapsed().as_nanos() as u64);
            }
            Ok(())
        }
    };
    in_turn(engine, runs, inflight, pace, make).await
}

/// Runs the workload on an engine.
///
/// # Errors
/// That of the engine.
pub async fn measure(home: &impl Home, sizes: &Sizes) -> Result<Outcome, Error> {
    let (count, inflight, runs) = (sizes.count, sizes.inflight, sizes.runs());
    let (steps, right) = (AtomicU64::new(0), AtomicU64::new(0));
    let plan = Arc::new(Plan { steps, right, latencies: Latencies::new()? });
    let engine = home.open(&plan).await?;
    let clock = Instant::now();
    make(&engine, &plan, 0..count, inflight, 0).await?;
    let time = clock.elapsed();
    make(&engine, &plan, count..runs, inflight, sizes.pace).await?;
    engine.close().await?;

    let mut outcome = Outcome::default();
    outcome.check("right results", plan.right.swap(0, Ordering::Relaxed), runs);
    let (reopened, sample) = (home.open(&plan).await?, SAMPLE.min(runs));
    let (reader, found) = (reopened.clone(), plan.clone());
    let read = move |_, number| {
        let (reader, found) = (reader.clone(), found.clone());
        async move {
            let number = Order::Rounds.pick(number, runs);
            found.check(number, reader.read(number).await?);
            Ok(())
        }
    };
    in_turn(&reopened, 0..sample, READERS, 0, read).await?;
    reopened.close().await?;
    let right = plan.right.load(Ordering::Relaxed);
    outcome.check("right results when opened again", right, sample);
    outcome.check("steps", plan.steps.load(Ordering::Relaxed), STEPS * runs);
    outcome.metric("steps_per_s", rate(STEPS * count, time));
    outcome.metric("runs_per_s", rate(count, time));
    plan.latencies.report(&mut outcome);
    Ok(outcome)
}
