//! Delivery: an untyped address, and the ways by which a message or a signal reaches its process.
//!
//! | function | delivers |
//! |---|---|
//! | [`push`](RawAddress::push) | a message to which no limit applies |
//! | [`push_on`](RawAddress::push_on) | a user's message from a worker, if nothing can hold it up |
//! | [`offer`](RawAddress::offer) | a user's message, which a bound or the budget may hold up |
//! | [`push_signal`](RawAddress::push_signal) | a signal |
//!
//! An offer decides once: the message goes onto the mailbox's word, into the queue of a bounded
//! process, or back to its sender.
//!
//! Invariant: only atomic words of a cell are touched through an address, because the process may
//! have exited and the slot may serve another. The mailbox's exchange compares the generation
//! (invariant 1 of `mailbox`).

use crate::address::Pid;
use crate::cell::inspect::Borrowed;
use crate::cell::slab;
use crate::cell::{Cell, CellRef, Token};
use crate::mailbox::bound::Overflow;
use crate::mailbox::bounded::{BoundedQueue, Offered, Refusal, Waiter};
use crate::mailbox::budget::Budget;
use crate::mailbox::dead_letters::{DeadLetter, DropReason};
use crate::mailbox::envelope;
use crate::mailbox::{Generation, Gone, Link};
use crate::scheduler;
use crate::scheduler::worker::Worker;
use std::fmt;
use std::ptr::NonNull;
use std::task::Waker;

/// A slot and the generation of the process in it, in one word: 42 bits of pointer, 22 of
/// generation, arranged as in a mailbox word.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct RawAddress(pub(super) NonNull<Cell>);

// SAFETY: only atomics of a cell are touched through an address (invariant of the file's head).
unsafe impl Send for RawAddress {}
// SAFETY: as for `Send`: several threads touch only atomics of the cell.
unsafe impl Sync for RawAddress {}

/// Way of a user's message to its process.
enum Way {
    /// Onto the mailbox's word, as a message without limits.
    Word,
    /// Into the queue of a bounded process.
    Queue(&'static BoundedQueue),
}

/// Reaction of a sender to a full mailbox whose policy is `Overflow::Wait`.
#[derive(Clone, Copy)]
pub(crate) enum Patience<'a> {
    /// The message goes back to its sender.
    None,
    /// The message waits for room. The waker, if there is one, is called when the wait is over; without a waker the
    /// message's own `refuse` notifies its sender.
    UntilRoom(Option<&'a Waker>),
}

impl RawAddress {
    pub(crate) fn new(cell: NonNull<Cell>, generation: Generation) -> RawAddress {
        // SAFETY: a slot is never at address zero, and `tag` keeps the bits of its pointer.
        RawAddress(unsafe { NonNull::new_unchecked(generation.tag(cell.as_ptr())) })
    }

    #[cfg_attr(not(debug_assertions), inline(always))]
    pub(crate) fn parts(self) -> (Generation, CellRef) {
        let (generation, cell) = Generation::untag(self.0.as_ptr());
        // SAFETY: `new` made the word from a slot that a slab had handed out, and `untag` restores
        // that pointer, which is not zero.
        (generation, unsafe { CellRef::new(NonNull::new_unchecked(cell)) })
    }

    /// Returns a number of so many bits. As many processes started in a row have different numbers.
    #[cfg_attr(not(debug_assertions), inline(always))]
    pub(crate) fn place(self, bits: u32) -> usize {
        // Slots of one size follow each other, and the smallest take 64 bytes. With larger ones the
        // low bits repeat after a fraction of the numbers, and the sum fills the places between.
        let line = self.0.addr().get() >> 6;
        (line + (line >> bits)) & ((1 << bits) - 1)
    }

    #[cfg_attr(not(debug_assertions), inline(always))]
    pub(crate) fn is_bounded(self) -> bool {
        self.parts().0.is_bounded()
    }

