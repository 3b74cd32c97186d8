//! Timeouts: timers in a process's state, which can be cancelled even if their message is in the mailbox.
//!
//! ```text
//!  Timeout in the state ──▶ Timer, which sends ──▶ Punctual { message } ──▶ the turn
//!            └───────────── is set? ◀──────────────────────┘  checks first
//! ```
//! Invariant: the message of a timeout is handled only if the timeout has not been set again, cancelled or
//! dropped before that turn. A message that is in the mailbox already is dropped in its turn.

use crate::address::message_timer::{self, Timer};
use crate::exit::drop_users;
use crate::sync::atomic::{AtomicBool, Ordering};
use crate::turn::context::Context;
use crate::turn::process::{Process, Turn};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// A timer that a process keeps in a field of its state. Once the process has set the timeout again, cancelled
/// or dropped it, the process never handles the earlier message, not even if the message waits in the mailbox
/// already. The equivalent in OTP is `gen_statem`'s generic timeout, with the field in place of the name.
///
/// A timeout in a variant of a state machine's enum is cancelled when the process leaves that state, because the
/// variant is dropped. The equivalent in OTP is `gen_statem`'s state timeout.
///
/// ```
/// use std::time::Duration;
/// use throng::{Timeout, prelude::*};
///
/// enum Gate { Locked, Unlocked { relock: Timeout } }
///
/// #[process]
/// impl Gate {
///     #[message]
///     fn unlock(&mut self, cx: &mut Context<Self>) {
///         let mut relock = Timeout::default();
///         relock.set(cx, Duration::from_millis(5), Lock);
///         *self = Gate::Unlocked { relock };
///     }
///     #[message]
///     fn lock(&mut self) {
///         *self = Gate::Locked;
///     }
///     #[message]
///     fn is_locked(&self) -> bool {
///         matches!(self, Gate::Locked)
///     }
/// }
///
/// # fn main() -> Result<(), throng::Error> {
/// # let runtime = Runtime::builder().workers(1).start()?;
/// let gate = runtime.spawn(Gate::Locked)?;
/// runtime.block_on(async |_| {
///     gate.unlock().await?;
///     while !gate.is_locked().await? {}
///     Ok(())
/// })
/// # }
/// ```
///
/// Cost: a [`Timer`], and an allocation of 24 bytes from `set` until the timeout is set again, cancelled or
/// dropped. To set a timeout again takes no more memory; each timeout that is cancelled or dropped takes a signal of
/// 64 bytes until the end of the turn.
#[derive(Default)]
#[must_use = "a timeout that is dropped is cancelled"]
pub struct Timeout(Option<Pending>);

struct Pending {
    timer: Timer,
    /// False once the message was cancelled, or its turn has begun.
    is_set: Arc<AtomicBool>,
}

impl Timeout {
    /// Sends `message` to this process after a time. Cancels the message that was set before.
    ///
    /// The time is rounded up to milliseconds.
    pub fn set<P: Process>(&mut self, cx: &mut Context<P>, after: Duration, message: impl Turn<P>) {
        // The context is lent exclusively, so however often a turn sets the timeout, no signals pile up.
        let mut current = cx.current();
        if let Some(Pending { timer, is_set }) = self.0.take() {
            is_set.store(false, Ordering::Relaxed);
            timer.cancel_in(&mut current);
        }
        let is_set = Arc::new(AtomicBool::new(true));
        let punctual = Punctual { turn: message, is_set: is_set.clone() };
        let timer = message_timer::send_after_in::<P, _>(&mut current, after, punctual);
        self.0 = Some(Pending { timer, is_set });
    }

    /// Cancels the message, so that the process does not handle it. Returns `false` if no message was set, or if
    /// its turn had begun.
    pub fn cancel(&mut self) -> bool {
        let Some(Pending { timer, is_set }) = self.0.take() else { return false };
        timer.cancel();
        // Relaxed, like all accesses: a process's turns are in order, and the flag guards no other data.
        is_set.swap(false, Ordering::Relaxed)
    }

    /// Whether a message is set whose turn has not begun.
    pub fn is_set(&self) -> bool {
        self.0.as_ref().is_some_and(|pending| pending.is_set.load(Ordering::Relaxed))
    }
}

impl Drop for Timeout {
    fn drop(&mut self) {
        self.cancel();
    }
}

impl fmt::Debug for Timeout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.is_set() { "Timeout(set)" } else { "Timeout(not set)" })
    }
}

/// The message of a timeout, with the flag that it checks in its turn.
struct Punctual<T> {
    turn: T,
    is_set: Arc<AtomicBool>,
}

impl<P: Process, T: Turn<P>> Turn<P> for Punctual<T> {
    type Reply = ();

    async fn run(self, process: &mut P, cx: &mut Context<P>) {
        let Punctual { turn, is_set } = self;
        if is_set.swap(false, Ordering::Relaxed) {
            drop_users(turn.run(process, cx).await);
        } else {
            drop_users(turn);
        }
    }
}
