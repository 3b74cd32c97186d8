//! A worker's own queue of processes that are ready to run: a ring that other workers may steal
//! from.
//!
//! ```text
//!    head: oldest, taken by any thread     tail: newest, pushed by the owner alone
//!      ▼                                     ▼
//! [ … │ a │ b │ c │ d │ e │ f │ g │ h │ … ]      positions are counted mod 2³², slots mod CAPACITY
//! ```
//!
//! Invariants:
//! 1. Only the owner moves `tail`; any thread moves `head`, by compare-exchange.
//! 2. Slots are read *before* the exchange that claims them: a thread that loses the race has read
//!    stale pointers and throws them away. The owner never overwrites a slot before `head` has
//!    passed it, so a winner's reads are whole.
//! 3. An entry is a token (see `mailbox`): it stands in exactly one queue, once.
//!
//! All of it is safe code: no entry is dereferenced here.

use crate::sync::atomic::{AtomicPtr, AtomicU32, Ordering};
use std::ptr;

#[cfg(not(throng_loom))]
pub(crate) const CAPACITY: usize = 256;
#[cfg(throng_loom)]
pub(crate) const CAPACITY: usize = 4;
const MASK: u32 = CAPACITY as u32 - 1;

/// Ring of entries; see the file's head. `T` is the type that the entries point to.
pub(crate) struct RunQueue<T> {
    head: AtomicU32,
    tail: AtomicU32,
    slots: [AtomicPtr<T>; CAPACITY],
}

/// Batch of entries that a single steal has taken from a queue.
pub(crate) struct Grab<T> {
    entries: [*mut T; CAPACITY / 2],
    count: usize,
}

impl<T> Grab<T> {
    fn empty() -> Self {
        Grab { entries: [ptr::null_mut(); CAPACITY / 2], count: 0 }
    }

    pub(crate) fn entries(&self) -> &[*mut T] {
        &self.entries[..self.count]
    }
}

impl<T> RunQueue<T> {
    pub(crate) fn new() -> Self {
        RunQueue {
            head: AtomicU32::new(0),
            tail: AtomicU32::new(0),
            slots: std::array::from_fn(|_| AtomicPtr::new(ptr::null_mut())),
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.head.load(Ordering::Acquire) == self.tail.load(Ordering::Acquire)
    }

    pub(crate) fn len(&self) -> u32 {
        let head = self.head.load(Ordering::Acquire);
        // A thief may move the head past a tail read before.
        self.tail.load(Ordering::Acquire).wrapping_sub(head)
    }

    /// Owner: appends; a full ring first gives its older half to `overflow`.
    #[inline]
    pub(crate) fn push(&self, entry: *mut T, overflow: impl Fn(&[*mut T])) {
        // Only the owner writes the tail.
        let tail = self.tail.load(Ordering::Relaxed);
        loop {
            // Acquire: the claims that passed these slots have read them.
            let head = self.head.load(Ordering::Acquire);
            if tail.wrapping_sub(head) < CAPACITY as u32 {
                self.slots[(tail & MASK) as usize].store(entry, Ordering::Relaxed);
                // Releases the slot's content to the threads that read the tail.
                self.tail.store(tail.wrapping_add(1), Ordering::Release);
                return;
            }
            // If a thief was faster, there is room by now.
            if let Some(grab) = self.claim(head, CAPACITY as u32 / 2) {
                overflow(grab.entries());
            }
        }
    }

    /// Owner: takes the oldest entry.
    #[inline]
    pub(crate) fn pop(&self) -> Option<*mut T> {
        let tail = self.tail.load(Ordering::Relaxed);
        let mut head = self.head.load(Ordering::Acquire);
        while head != tail {
            let entry = self.slots[(head & MASK) as usize].load(Ordering::Relaxed);
            match self.head.compare_exchange(
                head,
                head.wrapping_add(1),
                Ordering::AcqRel,
                Ordering::Acquire,
            ) {
                Ok(_) => return Some(entry),
                Err(now) => head = now,
            }
        }
        None
    }

    /// Any thread: takes the older half of the entries, rounded up.
    pub(crate) fn steal(&self) -> Grab<T> {
        loop {
            let head = self.head.load(Ordering::Acquire);
            let tail = self.tail.load(Ordering::Acquire);
            let length = tail.wrapping_sub(head);
            // The head may have moved on since it was read, which makes the length meaningless; the
            // exchange below fails then.
            let count = (length - length / 2).min(CAPACITY as u32 / 2);
            if length == 0 {
                return Grab::empty();
            }
            if let Some(grab) = self.claim(head, count) {
                return grab;
            }
        }
    }

    fn claim(&self, head: u32, count: u32) -> Option<Grab<T>> {
        let mut grab = Grab::empty();
        for offset in 0..count {
            let slot = &self.slots[(head.wrapping_add(offset) & MASK) as usize];
            grab.entries[offset as usize] = slot.load(Ordering::Relaxed);
        }
        grab.count = count as usize;
        self.head
            .compare_exchange(head, head.wrapping_add(count), Ordering::AcqRel, Ordering::Relaxed)
            .is_ok()
            .then_some(grab)
    }
}

#[cfg(all(test, not(throng_loom)))]
mod tests {
    use super::*;
    use std::cell::RefCell;

