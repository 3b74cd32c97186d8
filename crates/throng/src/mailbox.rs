//! The mailbox: a single word that is address check, message stack and scheduling token.
//!
//! ```text
//!  63            48 47                                   6 5        0
//! ┌────────────────┬──────────────────────────────────────┬──────────┐
//! │ generation 6.. │ address bits 6..47 of the newest     │ gener-   │
//! │ (16 bits)      │ message, or one of the states below  │ ation ..5│
//! └────────────────┴──────────────────────────────────────┴──────────┘
//! ```
//!
//! Messages are 64-byte aligned and user addresses have at most 48 bits, so 22 bits are free: they
//! hold the slot's *generation*: a 21-bit number and, in the lowest bit, whether the process is
//! *bounded*, so that an address alone shows that. Messages that users send to a bounded process
//! wait in its `bounded` queue, and this word shows only whether the token is held. The pointer
//! part is
//!
//! | value | the process | permitted steps |
//! |---|---|---|
//! | `IDLE` | waits, nothing queued | any thread may swap in another value and so gets the *token* |
//! | `BUSY` | its token is held; nothing new queued | any thread may push; only the token's holder drains, parks, closes |
//! | `AWAITING` | as `BUSY`, and its turn waits for a message | any thread may push, and must then wake the turn |
//! | a message | its token is held; messages are stacked, newest first | as for `BUSY` |
//! | `FREE` | does not exist; the number is that of the *next* process, the bit that of the *last* | only the slab's owner, by `open` |
//!
//! The **token** is the right (and the duty) to run the process: only its holder touches the
//! cell's plain fields. It passes from the pusher through a run queue to a worker, and is given
//! back by `park`.
//!
//! `AWAITING` is for a turn that itself takes messages out of the mailbox (see `async_process`): a
//! push onto it does not transfer the token. The pusher wakes the turn like any other waker, and
//! `turn_state` determines the next holder of the token, which the turn may still hold or may have
//! given up.
//!
//! Invariants:
//! 1. A push succeeds only if the word's generation is the sender's, and check and push are a
//!    single compare-exchange: a slot reused in between cannot receive a message for its earlier
//!    process.
//! 2. Exactly one pusher sees `IDLE` and schedules.
//! 3. `close` bumps the generation in the same exchange that takes the last messages: each message
//!    is either handled, or returned by `close`, or refused at the push.
//! 4. A turn that has set `AWAITING` is woken after the next push, by the pusher.
//! 5. A link is followed by its address alone (see below).
//!
//! A push can succeed although the stack has been drained since the pusher read the word: if a
//! message was freed, another allocated at the same address, and that one pushed, the word is as
//! before. The new message's link is then right as an address, but the pointer was made from the
//! freed message. So a link exposes the provenance of each message it leads to, and a reader makes
//! a new pointer from the address. Both are free at run time.
//!
//! Orderings: a push releases the message's contents (and, out of `IDLE`, acquires the last
//! holder's writes to the cell, which `park` released); `drain` and `close` acquire the contents.

#[cfg(not(throng_loom))]
pub(crate) mod bound;
#[cfg(not(throng_loom))]
pub(crate) mod bounded;
#[cfg(not(throng_loom))]
pub(crate) mod budget;
pub(crate) mod coupling;
#[cfg(not(throng_loom))]
pub(crate) mod dead_letters;
#[cfg(not(throng_loom))]
pub(crate) mod envelope;
pub(crate) mod reply_slot;
#[cfg(not(throng_loom))]
pub(crate) mod train;

use crate::sync::UnsafeCell;
use crate::sync::atomic::{AtomicPtr, Ordering};
use std::ptr::{self, NonNull};

const GENERATION_MASK: usize = 0xFFFF_0000_0000_003F;
#[cfg(not(throng_loom))]
const _: () = assert!(GENERATION_MASK == crate::memory::spare_bits::SPARE_BITS);
const IDLE: usize = 0;
const BUSY: usize = 1 << 6;
const AWAITING: usize = 2 << 6;
const FREE: usize = 3 << 6;

/// Set in the generation of a bounded process.
const BOUNDED: usize = 1;

/// Number of times a slot has been used, and whether the process is bounded: 22 bits, separate from
/// the pointer bits of a word.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Generation(usize);

impl Generation {
    pub(crate) const FIRST: Generation = Generation(0);
    /// Number that no process ever has: a slot that reaches it is used up.
    #[cfg(test)]
    pub(crate) const LAST: Generation = Generation(GENERATION_MASK & !BOUNDED);

