//! The LIFO slot: the process that a worker has woken last, which it runs next.
//!
//! It is the worker's own: a process stays warm in its core's cache this way. Only when the worker
//! is held up in a turn may another take the process out, so that it does not wait behind that.
//! The owner passes here with each wake and a thief hardly ever; so all the cost is the thief's.
//!
//! | word | who may change it |
//! |---|---|
//! | entry: null | the owner, by a plain store |
//! | entry: a process | the owner, by a plain store while it takes and nobody claims; else whoever exchanges it |
//! | taking | the owner |
//! | claimed | a thief that finds it clear; then that one |
//!
//! Invariants:
//! 1. Only the owner makes the entry anything but null; so what the owner has seen to be null stays
//!    null until it stores.
//! 2. An entry is a token: whoever has taken it out has it, alone.
//! 3. A thief that has claimed and sees nobody taking knows that the owner, should it begin to take,
//!    sees the claim and exchanges too. For that, each side says what it is about before it looks
//!    at what the other said, with a fence in between; see [`Fences`] for why the owner's is free.
//!
//! Cost for the owner: some loads and stores on a line of its own; no exchange. All of it is safe
//! code: entries are pointers nobody follows in here.

use crate::sync::Fences;
use crate::sync::atomic::{AtomicPtr, AtomicU32, Ordering};
use std::ptr;

/// See the file's head. `T` is what the entry points to.
pub(crate) struct LifoSlot<T> {
    entry: AtomicPtr<T>,
    taking: AtomicU32,
    claimed: AtomicU32,
    fences: Fences,
}

impl<T> LifoSlot<T> {
    pub(crate) fn new(fences: Fences) -> Self {
        LifoSlot {
            entry: AtomicPtr::new(ptr::null_mut()),
            taking: AtomicU32::new(0),
            claimed: AtomicU32::new(0),
            fences,
        }
    }

    /// Owner: puts an entry in and returns the one that was there, or null.
    #[inline(always)]
    pub(crate) fn replace(&self, entry: *mut T) -> *mut T {
        let older = self.take();
        // Release: a thief's exchange acquires what was done before.
        self.entry.store(entry, Ordering::Release);
        older
    }

    /// Owner: takes the entry out, or null.
    #[inline(always)]
    pub(crate) fn take(&self) -> *mut T {
        if self.entry.load(Ordering::Relaxed).is_null() {
            return ptr::null_mut();
        }
        self.taking.store(1, Ordering::Relaxed);
        self.fences.light();
        // Acquires what a thief has done before it gave its claim up.
        let entry = if self.claimed.load(Ordering::Acquire) == 0 {
            let entry = self.entry.load(Ordering::Relaxed);
            self.entry.store(ptr::null_mut(), Ordering::Relaxed);
            entry
        } else {
            // Only what the owner itself has stored can come out: nothing else to acquire.
            self.entry.swap(ptr::null_mut(), Ordering::Relaxed)
        };
        // Releases the entry's absence to a thief that sees this.
        self.taking.store(0, Ordering::Release);
        entry
    }

    /// Anybody: takes the entry out, or null if there is none or another is at it.
    ///
    /// Cost: where the owner's fence is free, an interrupt on each core that runs this program.
    pub(crate) fn steal(&self) -> *mut T {
        let entry = self.entry.load(Ordering::Relaxed);
        if entry.is_null() || self.claimed.swap(1, Ordering::Acquire) != 0 {
            return ptr::null_mut();
        }
        let fenced = self.fences.heavy();
        let entry = if fenced && self.taking.load(Ordering::Acquire) == 0 {
            // Acquire: pairs with the release by which it was put in. That it may have been taken
            // and put in again since the load makes no difference.
            self.entry
                .compare_exchange(entry, ptr::null_mut(), Ordering::Acquire, Ordering::Relaxed)
                .unwrap_or(ptr::null_mut())
        } else {
            ptr::null_mut()
        };
        self.claimed.store(0, Ordering::Release);
        entry
    }
}

#[cfg(all(test, throng_loom))]
mod loom_models {
    use super::*;
    use loom::sync::Arc;
    use loom::thread;

    #[test]
    fn loom_each_entry_is_taken_once_by_owner_or_thief() {
        loom::model(|| {
            let slot = Arc::new(LifoSlot::<loom::cell::UnsafeCell<u32>>::new(Fences::default()));
            // What stands for a process: only who has taken its entry may touch it.
            let cells: Vec<_> = (0..2)
                .map(|_| Box::into_raw(Box::new(loom::cell::UnsafeCell::new(0_u32))))
                .collect();
            let touch = |entry: *mut loom::cell::UnsafeCell<u32>| {
                // SAFETY: taken, so ours; loom reports it if another touches it meanwhile.
                unsafe { (*entry).with_mut(|count| *count += 1) };
            };
            let thief = thread::spawn({
                let slot = slot.clone();
                move || {
                    let stolen = slot.steal();
                    if !stolen.is_null() {
                        touch(stolen);
                    }
                    stolen.addr()
                }
            });
            let mut taken = Vec::new();
            let mut keep = |entry: *mut loom::cell::UnsafeCell<u32>| {
                if !entry.is_null() {
                    touch(entry);
                    taken.push(entry.addr());
                }
            };
            touch(cells[0]);
            keep(slot.replace(cells[0]));
            touch(cells[1]);
            keep(slot.replace(cells[1]));
            // Put in again, so that a thief may find what it saw before.
            let again = slot.take();
            if !again.is_null() {
                touch(again);
                keep(slot.replace(again));
            }
            keep(slot.take());
            taken.extend(Some(thief.join().unwrap()).filter(|&stolen| stolen != 0));
            taken.sort_unstable();
            let mut all: Vec<_> = cells.iter().map(|cell| cell.addr()).collect();
            all.sort_unstable();
            assert_eq!(taken, all);
            for cell in cells {
                // SAFETY: made above, and the thief is done.
                drop(unsafe { Box::from_raw(cell) });
            }
        });
    }
}
