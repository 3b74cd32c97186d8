//! A worker's own queue of processes that are ready to run: a ring that grows, and from which other
//! workers steal.
//!
//! ```text
//!    head: oldest, taken by any thread     tail: newest, pushed by the owner alone
//!      ▼                                     ▼
//! [ … │ a │ b │ c │ d │ e │ f │ g │ h │ … ]      positions are counted mod 2³², slots mod the size
//! ```
//!
//! A full ring is replaced by a ring of twice its size. The earlier rings stay until the queue is
//! dropped, because a thief may still read them; together they are smaller than the last ring.
//!
//! | field | changed by |
//! |---|---|
//! | head | any thread, by compare-exchange |
//! | tail | the owner |
//! | slots of the ring in use | the owner |
//! | slots of an earlier ring | no thread |
//! | ring in use | the owner |
//!
//! Invariants:
//! 1. Only the owner moves `tail`; any thread moves `head`, by compare-exchange.
//! 2. Slots are read *before* the exchange that claims them: a thread that loses the race has read
//!    stale pointers and throws them away. The owner never overwrites a slot before `head` has
//!    passed it, so a winner's reads are whole.
//! 3. A thief reads the tail before the ring in use. So each position before that tail has its
//!    entry in that ring, also if the owner has replaced the ring since then.
//! 4. An entry is a token (see `mailbox`): it stands in exactly one queue, once.
//!
//! All of it is safe code: no entry is dereferenced here.

use crate::sync::atomic::{AtomicPtr, AtomicU32, Ordering};
use std::ptr;
use std::sync::OnceLock;

#[cfg(not(throng_loom))]
const FIRST: usize = 256;
#[cfg(throng_loom)]
const FIRST: usize = 2;
/// Number of rings that a queue may come to use; the last holds 2³⁰ entries.
const RINGS: usize = 23;
/// Greatest number of entries in a steal.
const GRAB_MOST: usize = 128;

type Ring<T> = Box<[AtomicPtr<T>]>;

/// Queue of entries; see the file's head. `T` is the type that the entries point to.
pub(crate) struct RunQueue<T> {
    head: AtomicU32,
    tail: AtomicU32,
    /// Index of the ring in use.
    used: AtomicU32,
    rings: [OnceLock<Ring<T>>; RINGS],
}

/// Batch of entries that a single steal has taken from a queue.
pub(crate) struct Grab<T> {
    entries: [*mut T; GRAB_MOST],
    count: usize,
}

impl<T> Grab<T> {
    fn empty() -> Self {
        Grab { entries: [ptr::null_mut(); GRAB_MOST], count: 0 }
    }

    pub(crate) fn entries(&self) -> &[*mut T] {
        &self.entries[..self.count]
    }
}

impl<T> RunQueue<T> {
    pub(crate) fn new() -> Self {
        let queue = RunQueue {
            head: AtomicU32::new(0),
            tail: AtomicU32::new(0),
            used: AtomicU32::new(0),
            rings: [const { OnceLock::new() }; RINGS],
        };
        queue.ring(0);
        queue
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.head.load(Ordering::Acquire) == self.tail.load(Ordering::Acquire)
    }

    pub(crate) fn len(&self) -> u32 {
        let head = self.head.load(Ordering::Acquire);
        // A thief may move the head past a tail read before.
        self.tail.load(Ordering::Acquire).wrapping_sub(head)
    }

    /// Returns the ring of this index, which it allocates if there is none.
    #[inline(always)]
    fn ring(&self, index: u32) -> &[AtomicPtr<T>] {
        self.rings[index as usize]
            .get_or_init(|| (0..FIRST << index).map(|_| AtomicPtr::new(ptr::null_mut())).collect())
    }

    /// Owner: appends.
    #[inline(always)]
    pub(crate) fn push(&self, entry: *mut T) {
        // Only the owner writes the tail and the index.
        let tail = self.tail.load(Ordering::Relaxed);
        let mut ring = self.ring(self.used.load(Ordering::Relaxed));
        // Acquire: the claims that passed these slots have read them.
        let head = self.head.load(Ordering::Acquire);
        if tail.wrapping_sub(head) as usize >= ring.len() {
            ring = self.grow(head, tail);
        }
        slot(ring, tail).store(entry, Ordering::Relaxed);
        // Releases the slot's content, and the ring in use, to the threads that read the tail.
        self.tail.store(tail.wrapping_add(1), Ordering::Release);
    }