    /// Whether a slot that has reached this number is used up.
    #[cfg_attr(not(debug_assertions), inline(always))]
    pub(crate) fn is_last(self) -> bool {
        self.0 | BOUNDED == GENERATION_MASK
    }

    #[cfg_attr(not(debug_assertions), inline(always))]
    pub(crate) fn is_bounded(self) -> bool {
        self.0 & BOUNDED != 0
    }

    #[cfg_attr(not(debug_assertions), inline(always))]
    pub(crate) fn with_bounded(self, bounded: bool) -> Generation {
        Generation(self.0 & !BOUNDED | if bounded { BOUNDED } else { 0 })
    }

    /// Packs this generation into the spare bits of a pointer, which are zero; see `spare_bits`.
    #[cfg_attr(not(debug_assertions), inline(always))]
    pub(crate) fn tag<T>(self, pointer: *mut T) -> *mut T {
        debug_assert_eq!(pointer.addr() & GENERATION_MASK, 0);
        pointer.map_addr(|address| address | self.0)
    }

    #[cfg_attr(not(debug_assertions), inline(always))]
    pub(crate) fn untag<T>(tagged: *mut T) -> (Generation, *mut T) {
        (
            Generation(tagged.addr() & GENERATION_MASK),
            tagged.map_addr(|address| address & !GENERATION_MASK),
        )
    }

    /// Returns the generation with the next number; the last number has no successor. The bounded
    /// bit stays, so that [`previous`](Self::previous) finds it in a closed mailbox.
    #[inline]
    pub(crate) fn next(self) -> Generation {
        debug_assert!(!self.is_last(), "a used-up slot has no next generation");
        // Setting the bits below and between makes a carry run through them, from the low part of
        // the number to the high.
        let next = (self.0 | BOUNDED | !GENERATION_MASK).wrapping_add(1) & GENERATION_MASK;
        Generation(next | (self.0 & BOUNDED))
    }

    /// Returns the preceding generation: in a closed mailbox, that of its last process.
    pub(crate) fn previous(self) -> Generation {
        let number = self.0 & !BOUNDED;
        debug_assert_ne!(number, Generation::FIRST.0, "nothing came before the first generation");
        // The pointer bits are zero, so a borrow runs through them from the high part to the low.
        Generation(number.wrapping_sub(1 << 1) & GENERATION_MASK | (self.0 & BOUNDED))
    }
}

/// First word of every queued message: the intrusive link.
#[repr(C)]
pub(crate) struct Link {
    next: UnsafeCell<*mut Link>,
}

impl Link {
    #[cfg_attr(not(debug_assertions), inline(always))]
    pub(crate) fn new() -> Link {
        Link { next: UnsafeCell::new(ptr::null_mut()) }
    }

    /// Returns the next message of the list: the next older in the word's stack, the next younger
    /// in a drained list.
    ///
    /// # Safety
    /// The caller owns the message: no other thread can reach it.
    #[cfg_attr(not(debug_assertions), inline(always))]
    pub(crate) unsafe fn next(&self) -> *mut Link {
        // SAFETY: by the contract, only the caller reaches this link.
        let next = self.next.with(|next| unsafe { *next });
        // The pointer may be that of an earlier message at the same address (invariant 5).
        #[allow(clippy::disallowed_methods)]
        ptr::with_exposed_provenance_mut(next.addr())
    }

    /// Sets the next message of the list.
    ///
    /// # Safety
    /// The caller owns the message: no other thread can reach it.
    #[cfg_attr(not(debug_assertions), inline(always))]
    pub(crate) unsafe fn set_next(&self, link: *mut Link) {
        link.expose_provenance();
        // SAFETY: by the contract, only the caller reaches this link.
        self.next.with_mut(|next| unsafe { *next = link });
    }
}

/// Duty of the pusher after a successful push.
#[must_use]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Pushed {
    /// The pusher has nothing to do: the process is already scheduled or running.
    Queued,
    /// The pusher now holds the token and must schedule the process.
    Woke,
    /// The pusher must wake the process's turn, which waits for a message.
    Awaited,
}

/// Error of a push: the process that the generation names has exited.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Gone;

/// Mailbox word of a process; see the file's head.
#[repr(transparent)]
pub(crate) struct Mailbox {
    word: AtomicPtr<Link>,
}

