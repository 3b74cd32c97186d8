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

use std::io;
use std::ops::Range;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};
use throng_durable::{Attempt, JobError, Queue, QueueOptions, QueueStat, Queues, Worker};

use super::durable::{self, Counters, Home, ThrongCounters, ThrongHome, in_turn};
use super::latency;
use super::records::rate;
use crate::outcome::Outcome;
use crate::runtimes::{self, Measured};
use crate::settings::Settings;
use crate::stores::Directory;

/// Text that each job carries besides its number.
const TEXT: &str = "a letter of forty bytes to somebody else";

/// Time between two looks at the numbers of the queue.
const LOOK: Duration = Duration::from_millis(1);

/// Time in which no job is done, after which jobs count as lost.
const LOST: Duration = Duration::from_secs(30);

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

/// The jobs of a run, shared by those who push and those who run them.
struct Plan {
    begun: Instant,
    /// Number of attempts at each job.
    attempts: Box<[AtomicU8]>,
    sum: AtomicU64,
    wrong_texts: AtomicU64,
    /// Number of the first paced job, and the time of each push in nanoseconds.
    paced_from: u64,
    pushed_ns: Box<[AtomicU64]>,
    latencies: Mutex<Histogram<u64>>,
}

impl Plan {
    fn new(settings: &Settings) -> io::Result<Plan> {
        let jobs = 2 * settings.count + settings.get("singles");
        let paced = settings.get("paced");
        Ok(Plan {
            begun: Instant::now(),
            attempts: (0..jobs + paced).map(|_| AtomicU8::new(0)).collect(),
            sum: AtomicU64::new(0),
            wrong_texts: AtomicU64::new(0),
            paced_from: jobs,
            pushed_ns: (0..paced).map(|_| AtomicU64::new(0)).collect(),
            latencies: Mutex::new(latency::histogram()?),
        })
    }

    fn nanoseconds(&self) -> u64 {
        self.begun.elapsed().as_nanos() as u64
    }

    /// Place of the time at which a job is pushed, if it is a paced one.
    fn pushed_ns(&self, number: u64) -> Option<&AtomicU64> {
        self.pushed_ns.get(usize::try_from(number.checked_sub(self.paced_from)?).ok()?)
    }

