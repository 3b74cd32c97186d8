//! A queued message: link, what to do with it, the turn itself, and for calls the place of the
//! reply; one pooled block.
//!
//! | kind | block | freed by |
//! |---|---|---|
//! | cast | envelope, turn | the worker, when it has moved the turn out |
//! | call | envelope, reply slot, turn or outcome in one place | whoever `reply_slot` says is last |
//! | question | as a call's, but never queued | the same |
//! | train | envelope, coupling, many turns; see `train` | whoever `coupling` says is last |
//! | signal | envelope, what it says; see `signal` | whoever takes it out of the mailbox |
//!
//! A message is a linear thing: made once, then either run, or discarded (its process exited), or
//! refused (a full mailbox dropped it), or taken back (the push failed, or its sender no longer
//! waits for room).

use crate::address::{Address, Pid, RawAddress};
use crate::cell::Token;
use crate::error::{CallError, SendError};
use crate::exit::{ExitReason, catch, drop_users};
use crate::mailbox::bounded::{Refusal, Waiter, WaiterState};
use crate::mailbox::budget;
use crate::mailbox::reply_slot::{Completed, ReplySlot};
use crate::mailbox::{Gone, Link};
use crate::memory::block;
use crate::process::{Process, Turn};
use crate::scheduler;
use crate::scheduler::watchdog::TurnTitle;
use crate::scheduler::worker::Worker;
use crate::signal::Signal;
use crate::sync::UnsafeCell;
use crate::turn::frame::{self, NoReply, Progress, Sink};
use std::alloc::Layout;
use std::marker::PhantomData;
use std::mem::ManuallyDrop;
use std::ptr::NonNull;
use std::task::Waker;

/// Envelope of a message: its type-erased header, at the beginning of its block.
#[repr(C)]
pub(crate) struct Envelope {
    link: Link,
    dispatch: &'static Dispatch,
}

impl Envelope {
    pub(crate) fn new(dispatch: &'static Dispatch) -> Envelope {
        Envelope { link: Link::new(), dispatch }
    }
}

pub(crate) struct Dispatch {
    pub(crate) run: unsafe fn(NonNull<Envelope>, &Token) -> Progress,
    pub(crate) discard: unsafe fn(NonNull<Envelope>, &ExitReason),
    /// For messages that may turn out to hold nothing any more: lets go of one that does.
    pub(crate) uncouple: Option<unsafe fn(NonNull<Envelope>) -> bool>,
    /// For messages that count against a bound: drops one that is on no queue, and tells its
    /// sender if that waits for an answer.
    pub(crate) refuse: Option<unsafe fn(NonNull<Envelope>, Refusal)>,
    /// Whether a bound and the budget may hold it up.
    pub(crate) is_counted: bool,
    /// What the mailbox budget is charged as this is queued. Whoever runs, discards or uncouples
    /// it, or takes it out as a signal, discharges as much (see `budget`).
    pub(crate) bytes: u32,
    /// Whether it is a signal: a [`Signalled`].
    pub(crate) is_signal: bool,
    pub(crate) title: TurnTitle,
    /// For messages that hold several: how many are left.
    pub(crate) left: Option<unsafe fn(NonNull<Envelope>) -> u64>,
}

impl Dispatch {
    /// Of a message of the runtime's own, which neither bound nor budget knows of.
    pub(crate) const fn aside(
        run: unsafe fn(NonNull<Envelope>, &Token) -> Progress,
        discard: unsafe fn(NonNull<Envelope>, &ExitReason),
        title: TurnTitle,
    ) -> Dispatch {
        Dispatch {
            run,
            discard,
            uncouple: None,
            refuse: None,
            is_counted: false,
            bytes: 0,
            is_signal: false,
            title,
            left: None,
        }
    }
}

/// How much of it there is in a mailbox.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct Load {
    pub(crate) messages: u64,
    pub(crate) bytes: u64,
}

impl Load {
    /// Adds all messages of a list, and the bytes of the signals in it.
    ///
    /// # Safety
    /// The list is of messages that nobody takes out meanwhile.
    pub(crate) unsafe fn add(&mut self, mut list: *mut Link) {
        while let Some(message) = NonNull::new(list) {
            // SAFETY: by the contract; what is queued is not changed by those who push.
            unsafe {
                list = message.as_ref().next();
                self.add_one(message);
            }
        }
    }

    /// Adds a message; of a signal only the bytes.
    ///
    /// # Safety
    /// Nobody takes it out meanwhile.
    pub(crate) unsafe fn add_one(&mut self, message: NonNull<Link>) {
        let message = message.cast::<Envelope>();
        // SAFETY: by the contract.
        unsafe {
            let dispatch = message.as_ref().dispatch;
            if !dispatch.is_signal {
                self.messages += dispatch.left.map_or(1, |left| left(message));
            }
            self.bytes += u64::from(dispatch.bytes);
        }
    }
}

/// What the mailbox budget is charged for a message.
///
/// # Safety
/// The message is there.
#[inline(always)]
pub(crate) unsafe fn bytes(message: NonNull<Link>) -> u32 {
    // SAFETY: every link in a mailbox begins an envelope.
    unsafe { message.cast::<Envelope>().as_ref().dispatch.bytes }
}

