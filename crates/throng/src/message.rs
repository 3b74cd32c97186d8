//! A queued message: link, what to do with it, the turn itself, and for calls the place of the
//! reply; one pooled block.
//!
//! | kind | block | freed by |
//! |---|---|---|
//! | cast | head, turn | the worker, when it has moved the turn out |
//! | call | head, rendezvous, turn or outcome in one place | whoever `rendezvous` says is last |
//! | question | as a call's, but never queued | the same |
//! | train | head, coupling, many turns; see `train` | whoever `coupling` says is last |
//! | signal | head, whom it is for, what it says; see `signal` | whoever takes it out of the mailbox |
//!
//! A message is a linear thing: made once, then either run, or discarded (its process exited), or
//! taken back (the push failed).

use crate::address::{Address, Pid, RawAddress};
use crate::block;
use crate::cell::Token;
use crate::exit::{ExitReason, catch, drop_users};
use crate::frame::{self, NoReply, Progress, Sink};
use crate::mailbox::{Gone, Link};
use crate::process::{Process, Turn};
use crate::rendezvous::{Completed, Rendezvous};
use crate::signal::Signal;
use crate::sync::UnsafeCell;
use crate::watch::TurnTitle;
use std::alloc::Layout;
use std::marker::PhantomData;
use std::mem::ManuallyDrop;
use std::ptr::NonNull;
use std::task::Waker;

/// The type-erased front of a message.
#[repr(C)]
pub(crate) struct Message {
    link: Link,
    dispatch: &'static Dispatch,
}

impl Message {
    pub(crate) fn new(dispatch: &'static Dispatch) -> Message {
        Message { link: Link::new(), dispatch }
    }
}

pub(crate) struct Dispatch {
    pub(crate) run: unsafe fn(NonNull<Message>, &Token) -> Progress,
    pub(crate) discard: unsafe fn(NonNull<Message>, &ExitReason),
    /// For messages that may turn out to hold nothing any more: lets go of one that does.
    pub(crate) uncouple: Option<unsafe fn(NonNull<Message>) -> bool>,
    /// Whether it is a signal: a [`Signalled`].
    pub(crate) is_signal: bool,
    pub(crate) title: TurnTitle,
}

/// Begins the turn that a message asks for.
///
/// # Safety
/// The message was queued for the token's process, is owned by the caller, and no turn is under
/// way.
#[inline(always)]
pub(crate) unsafe fn run(message: NonNull<Link>, token: &Token) -> Progress {
    let message = message.cast::<Message>();
    // SAFETY: every link in a mailbox is the front of a message.
    unsafe { (message.as_ref().dispatch.run)(message, token) }
}

/// What turn a message asks for.
///
/// # Safety
/// The caller owns the message.
#[inline(always)]
pub(crate) unsafe fn title_of(message: NonNull<Link>) -> &'static TurnTitle {
    // SAFETY: every link in a mailbox is the front of a message.
    unsafe { &message.cast::<Message>().as_ref().dispatch.title }
}

/// Drops each message of a list; callers are told the reason.
///
/// # Safety
/// The caller owns the messages.
pub(crate) unsafe fn discard_all(mut list: *mut Link, reason: &ExitReason) {
    while let Some(message) = NonNull::new(list.cast::<Message>()) {
        // SAFETY: owned; the link is read before the message goes.
        unsafe {
            list = message.as_ref().link.next();
            (message.as_ref().dispatch.discard)(message, reason);
        }
    }
}

/// Lets go of a message that holds nothing any more; false if it is one to be run.
///
/// # Safety
/// The caller owns the message; if true, it does not any more.
pub(crate) unsafe fn uncouple(message: NonNull<Link>) -> bool {
    let message = message.cast::<Message>();
    // SAFETY: as in `run`.
    unsafe { message.as_ref().dispatch.uncouple.is_some_and(|uncouple| uncouple(message)) }
}

/// The signal in a message, if it is one; then the message is gone.
///
/// # Safety
/// The caller owns the message; if a signal is returned, it does not any more.
pub(crate) unsafe fn take_signal(message: NonNull<Link>) -> Option<Signal> {
    // SAFETY: as in `run`.
    unsafe {
        let is_signal = message.cast::<Message>().as_ref().dispatch.is_signal;
        is_signal.then(|| Signalled::take(message).signal)
    }
}

