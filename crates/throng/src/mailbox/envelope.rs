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

mod call;
mod cast;
mod signalled;

pub(crate) use self::call::{Failure, GivenUp, Outcome, PendingReply, Responder, Route, question};
pub(crate) use self::cast::{Cast, OfferOrWait, WaitingCast};
pub(crate) use self::signalled::{send_signal, take_signal};

use crate::cell::Token;
use crate::exit::ExitReason;
use crate::mailbox::Link;
use crate::mailbox::bounded::Refusal;
use crate::scheduler::watchdog::TurnTitle;
use crate::turn::frame::Progress;
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
    /// Whether it is a signal: see `signalled`.
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