#[cfg_attr(not(debug_assertions), inline(always))]
fn word(generation: Generation, state: usize) -> *mut Link {
    generation.tag(ptr::without_provenance_mut(state))
}

impl Mailbox {
    /// Creates an idle mailbox for tests and models, which use no slab.
    #[cfg(test)]
    pub(crate) fn new_open(generation: Generation) -> Mailbox {
        Mailbox { word: AtomicPtr::new(word(generation, IDLE)) }
    }

    /// Marks a fresh or closed slot as free for `generation`.
    pub(crate) fn set_free(&self, generation: Generation) {
        self.word.store(word(generation, FREE), Ordering::Relaxed);
    }

    /// Returns the generation in the word, and whether a process is alive in the slot.
    #[cfg_attr(not(debug_assertions), inline(always))]
    pub(crate) fn peek(&self) -> (Generation, bool) {
        // Acquires the process's last writes, for a caller that sees that it has exited.
        let (generation, state) = Generation::untag(self.word.load(Ordering::Acquire));
        (generation, state.addr() != FREE)
    }

    /// Opens the mailbox of a free slot for a process. With `busy`, the caller keeps the token.
    #[cfg_attr(not(debug_assertions), inline(always))]
    pub(crate) fn open(&self, generation: Generation, busy: bool) {
        let state = if busy { BUSY } else { IDLE };
        self.word.store(word(generation, state), Ordering::Release);
    }

    /// Queues a message.
    ///
    /// # Safety
    /// `link` is the 64-byte aligned envelope of a message that the caller owns; on success it
    /// belongs to the mailbox.
    #[inline]
    pub(crate) unsafe fn push(
        &self,
        generation: Generation,
        link: NonNull<Link>,
    ) -> Result<Pushed, Gone> {
        let mut current = self.word.load(Ordering::Relaxed);
        loop {
            // SAFETY: the message is the caller's by the contract.
            match unsafe { self.push_onto(current, generation, link) } {
                Ok(pushed) => return pushed,
                Err(now) => current = now,
            }
        }
    }

    /// Queues a message if the word is still `current`; returns the word if it is not.
    ///
    /// # Safety
    /// The same as for [`push`](Self::push).
    #[cfg_attr(not(debug_assertions), inline(always))]
    unsafe fn push_onto(
        &self,
        current: *mut Link,
        generation: Generation,
        link: NonNull<Link>,
    ) -> Result<Result<Pushed, Gone>, *mut Link> {
        // If the generations are the same, their bits cancel out.
        let state = current.addr() ^ generation.0;
        let pushed = if state == IDLE {
            Pushed::Woke
        } else if state & GENERATION_MASK != 0 {
            return Ok(Err(Gone));
        } else if state > FREE {
            // SAFETY: the message is the caller's by the contract. The older message exposed its
            // provenance when it was pushed (invariant 5).
            return unsafe { self.put_on_top(current, generation, link, state) }
                .map(|()| Ok(Pushed::Queued));
        } else if state == FREE {
            return Ok(Err(Gone));
        } else if state == AWAITING {
            Pushed::Awaited
        } else {
            Pushed::Queued
        };
        // SAFETY: the message is the caller's by the contract.
        unsafe { self.put_on_top(current, generation, link, 0) }.map(|()| Ok(pushed))
    }

    /// Puts a message on top of the older one at an address, or of none if that is zero, if the
    /// word is still `current`; returns the word if it is not.
    ///
    /// # Safety
    /// The same as for [`push`](Self::push).
    #[cfg_attr(not(debug_assertions), inline(always))]
    unsafe fn put_on_top(
        &self,
        current: *mut Link,
        generation: Generation,
        link: NonNull<Link>,
        older: usize,
    ) -> Result<(), *mut Link> {
        // For the link of the message that the next push puts on top (invariant 5).
        link.as_ptr().expose_provenance();
        // SAFETY: the message is the caller's by the contract: it is not pushed yet.
        unsafe { link.as_ref().set_next(ptr::without_provenance_mut(older)) };
        self.word
            .compare_exchange_weak(
                current,
                generation.tag(link.as_ptr()),
                Ordering::AcqRel,
                Ordering::Relaxed,
            )
            .map(drop)
    }