    /// Queues a signal, which is for any type of process, and schedules or wakes the process.
    ///
    /// # Safety
    /// The caller owns the message, and it is a signal.
    pub(crate) unsafe fn push_signal(self, message: NonNull<Link>) -> Result<(), Gone> {
        let (generation, cell) = self.parts();
        // SAFETY: the caller owns the message, so it exists.
        let bytes = unsafe { envelope::bytes(message) };
        let budget = slab::budget_of(cell);
        let payer = budget.charge(bytes);
        let pushed = if generation.is_bounded() {
            slab::bounded_queue_of(cell).ok_or(Gone).and_then(|queue| {
                // SAFETY: the caller owns the message, and it is a signal.
                queue.push_signal(generation, || unsafe { cell.push_signal(generation, message) })
            })
        } else {
            // SAFETY: the caller owns the message, and it is a signal.
            unsafe { cell.push_signal(generation, message) }
        };
        // An exit signal may become a message, which must keep its place among the sender's
        // messages. So a push from outside the workers is counted: see `coupling::OutsidePushes`.
        budget.note_push(payer);
        after_push(pushed, budget, bytes)
    }

    /// Takes the token of a process that waits for messages and has none.
    pub(crate) fn wake(self) -> Option<Token> {
        let (generation, cell) = self.parts();
        cell.wake(generation)
    }

    /// Takes the token of a process that does nothing at present, without scheduling it; `None` on
    /// a thread that is no worker of the process's runtime, because that runtime would not wait for
    /// the thread when it ends.
    pub(crate) fn borrow(self) -> Option<Borrowed> {
        let (generation, cell) = self.parts();
        if slab::budget_of(cell).is_workers() { cell.borrow(generation) } else { None }
    }

    /// Whether the process has so many unread signals that it takes no more questions.
    pub(crate) fn is_crowded(self) -> bool {
        self.parts().1.is_crowded()
    }

    /// Queues a message to which no bound and no budget applies, and schedules or wakes the
    /// process.
    ///
    /// # Safety
    /// The caller owns the message, and it is for processes of this address's type.
    #[cfg_attr(not(debug_assertions), inline(always))]
    pub(crate) unsafe fn push(self, message: NonNull<Link>) -> Result<(), Gone> {
        let (generation, cell) = self.parts();
        // SAFETY: the caller owns the message, so it exists.
        let bytes = unsafe { envelope::bytes(message) };
        let budget = slab::budget_of(cell);
        let payer = budget.charge(bytes);
        // SAFETY: the caller owns the message, and it is for the type of process here.
        let pushed = unsafe { cell.push(generation, message) };
        budget.note_push(payer);
        after_push(pushed, budget, bytes)
    }

    /// Queues a message of a user's from a worker of the process's runtime. Returns whether the
    /// process was at rest; `None`, and the message is not queued, if it must be
    /// [offered](Self::offer).
    ///
    /// # Safety
    /// The same as for [`push`](Self::push); the message takes `bytes`.
    #[cfg_attr(not(debug_assertions), inline(always))]
    pub(crate) unsafe fn push_on(
        self,
        worker: &Worker,
        message: NonNull<Link>,
        bytes: u32,
    ) -> Option<Result<bool, Gone>> {
        let (generation, cell) = self.parts();
        if generation.is_bounded() || !worker.account.charge_message(slab::budget_of(cell), bytes) {
            return None;
        }
        // The budget is the worker's, so the process is of the worker's runtime.
        // SAFETY: the caller owns the message, and it is for the type of process here.
        Some(match unsafe { cell.push_on_word(generation, message) } {
            Ok(Some(token)) => {
                worker.push(token);
                Ok(true)
            }
            Ok(None) => Ok(false),
            Err(Gone) => {
                worker.account.discharge(bytes);
                Err(Gone)
            }
        })
    }

