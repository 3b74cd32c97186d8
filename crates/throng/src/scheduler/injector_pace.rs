//! [`InjectorPace`]: how often a worker polls the injector.
//!
//! Rarely while its processes take nanoseconds each, because a poll costs something and such
//! processes come by the thousand. Several times in each tick of the coarse clock while they take
//! tens of microseconds, because a process that another thread has answered would wait for all of
//! them.

use std::cell::Cell;

use crate::timer::Tick;

/// Pace at which a worker polls the injector; see the file's head.
#[derive(Debug)]
pub(crate) struct InjectorPace {
    /// Number of processes that come before the next poll.
    left: Cell<u32>,
    /// Number of processes from poll to poll.
    every: Cell<u32>,
    /// Tick of the coarse clock at the last poll.
    tick: Cell<Tick>,
    /// Number of polls so far on that tick.
    polls: Cell<u32>,
}

/// Greatest number of processes between two polls.
const EVERY_MOST: u32 = 64;
/// Number of polls aimed at in a tick: at least this many, and at most [`POLLS_MOST`].
const POLLS_LEAST: u32 = 8;
const POLLS_MOST: u32 = 16;

impl InjectorPace {
    pub(crate) fn new(now: Tick) -> InjectorPace {
        InjectorPace {
            left: Cell::new(EVERY_MOST),
            every: Cell::new(EVERY_MOST),
            tick: Cell::new(now),
            polls: Cell::new(POLLS_LEAST),
        }
    }

    /// Counts a process; returns whether the worker must poll the injector first.
    #[inline(always)]
    pub(crate) fn is_time(&self, now: Tick) -> bool {
        let left = self.left.get() - 1;
        self.left.set(left);
        left == 0 && self.poll(now)
    }

    #[cold]
    fn poll(&self, now: Tick) -> bool {
        let (mut every, mut polls) = (self.every.get(), self.polls.get() + 1);
        if self.tick.replace(now) != now {
            if polls < POLLS_LEAST {
                every = (every / 2).max(1);
            }
            polls = 0;
        } else if polls > POLLS_MOST {
            every = (every * 2).min(EVERY_MOST);
            polls = POLLS_LEAST;
        }
        self.every.set(every);
        self.polls.set(polls);
        self.left.set(every);
        true
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn start() -> Tick {
        Tick::from_raw(1).unwrap()
    }

    /// Runs processes of this length for a while; returns the number of processes from poll to poll
    /// by then.
    fn settle(pace: &InjectorPace, clock: &mut u64, nanoseconds: u64) -> u64 {
        let (end, mut processes, mut polls) = (*clock + 200_000_000, 0, 0);
        while *clock < end {
            *clock += nanoseconds;
            // The tick is as coarse as the clock.
            let now = start().after(Duration::from_millis(*clock / 2_000_000 * 2));
            let is_late = *clock > end - 50_000_000;
            processes += u64::from(is_late);
            polls += u64::from(pace.is_time(now) && is_late);
        }
        processes / polls
    }

    #[test]
    fn there_are_several_polls_in_each_tick_at_any_length_of_a_turn() {
        let (pace, mut clock) = (InjectorPace::new(start()), 0);
        let fast = settle(&pace, &mut clock, 100);
        assert!((60..=64).contains(&fast), "{fast}");
        let slow = settle(&pace, &mut clock, 60_000);
        assert!((1..=5).contains(&slow), "{slow}");
        assert_eq!(settle(&pace, &mut clock, 5_000_000), 1);
        let fast = settle(&pace, &mut clock, 100);
        assert!((60..=64).contains(&fast), "{fast}");
        let middling = settle(&pace, &mut clock, 4_000);
        assert!((16..=64).contains(&middling), "{middling}");
    }
}