/// Queues a signal; it comes back if the process has exited.
pub(crate) fn send_signal(to: Pid, signal: Signal) -> Result<(), Signal> {
    let message = Signalled::allocate(to, signal);
    // SAFETY: just allocated; if it was not queued, it is still ours.
    unsafe { to.raw().push_signal(message).map_err(|Gone| Signalled::take(message).signal) }
}

/// A signal on its way; see `signal`.
#[repr(C)]
struct Signalled {
    head: Message,
    to: Pid,
    signal: Signal,
}

impl Signalled {
    const DISPATCH: &'static Dispatch = &Dispatch {
        run: Self::run,
        discard: Self::discard,
        uncouple: None,
        is_signal: true,
        title: TurnTitle::SIGNAL,
    };

    fn allocate(to: Pid, signal: Signal) -> NonNull<Link> {
        let message = block::allocate(Layout::new::<Self>()).cast::<Self>();
        // SAFETY: freshly allocated with this layout.
        unsafe { message.write(Signalled { head: Message::new(Self::DISPATCH), to, signal }) };
        message.cast()
    }

    /// Takes all out and frees the block.
    ///
    /// # Safety
    /// The caller owns the message, and it is one of these.
    unsafe fn take(message: NonNull<Link>) -> Signalled {
        // SAFETY: by the contract; moved out once.
        unsafe {
            let taken = message.cast::<Self>().read();
            block::free(message.cast(), Layout::new::<Self>());
            taken
        }
    }

    unsafe fn run(_: NonNull<Message>, _: &Token) -> Progress {
        unreachable!("signals are taken out when a mailbox is drained; see `turn_state`")
    }

    unsafe fn discard(message: NonNull<Message>, _: &ExitReason) {
        // SAFETY: the dispatch functions are those of the message's type.
        let Signalled { to, signal, .. } = unsafe { Self::take(message.cast()) };
        to.raw().retract_signal();
        signal.refuse(to);
    }
}

/// A message nobody waits for.
#[repr(C)]
pub(crate) struct Cast<P, T> {
    head: Message,
    turn: T,
    process: PhantomData<fn(P)>,
}

impl<P: Process, T: Turn<P>> Cast<P, T> {
    const DISPATCH: &'static Dispatch = &Dispatch {
        run: Self::run,
        discard: Self::discard,
        uncouple: None,
        is_signal: false,
        title: TurnTitle::of::<P, T>(),
    };

    /// Queues a cast; the turn comes back if the process has exited.
    #[inline(always)]
    pub(crate) fn send(to: RawAddress, turn: T) -> Result<(), T> {
        let message = Self::allocate(turn);
        // SAFETY: just allocated, for a `P`; if it was not queued, it is still ours.
        unsafe { to.push(message).map_err(|Gone| Self::take(message)) }
    }

    #[inline(always)]
    pub(crate) fn allocate(turn: T) -> NonNull<Link> {
        let message = block::allocate(Layout::new::<Self>()).cast::<Self>();
        let head = Message::new(Self::DISPATCH);
        // SAFETY: freshly allocated with this layout.
        unsafe { message.write(Cast { head, turn, process: PhantomData }) };
        message.cast()
    }

    /// Takes the turn out and frees the block.
    ///
    /// # Safety
    /// The caller owns the message, and it is one of these.
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

    unsafe fn run(message: NonNull<Message>, token: &Token) -> Progress {
        // SAFETY: the dispatch functions are those of the message's type.
        unsafe {
            let turn = Self::take(message.cast());
            frame::begin::<P, T, _>(token, turn, NoReply::<false, _>::new())
        }
    }

    unsafe fn discard(message: NonNull<Message>, _: &ExitReason) {
        // SAFETY: as above.
        drop_users(unsafe { Self::take(message.cast()) });
    }
}

/// A message whose sender waits for the outcome.
#[repr(C)]
struct Called<T, R> {
    head: Message,
    rendezvous: Rendezvous,
    body: UnsafeCell<Body<T, R>>,
}

/// What is in the message: the turn until it is run, then nothing, then the outcome.
union Body<T, R> {
    turn: ManuallyDrop<T>,
    outcome: ManuallyDrop<Result<R, ExitReason>>,
}

