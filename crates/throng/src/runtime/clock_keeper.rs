//! The clock thread: advances the clock and does the periodic work of a runtime.
//!
//! Invariant: while any worker is awake or a guest's seat is busy, the clock thread is awake or being woken.
//! The clock thread sets `asleep` and then checks once more that all workers sleep and no seat is
//! busy; a worker that wakes is counted as awake first, a push makes its seat busy first, and then reads
//! `asleep`.
//!
//! It also keeps the deadlines of waits outside of processes (`timer::outside`), for which it wakes while all
//! workers sleep.
//!
//! The clock thread also gives unused memory back to the system (see `memory::depot`). While all
//! workers sleep, it wakes for that until no thread's free blocks are left in the depots: twice, and
//! then sleeps as long as the workers.

use super::Shared;
use crate::memory::block;
use crate::scheduler::Phase;
use crate::scheduler::watchdog::Watchdog;
use crate::sync::atomic::{AtomicBool, Ordering};
use crate::sync::{self, Thread};
use crate::timer::{Clock, outside};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

/// The clock thread. While any worker is awake, it advances the clock, runs the watchdog, checks the
/// mailbox budget and gives unused memory back.
#[derive(Default)]
pub(crate) struct ClockKeeper {
    asleep: AtomicBool,
    thread: OnceLock<Thread>,
}

impl ClockKeeper {
    /// Number of checks in a row that must find all workers asleep before the clock thread sleeps
    /// too: waking it costs a system call.
    const PATIENCE: u32 = 50;

    pub(super) fn run(shared: &Arc<Shared>, mut watchdog: Watchdog) {
        let Shared { scheduler, clock_keeper, budget, .. } = &**shared;
        let _ = clock_keeper.thread.set(sync::current());
        let outside = outside::Keeper::new();
        let mut idle = 0;
        while scheduler.phase() != Phase::Over {
            scheduler.clock.refresh();
            budget.check();
            watchdog.check(shared);
            scheduler.guests.rescue(scheduler);
            outside.ring();
            let scavenges = block::scavenge();
            idle = if scheduler.all_asleep() { idle + 1 } else { 0 };
            if idle < Self::PATIENCE || scavenges {
                sync::sleep(Clock::STALE);
                continue;
            }
            clock_keeper.asleep.store(true, Ordering::SeqCst);
            // A worker that wakes after this check reads `asleep` as true and unparks this thread.
            if scheduler.all_asleep() && scheduler.phase() != Phase::Over {
                // The last messages handled may have freed budget; while all workers sleep, no
                // other thread would notice.
                budget.check();
                outside.park(block::scavenge_in(), || {
                    scheduler.all_asleep() && scheduler.phase() != Phase::Over
                });
            }
            if !clock_keeper.asleep.swap(false, Ordering::SeqCst) {
                // A worker has woken.
                idle = 0;
            }
        }
    }

    /// Refreshes the clock for a worker that has woken, and wakes the clock thread if it sleeps.
    /// Returns the time since the runtime's start.
    pub(crate) fn wake(&self, clock: &Clock) -> Duration {
        let (_, now) = clock.refresh_exactly();
        if self.asleep.swap(false, Ordering::SeqCst) {
            self.end();
        }
        now
    }

    /// Wakes the clock thread and refreshes the clock if that thread sleeps. The caller has made a guest's
    /// seat busy.
    #[inline]
    pub(crate) fn wake_for_guest(&self, clock: &Clock) {
        if self.asleep.load(Ordering::SeqCst) {
            self.wake(clock);
        }
    }

    /// Wakes the clock thread, which also ends it if the phase is [`Phase::Over`].
    pub(super) fn end(&self) {
        if let Some(thread) = self.thread.get() {
            thread.unpark();
        }
    }
}
