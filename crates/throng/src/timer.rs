//! Time: a coarse clock that costs a load, and a wheel of alarms.
//!
//! An alarm wakes a process at a tick; the process's futures decide what to do about it. So a cell
//! needs one alarm at most, the earliest that any of its futures asked for, and a future that is
//! done does not cancel it: the wake comes, finds nothing late, and is forgotten. A process that
//! makes a million calls a second, each with a deadline five seconds off, so puts one entry into
//! the wheel every five seconds.
//!
//! ```text
//! level 0: 64 slots of 1 ms │ level 1: 64 of 64 ms │ level 2: 64 of 4 s │ level 3: … │ level 4
//! ```
//! An entry stands in the level whose slot is just wide enough, and moves down a level when the
//! time reaches its slot. The entries of a slot are moved and rung in slices, so that a million
//! alarms of one instant neither hold up a worker nor flood its queue. The alarm of a process is never
//! taken out: each insertion of one checks a few entries elsewhere, so that those that no process waits
//! for any more do not pile up. The alarm of a timer knows its [`Place`], and is taken out when the timer
//! ends. Ticks are milliseconds since the runtime's start, mod 2³²; an alarm further off than the wheel
//! reaches (12 days) rings at its end and is set again by the process if it still waits.

pub(crate) mod outside;

mod bucket;

use self::bucket::{Bucket, Outlet, Spare};
use crate::sync::Epoch;
use crate::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

/// Milliseconds since the runtime's start, wrapping. Never zero, which means "no alarm".
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Tick(u32);

impl Tick {
    #[inline(always)]
    pub(crate) fn after(self, time: Duration) -> Tick {
        let milliseconds = if time < REACH_TIME { milliseconds(time) } else { REACH };
        Tick(self.0.wrapping_add(milliseconds).max(1))
    }

    /// First tick at which `time` has certainly passed since this tick began, with an allowance for
    /// the usual age of a reading.
    #[inline(always)]
    pub(crate) fn deadline(self, time: Duration) -> Tick {
        self.after(time.saturating_add(Clock::STALE + Duration::from_millis(1)))
    }

    /// Whether this tick is reached when the clock shows `now`.
    #[inline(always)]
    pub(crate) fn is_due(self, now: Tick) -> bool {
        now.0.wrapping_sub(self.0) as i32 >= 0
    }

    /// Returns this tick, or the tick `most` after `now` if that comes first.
    #[inline(always)]
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

    /// Returns this tick plus as many periods as it takes to come after `now`. If this tick is
    /// further off than a period, it comes from another runtime's clock, and the period is counted
    /// from `now`.
    pub(crate) fn next_beat(self, now: Tick, period: Duration) -> Tick {
        let period = u32::try_from(period.as_millis()).unwrap_or(REACH).clamp(1, REACH);
        if now.until(self) > period {
            return Tick(now.0.wrapping_add(period).max(1));
        }
        let passed = self.until(now);
        let next = passed.wrapping_add(period - passed % period);
        Tick(self.0.wrapping_add(next).max(1))
    }

    /// Number of ticks until `later`; zero if it has passed.
    pub(crate) fn until(self, later: Tick) -> u32 {
        if later.is_due(self) { 0 } else { later.0.wrapping_sub(self.0) }
    }
}

/// Returns the whole milliseconds of a time, modulo 2³². `Duration::as_millis` divides numbers of 128 bits.
#[inline(always)]
fn milliseconds(time: Duration) -> u32 {
    (time.as_secs() as u32).wrapping_mul(1000).wrapping_add(time.subsec_millis())
}

/// The clock that all workers share: read by a load, advanced by any thread that refreshes it. Has
/// a cache line of its own, because all workers read it at each turn.
#[repr(align(128))]
pub(crate) struct Clock {
    epoch: Epoch,
    now: AtomicU32,
}

impl Clock {
    /// Greatest age of a reading while any worker runs, if the machine is not overloaded.
    pub(crate) const STALE: Duration = Duration::from_millis(2);

    pub(crate) fn new() -> Clock {
        Clock { epoch: Epoch::now(), now: AtomicU32::new(1) }
    }

    #[cfg(feature = "sim")]
    pub(crate) fn simulated() -> Clock {
        Clock { epoch: Epoch::simulated(), now: AtomicU32::new(1) }
    }

    #[inline(always)]
    pub(crate) fn now(&self) -> Tick {
        Tick(self.now.load(Ordering::Relaxed))
    }

    pub(crate) fn is_simulated(&self) -> bool {
        self.epoch.is_simulated()
    }

