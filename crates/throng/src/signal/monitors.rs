//! Monitors: the list at each of the two ends.
//!
//! ```text
//! watcher: Monitors                        monitored process: Watchers
//! ┌─────────┬───────┬──────┐               ┌────────────┬────────┬──────┐
//! │ pid     │ stamp │ next │  slots        │ watcher    │ number │ tell │  in order of arrival
//! ├─────────┼───────┼──────┤               ├────────────┼────────┼──────┤
//! │ –       │       │  ────┼──▶ free slot  │ …          │        │      │
//! └─────────┴───────┴──────┘               └────────────┴────────┴──────┘
//!    ▲ number = slot, stamp                  ended: numbers of monitors that their watchers removed
//! ```
//!
//! A watcher finds its monitor by the slot in the number. The stamp counts the monitors that the
//! watcher has ever set, so a slot's later monitors have other numbers.
//!
//! A monitored process keeps its watchers in a plain list, because it notifies each once, at its end.
//! A watcher that removes its monitor is only noted. The list is swept when such notes are a quarter
//! of it, so a removal costs constant time on average, and the notes are few.

use crate::address::Pid;
use crate::cell::extension::TellDown;
use rustc_hash::FxHashSet;
use std::hash::Hash;

/// Identifies a monitor among those of its watcher.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub(crate) struct MonitorNumber {
    slot: u32,
    stamp: u32,
}

/// The monitors that a process has set and that have not fired; `K` identifies a process.
pub(crate) struct Monitors<K> {
    slots: Vec<Slot<K>>,
    /// Index of the first free slot, plus one; zero if there is none.
    free: u32,
    len: u32,
    /// Number of monitors ever set, modulo 2³².
    stamp: u32,
}

struct Slot<K> {
    /// The monitored process; `None` if the slot is free.
    pid: Option<K>,
    stamp: u32,
    /// Link of the free list, as in [`Monitors::free`].
    next: u32,
}

const _: () = assert!(size_of::<Slot<Pid>>() == 16);

impl<K> Default for Monitors<K> {
    fn default() -> Self {
        Monitors { slots: Vec::new(), free: 0, len: 0, stamp: 0 }
    }
}

impl<K: Copy + Eq> Monitors<K> {
    pub(crate) fn len(&self) -> usize {
        self.len as usize
    }

    pub(crate) fn bytes(&self) -> usize {
        self.slots.capacity() * size_of::<Slot<K>>()
    }

    pub(crate) fn next(&self) -> MonitorNumber {
        let slot = self.free.checked_sub(1).unwrap_or(self.slots.len() as u32);
        MonitorNumber { slot, stamp: self.stamp.wrapping_add(1) }
    }

    /// Enters a monitor on a process. Cost: constant on average.
    pub(crate) fn insert(&mut self, pid: K) -> MonitorNumber {
        let number = self.next();
        let slot = Slot { pid: Some(pid), stamp: number.stamp, next: 0 };
        self.stamp = number.stamp;
        self.len += 1;
        match self.slots.get_mut(number.slot as usize) {
            Some(free) => {
                self.free = free.next;
                *free = slot;
            }
            // Memory for 2³² monitors of one process is out of reach.
            None => self.slots.push(slot),
        }
        number
    }

    /// Takes a monitor out; false if there is no monitor on that process with that number.
    pub(crate) fn remove(&mut self, number: MonitorNumber, pid: K) -> bool {
        let Some(slot) = self.slots.get_mut(number.slot as usize) else { return false };
        if slot.stamp != number.stamp || slot.pid != Some(pid) {
            return false;
        }
        slot.pid = None;
        slot.next = self.free;
        self.free = number.slot + 1;
        self.len -= 1;
        if self.len == 0 {
            // A list that was long once gives its memory back. One slot stays, for a process that
            // has one monitor at a time.
            self.slots.truncate(1);
            self.slots.shrink_to(4);
            self.slots[0].next = 0;
            self.free = 1;
        }
        true
    }

    /// Returns the number of the monitor that was set last on a process.
    pub(crate) fn latest(&self, pid: K) -> Option<MonitorNumber> {
        let slots = self.slots.iter().enumerate().filter(|(_, slot)| slot.pid == Some(pid));
        // The age of a stamp, because stamps are counted modulo 2³².
        let (slot, of) = slots.min_by_key(|(_, slot)| self.stamp.wrapping_sub(slot.stamp))?;
        Some(MonitorNumber { slot: slot as u32, stamp: of.stamp })
    }