    fn entry(number: usize) -> *mut u64 {
        ptr::without_provenance_mut(number)
    }

    #[test]
    fn keeps_order_and_hands_back_the_older_half_when_full() {
        let queue = RunQueue::new();
        for number in 1..=CAPACITY {
            queue.push(entry(number), |_| panic!("there is room"));
        }
        let overflow = RefCell::new(Vec::new());
        queue.push(entry(CAPACITY + 1), |older| overflow.borrow_mut().extend_from_slice(older));
        let older: Vec<_> = (1..=CAPACITY / 2).map(entry).collect();
        assert_eq!(overflow.into_inner(), older);
        assert_eq!(queue.pop(), Some(entry(CAPACITY / 2 + 1)));
        let stolen = queue.steal();
        assert_eq!(stolen.entries().len(), CAPACITY / 4);
        assert_eq!(stolen.entries()[0], entry(CAPACITY / 2 + 2));
    }
}

#[cfg(all(test, throng_loom))]
mod loom_models {
    use super::*;
    use loom::sync::Arc;
    use loom::thread;

    fn entry(number: usize) -> *mut u64 {
        ptr::without_provenance_mut(number)
    }

    #[test]
    fn loom_a_thief_sees_whole_entries() {
        loom::model(|| {
            let queue = Arc::new(RunQueue::<u64>::new());
            let thief = thread::spawn({
                let queue = queue.clone();
                move || queue.steal().entries().iter().map(|entry| entry.addr()).collect::<Vec<_>>()
            });
            for number in 1..=3 {
                queue.push(entry(number), |_| panic!("there is room"));
            }
            let mut taken = thief.join().unwrap();
            while let Some(entry) = queue.pop() {
                taken.push(entry.addr());
            }
            assert_eq!(taken, [1, 2, 3]);
        });
    }

    #[test]
    fn loom_owner_and_thief_share_each_entry_once() {
        loom::model(|| {
            let queue = Arc::new(RunQueue::new());
            for number in 1..=3 {
                queue.push(entry(number), |_| panic!("there is room"));
            }
            let thief = thread::spawn({
                let queue = queue.clone();
                move || queue.steal().entries().iter().map(|entry| entry.addr()).collect::<Vec<_>>()
            });
            let mut taken = Vec::new();
            taken.extend(queue.pop().map(|entry| entry.addr()));
            // The ring wraps around and may hand its older half back to the pusher.
            let overflow = std::cell::RefCell::new(Vec::new());
            for number in 4..=6 {
                queue.push(entry(number), |older| {
                    overflow.borrow_mut().extend(older.iter().map(|entry| entry.addr()));
                });
            }
            taken.extend(overflow.into_inner());
            while let Some(entry) = queue.pop() {
                taken.push(entry.addr());
            }
            taken.extend(thief.join().unwrap());
            taken.sort_unstable();
            assert_eq!(taken, [1, 2, 3, 4, 5, 6]);
        });
    }
}
