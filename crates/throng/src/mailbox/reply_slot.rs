//! The reply slot: it hands a reply over to the waiting caller, inside the message that asked for
//! it.
//!
//! Two parties share the message: the *caller* (its `Call` future) and the *callee* (the turn, or
//! whoever drops the message undone). The word says what has happened:
//!
//! | state | the caller | the callee |
//! |---|---|---|
//! | `WAITING` + version | sleeps; its waker is stored | owes an outcome |
//! | `UPDATING` | is awake, storing another waker | owes an outcome |
//! | `DONE` | owns the message, the outcome in it, and frees both | has let go |
//! | `ABANDONED` | has let go | owns the message and frees it |
//!
//! Invariants:
//! 1. The outcome is written by the callee before `DONE` and read by the caller after it.
//! 2. Exactly one side sees that it is the last, and frees.
//! 3. The stored waker belongs to the caller until `DONE` is reached out of `WAITING`; then to the
//!    callee. Its two words are atomics because the callee reads them on speculation; the version
//!    in the word makes its exchange fail if they have changed meanwhile.
//!
//! 4. All its bytes are atomics, padding there is none: the other side may free the message between
//!    an exchange in here and the return from here, while the reference to `self` still stands.
//!
//! A reply costs one compare-exchange, and taking it none.

use crate::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};
use std::mem::ManuallyDrop;
use std::ptr;
use std::task::{RawWakerVTable, Waker};

const WAITING: usize = 0;
const UPDATING: usize = 1;
const DONE: usize = 2;
const ABANDONED: usize = 3;
const STATE_MASK: usize = 3;
const VERSION_STEP: usize = 4;

/// See the file's head.
pub(crate) struct ReplySlot {
    state: AtomicUsize,
    waker_data: AtomicPtr<()>,
    waker_vtable: AtomicPtr<RawWakerVTable>,
}

#[cfg(not(throng_loom))]
const _: () = assert!(size_of::<ReplySlot>() == 3 * size_of::<usize>(), "no padding");

/// What is left to do after the callee put its outcome down.
#[must_use]
pub(crate) enum Completed {
    /// The caller will take it. Wake it, if it sleeps.
    Delivered(Option<Waker>),
    /// Nobody wants it: drop the outcome and free the message.
    Unwanted,
}

impl ReplySlot {
    /// A caller about to sleep.
    pub(crate) fn new(waker: &Waker) -> ReplySlot {
        let (data, vtable) = into_words(waker.clone());
        ReplySlot {
            state: AtomicUsize::new(WAITING),
            waker_data: AtomicPtr::new(data),
            waker_vtable: AtomicPtr::new(vtable),
        }
    }

    /// Callee: the outcome is in place.
    #[inline]
    pub(crate) fn complete(&self) -> Completed {
        let mut seen = self.state.load(Ordering::Acquire);
        loop {
            if seen & STATE_MASK == ABANDONED {
                return Completed::Unwanted;
            }
            let data = self.waker_data.load(Ordering::Relaxed);
            let vtable = self.waker_vtable.load(Ordering::Relaxed);
            match self.state.compare_exchange(seen, DONE, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) if seen & STATE_MASK == UPDATING => return Completed::Delivered(None),
                Ok(_) => {
                    // SAFETY: the exchange succeeded from the same version, so the words are the
                    // caller's current waker, and by invariant 3 it is ours.
                    return Completed::Delivered(Some(unsafe { from_words(data, vtable) }));
                }
                Err(now) => seen = now,
            }
        }
    }

    /// Caller: is the outcome there? If so the caller owns the message.
    #[inline]
    pub(crate) fn is_done(&self) -> bool {
        self.state.load(Ordering::Acquire) == DONE
    }

    /// Callee: has the caller let go?
    pub(crate) fn is_abandoned(&self) -> bool {
        self.state.load(Ordering::Relaxed) & STATE_MASK == ABANDONED
    }

    /// Caller: sleep with this waker from now on; true if the outcome came first.
    #[inline]
    pub(crate) fn renew(&self, waker: &Waker) -> bool {
        let seen = self.state.load(Ordering::Acquire);
        if seen == DONE {
            return true;
        }
        // Only the caller writes the words, so it may read them.
        let data = self.waker_data.load(Ordering::Relaxed);
        let vtable = self.waker_vtable.load(Ordering::Relaxed);
        if ptr::eq(waker.data(), data) && ptr::eq(waker.vtable(), vtable) {
            return false;
        }
        // Wakers are the user's: their code runs while the word is at rest, for it may panic.
        let (new_data, new_vtable) = into_words(waker.clone());
        let updating = (seen & !STATE_MASK) | UPDATING;
        if self.state.compare_exchange(seen, updating, Ordering::AcqRel, Ordering::Acquire).is_err()
        {
            // SAFETY: made above and stored nowhere.
            drop(unsafe { from_words(new_data, new_vtable) });
            return true;
        }
        self.waker_data.store(new_data, Ordering::Relaxed);
        self.waker_vtable.store(new_vtable, Ordering::Relaxed);
        let waiting = (seen & !STATE_MASK).wrapping_add(VERSION_STEP) | WAITING;
        let done = self
            .state
            .compare_exchange(updating, waiting, Ordering::AcqRel, Ordering::Acquire)
            .is_err();
        if done {
            // SAFETY: done out of `UPDATING`: the callee has taken no waker.
            drop(unsafe { from_words(new_data, new_vtable) });
        }
        // SAFETY: overwritten, so nobody else turns it back.
        drop(unsafe { from_words(data, vtable) });
        done
    }

    /// Caller: gives up; true if the outcome came first, and with it the message.
    pub(crate) fn abandon(&self) -> bool {
        let data = self.waker_data.load(Ordering::Relaxed);
        let vtable = self.waker_vtable.load(Ordering::Relaxed);
        let seen = self.state.load(Ordering::Relaxed);
        if seen == DONE
            || self
                .state
                .compare_exchange(seen, ABANDONED, Ordering::AcqRel, Ordering::Acquire)
                .is_err()
        {
            // Pairs with the callee's release, for the load that saw `DONE` was relaxed.
            return self.is_done();
        }
        // SAFETY: given up out of `WAITING`, so the waker is still the caller's. The message may
        // be gone by now, but these are copies.
        drop(unsafe { from_words(data, vtable) });
        false
    }

    /// Caller: takes the waker back from a message that was never queued.
    pub(crate) fn disarm(&mut self) {
        // SAFETY: nobody else has seen the message.
        drop(unsafe {
            from_words(
                self.waker_data.load(Ordering::Relaxed),
                self.waker_vtable.load(Ordering::Relaxed),
            )
        });
    }
}