    pub(crate) fn pop(&mut self) -> Option<(MonitorNumber, K)> {
        // The slots that are free stay on the free list, so none is set after this.
        loop {
            let slot = self.slots.pop()?;
            let number = MonitorNumber { slot: self.slots.len() as u32, stamp: slot.stamp };
            if let Some(pid) = slot.pid {
                self.len -= 1;
                return Some((number, pid));
            }
        }
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = K> {
        self.slots.iter().filter_map(|slot| slot.pid)
    }
}

/// A process to be notified of another's end.
pub(crate) struct Watcher<K> {
    pub(crate) pid: K,
    pub(crate) number: MonitorNumber,
    pub(crate) tell: TellDown,
}

impl<K: Copy> Watcher<K> {
    fn key(&self) -> (K, MonitorNumber) {
        (self.pid, self.number)
    }
}

/// The processes that monitor a process.
#[derive(Default)]
pub(crate) enum Watchers<K> {
    #[default]
    None,
    One(Watcher<K>),
    Many(Box<WatcherList<K>>),
}

/// Several watchers, in order of arrival.
pub(crate) struct WatcherList<K> {
    watchers: Vec<Watcher<K>>,
    /// Watchers on the list that have removed their monitors.
    ended: FxHashSet<(K, MonitorNumber)>,
}

impl<K: Copy + Eq + Hash> WatcherList<K> {
    fn iter(&self) -> impl Iterator<Item = &Watcher<K>> {
        self.watchers.iter().filter(|watcher| !self.ended.contains(&watcher.key()))
    }

    fn remove(&mut self, key: (K, MonitorNumber)) {
        self.ended.insert(key);
        if self.ended.len() >= self.watchers.len() / 4 {
            self.watchers.retain(|watcher| !self.ended.remove(&watcher.key()));
            self.ended = FxHashSet::default();
            if self.watchers.len() < self.watchers.capacity() / 4 {
                self.watchers.shrink_to(2 * self.watchers.len());
            }
        }
    }

    fn pop(&mut self) -> Option<Watcher<K>> {
        loop {
            let watcher = self.watchers.pop()?;
            if !self.ended.remove(&watcher.key()) {
                return Some(watcher);
            }
        }
    }
}

impl<K: Copy + Eq + Hash> Watchers<K> {
    pub(crate) fn is_empty(&self) -> bool {
        self.iter().next().is_none()
    }

    /// Bytes of the watchers that are not stored in this value itself.
    pub(crate) fn bytes(&self) -> usize {
        match self {
            Watchers::None | Watchers::One(_) => 0,
            Watchers::Many(list) => {
                size_of::<WatcherList<K>>()
                    + list.watchers.capacity() * size_of::<Watcher<K>>()
                    // A set keeps a byte for each key.
                    + list.ended.capacity() * (size_of::<(K, MonitorNumber)>() + 1)
            }
        }
    }

    /// Adds a watcher. Cost: constant on average.
    pub(crate) fn insert(&mut self, watcher: Watcher<K>) {
        match self {
            Watchers::None => *self = Watchers::One(watcher),
            Watchers::Many(list) => list.watchers.push(watcher),
            Watchers::One(_) => {
                let mut watchers = Vec::new();
                if let Watchers::One(first) = std::mem::take(self) {
                    watchers.push(first);
                }
                watchers.push(watcher);
                let list = WatcherList { watchers, ended: FxHashSet::default() };
                *self = Watchers::Many(Box::new(list));
            }
        }
    }

    /// Removes the watcher that set this monitor; it must be on the list. Cost: constant on average.
    pub(crate) fn remove(&mut self, watcher: K, number: MonitorNumber) {
        match self {
            Watchers::One(only) if only.key() == (watcher, number) => *self = Watchers::None,
            Watchers::Many(list) => list.remove((watcher, number)),
            Watchers::None | Watchers::One(_) => {}
        }
    }

    /// Reverses the order, so that [`pop`](Self::pop) begins with the oldest watcher.
    pub(crate) fn reverse(&mut self) {
        if let Watchers::Many(list) = self {
            list.watchers.reverse();
        }
    }

    pub(crate) fn pop(&mut self) -> Option<Watcher<K>> {
        match std::mem::take(self) {
            Watchers::None => None,
            Watchers::One(watcher) => Some(watcher),
            Watchers::Many(mut list) => {
                let watcher = list.pop()?;
                *self = Watchers::Many(list);
                Some(watcher)
            }
        }
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = K> {
        let (one, many) = match self {
            Watchers::None => (None, None),
            Watchers::One(watcher) => (Some(watcher.pid), None),
            Watchers::Many(list) => (None, Some(list.iter().map(|watcher| watcher.pid))),
        };
        one.into_iter().chain(many.into_iter().flatten())
    }
}

#[cfg(all(test, not(throng_loom)))]
mod tests {
    use super::*;
    use proptest::prelude::*;
    fn tell(_: Pid, _: crate::turn::process::Down) {}

