//! Time: a coarse clock that costs a load, and a wheel of alarms.
//!
//! An alarm wakes a process at a tick; what the process then does about it is its futures'
//! business. So a cell needs one alarm at most, the earliest anything in it asked for, and a
//! future that is done does not cancel it: the wake comes, finds nothing late, and is forgotten.
//! A process that makes a million calls a second, each with a deadline five seconds off, so puts
//! one entry into the wheel every five seconds.
//!
//! ```text
//! level 0: 64 slots of 1 ms │ level 1: 64 of 64 ms │ level 2: 64 of 4 s │ level 3: … │ level 4
//! ```
//! An entry stands in the level whose slot is just wide enough, and moves down a level when the
//! time reaches its slot. Ticks are milliseconds since the runtime's start, mod 2³²; an alarm
//! further off than the wheel reaches (12 days) rings at its end and is set anew by whoever still
//! waits.

use crate::sync::Epoch;
use crate::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

/// Milliseconds since the runtime's start, wrapping. Never zero, which means "no alarm".
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Tick(u32);

impl Tick {
    pub(crate) fn after(self, time: Duration) -> Tick {
        let milliseconds = u32::try_from(time.as_millis()).unwrap_or(u32::MAX).min(REACH);
        Tick(self.0.wrapping_add(milliseconds).max(1))
    }

    /// The first tick at which `time` has passed for certain since this one began, and as long
    /// again as a reading is usually old.
    #[inline]
    pub(crate) fn deadline(self, time: Duration) -> Tick {
        self.after(time + Clock::STALE + Duration::from_millis(1))
    }

    /// Whether this tick is reached when the clock shows `now`.
    #[inline]
    pub(crate) fn is_due(self, now: Tick) -> bool {
        now.0.wrapping_sub(self.0) as i32 >= 0
    }

    /// This tick, or the one `most` after `now` if that comes first.
    pub(crate) fn min_after(self, now: Tick, most: Duration) -> Tick {
        let limit = now.after(most);
        if limit.is_due(self) { limit } else { self }
    }

    pub(crate) fn to_raw(self) -> u32 {
        self.0
    }

    pub(crate) fn from_raw(raw: u32) -> Option<Tick> {
        (raw != 0).then_some(Tick(raw))
    }

    /// How many ticks `later` is off; zero if it has passed.
    pub(crate) fn until(self, later: Tick) -> u32 {
        if later.is_due(self) { 0 } else { later.0.wrapping_sub(self.0) }
    }
}

/// The clock all workers share: read by a load, advanced by whoever refreshes it.
pub(crate) struct Clock {
    epoch: Epoch,
    now: AtomicU32,
}

impl Clock {
    /// How old a reading is at most while any worker runs, if the machine is not overloaded.
    pub(crate) const STALE: Duration = Duration::from_millis(2);

    pub(crate) fn new() -> Clock {
        Clock { epoch: Epoch::now(), now: AtomicU32::new(1) }
    }

    #[inline(always)]
    pub(crate) fn now(&self) -> Tick {
        Tick(self.now.load(Ordering::Relaxed))
    }

    /// Looks at the system's clock.
    pub(crate) fn refresh(&self) -> Tick {
        // Wraps after 49 days; ticks are compared by difference.
        let now = Tick((self.epoch.elapsed().as_millis() as u32).wrapping_add(1).max(1));
        // Two who look at once may store in either order; that is the only way it could go back.
        let behind = now.until(self.now());
        if behind == 0 || behind > 60_000 {
            self.now.store(now.0, Ordering::Relaxed);
        }
        now
    }
}

const LEVEL_BITS: u32 = 6;
const LEVEL_SLOTS: usize = 1 << LEVEL_BITS;
const LEVELS: usize = 5;
/// The furthest an alarm can be off, in ticks.
const REACH: u32 = (1 << (LEVEL_BITS * LEVELS as u32)) - 1;

/// Alarms of one worker. `T` is whom to wake.
pub(crate) struct Wheel<T> {
    /// The tick up to which all alarms have rung.
    now: Tick,
    levels: [[Vec<(Tick, T)>; LEVEL_SLOTS]; LEVELS],
    /// A bit per slot that is not empty.
    occupied: [u64; LEVELS],
}

impl<T> Wheel<T> {
    pub(crate) fn new(now: Tick) -> Self {
        Wheel {
            now,
            levels: std::array::from_fn(|_| std::array::from_fn(|_| Vec::new())),
            occupied: [0; LEVELS],
        }
    }

    /// Sets an alarm at a time `now`. One that is due already rings at the next tick.
    pub(crate) fn insert(&mut self, now: Tick, at: Tick, whom: T) {
        if self.occupied == [0; LEVELS] {
            // Nothing has moved the wheel on since its last alarm, perhaps for weeks.
            self.now = now;
        }
        self.place(at, whom);
    }

