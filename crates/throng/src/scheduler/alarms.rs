//! Alarms that one worker keeps, and the processes and timers they wake.
//!
//! A wheel is behind a lock, so that other threads can set alarms in it and, while its owner is
//! stuck in a turn, ring them. The owner takes the lock seldom: a process has one alarm, the
//! earliest it was asked for, and checking whether any is due costs a load. No user code runs under
//! the lock.
//!
//! An entry takes 16 bytes: its tick, and one word that names its target.
//!
//! | lowest bit of the word | target | the entry is dead when |
//! |---|---|---|
//! | 0 | a cell, which nothing counts | its cell's alarm word does not name it any more |
//! | 1 | a share in a message timer | its timer is over, and its side that ended it has not taken it out |

use crate::address::message_timer::{TimerShare, Unsent};
use crate::cell::CellRef;
use crate::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use crate::sync::{Mutex, lock};
use crate::timer::{Place, Target, Tick, Wheel};
use std::collections::VecDeque;
use std::mem::ManuallyDrop;
use std::ptr::NonNull;

/// Target of an alarm in one word. See the file's head.
pub(crate) struct PackedTarget(NonNull<()>);

/// Target of an alarm: a process or a timer.
pub(crate) enum AlarmTarget {
    /// A process, which has one alarm at a time.
    Process(CellRef),
    /// A message that is to be sent.
    Timer(TimerShare),
}

// SAFETY: the word stands for a `CellRef` or a `TimerShare`, which are both `Send`.
unsafe impl Send for PackedTarget {}

const _: () = assert!(size_of::<(Tick, PackedTarget)>() == 16, "a million alarms take 16 MB");

const TIMER: usize = 1;
impl PackedTarget {
    pub(crate) fn process(cell: CellRef) -> PackedTarget {
        PackedTarget(cell.as_ptr().cast())
    }

    pub(crate) fn timer(share: TimerShare) -> PackedTarget {
        // Blocks are 64-byte aligned, so the bit is free.
        PackedTarget(share.into_raw().map_addr(|address| address | TIMER))
    }

    pub(crate) fn open(self) -> AlarmTarget {
        let this = ManuallyDrop::new(self);
        match this.timer_pointer() {
            // SAFETY: a tagged word was made from a share in `timer`; `self` is forgotten, so the
            // share passes to the caller.
            Some(pointer) => AlarmTarget::Timer(unsafe { TimerShare::from_raw(pointer) }),
            // SAFETY: an untagged word was made from a `CellRef` in `process`.
            None => AlarmTarget::Process(unsafe { CellRef::new(this.0.cast()) }),
        }
    }

    /// Whether the entry is dead: its process or timer does not wait for it any more.
    fn is_dead(&self, at: Tick) -> bool {
        match self.timer_pointer() {
            // SAFETY: a tagged word was made from a share in `timer`; the share stays in `self`.
            Some(pointer) => ManuallyDrop::new(unsafe { TimerShare::from_raw(pointer) }).is_over(),
            // SAFETY: an untagged word was made from a `CellRef` in `process`.
            None => !unsafe { CellRef::new(self.0.cast()) }.has_alarm(at),
        }
    }

    fn timer_pointer(&self) -> Option<NonNull<()>> {
        let untagged = NonNull::new(self.0.as_ptr().map_addr(|address| address & !TIMER));
        untagged.filter(|&untagged| untagged != self.0)
    }
}

impl Target for PackedTarget {
    fn placed(&self, place: Place) {
        if let Some(pointer) = self.timer_pointer() {
            // SAFETY: a tagged word was made from a share in `timer`; the share stays in `self`.
            ManuallyDrop::new(unsafe { TimerShare::from_raw(pointer) }).set_place(place);
        }
    }
}

impl Drop for PackedTarget {
    fn drop(&mut self) {
        if let Some(pointer) = self.timer_pointer() {
            // SAFETY: a tagged word was made from a share in `timer`, which `open` has not taken.
            drop(unsafe { TimerShare::from_raw(pointer) });
        }
    }
}

/// Alarms of one worker; see the file's head.
pub(crate) struct Alarms {
    /// The wheel; none once the runtime is over.
    wheel: Mutex<Option<Wheel<PackedTarget>>>,
    /// Tick at which the wheel next has something to do, as a raw tick; zero for never. Written
    /// under the lock of `wheel`.
    next: AtomicU32,
    /// Messages that another thread could not send for the owner, which drops them.
    unsent: Mutex<Vec<Unsent>>,
    /// Whether `unsent` holds any. Written under the lock of `unsent`.
    has_unsent: AtomicBool,
}