fn into_words(waker: Waker) -> (*mut (), *mut RawWakerVTable) {
    let waker = ManuallyDrop::new(waker);
    (waker.data().cast_mut(), ptr::from_ref(waker.vtable()).cast_mut())
}

/// # Safety
/// The words come from [`into_words`] and each pair is turned back once.
unsafe fn from_words(data: *mut (), vtable: *mut RawWakerVTable) -> Waker {
    // SAFETY: vtables are `'static`, and the pair is a waker's by the contract above.
    unsafe { Waker::new(data, &*vtable) }
}

#[cfg(all(test, not(throng_loom)))]
mod tests_miri {
    use super::*;
    use std::panic::{AssertUnwindSafe, catch_unwind};
    use std::sync::Arc;
    use std::task::Wake;

    struct DropPanics;

    impl Wake for DropPanics {
        fn wake(self: Arc<Self>) {}
    }

    impl Drop for DropPanics {
        fn drop(&mut self) {
            panic!("on purpose");
        }
    }

    #[test]
    fn a_waker_that_panics_as_it_is_exchanged_is_dropped_once() {
        let waker = Waker::from(Arc::new(DropPanics));
        let reply_slot = ReplySlot::new(&waker);
        std::mem::drop(waker);
        let renewed = catch_unwind(AssertUnwindSafe(|| reply_slot.renew(Waker::noop())));
        assert!(renewed.is_err());
        assert!(!reply_slot.abandon(), "the new waker is in place, and is given up");
    }
}

#[cfg(all(test, throng_loom))]
mod loom_models {
    //! Caller and callee in every interleaving: reply against exit, give-up and change of waker.
    use super::*;
    use loom::cell::UnsafeCell;
    use loom::sync::Arc;
    use loom::thread;
    use std::sync::Arc as PlainArc;
    use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
    use std::task::Wake;

    struct Counter(AtomicUsize);

    impl Wake for Counter {
        fn wake(self: PlainArc<Self>) {
            self.0.fetch_add(1, SeqCst);
        }
    }

    struct Shared {
        reply_slot: ReplySlot,
        outcome: UnsafeCell<u32>,
        frees: AtomicUsize,
    }

    fn shared(waker: &Waker) -> Arc<Shared> {
        Arc::new(Shared {
            reply_slot: ReplySlot::new(waker),
            outcome: UnsafeCell::new(0),
            frees: AtomicUsize::new(0),
        })
    }

    fn reply(shared: &Shared) {
        // SAFETY: the callee's until completed.
        shared.outcome.with_mut(|outcome| unsafe { *outcome = 7 });
        match shared.reply_slot.complete() {
            Completed::Delivered(Some(waker)) => waker.wake(),
            Completed::Delivered(None) => {}
            Completed::Unwanted => {
                shared.frees.fetch_add(1, SeqCst);
            }
        }
    }

    fn take(shared: &Shared) {
        // SAFETY: done, so the caller's.
        assert_eq!(shared.outcome.with(|outcome| unsafe { *outcome }), 7);
        shared.frees.fetch_add(1, SeqCst);
    }

    #[test]
    fn loom_reply_against_give_up_frees_once() {
        loom::model(|| {
            let counter = PlainArc::new(Counter(AtomicUsize::new(0)));
            let shared = shared(&counter.clone().into());
            let callee = thread::spawn({
                let shared = shared.clone();
                move || reply(&shared)
            });
            if shared.reply_slot.abandon() {
                take(&shared);
            }
            callee.join().unwrap();
            assert_eq!(shared.frees.load(SeqCst), 1);
            drop(shared);
            assert_eq!(PlainArc::strong_count(&counter), 1, "the waker was released once");
        });
    }

    #[test]
    fn loom_reply_against_another_waker_wakes_the_right_one() {
        loom::model(|| {
            let old = PlainArc::new(Counter(AtomicUsize::new(0)));
            let new = PlainArc::new(Counter(AtomicUsize::new(0)));
            let shared = shared(&old.clone().into());
            let callee = thread::spawn({
                let shared = shared.clone();
                move || reply(&shared)
            });
            let done = shared.reply_slot.renew(&new.clone().into());
            callee.join().unwrap();
            assert!(shared.reply_slot.is_done());
            take(&shared);
            // Either the caller saw it itself, or the new waker was woken.
            assert!(done || new.0.load(SeqCst) == 1);
            drop(shared);
            assert_eq!(PlainArc::strong_count(&old), 1);
            assert_eq!(PlainArc::strong_count(&new), 1);
        });
    }
}
