//! The steps and checks of `queue`: see `bench/src/workloads/queue.rs`.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::time::Instant;

use crate::Error;
use crate::latency::Latencies;
use crate::numbers::rate;
use crate::outcome::Outcome;
use crate::tasks::{self, Done, Tasks, in_turn};

/// Text that each job carries besides its number.
pub const TEXT: &str = "a letter of forty bytes to somebody else";

/// The settings of a run.
pub struct Sizes {
    /// Number of jobs that are pushed together, twice.
    pub count: u64,
    /// Number of jobs that are pushed one by one.
    pub singles: u64,
    /// Number of tasks that push single jobs.
    pub pushers: u64,
    /// Number of jobs that are pushed at a pace.
    pub paced: u64,
    /// Paced jobs per second.
    pub pace: u64,
    /// Number of jobs that run at a time.
    pub concurrency: usize,
}

impl Sizes {
    /// Reads the settings of a run with so many jobs.
    ///
    /// # Errors
    /// That of a setting that is missing.
    pub fn of(count: u64, get: impl Fn(&str) -> Result<u64, Error>) -> Result<Sizes, Error> {
        Ok(Sizes {
            count,
            singles: get("singles")?,
            pushers: get("pushers")?,
            paced: get("paced")?,
            pace: get("pace")?,
            concurrency: usize::try_from(get("concurrency")?)?,
        })
    }
}

/// The jobs of a run, shared by the tasks that push and the workers.
pub struct Plan {
    begun: Instant,
    /// Number of attempts at each job.
    attempts: Box<[AtomicU8]>,
    sum: AtomicU64,
    wrong_texts: AtomicU64,
    /// Number of the first paced job, and the time of each push in nanoseconds.
    paced_from: u64,
    pushed_ns: Box<[AtomicU64]>,
    latencies: Latencies,
}

impl Plan {
    fn new(sizes: &Sizes) -> Result<Plan, Error> {
        let jobs = 2 * sizes.count + sizes.singles;
        Ok(Plan {
            begun: Instant::now(),
            attempts: (0..jobs + sizes.paced).map(|_| AtomicU8::new(0)).collect(),
            sum: AtomicU64::new(0),
            wrong_texts: AtomicU64::new(0),
            paced_from: jobs,
            pushed_ns: (0..sizes.paced).map(|_| AtomicU64::new(0)).collect(),
            latencies: Latencies::new()?,
        })
    }

    fn nanoseconds(&self) -> u64 {
        self.begun.elapsed().as_nanos() as u64
    }

    /// Place of the time at which a job is pushed, if it is a paced one.
    fn pushed_ns(&self, number: u64) -> Option<&AtomicU64> {
        self.pushed_ns.get(usize::try_from(number.checked_sub(self.paced_from)?).ok()?)
    }

    /// Makes an attempt at a job.
    pub fn run(&self, number: u64, text: &str) {
        if let Some(pushed) = self.pushed_ns(number) {
            // Relaxed: the store between the push and the attempt orders them.
            self.latencies
                .record(self.nanoseconds().saturating_sub(pushed.load(Ordering::Relaxed)));
        }
        if let Some(attempts) = self.attempts.get(number as usize) {
            attempts.fetch_add(1, Ordering::Relaxed);
        }
        self.sum.fetch_add(number, Ordering::Relaxed);
        self.wrong_texts.fetch_add(u64::from(text != TEXT), Ordering::Relaxed);
    }

    fn check(&self, moment: &str, outcome: &mut Outcome) {
        let jobs = self.attempts.len() as u64;
        let ran = |attempts: &&AtomicU8| attempts.load(Ordering::Relaxed) == 1;
        let once = self.attempts.iter().filter(ran).count() as u64;
        outcome.check(&format!("jobs that ran once {moment}"), once, jobs);
        let sum = self.sum.load(Ordering::Relaxed);
        outcome.check(&format!("sum of the jobs {moment}"), sum, jobs * (jobs - 1) / 2);
        let wrong = self.wrong_texts.load(Ordering::Relaxed);
        outcome.check(&format!("wrong texts {moment}"), wrong, 0);
    }
}