    pub(crate) fn elapsed(&self) -> Duration {
        self.epoch.elapsed()
    }

    /// Returns the first tick at which `time` has certainly passed since this moment, however old
    /// the last reading is: on an overloaded machine no thread may have advanced the clock for tens
    /// of milliseconds.
    #[inline(never)]
    pub(crate) fn deadline(&self, time: Duration) -> Tick {
        self.refresh().after(time.saturating_add(Duration::from_millis(1)))
    }

    /// Reads the system's clock and advances this clock to it.
    pub(crate) fn refresh(&self) -> Tick {
        self.refresh_exactly().0
    }

    /// Same as [`refresh`](Self::refresh); also returns the time for which the runtime has run.
    pub(crate) fn refresh_exactly(&self) -> (Tick, Duration) {
        let elapsed = self.epoch.elapsed();
        // Wraps after 49 days; ticks are compared by difference.
        let now = Tick(milliseconds(elapsed).wrapping_add(1).max(1));
        // Two threads that refresh at once may store in either order; only that could set the clock
        // back.
        let behind = now.until(self.now());
        if behind == 0 || behind > 60_000 {
            self.now.store(now.0, Ordering::Relaxed);
        }
        (now, elapsed)
    }
}

const LEVEL_BITS: u32 = 6;
const LEVEL_SLOTS: usize = 1 << LEVEL_BITS;
const LEVELS: usize = 5;
/// Greatest distance of an alarm, in ticks.
const REACH: u32 = (1 << (LEVEL_BITS * LEVELS as u32)) - 1;
/// Greatest distance of an alarm as a time: 12 days.
pub(crate) const REACH_TIME: Duration = Duration::from_millis(REACH as u64);
/// Moves of an entry to a lower level that cost about as much as one ring.
const MOVES_PER_RING: usize = 16;
/// Number of entries that each insertion checks in a wheel of some size. With two, a wheel holds at
/// most about three times its live entries, whatever is cancelled.
const WEEDED_PER_INSERT: usize = 2;
const WEEDED_FROM: usize = 256;

/// Place of an entry in a wheel: its level, its slot, and its index there.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Place(u32);

impl Place {
    const SLOT_SHIFT: u32 = 3;
    const INDEX_SHIFT: u32 = Self::SLOT_SHIFT + LEVEL_BITS;
    /// The place of no entry: there are fewer levels.
    pub(crate) const NONE: Place = Place(u32::MAX);

    /// An entry behind eight million others of its slot has no place: it is not taken out before its time.
    fn new(level: usize, slot: usize, index: usize) -> Place {
        match index >> (u32::BITS - Self::INDEX_SHIFT) {
            0 => Place((index << Self::INDEX_SHIFT | slot << Self::SLOT_SHIFT | level) as u32),
            _ => Place::NONE,
        }
    }

    fn parts(self) -> (usize, usize, usize) {
        let place = self.0 as usize;
        let slot = place >> Self::SLOT_SHIFT & (LEVEL_SLOTS - 1);
        (place & ((1 << Self::SLOT_SHIFT) - 1), slot, place >> Self::INDEX_SHIFT)
    }

    pub(crate) fn to_raw(self) -> u32 {
        self.0
    }

    pub(crate) fn from_raw(raw: u32) -> Place {
        Place(raw)
    }
}

/// Target of an alarm.
pub(crate) trait Target {
    /// Notes where the alarm's entry is now.
    fn placed(&self, _: Place) {}
}

/// Alarms in the order of time. `T` is the target to wake.
pub(crate) struct Wheel<T> {
    /// Tick up to which all alarms have rung or stand in `reached`.
    now: Tick,
    length: usize,
    levels: [[Bucket<(Tick, T)>; LEVEL_SLOTS]; LEVELS],
    spare: Spare<(Tick, T)>,
    /// A bit per slot that is not empty, for each level.
    occupied: [u64; LEVELS],
    /// Entries of the slots that the time has reached, until they are rung or moved down.
    reached: Outlet<(Tick, T)>,
    /// Position at which weeding continues: level, slot, entry.
    weeding: (usize, usize, usize),
}

impl<T: Target> Wheel<T> {
    pub(crate) fn new(now: Tick) -> Self {
        Wheel {
            now,
            length: 0,
            levels: std::array::from_fn(|_| std::array::from_fn(|_| Bucket::new())),
            spare: Spare::new(),
            occupied: [0; LEVELS],
            reached: Outlet::new(),
            weeding: (0, 0, 0),
        }
    }

