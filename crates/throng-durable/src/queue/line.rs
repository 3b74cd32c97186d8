//! [`Line`]: the entity of a queue. Its jobs are its cells, and each change of them is a turn.
//!
//! ```text
//!  Push ──▶ `later` + `due` ──(its time comes)──▶ `ready` ──▶ starts, after the commit ──▶ Settle ──▶ deleted
//!                 ▲                                                                          │  └──▶ `dead`
//!                 └───────────────────────(fails, or is to come again)──────────────────────┘
//! ```
//!
//! Invariants: a job is a cell of exactly one of `ready`, `later` and `dead`; each of `later` has one of `due`. A job
//! that runs stays in `ready`, so that the end of a program loses none. A job starts after its start is on disk: in its
//! own cell if that is stored in the same turn, and else in a list of `starts`, which the next activation adds to the
//! cells.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use throng::{Context, Handle, Message, Process, Timer};

use super::live::{self, Known, Starts};
use super::order::{Bounds, Key, Next, Order};
use super::pool::{Ended, Outcome, Periodic, Pool, Start};
use super::{EncodedJob, JobId, JobState, NewJob, Pushed, Queues, Verdict};
use crate::activation::Activation;
use crate::catalogue::Number;
use crate::message::{Receives, messages};
use crate::{
    CellError, Cells, CommitError, Durable, DurableContext, EntityError, OnFailure, ReadError, Str,
    U64, U128,
};

/// Most jobs that a turn reads, moves or settles.
const AT_ONCE: usize = 500;
/// Number of times that a turn reads jobs at most.
const READS: usize = 4;
/// Longest time until the queue looks again at the clock, and at attempts that have ended unheard.
const LOOK_AGAIN: Duration = Duration::from_secs(5);
/// Pause after an attempt that was cut off.
const AFTER_CUT: Duration = Duration::from_secs(1);
/// Number of starts without an end after which a job is dead: its program has ended each time.
const UNENDED_MAX: u32 = 20;
/// Prefix of the keys of the reminders that push jobs.
const PERIODIC: &str = "job ";

const READY: &str = "ready";
const LATER: &str = "later";
const DEAD: &str = "dead";
const DUE: &str = "due";
const UNIQUE: &str = "unique";
const STARTS: &str = "starts";

/// Returns the name of the map of the jobs that are in a state.
pub(super) fn map_of(state: JobState) -> &'static str {
    match state {
        JobState::Ready => READY,
        JobState::Later => LATER,
        JobState::Dead => DEAD,
    }
}

/// A queue; see the file's head.
#[derive(Default, Serialize, Deserialize)]
pub(super) struct Line {
    /// Number of the last job.
    last: u64,
    /// Number of the last list of starts.
    lists: u64,
    pub(super) is_paused: bool,
    pub(super) ready: u64,
    pub(super) later: u64,
    pub(super) dead: u64,
    #[serde(skip)]
    live: Option<Box<Live>>,
}

/// State of an activation in memory, if the program has a worker for the queue.
struct Live {
    pool: Arc<Pool>,
    order: Order,
    /// The jobs that this activation has started.
    runs: HashMap<JobId, Run>,
    starts: Starts,
    known: Known,
    /// Time of the first job that is due later, in milliseconds since 1970.
    due: Option<u64>,
    /// Time from which the rate allows a start.
    allowed: Option<u64>,
    timer: Option<(u64, Timer)>,
}

/// A job that runs.
struct Run {
    /// Number of the attempt.
    number: u32,
    /// Number of starts since one has ended by itself; this one is counted.
    unended: u32,
    unique: Option<String>,
}

/// A job as it is stored.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Stored {
    pub(super) job: NewJob,
    /// Number of attempts that have failed.
    pub(super) failures: u32,
    /// Number of starts, without those that are listed.
    pub(super) attempts: u32,
    /// Number of these starts since one has ended by itself.
    unended: u32,
    pub(super) reason: Option<String>,
}

impl Stored {
    pub(super) fn new(job: NewJob) -> Stored {
        Stored { job, failures: 0, attempts: 0, unended: 0, reason: None }
    }
}