    /// Queues a message of a user's, if the process's bound and the runtime's budget allow it; if the
    /// mailbox is full and its policy is `Overflow::Wait`, a patient message waits for room.
    ///
    /// # Safety
    /// The same as for [`push`](Self::push).
    #[cfg_attr(not(debug_assertions), inline(always))]
    pub(crate) unsafe fn offer(
        self,
        message: NonNull<Link>,
        patience: Patience<'_>,
    ) -> Result<Option<Waiter>, Refusal> {
        let (generation, cell) = self.parts();
        if generation.is_bounded() || slab::budget_of(cell).is_over() {
            // SAFETY: both functions have the contract of this one.
            unsafe {
                if let Way::Queue(queue) = self.way(message)? {
                    return self.enqueue(queue, message, patience);
                }
            }
        }
        // SAFETY: this function has the same contract as the function it calls.
        unsafe { self.push(message) }.map_err(|Gone| Refusal::Gone).map(|()| None)
    }

    /// Returns the way of a message whose process is bounded, or whose runtime was over its budget when the
    /// caller looked.
    ///
    /// # Safety
    /// The caller owns the message.
    #[cold]
    unsafe fn way(self, message: NonNull<Link>) -> Result<Way, Refusal> {
        let (generation, cell) = self.parts();
        // SAFETY: the caller owns the message, so it exists.
        if !unsafe { envelope::is_counted(message) } {
            return Ok(Way::Word);
        }
        if slab::budget_of(cell).is_over() {
            return Err(if self.is_alive() { Refusal::Full } else { Refusal::Gone });
        }
        if !generation.is_bounded() {
            return Ok(Way::Word);
        }
        slab::bounded_queue_of(cell).map(Way::Queue).ok_or(Refusal::Gone)
    }

    /// Queues a counted message in the queue of its bounded process.
    ///
    /// # Safety
    /// The same as for [`push`](Self::push).
    #[cold]
    unsafe fn enqueue(
        self,
        queue: &'static BoundedQueue,
        message: NonNull<Link>,
        patience: Patience<'_>,
    ) -> Result<Option<Waiter>, Refusal> {
        let (generation, cell) = self.parts();
        let budget = slab::budget_of(cell);
        // SAFETY: the caller owns the message, so it exists.
        let bytes = unsafe { envelope::bytes(message) };
        budget.charge(bytes);
        let offered = match patience {
            Patience::None => queue.offer(generation, message),
            Patience::UntilRoom(waker) => queue.offer_or_wait(generation, message, waker.cloned()),
        };
        let dropped = match offered {
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
            // SAFETY: the queue owned the message (invariant 2 of `bounded`) and has removed it. It
            // drops counted messages only, and the charge is taken back first.
            unsafe {
                budget.discharge(envelope::bytes(dropped));
                let title = envelope::title_of(dropped);
                let lost = envelope::refuse(dropped, Refusal::Dropped);
                let reason = DropReason::Overflow(Overflow::DropOldest);
                budget.drops().count(DeadLetter::of(title, Pid::from_raw(self), reason, lost));
            }
        }
        Ok(None)
    }

    /// Returns the reason why a message was refused as an overload, for the count of the messages
    /// that are dropped then.
    #[cold]
    pub(crate) fn reason_of_overload(self) -> DropReason {
        let (generation, cell) = self.parts();
        let is_full = generation.is_bounded() && !slab::budget_of(cell).is_over();
        let queue = slab::bounded_queue_of(cell).filter(|_| is_full);
        queue.map_or(DropReason::Budget, |queue| DropReason::Overflow(queue.overflow()))
    }

    pub(crate) fn is_alive(self) -> bool {
        let (generation, cell) = self.parts();
        cell.generation() == Some(generation)
    }

    /// Whether a turn of this process runs or waits for something other than messages. The answer
    /// may be out of date at once.
    #[cfg_attr(not(debug_assertions), inline(always))]
    pub(crate) fn is_in_turn(self) -> bool {
        let (generation, cell) = self.parts();
        cell.is_in_turn(generation)
    }

    /// Whether this is the address of the process that lives in the cell.
    #[cfg_attr(not(debug_assertions), inline(always))]
    pub(crate) fn is_in(self, cell: CellRef) -> bool {
        self.parts().1 == cell && self.is_alive()
    }
}

/// Schedules the process if the push woke it; discharges the budget if the push failed.
#[cfg_attr(not(debug_assertions), inline(always))]
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
