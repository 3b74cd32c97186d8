//! The slot of the process that a worker has woken last, which it runs next.
//!
//! It is the worker's own: a process stays warm in its core's cache this way. Only when the worker
//! is held up in a turn may another take the process out, so that it does not wait behind that.
//!
//! | word | who may change it |
//! |---|---|
//! | null | the owner, by a plain store |
//! | an entry | the owner and a thief, by an exchange |
//!
//! Invariants:
//! 1. Only the owner makes the word anything but null; so what the owner has seen to be null stays
//!    null until it stores.
//! 2. An entry is a token: whoever has exchanged it for something else has it, alone.
//!
//! Cost for the owner: to fill an empty slot a load and a store, to empty it one exchange. All of
//! it is safe code: entries are pointers nobody follows in here.

use crate::sync::atomic::{AtomicPtr, Ordering};
use std::ptr;

/// See the file's head. `T` is what the entry points to.
pub(crate) struct Warm<T>(AtomicPtr<T>);

impl<T> Warm<T> {
    pub(crate) fn new() -> Self {
        Warm(AtomicPtr::new(ptr::null_mut()))
    }

    /// Owner: puts an entry in and returns the one that was there, or null.
    #[inline(always)]
    pub(crate) fn replace(&self, entry: *mut T) -> *mut T {
        if self.0.load(Ordering::Relaxed).is_null() {
            // Release: a thief's exchange acquires what was done before.
            self.0.store(entry, Ordering::Release);
            return ptr::null_mut();
        }
        // A thief may be faster.
        self.0.swap(entry, Ordering::Release)
    }

    /// Owner: takes the entry out, or null.
    #[inline(always)]
    pub(crate) fn take(&self) -> *mut T {
        if self.0.load(Ordering::Relaxed).is_null() {
            return ptr::null_mut();
        }
        // Only what the owner itself has stored can come out: nothing to acquire.
        self.0.swap(ptr::null_mut(), Ordering::Relaxed)
    }

    /// Anybody: takes the entry out, or null if there is none or another was faster.
    pub(crate) fn steal(&self) -> *mut T {
        let entry = self.0.load(Ordering::Relaxed);
        if entry.is_null() {
            return entry;
        }
        // Acquire: pairs with the release by which it was put in. That it may have been taken and
        // put in again since the load makes no difference.
        self.0
            .compare_exchange(entry, ptr::null_mut(), Ordering::Acquire, Ordering::Relaxed)
            .unwrap_or(ptr::null_mut())
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
            let warm = Arc::new(Warm::<loom::cell::UnsafeCell<u32>>::new());
            // What stands for a process: only who has taken its entry may touch it.
            let cells: Vec<_> = (0..2)
                .map(|_| Box::into_raw(Box::new(loom::cell::UnsafeCell::new(0_u32))))
                .collect();
            let touch = |entry: *mut loom::cell::UnsafeCell<u32>| {
                // SAFETY: taken, so ours; loom reports it if another touches it meanwhile.
                unsafe { (*entry).with_mut(|count| *count += 1) };
            };
            let thief = thread::spawn({
                let warm = warm.clone();
                move || {
                    let stolen = warm.steal();
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
            keep(warm.replace(cells[0]));
            touch(cells[1]);
            keep(warm.replace(cells[1]));
            // Put in again, so that a thief may find what it saw before.
            let again = warm.take();
            if !again.is_null() {
                touch(again);
                keep(warm.replace(again));
            }
            keep(warm.take());
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