/// Whether a bound and the budget may hold a message up.
///
/// # Safety
/// The message is there.
pub(crate) unsafe fn is_counted(message: NonNull<Link>) -> bool {
    // SAFETY: as in `bytes`.
    unsafe { message.cast::<Envelope>().as_ref().dispatch.is_counted }
}

/// Drops a message for which there was no room; its sender is told if it waits for an answer.
///
/// # Safety
/// The caller owns the message, which is one that counts, is on no queue and is not charged.
pub(crate) unsafe fn refuse(message: NonNull<Link>, refusal: Refusal) {
    let message = message.cast::<Envelope>();
    // SAFETY: passed on.
    unsafe {
        let dispatch = message.as_ref().dispatch;
        match dispatch.refuse {
            Some(refuse) => refuse(message, refusal),
            None => unreachable!("a message that counts against no bound was refused"),
        }
    }
}

/// Begins the turn that a message asks for.
///
/// # Safety
/// The message was queued for the token's process, is owned by the caller, and no turn is under
/// way.
#[inline(always)]
pub(crate) unsafe fn run(message: NonNull<Link>, token: &Token) -> Progress {
    let message = message.cast::<Envelope>();
    // SAFETY: every link in a mailbox begins an envelope.
    unsafe { (message.as_ref().dispatch.run)(message, token) }
}

/// What turn a message asks for.
///
/// # Safety
/// The caller owns the message.
#[inline(always)]
pub(crate) unsafe fn title_of(message: NonNull<Link>) -> &'static TurnTitle {
    // SAFETY: every link in a mailbox begins an envelope.
    unsafe { &message.cast::<Envelope>().as_ref().dispatch.title }
}

/// Drops a message whose process exits; its caller is told the reason.
///
/// # Safety
/// The caller owns the message.
pub(crate) unsafe fn discard(message: NonNull<Link>, reason: &ExitReason) {
    let message = message.cast::<Envelope>();
    // SAFETY: as in `run`.
    unsafe { (message.as_ref().dispatch.discard)(message, reason) }
}

/// Lets go of a message that holds nothing any more; false if it is one to be run.
///
/// # Safety
/// The caller owns the message; if true, it does not any more.
pub(crate) unsafe fn uncouple(message: NonNull<Link>) -> bool {
    let message = message.cast::<Envelope>();
    // SAFETY: as in `run`.
    unsafe { message.as_ref().dispatch.uncouple.is_some_and(|uncouple| uncouple(message)) }
}

/// The signal in a message from a mailbox, if it is one; then the message is gone.
///
/// # Safety
/// The caller owns the message; if a signal is returned, it does not any more.
pub(crate) unsafe fn take_signal(message: NonNull<Link>) -> Option<Signal> {
    // SAFETY: as in `run`.
    unsafe {
        let is_signal = message.cast::<Envelope>().as_ref().dispatch.is_signal;
        is_signal.then(|| {
            budget::discharge_here(Signalled::BYTES);
            Signalled::take(message)
        })
    }
}

/// Queues a signal; it comes back if the process has exited.
pub(crate) fn send_signal(to: Pid, signal: Signal) -> Result<(), Signal> {
    // It may become a message there, which none that is sent after it may overtake.
    scheduler::with_worker(|worker| worker.map(Worker::end_streak));
    let message = Signalled::allocate(signal);
    // SAFETY: just allocated; if it was not queued, it is still ours.
    unsafe { to.raw().push_signal(message).map_err(|Gone| Signalled::take(message)) }
}

/// A signal on its way; see `signal`.
#[repr(C)]
struct Signalled {
    envelope: Envelope,
    signal: Signal,
}

const _: () = assert!(size_of::<Signalled>() <= 64, "a signal takes one small block");

impl Signalled {
    const BYTES: u32 = size_of::<Self>().next_multiple_of(64) as u32;
    const DISPATCH: &'static Dispatch = &Dispatch {
        is_signal: true,
        bytes: Self::BYTES,
        ..Dispatch::aside(Self::run, Self::discard, TurnTitle::SIGNAL)
    };

    fn allocate(signal: Signal) -> NonNull<Link> {
        let message = block::allocate(Layout::new::<Self>()).cast::<Self>();
        // SAFETY: freshly allocated with this layout.
        unsafe { message.write(Signalled { envelope: Envelope::new(Self::DISPATCH), signal }) };
        message.cast()
    }

    /// Takes the signal out and frees the block.
    ///
    /// # Safety
    /// The caller owns the message, and it is one of these.
    unsafe fn take(message: NonNull<Link>) -> Signal {
        // SAFETY: by the contract; moved out once.
        unsafe {
            let Signalled { signal, .. } = message.cast::<Self>().read();
            block::free(message.cast(), Layout::new::<Self>());
            signal
        }
    }

    unsafe fn run(_: NonNull<Envelope>, _: &Token) -> Progress {
        unreachable!("signals are taken out when a mailbox is drained; see `turn_state`")
    }

    unsafe fn discard(_: NonNull<Envelope>, _: &ExitReason) {
        unreachable!("signals are taken out when a mailbox is closed, too; see `cell`")
    }
}

