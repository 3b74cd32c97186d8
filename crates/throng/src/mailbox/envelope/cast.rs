//! A cast in its envelope: a message whose sender waits for no reply.
//!
//! The sender owns the block until it is queued, then the mailbox, then the token's holder, which
//! moves the turn out and frees it. The bounded queue owns a cast that waits for room.

use super::{Dispatch, Envelope};
use crate::address::{Patience, Pid, RawAddress};
use crate::cell::Token;
use crate::cell::slab;
use crate::error::SendError;
use crate::exit::{ExitReason, drop_users};
use crate::mailbox::bound::Overflow;
use crate::mailbox::bounded::{Refusal, Waiter, WaiterState};
use crate::mailbox::budget;
use crate::mailbox::dead_letters::{DeadLetter, DropReason};
use crate::mailbox::{Gone, Link};
use crate::memory::block;
use crate::scheduler::watchdog::TurnTitle;
use crate::scheduler::worker::Worker;
use crate::turn::after::Progress;
use crate::turn::frame;
use crate::turn::process::{Process, Turn};
use std::alloc::Layout;
use std::marker::PhantomData;
use std::ptr::NonNull;
use std::task::Waker;

/// A message without a reply, in its envelope.
#[repr(C)]
pub(crate) struct Cast<P, T> {
    envelope: Envelope,
    turn: T,
    process: PhantomData<fn(P)>,
}

impl<P: Process, T: Turn<P>> Cast<P, T> {
    const BYTES: u32 = size_of::<Self>().next_multiple_of(64) as u32;
    const DISPATCH: &'static Dispatch = &Dispatch {
        run: Self::run,
        discard: Self::discard,
        uncouple: None,
        refuse: Some(Self::refuse),
        is_counted: true,
        bytes: Self::BYTES,
        is_signal: false,
        title: TurnTitle::of::<P, T>(),
        left: None,
    };

    /// Queues a user's cast, if bound and budget allow it.
    pub(crate) fn send(to: RawAddress, turn: T) -> Result<(), SendError<T>> {
        let message = Self::allocate(turn);
        // SAFETY: the message was just allocated, for a `P`; a refused message is still the
        // caller's.
        unsafe { offer(to, message).or_else(|refusal| Self::refused(to, message, refusal)) }
    }

    /// Queues a user's cast from a turn of a worker, if bound and budget allow it.
    #[cfg_attr(not(debug_assertions), inline(always))]
    pub(crate) fn send_from(worker: &Worker, to: RawAddress, turn: T) -> Result<(), SendError<T>> {
        let message = Self::allocate(turn);
        // SAFETY: the message was just allocated, for a `P`, and is charged with its own size; a
        // refused message is still the caller's.
        unsafe {
            let pushed = match to.push_on(worker, message, Self::BYTES) {
                Some(pushed) => pushed.map(|_| ()).map_err(|Gone| Refusal::Gone),
                None => offer(to, message),
            };
            pushed.or_else(|refusal| Self::refused(to, message, refusal))
        }
    }

    /// Queues a cast that no bound and no budget holds up; the turn comes back if the process has
    /// exited.
    #[cfg_attr(not(debug_assertions), inline(always))]
    pub(crate) fn push(to: RawAddress, turn: T) -> Result<(), T> {
        let message = Self::allocate(turn);
        // SAFETY: the message was just allocated, for a `P`; a refused message is still the
        // caller's.
        unsafe { to.push(message).map_err(|Gone| Self::take(message)) }
    }

    /// Queues a user's cast, or lets it wait for room; the waker is called when the cast has been
    /// admitted or sent back.
    pub(crate) fn offer_or_wait(
        to: RawAddress,
        turn: T,
        waker: &Waker,
    ) -> Result<Option<WaitingCast<T>>, (Refusal, T)> {
        let message = Self::allocate(turn);
        // SAFETY: the message was just allocated, for a `P`.
        match unsafe { to.offer(message, Patience::UntilRoom(Some(waker))) } {
            Ok(waiter) => Ok(waiter.map(|waiter| WaitingCast { waiter, cast: PhantomData })),
            // SAFETY: the refused message is still the caller's, and was allocated as this type.
            Err(refusal) => Err((refusal, unsafe { Self::take(message) })),
        }
    }

    /// Does the same as [`offer_or_wait`](Self::offer_or_wait), but drops the cast if the bound drops it.
    pub(crate) fn deliver(
        to: RawAddress,
        turn: T,
        waker: &Waker,
    ) -> Result<Option<WaitingCast<T>>, (Refusal, T)> {
        Self::offer_or_wait(to, turn, waker).or_else(|refused| match refused {
            (Refusal::Dropped, turn) => {
                Self::lose(to, turn, DropReason::Overflow(Overflow::DropNewest));
                Ok(None)
            }
            refused => Err(refused),
        })
    }

    /// Drops a turn that its process will not run, and counts it.
    #[cold]
    pub(crate) fn lose(to: RawAddress, turn: T, reason: DropReason) {
        drop_users(turn);
        let (title, lost) = (&Self::DISPATCH.title, u64::from(T::COUNTED));
        let letter = DeadLetter::of(title, Pid::from_raw(to), reason, lost);
        slab::budget_of(to.parts().1).drops().count(letter);
    }

    /// Drops a turn that could not be sent, and counts it.
    #[cold]
    pub(crate) fn lose_unsent(to: RawAddress, error: SendError<T>) {
        match error {
            SendError::NoProcess(turn) => Self::lose(to, turn, DropReason::NoProcess),
            SendError::Overloaded(turn) => Self::lose(to, turn, to.reason_of_overload()),
        }
    }

    /// Frees a refused cast, and returns the error with its turn; `Ok` if the bound drops it.
    ///
    /// # Safety
    /// The caller owns the message, which is of this type.
    #[cold]
    unsafe fn refused(
        to: RawAddress,
        message: NonNull<Link>,
        refusal: Refusal,
    ) -> Result<(), SendError<T>> {
        // SAFETY: `take` has the contract of this function.
        let turn = unsafe { Self::take(message) };
        match refusal {
            Refusal::Gone => Err(SendError::NoProcess(turn)),
            Refusal::Full => Err(SendError::Overloaded(turn)),
            Refusal::Dropped => {
                Self::lose(to, turn, DropReason::Overflow(Overflow::DropNewest));
                Ok(())
            }
        }
    }

    #[cfg_attr(not(debug_assertions), inline(always))]
    pub(crate) fn allocate(turn: T) -> NonNull<Link> {
        let message = block::allocate(Layout::new::<Self>()).cast::<Self>();
        let envelope = Envelope::new(Self::DISPATCH);
        // SAFETY: the block was just allocated with this layout.
        unsafe { message.write(Cast { envelope, turn, process: PhantomData }) };
        message.cast()
    }

    unsafe fn run(message: NonNull<Envelope>, token: &Token) -> Progress {
        budget::discharge_here(Self::BYTES);
        // SAFETY: `DISPATCH` heads only messages of this type, and its caller owns the message.
        // The turn is moved out once, and its block passed on.
        unsafe {
            let message = message.cast::<Self>();
            let turn = (&raw const (*message.as_ptr()).turn).read();
            frame::begin_in_place::<P, T, Self>(token, turn, message)
        }
    }

    unsafe fn discard(message: NonNull<Envelope>, _: &ExitReason) -> u64 {
        budget::discharge_here(Self::BYTES);
        // SAFETY: `DISPATCH` heads only messages of this type, and its caller owns the message.
        drop_users(unsafe { Self::take(message.cast()) });
        u64::from(T::COUNTED)
    }

    unsafe fn refuse(message: NonNull<Envelope>, _: Refusal) -> u64 {
        // SAFETY: `DISPATCH` heads only messages of this type, and its caller owns the message.
        drop_users(unsafe { Self::take(message.cast()) });
        u64::from(T::COUNTED)
    }
}