/// The place of a queue.
pub trait Home {
    /// The queue when it is open.
    type Queue: Queue;

    /// Opens the queue that was stored there. Its workers begin with its jobs.
    fn open(
        &self,
        plan: &Arc<Plan>,
        concurrency: usize,
    ) -> impl Future<Output = Result<Self::Queue, Error>> + Send;
}

/// An open queue.
pub trait Queue: Tasks + Clone {
    /// Stores jobs, some hundreds in a commit.
    fn push_all(&self, jobs: Range<u64>) -> impl Future<Output = Result<(), Error>> + Send;

    /// Stores a job, by a task with this number.
    fn push(&self, task: u64, number: u64) -> impl Future<Output = Result<(), Error>> + Send;

    /// Has no job begin from now on. No job is stored.
    fn pause(&self) -> impl Future<Output = Result<(), Error>> + Send;

    /// Has jobs begin.
    fn resume(&self) -> impl Future<Output = Result<(), Error>> + Send;

    /// Counts the jobs whose ends are on the disk, of which so many have been pushed.
    fn done(&self, pushed: u64) -> impl Future<Output = Result<Done, Error>> + Send;

    /// Returns the number of jobs that are not done.
    fn left(&self) -> impl Future<Output = Result<u64, Error>> + Send;

    /// Checks the queue's own account of its jobs, all of which are done.
    fn check(&self, _jobs: u64, _: &mut Outcome) -> impl Future<Output = Result<(), Error>> + Send {
        async { Ok(()) }
    }

    /// Closes the queue. Its jobs stay.
    fn close(self) -> impl Future<Output = Result<(), Error>> + Send;
}

async fn push_singly(
    queue: &impl Queue,
    plan: &Arc<Plan>,
    jobs: Range<u64>,
    pushers: u64,
    pace: u64,
) -> Result<(), Error> {
    let (own, plan) = (queue.clone(), plan.clone());
    let push = move |task, number| {
        let (queue, plan) = (own.clone(), plan.clone());
        async move {
            if let Some(pushed) = plan.pushed_ns(number) {
                pushed.store(plan.nanoseconds(), Ordering::Relaxed);
            }
            queue.push(task, number).await
        }
    };
    in_turn(queue, jobs, pushers, pace, push).await
}

async fn wait(queue: &impl Queue, pushed: u64) -> Result<(), Error> {
    tasks::wait(|| queue.done(pushed)).await
}

/// Runs the workload on a queue.
///
/// # Errors
/// That of the queue; if jobs are lost.
pub async fn measure(home: &impl Home, sizes: &Sizes) -> Result<Outcome, Error> {
    let Sizes { count, singles, pushers, paced, pace, concurrency } = *sizes;
    let plan = Arc::new(Plan::new(sizes)?);
    let queue = home.open(&plan, concurrency).await?;
    let mut outcome = Outcome::default();

    let clock = Instant::now();
    queue.push_all(0..count).await?;
    wait(&queue, count).await?;
    outcome.metric("jobs_per_s", rate(count, clock.elapsed()));

    let clock = Instant::now();
    push_singly(&queue, &plan, count..count + singles, pushers, 0).await?;
    wait(&queue, count + singles).await?;
    outcome.metric("singles_per_s", rate(singles, clock.elapsed()));

    let paced_from = 2 * count + singles;
    queue.pause().await?;
    queue.push_all(count + singles..paced_from).await?;
    let clock = Instant::now();
    queue.resume().await?;
    wait(&queue, paced_from).await?;
    outcome.metric("backlog_per_s", rate(count, clock.elapsed()));

    let all = paced_from + paced;
    push_singly(&queue, &plan, paced_from..all, pushers, pace).await?;
    wait(&queue, all).await?;

    queue.check(all, &mut outcome).await?;
    plan.check("after the run", &mut outcome);
    queue.close().await?;
    let reopened = home.open(&plan, concurrency).await?;
    outcome.check("jobs left when opened again", reopened.left().await?, 0);
    plan.check("when opened again", &mut outcome);
    reopened.close().await?;
    plan.latencies.report(&mut outcome);
    Ok(outcome)
}