    /// Owner: replaces the ring by a ring of twice the size.
    #[cold]
    fn grow(&self, head: u32, tail: u32) -> &[AtomicPtr<T>] {
        let used = self.used.load(Ordering::Relaxed);
        let (full, ring) = (self.ring(used), self.ring(used + 1));
        let mut position = head;
        while position != tail {
            let entry = slot(full, position).load(Ordering::Relaxed);
            slot(ring, position).store(entry, Ordering::Relaxed);
            position = position.wrapping_add(1);
        }
        // Releases the copied entries to a thief that reads the index.
        self.used.store(used + 1, Ordering::Release);
        ring
    }

    /// Owner: takes the oldest entry.
    #[inline(always)]
    pub(crate) fn pop(&self) -> Option<*mut T> {
        let tail = self.tail.load(Ordering::Relaxed);
        let mut head = self.head.load(Ordering::Acquire);
        let ring = self.ring(self.used.load(Ordering::Relaxed));
        while head != tail {
            let entry = slot(ring, head).load(Ordering::Relaxed);
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

    /// Any thread: takes the older half of the entries, rounded up, but at most `most` and [`GRAB_MOST`].
    pub(crate) fn steal(&self, most: u32) -> Grab<T> {
        loop {
            let head = self.head.load(Ordering::Acquire);
            let tail = self.tail.load(Ordering::Acquire);
            let length = tail.wrapping_sub(head);
            if length == 0 {
                return Grab::empty();
            }
            // Acquire: pairs with the release in `grow` (invariant 3).
            let ring = self.ring(self.used.load(Ordering::Acquire));
            // The head may have moved on since it was read, which makes the length meaningless; the
            // exchange below fails then.
            let count = (length - length / 2).min(most).min(GRAB_MOST as u32);
            let mut grab = Grab { count: count as usize, ..Grab::empty() };
            for (position, entry) in grab.entries[..count as usize].iter_mut().enumerate() {
                *entry = slot(ring, head.wrapping_add(position as u32)).load(Ordering::Relaxed);
            }
            let claimed = self.head.compare_exchange(
                head,
                head.wrapping_add(count),
                Ordering::AcqRel,
                Ordering::Relaxed,
            );
            if claimed.is_ok() {
                return grab;
            }
        }
    }
}

/// Returns the slot of a position. A ring's size is a power of two.
#[inline(always)]
fn slot<T>(ring: &[AtomicPtr<T>], position: u32) -> &AtomicPtr<T> {
    &ring[position as usize & (ring.len() - 1)]
}

#[cfg(all(test, not(throng_loom)))]
mod tests {
    use super::*;

    fn entry(number: usize) -> *mut u64 {
        ptr::without_provenance_mut(number)
    }

    #[test]
    fn keeps_order_while_the_ring_grows() {
        let queue = RunQueue::new();
        // Starts amid the ring, so that the entries wrap around.
        for number in 1..=FIRST / 2 {
            queue.push(entry(number));
            assert_eq!(queue.pop(), Some(entry(number)));
        }
        let most = 5 * FIRST;
        for number in 1..=most {
            queue.push(entry(number));
        }
        assert_eq!(queue.len() as usize, most);
        let stolen = queue.steal(u32::MAX);
        let oldest: Vec<_> = (1..=GRAB_MOST).map(entry).collect();
        assert_eq!(stolen.entries(), oldest);
        for number in GRAB_MOST + 1..=most {
            assert_eq!(queue.pop(), Some(entry(number)));
        }
        assert_eq!(queue.pop(), None);
    }

    #[test]
    fn a_thief_takes_half() {
        let queue = RunQueue::new();
        for number in 1..=7 {
            queue.push(entry(number));
        }
        assert_eq!(queue.steal(u32::MAX).entries().len(), 4);
        assert_eq!(queue.steal(1).entries().len(), 1);
        assert_eq!(queue.steal(0).entries().len(), 0);
        assert_eq!(queue.len(), 2);
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
                move || {
                    queue
                        .steal(u32::MAX)
                        .entries()
                        .iter()
                        .map(|entry| entry.addr())
                        .collect::<Vec<_>>()
                }
            });
            for number in 1..=3 {
                queue.push(entry(number));
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
                queue.push(entry(number));
            }
            let thief = thread::spawn({
                let queue = queue.clone();
                move || {
                    queue
                        .steal(u32::MAX)
                        .entries()
                        .iter()
                        .map(|entry| entry.addr())
                        .collect::<Vec<_>>()
                }
            });
            let mut taken = Vec::new();
            taken.extend(queue.pop().map(|entry| entry.addr()));
            // The ring is full, so it is replaced while the thief reads it.
            for number in 4..=6 {
                queue.push(entry(number));
            }
            while let Some(entry) = queue.pop() {
                taken.push(entry.addr());
            }
            taken.extend(thief.join().unwrap());
            taken.sort_unstable();
            assert_eq!(taken, [1, 2, 3, 4, 5, 6]);
        });
    }
}
