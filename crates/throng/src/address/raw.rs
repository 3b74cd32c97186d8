//! Delivery: an untyped address, and the ways by which a message or a signal reaches its process.
//!
//! A message goes by [`push`](RawAddress::push) where nothing limits it, by
//! [`offer`](RawAddress::offer) where a bound or the budget may refuse it, and by
//! [`offer_or_wait`](RawAddress::offer_or_wait) where its sender may wait for room.
//!
//! Only atomic words of a cell are touched through an address: the process may have exited, and the
//! slot may serve another. The mailbox's exchange compares the generation (invariant 1 of `mailbox`).

use crate::cell::{Cell, CellRef, Token};
use crate::mailbox::bounded::{BoundedQueue, Offered, Refusal, Waiter};
use crate::mailbox::budget::Budget;
use crate::mailbox::envelope;
use crate::mailbox::{Generation, Gone, Link};
use crate::memory::slab;
use crate::scheduler;
use std::fmt;
use std::ptr::NonNull;
use std::task::Waker;

/// A slot and the generation of the process in it, in one word: 42 bits of pointer, 22 of
/// generation, arranged as in a mailbox word.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct RawAddress(pub(super) NonNull<Cell>);

// SAFETY: of a cell without its token only atomics are touched.
unsafe impl Send for RawAddress {}
// SAFETY: the same.
unsafe impl Sync for RawAddress {}

impl RawAddress {
    pub(crate) fn new(cell: NonNull<Cell>, generation: Generation) -> RawAddress {
        // SAFETY: the pointer bits of a slot's address are not all zero.
        RawAddress(unsafe { NonNull::new_unchecked(generation.tag(cell.as_ptr())) })
    }

    #[inline(always)]
    pub(crate) fn parts(self) -> (Generation, CellRef) {
        let (generation, cell) = Generation::untag(self.0.as_ptr());
        // A slot is never at address zero, and an address is made from a live cell.
        // SAFETY: as said.
        (generation, unsafe { CellRef::new(NonNull::new_unchecked(cell)) })
    }

    /// Whether the process has a bound, and so a bounded queue.
    #[inline(always)]
    pub(crate) fn is_bounded(self) -> bool {
        self.parts().0.is_bounded()
    }

    /// Queues a signal, which any process takes, and sees to it that the process looks at it.
    ///
    /// # Safety
    /// The caller owns the message, and it is a signal.
    pub(crate) unsafe fn push_signal(self, message: NonNull<Link>) -> Result<(), Gone> {
        let (generation, cell) = self.parts();
        // SAFETY: the caller's.
        let bytes = unsafe { envelope::bytes(message) };
        let budget = slab::budget_of(cell);
        budget.charge(bytes);
        let pushed = if generation.is_bounded() {
            slab::bounded_queue_of(cell).ok_or(Gone).and_then(|queue| {
                // SAFETY: passed on.
                queue.push_signal(generation, || unsafe { cell.push_signal(generation, message) })
            })
        } else {
            // SAFETY: passed on.
            unsafe { cell.push_signal(generation, message) }
        };
        // It may become a message, which keeps its place among the sender's others.
        budget.note_signal();
        after_push(pushed, budget, bytes)
    }

    /// Whether the process has so many signals unread that it takes no more questions.
    pub(crate) fn is_crowded(self) -> bool {
        self.parts().1.is_crowded()
    }

    /// Queues a message that no bound and no budget holds up, and sees to it that the process runs.
    ///
    /// # Safety
    /// The caller owns the message, and it is one for the process's type.
    #[inline(always)]
    pub(crate) unsafe fn push(self, message: NonNull<Link>) -> Result<(), Gone> {
        let (generation, cell) = self.parts();
        // SAFETY: the caller's.
        let bytes = unsafe { envelope::bytes(message) };
        let budget = slab::budget_of(cell);
        if !budget.charge_here(bytes) {
            // SAFETY: passed on.
            return unsafe { self.push_from_outside(message, bytes) };
        }
        // SAFETY: passed on.
        let pushed = unsafe { cell.push(generation, message) };
        after_push(pushed, budget, bytes)
    }

    /// As [`push`](Self::push), on a thread that is no worker of the process's runtime.
    ///
    /// # Safety
    /// As there.
    #[cold]
    unsafe fn push_from_outside(self, message: NonNull<Link>, bytes: u32) -> Result<(), Gone> {
        let (generation, cell) = self.parts();
        let budget = slab::budget_of(cell);
        budget.charge(bytes);
        // SAFETY: passed on.
        let pushed = unsafe { cell.push(generation, message) };
        // After the push, and before anybody can be told of it: see `coupling`.
        budget.outside_pushes().note();
        after_push(pushed, budget, bytes)
    }