    /// Takes the token of an idle process without queueing anything; false if it is not idle.
    #[inline]
    pub(crate) fn wake(&self, generation: Generation) -> bool {
        self.word
            .compare_exchange(
                word(generation, IDLE),
                word(generation, BUSY),
                Ordering::AcqRel,
                Ordering::Relaxed,
            )
            .is_ok()
    }

    /// Takes all queued messages, oldest first. Called by the token's holder.
    #[inline]
    pub(crate) fn drain(&self, generation: Generation) -> *mut Link {
        let empty = word(generation, BUSY);
        if self.word.load(Ordering::Relaxed) == empty {
            return ptr::null_mut();
        }
        let (_, head) = Generation::untag(self.word.swap(empty, Ordering::AcqRel));
        // SAFETY: the swap unlinked the whole stack from the word, so only this call reaches it.
        unsafe {
            // The usual list, of a single message, is in order as it is.
            if head.addr() > AWAITING && (*head).next().is_null() {
                return head;
            }
            oldest_first(head)
        }
    }

    /// Returns the newest queued message, which links to the older ones; null if there is none.
    /// Called by the token's holder, the only thread that takes messages out.
    pub(crate) fn newest(&self) -> *mut Link {
        // Acquires the contents of the queued messages.
        let (_, head) = Generation::untag(self.word.load(Ordering::Acquire));
        if head.addr() <= FREE { ptr::null_mut() } else { head }
    }

    /// Asks for the running turn to be woken by the next push; false if a message was queued
    /// meanwhile. Called by the token's holder, after a drain.
    #[inline]
    pub(crate) fn await_message(&self, generation: Generation) -> bool {
        self.word
            .compare_exchange(
                word(generation, BUSY),
                word(generation, AWAITING),
                Ordering::AcqRel,
                Ordering::Relaxed,
            )
            .is_ok()
    }

    /// Wakes the process after a message was queued in its bounded queue, under a lock under which
    /// `park` and `await_message` are called, too.
    pub(crate) fn wake_for_push(&self, generation: Generation) -> Pushed {
        let mut current = self.word.load(Ordering::Relaxed);
        loop {
            let pushed = match current {
                _ if current == word(generation, IDLE) => Pushed::Woke,
                _ if current == word(generation, AWAITING) => Pushed::Awaited,
                // The token's holder checks the queue before it gives the token back.
                _ => return Pushed::Queued,
            };
            match self.word.compare_exchange(
                current,
                word(generation, BUSY),
                Ordering::AcqRel,
                Ordering::Relaxed,
            ) {
                Ok(_) => return pushed,
                Err(now) => current = now,
            }
        }
    }

    pub(crate) fn is_awaiting(&self, generation: Generation) -> bool {
        self.word.load(Ordering::Relaxed) == word(generation, AWAITING)
    }

    /// Whether nothing is queued for this generation and its process waits for messages only.
    #[cfg_attr(not(debug_assertions), inline(always))]
    pub(crate) fn is_at_rest(&self, generation: Generation) -> bool {
        let now = self.word.load(Ordering::Relaxed);
        now == word(generation, IDLE) || now == word(generation, AWAITING)
    }

    /// Gives the token back; false if a message was queued meanwhile, and the caller keeps the
    /// token.
    #[inline]
    pub(crate) fn park(&self, generation: Generation) -> bool {
        self.word
            .compare_exchange(
                word(generation, BUSY),
                word(generation, IDLE),
                Ordering::AcqRel,
                Ordering::Relaxed,
            )
            .is_ok()
    }

    /// Closes the mailbox if nothing is queued, and returns whether it did. Called by the token's
    /// holder.
    pub(crate) fn close_if_empty(&self, generation: Generation) -> bool {
        self.word
            .compare_exchange(
                word(generation, BUSY),
                word(generation.next(), FREE),
                Ordering::AcqRel,
                Ordering::Relaxed,
            )
            .is_ok()
    }

    /// Closes the mailbox and returns the queued messages, oldest first. Called by the token's
    /// holder.
    pub(crate) fn close(&self, generation: Generation) -> *mut Link {
        let closed = word(generation.next(), FREE);
        let (_, head) = Generation::untag(self.word.swap(closed, Ordering::AcqRel));
        // SAFETY: the swap unlinked the whole stack from the word, so only this call reaches it.
        unsafe { oldest_first(head) }
    }
}

