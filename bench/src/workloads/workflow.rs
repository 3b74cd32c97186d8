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
use std::str;
use std::sync::Arc;

use bench_steps::Error;
use bench_steps::workflow::{self, Engine, NAMES, Plan, Sizes};
use throng_durable::{Failure, Node, Retry, Steps, Workflow, WorkflowRun, Workflows};

use super::durable::{self, Counters, Home, Tasks, ThrongCounters, ThrongHome, key, on_node};
use super::prelude::*;

struct PlaceOrder(Arc<Plan>);

impl Workflow for PlaceOrder {
    const NAME: &'static str = "order";
    type Input = u64;
    type Output = u64;

    async fn run(&self, cx: &Steps, input: u64) -> Result<u64, Failure> {
        let mut sum = 0;
        for (place, name) in (0..).zip(NAMES) {
            let step = async || Ok::<u64, io::Error>(self.0.step(input, place));
            sum += cx.step(name, Retry::none(), step).await?;
        }
        Ok(sum)
    }
}

/// Returns the run with a number. Its id has twenty digits, the hash of the number.
fn numbered<W: Workflow>(node: &Node, number: u64) -> WorkflowRun<W> {
    node.workflow(str::from_utf8(&key(number)).unwrap_or_default())
}

/// The place of so many runs.
struct Street {
    home: ThrongHome,
    runs: u64,
}

impl workflow::Home for Street {
    type Engine = Shop;

    async fn open(&self, plan: &Arc<Plan>) -> Result<Shop, Error> {
        let counters = self.home.open(durable::unlimited(self.runs)).await?;
        counters.node().run_workflows(Workflows::new().with(PlaceOrder(plan.clone())));
        Ok(Shop(counters))
    }
}

#[derive(Clone)]
struct Shop(ThrongCounters);

impl Tasks for Shop {
    fn start(&self, task: impl Future<Output = ()> + Send + 'static) {
        self.0.start(task);
    }
}

impl Engine for Shop {
    async fn run(&self, number: u64) -> Result<u64, Error> {
        numbered::<PlaceOrder>(self.0.node(), number).start(&number).await?;
        self.read(number).await
    }

    async fn read(&self, number: u64) -> Result<u64, Error> {
        Ok(numbered::<PlaceOrder>(self.0.node(), number).result().await?)
    }

    async fn close(self) -> Result<(), Error> {
        self.0.close().await
    }
}

pub(crate) fn run(_: &str, settings: &Settings) -> Measured {
    let runs = settings.count + settings.get("paced");
    let processes = durable::processes(2 * runs, settings.get("inflight"));
    on_node(settings, processes, move |home, settings| async move {
        let sizes = Sizes::of(settings.count, durable::setting(&settings))?;
        workflow::measure(&Street { home, runs }, &sizes).await
    })
}