    fn place(&mut self, at: Tick, whom: T) {
        let rings = Tick(self.now.0.wrapping_add(self.now.until(at).max(1)));
        // The highest bit in which the two differ names the level; a carry past the top wraps
        // into the top level, whose slots come round again within the wheel's reach.
        let differing = (self.now.0 ^ rings.0) | 1;
        let level = ((31 - differing.leading_zeros()) / LEVEL_BITS).min(LEVELS as u32 - 1);
        let slot = (rings.0 >> (level * LEVEL_BITS)) as usize % LEVEL_SLOTS;
        self.levels[level as usize][slot].push((at, whom));
        self.occupied[level as usize] |= 1 << slot;
    }

    /// The next tick at which [`advance`](Self::advance) has something to do.
    pub(crate) fn next(&self) -> Option<Tick> {
        (0..LEVELS)
            .filter(|&level| self.occupied[level] != 0)
            .map(|level| self.next_of(level))
            .min_by_key(|&tick| self.now.until(tick))
    }

    /// When the time reaches the next occupied slot of a level.
    fn next_of(&self, level: usize) -> Tick {
        let shift = level as u32 * LEVEL_BITS;
        let current = self.now.0 >> shift;
        // Slots lie in a ring; the present slot's own turn comes last, a full round on.
        let following = current.wrapping_add(1);
        let ring = self.occupied[level].rotate_right(following % LEVEL_SLOTS as u32);
        Tick(following.wrapping_add(ring.trailing_zeros()) << shift)
    }

    /// Moves the time on to `now` and hands over everybody whose alarm is due.
    pub(crate) fn advance(&mut self, now: Tick, mut ring: impl FnMut(Tick, T)) {
        while let Some(next) = self.next().filter(|next| next.is_due(now)) {
            self.now = next;
            // Higher levels first: what moves down may be due at this very tick.
            for level in (0..LEVELS).rev() {
                let shift = level as u32 * LEVEL_BITS;
                let slot = (next.0 >> shift) as usize % LEVEL_SLOTS;
                let reached = next.0 & ((1_u32 << shift) - 1) == 0;
                if !reached || self.occupied[level] & (1 << slot) == 0 {
                    continue;
                }
                self.occupied[level] &= !(1 << slot);
                for (at, whom) in std::mem::take(&mut self.levels[level][slot]) {
                    if at.is_due(next) { ring(at, whom) } else { self.place(at, whom) }
                }
            }
        }
        if self.now.until(now) > 0 {
            self.now = now;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every alarm rings exactly once, at its tick or at the first look after it.
    fn check(start: u32, delays: &[u32], step: u32) {
        let mut wheel = Wheel::new(Tick(start));
        for (index, &delay) in delays.iter().enumerate() {
            wheel.insert(Tick(start), Tick(start.wrapping_add(delay)), index);
        }
        let mut rung = vec![false; delays.len()];
        let mut passed = 0_u32;
        while rung.contains(&false) {
            passed += step;
            let now = Tick(start.wrapping_add(passed));
            wheel.advance(now, |at, index| {
                assert!(!std::mem::replace(&mut rung[index], true), "rang twice");
                assert_eq!(at, Tick(start.wrapping_add(delays[index].max(1))));
                assert!(delays[index] <= passed, "rang early");
                assert!(delays[index].max(1) + step > passed, "rang late");
            });
        }
        assert_eq!(wheel.next(), None);
    }

    #[test]
    fn alarms_ring_at_their_tick_whatever_the_step() {
        let delays: Vec<u32> = (0..14).flat_map(|bit| [1 << bit, (1 << bit) + 3, 77]).collect();
        for start in [1, 63, 64, 4095, 1 << 30, u32::MAX - 100, u32::MAX - 5000] {
            for step in [1, 2, 7, 64, 1000] {
                check(start, &delays, step);
            }
        }
    }

    #[test]
    fn an_alarm_at_the_end_of_the_reach_rings() {
        for start in [1, 12_345, u32::MAX / 2 + 17, u32::MAX - 3] {
            check(start, &[REACH, REACH - 1, REACH / 3], 1_000_003);
        }
    }

    #[test]
    fn a_wheel_that_stood_still_for_weeks_goes_on() {
        let mut wheel = Wheel::new(Tick(1));
        let now = Tick(1 + 3_000_000_000);
        wheel.insert(now, now.after(Duration::from_millis(5)), ());
        let next = wheel.next().expect("an alarm is set");
        assert!(!next.is_due(now) && next.is_due(now.after(Duration::from_millis(5))));
    }

    #[test]
    fn a_deadline_is_never_early() {
        let clock = Clock::new();
        let deadline = clock.now().deadline(Duration::from_millis(5));
        assert!(!deadline.is_due(clock.now().after(Duration::from_millis(5))));
    }
}