/// Reverses a stack taken from the word.
///
/// # Safety
/// The caller owns every message reachable from `head`.
#[inline]
unsafe fn oldest_first(mut head: *mut Link) -> *mut Link {
    let mut list = ptr::null_mut();
    while head.addr() > AWAITING {
        // SAFETY: above `AWAITING` is no sentinel but a message, which the caller owns.
        let link = unsafe { &*head };
        // SAFETY: the caller owns the message.
        unsafe {
            let older = link.next();
            link.set_next(list);
            list = head;
            head = older;
        }
    }
    list
}

/// Messages for the tests and models of this file and of `turn_state`.
#[cfg(test)]
pub(crate) mod items {
    use super::*;

    #[repr(C, align(64))]
    struct Item {
        link: Link,
        value: u32,
    }

    pub(crate) fn item(value: u32) -> NonNull<Link> {
        NonNull::from(Box::leak(Box::new(Item { link: Link::new(), value }))).cast()
    }

    /// Frees a list of items and returns their values.
    ///
    /// # Safety
    /// The caller owns the list, all of whose messages were made by [`item`].
    pub(crate) unsafe fn take(mut list: *mut Link) -> Vec<u32> {
        let mut values = Vec::new();
        while !list.is_null() {
            // SAFETY: made by `item` and owned by the caller, by the contract.
            let item = unsafe { Box::from_raw(list.cast::<Item>()) };
            values.push(item.value);
            // SAFETY: the item was taken out of its box above, so only this call reaches its link.
            list = unsafe { item.link.next() };
        }
        values
    }
}

#[cfg(all(test, not(throng_loom)))]
mod tests_miri {
    use super::items::{item, take};
    use super::*;

    #[test]
    fn generations_count_through_both_halves_and_end_at_the_last() {
        for bounded in [false, true] {
            let mut generation = Generation::FIRST.with_bounded(bounded);
            let steps = if cfg!(miri) { 200 } else { (1 << 21) - 1 };
            for _ in 0..steps {
                assert!(!generation.is_last());
                let next = generation.next();
                assert_eq!((next.previous(), next.is_bounded()), (generation, bounded));
                generation = next;
            }
            assert!(cfg!(miri) || generation.is_last());
            assert!(cfg!(miri) || generation.with_bounded(false) == Generation::LAST);
        }
    }

    #[test]
    fn a_tag_survives_the_round_trip() {
        let target = Box::into_raw(Box::new(Aligned(7)));
        let generation = Generation::FIRST.next().next();
        let (back, pointer) = Generation::untag(generation.tag(target));
        assert_eq!((back, pointer), (generation, target));
        // SAFETY: the assertion above shows that this is `target`, which came from a box.
        assert_eq!(unsafe { Box::from_raw(pointer) }.0, 7);
    }

    #[repr(align(64))]
    struct Aligned(u8);

    /// Invariant 5. Miri, which reuses addresses, reports a link that is followed as a pointer.
    #[test]
    fn a_push_links_to_the_message_that_is_at_the_address_now() {
        let first = Generation::FIRST;
        let mailbox = Mailbox::new_open(first);
        // SAFETY: each push is of an item just made, or not pushed before; drained items are this
        // test's.
        unsafe {
            let slow = item(3);
            assert_eq!(mailbox.push(first, item(1)), Ok(Pushed::Woke));
            let seen_by_slow = mailbox.word.load(Ordering::Relaxed);
            assert_eq!(take(mailbox.drain(first)), [1]);
            // Takes the address of the freed message, if the allocator gives it out again.
            let items = (0..100).map(|_| item(2));
            let (same, others): (Vec<_>, Vec<_>) =
                items.partition(|item| first.tag(item.as_ptr()) == seen_by_slow);
            for other in others {
                take(other.as_ptr());
            }
            let Some(same) = same.first() else { return };
            assert_eq!(mailbox.push(first, *same), Ok(Pushed::Queued));
            while mailbox.push_onto(seen_by_slow, first, slow).is_err() {}
            assert_eq!(take(mailbox.drain(first)), [2, 3]);
        }
    }

