//! Alarms: the deadlines of the running process, and the alarms of the worker's wheel.
//!
//! Invariant: a spare worker and a guest set alarms in a regular worker's wheel and ring none.

use super::{Role, Worker};
use crate::cell::CellRef;
use crate::scheduler::alarms::PackedTarget;
use crate::scheduler::watchdog;
use crate::timer::Tick;
use std::time::Duration;

/// Number of woken processes in the own queue from which alarms wait: a million alarms of one
/// instant must not all be queued at once.
const QUEUED_MOST: u32 = 128;
/// Number of processes run after which a worker rings due alarms although its queue is full.
const ALARMS_FIRST: u32 = 61;
const ALARM_MOST: Duration = Duration::from_secs(60);

impl Worker {
    /// Returns the tick at which a call times out. A call's own deadline counts from the true time;
    /// the default deadline, which nearly every call has, counts from the last reading of the
    /// clock.
    #[inline(always)]
    pub(crate) fn deadline(&self, own: Option<Duration>, usual: Duration) -> Tick {
        let clock = &self.scheduler().clock;
        match own {
            Some(own) => clock.deadline(own),
            None => clock.now().deadline(usual),
        }
    }

    #[inline(always)]
    pub(crate) fn is_due(&self, at: Tick) -> bool {
        at.is_due(self.scheduler().clock.now())
    }

    /// Sets an alarm that wakes the running process at a tick; true if the tick is reached already.
    #[inline(always)]
    pub(crate) fn set_alarm(&self, cell: CellRef, at: Tick) -> bool {
        let now = self.scheduler().clock.now();
        if at.is_due(now) {
            return true;
        }
        // An alarm that rings early is set again by a future that still waits. So entries that a
        // process leaves behind in the wheel, superseded or dead, are gone before long.
        let at = at.min_after(now, ALARM_MOST);
        if cell.advance_alarm(at) {
            self.scheduler().set_alarm(at, PackedTarget::process(cell));
        }
        false
    }

    #[inline(always)]
    pub(super) fn ring_alarms(&self, runs: u32, now: Tick) {
        if self.role == Role::Regular && self.alarms.is_due(now) {
            self.ring_due_alarms(runs);
        }
    }

    /// Rings a slice of the due alarms, if there is room in the queue, or every [`ALARMS_FIRST`]
    /// processes.
    #[cold]
    fn ring_due_alarms(&self, runs: u32) {
        if self.remote().queue.woken() < QUEUED_MOST || runs.is_multiple_of(ALARMS_FIRST) {
            let mut unsent = self.alarms.take_left();
            unsent.extend(self.scheduler().ring(&self.alarms, |token| self.push_back(token)));
            if !unsent.is_empty() {
                self.current_turn().begin(&watchdog::TIMER);
                drop(unsent);
                self.current_turn().end();
            }
            // Messages that these drops have sent must not be joined to the next process's messages.
            self.end_streaks();
        }
    }
}
