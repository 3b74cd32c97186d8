//! Queues of jobs that survive the end of their program.
//!
//! ```text
//!  queue.push(job), cx.push(&queue, job) ──▶ entity `job-queue` of this name: order.rs decides which job starts
//!                                                 ▲                    │
//!                                                 └── how it ended ─── ▼ pool.rs: a process for each attempt
//!                                                                   W::run
//! ```

mod line;
mod live;
mod order;
mod pool;
mod show;

use std::collections::HashMap;
use std::fmt::{self, Display};
use std::future::Future;
use std::marker::PhantomData;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::time::{Duration, SystemTime};

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use throng::Context;

use self::line::{Count, Counts, Line, List, Pause, Push, PushDurably, Remove, Retry, Stored};
use self::pool::{AnyWorker, Periodic, Pool, Running};
pub use self::show::{QueueChange, ShownJob, ShownQueue};
use crate::activation::Activation;
use crate::catalogue::Number;
use crate::message::Encoded;
use crate::node::Inner;
use crate::{
    Branch, CommitError, Durable, DurableContext, Entity, EntityError, Node, OnFailure, Schedule,
    StateError, WeakNode, values,
};

/// Jobs that [`Queue::push_all`] stores in a commit.
const JOBS_AT_ONCE: usize = 500;

/// Worker of a queue: makes an attempt at each of its jobs, until one succeeds.
///
/// The jobs are stored, and each attempt is a process of its own. An attempt that fails or panics is followed by another
/// one after a pause, and after the last one the job is *dead*: it is kept for somebody to look at. A job whose program
/// ends while it runs starts again with the next program, at once. A [shutdown](Node::shutdown) ends attempts at their
/// next `await`, and so does not wait for them. So an attempt may find that an earlier one has done
/// its work; [`Attempt::id`] is the same in all attempts, and serves as a key for what must happen once.
///
/// ```
/// use serde::{Deserialize, Serialize};
/// use throng::prelude::*;
/// use throng_durable::{Attempt, Job, JobError, Node, QueueOptions, Queues, Worker};
///
/// #[derive(Serialize, Deserialize)]
/// struct Letter {
///     to: String,
/// }
///
/// struct Mail;
///
/// impl Worker for Mail {
///     const QUEUE: &'static str = "mail";
///     type Job = Letter;
///
///     async fn run(&self, _: &Attempt, letter: Letter) -> Result<(), JobError> {
///         match letter.to.contains('@') {
///             true => Ok(println!("to {}", letter.to)),
///             false => Err(JobError::discard("it has no address")),
///         }
///     }
/// }
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let directory = tempfile::tempdir()?;
/// # let path = directory.path();
/// let runtime = Runtime::builder().workers(1).start()?;
/// let node = Node::options(path).open(&runtime)?;
/// node.run_queues(Queues::new().with(Mail, QueueOptions::concurrency(50)));
/// runtime.block_on(async |_| {
///     let mail = node.queue::<Mail>();
///     mail.push(Letter { to: "ada@example.org".into() }).await?;
///     mail.push(Job::new(Letter { to: "bob".into() }).priority(0)).await?;
///     while mail.stat().await?.unfinished() > 0 {}
///     assert_eq!(mail.stat().await?.dead, 1);
///     Ok::<(), throng_durable::EntityError>(())
/// })?;
/// # Ok(())
/// # }
/// ```
pub trait Worker: Send + Sync + 'static {
    /// Name of the queue in the store. The name must never change.
    const QUEUE: &'static str;

    /// Type of the jobs. As a state, it may change as long as its fields are read by their names.
    type Job: Serialize + DeserializeOwned + Send + 'static;

    /// Makes an attempt at a job. `self` has what it needs: clients, settings.
    fn run(
        &self,
        cx: &Attempt,
        job: Self::Job,
    ) -> impl Future<Output = Result<(), JobError>> + Send;
}