    #[test]
    fn pushes_come_out_in_order_and_another_generation_is_refused() {
        let first = Generation::FIRST;
        let mailbox = Mailbox::new_open(first);
        // SAFETY: each push is of an item just made, or of the refused item, which is still this
        // test's.
        unsafe {
            assert_eq!(mailbox.push(first, item(1)), Ok(Pushed::Woke));
            assert_eq!(mailbox.push(first, item(2)), Ok(Pushed::Queued));
            assert!(!mailbox.park(first));
            assert_eq!(take(mailbox.drain(first)), [1, 2]);
            assert!(mailbox.await_message(first));
            assert_eq!(mailbox.push(first, item(5)), Ok(Pushed::Awaited));
            assert!(!mailbox.await_message(first));
            assert_eq!(take(mailbox.drain(first)), [5]);
            assert!(mailbox.await_message(first));
            assert_eq!(take(mailbox.drain(first)), [0; 0]);
            assert_eq!(mailbox.push(first, item(3)), Ok(Pushed::Queued));
            assert!(!mailbox.close_if_empty(first));
            assert_eq!(take(mailbox.close(first)), [3]);
            let refused = item(4);
            assert_eq!(mailbox.push(first, refused), Err(Gone));
            mailbox.open(first.next(), false);
            assert_eq!(mailbox.push(first, refused), Err(Gone));
            assert_eq!(mailbox.push(first.next(), refused), Ok(Pushed::Woke));
            assert_eq!(take(mailbox.close(first.next())), [4]);
        }
    }
}

#[cfg(all(test, throng_loom))]
mod loom_models {
    //! Every interleaving of pushers with a token's holder that drains, parks, closes and reopens.
    use super::items::{item, take};
    use super::*;
    use loom::sync::Arc;
    use loom::sync::atomic::AtomicU32;
    use loom::thread;

    /// Runs the process once as a worker would: drains until it can park.
    fn run(mailbox: &Mailbox, generation: Generation, into: &mut Vec<u32>) {
        loop {
            // SAFETY: the drained items are the caller's, the token's holder's.
            into.extend(unsafe { take(mailbox.drain(generation)) });
            if mailbox.park(generation) {
                return;
            }
        }
    }

    #[test]
    fn loom_each_push_is_handled_once_and_one_pusher_wakes() {
        loom::model(|| {
            let mailbox = Arc::new(Mailbox::new_open(Generation::FIRST));
            // Only the token guards the handled list: loom reports a data race if two threads hold
            // it.
            let handled = Arc::new(loom::cell::UnsafeCell::new(Vec::new()));
            let threads: Vec<_> = [1, 2]
                .map(|value| {
                    let (mailbox, handled) = (mailbox.clone(), handled.clone());
                    thread::spawn(move || {
                        // SAFETY: the item was just made.
                        let pushed = unsafe { mailbox.push(Generation::FIRST, item(value)) };
                        if pushed == Ok(Pushed::Woke) {
                            // SAFETY: this thread holds the token, which guards the list.
                            handled.with_mut(|list| unsafe {
                                run(&mailbox, Generation::FIRST, &mut *list);
                            });
                        }
                    })
                })
                .into_iter()
                .collect();
            for thread in threads {
                thread.join().unwrap();
            }
            // SAFETY: all threads are joined.
            handled.with_mut(|list| unsafe {
                (*list).sort_unstable();
                assert_eq!(*list, [1, 2]);
            });
        });
    }

    /// Models a bounded queue, in which messages wait beside the word under a lock: a sender wakes
    /// the process after it has queued, and the token is given back under the lock, if nothing
    /// waits.
    #[test]
    fn loom_a_message_queued_beside_the_word_is_handled_once() {
        loom::model(|| {
            let first = Generation::FIRST.with_bounded(true);
            let mailbox = Arc::new(Mailbox::new_open(first));
            let queue = Arc::new(loom::sync::Mutex::new(0_u32));
            let handled = Arc::new(loom::cell::UnsafeCell::new(0_u32));
            let senders = [(); 2].map(|()| {
                let (mailbox, queue, handled) = (mailbox.clone(), queue.clone(), handled.clone());
                thread::spawn(move || {
                    *queue.lock().unwrap() += 1;
                    if mailbox.wake_for_push(first) != Pushed::Woke {
                        return;
                    }
                    // SAFETY: this thread holds the token, which guards the number.
                    handled.with_mut(|handled| unsafe {
                        loop {
                            *handled += std::mem::take(&mut *queue.lock().unwrap());
                            let left = queue.lock().unwrap();
                            if *left == 0 && mailbox.park(first) {
                                return;
                            }
                        }
                    });
                })
            });
            for sender in senders {
                sender.join().unwrap();
            }
            // SAFETY: all threads are joined.
            handled.with(|handled| unsafe { assert_eq!(*handled, 2) });
        });
    }

