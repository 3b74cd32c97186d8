//! The steps and checks of `queue`: see bench/src/workloads/queue.rs.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::outcome::Outcome;
use crate::plan::Plan;
use crate::tasks::in_turn;
use crate::{Error, Settings};

/// Number of jobs that are pushed together.
const JOBS_AT_ONCE: u64 = 500;

/// Time between two looks at the number of jobs that are done.
const LOOK: Duration = Duration::from_millis(1);

/// Time in which no job is done, after which jobs count as lost.
const LOST: Duration = Duration::from_secs(30);

/// The place of a queue.
pub(crate) trait Home {
    type Queue: Queue;

    /// Opens the queue that was stored there. Its workers begin with its jobs.
    fn open(
        &self,
        plan: &Arc<Plan>,
        concurrency: usize,
    ) -> impl Future<Output = Result<Self::Queue, Error>>;
}

/// An open queue.
pub(crate) trait Queue: Clone + Send + Sync + 'static {
    /// Stores jobs in one commit.
    fn push_together(&self, first: u64, end: u64) -> impl Future<Output = Result<(), Error>>;

    /// Stores a job, by a task with this number.
    fn push(&self, task: u64, number: u64) -> impl Future<Output = Result<(), Error>> + Send;

    /// Has no job begin from now on. No job is stored.
    fn pause(&self) -> impl Future<Output = Result<(), Error>>;

    /// Has jobs begin.
    fn resume(&self) -> impl Future<Output = Result<(), Error>>;

    /// Whether the ends of all stored jobs are on the disk, of which so many have been pushed.
    fn is_done(&self, pushed: u64) -> impl Future<Output = Result<bool, Error>>;

    /// Returns the number of jobs that are not done.
    fn left(&self) -> impl Future<Output = Result<u64, Error>>;

    fn close(self) -> impl Future<Output = Result<(), Error>>;
}

async fn push_many(queue: &impl Queue, first: u64, end: u64) -> Result<(), Error> {
    let mut next = first;
    while next < end {
        let part = end.min(next + JOBS_AT_ONCE);
        queue.push_together(next, part).await?;
        next = part;
    }
    Ok(())
}

async fn push_singly(
    queue: &impl Queue,
    plan: &Arc<Plan>,
    jobs: std::ops::Range<u64>,
    pushers: u64,
    pace: u64,
) -> Result<(), Error> {
    let (queue, plan) = (queue.clone(), plan.clone());
    let push = move |task, number| {
        let (queue, plan) = (queue.clone(), plan.clone());
        async move {
            plan.push(number);
            queue.push(task, number).await
        }
    };
    in_turn(jobs, pushers, pace, push).await
}

async fn wait(queue: &impl Queue, plan: &Plan, pushed: u64) -> Result<(), Error> {
    let (mut seen, mut seen_at) = (0, Instant::now());
    loop {
        let ran = plan.ran();
        if ran >= pushed && queue.is_done(pushed).await? {
            return Ok(());
        }
        if ran != seen {
            (seen, seen_at) = (ran, Instant::now());
        } else if seen_at.elapsed() > LOST {
            return Err(format!("{ran} of {pushed} jobs have run").into());
        }
        tokio::time::sleep(LOOK).await;
    }
}

pub(crate) async fn run(home: &impl Home, settings: &Settings) -> Result<Outcome, Error> {
    let (count, singles) = (settings.count, settings.get("singles")?);
    let (pushers, pace) = (settings.get("pushers")?, settings.get("pace")?);
    let concurrency = usize::try_from(settings.get("concurrency")?)?;
    let plan = Arc::new(Plan::new(settings)?);
    let queue = home.open(&plan, concurrency).await?;
    let mut outcome = Outcome::default();

    let clock = Instant::now();
    push_many(&queue, 0, count).await?;
    wait(&queue, &plan, count).await?;
    outcome.rate("jobs_per_s", count, clock.elapsed());

    let clock = Instant::now();
    push_singly(&queue, &plan, count..count + singles, pushers, 0).await?;
    wait(&queue, &plan, count + singles).await?;
    outcome.rate("singles_per_s", singles, clock.elapsed());

    let paced_from = 2 * count + singles;
    queue.pause().await?;
    push_many(&queue, count + singles, paced_from).await?;
    let clock = Instant::now();
    queue.resume().await?;
    wait(&queue, &plan, paced_from).await?;
    outcome.rate("backlog_per_s", count, clock.elapsed());

    let all = paced_from + settings.get("paced")?;
    push_singly(&queue, &plan, paced_from..all, pushers, pace).await?;
    wait(&queue, &plan, all).await?;

    plan.check("after the run", &mut outcome);
    queue.close().await?;
    let reopened = home.open(&plan, concurrency).await?;
    outcome.check("jobs left when opened again", reopened.left().await?, 0);
    reopened.close().await?;
    plan.check("when opened again", &mut outcome);
    plan.report(&mut outcome);
    Ok(outcome)
}
