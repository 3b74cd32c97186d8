//! A call in its envelope: the caller's share and the callee's share in one block.
//!
//! The callee's side owns the body until it completes the reply slot, the caller's side after that.
//! The slot determines which side is the last; that side frees the block.

use super::{Dispatch, Envelope};
use crate::address::{Address, Patience, RawAddress};
use crate::cell::Token;
use crate::error::CallError;
use crate::exit::{ExitReason, drop_users};
use crate::mailbox::Gone;
use crate::mailbox::bounded::{Refusal, Waiter};
use crate::mailbox::budget;
use crate::mailbox::reply_slot::{Completed, ReplySlot};
use crate::memory::block;
use crate::scheduler::watchdog::TurnTitle;
use crate::scheduler::worker::Worker;
use crate::sync::UnsafeCell;
use crate::turn::after::Progress;
use crate::turn::frame;
use crate::turn::process::{Process, Turn};
use crate::turn::sink::Sink;
use crate::turn::waker;
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

/// Contents of the message: the turn until it is run, then nothing, then the outcome.
union Body<T, R> {
    turn: ManuallyDrop<T>,
    outcome: ManuallyDrop<Outcome<T, R>>,
}

pub(crate) type Outcome<T, R> = Result<R, Failure<T>>;

/// Reason why a call has no reply. A turn that comes back is in a box, so that outcomes stay small.
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
    const BYTES: u32 = size_of::<Self>().next_multiple_of(64) as u32;

    #[cfg_attr(not(debug_assertions), inline(always))]
    fn allocate(dispatch: &'static Dispatch, turn: T, reply_slot: ReplySlot) -> NonNull<Self> {
        let message = block::allocate(Layout::new::<Self>()).cast::<Self>();
        // SAFETY: the block was just allocated with this layout.
        unsafe {
            message.write(CallEnvelope {
                envelope: Envelope::new(dispatch),
                reply_slot,
                body: UnsafeCell::new(Body { turn: ManuallyDrop::new(turn) }),
            });
        }
        message
    }

    /// Takes the outcome and frees the message.
    ///
    /// # Safety
    /// The body holds the outcome, the reply slot has made the caller's side the last, and the
    /// message is not used again.
    #[cfg_attr(not(debug_assertions), inline(always))]
    unsafe fn take_outcome(message: NonNull<Self>) -> Outcome<T, R> {
        // SAFETY: by the contract only this side reaches the block, and takes the outcome once.
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
    #[cfg_attr(not(debug_assertions), inline(always))]
    unsafe fn take_turn(message: NonNull<Self>) -> T {
        // SAFETY: the body is the callee's side's; it holds the turn until that is taken here,
        // once.
        unsafe {
            let body = &(*message.as_ptr()).body;
            body.with_mut(|body| ManuallyDrop::take(&mut (*body).turn))
        }
    }

    /// Takes the turn out of a message that no callee will answer, and frees the message.
    ///
    /// # Safety
    /// The caller owns both sides of the message, which has not been run.
    unsafe fn withdraw(message: NonNull<Self>) -> T {
        // SAFETY: by the contract only the caller reaches the block; waker and turn are taken once.
        unsafe {
            (*message.as_ptr()).reply_slot.disarm();
            let turn = Self::take_turn(message);
            block::free(message.cast(), Layout::new::<Self>());
            turn
        }
    }
}

/// Dispatch of a call by the turn `T` to a process `P`.
struct CallDispatch<P, T>(PhantomData<fn(P, T)>);

impl<P: Process, T: Turn<P>> CallDispatch<P, T> {
    const BYTES: u32 = CallEnvelope::<T, T::Reply>::BYTES;
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
        // SAFETY: `DISPATCH` heads only messages of this type; its caller owns the callee's side.
        unsafe {
            let turn = CallEnvelope::take_turn(message);
            frame::begin::<P, T, _>(token, turn, Responder(message))
        }
    }

    unsafe fn discard(message: NonNull<Envelope>, reason: &ExitReason) -> u64 {
        budget::discharge_here(Self::BYTES);
        let message = message.cast::<CallEnvelope<T, T::Reply>>();
        // SAFETY: `DISPATCH` heads only messages of this type; its caller owns the callee's side.
        drop_users(unsafe { CallEnvelope::take_turn(message) });
        Responder(message).fail(reason);
        u64::from(T::COUNTED)
    }

    unsafe fn refuse(message: NonNull<Envelope>, refusal: Refusal) -> u64 {
        let message = message.cast::<CallEnvelope<T, T::Reply>>();
        // SAFETY: `DISPATCH` heads only messages of this type; its caller owns the callee's side.
        let turn = Box::new(unsafe { CallEnvelope::take_turn(message) });
        let refused = Responder(message).complete(Err(match refusal {
            Refusal::Gone => Failure::NoProcess(turn),
            Refusal::Full | Refusal::Dropped => Failure::Overloaded(turn),
        }));
        match refused {
            Ok(()) => 0,
            Err(unwanted) => {
                drop_users(unwanted);
                u64::from(T::COUNTED)
            }
        }
    }
}