impl<W: Worker> AnyWorker for W {
    fn begin<'a>(
        &'a self,
        node: &Inner,
        attempt: &'a Attempt,
        value: &[u8],
    ) -> Result<Branch<'a, Result<(), JobError>>, StateError> {
        let job = values::decode(node, Line::KIND, W::QUEUE, value)?;
        Ok(Box::pin(self.run(attempt, job)))
    }
}

/// Reason why an attempt at a job has not done it. Any error converts into it by `?`, and has the job tried again.
#[derive(Clone, Debug)]
pub struct JobError(Verdict);

#[derive(Clone, Debug)]
enum Verdict {
    Fail { reason: String, is_final: bool },
    Snooze(Duration),
}

impl Verdict {
    fn fail(reason: String) -> Verdict {
        Verdict::Fail { reason, is_final: false }
    }
}

impl JobError {
    /// Has the job tried again after a pause, unless this was the last attempt.
    pub fn new(reason: impl Into<String>) -> JobError {
        JobError(Verdict::fail(reason.into()))
    }

    /// Has the job not tried again: it is dead.
    pub fn discard(reason: impl Into<String>) -> JobError {
        JobError(Verdict::Fail { reason: reason.into(), is_final: true })
    }

    /// Has the job come again after a time. The attempt does not count as failed.
    pub fn snooze(time: Duration) -> JobError {
        JobError(Verdict::Snooze(time))
    }
}

impl<E: std::error::Error> From<E> for JobError {
    fn from(error: E) -> JobError {
        JobError::new(error.to_string())
    }
}

/// Identity of a job in its queue. It says which of two jobs starts first: that of the smaller number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct JobId(pub u64);

impl JobId {
    const FIRST: JobId = JobId(0);

    /// Returns the id of a queue's n-th job.
    fn new(priority: u8, number: u64) -> JobId {
        JobId(u64::from(priority) << 56 | number & (u64::MAX >> 8))
    }

    fn next(self) -> JobId {
        JobId(self.0.saturating_add(1))
    }
}

impl Display for JobId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A job on its way into a queue: a value, and when and how it is to be done.
#[derive(Clone, Debug)]
pub struct Job<T> {
    value: T,
    when: When,
    own: NewJob,
}

#[derive(Clone, Copy, Debug)]
enum When {
    Now,
    After(Duration),
    At(SystemTime),
}

/// A job without its type, as it is stored.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
struct NewJob {
    value: Vec<u8>,
    priority: u8,
    /// Milliseconds since 1970.
    due: u64,
    key: Option<String>,
    unique: Option<String>,
    attempts: Option<u32>,
}

/// A job for a store, and the numbers that it has.
struct EncodedJob {
    job: NewJob,
    numbers: Vec<Arc<Number>>,
}

impl<T> From<T> for Job<T> {
    fn from(value: T) -> Job<T> {
        Job::new(value)
    }
}

impl<T> Job<T> {
    /// Returns a job that is done as soon as its queue comes to it.
    pub fn new(value: T) -> Job<T> {
        let own = NewJob { priority: 100, ..NewJob::default() };
        Job { value, when: When::Now, own }
    }

    /// Sets the priority, 100 by default. Of the jobs that are due, those of the smallest number start first, in the
    /// order in which they were pushed.
    #[must_use]
    pub fn priority(mut self, priority: u8) -> Job<T> {
        self.own.priority = priority;
        self
    }

    /// Has the job wait for a time. The system's clock decides when it is over.
    #[must_use]
    pub fn after(self, time: Duration) -> Job<T> {
        Job { when: When::After(time), ..self }
    }

    /// Has the job wait until a time on the system's clock.
    #[must_use]
    pub fn at(self, time: SystemTime) -> Job<T> {
        Job { when: When::At(time), ..self }
    }

    /// Sets a key, such as that of a customer. [`QueueOptions::per_key`] bounds how many jobs of a key run at the same
    /// time.
    #[must_use]
    pub fn key(mut self, key: impl Into<String>) -> Job<T> {
        self.own.key = Some(key.into());
        self
    }

    /// Sets a name that no other job of the queue may have until this one is done or dead: a push of another one does
    /// nothing. At most 250 bytes.
    #[must_use]
    pub fn unique(mut self, name: impl Into<String>) -> Job<T> {
        self.own.unique = Some(name.into());
        self
    }