    /// Queues a message of a user's, if the process's bound and the runtime's budget allow it.
    ///
    /// # Safety
    /// As [`push`](Self::push).
    #[inline(always)]
    pub(crate) unsafe fn offer(self, message: NonNull<Link>) -> Result<(), Refusal> {
        let (generation, cell) = self.parts();
        if generation.is_bounded() || slab::budget_of(cell).is_over() {
            // SAFETY: passed on.
            return unsafe { self.offer_slowly(message, BoundedQueue::offer) }.map(|_| ());
        }
        // SAFETY: passed on.
        unsafe { self.push(message) }.map_err(|Gone| Refusal::Gone)
    }

    /// As [`offer`](Self::offer), but where a bound says that one waits for room, the message waits
    /// until there is some. The waker, if there is one, is called when that is over; without
    /// one the message itself must tell its sender, by its `refuse`.
    ///
    /// # Safety
    /// As [`push`](Self::push).
    #[inline(always)]
    pub(crate) unsafe fn offer_or_wait(
        self,
        message: NonNull<Link>,
        waker: Option<&Waker>,
    ) -> Result<Option<Waiter>, Refusal> {
        let (generation, cell) = self.parts();
        if generation.is_bounded() || slab::budget_of(cell).is_over() {
            // SAFETY: passed on.
            return unsafe {
                self.offer_slowly(message, |queue, generation, message| {
                    queue.offer_or_wait(generation, message, waker.cloned())
                })
            };
        }
        // SAFETY: passed on.
        unsafe { self.push(message) }.map_err(|Gone| Refusal::Gone).map(|()| None)
    }

    /// # Safety
    /// As [`push`](Self::push).
    #[cold]
    unsafe fn offer_slowly(
        self,
        message: NonNull<Link>,
        offer: impl FnOnce(&BoundedQueue, Generation, NonNull<Link>) -> Result<Offered, Refusal>,
    ) -> Result<Option<Waiter>, Refusal> {
        let (generation, cell) = self.parts();
        // SAFETY: the caller's.
        if !unsafe { envelope::is_counted(message) } {
            // SAFETY: passed on.
            return unsafe { self.push(message) }.map_err(|Gone| Refusal::Gone).map(|()| None);
        }
        let budget = slab::budget_of(cell);
        if budget.is_over() {
            return Err(if self.is_alive() { Refusal::Full } else { Refusal::Gone });
        }
        // Neither bounded nor, any more, over the budget.
        if !generation.is_bounded() {
            // SAFETY: passed on.
            return unsafe { self.push(message) }.map_err(|Gone| Refusal::Gone).map(|()| None);
        }
        let queue = slab::bounded_queue_of(cell).ok_or(Refusal::Gone)?;
        // SAFETY: the caller's.
        let bytes = unsafe { envelope::bytes(message) };
        budget.charge(bytes);
        let dropped = match offer(queue, generation, message) {
            Ok(Offered::Queued(dropped)) => dropped,
            Ok(Offered::Waiting(number)) => {
                return Ok(Some(Waiter { queue, budget, bytes, number }));
            }
            Err(refusal) => {
                budget.discharge(bytes);
                return Err(refusal);
            }
        };
        if let Some(token) = cell.wake_for_push(generation) {
            scheduler::schedule(token);
        }
        if let Some(dropped) = dropped {
            // SAFETY: out of the queue, which owned it; only what counts is dropped.
            unsafe {
                budget.discharge(envelope::bytes(dropped));
                envelope::refuse(dropped, Refusal::Dropped);
            }
        }
        Ok(None)
    }

    pub(crate) fn is_alive(self) -> bool {
        let (generation, cell) = self.parts();
        cell.generation() == Some(generation)
    }

    /// Whether a turn of this process runs or waits for something other than messages. May be out
    /// of date at once.
    #[inline(always)]
    pub(crate) fn is_in_turn(self) -> bool {
        let (generation, cell) = self.parts();
        cell.is_in_turn(generation)
    }

    /// Whether this is the address of the process that lives in that cell now.
    #[inline(always)]
    pub(crate) fn is_in(self, cell: CellRef) -> bool {
        self.parts().1 == cell && self.is_alive()
    }
}

/// Schedules a process that the push woke; takes the charge back if the push failed.
#[inline(always)]
fn after_push(
    pushed: Result<Option<Token>, Gone>,
    budget: &Budget,
    bytes: u32,
) -> Result<(), Gone> {
    match pushed {
        Ok(Some(token)) => scheduler::schedule(token),
        Ok(None) => {}
        Err(Gone) => {
            budget.discharge(bytes);
            return Err(Gone);
        }
    }
    Ok(())
}

impl fmt::LowerHex for RawAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::LowerHex::fmt(&self.0.as_ptr().addr(), f)
    }
}