/// Destination of a call by the turn `T` with the reply `R`: a process whose type is erased.
pub(crate) struct Route<T, R> {
    address: RawAddress,
    /// `CallDispatch::DISPATCH` for the type of the process at the address.
    dispatch: &'static Dispatch,
    message: PhantomData<fn(T) -> R>,
}

impl<T, R> Route<T, R> {
    #[cfg_attr(not(debug_assertions), inline(always))]
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

/// The caller's side of a message: a pending reply. Dropping it gives the outcome up, and also the
/// message if that still waits for room.
pub(crate) struct PendingReply<T, R> {
    message: NonNull<CallEnvelope<T, R>>,
    /// The message's place among the waiters, if there was no room for it.
    waiter: Option<Box<Waiter>>,
}

// SAFETY: turn, reply and reason are `Send`, and the reply slot orders their hand-over.
unsafe impl<T: Send, R: Send> Send for PendingReply<T, R> {}

/// Progress of a call at the time when it was given up.
#[must_use]
pub(crate) enum GivenUp<T, R> {
    /// The outcome was there before.
    Over(Outcome<T, R>),
    /// The message waits in the mailbox, or is being handled.
    Enqueued,
    /// The message still waited for room and is returned.
    Withdrawn(T),
}

impl<T, R> PendingReply<T, R> {
    /// Queues a call, or lets it wait for room if the mailbox's bound says so. Also returns whether
    /// the process was in a turn.
    #[cfg_attr(not(debug_assertions), inline(always))]
    pub(crate) fn send(
        worker: Option<&Worker>,
        route: Route<T, R>,
        turn: T,
        waker: &Waker,
    ) -> Result<(Self, bool), CallError<T>> {
        let reply_slot = ReplySlot::new(waker::clone_of(waker));
        let message = CallEnvelope::<T, R>::allocate(route.dispatch, turn, reply_slot);
        let to = route.address;
        // SAFETY: the message was just allocated, for the route's type of process; if it is
        // refused, both of its sides are still the caller's.
        unsafe {
            let bytes = CallEnvelope::<T, R>::BYTES;
            match worker.and_then(|worker| to.push_on(worker, message.cast(), bytes)) {
                Some(Ok(was_at_rest)) => Ok((PendingReply { message, waiter: None }, !was_at_rest)),
                Some(Err(Gone)) => Err(Self::refused(message, Refusal::Gone)),
                None => Self::send_slowly(to, message),
            }
        }
    }

    /// Queues a call like [`send`](Self::send), from outside the process's runtime or to a process
    /// with a bound.
    ///
    /// # Safety
    /// The message was just allocated, for the type of process at the address.
    #[cold]
    unsafe fn send_slowly(
        to: RawAddress,
        message: NonNull<CallEnvelope<T, R>>,
    ) -> Result<(Self, bool), CallError<T>> {
        let is_in_turn = to.is_in_turn();
        // SAFETY: by the contract; if the message is refused, both of its sides are still the
        // caller's.
        unsafe {
            match to.offer(message.cast(), Patience::UntilRoom(None)) {
                Ok(waiter) => {
                    let waiter = waiter.map(Box::new);
                    Ok((PendingReply { message, waiter }, is_in_turn))
                }
                Err(refusal) => Err(Self::refused(message, refusal)),
            }
        }
    }

    /// Frees a message that was not queued, and returns the error with its turn.
    ///
    /// # Safety
    /// The caller owns both sides of the message, which has not been run.
    #[cold]
    unsafe fn refused(message: NonNull<CallEnvelope<T, R>>, refusal: Refusal) -> CallError<T> {
        // SAFETY: `withdraw` has the contract of this function.
        let turn = unsafe { CallEnvelope::withdraw(message) };
        match refusal {
            Refusal::Gone => CallError::NoProcess(turn),
            Refusal::Full | Refusal::Dropped => CallError::Overloaded(turn),
        }
    }

    #[cfg_attr(not(debug_assertions), inline(always))]
    fn reply_slot(&self) -> &ReplySlot {
        // SAFETY: this side has neither abandoned the slot nor taken the outcome, so the message
        // is there.
        unsafe { &(*self.message.as_ptr()).reply_slot }
    }

    /// Ends the message's wait for room. If it still waited, returns true: both sides of the
    /// message are the caller's then.
    #[cfg_attr(not(debug_assertions), inline(always))]
    fn withdraw_waiter(&mut self) -> bool {
        // The message that comes back is `self.message`. If its process exits, `refuse` returns it.
        self.waiter.take().is_some_and(|waiter| waiter.withdraw().is_some())
    }

    /// Whether the outcome is there; if not, stores the waker.
    #[cfg_attr(not(debug_assertions), inline(always))]
    pub(crate) fn is_done(&self, waker: &Waker) -> bool {
        self.reply_slot().renew(waker)
    }

    /// Whether the outcome is there or [detached](Responder::detach), so that the caller does not
    /// wait for the process that got the message.
    pub(crate) fn is_detached(&self) -> bool {
        self.reply_slot().is_detached()
    }

