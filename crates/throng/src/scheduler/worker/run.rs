//! The run of a process: the turns that it has before other processes come.
//!
//! A run is over when it has handled a number of messages or when its time is up. Both are one
//! count, so that a turn checks one number: when the time is up, no message is left.

use crate::timer::Tick;
use std::cell::Cell;

/// The run of a process: the turns that it has before other processes come.
pub(super) struct Run {
    /// Number of messages that the run may handle from its beginning to its end.
    turns_most: Cell<u32>,
    /// Number of these that it has not begun; zero when the run is over.
    turns_left: Cell<u32>,
    pub(super) began: Cell<Tick>,
    pub(super) turn_began: Cell<Tick>,
}

impl Run {
    pub(super) fn new(now: Tick) -> Run {
        Run {
            turns_most: Cell::new(0),
            turns_left: Cell::new(0),
            began: Cell::new(now),
            turn_began: Cell::new(now),
        }
    }

    #[inline(always)]
    pub(super) fn begin(&self, turns_most: u32, now: Tick) {
        self.turns_most.set(turns_most);
        self.turns_left.set(turns_most);
        self.began.set(now);
        self.turn_began.set(now);
    }

    #[inline(always)]
    pub(super) fn turns(&self) -> u32 {
        self.turns_most.get() - self.turns_left.get()
    }

    #[inline(always)]
    pub(super) fn is_over(&self) -> bool {
        self.turns_left.get() == 0
    }

    #[inline(always)]
    pub(super) fn count_turn(&self) {
        self.turns_left.set(self.turns_left.get() - 1);
    }

    /// Takes the last `count_turn` back, because there was no message.
    pub(super) fn uncount_turn(&self) {
        self.turns_left.set(self.turns_left.get() + 1);
    }

    /// Makes the run end after the turn under way.
    pub(super) fn end(&self) {
        self.turns_most.set(self.turns());
        self.turns_left.set(0);
    }
}
