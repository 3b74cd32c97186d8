//! The waker of a process: a plain pointer to its cell, with no reference count.
//!
//! Slots are cells for good, so a waker may outlive its process, its runtime, and the slot's next
//! owner too: at worst it makes an unrelated process poll once without effect (invariant 3 of
//! `turn_state`). Cloning and dropping a waker costs nothing.

use crate::cell::{CellRef, Token};
use crate::exit::catch;
use crate::scheduler;
use std::mem::ManuallyDrop;
use std::ptr::{self, NonNull};
use std::task::{RawWaker, RawWakerVTable, Waker};

static VTABLE: RawWakerVTable = RawWakerVTable::new(clone, wake, wake, drop);

/// Returns the waker to poll this process's turn with.
#[cfg_attr(not(debug_assertions), inline(always))]
pub(crate) fn of(token: &Token) -> ManuallyDrop<Waker> {
    // SAFETY: the functions of `VTABLE` keep the contract of a waker: any thread may call them at
    // any time, because a slot stays a cell for good.
    ManuallyDrop::new(unsafe { Waker::from_raw(raw(token.as_ref().as_ptr().as_ptr().cast())) })
}

/// Whether polling with this waker means polling inside the turn of that process.
#[cfg_attr(not(debug_assertions), inline(always))]
pub(crate) fn is_of(waker: &Waker, cell: CellRef) -> bool {
    waker.data() == cell.as_ptr().as_ptr().cast() && ptr::eq(waker.vtable(), &VTABLE)
}

/// Clones a waker; a process's without an indirect call.
#[cfg_attr(not(debug_assertions), inline(always))]
pub(crate) fn clone_of(waker: &Waker) -> Waker {
    if ptr::eq(waker.vtable(), &VTABLE) {
        // SAFETY: the words are those of a waker of this file, which nothing counts.
        unsafe { Waker::from_raw(raw(waker.data())) }
    } else {
        waker.clone()
    }
}

/// Calls a waker; a process's without an indirect call. A panic of a foreign waker is caught.
#[cfg_attr(not(debug_assertions), inline(always))]
pub(crate) fn call(waker: Waker) {
    if ptr::eq(waker.vtable(), &VTABLE) {
        let waker = ManuallyDrop::new(waker);
        // SAFETY: the vtable is this file's, so the word is that of a cell.
        unsafe { wake(waker.data()) };
    } else {
        // The waker may be the user's: any future may poll a call with its own waker.
        let _ = catch(|| waker.wake());
    }
}

fn raw(cell: *const ()) -> RawWaker {
    RawWaker::new(cell, &VTABLE)
}

unsafe fn clone(cell: *const ()) -> RawWaker {
    raw(cell)
}

#[cfg_attr(not(debug_assertions), inline(always))]
unsafe fn wake(cell: *const ()) {
    let Some(cell) = NonNull::new(cell.cast_mut().cast()) else { return };
    // SAFETY: `of` made this pointer from a token's cell, and a slot stays a cell for good.
    if let Some(token) = unsafe { CellRef::new(cell) }.wake_turn() {
        scheduler::schedule(token);
    }
}

unsafe fn drop(_: *const ()) {}
