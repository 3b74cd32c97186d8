//! `workflow-rest`: runs of a workflow that sleep for a month after a step: their room in memory and on the disk.
//!
//! ```text
//! start N runs, each a step and a sleep │ all leave memory │ `settle` │ memory │ close │ disk │ open, check 10,000
//! ```
//!
//! - The bytes of memory are the growth of anonymous memory since the node was opened, divided by N.
//! - The bytes on the disk are the blocks of all files after the node was closed, logs included, divided by N.
//! - Each step must have run once. When all was opened again, a run must have its step behind it, and be asleep.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bench_steps::Error;
use bench_steps::workflow::{READERS, SAMPLE};
use throng_durable::{Failure, Retry, RunStatus, Steps, Workflow, Workflows};

use super::numbered;
use crate::stores::disk_bytes;
use crate::workloads::durable::{
    self, Counters, Home, Order, ThrongCounters, ThrongHome, in_turn, on_node,
};
use crate::workloads::prelude::*;

/// Time for which a run sleeps, far longer than the benchmark runs.
const MONTH: Duration = Duration::from_secs(30 * 86_400);

/// Idle time after which a run leaves memory.
const IDLE: Duration = Duration::from_millis(200);

struct Trial(Arc<AtomicU64>);

impl Workflow for Trial {
    const NAME: &'static str = "trial";
    type Input = u64;
    type Output = u64;

    async fn run(&self, cx: &Steps, input: u64) -> Result<u64, Failure> {
        let step = async || {
            self.0.fetch_add(1, Ordering::Relaxed);
            Ok::<u64, io::Error>(input)
        };
        let begun = cx.step("begin", Retry::none(), step).await?;
        cx.sleep(MONTH).await;
        Ok(begun)
    }
}

pub(crate) fn run(_: &str, settings: &Settings) -> Measured {
    let processes = durable::processes(2 * settings.count, settings.get("inflight"));
    on_node(settings, processes, |home, settings| measure(home.idle_after(IDLE), settings))
}

async fn open(
    home: &ThrongHome,
    runs: u64,
    steps: &Arc<AtomicU64>,
) -> Result<ThrongCounters, Error> {
    let counters = home.open(durable::unlimited(runs)).await?;
    counters.node().run_workflows(Workflows::new().with(Trial(steps.clone())));
    Ok(counters)
}

async fn measure(home: ThrongHome, settings: Settings) -> Measured {
    let (count, steps) = (settings.count, Arc::new(AtomicU64::new(0)));
    let counters = open(&home, count, &steps).await?;
    let before = memory::anonymous_bytes()?;
    let starter = counters.clone();
    let start = move |_, number| {
        let run = numbered::<Trial>(starter.node(), number);
        async move { Ok(run.start(&number).await?) }
    };
    in_turn(&counters, 0..count, settings.get("inflight"), 0, start).await?;
    counters.rest().await?;
    tokio::time::sleep(Duration::from_secs(settings.get("settle"))).await;
    let grown = memory::anonymous_bytes()?.saturating_sub(before);
    counters.close().await?;
    let disk = disk_bytes(home.directory())?;

    let (reopened, sample) = (open(&home, count, &steps).await?, SAMPLE.min(count));
    let asleep = Arc::new(AtomicU64::new(0));
    let (reader, found) = (reopened.clone(), asleep.clone());
    let read = move |_, number| {
        let run = numbered::<Trial>(reader.node(), Order::Rounds.pick(number, count));
        let found = found.clone();
        async move {
            let status = run.status().await?;
            let steps = run.steps().await?;
            let kinds: Vec<_> = steps.iter().map(|step| (step.kind, step.is_over)).collect();
            let is_asleep =
                status == RunStatus::Running && kinds == [("step", true), ("sleep", false)];
            found.fetch_add(u64::from(is_asleep), Ordering::Relaxed);
            Ok(())
        }
    };
    in_turn(&reopened, 0..sample, READERS, 0, read).await?;
    reopened.close().await?;

    let mut outcome = Outcome::default();
    outcome.check("steps", steps.load(Ordering::Relaxed), count);
    outcome.check("runs asleep when opened again", asleep.load(Ordering::Relaxed), sample);
    outcome.metric("disk_bytes_per_run", disk as f64 / count as f64);
    outcome.metric("anonymous_bytes_per_run", grown as f64 / count as f64);
    Ok(outcome)
}
