//! A queued message: link, dispatch functions, the turn itself, and for calls the space for the
//! reply; a single pooled block.
//!
//! | kind | block | freed by |
//! |---|---|---|
//! | cast | envelope, turn | the worker, when it has moved the turn out |
//! | call | envelope, reply slot, turn or outcome in the same space | the side that leaves `reply_slot` last |
//! | question | as for a call, but never queued | the same |
//! | train | envelope, coupling, many turns; see `train` | the side that leaves `coupling` last |
//! | signal | envelope, the signal; see `signal` | the token's holder, as it takes the signal out |
//!
//! A message is used linearly: made once, then either run, or discarded (its process exited), or
//! refused (a full mailbox dropped it), or taken back (the push failed, or its sender stopped
//! waiting for room).

mod call;
mod cast;
mod signalled;

pub(crate) use self::call::{Failure, GivenUp, PendingReply, Responder, Route, question};
pub(crate) use self::cast::{Cast, OfferOrWait, WaitingCast};
pub(crate) use self::signalled::{send_signal, take_signal};

use crate::cell::Token;
use crate::exit::ExitReason;
use crate::mailbox::Link;
use crate::mailbox::bounded::Refusal;
use crate::scheduler::watchdog::TurnTitle;
use crate::turn::after::Progress;
use std::ptr::NonNull;

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

/// Functions and properties of all messages of one type, which their envelopes point to.
pub(crate) struct Dispatch {
    pub(crate) run: unsafe fn(NonNull<Envelope>, &Token) -> Progress,
    /// Drops the message, and returns the number of messages of users in it.
    pub(crate) discard: unsafe fn(NonNull<Envelope>, &ExitReason) -> u64,
    /// For trains: frees or leaves the message if it is empty, and returns whether it was.
    pub(crate) uncouple: Option<unsafe fn(NonNull<Envelope>) -> bool>,
    /// For messages that count against a bound: drops a message that is on no queue, and notifies
    /// its sender if that waits for an answer. Returns the number of messages that no sender gets
    /// back.
    pub(crate) refuse: Option<unsafe fn(NonNull<Envelope>, Refusal) -> u64>,
    /// Whether a bound and the budget may hold the message up.
    pub(crate) is_counted: bool,
    /// Bytes charged to the mailbox budget as the message is queued. Running, discarding and
    /// uncoupling discharge as much, and so does taking a signal out (see `budget`).
    pub(crate) bytes: u32,
    /// Whether the message is a signal: see `signalled`.
    pub(crate) is_signal: bool,
    pub(crate) title: TurnTitle,
    /// For messages that hold several: returns how many are left.
    pub(crate) left: Option<unsafe fn(NonNull<Envelope>) -> u64>,
}

impl Dispatch {
    /// Creates the dispatch of a message of the runtime, which neither bound nor budget counts.
    pub(crate) const fn aside(
        run: unsafe fn(NonNull<Envelope>, &Token) -> Progress,
        discard: unsafe fn(NonNull<Envelope>, &ExitReason) -> u64,
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

/// Number and bytes of the messages in a mailbox.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct Load {
    pub(crate) messages: u64,
    pub(crate) bytes: u64,
}

impl Load {
    /// Adds all messages of a list, and the bytes of the signals in it.
    ///
    /// # Safety
    /// The list is of messages that no thread takes out during the call.
    pub(crate) unsafe fn add(&mut self, mut list: *mut Link) {
        while let Some(message) = NonNull::new(list) {
            // SAFETY: by the contract nothing is taken out; pushers do not change queued messages.
            unsafe {
                list = message.as_ref().next();
                self.add_one(message);
            }
        }
    }

    /// Adds a message; for a signal only its bytes.
    ///
    /// # Safety
    /// The message is queued or the caller's, and no thread takes it out during the call.
    pub(crate) unsafe fn add_one(&mut self, message: NonNull<Link>) {
        let message = message.cast::<Envelope>();
        // SAFETY: by the contract the message is there; every link in a mailbox begins an envelope.
        unsafe {
            let dispatch = message.as_ref().dispatch;
            if !dispatch.is_signal {
                self.messages += dispatch.left.map_or(1, |left| left(message));
            }
            self.bytes += u64::from(dispatch.bytes);
        }
    }
}

/// Returns the bytes that the mailbox budget is charged for a message.
///
/// # Safety
/// The message has not been freed.
#[inline(always)]
pub(crate) unsafe fn bytes(message: NonNull<Link>) -> u32 {
    // SAFETY: by the contract the message is there; every link in a mailbox begins an envelope.
    unsafe { message.cast::<Envelope>().as_ref().dispatch.bytes }
}

/// Whether a bound and the budget may hold a message up.
///
/// # Safety
/// The message has not been freed.
pub(crate) unsafe fn is_counted(message: NonNull<Link>) -> bool {
    // SAFETY: by the contract the message is there; every link in a mailbox begins an envelope.
    unsafe { message.cast::<Envelope>().as_ref().dispatch.is_counted }
}

/// Drops a message for which there was no room; its sender is notified if it waits for an answer.
/// Returns the number of messages that no sender gets back.
///
/// # Safety
/// The caller owns the message, which counts against a bound, is on no queue and is not charged.
pub(crate) unsafe fn refuse(message: NonNull<Link>, refusal: Refusal) -> u64 {
    let message = message.cast::<Envelope>();
    // SAFETY: every link in a mailbox begins an envelope; `refuse` of its dispatch has this
    // contract.
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
    // SAFETY: every link in a mailbox begins an envelope; `run` of its dispatch has this contract.
    unsafe { (message.as_ref().dispatch.run)(message, token) }
}

/// Returns the title of the turn that a message asks for.
///
/// # Safety
/// The caller owns the message.
#[inline(always)]
pub(crate) unsafe fn title_of(message: NonNull<Link>) -> &'static TurnTitle {
    // SAFETY: the caller owns the message, so it is there; every link begins an envelope.
    unsafe { &message.cast::<Envelope>().as_ref().dispatch.title }
}

/// Drops a message whose process exits; a call's sender gets the reason. Returns the number of
/// messages of users in it.
///
/// # Safety
/// The caller owns the message.
pub(crate) unsafe fn discard(message: NonNull<Link>, reason: &ExitReason) -> u64 {
    let message = message.cast::<Envelope>();
    // SAFETY: every link in a mailbox begins an envelope; `discard` of its dispatch has this
    // contract.
    unsafe { (message.as_ref().dispatch.discard)(message, reason) }
}

/// Frees or leaves an empty train, and returns true; false if the message is still to be run.
///
/// # Safety
/// The caller owns the message, and after true does not use it again.
pub(crate) unsafe fn uncouple(message: NonNull<Link>) -> bool {
    let message = message.cast::<Envelope>();
    // SAFETY: every link in a mailbox begins an envelope; `uncouple` of its dispatch has this
    // contract.
    unsafe { message.as_ref().dispatch.uncouple.is_some_and(|uncouple| uncouple(message)) }
}
