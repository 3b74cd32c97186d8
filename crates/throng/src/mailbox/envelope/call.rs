//! A call in its envelope: the caller's share and the callee's share in one block.
//!
//! The callee's side owns the body until it completes the reply slot, the caller's side after that;
//! the slot says which of the two is the last and frees the block.

use super::{Dispatch, Envelope};
use crate::address::{Address, RawAddress};
use crate::cell::Token;
use crate::error::CallError;
use crate::exit::{ExitReason, catch, drop_users};
use crate::mailbox::bounded::{Refusal, Waiter};
use crate::mailbox::budget;
use crate::mailbox::reply_slot::{Completed, ReplySlot};
use crate::memory::block;
use crate::process::{Process, Turn};
use crate::scheduler::watchdog::TurnTitle;
use crate::sync::UnsafeCell;
use crate::turn::frame::{self, Progress, Sink};
use std::alloc::Layout;
use std::marker::PhantomData;
use std::mem::ManuallyDrop;
use std::ptr::NonNull;
use std::task::Waker;

/// A message whose sender waits for the outcome.
#[repr(C)]
struct CallEnvelope<T, R> {
    envelope: Envelope,
    reply_slot: ReplySlot,
    body: UnsafeCell<Body<T, R>>,
}

/// What is in the message: the turn until it is run, then nothing, then the outcome.
union Body<T, R> {
    turn: ManuallyDrop<T>,
    outcome: ManuallyDrop<Outcome<T, R>>,
}

pub(crate) type Outcome<T, R> = Result<R, Failure<T>>;

/// Why a call has no reply. The turn is in a box, if it comes back, so that outcomes stay small.
pub(crate) enum Failure<T> {
    Died(ExitReason),
    NoProcess(Box<T>),
    Overloaded(Box<T>),
}

impl<T> From<Failure<T>> for CallError<T> {
    fn from(failure: Failure<T>) -> CallError<T> {
        match failure {
            Failure::Died(reason) => CallError::Died(reason),
            Failure::NoProcess(turn) => CallError::NoProcess(*turn),
            Failure::Overloaded(turn) => CallError::Overloaded(*turn),
        }
    }
}

impl<T, R> CallEnvelope<T, R> {
    fn allocate(dispatch: &'static Dispatch, turn: T, waker: &Waker) -> NonNull<Self> {
        let message = block::allocate(Layout::new::<Self>()).cast::<Self>();
        // SAFETY: freshly allocated with this layout.
        unsafe {
            message.write(CallEnvelope {
                envelope: Envelope::new(dispatch),
                reply_slot: ReplySlot::new(waker),
                body: UnsafeCell::new(Body { turn: ManuallyDrop::new(turn) }),
            });
        }
        message
    }

    /// Takes the outcome and frees the message.
    ///
    /// # Safety
    /// The caller's is the last side, the outcome is there, and this happens once.
    unsafe fn take_outcome(message: NonNull<Self>) -> Outcome<T, R> {
        // SAFETY: by the contract.
        unsafe {
            let body = &(*message.as_ptr()).body;
            let outcome = body.with_mut(|body| ManuallyDrop::take(&mut (*body).outcome));
            block::free(message.cast(), Layout::new::<Self>());
            outcome
        }
    }

    /// Takes the turn out of a message that has not been run.
    ///
    /// # Safety
    /// The caller owns the callee's side of the message.
    #[inline(always)]
    unsafe fn take_turn(message: NonNull<Self>) -> T {
        // SAFETY: the body holds the turn until it is run, and it is taken once.
        unsafe {
            let body = &(*message.as_ptr()).body;
            body.with_mut(|body| ManuallyDrop::take(&mut (*body).turn))
        }
    }

    /// Takes the turn out of a message nobody answers, and frees it.
    ///
    /// # Safety
    /// The caller owns both sides of the message, which has not been run.
    unsafe fn withdraw(message: NonNull<Self>) -> T {
        // SAFETY: by the contract.
        unsafe {
            (*message.as_ptr()).reply_slot.disarm();
            let turn = Self::take_turn(message);
            block::free(message.cast(), Layout::new::<Self>());
            turn
        }
    }
}

/// What a `P` does with a call by a `T`.
struct CallDispatch<P, T>(PhantomData<fn(P, T)>);

