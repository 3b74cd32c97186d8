//! The LIFO slot: the process that a worker has woken last, which it runs next.
//!
//! The slot belongs to the worker, so the process stays warm in the cache of the worker's core.
//! Only when the worker is held up in a turn may another thread take the process out, so that it
//! does not wait behind that turn. The owner accesses the slot with each wake, a thief hardly ever;
//! so the thief bears all the cost.
//!
//! | word | changed by |
//! |---|---|
//! | entry: null | the owner, by a plain store |
//! | entry: a process | the owner, by a plain store while it takes and no thief claims; else any thread, by an exchange |
//! | taking | the owner |
//! | claimed | a thief that finds it clear; then that thief |
//!
//! Invariants:
//! 1. Only the owner makes the entry anything but null; so an entry that the owner has seen to be
//!    null stays null until the owner stores.
//! 2. An entry is a token: the thread that has taken it out holds the token, alone.
//! 3. A thief that has claimed and sees `taking` clear knows that the owner, should it begin to
//!    take, sees the claim and exchanges too. For that, each side stores its own flag before it
//!    loads the other's, with a fence in between; see [`Fences`] for why the owner's fence is free.
//!
//! Cost for the owner: a few loads and stores on a cache line of its own; no exchange. All of it is
//! safe code: no entry is dereferenced here.

use crate::sync::Fences;
use crate::sync::atomic::{AtomicPtr, AtomicU32, Ordering};
use std::ptr;

/// Slot for one entry; see the file's head. `T` is the type that the entry points to.
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

    /// Owner: puts an entry in and returns the previous entry, or null.
    #[inline(always)]
    pub(crate) fn replace(&self, entry: *mut T) -> *mut T {
        let older = self.take();
        // Releases the owner's earlier writes to a thief, whose exchange acquires them.
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
        // Acquires the writes of a thief before it gave its claim up.
        let entry = if self.claimed.load(Ordering::Acquire) == 0 {
            let entry = self.entry.load(Ordering::Relaxed);
            self.entry.store(ptr::null_mut(), Ordering::Relaxed);
            entry
        } else {
            // Only an entry that the owner itself has stored can come out: there is nothing else to
            // acquire.
            self.entry.swap(ptr::null_mut(), Ordering::Relaxed)
        };
        // Releases the entry's absence to a thief that sees this.
        self.taking.store(0, Ordering::Release);
        entry
    }

    /// Any thread: takes the entry out; null if there is none or another thread is taking it.
    ///
    /// Cost: where the owner's fence is free, an interrupt on each core that runs this program.
    pub(crate) fn steal(&self) -> *mut T {
        let entry = self.entry.load(Ordering::Relaxed);
        if entry.is_null() || self.claimed.swap(1, Ordering::Acquire) != 0 {
            return ptr::null_mut();
        }
        let fenced = self.fences.heavy();
        let entry = if fenced && self.taking.load(Ordering::Acquire) == 0 {
            // Acquire: pairs with the release in `replace`. The entry may have been taken and put
            // in again since the load; that makes no difference.
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
            // Stands for a process: only the thread that has taken its entry may touch it.
            let cells: Vec<_> = (0..2)
                .map(|_| Box::into_raw(Box::new(loom::cell::UnsafeCell::new(0_u32))))
                .collect();
            let touch = |entry: *mut loom::cell::UnsafeCell<u32>| {
                // SAFETY: the caller has taken the entry (invariant 2); loom reports it if another
                // thread touches it meanwhile.
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
            // The entry is put in again, so that a thief may find the entry it saw before.
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
                // SAFETY: the pointer was made by `Box::into_raw` above, and the thief is done.
                drop(unsafe { Box::from_raw(cell) });
            }
        });
    }
}