messages! {
    Push { jobs: Vec<NewJob>, numbers: Vec<Arc<Number>> } -> Vec<Pushed>;
    Look {} -> ();
    Remove { id: JobId } -> bool;
    Retry { id: JobId } -> bool;
    Pause { pauses: bool } -> ();
    List { state: JobState, after: Option<JobId>, most: usize } -> Result<Vec<(JobId, Stored)>, CellError>;
    Count {} -> Counts;
    PushDurably = "push" { job: NewJob } -> ();
    Recur = "recur" { name: String } -> ();
}

/// Numbers of a queue's jobs.
pub(super) struct Counts {
    pub(super) ready: u64,
    pub(super) later: u64,
    pub(super) dead: u64,
    pub(super) running: usize,
    pub(super) is_paused: bool,
}

impl Durable for Line {
    const KIND: &'static str = "job-queue";
    const MESSAGES: &'static [Receives<Line>] =
        &[Receives::of::<PushDurably>(), Receives::of::<Recur>()];
    /// No message is at fault by itself: a store that cannot be read recovers, or somebody mends it.
    const ON_FAILURE: OnFailure = OnFailure::park_after(u32::MAX);
    type Deps = Queues;

    fn initial(_: &str, _: &Queues) -> Line {
        Line::default()
    }
}

type Cx = Context<Line>;

/// Returns the jobs of a state.
fn jobs<'c>(cx: &'c mut Cx, map: &str) -> Cells<'c, U64, Stored> {
    cx.cells(map)
}

/// Returns the key under which a job is due.
fn due_key(due: u64, id: JobId) -> u128 {
    u128::from(due) << 64 | u128::from(id.0)
}

