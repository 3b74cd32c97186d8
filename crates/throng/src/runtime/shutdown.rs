//! The end of a runtime.
//!
//! It is in phases (see [`Phase`]): *draining* asks each process to exit when its mailbox is empty;
//! when the deadline is over, *killing* drops turns that are suspended. Both are carried to idle
//! processes by sweeping over the slab until none is left.
//!
//! Invariants: a phase is set before the sweep that carries it, so who begins to run after the
//! sweep has passed sees it by itself. Classes are let go only once no process lives; a thread that
//! a handler blocks is never waited for beyond a deadline.

use super::{Runtime, Shared};
use crate::alarms::Alarms;
use crate::scheduler::Phase;
use crate::sync::atomic::Ordering;
use crate::sync::{self, Epoch, JoinHandle, lock};
use std::time::Duration;

/// How long a dropped runtime waits for its processes.
const DROP_DEADLINE: Duration = Duration::from_secs(1);
/// How long killing goes on without any process exiting, and how long stuck workers have to end.
/// Miri takes a hundred times as long for all, and no test that blocks its thread is run by it.
const KILL_DEADLINE: Duration = Duration::from_secs(if cfg!(miri) { 100 } else { 1 });
const SWEEP_PAUSE: Duration = Duration::from_millis(1);

/// How a shutdown went.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Shutdown {
    /// Processes that exited in order.
    pub stopped: u64,
    /// Processes that did not within the deadline: those suspended were dropped in mid-turn, and
    /// those that block their thread still do.
    pub abandoned: u64,
}

impl Runtime {
    pub(super) fn shut_down(&mut self, deadline: Duration) -> Shutdown {
        let shared = self.handle.0.clone();
        shared.scheduler.set_phase(Phase::Draining);
        let live = shared.scheduler.live();
        if !shared.sweep_until_empty(Patience::in_all(deadline)) {
            shared.scheduler.set_phase(Phase::Killing);
            shared.sweep_until_empty(Patience::without_exit(KILL_DEADLINE));
        }
        shared.scheduler.set_phase(Phase::Over);
        shared.clock_keeper.end();
        lock(&shared.threads).extend(shared.events.close());
        shared.join_threads();
        // Counted when the workers have ended: a message that one of them drops between two turns
        // may have spawned as the phase changed, and whoever lives needs its class.
        let stuck = shared.scheduler.live();
        // Messages still to be sent may hold handles of this very runtime.
        shared.scheduler.alarms.iter().for_each(Alarms::close);
        tracing::debug!(workers = ?shared.scheduler.worker_metrics(), "the runtime is over");
        if stuck == 0 {
            // Breaks the ring from class to runtime; nobody needs a class any more.
            lock(&shared.classes).clear();
            lock(&shared.guest_slots).drain(&shared.slab);
        } else {
            tracing::error!(processes = stuck, "processes block their threads and are left behind");
        }
        if let Some(tokio) = self.tokio.take() {
            tokio.shutdown_background();
        }
        let abandoned = shared.abandoned.load(Ordering::Relaxed) + stuck;
        Shutdown { stopped: live.saturating_sub(abandoned), abandoned }
    }
}

impl Drop for Runtime {
    fn drop(&mut self) {
        if self.handle.0.scheduler.phase() != Phase::Over {
            self.shut_down(DROP_DEADLINE);
        }
    }
}

impl Shared {
    /// Joins what ends in time; a thread stuck in a handler is left to itself.
    fn join_threads(&self) {
        let begun = Epoch::now();
        let mut threads = std::mem::take(&mut *lock(&self.threads));
        while threads.iter().any(|thread| !thread.is_finished()) && begun.elapsed() < KILL_DEADLINE
        {
            sync::sleep(Duration::from_micros(100));
        }
        for thread in threads.drain(..).filter(JoinHandle::is_finished) {
            if thread.join().is_err() {
                tracing::error!("a thread of the runtime panicked");
            }
        }
    }

    /// Carries the present phase to processes that would not notice it, until none lives; false if
    /// the patience is over before.
    fn sweep_until_empty(&self, mut patience: Patience) -> bool {
        while self.scheduler.live() > 0 {
            self.sweep(&mut patience);
            if patience.is_over(self.scheduler.live()) {
                return self.scheduler.live() == 0;
            }
            sync::sleep(SWEEP_PAUSE);
        }
        true
    }

    /// Carries the present phase to processes that would not notice it.
    #[cfg(feature = "sim")]
    pub(crate) fn sweep_once(&self) {
        self.sweep(&mut Patience::in_all(Duration::ZERO));
    }

    fn sweep(&self, patience: &mut Patience) {
        /// So many tokens may wait; a sweep over millions must not queue them all.
        const INJECTED_MOST: usize = 16 * 1024;
        const BATCH: usize = 1024;
        let killing = self.scheduler.phase() == Phase::Killing;
        let mut batch = Vec::new();
        let mut is_over = false;
        self.slab.for_each_slot(|cell| {
            if is_over {
                return;
            }
            let suspended = killing && cell.is_suspended();
            batch.extend(if suspended {
                cell.wake_turn()
            } else {
                cell.wake_idle().or_else(|| cell.wake_awaiting())
            });
            if batch.len() >= BATCH {
                self.scheduler.inject(batch.drain(..));
                while !is_over && self.scheduler.injected() > INJECTED_MOST {
                    sync::sleep(SWEEP_PAUSE);
                    is_over = patience.is_over(self.scheduler.live());
                }
            }
        });
        self.scheduler.inject(batch);
    }
}

/// How long a shutdown waits: for so long in all, or for so long without any exit.
struct Patience {
    limit: Duration,
    since: Epoch,
    /// How few processes lived at the last look, if exits renew the patience.
    least: Option<u64>,
}

impl Patience {
    fn in_all(limit: Duration) -> Patience {
        Patience { limit, since: Epoch::now(), least: None }
    }

    fn without_exit(limit: Duration) -> Patience {
        Patience { limit, since: Epoch::now(), least: Some(u64::MAX) }
    }

    fn is_over(&mut self, live: u64) -> bool {
        if self.least.is_some_and(|least| live < least) {
            self.least = Some(live);
            self.since = Epoch::now();
        }
        self.since.elapsed() >= self.limit
    }
}
