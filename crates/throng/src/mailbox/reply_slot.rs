//! The reply slot: hands a reply over to the waiting caller, inside the message that asked for it.
//!
//! Two parties share the message: the *caller* (its `Call` future) and the *callee* (the turn, or
//! the code that drops the message without running it). The state word is:
//!
//! | state | the caller | the callee |
//! |---|---|---|
//! | `WAITING` + version | sleeps; its waker is stored | owes an outcome |
//! | `UPDATING` | is awake, storing another waker, or has not stored any | owes an outcome |
//! | `DONE` | owns the message and the outcome in it, and frees both | has let go |
//! | `ABANDONED` | has let go | owns the message and frees it |
//!
//! Beside `WAITING` and `UPDATING` the word may have the bit `DETACHED`: the callee's process has gone
//! on, and a third party owes the outcome. The callee's side sets the bit, at any time before it
//! completes the slot; the caller reads it and keeps it. The bit changes nothing else: an exchange of
//! the caller's that fails because of it is tried again.
//!
//! Invariants:
//! 1. The callee writes the outcome before `DONE`, and the caller reads it after `DONE`.
//! 2. Exactly one side sees that it is the last, and frees the message.
//! 3. The stored waker belongs to the caller until `DONE` is reached out of `WAITING`; then to the
//!    callee. Its two words are atomics because the callee reads them speculatively; the version in
//!    the state word makes the callee's exchange fail if they have changed meanwhile. Setting
//!    `DETACHED` continues the release sequence of the caller's last exchange, so the callee still
//!    acquires the words.
//! 4. All bytes of the slot are atomics, and there is no padding: the other side may free the
//!    message between an exchange in a method and the method's return, while its `&self` is still
//!    alive.
//!
//! A reply costs one compare-exchange, and taking it costs none.

use crate::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};
use std::mem::ManuallyDrop;
use std::ptr;
use std::task::{RawWakerVTable, Waker};

const WAITING: usize = 0;
const UPDATING: usize = 1;
const DONE: usize = 2;
const ABANDONED: usize = 3;
const STATE_MASK: usize = 3;
const DETACHED: usize = 4;
const VERSION_STEP: usize = 8;

/// Reply slot of a call; see the file's head.
pub(crate) struct ReplySlot {
    state: AtomicUsize,
    waker_data: AtomicPtr<()>,
    waker_vtable: AtomicPtr<RawWakerVTable>,
}

#[cfg(not(throng_loom))]
const _: () = assert!(size_of::<ReplySlot>() == 3 * size_of::<usize>(), "no padding");

/// Step that the callee has to take after it has stored its outcome.
#[must_use]
pub(crate) enum Completed {
    /// The caller will take the outcome. Call the waker, if the caller sleeps.
    Delivered(Option<Waker>),
    /// The caller has let go: drop the outcome and free the message.
    Unwanted,
}

impl ReplySlot {
    /// Creates the slot of a caller that is about to sleep.
    #[inline(always)]
    pub(crate) fn new(waker: Waker) -> ReplySlot {
        let (data, vtable) = into_words(waker);
        ReplySlot {
            state: AtomicUsize::new(WAITING),
            waker_data: AtomicPtr::new(data),
            waker_vtable: AtomicPtr::new(vtable),
        }
    }

    /// Creates the slot of a caller that stores its first waker later, by [`renew`](Self::renew).
    #[inline(always)]
    pub(crate) fn without_waker() -> ReplySlot {
        ReplySlot {
            state: AtomicUsize::new(UPDATING),
            waker_data: AtomicPtr::new(ptr::null_mut()),
            waker_vtable: AtomicPtr::new(ptr::null_mut()),
        }
    }