    /// Number of alarms set, including alarms that no process waits for any more.
    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.length
    }

    /// Sets an alarm for the tick `at`, at a time `now`. An alarm that is already due rings at the
    /// next tick. Returns the tick at which [`advance`](Self::advance) has something to do with it.
    ///
    /// Cost: constant.
    pub(crate) fn insert(&mut self, now: Tick, at: Tick, whom: T) -> Tick {
        if self.length == 0 {
            // An empty wheel has not been moved on since its last alarm, perhaps for weeks.
            self.now = now;
        }
        self.length += 1;
        self.place(at, whom)
    }

    /// Checks two entries before an insertion, and drops them if `is_dead` says so.
    pub(crate) fn weed_before_insert(&mut self, is_dead: impl Fn(Tick, &T) -> bool) {
        if self.length >= WEEDED_FROM {
            self.weed(WEEDED_PER_INSERT, is_dead);
        }
    }

    /// Takes the entry of a target out; `None` if it is not at this place.
    ///
    /// Cost: constant. The wheel's [`next`](Self::next) may be too early afterwards.
    pub(crate) fn remove(&mut self, place: Place, is_it: impl Fn(&T) -> bool) -> Option<T> {
        let (level, slot, index) = place.parts();
        let (_, whom) = self.levels.get(level)?[slot].get(index)?;
        if is_it(whom) { Some(self.take_out(level, slot, index)) } else { None }
    }

    fn take_out(&mut self, level: usize, slot: usize, index: usize) -> T {
        let entries = &mut self.levels[level][slot];
        let (_, whom) = entries.swap_remove(index, &mut self.spare);
        if let Some((_, moved)) = entries.get(index) {
            moved.placed(Place::new(level, slot, index));
        }
        self.length -= 1;
        if entries.is_empty() {
            self.occupied[level] &= !(1 << slot);
        }
        whom
    }

    fn place(&mut self, at: Tick, whom: T) -> Tick {
        let rings = Tick(self.now.0.wrapping_add(self.now.until(at).max(1)));
        // The highest bit in which the two ticks differ names the level; a carry past the top wraps
        // into the top level, whose slots come round again within the wheel's reach.
        let differing = (self.now.0 ^ rings.0) | 1;
        let level = ((31 - differing.leading_zeros()) / LEVEL_BITS).min(LEVELS as u32 - 1);
        let (shift, level) = (level * LEVEL_BITS, level as usize);
        let slot = (rings.0 >> shift) as usize % LEVEL_SLOTS;
        let entries = &mut self.levels[level][slot];
        whom.placed(Place::new(level, slot, entries.len()));
        entries.push((at, whom), &mut self.spare);
        self.occupied[level] |= 1 << slot;
        Tick(rings.0 >> shift << shift)
    }

    /// Checks the next few entries and drops the dead.
    pub(crate) fn weed(&mut self, count: usize, is_dead: impl Fn(Tick, &T) -> bool) {
        for _ in 0..count {
            let (level, slot, entry) = self.weeding;
            match self.levels[level][slot].get(entry) {
                Some((at, whom)) if is_dead(*at, whom) => {
                    drop(self.take_out(level, slot, entry));
                }
                Some(_) => self.weeding.2 += 1,
                None => {
                    // Go to the next slot that is not empty, or else to the first of the next
                    // level.
                    let after =
                        self.occupied[level] & u64::MAX.checked_shl(slot as u32 + 1).unwrap_or(0);
                    let level = if after == 0 { (level + 1) % LEVELS } else { level };
                    let ahead = if after == 0 { self.occupied[level] } else { after };
                    self.weeding = (level, ahead.trailing_zeros() as usize % LEVEL_SLOTS, 0);
                }
            }
        }
    }

    /// Next tick at which [`advance`](Self::advance) has something to do.
    pub(crate) fn next(&self) -> Option<Tick> {
        if !self.reached.is_empty() {
            return Some(self.now);
        }
        (0..LEVELS)
            .filter(|&level| self.occupied[level] != 0)
            .map(|level| self.next_of(level))
            .min_by_key(|&tick| self.now.until(tick))
    }

    /// Tick at which the time reaches the next occupied slot of a level.
    fn next_of(&self, level: usize) -> Tick {
        let shift = level as u32 * LEVEL_BITS;
        let current = self.now.0 >> shift;
        // Slots lie in a ring; the current slot comes last, a full round on.
        let following = current.wrapping_add(1);
        let ring = self.occupied[level].rotate_right(following % LEVEL_SLOTS as u32);
        Tick(following.wrapping_add(ring.trailing_zeros()) << shift)
    }

    /// Moves the time on to `now` and hands at most `most` due alarms to `ring`. If more are left,
    /// [`next`](Self::next) is still due.
    pub(crate) fn advance(&mut self, now: Tick, most: usize, mut ring: impl FnMut(Tick, T)) {
        let (mut rings, mut moves) = (most, most.saturating_mul(MOVES_PER_RING));
        loop {
            while let Some((at, whom)) = self.reached.pop() {
                if at.is_due(self.now) {
                    self.length -= 1;
                    ring(at, whom);
                    rings -= 1;
                } else {
                    let _ = self.place(at, whom);
                    moves -= 1;
                }
                if rings == 0 || moves == 0 {
                    return;
                }
            }
            match self.next().filter(|next| next.is_due(now)) {
                Some(next) => self.reach(next),
                None => break,
            }
        }
        if self.now.until(now) > 0 {
            self.now = now;
        }
    }

    /// Moves the time on to the next occupied slots, and takes their entries out.
    fn reach(&mut self, next: Tick) {
        self.now = next;
        for level in (0..LEVELS).rev() {
            let shift = level as u32 * LEVEL_BITS;
            let slot = (next.0 >> shift) as usize % LEVEL_SLOTS;
            let reached = next.0 & ((1_u32 << shift) - 1) == 0;
            if reached && self.occupied[level] & (1 << slot) != 0 {
                self.occupied[level] &= !(1 << slot);
                let entries = std::mem::replace(&mut self.levels[level][slot], Bucket::new());
                self.reached.extend(entries);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;
    use std::rc::Rc;

    impl Target for usize {}
    impl Target for u32 {}

    /// An alarm that knows its place.
    #[derive(Clone)]
    struct Known(Rc<Cell<Place>>);
    impl Target for Known {
        fn placed(&self, place: Place) {
            self.0.set(place);
        }
    }

    #[test]
    fn milliseconds_wrap_as_those_of_a_duration() {
        let mut random = fastrand::Rng::with_seed(1);
        for _ in 0..1000 {
            let time =
                Duration::new(random.u64(..) >> random.u32(..64), random.u32(..1_000_000_000));
            assert_eq!(milliseconds(time), time.as_millis() as u32);
        }
        assert_eq!(milliseconds(REACH_TIME), REACH);
        assert_eq!(Tick(1).after(Duration::MAX), Tick(1).after(REACH_TIME));
    }

    #[test]
    fn an_alarm_is_taken_out_of_its_place_wherever_others_have_moved_it() {
        let mut random = fastrand::Rng::with_seed(1);
        let mut wheel = Wheel::new(Tick(1));
        let (mut now, mut set) = (Tick(1), Vec::new());
        for _ in 0..if cfg!(miri) { 300 } else { 20_000 } {
            let at = Tick(now.0 + 1 + random.u32(..) % (1 << random.u32(1..20)));
            let alarm = Known(Rc::new(Cell::new(Place::NONE)));
            wheel.insert(now, at, alarm.clone());
            set.push((at, alarm));
            if random.u8(..) < 60 {
                let (_, Known(place)) = set.swap_remove(random.usize(..set.len()));
                let removed = wheel.remove(place.get(), |other| Rc::ptr_eq(&other.0, &place));
                assert!(removed.is_some_and(|removed| Rc::ptr_eq(&removed.0, &place)));
                assert!(wheel.remove(place.get(), |other| Rc::ptr_eq(&other.0, &place)).is_none());
            }
            if random.u8(..) < 20 {
                now = Tick(now.0 + random.u32(..2000));
                while wheel.next().is_some_and(|next| next.is_due(now)) {
                    wheel.advance(now, usize::MAX, |at, rung| {
                        let found = set.iter().position(|(_, other)| Rc::ptr_eq(&other.0, &rung.0));
                        assert_eq!(set.swap_remove(found.expect("it was not taken out")).0, at);
                    });
                }
            }
            assert_eq!(wheel.len(), set.len());
        }
        assert!(cfg!(miri) || set.len() > 10);
    }

    /// Checks that every alarm rings exactly once, at its tick or at the first check after it.
    fn check(start: u32, delays: &[u32], step: u32, slice: usize) {
        let mut wheel = Wheel::new(Tick(start));
        for (index, &delay) in delays.iter().enumerate() {
            let next = wheel.insert(Tick(start), Tick(start.wrapping_add(delay)), index);
            assert!(wheel.next().is_some_and(|first| next.until(first) == 0), "none is earlier");
        }
        let mut rung = vec![false; delays.len()];
        let mut passed = 0_u32;
        while rung.contains(&false) {
            passed += step;
            let now = Tick(start.wrapping_add(passed));
            while wheel.next().is_some_and(|next| next.is_due(now)) {
                let mut count = 0;
                wheel.advance(now, slice, |at, index| {
                    count += 1;
                    assert!(!std::mem::replace(&mut rung[index], true), "rang twice");
                    assert_eq!(at, Tick(start.wrapping_add(delays[index].max(1))));
                    assert!(delays[index] <= passed, "rang early");
                    assert!(delays[index].max(1) + step > passed, "rang late");
                });
                assert!(count <= slice);
            }
        }
        assert_eq!((wheel.next(), wheel.len()), (None, 0));
    }

    #[test]
    fn alarms_ring_at_their_tick_whatever_the_step() {
        let delays: Vec<u32> = (0..14).flat_map(|bit| [1 << bit, (1 << bit) + 3, 77]).collect();
        for start in [1, 63, 64, 4095, 1 << 30, u32::MAX - 100, u32::MAX - 5000] {
            for (step, slice) in [(1, 1), (2, 3), (7, 1), (64, 2), (1000, 100)] {
                check(start, &delays, step, slice);
            }
        }
    }

    #[test]
    fn an_alarm_at_the_end_of_the_reach_rings() {
        for start in [1, 12_345, u32::MAX / 2 + 17, u32::MAX - 3] {
            check(start, &[REACH, REACH - 1, REACH / 3], 1_000_003, 64);
        }
    }

    #[test]
    fn a_wheel_that_stood_still_for_weeks_goes_on() {
        let mut wheel = Wheel::new(Tick(1));
        let now = Tick(1 + 3_000_000_000);
        wheel.insert(now, now.after(Duration::from_millis(5)), 0_usize);
        let next = wheel.next().expect("an alarm is set");
        assert!(!next.is_due(now) && next.is_due(now.after(Duration::from_millis(5))));
    }

    #[test]
    fn dead_alarms_do_not_pile_up() {
        use std::cell::RefCell;
        let rounds = if cfg!(miri) { 20 } else { 500 };
        let dead = RefCell::new(std::collections::HashSet::new());
        let mut wheel = Wheel::new(Tick(1));
        for number in 0..rounds * 1000_u32 {
            let at = Tick(1 + number.wrapping_mul(2_654_435_761) % 50_000_000);
            wheel.weed_before_insert(|_, number| dead.borrow().contains(number));
            wheel.insert(Tick(1), at, number);
            if number >= 1000 {
                dead.borrow_mut().insert(number - 1000);
            }
            assert!(wheel.len() <= 4000, "{} at {number}", wheel.len());
        }
        let mut alive = 0;
        while let Some(next) = wheel.next() {
            wheel.advance(next, usize::MAX, |_, number| {
                alive += u32::from(!dead.borrow().contains(&number));
            });
        }
        assert_eq!(alive, 1000);
    }

    #[test]
    fn beats_keep_their_phase_and_skip_missed_beats() {
        let beat = |at, now, period| Tick(at).next_beat(Tick(now), Duration::from_millis(period)).0;
        assert_eq!(beat(100, 100, 10), 110);
        assert_eq!(beat(100, 109, 10), 110);
        assert_eq!(beat(100, 110, 10), 120);
        assert_eq!(beat(100, 137, 10), 140);
        assert_eq!(beat(100, 90, 10), 110);
        assert_eq!(beat(100, 105, 0), 106);
        // A tick of a clock that began to run long before this one.
        assert_eq!(beat(5000, 90, 10), 100);
        assert_eq!(beat(u32::MAX - 3, 2, 10), 6);
    }

    #[test]
    fn a_deadline_is_never_early() {
        let clock = Clock::new();
        let deadline = clock.now().deadline(Duration::from_millis(5));
        assert!(!deadline.is_due(clock.now().after(Duration::from_millis(5))));
    }

    #[test]
    fn a_deadline_is_never_early_on_a_clock_that_nothing_advances() {
        let clock = Clock::new();
        std::thread::sleep(Duration::from_millis(20));
        let begun = std::time::Instant::now();
        let deadline = clock.deadline(Duration::from_millis(5));
        while !deadline.is_due(clock.refresh()) {}
        assert!(begun.elapsed() >= Duration::from_millis(5));
    }

    #[test]
    fn the_longest_duration_is_the_reach_of_the_wheel() {
        for start in [1, u32::MAX - 1, u32::MAX / 2] {
            let furthest = Tick(start.wrapping_add(REACH).max(1));
            assert_eq!(Tick(start).after(Duration::MAX), furthest);
            assert_eq!(Tick(start).deadline(Duration::MAX), furthest);
            assert!(!furthest.is_due(Tick(start)));
        }
    }
}