    /// Models a turn that takes its messages itself, against two pushers: the thread that gets the
    /// token from the turn's word polls the turn as a worker would.
    #[test]
    fn loom_a_turn_that_awaits_messages_misses_none() {
        use crate::turn::turn_state::TurnState;
        loom::model(|| {
            let mailbox = Arc::new(Mailbox::new_open(Generation::FIRST));
            assert!(mailbox.wake(Generation::FIRST));
            let turn = Arc::new(TurnState::new());
            let received = Arc::new(loom::cell::UnsafeCell::new(Vec::new()));
            let run = {
                let (mailbox, turn, received) = (mailbox.clone(), turn.clone(), received.clone());
                move || loop {
                    turn.resume();
                    // SAFETY: this thread holds the token, and so owns the list and drained items.
                    let is_over = received.with_mut(|received| unsafe {
                        loop {
                            (*received).extend(take(mailbox.drain(Generation::FIRST)));
                            if (*received).len() == 2 {
                                return true;
                            }
                            if mailbox.await_message(Generation::FIRST) {
                                return false;
                            }
                        }
                    });
                    if is_over || turn.suspend() {
                        return;
                    }
                }
            };
            let pushers = [1, 2].map(|value| {
                let (mailbox, turn, run) = (mailbox.clone(), turn.clone(), run.clone());
                thread::spawn(move || {
                    // SAFETY: the item was just made.
                    match unsafe { mailbox.push(Generation::FIRST, item(value)) } {
                        Ok(Pushed::Awaited) if turn.notify() => run(),
                        Ok(Pushed::Awaited | Pushed::Queued) => {}
                        other => panic!("the process is alive and never idle: {other:?}"),
                    }
                })
            });
            run();
            for pusher in pushers {
                pusher.join().unwrap();
            }
            // SAFETY: all threads are joined.
            received.with_mut(|received| unsafe {
                (*received).sort_unstable();
                assert_eq!(*received, [1, 2]);
            });
        });
    }

    #[test]
    fn loom_a_reused_slot_never_receives_a_strangers_message() {
        loom::model(|| {
            let first = Generation::FIRST;
            let mailbox = Arc::new(Mailbox::new_open(first));
            let refused = Arc::new(AtomicU32::new(0));
            let sender = {
                let (mailbox, refused) = (mailbox.clone(), refused.clone());
                thread::spawn(move || {
                    let message = item(1);
                    // SAFETY: the item was just made; if the push is refused, it is still this
                    // thread's.
                    unsafe {
                        if mailbox.push(first, message).is_err() {
                            take(message.as_ptr());
                            refused.store(1, Ordering::Relaxed);
                        }
                    }
                })
            };
            // The process exits and its slot is opened for another with the generation found there,
            // as the slab does. If the sender was first, this thread uses the token that it got.
            let _ = mailbox.wake(first);
            // SAFETY: `close` passes the items on to this thread.
            let left = unsafe { take(mailbox.close(first)) };
            let (next, live) = mailbox.peek();
            assert!(!live);
            mailbox.open(next, true);
            sender.join().unwrap();
            // SAFETY: the drained items are this thread's, which opened the mailbox busy.
            let strangers = unsafe { take(mailbox.drain(next)) };
            assert!(strangers.is_empty());
            assert_eq!(left.len() + refused.load(Ordering::Relaxed) as usize, 1);
        });
    }

    #[test]
    fn loom_close_if_empty_loses_no_message() {
        loom::model(|| {
            let first = Generation::FIRST;
            let mailbox = Arc::new(Mailbox::new_open(first));
            assert!(mailbox.wake(first));
            let sender = {
                let mailbox = mailbox.clone();
                thread::spawn(move || {
                    let message = item(1);
                    // SAFETY: the item was just made; if the push is refused, it is still this
                    // thread's.
                    unsafe {
                        let pushed = mailbox.push(first, message);
                        if pushed.is_err() {
                            take(message.as_ptr());
                        }
                        pushed
                    }
                })
            };
            let closed = mailbox.close_if_empty(first);
            let pushed = sender.join().unwrap();
            // SAFETY: the drained items are this thread's, which woke the process.
            let queued = if closed { Vec::new() } else { unsafe { take(mailbox.drain(first)) } };
            assert_eq!(pushed, if closed { Err(Gone) } else { Ok(Pushed::Queued) });
            assert_eq!(queued.len(), usize::from(!closed));
        });
    }
}
