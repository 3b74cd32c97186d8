//! Selection: the process that a worker runs next.
//!
//! ```text
//! LIFO slot ─▶ own queues (with the share of the injector) ─▶ other workers' queues ─▶ sleep
//! ```
//!
//! A worker without work steals, and one that has some still takes processes over, once a tick, if another worker has
//! many more: else the processes of a crowded worker would run less often than others for as long as no worker is idle.
//!
//! Invariants:
//! 1. A worker sleeps only after it has entered the list of sleepers and then found no work
//!    (`sleepers`).
//! 2. Whatever a worker takes out of a queue, it returns, runs or puts back.

use super::{Role, Worker};
use crate::cell::Token;
use crate::scheduler::token_queue::TokenQueue;
use crate::scheduler::{Phase, Remote};
use crate::sync::{park, park_timeout, spin_loop};
use crate::timer::Tick;
use std::time::Duration;

/// Number of rounds for which a worker searches before it sleeps: some microseconds, because waking a
/// thread costs more. A longer search takes the processor from the threads that the worker waits for: with
/// 60 rounds, 16 processes that wait for their writes to a store make a tenth fewer.
const SEARCH_ROUNDS: u32 = 20;
const SPINS_PER_ROUND: u32 = 30;

impl Worker {
    #[inline(always)]
    pub(super) fn next(&self) -> Option<Token> {
        let runs = self.runs.get().wrapping_add(1);
        self.runs.set(runs);
        let now = self.scheduler().clock.now();
        self.ring_alarms(runs, now);
        let follower = self.take_from_slots();
        if follower.is_some() && self.slices.may_follow() {
            return follower;
        }
        self.begin_slice(follower, now)
    }

    /// Takes the process that begins the next slice: `follower`, which has come from the LIFO slot,
    /// only if no other process waits.
    #[inline(never)]
    fn begin_slice(&self, follower: Option<Token>, now: Tick) -> Option<Token> {
        self.take_injected();
        if self.slices.begins_tick(now) {
            self.level(now);
        }
        if let Some(token) = follower {
            let Remote { queue, counters, .. } = self.remote();
            if queue.is_empty() {
                self.slices.begin(counters.turns(), now);
                return Some(token);
            }
            self.push_back(token);
            // A process left in the other slot must not come before the waiting ones either.
            self.empty_slots();
        }
        self.pop(now)
    }

    /// Takes the next process from the queues, which begins a slice.
    #[inline(always)]
    fn pop(&self, now: Tick) -> Option<Token> {
        let Remote { queue, counters, .. } = self.remote();
        let spent_first = self.slices.begin(counters.turns(), now);
        let woken = if spent_first { None } else { queue.pop_woken() };
        woken.or_else(|| self.pop_spent(queue)).or_else(|| queue.pop_woken())
    }

    /// Takes a process that has used its budget.
    #[inline(always)]
    fn pop_spent(&self, queue: &TokenQueue) -> Option<Token> {
        let token = queue.pop_spent()?;
        self.slices.set_spent();
        Some(token)
    }

    /// Moves this worker's share of the injector to its queue.
    #[inline(always)]
    pub(super) fn take_injected(&self) {
        if self.scheduler().injected() > 0 {
            self.take_share();
        }
    }

    /// Moves this worker's share of the injector to its queue, under the injector's lock.
    #[cold]
    pub(super) fn take_share(&self) {
        let scheduler = self.scheduler();
        scheduler.take_injected(scheduler.workers(), |token| self.remote().queue.push(token));
        scheduler.notify();
    }

    /// Takes processes over from another worker, in each tick another one, if it has many more than this one.
    #[cold]
    fn level(&self, now: Tick) {
        let scheduler = self.scheduler();
        let workers = scheduler.workers();
        if self.role == Role::Regular && workers > 1 {
            let offset = 1 + now.to_raw() as usize % (workers - 1);
            let other = &scheduler.remotes[(self.index + offset) % workers];
            if self.remote().queue.level(&other.queue) > 0 {
                self.remote().counters.count_steal();
            }
        }
    }

    fn steal(&self) -> Option<Token> {
        let remotes = self.scheduler().remotes_in_use();
        // Start at another neighbour each time, so that thieves spread.
        let first = self.runs.get() as usize;
        let stolen = (0..remotes.len())
            .map(|offset| (first + offset) % remotes.len())
            .filter(|&victim| victim != self.index)
            .find_map(|victim| remotes[victim].queue.steal(|token| self.push_back(token)))?;
        self.remote().counters.count_steal();
        Some(stolen)
    }

    fn search(&self) -> Option<Token> {
        for _ in 0..SEARCH_ROUNDS {
            let found = self.steal().or_else(|| {
                let now = self.scheduler().clock.now();
                self.ring_alarms(0, now);
                self.take_injected();
                self.pop(now).or_else(|| self.take_from_slots())
            });
            if found.is_some() || self.scheduler().phase() == Phase::Over {
                return found;
            }
            for _ in 0..SPINS_PER_ROUND {
                spin_loop();
            }
        }
        None
    }

    #[cold]
    pub(super) fn search_or_sleep(&self) -> Option<Token> {
        let scheduler = self.scheduler();
        let mut searching = scheduler.sleepers.begin_search();
        loop {
            if searching && let Some(token) = self.search() {
                scheduler.end_search();
                return Some(token);
            }
            let sleeps = scheduler.begin_sleep(self.index, searching);
            if sleeps {
                self.sleep();
            }
            searching = scheduler.sleepers.end_sleep(self.index);
            // Needed also if the worker did not sleep: for a moment it looked as if all did.
            let now = self.shared.clock_keeper.wake(&scheduler.clock);
            self.remote().counters.wake(now);
            if scheduler.phase() == Phase::Over {
                return None;
            }
            // There is work. The head of `sleepers` says why the worker must become a searcher and
            // not just take it.
            searching |= !sleeps && scheduler.sleepers.begin_search();
            if !searching {
                // The worker was woken by an alarm, by the end of the runtime, or spuriously.
                return self.next();
            }
        }
    }

    fn sleep(&self) {
        self.streaks.shrink();
        let (now, elapsed) = self.scheduler().clock.refresh_exactly();
        self.remote().counters.fall_asleep(elapsed);
        let alarm = if self.role != Role::Regular { None } else { self.alarms.next() };
        match alarm {
            Some(alarm) => park_timeout(Duration::from_millis(now.until(alarm).into())),
            None => park(),
        }
    }
}