    fn run(&self, Letter { number, text }: &Letter) {
        if let Some(pushed) = self.pushed_ns(*number) {
            // Relaxed: the store between the push and the attempt orders them.
            let latency = self.nanoseconds().saturating_sub(pushed.load(Ordering::Relaxed));
            let mut latencies = self.latencies.lock().unwrap_or_else(PoisonError::into_inner);
            latencies.saturating_record(latency);
        }
        if let Some(attempts) = self.attempts.get(*number as usize) {
            attempts.fetch_add(1, Ordering::Relaxed);
        }
        self.sum.fetch_add(*number, Ordering::Relaxed);
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

#[derive(Clone)]
struct Mail(Arc<Plan>);

impl Worker for Mail {
    const QUEUE: &'static str = "mail";
    type Job = Letter;

    async fn run(&self, _: &Attempt, letter: Letter) -> Result<(), JobError> {
        self.0.run(&letter);
        Ok(())
    }
}

#[derive(Clone)]
struct Post {
    counters: ThrongCounters,
    queue: Queue<Mail>,
    plan: Arc<Plan>,
}

impl Post {
    async fn open(home: &ThrongHome, settings: &Settings, plan: &Arc<Plan>) -> io::Result<Post> {
        let counters = home.open(durable::unlimited(0)).await?;
        let concurrency = usize::try_from(settings.get("concurrency")).unwrap_or(usize::MAX);
        let options = QueueOptions::concurrency(concurrency);
        counters.node().run_queues(Queues::new().with(Mail(plan.clone()), options));
        let queue = counters.node().queue::<Mail>();
        Ok(Post { counters, queue, plan: plan.clone() })
    }

    async fn stat(&self) -> io::Result<QueueStat> {
        self.queue.stat().await.map_err(io::Error::other)
    }

    async fn push_many(&self, first: u64, end: u64) -> io::Result<()> {
        let pushed = self.queue.push_all((first..end).map(Letter::new)).await;
        pushed.map(drop).map_err(io::Error::other)
    }

    /// Pushes jobs one by one, at `pace` a second in all unless that is 0.
    async fn push_singly(&self, jobs: Range<u64>, pushers: u64, pace: u64) -> io::Result<()> {
        let post = self.clone();
        let push = move |number| {
            let post = post.clone();
            async move {
                if let Some(pushed) = post.plan.pushed_ns(number) {
                    pushed.store(post.plan.nanoseconds(), Ordering::Relaxed);
                }
                let pushed = post.queue.push(Letter::new(number)).await;
                pushed.map(drop).map_err(io::Error::other)
            }
        };
        in_turn(&self.counters, jobs, pushers, pace, push).await
    }

    /// Waits until the ends of so many jobs are on the disk since the program's start, and no job is left.
    async fn wait(&self, done: u64) -> io::Result<()> {
        let (mut seen, mut seen_at) = (0, Instant::now());
        loop {
            let stat = self.stat().await?;
            if stat.done >= done && stat.ready == 0 {
                return Ok(());
            }
            if stat.done != seen {
                (seen, seen_at) = (stat.done, Instant::now());
            } else if seen_at.elapsed() > LOST {
                return Err(io::Error::other(format!("{seen} of {done} jobs are done: {stat:?}")));
            }
            tokio::time::sleep(LOOK).await;
        }
    }
}

pub(crate) fn run(_: &str, settings: &Settings) -> Measured {
    let directory = Directory::make(settings)?;
    let tasks = settings.get("concurrency") + settings.get("pushers");
    let processes = durable::processes(0, tasks);
    runtimes::throng::drive_with(settings, processes, false, move |runtime, settings| async move {
        measure(ThrongHome::new(&runtime, directory.path()), settings).await
    })
}

async fn measure(home: ThrongHome, settings: Settings) -> io::Result<Outcome> {
    let (count, singles) = (settings.count, settings.get("singles"));
    let pushers = settings.get("pushers");
    let plan = Arc::new(Plan::new(&settings)?);
    let post = Post::open(&home, &settings, &plan).await?;

    let clock = Instant::now();
    post.push_many(0, count).await?;
    post.wait(count).await?;
    let jobs = clock.elapsed();

    let clock = Instant::now();
    post.push_singly(count..count + singles, pushers, 0).await?;
    post.wait(count + singles).await?;
    let singles_time = clock.elapsed();

    let paced_from = 2 * count + singles;
    post.queue.pause().await.map_err(io::Error::other)?;
    post.push_many(count + singles, paced_from).await?;
    let clock = Instant::now();
    post.queue.resume().await.map_err(io::Error::other)?;
    post.wait(paced_from).await?;
    let backlog = clock.elapsed();

    let all = paced_from + settings.get("paced");
    post.push_singly(paced_from..all, pushers, settings.get("pace")).await?;
    post.wait(all).await?;

    let mut outcome = Outcome::default();
    let stat = post.stat().await?;
    outcome.check("jobs done", stat.done, all);
    outcome.check("attempts that failed", stat.failed, 0);
    plan.check("after the run", &mut outcome);
    let Post { counters, queue, .. } = post;
    drop(queue);
    counters.close().await?;
    let reopened = Post::open(&home, &settings, &plan).await?;
    let stat = reopened.stat().await?;
    let left = stat.ready + stat.later + stat.dead + stat.done;
    outcome.check("jobs left when opened again", left, 0);
    plan.check("when opened again", &mut outcome);
    reopened.counters.close().await?;

    outcome.metric("jobs_per_s", rate(count, jobs));
    outcome.metric("singles_per_s", rate(singles, singles_time));
    outcome.metric("backlog_per_s", rate(count, backlog));
    let latencies = plan.latencies.lock().unwrap_or_else(PoisonError::into_inner);
    latency::report(&mut outcome, "", &latencies);
    Ok(outcome)
}