    /// Sets the number of attempts after which the job is dead, in place of that of the queue.
    #[must_use]
    pub fn attempts(mut self, attempts: u32) -> Job<T> {
        self.own.attempts = Some(attempts);
        self
    }
}

impl<T: Serialize + DeserializeOwned + 'static> Job<T> {
    fn encode(&self, node: &Inner) -> Result<EncodedJob, String> {
        let Encoded { record: value, numbers } =
            values::encode(node, Line::KIND, Vec::new(), &self.value)?;
        let due = match self.when {
            When::Now => Duration::ZERO,
            When::After(time) => node.store.since_1970().saturating_add(time),
            When::At(time) => time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default(),
        };
        let due = u64::try_from(due.as_millis()).unwrap_or(u64::MAX);
        let numbers = numbers.into_iter().flatten().collect();
        Ok(EncodedJob { job: NewJob { value, due, ..self.own.clone() }, numbers })
    }
}

/// Limits, attempts and pauses of a queue.
#[derive(Clone, Copy, Debug)]
pub struct QueueOptions {
    concurrency: usize,
    per_key: usize,
    rate: Option<(u32, Duration)>,
    attempts: u32,
    pauses: OnFailure,
    timeout: Option<Duration>,
}

impl QueueOptions {
    /// Has so many jobs run at the same time, one at least.
    pub fn concurrency(jobs: usize) -> QueueOptions {
        QueueOptions {
            concurrency: jobs.max(1),
            per_key: usize::MAX,
            rate: None,
            attempts: 20,
            pauses: OnFailure::park_after(1)
                .pauses(Duration::from_secs(1), Duration::from_secs(3600)),
            timeout: None,
        }
    }

    /// Has so many jobs of a [key](Job::key) run at the same time, one at least. No limit by default.
    ///
    /// The queue looks 100,000 jobs ahead: if more wait for their keys, those behind them wait as well.
    #[must_use]
    pub fn per_key(self, jobs: usize) -> QueueOptions {
        QueueOptions { per_key: jobs.max(1), ..self }
    }

    /// Has so many jobs start in each period of this length, one at least. A period begins with its first job, and anew
    /// with each program.
    #[must_use]
    pub fn rate(self, jobs: u32, period: Duration) -> QueueOptions {
        QueueOptions { rate: Some((jobs.max(1), period)), ..self }
    }

    /// Sets the number of attempts after which a job is dead, one at least and 20 by default.
    #[must_use]
    pub fn attempts(self, attempts: u32) -> QueueOptions {
        QueueOptions { attempts: attempts.max(1), ..self }
    }

    /// Sets the first and the longest pause between two attempts, a second and an hour by default. Pauses double, and
    /// each is cut by up to a half, at random.
    #[must_use]
    pub fn pauses(self, first: Duration, longest: Duration) -> QueueOptions {
        QueueOptions { pauses: self.pauses.pauses(first, longest), ..self }
    }

    /// Sets the time after which an attempt is given up, and has failed. No limit by default.
    #[must_use]
    pub fn timeout(self, time: Duration) -> QueueOptions {
        QueueOptions { timeout: Some(time), ..self }
    }
}

