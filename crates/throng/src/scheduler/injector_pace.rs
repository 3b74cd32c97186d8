//! [`Pace`]: how often a worker lets those go first who were woken from outside.
//!
//! Seldom, where its processes take nanoseconds each, for to look costs something and they come in
//! crowds; but several times in each beat of the coarse clock, where they take tens of microseconds,
//! for who waits for another thread's answer would wait for all of them.

use std::cell::Cell;

use crate::timer::Tick;

/// See the module.
#[derive(Debug)]
pub(crate) struct Pace {
    /// How many processes come before the next look.
    left: Cell<u32>,
    /// Every how many there is one.
    every: Cell<u32>,
    /// The coarse clock at the last one.
    tick: Cell<Tick>,
    /// How many there were on that tick.
    looks: Cell<u32>,
}

/// At most so many processes come between two looks.
const EVERY_MOST: u32 = 64;
/// So many looks in one tick are meant.
const LOOKS_LEAST: u32 = 8;
const LOOKS_MOST: u32 = 16;

impl Pace {
    pub(crate) fn new(now: Tick) -> Pace {
        Pace {
            left: Cell::new(EVERY_MOST),
            every: Cell::new(EVERY_MOST),
            tick: Cell::new(now),
            looks: Cell::new(LOOKS_LEAST),
        }
    }

    /// Counts a process; whether those from outside go first.
    #[inline(always)]
    pub(crate) fn is_time(&self, now: Tick) -> bool {
        let left = self.left.get() - 1;
        self.left.set(left);
        left == 0 && self.look(now)
    }

    #[cold]
    fn look(&self, now: Tick) -> bool {
        let (mut every, mut looks) = (self.every.get(), self.looks.get() + 1);
        if self.tick.replace(now) != now {
            if looks < LOOKS_LEAST {
                every = (every / 2).max(1);
            }
            looks = 0;
        } else if looks > LOOKS_MOST {
            every = (every * 2).min(EVERY_MOST);
            looks = LOOKS_LEAST;
        }
        self.every.set(every);
        self.looks.set(looks);
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

    /// Runs processes of so many nanoseconds each for a while; every how many there is a look then.
    fn settle(pace: &Pace, clock: &mut u64, nanoseconds: u64) -> u64 {
        let (end, mut processes, mut looks) = (*clock + 200_000_000, 0, 0);
        while *clock < end {
            *clock += nanoseconds;
            // As coarse as the clock is.
            let now = start().after(Duration::from_millis(*clock / 2_000_000 * 2));
            let is_late = *clock > end - 50_000_000;
            processes += u64::from(is_late);
            looks += u64::from(pace.is_time(now) && is_late);
        }
        processes / looks
    }

    #[test]
    fn there_are_several_looks_in_each_beat_whatever_a_process_takes() {
        let (pace, mut clock) = (Pace::new(start()), 0);
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
