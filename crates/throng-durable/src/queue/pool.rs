//! [`Pool`]: the attempts at the jobs of a queue that run, each a process of its own. It outlives activations of the
//! queue, so that a commit that fails ends no attempt and starts none twice.
//!
//! ```text
//!  commit of the start ──▶ running ──(ended)──▶ finished ──(a turn takes it)──▶ settling ──(its commit)──▶ gone
//!                                                  ▲                               │
//!                                                  └──── a new activation ─────────┘
//! ```
//!
//! Invariant: a job with an entry is not started again.

use std::collections::HashMap;
use std::collections::hash_map;
use std::mem;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, Weak};
use std::time::Duration;

use throng::{Inbox, Message, Pid};
use tokio::time::timeout;

use super::line::{Line, Look};
use super::order::Key;
use super::{Attempt, EncodedJob, JobError, JobId, QueueOptions, Verdict};
use crate::due::lock;
use crate::node::{Inner, Node};
use crate::users::{Sender, catch_turn, drop_user_value};
use crate::{Branch, Schedule, StateError, WeakNode};

/// A type-erased [`Worker`](super::Worker).
pub(super) trait AnyWorker: Send + Sync {
    fn begin<'a>(
        &'a self,
        node: &Inner,
        attempt: &'a Attempt,
        value: &[u8],
    ) -> Result<Branch<'a, Result<(), JobError>>, StateError>;
}

/// Makes a job for a store.
type MakeJob = Box<dyn Fn(&Inner) -> Result<EncodedJob, String> + Send + Sync>;

/// A job that a schedule pushes.
pub(super) struct Periodic {
    pub(super) name: Box<str>,
    pub(super) schedule: Schedule,
    pub(super) job: MakeJob,
}

/// End of an attempt.
#[derive(Clone, Debug)]
pub(super) enum Outcome {
    Done,
    Over(Verdict),
    /// The attempt did not end by itself: there was no process for it, or it was killed.
    Cut,
}

/// A job that starts once this is on disk.
pub(super) struct Start {
    pub(super) id: JobId,
    pub(super) key: Key,
    pub(super) value: Vec<u8>,
    pub(super) number: u32,
}

/// The attempts of a queue; see the file's head.
pub(super) struct Pool {
    pub(super) name: &'static str,
    pub(super) options: QueueOptions,
    pub(super) periodic: Vec<Periodic>,
    pub(super) worker: Arc<dyn AnyWorker>,
    slots: Mutex<Slots>,
    /// Whether the queue was told of attempts that have ended.
    is_told: AtomicBool,
    /// Whether the node ends, so that no attempt begins.
    ends: AtomicBool,
    pub(super) done: AtomicU64,
    pub(super) failed: AtomicU64,
}

#[derive(Default)]
struct Slots {
    jobs: HashMap<JobId, Made>,
    finished: Vec<JobId>,
}

/// An attempt at a job, with its number.
struct Made {
    key: Key,
    number: u32,
    slot: Slot,
}

enum Slot {
    Running(Arc<Running>),
    Finished(Outcome),
    Settling(Outcome),
}

/// An attempt that has ended.
pub(super) struct Ended {
    pub(super) id: JobId,
    pub(super) number: u32,
    pub(super) outcome: Outcome,
}

/// An attempt that runs.
#[derive(Debug, Default)]
pub(super) struct Running {
    pub(super) done: AtomicU64,
    pub(super) of: AtomicU64,
    process: OnceLock<Pid>,
    is_aborted: AtomicBool,
}

/// A message that no attempt gets.
#[derive(Debug)]
pub(super) enum Never {}

impl Message for Never {
    type Reply = ();
}

impl Running {
    /// Ends the attempt at its next `await`.
    fn abort(&self) {
        self.is_aborted.store(true, Ordering::SeqCst);
        if let Some(process) = self.process.get() {
            process.kill();
        }
    }
}

impl Pool {
    pub(super) fn new(
        name: &'static str,
        worker: Arc<dyn AnyWorker>,
        options: QueueOptions,
    ) -> Pool {
        Pool {
            name,
            options,
            periodic: Vec::new(),
            worker,
            slots: Mutex::default(),
            is_told: AtomicBool::new(false),
            ends: AtomicBool::new(false),
            done: AtomicU64::new(0),
            failed: AtomicU64::new(0),
        }
    }

    /// Starts an attempt, unless the job has one.
    pub(super) fn start(self: &Arc<Pool>, node: &Weak<Inner>, start: Start) {
        let Start { id, key, value, number } = start;
        let running = Arc::new(Running::default());
        match lock(&self.slots).jobs.entry(id) {
            // One that has ended before was settled, since the job starts again.
            hash_map::Entry::Occupied(made)
                if matches!(made.get().slot, Slot::Running(_)) || made.get().number >= number =>
            {
                return;
            }
            entry => {
                let slot = Slot::Running(running.clone());
                entry.insert_entry(Made { key, number, slot });
            }
        }
        let end = End { pool: Arc::downgrade(self), node: node.clone(), id, outcome: Outcome::Cut };
        // If there is no process for it, `end` is dropped, which tells.
        let Some(inner) = node.upgrade() else { return };
        let (worker, time) = (self.worker.clone(), self.options.timeout);
        let attempt =
            Attempt { id, number, node: WeakNode::of(node.clone()), running: running.clone() };
        let spawner = inner.runtime.spawner().label(format!("{}/{id}", self.name));
        let spawned =
            spawner.spawn_async(move |_: Inbox<Never>| perform(end, worker, attempt, value, time));
        if let Ok(process) = spawned {
            let _ = running.process.set(process.pid());
            if running.is_aborted.load(Ordering::SeqCst) {
                process.kill();
            }
        }
    }