impl<T, R> Called<T, R> {
    fn allocate(dispatch: &'static Dispatch, turn: T, waker: &Waker) -> NonNull<Self> {
        let message = block::allocate(Layout::new::<Self>()).cast::<Self>();
        // SAFETY: freshly allocated with this layout.
        unsafe {
            message.write(Called {
                head: Message::new(dispatch),
                rendezvous: Rendezvous::new(waker),
                body: UnsafeCell::new(Body { turn: ManuallyDrop::new(turn) }),
            });
        }
        message
    }

    /// Takes the outcome and frees the message.
    ///
    /// # Safety
    /// The caller's is the last side, the outcome is there, and this happens once.
    unsafe fn take_outcome(message: NonNull<Self>) -> Result<R, ExitReason> {
        // SAFETY: by the contract.
        unsafe {
            let body = &(*message.as_ptr()).body;
            let outcome = body.with_mut(|body| ManuallyDrop::take(&mut (*body).outcome));
            block::free(message.cast(), Layout::new::<Self>());
            outcome
        }
    }
}

/// What a `P` does with a call by a `T`.
struct Callee<P, T>(PhantomData<fn(P, T)>);

impl<P: Process, T: Turn<P>> Callee<P, T> {
    const DISPATCH: &'static Dispatch = &Dispatch {
        run: Self::run,
        discard: Self::discard,
        uncouple: None,
        is_signal: false,
        title: TurnTitle::of::<P, T>(),
    };

    unsafe fn run(message: NonNull<Message>, token: &Token) -> Progress {
        let message = message.cast::<Called<T, T::Reply>>();
        // SAFETY: the dispatch functions are those of the message's type; the body holds the turn
        // until it is run.
        unsafe {
            let body = &(*message.as_ptr()).body;
            let turn = body.with_mut(|body| ManuallyDrop::take(&mut (*body).turn));
            frame::begin::<P, T, _>(token, turn, Owed(message))
        }
    }

    unsafe fn discard(message: NonNull<Message>, reason: &ExitReason) {
        let message = message.cast::<Called<T, T::Reply>>();
        // SAFETY: as in `run`.
        unsafe {
            let body = &(*message.as_ptr()).body;
            drop_users(body.with_mut(|body| ManuallyDrop::take(&mut (*body).turn)));
        }
        Owed(message).fail(reason);
    }
}

/// Where a call by a `T` goes, for a reply `R`: a process whose type is known no more.
pub(crate) struct Route<T, R> {
    address: RawAddress,
    /// A `Callee`'s, for the type of process at the address.
    dispatch: &'static Dispatch,
    message: PhantomData<fn(T) -> R>,
}

impl<T, R> Route<T, R> {
    #[inline(always)]
    pub(crate) fn to<P: Process>(process: Address<P>) -> Self
    where
        T: Turn<P, Reply = R>,
    {
        let dispatch = Callee::<P, T>::DISPATCH;
        Route { address: process.raw(), dispatch, message: PhantomData }
    }

    pub(crate) fn address(&self) -> RawAddress {
        self.address
    }
}

/// The asker's share in a message: an outcome to come. Dropping it gives the outcome up.
pub(crate) struct Awaited<T, R>(NonNull<Called<T, R>>);

// SAFETY: turn, reply and reason are `Send`, and the rendezvous orders their hand-over.
unsafe impl<T: Send, R: Send> Send for Awaited<T, R> {}

impl<T, R> Awaited<T, R> {
    /// Queues a call; the turn comes back if the process has exited.
    #[inline]
    pub(crate) fn send(route: Route<T, R>, turn: T, waker: &Waker) -> Result<Self, T> {
        let message = Called::<T, R>::allocate(route.dispatch, turn, waker);
        // SAFETY: just allocated, for the route's type of process; if it was not queued, it is
        // still all ours.
        unsafe {
            if let Err(Gone) = route.address.push(message.cast()) {
                let raw = message.as_ptr();
                (*raw).rendezvous.disarm();
                let turn = (*raw).body.with_mut(|body| ManuallyDrop::take(&mut (*body).turn));
                block::free(message.cast(), Layout::new::<Called<T, R>>());
                return Err(turn);
            }
        }
        Ok(Awaited(message))
    }