impl Alarms {
    /// Maximum number of entries taken out of the wheel at once.
    const SLICE: usize = 64;

    pub(crate) fn new(now: Tick) -> Alarms {
        Alarms {
            wheel: Mutex::new(Some(Wheel::new(now))),
            next: AtomicU32::new(0),
            unsent: Mutex::default(),
            has_unsent: AtomicBool::new(false),
        }
    }

    /// Returns the tick at which there is something to do.
    #[inline(always)]
    pub(crate) fn next(&self) -> Option<Tick> {
        // Relaxed: the tick only says when to take the lock, and a worker that must not miss a
        // change is unparked after it.
        Tick::from_raw(self.next.load(Ordering::Relaxed))
    }

    #[inline(always)]
    pub(crate) fn is_due(&self, now: Tick) -> bool {
        self.next().is_some_and(|next| next.is_due(now))
    }

    /// Sets an alarm; true if it comes before all others here. Once the runtime is over, the alarm
    /// is dropped. With `weeds`, a few entries are checked and dropped if they are dead.
    pub(crate) fn set(&self, now: Tick, at: Tick, target: PackedTarget, weeds: bool) -> bool {
        let mut wheel = lock(&self.wheel);
        let Some(open) = &mut *wheel else {
            drop(wheel);
            // The drop may run a user's `Drop` of a message, so it is not under the lock.
            drop(target);
            return false;
        };
        if weeds {
            // A dead timer has no message any more, so no user code runs here.
            open.weed_before_insert(|at, target| target.is_dead(at));
        }
        let next = open.insert(now, at, target);
        let is_first = self.next().is_none_or(|before| !before.is_due(next));
        if is_first {
            self.publish(Some(next));
        }
        is_first
    }

    /// Takes the alarm of a message timer out; `None` if it is not at this place.
    pub(crate) fn remove(&self, place: Place, timer: NonNull<()>) -> Option<PackedTarget> {
        let is_it = |target: &PackedTarget| target.timer_pointer() == Some(timer);
        lock(&self.wheel).as_mut()?.remove(place, is_it)
    }

    /// Returns the number of entries, dead entries included.
    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        lock(&self.wheel).as_ref().map_or(0, Wheel::len)
    }

    /// Takes a slice of the due alarms.
    pub(crate) fn take_due(&self, now: Tick) -> VecDeque<(Tick, PackedTarget)> {
        let mut due = VecDeque::new();
        if let Some(wheel) = &mut *lock(&self.wheel) {
            wheel.advance(now, Self::SLICE, |at, target| due.push_back((at, target)));
            self.publish(self.next_of(wheel, now));
        }
        due
    }

    /// Leaves messages for the owner to drop, because their drop is user code and may block. Until
    /// the owner has dropped them, the alarms are due.
    pub(crate) fn leave(&self, now: Tick, unsent: Vec<Unsent>) {
        if unsent.is_empty() {
            return;
        }
        let wheel = lock(&self.wheel);
        {
            let mut left = lock(&self.unsent);
            left.extend(unsent);
            self.has_unsent.store(true, Ordering::Relaxed);
        }
        if let Some(wheel) = &*wheel {
            self.publish(self.next_of(wheel, now));
        }
    }

    /// Owner: takes the messages that were left for it.
    pub(crate) fn take_left(&self) -> Vec<Unsent> {
        if !self.has_unsent.load(Ordering::Relaxed) {
            return Vec::new();
        }
        let mut unsent = lock(&self.unsent);
        self.has_unsent.store(false, Ordering::Relaxed);
        std::mem::take(&mut unsent)
    }

    /// Returns the tick at which there is something to do. The caller has locked the wheel.
    fn next_of(&self, wheel: &Wheel<PackedTarget>, now: Tick) -> Option<Tick> {
        if self.has_unsent.load(Ordering::Relaxed) { Some(now) } else { wheel.next() }
    }

    pub(crate) fn close(&self) {
        let wheel = lock(&self.wheel).take();
        // The drop may run a user's `Drop` of a message, so it is not under the lock.
        drop(wheel);
        drop(self.take_left());
        self.publish(None);
    }

    fn publish(&self, next: Option<Tick>) {
        self.next.store(next.map_or(0, |next| next.to_raw().max(1)), Ordering::Relaxed);
    }
}
