//! A signal in its envelope: queueing it, and taking it out of the mailbox.
//!
//! The sender owns the block until the push succeeds, then the mailbox, then the token's holder,
//! which takes the signal out and frees the block.

use super::{Dispatch, Envelope};
use crate::address::Pid;
use crate::cell::Token;
use crate::exit::ExitReason;
use crate::mailbox::budget;
use crate::mailbox::{Gone, Link};
use crate::memory::block;
use crate::scheduler::watchdog::TurnTitle;
use crate::signal::Signal;
use crate::turn::after::Progress;
use std::alloc::Layout;
use std::ptr::NonNull;

/// Takes the signal out of a message from a mailbox and frees the message; `None` if it is no
/// signal.
///
/// # Safety
/// The caller owns the message, and does not use it again if a signal is returned.
pub(crate) unsafe fn take_signal(message: NonNull<Link>) -> Option<Signal> {
    // SAFETY: every link in a mailbox begins an envelope; only a `Signalled` has `is_signal` set.
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
    let message = Signalled::allocate(signal);
    // SAFETY: the message was just allocated; if it is refused, it is still the caller's.
    unsafe { to.raw().push_signal(message).map_err(|Gone| Signalled::take(message)) }
}

/// A signal in a mailbox or on its way there; see `signal`.
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
        // SAFETY: the block was just allocated with this layout.
        unsafe { message.write(Signalled { envelope: Envelope::new(Self::DISPATCH), signal }) };
        message.cast()
    }

    /// Takes the signal out and frees the block.
    ///
    /// # Safety
    /// The caller owns the message, which is a `Signalled`.
    unsafe fn take(message: NonNull<Link>) -> Signal {
        // SAFETY: by the contract the block is the caller's; the signal is moved out once.
        unsafe {
            let Signalled { signal, .. } = message.cast::<Self>().read();
            block::free(message.cast(), Layout::new::<Self>());
            signal
        }
    }

    unsafe fn run(_: NonNull<Envelope>, _: &Token) -> Progress {
        unreachable!("signals are taken out when a mailbox is drained; see `turn_state`")
    }

    unsafe fn discard(_: NonNull<Envelope>, _: &ExitReason) -> u64 {
        unreachable!("signals are taken out when a mailbox is closed, too; see `cell`")
    }
}
