//! The steps and checks of `workflow`: see bench/src/workloads/workflow.rs.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use hdrhistogram::Histogram;

use crate::durare::{Engine, Home};
use crate::outcome::{Outcome, histogram};
use crate::tasks::in_turn;
use crate::{Error, Settings};

/// Number of steps of a run, which have the names below.
const STEPS: u64 = 5;
pub(crate) const NAMES: [&str; STEPS as usize] = ["check", "charge", "pack", "ship", "tell"];

/// Number of runs whose results are read again, and of tasks that read them.
const SAMPLE: u64 = 10_000;
const READERS: u64 = 1_000;

/// The numbers of a run of the benchmark.
pub(crate) struct Plan {
    pub(crate) steps: AtomicU64,
    right: AtomicU64,
    latencies: Mutex<Histogram<u64>>,
}

/// Returns the result of a run with this input.
fn result(input: u64) -> u64 {
    STEPS * input + STEPS * (STEPS - 1) / 2
}

impl Plan {
    fn check(&self, number: u64, found: u64) {
        self.right.fetch_add(u64::from(found == result(number)), Ordering::Relaxed);
    }
}

/// Makes runs, `pace` a second in all unless that is 0, and notes their times then.
async fn make(
    engine: &Engine,
    plan: &Arc<Plan>,
    runs: std::ops::Range<u64>,
    inflight: u64,
    pace: u64,
) -> Result<(), Error> {
    let (engine, plan) = (engine.clone(), plan.clone());
    let make = move |_, number| {
        let (engine, plan) = (engine.clone(), plan.clone());
        async move {
            let begun = Instant::now();
            plan.check(number, engine.run(number).await?);
            if pace > 0 {
                let mut latencies = plan.latencies.lock().unwrap_or_else(PoisonError::into_inner);
                latencies.saturating_record(begun.elapsed().as_nanos() as u64);
            }
            Ok(())
        }
    };
    in_turn(runs, inflight, pace, make).await
}

pub(crate) async fn run(home: &Home<'_>, settings: &Settings) -> Result<Outcome, Error> {
    let (count, inflight) = (settings.count, settings.get("inflight")?);
    let runs = count + settings.get("paced")?;
    let plan = Arc::new(Plan {
        steps: AtomicU64::new(0),
        right: AtomicU64::new(0),
        latencies: Mutex::new(histogram()?),
    });
    let engine = Engine::open(home, &plan).await?;
    let clock = Instant::now();
    make(&engine, &plan, 0..count, inflight, 0).await?;
    let time = clock.elapsed();
    make(&engine, &plan, count..runs, inflight, settings.get("pace")?).await?;
    engine.close().await?;

    let mut outcome = Outcome::default();
    outcome.check("right results", plan.right.swap(0, Ordering::Relaxed), runs);
    let (reopened, sample) = (Engine::open(home, &plan).await?, SAMPLE.min(runs));
    let (reader, found) = (reopened.clone(), plan.clone());
    let read = move |_, number| {
        let (reader, found, number) = (reader.clone(), found.clone(), number * runs / sample);
        async move {
            found.check(number, reader.read(number).await?);
            Ok(())
        }
    };
    in_turn(0..sample, READERS, 0, read).await?;
    reopened.close().await?;
    let right = plan.right.load(Ordering::Relaxed);
    outcome.check("right results when opened again", right, sample);
    outcome.check("steps", plan.steps.load(Ordering::Relaxed), STEPS * runs);
    outcome.rate("steps_per_s", STEPS * count, time);
    outcome.rate("runs_per_s", count, time);
    let latencies = plan.latencies.lock().unwrap_or_else(PoisonError::into_inner);
    outcome.latencies(&latencies);
    Ok(outcome)
}