impl<P, T> Cast<P, T> {
    /// Takes the turn out and frees the block.
    ///
    /// # Safety
    /// The caller owns the message, which is a `Cast` of a `T` for any type of process: the layout
    /// does not depend on the process.
    #[cfg_attr(not(debug_assertions), inline(always))]
    unsafe fn take(message: NonNull<Link>) -> T {
        let message = message.cast::<Self>();
        // SAFETY: by the contract the block is the caller's; the turn is moved out once.
        unsafe {
            let turn = (&raw const (*message.as_ptr()).turn).read();
            block::free(message.cast(), Layout::new::<Self>());
            turn
        }
    }
}

/// Offers a message that does not wait for room.
///
/// # Safety
/// The caller owns the message, and it is for processes of this address's type.
#[cold]
unsafe fn offer(to: RawAddress, message: NonNull<Link>) -> Result<(), Refusal> {
    // SAFETY: this function has the same contract as the function it calls.
    unsafe { to.offer(message, Patience::None) }.map(|_| ())
}

/// [`Cast::offer_or_wait`] for a process whose type is erased.
pub(crate) type OfferOrWait<T> =
    fn(RawAddress, T, &Waker) -> Result<Option<WaitingCast<T>>, (Refusal, T)>;

/// A cast that waits for room in a full mailbox. Dropping this ends the wait, and drops the cast if
/// it has not been admitted.
pub(crate) struct WaitingCast<T> {
    waiter: Waiter,
    cast: PhantomData<fn() -> T>,
}

impl<T> WaitingCast<T> {
    /// Returns `Ok` once the cast has been admitted, and the turn if the process has exited first;
    /// `None` while the cast waits, and then the waker is called at the end of the wait.
    pub(crate) fn poll(&self, waker: &Waker) -> Option<Result<(), T>> {
        match self.waiter.poll(waker) {
            WaiterState::Waiting => None,
            WaiterState::Admitted => Some(Ok(())),
            // SAFETY: `offer_or_wait`, which makes every `WaitingCast<T>`, queued a `Cast` of a
            // `T`; by returning the message, the queue gives it to this caller.
            WaiterState::Returned(message) => Some(Err(unsafe { Cast::<(), T>::take(message) })),
        }
    }

    /// Ends the wait: the turn comes back, unless the cast was admitted first.
    pub(crate) fn withdraw(&self) -> Option<T> {
        // SAFETY: `offer_or_wait`, which makes every `WaitingCast<T>`, queued a `Cast` of a `T`;
        // the queue gives up the message that `withdraw` returns.
        self.waiter.withdraw().map(|message| unsafe { Cast::<(), T>::take(message) })
    }
}

impl<T> Drop for WaitingCast<T> {
    fn drop(&mut self) {
        if let Some(turn) = self.withdraw() {
            drop_users(turn);
        }
    }
}