/// The queues of a program, for [`Node::run_queues`]. Cheap to clone.
#[derive(Clone, Default)]
pub struct Queues(Arc<HashMap<&'static str, Arc<Pool>>>);

impl Queues {
    /// Returns an empty list.
    pub fn new() -> Queues {
        Queues::default()
    }

    /// Adds a queue.
    ///
    /// # Panics
    ///
    /// If the list has one of this name, or was registered already.
    #[must_use]
    pub fn with<W: Worker>(mut self, worker: W, options: QueueOptions) -> Queues {
        let pool = Arc::new(Pool::new(W::QUEUE, Arc::new(worker), options));
        let before = self.own().insert(W::QUEUE, pool);
        assert!(before.is_none(), "two queues have the name {:?}", W::QUEUE);
        self
    }

    /// Has the queue of a worker get a job again and again. The schedule is stored with the queue under the name, so
    /// that occurrences which are missed come as it says; those of names that the program does not have are cancelled.
    ///
    /// # Panics
    ///
    /// If the list has no queue of this worker, or was registered already.
    #[must_use]
    pub fn every<W: Worker>(
        mut self,
        name: &str,
        schedule: Schedule,
        job: impl Into<Job<W::Job>>,
    ) -> Queues
    where
        W::Job: Sync,
    {
        let job = job.into();
        let job = Box::new(move |node: &Inner| job.encode(node));
        let periodic = Periodic { name: name.into(), schedule, job };
        match self.own().get_mut(W::QUEUE).and_then(Arc::get_mut) {
            Some(pool) => pool.periodic.push(periodic),
            None => panic!("the list has no queue {:?}", W::QUEUE),
        }
        self
    }

    fn own(&mut self) -> &mut HashMap<&'static str, Arc<Pool>> {
        match Arc::get_mut(&mut self.0) {
            Some(own) => own,
            None => panic!("the queues were registered already"),
        }
    }

    fn find(&self, name: &str) -> Option<Arc<Pool>> {
        self.0.get(name).cloned()
    }
}

/// The queues of a node, for its end.
pub(crate) struct WeakQueues(Weak<HashMap<&'static str, Arc<Pool>>>);

impl WeakQueues {
    /// Ends all attempts, and has none begin. Returns whether some are still under way.
    pub(crate) fn end(&self) -> bool {
        let queues = self.0.upgrade();
        queues.is_some_and(|queues| queues.values().filter(|pool| pool.end()).count() > 0)
    }

    /// Undoes that, for a node that goes on.
    pub(crate) fn go_on(&self) {
        if let Some(queues) = self.0.upgrade() {
            queues.values().for_each(|pool| pool.go_on());
        }
    }
}

impl fmt::Debug for Queues {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.0.keys()).finish()
    }
}

/// An attempt at a job, for its [`Worker`].
#[derive(Debug)]
pub struct Attempt {
    id: JobId,
    number: u32,
    node: WeakNode,
    running: Arc<Running>,
}

impl Attempt {
    /// Returns the identity of the job.
    pub fn id(&self) -> JobId {
        self.id
    }

    /// Returns the number of the attempt, from one. Attempts that the end of a program has cut off count.
    pub fn number(&self) -> u32 {
        self.number
    }

    /// Returns the node, or `None` if its shutdown has begun.
    pub fn node(&self) -> Option<Node> {
        self.node.upgrade()
    }

    /// Reports the progress of the attempt, for [`Queue::jobs`]. Nothing is stored.
    pub fn report(&self, done: u64, of: u64) {
        self.running.done.store(done, Ordering::Relaxed);
        self.running.of.store(of, Ordering::Relaxed);
    }
}

impl Node {
    /// Sets the queues of the program, which begin to do their jobs: also those that were left from the last program.
    ///
    /// # Panics
    ///
    /// If the node has queues already.
    pub fn run_queues(&self, queues: Queues) {
        let inner = self.inner();
        self.register::<Line>(queues.clone());
        let _ = inner.queues.set(WeakQueues(Arc::downgrade(&queues.0)));
        let directory = inner.directory::<Line>();
        for name in queues.0.keys() {
            let queue = self.entity::<Line>(name);
            // It stays in memory, and comes back if it fails.
            if let Ok(name) = queue.name() {
                directory.keep(inner, name);
            }
            // If it cannot be woken now, the pin has it woken.
            let _ = queue.send(line::Look {});
        }
        for name in self.stored::<Line>().iter().flat_map(|stored| stored.keys()).flatten() {
            if !queues.0.contains_key(name) {
                tracing::warn!(
                    queue = name,
                    "the program has no such queue, whose jobs are not done"
                );
            }
        }
    }

    /// Returns the queue of a worker. No I/O.
    pub fn queue<W: Worker>(&self) -> Queue<W> {
        Queue { line: self.entity(W::QUEUE), worker: PhantomData }
    }
}

