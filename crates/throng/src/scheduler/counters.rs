//! Counts kept by each worker, for metrics: written by the worker alone, by plain stores.

use crate::runtime::metrics::WorkerMetrics;
use crate::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

pub(crate) struct Counters {
    turns: AtomicU64,
    steals: AtomicU64,
    parks: AtomicU64,
    spawned: AtomicU64,
    exited: AtomicU64,
    panicked: AtomicU64,
    /// Written by the watchdog.
    stuck_turns: AtomicU64,
    /// Nanoseconds since the runtime's start, plus one; zero before the worker's start.
    started: AtomicU64,
    idle: AtomicU64,
    /// Time since which the worker sleeps, in the unit of `started`; zero if it does not sleep.
    asleep: AtomicU64,
}

/// Adds to a count that no other thread writes.
#[inline(always)]
fn add(count: &AtomicU64, number: u64) {
    count.store(count.load(Ordering::Relaxed) + number, Ordering::Relaxed);
}

fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX - 1) + 1
}

impl Counters {
    pub(crate) fn new() -> Counters {
        let zero = || AtomicU64::new(0);
        Counters {
            turns: zero(),
            steals: zero(),
            parks: zero(),
            spawned: zero(),
            exited: zero(),
            panicked: zero(),
            stuck_turns: zero(),
            started: zero(),
            idle: zero(),
            asleep: zero(),
        }
    }

    /// Worker: counts a process that is about to become reachable.
    #[inline(always)]
    pub(crate) fn count_spawn(&self) {
        self.spawned.store(self.spawned.load(Ordering::Relaxed) + 1, Ordering::Release);
    }

    /// Worker: counts a process that is gone.
    #[inline(always)]
    pub(crate) fn count_exit(&self) {
        self.exited.store(self.exited.load(Ordering::Relaxed) + 1, Ordering::Release);
    }

    /// Worker: counts a process that has panicked.
    pub(crate) fn count_panic(&self) {
        add(&self.panicked, 1);
    }

    /// Worker: counts the turns it has run of a process.
    #[inline(always)]
    pub(crate) fn count_run(&self, turns: u32) {
        add(&self.turns, turns.into());
    }

    /// Worker: number of turns it has run.
    #[inline(always)]
    pub(crate) fn turns(&self) -> u64 {
        self.turns.load(Ordering::Relaxed)
    }

    /// Worker: counts a theft of processes from another worker.
    pub(crate) fn count_steal(&self) {
        add(&self.steals, 1);
    }

    /// Watchdog: counts a turn that is stuck.
    pub(crate) fn count_stuck(&self) {
        add(&self.stuck_turns, 1);
    }

    /// Worker: records its start, as a time since the runtime's start.
    pub(crate) fn start(&self, now: Duration) {
        self.started.store(nanoseconds(now), Ordering::Relaxed);
    }

    /// Worker: records that it goes to sleep.
    pub(crate) fn fall_asleep(&self, now: Duration) {
        add(&self.parks, 1);
        self.asleep.store(nanoseconds(now), Ordering::Relaxed);
    }

    /// Worker: records that it is awake again.
    pub(crate) fn wake(&self, now: Duration) {
        let since = self.asleep.load(Ordering::Relaxed);
        if since != 0 {
            add(&self.idle, nanoseconds(now).saturating_sub(since));
            self.asleep.store(0, Ordering::Relaxed);
        }
    }

    /// Number of processes that have exited on this worker. To be read before
    /// [`spawned`](Self::spawned), so that each exit is counted only after its own spawn.
    pub(crate) fn exited(&self) -> u64 {
        self.exited.load(Ordering::Acquire)
    }

    /// Number of processes spawned on this worker; to be read after [`exited`](Self::exited).
    pub(crate) fn spawned(&self) -> u64 {
        self.spawned.load(Ordering::Acquire)
    }

    pub(crate) fn metrics(&self, now: Duration) -> WorkerMetrics {
        let get = |count: &AtomicU64| count.load(Ordering::Relaxed);
        let now = nanoseconds(now);
        let since = |start: u64| if start == 0 { 0 } else { now.saturating_sub(start) };
        let idle = get(&self.idle) + since(get(&self.asleep));
        WorkerMetrics {
            turns: get(&self.turns),
            steals: get(&self.steals),
            parks: get(&self.parks),
            busy: Duration::from_nanos(since(get(&self.started)).saturating_sub(idle)),
            idle: Duration::from_nanos(idle),
            spawned: self.spawned(),
            exited: self.exited(),
            panicked: get(&self.panicked),
            stuck_turns: get(&self.stuck_turns),
            ..WorkerMetrics::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sleep_counts_as_idle_also_while_it_lasts() {
        let at = Duration::from_millis;
        let counters = Counters::new();
        assert_eq!(counters.metrics(at(5)).busy, at(0));
        counters.start(at(10));
        counters.fall_asleep(at(30));
        let asleep = counters.metrics(at(70));
        assert_eq!((asleep.busy, asleep.idle, asleep.parks), (at(20), at(40), 1));
        counters.wake(at(80));
        let awake = counters.metrics(at(100));
        assert_eq!((awake.busy, awake.idle, awake.parks), (at(40), at(50), 1));
    }
}
