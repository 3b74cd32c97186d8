//! The workers of the trees, the log of their starts and ends, and the witness that monitors them.

use super::tree::{Habits, Id};
use std::collections::HashMap;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use throng::Child;
use throng::prelude::*;
use throng::sim::Sim;

/// Settings and counters shared by all incarnations of a node.
#[derive(Default)]
pub(crate) struct Knobs {
    /// Number of further starts at which the worker's constructor fails.
    pub(crate) refuse: AtomicU32,
    /// Number of further starts at which the worker panics in `started`.
    pub(crate) stumble: AtomicU32,
    pub(crate) refused: AtomicU32,
    pub(crate) incarnations: AtomicU32,
}

fn take(knob: &AtomicU32) -> bool {
    knob.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1)).is_ok()
}

/// Event of a node. The number distinguishes its incarnations, or its refusals.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub(crate) enum Event {
    Refused(Id, u32),
    Started(Id, u32),
    Ended(Id, u32),
}

#[derive(Clone, Debug)]
pub(crate) struct Record {
    pub(crate) at: Duration,
    pub(crate) event: Event,
    /// Pid of the worker, unless it was refused.
    pub(crate) pid: Option<Pid>,
    pub(crate) parent: Option<Pid>,
    /// Exit reason, if the `stopping` hook completed.
    pub(crate) reason: Option<ExitReason>,
}

/// All events in order: the simulator runs a single process at a time.
#[derive(Clone)]
pub(crate) struct Log {
    pub(crate) sim: Sim,
    pub(crate) witness: Address<Witness>,
    records: Arc<Mutex<Vec<Record>>>,
}

impl Log {
    pub(crate) fn new(sim: &Sim, witness: Address<Witness>) -> Log {
        Log { sim: sim.clone(), witness, records: Arc::default() }
    }

    fn note(
        &self,
        event: Event,
        pid: Option<Pid>,
        parent: Option<Pid>,
        reason: Option<ExitReason>,
    ) {
        let record = Record { at: self.sim.elapsed(), event, pid, parent, reason };
        self.records.lock().unwrap_or_else(PoisonError::into_inner).push(record);
    }

    pub(crate) fn len(&self) -> usize {
        self.records.lock().unwrap_or_else(PoisonError::into_inner).len()
    }

    /// Returns the records after the first `len`.
    pub(crate) fn since(&self, len: usize) -> Vec<Record> {
        self.records.lock().unwrap_or_else(PoisonError::into_inner)[len..].to_vec()
    }
}

pub(crate) struct Worker {
    node: Id,
    habits: Habits,
    knobs: Arc<Knobs>,
    log: Log,
    /// Number of the incarnation, pid and parent, once started.
    life: Option<(u32, Pid, Option<Pid>)>,
    reason: Option<ExitReason>,
    links: Vec<Pid>,
}

impl Worker {
    pub(crate) fn make(
        node: Id,
        habits: Habits,
        knobs: &Arc<Knobs>,
        log: &Log,
    ) -> Result<Worker, &'static str> {
        if take(&knobs.refuse) {
            let number = knobs.refused.fetch_add(1, Ordering::Relaxed) + 1;
            log.note(Event::Refused(node, number), None, None, None);
            return Err("not now");
        }
        let (knobs, log) = (knobs.clone(), log.clone());
        Ok(Worker { node, habits, knobs, log, life: None, reason: None, links: Vec::new() })
    }
}

impl Process for Worker {
    async fn started(&mut self, cx: &mut Context<Self>) {
        cx.trap_exits(self.habits.traps);
        let number = self.knobs.incarnations.fetch_add(1, Ordering::Relaxed) + 1;
        let (pid, parent) = (cx.pid(), cx.parent());
        self.life = Some((number, pid, parent));
        self.log.note(Event::Started(self.node, number), Some(pid), parent, None);
        // The witness exits only at the end of the run.
        let _ = self.log.witness.watch(pid);
        pause(self.habits.start).await;
        if take(&self.knobs.stumble) {
            panic!("stumbles");
        }
    }

    async fn stopping(&mut self, reason: &ExitReason, _: &mut Context<Self>) {
        pause(self.habits.stop).await;
        self.reason = Some(reason.clone());
    }

    async fn exit(&mut self, exit: Exit, cx: &mut Context<Self>) {
        // A worker that traps exits ignores the exits of linked processes.
        if exit.pid.is_none() {
            cx.stop(exit.reason);
        }
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        if let Some((number, pid, parent)) = self.life {
            let event = Event::Ended(self.node, number);
            self.log.note(event, Some(pid), parent, self.reason.take());
        }
    }
}

async fn pause(milliseconds: u64) {
    if milliseconds > 0 {
        tokio::time::sleep(Duration::from_millis(milliseconds)).await;
    }
}

/// Instruction to a worker.
#[derive(Clone)]
pub(crate) enum Task {
    Panic,
    /// Panic after so many milliseconds, by a timer.
    PanicIn(u64),
    Link(Child<Worker>),
    /// Call another worker and wait for its reply.
    Ask(Child<Worker>),
    /// Remove all links to other workers.
    Unlink,
    /// Take so many milliseconds.
    Work(u64),
}
impl Message for Task {
    type Reply = ();
}
impl Handle<Task> for Worker {
    async fn handle(&mut self, task: Task, cx: &mut Context<Self>) {
        match task {
            Task::Panic => panic!("on purpose"),
            Task::PanicIn(delay) => {
                cx.send_after(Duration::from_millis(delay), Task::Panic);
            }
            Task::Link(other) => {
                if let Some(other) = other.address() {
                    cx.link(other);
                    self.links.push(other.pid());
                }
            }
            Task::Ask(other) => {
                // Any outcome is right. The run checks that there is an outcome.
                let _ = other.call(Task::Work(5)).within(Duration::from_millis(200)).await;
            }
            Task::Unlink => self.links.drain(..).for_each(|other| cx.unlink(other)),
            Task::Work(time) => pause(time).await,
        }
    }
}

/// Monitors all workers.
#[derive(Default)]
pub(crate) struct Witness {
    /// Exit reasons received for each pid, in order.
    pub(crate) heard: Arc<Mutex<HashMap<Pid, Vec<ExitReason>>>>,
}

#[process]
impl Witness {
    #[hook]
    fn down(&mut self, down: Down) {
        let mut heard = self.heard.lock().unwrap_or_else(PoisonError::into_inner);
        heard.entry(down.pid).or_default().push(down.reason);
    }
    #[message(send)]
    fn watch(&mut self, pid: Pid, cx: &mut Context<Self>) {
        cx.monitor(pid);
    }
}