    fn rendezvous(&self) -> &Rendezvous {
        // SAFETY: neither abandoned nor done, so the message is there.
        unsafe { &(*self.0.as_ptr()).rendezvous }
    }

    /// The outcome, or this again, to be woken by this waker.
    #[inline]
    pub(crate) fn poll(self, waker: &Waker) -> Result<Result<R, ExitReason>, Self> {
        if !self.rendezvous().renew(waker) {
            return Err(self);
        }
        let message = ManuallyDrop::new(self).0;
        // SAFETY: done, so the message is ours, and taken here once.
        Ok(unsafe { Called::take_outcome(message) })
    }

    /// Gives up, unless the outcome came first.
    pub(crate) fn give_up(self) -> Option<Result<R, ExitReason>> {
        let this = ManuallyDrop::new(self);
        // SAFETY: if the outcome came first, the message is ours, and taken here once.
        this.rendezvous().abandon().then(|| unsafe { Called::take_outcome(this.0) })
    }
}

impl<T, R> Drop for Awaited<T, R> {
    fn drop(&mut self) {
        if self.rendezvous().abandon() {
            // SAFETY: the outcome came first, so the message is ours.
            drop_users(unsafe { Called::take_outcome(self.0) });
        }
    }
}

/// The duty to answer: to be [completed](Self::complete) once.
#[must_use]
pub(crate) struct Owed<T, R>(NonNull<Called<T, R>>);

// SAFETY: turn, reply and reason are `Send`, and the rendezvous orders their hand-over.
unsafe impl<T: Send, R: Send> Send for Owed<T, R> {}
// SAFETY: shared, it only shows the rendezvous, which is made of atomics.
unsafe impl<T: Send, R: Send> Sync for Owed<T, R> {}

impl<T, R> Owed<T, R> {
    /// Answers; the outcome comes back if nobody wants it any more.
    #[inline(always)]
    pub(crate) fn complete(
        self,
        outcome: Result<R, ExitReason>,
    ) -> Result<(), Result<R, ExitReason>> {
        let message = self.0;
        // SAFETY: until completed, the body is ours and the message is there.
        let completed = unsafe {
            let called = &*message.as_ptr();
            called.body.with_mut(|body| (*body).outcome = ManuallyDrop::new(outcome));
            called.rendezvous.complete()
        };
        match completed {
            Completed::Delivered(Some(waker)) => {
                // Most are ours, but any future may poll a call with a waker of its own.
                let _ = catch(|| waker.wake());
                Ok(())
            }
            Completed::Delivered(None) => Ok(()),
            // SAFETY: nobody wants it, so ours is the last side.
            Completed::Unwanted => Err(unsafe { Called::take_outcome(message) }),
        }
    }

    /// Whether somebody still waits for the outcome.
    pub(crate) fn is_awaited(&self) -> bool {
        // SAFETY: not completed, so the message is there.
        !unsafe { &(*self.0.as_ptr()).rendezvous }.is_abandoned()
    }
}

impl<T: Send, R: Send> Sink for Owed<T, R> {
    type Reply = R;

    #[inline(always)]
    fn deliver(self, reply: R) {
        if let Err(unwanted) = self.complete(Ok(reply)) {
            drop_users(unwanted);
        }
    }

    fn fail(self, reason: &ExitReason) {
        if let Err(unwanted) = self.complete(Err(reason.clone())) {
            drop_users(unwanted);
        }
    }
}

/// The two shares in an outcome that is no message's: whoever is given the second may answer.
///
/// The block is a call's all the same, whose head nobody looks at: it is 64 bytes long at least,
/// so most replies fit beside it.
pub(crate) fn question<R>(waker: &Waker) -> (Awaited<(), R>, Owed<(), R>) {
    unsafe fn run(_: NonNull<Message>, _: &Token) -> Progress {
        unreachable!("a question is in no mailbox")
    }
    unsafe fn discard(_: NonNull<Message>, _: &ExitReason) {
        unreachable!("a question is in no mailbox")
    }
    const DISPATCH: &Dispatch =
        &Dispatch { run, discard, uncouple: None, is_signal: false, title: TurnTitle::SIGNAL };
    let message = Called::allocate(DISPATCH, (), waker);
    (Awaited(message), Owed(message))
}