impl<P: Process, T: Turn<P>> CallDispatch<P, T> {
    const BYTES: u32 = size_of::<CallEnvelope<T, T::Reply>>().next_multiple_of(64) as u32;
    const DISPATCH: &'static Dispatch = &Dispatch {
        run: Self::run,
        discard: Self::discard,
        uncouple: None,
        refuse: Some(Self::refuse),
        is_counted: T::COUNTED,
        bytes: Self::BYTES,
        is_signal: false,
        title: TurnTitle::of::<P, T>(),
        left: None,
    };

    unsafe fn run(message: NonNull<Envelope>, token: &Token) -> Progress {
        budget::discharge_here(Self::BYTES);
        let message = message.cast::<CallEnvelope<T, T::Reply>>();
        // SAFETY: the dispatch functions are those of the message's type.
        unsafe {
            let turn = CallEnvelope::take_turn(message);
            frame::begin::<P, T, _>(token, turn, Responder(message))
        }
    }

    unsafe fn discard(message: NonNull<Envelope>, reason: &ExitReason) {
        budget::discharge_here(Self::BYTES);
        let message = message.cast::<CallEnvelope<T, T::Reply>>();
        // SAFETY: as in `run`.
        drop_users(unsafe { CallEnvelope::take_turn(message) });
        Responder(message).fail(reason);
    }

    unsafe fn refuse(message: NonNull<Envelope>, refusal: Refusal) {
        let message = message.cast::<CallEnvelope<T, T::Reply>>();
        // SAFETY: as in `run`.
        let turn = Box::new(unsafe { CallEnvelope::take_turn(message) });
        let refused = Responder(message).complete(Err(match refusal {
            Refusal::Gone => Failure::NoProcess(turn),
            Refusal::Full | Refusal::Dropped => Failure::Overloaded(turn),
        }));
        if let Err(unwanted) = refused {
            drop_users(unwanted);
        }
    }
}

/// Where a call by a `T` goes, for a reply `R`: a process whose type is known no more.
pub(crate) struct Route<T, R> {
    address: RawAddress,
    /// That of a `CallDispatch`, for the type of process at the address.
    dispatch: &'static Dispatch,
    message: PhantomData<fn(T) -> R>,
}

impl<T, R> Route<T, R> {
    #[inline(always)]
    pub(crate) fn to<P: Process>(process: Address<P>) -> Self
    where
        T: Turn<P, Reply = R>,
    {
        let dispatch = CallDispatch::<P, T>::DISPATCH;
        Route { address: process.raw(), dispatch, message: PhantomData }
    }

    pub(crate) fn address(&self) -> RawAddress {
        self.address
    }
}

/// The asker's share in a message: a reply to come. Dropping it gives the outcome up, and with
/// it the message if that still waits for room.
pub(crate) struct PendingReply<T, R> {
    message: NonNull<CallEnvelope<T, R>>,
    /// The message's place among the waiters, if there was no room for it.
    waiter: Option<Box<Waiter>>,
}

// SAFETY: turn, reply and reason are `Send`, and the reply slot orders their hand-over.
unsafe impl<T: Send, R: Send> Send for PendingReply<T, R> {}

/// How far a call was that has been given up.
#[must_use]
pub(crate) enum GivenUp<T, R> {
    /// The outcome had come first.
    Over(Outcome<T, R>),
    /// The message waits in the mailbox, or is being handled.
    Enqueued,
    /// There was no room for the message yet; here it is.
    Withdrawn(T),
}

impl<T, R> PendingReply<T, R> {
    /// Queues a call, or has it wait for room if that is what the mailbox's bound says.
    #[inline]
    pub(crate) fn send(route: Route<T, R>, turn: T, waker: &Waker) -> Result<Self, CallError<T>> {
        let message = CallEnvelope::<T, R>::allocate(route.dispatch, turn, waker);
        // SAFETY: just allocated, for the route's type of process; if it was not queued, it is still all ours.
        unsafe {
            match route.address.offer_or_wait(message.cast(), None) {
                Ok(waiter) => Ok(PendingReply { message, waiter: waiter.map(Box::new) }),
                Err(refusal) => Err(Self::refused(message, refusal)),
            }
        }
    }

    /// # Safety
    /// As [`CallEnvelope::withdraw`].
    #[cold]
    unsafe fn refused(message: NonNull<CallEnvelope<T, R>>, refusal: Refusal) -> CallError<T> {
        // SAFETY: passed on.
        let turn = unsafe { CallEnvelope::withdraw(message) };
        match refusal {
            Refusal::Gone => CallError::NoProcess(turn),
            Refusal::Full | Refusal::Dropped => CallError::Overloaded(turn),
        }
    }

    fn reply_slot(&self) -> &ReplySlot {
        // SAFETY: neither abandoned nor done, so the message is there.
        unsafe { &(*self.message.as_ptr()).reply_slot }
    }

    /// Ends the message's wait for room; the message is ours then, if it still waited.
    #[inline(always)]
    fn withdraw_waiter(&mut self) -> bool {
        // What comes back is this very message: it is returned, if its process exits, by `refuse`.
        self.waiter.take().is_some_and(|waiter| waiter.withdraw().is_some())
    }