/// A queue of jobs, from [`Node::queue`].
pub struct Queue<W> {
    line: Entity<Line>,
    worker: PhantomData<fn() -> W>,
}

/// Result of a push.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Pushed {
    /// The job, or the one that has its [unique](Job::unique) name.
    pub id: JobId,
    /// Whether the queue had no job of this name.
    pub is_new: bool,
}

/// Place of a job in its queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum JobState {
    /// The job runs, or starts when the queue comes to it.
    Ready,
    /// The job waits for a time, as between two attempts.
    Later,
    /// The job is not tried any more.
    Dead,
}

/// A job in a queue, from [`Queue::jobs`].
#[derive(Debug)]
#[non_exhaustive]
pub struct JobInfo<T> {
    /// Identity of the job.
    pub id: JobId,
    /// Its value, unless the stored one does not fit the type.
    pub value: Result<T, StateError>,
    /// Time at which the job is or was due; `None` for a job that was to start at once.
    pub due: Option<SystemTime>,
    /// Number of attempts that have begun.
    pub attempts: u32,
    /// Number of attempts that have failed.
    pub failures: u32,
    /// The last failure.
    pub reason: Option<String>,
    /// Progress of the attempt that runs, as it has [reported](Attempt::report); `None` if none runs.
    pub progress: Option<(u64, u64)>,
}

/// Numbers of a queue, from [`Queue::stat`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct QueueStat {
    /// Number of jobs that run, or start when the queue comes to them.
    pub ready: u64,
    /// Number of jobs that run.
    pub running: u64,
    /// Number of jobs that wait for a time.
    pub later: u64,
    /// Number of jobs that are not tried any more.
    pub dead: u64,
    /// Number of jobs that were done since the program's start.
    pub done: u64,
    /// Number of attempts that have failed since then.
    pub failed: u64,
    /// Whether no job starts.
    pub is_paused: bool,
}

impl QueueStat {
    /// Returns the number of jobs that are neither done nor dead.
    pub fn unfinished(&self) -> u64 {
        self.ready + self.later
    }
}

impl<W: Worker> Queue<W> {
    /// Stores a job, and returns when it is on disk.
    ///
    /// Inside of a handler, [`DurableContext::push`] stores it in the commit of the turn.
    ///
    /// # Errors
    ///
    /// See [`EntityError`]. After `Unknown` the job is perhaps stored; push it with a [unique](Job::unique) name to
    /// repeat that without harm.
    pub async fn push(&self, job: impl Into<Job<W::Job>>) -> Result<Pushed, EntityError> {
        let EncodedJob { job, numbers } = self.encode(&job.into())?;
        let pushed = self.line.call(Push { jobs: vec![job], numbers }).await?;
        pushed.into_iter().next().ok_or(EntityError::Died)
    }

    /// Stores jobs, 500 in a commit, and returns when all are on disk.
    ///
    /// # Errors
    ///
    /// See [`push`](Queue::push). Commits before the error are kept.
    pub async fn push_all<J: Into<Job<W::Job>>>(
        &self,
        jobs: impl IntoIterator<Item = J>,
    ) -> Result<Vec<Pushed>, EntityError> {
        let mut jobs = jobs.into_iter().peekable();
        let mut pushed = Vec::new();
        while jobs.peek().is_some() {
            let (mut part, mut numbers) = (Vec::new(), Vec::new());
            for job in jobs.by_ref().take(JOBS_AT_ONCE) {
                let encoded = self.encode(&job.into())?;
                part.push(encoded.job);
                numbers.extend(encoded.numbers);
            }
            pushed.extend(self.line.call(Push { jobs: part, numbers }).await?);
        }
        Ok(pushed)
    }

    fn encode(&self, job: &Job<W::Job>) -> Result<EncodedJob, EntityError> {
        job.encode(self.line.node().inner()).map_err(not_encoded::<W::Job>)
    }