    /// Returns the outcome.
    ///
    /// # Panics
    /// If the outcome is not there.
    #[cfg_attr(not(debug_assertions), inline(always))]
    pub(crate) fn into_outcome(self) -> Outcome<T, R> {
        assert!(self.reply_slot().is_done(), "the outcome is taken when it is there");
        // SAFETY: the slot is `DONE`, so this side is the last, and takes the outcome here once.
        unsafe { CallEnvelope::take_outcome(self.into_message()) }
    }

    /// Gives up, unless the outcome came first.
    pub(crate) fn give_up(mut self) -> GivenUp<T, R> {
        if self.withdraw_waiter() {
            // SAFETY: the message is neither queued nor waits for room, so both sides are the
            // caller's, and it has not been run.
            return GivenUp::Withdrawn(unsafe { CallEnvelope::withdraw(self.into_message()) });
        }
        if self.reply_slot().abandon() {
            // SAFETY: the slot is `DONE`, so this side is the last, and takes the outcome here
            // once.
            return GivenUp::Over(unsafe { CallEnvelope::take_outcome(self.into_message()) });
        }
        self.into_message();
        GivenUp::Enqueued
    }

    /// Returns the message without giving it up: the caller becomes responsible for it.
    #[cfg_attr(not(debug_assertions), inline(always))]
    fn into_message(self) -> NonNull<CallEnvelope<T, R>> {
        let mut this = ManuallyDrop::new(self);
        this.waiter = None;
        this.message
    }
}

impl<T, R> Drop for PendingReply<T, R> {
    fn drop(&mut self) {
        if self.withdraw_waiter() {
            // SAFETY: the message is neither queued nor waits for room, so both sides are the
            // caller's, and it has not been run.
            drop_users(unsafe { CallEnvelope::withdraw(self.message) });
        } else if self.reply_slot().abandon() {
            // SAFETY: the slot is `DONE`, so this side is the last, and takes the outcome here
            // once.
            drop_users(unsafe { CallEnvelope::take_outcome(self.message) });
        }
    }
}

/// The callee's side of a message: the duty to answer, to be [completed](Self::complete) once.
#[must_use]
pub(crate) struct Responder<T, R>(NonNull<CallEnvelope<T, R>>);

// SAFETY: turn, reply and reason are `Send`, and the reply slot orders their hand-over.
unsafe impl<T: Send, R: Send> Send for Responder<T, R> {}
// SAFETY: a shared responder gives access only to the reply slot, which consists of atomics.
unsafe impl<T: Send, R: Send> Sync for Responder<T, R> {}

impl<T, R> Responder<T, R> {
    /// Answers; the outcome comes back if the caller has given up.
    #[cfg_attr(not(debug_assertions), inline(always))]
    pub(crate) fn complete(self, outcome: Outcome<T, R>) -> Result<(), Outcome<T, R>> {
        let message = self.0;
        // SAFETY: until `complete` sets `DONE`, the body is the callee's and the message is there.
        let completed = unsafe {
            let call = &*message.as_ptr();
            call.body.with_mut(|body| (*body).outcome = ManuallyDrop::new(outcome));
            call.reply_slot.complete()
        };
        match completed {
            Completed::Delivered(Some(waker)) => {
                waker::call(waker);
                Ok(())
            }
            Completed::Delivered(None) => Ok(()),
            // SAFETY: the caller has let go, so this side is the last; the outcome was just stored.
            Completed::Unwanted => Err(unsafe { CallEnvelope::take_outcome(message) }),
        }
    }

    pub(crate) fn is_awaited(&self) -> bool {
        !self.reply_slot().is_abandoned()
    }

    /// Records that the outcome no longer depends on the process that got the message.
    pub(crate) fn detach(&self) {
        self.reply_slot().detach();
    }

    fn reply_slot(&self) -> &ReplySlot {
        // SAFETY: this side has not completed the slot, so the message is there.
        unsafe { &(*self.0.as_ptr()).reply_slot }
    }
}

impl<T: Send + 'static, R: Send + 'static> Sink for Responder<T, R> {
    type Reply = R;

    fn detach(&self) {
        Responder::detach(self);
    }

    #[cfg_attr(not(debug_assertions), inline(always))]
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

/// Creates the two sides of an outcome without a message: the holder of the second may answer.
///
/// The block is laid out as for a call, though its envelope is never used: it is at least 64 bytes
/// long, so most replies fit beside the envelope.
#[inline]
pub(crate) fn question<R>() -> (PendingReply<(), R>, Responder<(), R>) {
    unsafe fn run(_: NonNull<Envelope>, _: &Token) -> Progress {
        unreachable!("a question is in no mailbox")
    }
    unsafe fn discard(_: NonNull<Envelope>, _: &ExitReason) -> u64 {
        unreachable!("a question is in no mailbox")
    }
    const DISPATCH: &Dispatch = &Dispatch::aside(run, discard, TurnTitle::SIGNAL);
    let message = CallEnvelope::allocate(DISPATCH, (), ReplySlot::without_waker());
    (PendingReply { message, waiter: None }, Responder(message))
}