/// A message nobody waits for.
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

    /// Queues a cast of a user's, if bound and budget allow it.
    #[inline(always)]
    pub(crate) fn send(to: RawAddress, turn: T) -> Result<(), SendError<T>> {
        let message = Self::allocate(turn);
        // SAFETY: just allocated, for a `P`; if it was not queued, it is still ours.
        unsafe { to.offer(message).or_else(|refusal| Self::refused(message, refusal)) }
    }

    /// Queues a cast that no bound and no budget holds up; the turn comes back if the process has
    /// exited.
    #[inline(always)]
    pub(crate) fn push(to: RawAddress, turn: T) -> Result<(), T> {
        let message = Self::allocate(turn);
        // SAFETY: as in `send`.
        unsafe { to.push(message).map_err(|Gone| Self::take(message)) }
    }

    /// Queues a cast of a user's, or has it wait for room; the waker is called when it has been
    /// admitted or sent back.
    pub(crate) fn offer_or_wait(
        to: RawAddress,
        turn: T,
        waker: &Waker,
    ) -> Result<Option<WaitingCast<T>>, (Refusal, T)> {
        let message = Self::allocate(turn);
        // SAFETY: as in `send`.
        match unsafe { to.offer_or_wait(message, Some(waker)) } {
            Ok(waiter) => Ok(waiter.map(|waiter| WaitingCast { waiter, cast: PhantomData })),
            // SAFETY: the same.
            Err(refusal) => Err((refusal, unsafe { Self::take(message) })),
        }
    }

    /// # Safety
    /// As [`take`](Self::take).
    #[cold]
    unsafe fn refused(message: NonNull<Link>, refusal: Refusal) -> Result<(), SendError<T>> {
        // SAFETY: passed on.
        let turn = unsafe { Self::take(message) };
        match refusal {
            Refusal::Gone => Err(SendError::NoProcess(turn)),
            Refusal::Full => Err(SendError::Overloaded(turn)),
            Refusal::Dropped => {
                drop_users(turn);
                Ok(())
            }
        }
    }

    #[inline(always)]
    pub(crate) fn allocate(turn: T) -> NonNull<Link> {
        let message = block::allocate(Layout::new::<Self>()).cast::<Self>();
        let envelope = Envelope::new(Self::DISPATCH);
        // SAFETY: freshly allocated with this layout.
        unsafe { message.write(Cast { envelope, turn, process: PhantomData }) };
        message.cast()
    }

    unsafe fn run(message: NonNull<Envelope>, token: &Token) -> Progress {
        budget::discharge_here(Self::BYTES);
        // SAFETY: the dispatch functions are those of the message's type.
        unsafe {
            let turn = Self::take(message.cast());
            frame::begin::<P, T, _>(token, turn, NoReply::<false, _>::new())
        }
    }

    unsafe fn discard(message: NonNull<Envelope>, _: &ExitReason) {
        budget::discharge_here(Self::BYTES);
        // SAFETY: as above.
        drop_users(unsafe { Self::take(message.cast()) });
    }

    unsafe fn refuse(message: NonNull<Envelope>, _: Refusal) {
        // SAFETY: as above.
        drop_users(unsafe { Self::take(message.cast()) });
    }
}

impl<P, T> Cast<P, T> {
    /// Takes the turn out and frees the block.
    ///
    /// # Safety
    /// The caller owns the message, and it is one of these, for whatever type of process: the
    /// layout does not depend on that.
    #[inline(always)]
    unsafe fn take(message: NonNull<Link>) -> T {
        let message = message.cast::<Self>();
        // SAFETY: by the contract; moved out once.
        unsafe {
            let turn = (&raw const (*message.as_ptr()).turn).read();
            block::free(message.cast(), Layout::new::<Self>());
            turn
        }
    }
}

/// [`Cast::offer_or_wait`], for a process whose type is known no more.
pub(crate) type OfferOrWait<T> =
    fn(RawAddress, T, &Waker) -> Result<Option<WaitingCast<T>>, (Refusal, T)>;

/// A cast that waits for room in a full mailbox. Dropping it ends the wait, and drops the cast if
/// that still waits.
pub(crate) struct WaitingCast<T> {
    waiter: Waiter,
    cast: PhantomData<fn() -> T>,
}

impl<T> WaitingCast<T> {
    /// Whether it was admitted, or the turn comes back because the process has exited first; none
    /// while it waits, and then the waker is called when that is over.
    pub(crate) fn poll(&self, waker: &Waker) -> Option<Result<(), T>> {
        match self.waiter.poll(waker) {
            WaiterState::Waiting => None,
            WaiterState::Admitted => Some(Ok(())),
            // SAFETY: the waiter is that of such a cast, and the queue has given the cast up.
            WaiterState::Returned(message) => Some(Err(unsafe { Cast::<(), T>::take(message) })),
        }
    }

    /// Ends the wait: the turn comes back, unless it was admitted first.
    pub(crate) fn withdraw(&self) -> Option<T> {
        // SAFETY: as in `ask`.
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