    fn watcher(pid: usize, number: MonitorNumber) -> Watcher<usize> {
        Watcher { pid, number, tell }
    }

    #[test]
    fn the_latest_monitor_on_a_process_is_found_also_after_the_stamps_have_wrapped() {
        let mut monitors = Monitors { stamp: u32::MAX - 1, ..Monitors::default() };
        let [first, _, third] = [7, 8, 7].map(|pid| monitors.insert(pid));
        assert_eq!(monitors.latest(7), Some(third));
        assert!(monitors.remove(third, 7));
        assert_eq!(monitors.latest(7), Some(first));
        let fourth = monitors.insert(7);
        assert_eq!(monitors.latest(7), Some(fourth));
        assert!(monitors.remove(first, 7) && monitors.remove(fourth, 7));
        assert_eq!(monitors.latest(7), None);
    }

    #[test]
    fn a_list_of_monitors_is_small_again_when_all_are_removed() {
        let mut monitors = Monitors::default();
        let numbers: Vec<_> = (0..10_000).map(|number| monitors.insert(number)).collect();
        assert!(monitors.bytes() >= 10_000 * size_of::<Slot<usize>>());
        for (index, number) in numbers.into_iter().enumerate() {
            assert!(monitors.remove(number, index));
        }
        assert!(monitors.bytes() <= 4 * size_of::<Slot<usize>>(), "{}", monitors.bytes());
    }

    #[test]
    fn a_list_of_watchers_is_small_again_when_most_are_removed() {
        let mut monitors = Monitors::default();
        let mut watchers = Watchers::default();
        let numbers: Vec<_> = (0..10_000).map(|_| monitors.insert(0)).collect();
        for &number in &numbers {
            watchers.insert(watcher(1, number));
        }
        let full = watchers.bytes();
        for &number in &numbers[10..] {
            watchers.remove(1, number);
            assert!(watchers.bytes() <= 2 * full);
        }
        assert_eq!(watchers.iter().count(), 10);
        assert!(watchers.bytes() <= 4096, "{}", watchers.bytes());
    }

    #[test]
    fn a_number_of_a_monitor_that_has_ended_is_not_used_again() {
        let mut monitors = Monitors::default();
        let first = monitors.insert(0);
        let stays = monitors.insert(1);
        assert!(monitors.remove(first, 0));
        let second = monitors.insert(0);
        assert_ne!(first, second);
        assert!(!monitors.remove(first, 0));
        assert!(!monitors.remove(second, 1), "the monitor is on another process");
        assert!(monitors.remove(stays, 1) && monitors.remove(second, 0));
        let third = monitors.insert(0);
        assert!(![first, second, stays].contains(&third));
        assert_eq!(monitors.len(), 1);
    }

    proptest! {
        /// Both lists, as a process that monitors itself would have them, against plain vectors.
        #[test]
        fn match_a_model(steps in prop::collection::vec((0_u8..5, any::<prop::sample::Index>()), 0..200)) {
            let me = 7;
            let mut monitors = Monitors::default();
            let mut watchers = Watchers::default();
            let mut model: Vec<(usize, MonitorNumber)> = Vec::new();
            for (step, any) in steps {
                if step < 3 || model.is_empty() {
                    let other = any.index(4);
                    let number = monitors.insert(other);
                    watchers.insert(watcher(me, number));
                    prop_assert_eq!(monitors.next().stamp, number.stamp.wrapping_add(1));
                    prop_assert!(model.iter().all(|&(_, earlier)| earlier != number));
                    model.push((other, number));
                } else {
                    let (other, number) = model.remove(any.index(model.len()));
                    prop_assert!(monitors.remove(number, other));
                    prop_assert!(!monitors.remove(number, other));
                    watchers.remove(me, number);
                }
                prop_assert_eq!(monitors.len(), model.len());
                prop_assert_eq!(watchers.is_empty(), model.is_empty());
                prop_assert_eq!(watchers.iter().count(), model.len());
            }
            let numbers: Vec<_> = model.iter().map(|&(_, number)| number).collect();
            watchers.reverse();
            let popped: Vec<_> = std::iter::from_fn(|| watchers.pop()).map(|one| one.number).collect();
            prop_assert_eq!(popped, numbers);
            model.sort_by_key(|&(_, number)| number.slot);
            let mut popped: Vec<_> =
                std::iter::from_fn(|| monitors.pop()).map(|(number, pid)| (pid, number)).collect();
            popped.reverse();
            prop_assert_eq!(popped, model);
        }
    }
}