    /// The outcome, or this again, to be woken by this waker.
    #[inline]
    pub(crate) fn poll(self, waker: &Waker) -> Result<Outcome<T, R>, Self> {
        if !self.reply_slot().renew(waker) {
            return Err(self);
        }
        // SAFETY: done, so the message is ours, and taken here once.
        Ok(unsafe { CallEnvelope::take_outcome(self.into_message()) })
    }

    /// Gives up, unless the outcome came first.
    pub(crate) fn give_up(mut self) -> GivenUp<T, R> {
        if self.withdraw_waiter() {
            // SAFETY: neither queued nor waiting, so both sides are ours.
            return GivenUp::Withdrawn(unsafe { CallEnvelope::withdraw(self.into_message()) });
        }
        if self.reply_slot().abandon() {
            // SAFETY: the outcome came first, so the message is ours, and taken here once.
            return GivenUp::Over(unsafe { CallEnvelope::take_outcome(self.into_message()) });
        }
        self.into_message();
        GivenUp::Enqueued
    }

    /// Lets the message be somebody else's care.
    fn into_message(self) -> NonNull<CallEnvelope<T, R>> {
        let mut this = ManuallyDrop::new(self);
        this.waiter = None;
        this.message
    }
}

impl<T, R> Drop for PendingReply<T, R> {
    fn drop(&mut self) {
        if self.withdraw_waiter() {
            // SAFETY: as in `give_up`.
            drop_users(unsafe { CallEnvelope::withdraw(self.message) });
        } else if self.reply_slot().abandon() {
            // SAFETY: the outcome came first, so the message is ours.
            drop_users(unsafe { CallEnvelope::take_outcome(self.message) });
        }
    }
}

/// The duty to answer: to be [completed](Self::complete) once.
#[must_use]
pub(crate) struct Responder<T, R>(NonNull<CallEnvelope<T, R>>);

// SAFETY: turn, reply and reason are `Send`, and the reply slot orders their hand-over.
unsafe impl<T: Send, R: Send> Send for Responder<T, R> {}
// SAFETY: shared, it only shows the reply slot, which is made of atomics.
unsafe impl<T: Send, R: Send> Sync for Responder<T, R> {}

impl<T, R> Responder<T, R> {
    /// Answers; the outcome comes back if nobody wants it any more.
    #[inline(always)]
    pub(crate) fn complete(self, outcome: Outcome<T, R>) -> Result<(), Outcome<T, R>> {
        let message = self.0;
        // SAFETY: until completed, the body is ours and the message is there.
        let completed = unsafe {
            let call = &*message.as_ptr();
            call.body.with_mut(|body| (*body).outcome = ManuallyDrop::new(outcome));
            call.reply_slot.complete()
        };
        match completed {
            Completed::Delivered(Some(waker)) => {
                // Most are ours, but any future may poll a call with a waker of its own.
                let _ = catch(|| waker.wake());
                Ok(())
            }
            Completed::Delivered(None) => Ok(()),
            // SAFETY: nobody wants it, so ours is the last side.
            Completed::Unwanted => Err(unsafe { CallEnvelope::take_outcome(message) }),
        }
    }

    /// Whether somebody still waits for the outcome.
    pub(crate) fn is_awaited(&self) -> bool {
        // SAFETY: not completed, so the message is there.
        !unsafe { &(*self.0.as_ptr()).reply_slot }.is_abandoned()
    }
}

impl<T: Send + 'static, R: Send + 'static> Sink for Responder<T, R> {
    type Reply = R;

    #[inline(always)]
    fn deliver(self, reply: R) {
        if let Err(unwanted) = self.complete(Ok(reply)) {
            drop_users(unwanted);
        }
    }

    fn fail(self, reason: &ExitReason) {
        if let Err(unwanted) = self.complete(Err(Failure::Died(reason.clone()))) {
            drop_users(unwanted);
        }
    }
}

/// The two shares in an outcome that is no message's: whoever is given the second may answer.
///
/// The block is a call's all the same, whose envelope nobody looks at: it is 64 bytes long at least,
/// so most replies fit beside it.
pub(crate) fn question<R>(waker: &Waker) -> (PendingReply<(), R>, Responder<(), R>) {
    unsafe fn run(_: NonNull<Envelope>, _: &Token) -> Progress {
        unreachable!("a question is in no mailbox")
    }
    unsafe fn discard(_: NonNull<Envelope>, _: &ExitReason) {
        unreachable!("a question is in no mailbox")
    }
    const DISPATCH: &Dispatch = &Dispatch::aside(run, discard, TurnTitle::SIGNAL);
    let message = CallEnvelope::allocate(DISPATCH, (), waker);
    (PendingReply { message, waiter: None }, Responder(message))
}
