//! The thread that advances the clock, and all that is done at its pace.
//!
//! Invariant: while any worker is awake, it is awake or being woken. It says that it sleeps before
//! it looks once more whether all others do, and a worker that wakes looks the other way round.

use super::Shared;
use crate::scheduler::Phase;
use crate::scheduler::watchdog::Watchdog;
use crate::sync::atomic::{AtomicBool, Ordering};
use crate::sync::{self, Thread};
use crate::timer::Clock;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

/// The thread that advances the clock, runs the watchdog and checks the mailbox budget while any
/// worker is awake.
#[derive(Default)]
pub(crate) struct ClockKeeper {
    asleep: AtomicBool,
    thread: OnceLock<Thread>,
}

impl ClockKeeper {
    /// For so many looks with nobody awake it goes on: waking it costs a system call.
    const PATIENCE: u32 = 50;

    pub(super) fn run(shared: &Arc<Shared>, mut watchdog: Watchdog) {
        let Shared { scheduler, clock_keeper, budget, .. } = &**shared;
        let _ = clock_keeper.thread.set(sync::current());
        let mut idle = 0;
        while scheduler.phase() != Phase::Over {
            scheduler.clock.refresh();
            budget.check();
            watchdog.check(shared);
            idle = if scheduler.all_asleep() { idle + 1 } else { 0 };
            if idle < Self::PATIENCE {
                sync::sleep(Clock::STALE);
                continue;
            }
            clock_keeper.asleep.store(true, Ordering::SeqCst);
            // Whoever wakes after this look sees that we sleep.
            if scheduler.all_asleep() && scheduler.phase() != Phase::Over {
                // What was handled is handled for good; nobody else would say so.
                budget.check();
                sync::park();
            }
            clock_keeper.asleep.store(false, Ordering::SeqCst);
            idle = 0;
        }
    }

    /// A worker is awake again; returns how long the runtime has run.
    pub(crate) fn wake(&self, clock: &Clock) -> Duration {
        let (_, now) = clock.refresh_exactly();
        if self.asleep.swap(false, Ordering::SeqCst) {
            self.end();
        }
        now
    }

    pub(super) fn end(&self) {
        if let Some(thread) = self.thread.get() {
            thread.unpark();
        }
    }
}
