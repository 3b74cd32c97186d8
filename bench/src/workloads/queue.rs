//! `queue`: jobs that are stored until they are done, each of which runs once.
//!
//! ```text
//! push N, 500 at a time │ push `singles` one by one │ pause, push N │ resume │ `paced` jobs │ close, open
//! ├───── jobs_per_s ───┤├────── singles_per_s ─────┤                ├ backlog_per_s        │ check
//! ```
//!
//! - A clock stops when the end of the last job is on the disk, as the numbers of the queue tell.
//! - A job carries its number and a text. Its attempt adds the number to a sum and counts itself.
//! - `pushers` tasks push single jobs, each the next one after the last is on the disk.
//! - The percentiles are of the paced jobs: from the push until the attempt runs.
//! - Each job must have run once, and the sum must be right. When all was closed and opened again, the queue must be
//!   empty, and no job may have run again.

use std::ops::Range;
use std::sync::Arc;

use bench_steps::Error;
use bench_steps::outcome::Outcome;
use bench_steps::queue::{self, Plan, Sizes, TEXT};
use serde::{Deserialize, Serialize};
use throng_durable::{Attempt, JobError, Queue, QueueOptions, Queues, Worker};

use super::durable::{self, Counters, Done, Home, Tasks, ThrongCounters, ThrongHome, on_node};
use super::prelude::*;

#[derive(Serialize, Deserialize)]
struct Letter {
    number: u64,
    text: String,
}

impl Letter {
    fn new(number: u64) -> Letter {
        Letter { number, text: TEXT.to_owned() }
    }
}

#[derive(Clone)]
struct Mail(Arc<Plan>);

impl Worker for Mail {
    const QUEUE: &'static str = "mail";
    type Job = Letter;

    async fn run(&self, _: &Attempt, Letter { number, text }: Letter) -> Result<(), JobError> {
        self.0.run(number, &text);
        Ok(())
    }
}

struct PostOffice(ThrongHome);

#[derive(Clone)]
struct Post {
    counters: ThrongCounters,
    queue: Queue<Mail>,
}

impl queue::Home for PostOffice {
    type Queue = Post;

    async fn open(&self, plan: &Arc<Plan>, concurrency: usize) -> Result<Post, Error> {
        let counters = self.0.open(durable::unlimited(0)).await?;
        let options = QueueOptions::concurrency(concurrency);
        counters.node().run_queues(Queues::new().with(Mail(plan.clone()), options));
        let queue = counters.node().queue::<Mail>();
        Ok(Post { counters, queue })
    }
}

impl Tasks for Post {
    fn start(&self, task: impl Future<Output = ()> + Send + 'static) {
        self.counters.start(task);
    }
}

impl queue::Queue for Post {
    async fn push_all(&self, jobs: Range<u64>) -> Result<(), Error> {
        self.queue.push_all(jobs.map(Letter::new)).await?;
        Ok(())
    }

    async fn push(&self, _: u64, number: u64) -> Result<(), Error> {
        self.queue.push(Letter::new(number)).await?;
        Ok(())
    }

    async fn pause(&self) -> Result<(), Error> {
        Ok(self.queue.pause().await?)
    }

    async fn resume(&self) -> Result<(), Error> {
        Ok(self.queue.resume().await?)
    }

    async fn done(&self, pushed: u64) -> Result<Done, Error> {
        let stat = self.queue.stat().await?;
        Ok(Done { number: stat.done, is_all: stat.done >= pushed && stat.ready == 0 })
    }

    async fn left(&self) -> Result<u64, Error> {
        let stat = self.queue.stat().await?;
        Ok(stat.ready + stat.later + stat.dead + stat.done)
    }

    async fn check(&self, jobs: u64, outcome: &mut Outcome) -> Result<(), Error> {
        let stat = self.queue.stat().await?;
        outcome.check("jobs done", stat.done, jobs);
        outcome.check("attempts that failed", stat.failed, 0);
        Ok(())
    }

    async fn close(self) -> Result<(), Error> {
        drop(self.queue);
        self.counters.close().await
    }
}

pub(crate) fn run(_: &str, settings: &Settings) -> Measured {
    let tasks = settings.get("concurrency") + settings.get("pushers");
    on_node(settings, durable::processes(0, tasks), |home, settings| async move {
        let sizes = Sizes::of(settings.count, durable::setting(&settings))?;
        queue::measure(&PostOffice(home), &sizes).await
    })
}