    /// Ends the attempt at a job, if there is one.
    pub(super) fn abort(&self, id: JobId) {
        if let Some(running) = self.running(id) {
            running.abort();
        }
    }

    /// Ends all attempts, and has none begin. Returns whether some are still under way.
    pub(super) fn end(&self) -> bool {
        self.ends.store(true, Ordering::SeqCst);
        let running: Vec<Arc<Running>> =
            lock(&self.slots).jobs.values().filter_map(|made| made.slot.running()).collect();
        running.iter().for_each(|running| running.abort());
        !running.is_empty()
    }

    /// Lets attempts begin again: the node goes on.
    pub(super) fn go_on(&self) {
        self.ends.store(false, Ordering::SeqCst);
    }

    /// Whether no attempt begins any more.
    pub(super) fn ends(&self) -> bool {
        self.ends.load(Ordering::SeqCst)
    }

    /// Returns the attempt at a job that runs.
    pub(super) fn running(&self, id: JobId) -> Option<Arc<Running>> {
        lock(&self.slots).jobs.get(&id).and_then(|made| made.slot.running())
    }

    /// Returns the jobs that have an attempt, to a new activation, which settles anew what the one before it has not
    /// committed.
    pub(super) fn adopt(&self) -> Vec<(JobId, Key)> {
        let slots = &mut *lock(&self.slots);
        for (id, made) in &mut slots.jobs {
            if let Slot::Settling(outcome) = &mut made.slot {
                made.slot = Slot::Finished(mem::replace(outcome, Outcome::Cut));
                slots.finished.push(*id);
            }
        }
        slots.jobs.iter().map(|(id, made)| (*id, made.key.clone())).collect()
    }

    fn finish(&self, node: &Weak<Inner>, id: JobId, outcome: Outcome) {
        {
            let slots = &mut *lock(&self.slots);
            if let Some(made) = slots.jobs.get_mut(&id) {
                made.slot = Slot::Finished(outcome);
                slots.finished.push(id);
            }
        }
        self.tell(node);
    }

    /// Has the queue settle what has ended.
    fn tell(&self, node: &Weak<Inner>) {
        if !self.is_told.swap(true, Ordering::AcqRel) {
            let Some(inner) = node.upgrade().filter(|inner| !inner.is_closed()) else { return };
            // If it cannot be told now, its timer does.
            if Node::of(inner).entity::<Line>(self.name).send(Look {}).is_err() {
                self.is_told.store(false, Ordering::Release);
            }
        }
    }

    /// Takes attempts that have ended, so many at most, for a turn that settles them. Returns whether there are more.
    pub(super) fn take(&self, most: usize) -> (Vec<Ended>, bool) {
        self.is_told.store(false, Ordering::Release);
        let Slots { jobs, finished } = &mut *lock(&self.slots);
        let rest = finished.split_off(finished.len().min(most));
        let ids = mem::replace(finished, rest);
        let ended = ids.into_iter().filter_map(|id| {
            let Made { number, slot, .. } = jobs.get_mut(&id)?;
            let Slot::Finished(outcome) = slot else { return None };
            let outcome = mem::replace(outcome, Outcome::Cut);
            *slot = Slot::Settling(outcome.clone());
            Some(Ended { id, number: *number, outcome })
        });
        (ended.collect(), !finished.is_empty())
    }

    /// Forgets attempts whose settling is on disk.
    pub(super) fn forget(&self, settled: &[(JobId, u32)]) {
        let jobs = &mut lock(&self.slots).jobs;
        for (id, number) in settled {
            let is_settled =
                |made: &Made| made.number == *number && matches!(made.slot, Slot::Settling(_));
            if jobs.get(id).is_some_and(is_settled) {
                jobs.remove(id);
            }
        }
    }
}

impl Slot {
    fn running(&self) -> Option<Arc<Running>> {
        match self {
            Slot::Running(running) => Some(running.clone()),
            _ => None,
        }
    }
}

/// Tells the pool when an attempt has ended, whatever ends it.
struct End {
    pool: Weak<Pool>,
    node: Weak<Inner>,
    id: JobId,
    outcome: Outcome,
}

impl Drop for End {
    fn drop(&mut self) {
        if let Some(pool) = self.pool.upgrade() {
            pool.finish(&self.node, self.id, mem::replace(&mut self.outcome, Outcome::Cut));
        }
    }
}

/// Makes an attempt at a job.
async fn perform(
    mut end: End,
    worker: Arc<dyn AnyWorker>,
    attempt: Attempt,
    value: Vec<u8>,
    time: Option<Duration>,
) {
    let work = async {
        if attempt.running.is_aborted.load(Ordering::SeqCst) {
            return Ok(Outcome::Cut);
        }
        // The node may end while the work awaits.
        let Some(node) = end.node.upgrade() else { return Ok(Outcome::Cut) };
        let work = worker.begin(&node, &attempt, &value);
        drop(node);
        let work = work.map_err(|error| JobError::discard(error.to_string()))?;
        match time {
            None => work.await?,
            Some(time) => match timeout(time, work).await {
                Ok(done) => done?,
                Err(_) => return Err(JobError::new(format!("it took longer than {time:?}"))),
            },
        }
        Ok(Outcome::Done)
    };
    end.outcome = match catch_turn(Sender::NOBODY, work).await {
        Ok(Ok(outcome)) => outcome,
        Ok(Err(JobError(verdict))) => Outcome::Over(verdict),
        Err(panic) => Outcome::Over(Verdict::fail(format!("it {panic}"))),
    };
    drop_user_value(worker);
}
