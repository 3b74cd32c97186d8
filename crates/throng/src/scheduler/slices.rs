//! [`Slices`]: which of the processes in a worker's queues runs next, and how many follow it.
//!
//! ```text
//! LIFO slot ──▶ processes woken by the process before, in the same slice
//! woken     ──▶ processes that were woken or injected      ┐ take turns, a share each
//! spent     ──▶ processes that have used their budget      ┘
//! ```
//!
//! A *slice* begins with a process from a queue. Processes that it wakes follow it by the LIFO slot,
//! a limited number in a row; the next one waits behind the woken processes.
//!
//! Ten thousand busy processes must not delay a process that has one message to handle. So a
//! process that has used its budget waits in a queue of its own. The woken processes together may
//! handle as many messages, or take as long, as one process may in a run; then a spent process
//! comes. So neither queue starves, whatever is in the other.
//!
//! A longer streak saves passages through the queue; a shorter one lets a woken process run sooner beside thousands of
//! such streaks. On two cores (`run pairs`, `run calls`, `run fairness` of `bench/`):
//!
//! | streak | instructions per message, 1,000 pairs | per call, 1,000 callers | call from outside beside 5,000 pairs |
//! |---|---|---|---|
//! | 4 | 601 | 1,324 | 1.1 ms |
//! | 8 | 582 | 1,291 | 1.8 ms |
//! | 16 | 570 | 1,268 | 3.2 ms |
//! | 32 | 561 | 1,253 | 6.1 ms |
//!
//! The 99th percentile of a call by 1,000 callers on two workers is 0.55 ms with a streak of 8, 0.35 ms with 4, and 0.2 ms
//! with 2; but with 2 and 3 most calls wait, and the median is 120 and 25 µs in place of 0.2.
//!
//! With a single queue, a call from outside beside 10,000 processes that flood themselves waited 27 ms.

use super::worker::{BUDGET, TIME_BUDGET};
use crate::timer::Tick;
use std::cell::Cell;

/// Number of processes in a row that may come from the LIFO slot while others wait; see the file's head.
const LIFO_STREAK: u32 = 4;

/// Slices of a worker; see the file's head.
pub(crate) struct Slices {
    /// Number of processes that may still come from the LIFO slot in this slice, plus one.
    left: Cell<u32>,
    is_spent: Cell<bool>,
    /// Number of messages that the worker had handled when the share of the woken processes began.
    share_turns: Cell<u64>,
    share_began: Cell<Tick>,
    /// Tick at which the last slice began.
    tick: Cell<Tick>,
}

impl Slices {
    pub(crate) fn new(now: Tick) -> Slices {
        Slices {
            left: Cell::new(LIFO_STREAK + 1),
            is_spent: Cell::new(false),
            share_turns: Cell::new(0),
            share_began: Cell::new(now),
            tick: Cell::new(now),
        }
    }

    /// Counts a process from the LIFO slot; returns whether it belongs to the slice. If not, the
    /// worker must begin another slice.
    #[inline(always)]
    pub(crate) fn may_follow(&self) -> bool {
        let left = self.left.get() - 1;
        self.left.set(left);
        left > 0
    }

    /// Begins a slice; returns whether a spent process comes before the woken ones. `turns` is the
    /// number of messages that the worker has handled so far.
    #[inline(always)]
    pub(crate) fn begin(&self, turns: u64, now: Tick) -> bool {
        self.left.set(LIFO_STREAK + 1);
        if self.is_spent.replace(false) {
            self.share_turns.set(turns);
            self.share_began.set(now);
        }
        turns - self.share_turns.get() >= BUDGET.into()
            || self.share_began.get().until(now) >= TIME_BUDGET
    }

    /// Whether a slice that begins is the first of its tick.
    #[inline(always)]
    pub(crate) fn begins_tick(&self, now: Tick) -> bool {
        self.tick.replace(now) != now
    }

    /// Records that the slice just begun is of a spent process.
    #[inline(always)]
    pub(crate) fn set_spent(&self) {
        self.is_spent.set(true);
    }
}

#[cfg(all(test, not(throng_loom)))]
mod tests {
    use super::*;

    fn first() -> Tick {
        Tick::from_raw(1).expect("is not 0")
    }

    /// Runs a worker whose queues are never empty; returns the messages of woken and spent
    /// processes.
    fn share(slices: usize, messages_woken: u64, messages_spent: u64) -> (u64, u64) {
        let now = first();
        let (slice, mut woken, mut spent) = (Slices::new(now), 0, 0);
        for _ in 0..slices {
            if slice.begin(woken + spent, now) {
                slice.set_spent();
                spent += messages_spent;
            } else {
                woken += messages_woken;
            }
        }
        (woken, spent)
    }

    #[test]
    fn woken_and_spent_processes_have_equal_shares() {
        for messages_woken in [1, 3, 200, 256] {
            let (woken, spent) = share(10_000, messages_woken, u64::from(BUDGET));
            assert!(woken < 2 * spent && spent < 2 * woken, "{woken} beside {spent}");
        }
    }

    #[test]
    fn slow_processes_share_the_time() {
        let (slices, mut spent) = (Slices::new(first()), 0);
        for tick in 0..1_000 {
            let now = first().after(std::time::Duration::from_millis(tick));
            if slices.begin(tick, now) {
                slices.set_spent();
                spent += 1;
            }
        }
        assert!((300..=400).contains(&spent), "{spent} of 1,000 slices, one tick each");
    }
}