fn now(cx: &mut Cx) -> u64 {
    let now = cx.node().store().since_1970();
    u64::try_from(now.as_millis()).unwrap_or(u64::MAX)
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

fn fail(cx: &mut Cx, error: CellError) {
    if let Some(own) = Activation::of(cx) {
        own.changes().fail(EntityError::NotCommitted(CommitError::Cell(error)));
    }
}

impl Process for Line {
    async fn started(&mut self, cx: &mut Cx) {
        let (queues, key) = (cx.deps().clone(), cx.key().to_owned());
        let Some(pool) = queues.find(&key) else { return };
        let options = pool.options;
        let bounds = Bounds {
            running: options.concurrency,
            per_key: options.per_key,
            rate: options.rate.map(|(most, time)| (most, millis(time))),
        };
        let order = Order::new(bounds, pool.adopt());
        self.live = Some(Box::new(Live {
            pool,
            order,
            runs: HashMap::new(),
            starts: Starts::default(),
            known: Known::default(),
            due: None,
            allowed: None,
            timer: None,
        }));
        if let Err(error) = self.begin(cx) {
            fail(cx, error);
        }
    }
}

impl Line {
    /// Begins an activation: sets the reminders of the program's schedules, and has the queue look at its jobs.
    fn begin(&mut self, cx: &mut Cx) -> Result<(), CellError> {
        add_listed(cx)?;
        // In a turn of its own: one that is refused must not keep the queue from taking jobs.
        look_again(cx);
        let Some(live) = &mut self.live else { return Ok(()) };
        live.due = first_due(cx)?;
        let pool = live.pool.clone();
        let set = match cx.reminders() {
            Ok(set) => set,
            Err(error) => {
                // As of a program that had other schedules: they come, and are ignored.
                tracing::error!(queue = pool.name, %error, "the schedules of a queue cannot be read");
                return Ok(());
            }
        };
        let key_of = |name: &str| format!("{PERIODIC}{name}");
        let is_set = |own: &Periodic| {
            set.iter().any(|set| set.key == key_of(&own.name) && set.schedule == own.schedule)
        };
        for own in pool.periodic.iter().filter(|own| !is_set(own)) {
            cx.remind(
                &key_of(&own.name),
                own.schedule.clone(),
                Recur { name: own.name.to_string() },
            );
        }
        for set in &set {
            let is_own = |own: &Periodic| set.key == key_of(&own.name);
            if !pool.periodic.iter().any(is_own) {
                cx.cancel_reminder(&set.key);
            }
        }
        Ok(())
    }

    /// Adds jobs.
    fn push(&mut self, cx: &mut Cx, new: Vec<NewJob>) -> Result<Vec<Pushed>, CellError> {
        let now = now(cx);
        let mut pushed = Vec::with_capacity(new.len());
        let mut fresh = BTreeMap::new();
        for job in new {
            if let Some(unique) = &job.unique
                && let Some(id) = cx.cells::<Str, u64>(UNIQUE).get(unique)?
            {
                pushed.push(Pushed { id: JobId(id), is_new: false });
                continue;
            }
            self.last += 1;
            let id = JobId::new(job.priority, self.last);
            if let Some(unique) = &job.unique {
                cx.cells::<Str, u64>(UNIQUE).put(unique, &id.0);
            }
            pushed.push(Pushed { id, is_new: true });
            let stored = Stored::new(job);
            match stored.job.due > now {
                true => self.put_later(cx, id, &stored),
                false => {
                    self.ready += 1;
                    self.offer(id, &stored);
                    fresh.insert(id, stored);
                }
            }
        }
        self.go_on(cx, fresh, now)?;
        Ok(pushed)
    }

    /// Makes a job known to the order.
    fn offer(&mut self, id: JobId, stored: &Stored) {
        if let Some(live) = &mut self.live {
            live.order.offer(id, key_of(&stored.job));
        }
    }

    fn put_later(&mut self, cx: &mut Cx, id: JobId, stored: &Stored) {
        self.later += 1;
        jobs(cx, LATER).put(&id.0, stored);
        cx.cells::<U128, ()>(DUE).put(&due_key(stored.job.due, id), &());
        if let Some(live) = &mut self.live {
            live.due = Some(live.due.map_or(stored.job.due, |due| due.min(stored.job.due)));
        }
    }

    /// Starts jobs as far as the bounds allow, and sets the timer. `fresh` has jobs that are ready, and not stored yet.
    fn go_on(
        &mut self,
        cx: &mut Cx,
        mut fresh: BTreeMap<JobId, Stored>,
        now: u64,
    ) -> Result<(), CellError> {
        let (mut starts, mut list, mut reads) = (Vec::new(), live::List::new(), 0);
        while let Some(live) =
            self.live.as_mut().filter(|live| !self.is_paused && !live.pool.ends())
        {
            live.allowed = None;
            match live.order.next(now) {
                Next::Start(id) => {
                    let new = fresh.remove(&id);
                    let is_new = new.is_some();
                    let stored = match new.or_else(|| live.known.take(id)) {
                        Some(stored) => Some(stored),
                        None => intact(jobs(cx, READY).get(&id.0))?,
                    };
                    match stored.and_then(|stored| self.start(cx, id, stored, is_new)) {
                        Some(start) => {
                            if !is_new {
                                list.push((id.0, start.number));
                            }
                            starts.push(start);
                        }
                        None => self.free(id),
                    }
                }
                Next::At(time) => {
                    live.allowed = Some(time);
                    break;
                }
                Next::Nothing if live.order.wants().is_none() => break,
                Next::Nothing if reads == READS => {
                    look_again(cx);
                    break;
                }
                Next::Nothing => {
                    reads += 1;
                    self.read(cx, &fresh)?;
                }
            }
        }
        let mut ready = jobs(cx, READY);
        fresh.iter().for_each(|(id, stored)| ready.put(&id.0, stored));
        if let Some(live) = &mut self.live {
            fresh.into_iter().for_each(|(id, stored)| live.known.insert(id, stored));
            if !list.is_empty() {
                self.lists += 1;
                live.starts.begin(self.lists, &list);
            }
            let mut lists = cx.cells::<U64, live::List>(STARTS);
            for (number, list) in live.starts.changes() {
                match list {
                    Some(list) => lists.put(&number, &list),
                    None => lists.delete(&number),
                }
            }
            if !starts.is_empty() {
                let (pool, node) = (live.pool.clone(), Arc::downgrade(cx.node().inner()));
                let start = move |start| pool.start(&node, start);
                cx.after_commit(move || starts.into_iter().for_each(start));
            }
        }
        self.set_timer(cx, now);
        Ok(())
    }

    /// Counts the start of a job, and stores the job with it if that is new; `None` if its program has ended in too many.
    fn start(&mut self, cx: &mut Cx, id: JobId, mut stored: Stored, is_new: bool) -> Option<Start> {
        if stored.unended >= UNENDED_MAX {
            let reason = format!("the program has ended in each of {UNENDED_MAX} attempts");
            self.bury(cx, id, Stored { reason: Some(reason), ..stored });
            return None;
        }
        stored.attempts += 1;
        stored.unended += 1;
        if is_new {
            jobs(cx, READY).put(&id.0, &stored);
        }
        let Stored { job: NewJob { value, key, unique, .. }, attempts: number, unended, .. } =
            stored;
        if let Some(live) = &mut self.live {
            live.runs.insert(id, Run { number, unended, unique });
        }
        Some(Start { id, key: key.map(Arc::from), value, number })
    }

    /// Notes that a job does not run any more.
    fn free(&mut self, id: JobId) {
        if let Some(live) = &mut self.live {
            live.order.ended(id);
        }
    }

    /// Removes a job from those that are ready.
    fn take_ready(&mut self, cx: &mut Cx, id: JobId) {
        self.ready = self.ready.saturating_sub(1);
        jobs(cx, READY).delete(&id.0);
        if let Some(live) = &mut self.live {
            live.known.take(id);
            live.runs.remove(&id);
            live.starts.ended(id);
        }
    }

    /// Moves a job from those that are ready to the dead ones.
    fn bury(&mut self, cx: &mut Cx, id: JobId, mut stored: Stored) {
        self.take_ready(cx, id);
        self.dead += 1;
        release(cx, stored.job.unique.take().as_deref());
        jobs(cx, DEAD).put(&id.0, &stored);
        let (queue, node) = (cx.key().to_owned(), cx.node().inner().clone());
        cx.after_commit(move || {
            tracing::error!(queue, job = id.0, reason = stored.reason, "a job is dead");
            node.dead_jobs.fetch_add(1, Ordering::Relaxed);
        });
    }

    /// Has a job that was not done come again, or buries it.
    fn put_back(&mut self, cx: &mut Cx, id: JobId, mut stored: Stored, verdict: Verdict, now: u64) {
        let Some(options) = self.live.as_ref().map(|live| live.pool.options) else { return };
        let pause = match verdict {
            Verdict::Snooze(pause) => pause,
            Verdict::Fail { reason, is_final } => {
                stored.failures += 1;
                stored.reason = Some(reason);
                let most = stored.job.attempts.unwrap_or(options.attempts);
                if is_final || stored.failures >= most {
                    return self.bury(cx, id, stored);
                }
                let hash = cx.node().inner().hash(&id.0.to_be_bytes());
                options.pauses.pause(stored.failures, hash)
            }
        };
        self.take_ready(cx, id);
        stored.job.due = now.saturating_add(millis(pause));
        self.put_later(cx, id, &stored);
    }

    /// Reads jobs that are ready.
    fn read(&mut self, cx: &mut Cx, fresh: &BTreeMap<JobId, Stored>) -> Result<(), CellError> {
        let Some(live) = &mut self.live else { return Ok(()) };
        let Some(from) = live.order.wants() else { return Ok(()) };
        let mut cells = jobs(cx, READY);
        let (mut found, mut known, mut read) = (Vec::new(), Vec::new(), 0);
        for own in cells.range(&from.0..).take(AT_ONCE) {
            read += 1;
            if let Some((id, stored)) = intact(own.map(Some))? {
                found.push((JobId(id), key_of(&stored.job)));
                known.push((JobId(id), stored));
            }
        }
        let through = found.last().map(|(id, _)| *id).filter(|_| read == AT_ONCE);
        // Those of this turn are not stored yet.
        found.extend(fresh.iter().map(|(id, stored)| (*id, key_of(&stored.job))));
        live.order.read(found, through);
        known.into_iter().for_each(|(id, stored)| live.known.insert(id, stored));
        Ok(())
    }

    /// Makes jobs ready that are due.
    fn wake(&mut self, cx: &mut Cx, now: u64) -> Result<(), CellError> {
        if self.live.as_ref().and_then(|live| live.due).is_none_or(|due| due > now) {
            return Ok(());
        }
        let mut cells = cx.cells::<U128, ()>(DUE);
        let due = cells.range(..&due_key(now.saturating_add(1), JobId(0))).take(AT_ONCE);
        let due = due.map(|own| own.map(|(key, ())| key)).collect::<Result<Vec<u128>, _>>()?;
        for key in due {
            let id = JobId(key as u64);
            match intact(jobs(cx, LATER).get(&id.0))? {
                Some(stored) => {
                    self.take_later(cx, id, key);
                    self.put_ready(cx, id, stored);
                }
                None => cx.cells::<U128, ()>(DUE).delete(&key),
            }
        }
        let due = first_due(cx)?;
        if due.is_some_and(|due| due <= now) {
            // At once: a timer would be late by some milliseconds for each of the turns that a long list takes.
            look_again(cx);
        }
        if let Some(live) = &mut self.live {
            live.due = due;
        }
        Ok(())
    }

    fn take_later(&mut self, cx: &mut Cx, id: JobId, due: u128) {
        self.later = self.later.saturating_sub(1);
        jobs(cx, LATER).delete(&id.0);
        cx.cells::<U128, ()>(DUE).delete(&due);
    }

    fn put_ready(&mut self, cx: &mut Cx, id: JobId, stored: Stored) {
        self.ready += 1;
        jobs(cx, READY).put(&id.0, &stored);
        self.offer(id, &stored);
        if let Some(live) = &mut self.live {
            live.known.insert(id, stored);
        }
    }

    /// Notes how attempts have ended.
    fn settle(&mut self, cx: &mut Cx, now: u64) -> Result<(), CellError> {
        let Some(pool) = self.live.as_ref().map(|live| live.pool.clone()) else { return Ok(()) };
        let (ended, has_more) = pool.take(AT_ONCE);
        if ended.is_empty() {
            return Ok(());
        }
        let (mut done, mut failed) = (0, 0);
        let settled: Vec<(JobId, u32)> = ended.iter().map(|own| (own.id, own.number)).collect();
        for Ended { id, number, outcome } in ended {
            self.free(id);
            let run = self.live.as_mut().and_then(|live| live.runs.remove(&id));
            let run = run.filter(|run| run.number == number);
            if let (Some(run), Outcome::Done) = (&run, &outcome) {
                done += 1;
                self.take_ready(cx, id);
                release(cx, run.unique.as_deref());
                continue;
            }
            // One that was removed meanwhile is not stored.
            let Some(mut stored) = intact(jobs(cx, READY).get(&id.0))? else { continue };
            match run {
                Some(run) => (stored.attempts, stored.unended) = (run.number, run.unended),
                None if stored.attempts == number => {}
                None => {
                    // The attempt was settled before, and the job is to start again.
                    self.offer(id, &stored);
                    continue;
                }
            }
            match outcome {
                Outcome::Done => {
                    done += 1;
                    self.take_ready(cx, id);
                    release(cx, stored.job.unique.as_deref());
                }
                Outcome::Over(verdict) => {
                    failed += u64::from(!matches!(verdict, Verdict::Snooze(_)));
                    stored.unended = 0;
                    self.put_back(cx, id, stored, verdict, now);
                }
                Outcome::Cut => {
                    stored.unended = stored.unended.saturating_sub(1);
                    self.put_back(cx, id, stored, Verdict::Snooze(AFTER_CUT), now);
                }
            }
        }
        cx.after_commit(move || {
            pool.done.fetch_add(done, Ordering::Relaxed);
            pool.failed.fetch_add(failed, Ordering::Relaxed);
            pool.forget(&settled);
        });
        if has_more {
            look_again(cx);
        }
        Ok(())
    }

    /// Has the queue look again, when the first of its jobs is due or may start.
    fn set_timer(&mut self, cx: &mut Cx, now: u64) {
        let Some(live) = &mut self.live else { return };
        let mut next = live.due.into_iter().chain(live.allowed).min();
        if next.is_some() || live.order.running() > 0 {
            // Attempts that have ended may be unheard, and the clock may be set.
            let latest = now.saturating_add(millis(LOOK_AGAIN));
            next = Some(next.map_or(latest, |next| next.min(latest)));
        }
        let Some(next) = next else { return };
        let is_set = |(at, _): &(u64, Timer)| *at > now && *at <= next;
        if !live.timer.as_ref().is_some_and(is_set) {
            if let Some((_, before)) = live.timer.take() {
                before.cancel();
            }
            let delay = Duration::from_millis(next.saturating_sub(now).max(1));
            live.timer = Some((next, cx.send_after(delay, Look {})));
        }
    }

    fn look(&mut self, cx: &mut Cx) -> Result<(), CellError> {
        let now = now(cx);
        self.settle(cx, now)?;
        self.wake(cx, now)?;
        self.go_on(cx, BTreeMap::new(), now)
    }

    /// Removes a job; returns false if there is none.
    fn remove(&mut self, cx: &mut Cx, id: JobId) -> Result<bool, CellError> {
        if let Some(stored) = jobs(cx, READY).get(&id.0)? {
            self.take_ready(cx, id);
            if let Some(live) = &mut self.live {
                live.order.remove(id, &key_of(&stored.job));
                let pool = live.pool.clone();
                cx.after_commit(move || pool.abort(id));
            }
            release(cx, stored.job.unique.as_deref());
        } else if let Some(stored) = jobs(cx, LATER).get(&id.0)? {
            self.take_later(cx, id, due_key(stored.job.due, id));
            release(cx, stored.job.unique.as_deref());
        } else {
            return self.take_dead(cx, id).map(|stored| stored.is_some());
        }
        Ok(true)
    }

    fn take_dead(&mut self, cx: &mut Cx, id: JobId) -> Result<Option<Stored>, CellError> {
        let stored = jobs(cx, DEAD).get(&id.0)?;
        if stored.is_some() {
            jobs(cx, DEAD).delete(&id.0);
            self.dead = self.dead.saturating_sub(1);
        }
        Ok(stored)
    }

    /// Makes a job ready that is dead or waits for a time; returns false if there is none.
    fn retry(&mut self, cx: &mut Cx, id: JobId) -> Result<bool, CellError> {
        let stored = if let Some(stored) = jobs(cx, LATER).get(&id.0)? {
            self.take_later(cx, id, due_key(stored.job.due, id));
            stored
        } else if let Some(stored) = self.take_dead(cx, id)? {
            Stored { failures: 0, unended: 0, ..stored }
        } else {
            return Ok(false);
        };
        self.put_ready(cx, id, stored);
        let now = now(cx);
        self.go_on(cx, BTreeMap::new(), now)?;
        Ok(true)
    }
}

/// Passes over a job whose cell is damaged, so that it keeps no others from being done. Its cell stays.
fn intact<T>(read: Result<Option<T>, CellError>) -> Result<Option<T>, CellError> {
    match read {
        Err(error @ (CellError::Decode(_) | CellError::Read(ReadError::Corrupt(_)))) => {
            tracing::error!(%error, "a job of a queue is damaged, and is passed over");
            Ok(None)
        }
        read => read,
    }
}

fn key_of(job: &NewJob) -> Key {
    job.key.as_deref().map(Arc::from)
}

fn look_again(cx: &mut Cx) {
    // An activation that ends has the next one look.
    let _ = cx.address().send(Look {});
}

/// Returns the time of the first job that is due later.
fn first_due(cx: &mut Cx) -> Result<Option<u64>, CellError> {
    let first = cx.cells::<U128, ()>(DUE).range(..).next().transpose()?;
    Ok(first.map(|(key, ())| (key >> 64) as u64))
}

/// Gives up the name that keeps a job from being pushed twice.
fn release(cx: &mut Cx, unique: Option<&str>) {
    if let Some(unique) = unique {
        cx.cells::<Str, u64>(UNIQUE).delete(unique);
    }
}

/// Adds the starts that are listed to the cells of their jobs: the activation that has listed them is gone.
fn add_listed(cx: &mut Cx) -> Result<(), CellError> {
    let mut cells = cx.cells::<U64, live::List>(STARTS);
    let lists = cells.range(..).filter_map(|list| intact(list.map(Some)).transpose());
    let lists = lists.collect::<Result<Vec<_>, _>>()?;
    for (number, list) in lists {
        for (id, attempt) in list {
            // One that was counted has ended, or the job was in two lists.
            if let Some(mut stored) = intact(jobs(cx, READY).get(&id))?
                && stored.attempts < attempt
            {
                (stored.attempts, stored.unended) = (attempt, stored.unended + 1);
                jobs(cx, READY).put(&id, &stored);
            }
        }
        cx.cells::<U64, live::List>(STARTS).delete(&number);
    }
    Ok(())
}

fn use_numbers(cx: &mut Cx, numbers: impl IntoIterator<Item = Arc<Number>>) {
    if let Some(own) = Activation::of(cx) {
        own.changes().use_numbers(numbers);
    }
}

/// Takes the result of a turn. An error fails it, and its message is tried again.
fn checked<T>(cx: &mut Cx, result: Result<T, CellError>) -> Option<T> {
    result.map_err(|error| fail(cx, error)).ok()
}

impl Handle<Look> for Line {
    async fn handle(&mut self, _: Look, cx: &mut Cx) {
        let looked = self.look(cx);
        checked(cx, looked);
    }
}

impl Handle<Push> for Line {
    async fn handle(&mut self, Push { jobs, numbers }: Push, cx: &mut Cx) -> Vec<Pushed> {
        use_numbers(cx, numbers);
        let pushed = self.push(cx, jobs);
        checked(cx, pushed).unwrap_or_default()
    }
}

impl Handle<PushDurably> for Line {
    async fn handle(&mut self, PushDurably { job }: PushDurably, cx: &mut Cx) {
        let pushed = self.push(cx, vec![job]);
        checked(cx, pushed);
    }
}

impl Handle<Recur> for Line {
    async fn handle(&mut self, Recur { name }: Recur, cx: &mut Cx) {
        let Some(live) = &self.live else { return };
        let (pool, node) = (live.pool.clone(), cx.node());
        // One that the program does not have any more was cancelled.
        let Some(periodic) = pool.periodic.iter().find(|own| *own.name == *name) else { return };
        match (periodic.job)(node.inner()) {
            Ok(EncodedJob { job, numbers }) => {
                use_numbers(cx, numbers);
                let pushed = self.push(cx, vec![job]);
                checked(cx, pushed);
            }
            Err(reason) => fail(cx, CellError::Encode(reason)),
        }
    }
}

impl Handle<Remove> for Line {
    async fn handle(&mut self, Remove { id }: Remove, cx: &mut Cx) -> bool {
        let removed = self.remove(cx, id);
        checked(cx, removed).unwrap_or(false)
    }
}

impl Handle<Retry> for Line {
    async fn handle(&mut self, Retry { id }: Retry, cx: &mut Cx) -> bool {
        let retried = self.retry(cx, id);
        checked(cx, retried).unwrap_or(false)
    }
}

impl Handle<Pause> for Line {
    async fn handle(&mut self, Pause { pauses }: Pause, cx: &mut Cx) {
        self.is_paused = pauses;
        look_again(cx);
    }
}

impl Handle<List> for Line {
    const READ_ONLY: bool = true;

    async fn handle(&mut self, list: List, cx: &mut Cx) -> Result<Vec<(JobId, Stored)>, CellError> {
        let List { state, after, most } = list;
        let from = after.map_or(0, |after| after.0.saturating_add(1));
        let mut cells = jobs(cx, map_of(state));
        let listed = cells.range(&from..).take(most);
        let attempts = |id| self.live.as_ref().and_then(|live| Some(live.runs.get(&id)?.number));
        let listed = listed.map(|own| {
            let (id, mut stored) = own?;
            stored.attempts = attempts(JobId(id)).unwrap_or(stored.attempts);
            Ok((JobId(id), stored))
        });
        listed.collect()
    }
}

impl Handle<Count> for Line {
    const READ_ONLY: bool = true;

    async fn handle(&mut self, _: Count, _: &mut Cx) -> Counts {
        let &mut Line { ready, later, dead, is_paused, .. } = self;
        let running = self.live.as_ref().map_or(0, |live| live.order.running());
        Counts { ready, later, dead, running, is_paused }
    }
}