    /// Callee: announces the outcome, which is in place.
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
                    // caller's current waker, which by invariant 3 is the callee's.
                    return Completed::Delivered(Some(unsafe { from_words(data, vtable) }));
                }
                Err(now) => seen = now,
            }
        }
    }

    /// Caller: whether the outcome is there. If so, the caller owns the message.
    #[inline]
    pub(crate) fn is_done(&self) -> bool {
        self.state.load(Ordering::Acquire) == DONE
    }

    /// Callee: whether the caller has let go.
    pub(crate) fn is_abandoned(&self) -> bool {
        self.state.load(Ordering::Relaxed) & STATE_MASK == ABANDONED
    }

    /// Callee: records that the caller no longer waits for the process that got the message.
    pub(crate) fn detach(&self) {
        // Relaxed: the bit guards no data. A caller must see it once it acts upon a later turn of
        // the process, and learns of such a turn only by messages that the process or others have
        // sent after this; the mailboxes order those.
        self.state.fetch_or(DETACHED, Ordering::Relaxed);
    }

    /// Caller: whether the outcome is there or [detached](Self::detach), so that the caller does not
    /// wait for the process that got the message.
    pub(crate) fn is_detached(&self) -> bool {
        // Relaxed: see `detach`.
        let seen = self.state.load(Ordering::Relaxed);
        seen & DETACHED != 0 || seen == DONE
    }

    /// Caller: moves the state, which was `seen`, on to the state that `next` makes of it, and
    /// returns that; `None` if the outcome came first.
    #[inline]
    fn advance(&self, mut seen: usize, next: impl Fn(usize) -> usize) -> Option<usize> {
        // At most two rounds: only `detach` and `complete` change the state meanwhile, once each.
        while seen != DONE {
            let next = next(seen);
            // Release: `complete` acquires the waker's words. Acquire: the outcome, if it is there.
            match self.state.compare_exchange(seen, next, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => return Some(next),
                Err(now) => seen = now,
            }
        }
        None
    }

    /// Caller: replaces the stored waker with this one; true if the outcome came first.
    #[inline]
    pub(crate) fn renew(&self, waker: &Waker) -> bool {
        let seen = self.state.load(Ordering::Acquire);
        if seen == DONE {
            return true;
        }
        if seen & STATE_MASK == UPDATING {
            return self.store_first(seen, waker);
        }
        // Only the caller writes these words, so it may read them.
        let data = self.waker_data.load(Ordering::Relaxed);
        let vtable = self.waker_vtable.load(Ordering::Relaxed);
        if ptr::eq(waker.data(), data) && ptr::eq(waker.vtable(), vtable) {
            return false;
        }
        self.exchange(seen, waker.clone())
    }

    /// Caller: replaces the waker of a slot that was `seen` waiting; true if the outcome came
    /// first.
    #[cold]
    fn exchange(&self, seen: usize, waker: Waker) -> bool {
        let data = self.waker_data.load(Ordering::Relaxed);
        let vtable = self.waker_vtable.load(Ordering::Relaxed);
        let Some(updating) = self.advance(seen, |seen| (seen & !STATE_MASK) | UPDATING) else {
            return true;
        };
        let done = self.store(updating, waker);
        // SAFETY: the words were overwritten while the waker was the caller's (invariant 3), so
        // only this call turns them back.
        drop(unsafe { from_words(data, vtable) });
        done
    }

    /// Caller: stores the first waker of a slot that is `updating`; true if the outcome came first.
    #[inline(never)]
    fn store_first(&self, updating: usize, waker: &Waker) -> bool {
        self.store(updating, waker.clone())
    }

    /// Caller: stores the waker of a slot that is `updating`; true if the outcome came first.
    fn store(&self, updating: usize, waker: Waker) -> bool {
        let (data, vtable) = into_words(waker);
        self.waker_data.store(data, Ordering::Relaxed);
        self.waker_vtable.store(vtable, Ordering::Relaxed);
        let waiting =
            |updating: usize| (updating & !STATE_MASK).wrapping_add(VERSION_STEP) | WAITING;
        let done = self.advance(updating, waiting).is_none();
        if done {
            // SAFETY: `DONE` was reached out of `UPDATING`, so the waker is the caller's
            // (invariant 3).
            drop(unsafe { from_words(data, vtable) });
        }
        done
    }

    /// Caller: gives up; true if the outcome came first, and with it the message.
    pub(crate) fn abandon(&self) -> bool {
        let data = self.waker_data.load(Ordering::Relaxed);
        let vtable = self.waker_vtable.load(Ordering::Relaxed);
        // Acquire: the callee's writes, if this sees `DONE`.
        let seen = self.state.load(Ordering::Acquire);
        if self.advance(seen, |_| ABANDONED).is_none() {
            return true;
        }
        if seen & STATE_MASK == WAITING {
            // SAFETY: the state was `WAITING`, so the waker is still the caller's (invariant 3).
            // The message may have been freed, but these words are copies.
            drop(unsafe { from_words(data, vtable) });
        }
        false
    }

    /// Caller: takes the waker back from a message that was never queued.
    pub(crate) fn disarm(&mut self) {
        // SAFETY: the message was never queued, so the waker is the caller's (invariant 3), and the
        // slot is not used again.
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

/// Turns the words of a waker back into the waker.
///
/// # Safety
/// The words come from [`into_words`], and each pair is turned back once.
unsafe fn from_words(data: *mut (), vtable: *mut RawWakerVTable) -> Waker {
    // SAFETY: vtables are `'static`, and by the contract the pair is that of a waker.
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
    fn a_waker_that_panics_as_it_is_replaced_is_dropped_once() {
        let waker = Waker::from(Arc::new(DropPanics));
        let reply_slot = ReplySlot::new(waker);
        let renewed = catch_unwind(AssertUnwindSafe(|| reply_slot.renew(Waker::noop())));
        assert!(renewed.is_err());
        assert!(!reply_slot.abandon(), "the new waker is in place, and is dropped");
    }

    #[test]
    fn a_detached_outcome_stays_detached_when_the_caller_changes_its_waker() {
        let reply_slot = ReplySlot::without_waker();
        reply_slot.detach();
        assert!(!reply_slot.renew(Waker::noop()));
        assert!(!reply_slot.renew(&Waker::from(Arc::new(WakesNobody))));
        assert!(reply_slot.is_detached() && !reply_slot.is_done());
        assert!(matches!(reply_slot.complete(), Completed::Delivered(Some(_))));
        assert!(reply_slot.is_detached() && reply_slot.is_done());
    }

    struct WakesNobody;

    impl Wake for WakesNobody {
        fn wake(self: Arc<Self>) {}
    }
}

#[cfg(all(test, throng_loom))]
mod loom_models {
    //! Caller and callee in every interleaving: a reply, detached before or not, against giving up
    //! and a change of waker.
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

    fn shared(reply_slot: ReplySlot) -> Arc<Shared> {
        Arc::new(Shared { reply_slot, outcome: UnsafeCell::new(0), frees: AtomicUsize::new(0) })
    }

    /// Replies, after detaching the outcome if `detaches`.
    fn reply(shared: &Shared, detaches: bool) {
        if detaches {
            shared.reply_slot.detach();
        }
        // SAFETY: the outcome is the callee's until the slot is completed (invariant 1).
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
        // SAFETY: the slot is done, so the outcome is the caller's (invariant 1).
        assert_eq!(shared.outcome.with(|outcome| unsafe { *outcome }), 7);
        shared.frees.fetch_add(1, SeqCst);
    }

    /// Starts the callee, which replies.
    fn callee(shared: &Arc<Shared>, detaches: bool) -> thread::JoinHandle<()> {
        let shared = shared.clone();
        thread::spawn(move || reply(&shared, detaches))
    }

    /// Lets the callee reply while the caller gives up; the message is freed once.
    fn reply_against_give_up(detaches: bool) {
        loom::model(move || {
            let counter = PlainArc::new(Counter(AtomicUsize::new(0)));
            let shared = shared(ReplySlot::new(counter.clone().into()));
            let callee = callee(&shared, detaches);
            if shared.reply_slot.abandon() {
                take(&shared);
            }
            callee.join().unwrap();
            assert_eq!(shared.frees.load(SeqCst), 1);
            assert_eq!(PlainArc::strong_count(&counter), 1, "the waker was released once");
        });
    }

    #[test]
    fn loom_reply_against_give_up_frees_once() {
        reply_against_give_up(false);
    }

    #[test]
    fn loom_detached_reply_against_give_up_frees_once() {
        reply_against_give_up(true);
    }

    fn reply_against_another_waker(detaches: bool) {
        loom::model(move || {
            let old = PlainArc::new(Counter(AtomicUsize::new(0)));
            let new = PlainArc::new(Counter(AtomicUsize::new(0)));
            let shared = shared(ReplySlot::new(old.clone().into()));
            let callee = callee(&shared, detaches);
            let done = shared.reply_slot.renew(&new.clone().into());
            callee.join().unwrap();
            assert!(shared.reply_slot.is_done());
            take(&shared);
            // Either the caller saw the outcome itself, or the new waker was called.
            assert!(done || new.0.load(SeqCst) == 1);
            drop(shared);
            assert_eq!(PlainArc::strong_count(&old), 1);
            assert_eq!(PlainArc::strong_count(&new), 1);
        });
    }

    #[test]
    fn loom_reply_against_another_waker_wakes_the_right_one() {
        reply_against_another_waker(false);
    }

    #[test]
    fn loom_detached_reply_against_another_waker_wakes_the_right_one() {
        reply_against_another_waker(true);
    }

    /// The first waker is stored while the callee answers; then the caller gives up.
    fn reply_against_the_first_waker(detaches: bool) {
        loom::model(move || {
            let first = PlainArc::new(Counter(AtomicUsize::new(0)));
            let shared = shared(ReplySlot::without_waker());
            let callee = callee(&shared, detaches);
            let done = shared.reply_slot.renew(&first.clone().into());
            let woken = first.0.load(SeqCst) == 1;
            if done || shared.reply_slot.abandon() {
                take(&shared);
            }
            callee.join().unwrap();
            assert!(!(done && woken), "an outcome that the caller has seen wakes nobody");
            assert_eq!(shared.frees.load(SeqCst), 1);
            drop(shared);
            assert_eq!(PlainArc::strong_count(&first), 1);
        });
    }

    #[test]
    fn loom_reply_against_the_first_waker_wakes_it_or_is_seen() {
        reply_against_the_first_waker(false);
    }

    #[test]
    fn loom_detached_reply_against_the_first_waker_wakes_it_or_is_seen() {
        reply_against_the_first_waker(true);
    }

    /// The callee's process goes on after it has detached the outcome, and sends a message. A caller
    /// that has received the message sees the mark, also if it has stored a waker meanwhile.
    #[test]
    fn loom_a_detached_outcome_is_seen_by_a_caller_that_hears_of_the_next_turn() {
        loom::model(|| {
            let slot =
                Arc::new((ReplySlot::without_waker(), loom::sync::atomic::AtomicBool::new(false)));
            let callee = thread::spawn({
                let slot = slot.clone();
                move || {
                    slot.0.detach();
                    // Release: stands for the push into a mailbox.
                    slot.1.store(true, Ordering::Release);
                }
            });
            assert!(!slot.0.renew(Waker::noop()));
            if slot.1.load(Ordering::Acquire) {
                assert!(slot.0.is_detached());
            }
            callee.join().unwrap();
            assert!(slot.0.is_detached() && !slot.0.is_done());
            assert!(!slot.0.abandon());
        });
    }

    #[test]
    fn loom_reply_against_give_up_before_the_first_waker_frees_once() {
        loom::model(|| {
            let shared = shared(ReplySlot::without_waker());
            let callee = callee(&shared, false);
            if shared.reply_slot.abandon() {
                take(&shared);
            }
            callee.join().unwrap();
            assert_eq!(shared.frees.load(SeqCst), 1);
        });
    }
}