    /// Returns the jobs of a state behind one, in the order of their ids, so many at most. Their values are read.
    ///
    /// # Errors
    ///
    /// See [`EntityError`].
    pub async fn jobs(
        &self,
        state: JobState,
        after: Option<JobId>,
        most: usize,
    ) -> Result<Vec<JobInfo<W::Job>>, EntityError> {
        let listed = self.line.call(List { state, after, most }).await?;
        let listed = listed.map_err(|error| EntityError::NotCommitted(CommitError::Cell(error)))?;
        let pool = self.line.deps()?.find(W::QUEUE);
        let describe = |(id, Stored { job, failures, attempts, reason, .. }): (JobId, Stored)| {
            let inner = self.line.node().inner();
            let progress = pool.as_ref().and_then(|pool| pool.running(id)).map(|running| {
                (running.done.load(Ordering::Relaxed), running.of.load(Ordering::Relaxed))
            });
            let due = SystemTime::UNIX_EPOCH.checked_add(Duration::from_millis(job.due));
            let value = values::decode(inner, Line::KIND, W::QUEUE, &job.value);
            let due = due.filter(|_| job.due > 0);
            JobInfo { id, value, due, attempts, failures, reason, progress }
        };
        Ok(listed.into_iter().map(describe).collect())
    }

    /// Returns the numbers of the queue.
    ///
    /// # Errors
    ///
    /// See [`EntityError`].
    pub async fn stat(&self) -> Result<QueueStat, EntityError> {
        let Counts { ready, later, dead, running, is_paused } = self.line.call(Count {}).await?;
        let pool = self.line.deps()?.find(W::QUEUE);
        let [done, failed] = pool.map_or([0, 0], |pool| {
            [&pool.done, &pool.failed].map(|count| count.load(Ordering::Relaxed))
        });
        let running = running as u64;
        Ok(QueueStat { ready, running, later, dead, done, failed, is_paused })
    }

    /// Removes a job, in whichever state it is; returns false if there is none. If it runs, the attempt ends at its next
    /// `await`, and what it has done stays done.
    ///
    /// # Errors
    ///
    /// See [`EntityError`].
    pub async fn remove(&self, id: JobId) -> Result<bool, EntityError> {
        self.line.call(Remove { id }).await
    }

    /// Has a job tried that is dead, with all its attempts, or one at once that waits for a time; returns false if there
    /// is none.
    ///
    /// # Errors
    ///
    /// See [`EntityError`].
    pub async fn retry(&self, id: JobId) -> Result<bool, EntityError> {
        self.line.call(Retry { id }).await
    }

    /// Has no further job start until the queue is [resumed](Queue::resume), also by a later program. Jobs that run go
    /// on.
    ///
    /// # Errors
    ///
    /// See [`EntityError`].
    pub async fn pause(&self) -> Result<(), EntityError> {
        self.line.call(Pause { pauses: true }).await
    }

    /// Has jobs start again.
    ///
    /// # Errors
    ///
    /// See [`EntityError`].
    pub async fn resume(&self) -> Result<(), EntityError> {
        self.line.call(Pause { pauses: false }).await
    }

    /// Stores a job in the commit of an entity's turn.
    pub(crate) fn push_from<P: Durable>(&self, cx: &mut Context<P>, job: &Job<W::Job>) {
        match self.encode(job) {
            Ok(EncodedJob { job, numbers }) => {
                if let Some(own) = Activation::of(cx) {
                    own.changes().use_numbers(numbers);
                }
                cx.send_durable(&self.line, PushDurably { job });
            }
            Err(error) => {
                if let Some(own) = Activation::of(cx) {
                    own.changes().fail(error);
                }
            }
        }
    }
}

fn not_encoded<T>(reason: String) -> EntityError {
    let message = std::any::type_name::<T>();
    EntityError::NotCommitted(CommitError::Message { message, reason })
}

impl<W> Clone for Queue<W> {
    fn clone(&self) -> Queue<W> {
        Queue { line: self.line.clone(), worker: PhantomData }
    }
}

impl<W> fmt::Debug for Queue<W> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Queue").field(&self.line.key()).finish()
    }
}
