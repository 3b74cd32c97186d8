//! Timeouts: timers that a process holds as values, whose message is never handled late.
//!
//! ```text
//!  Timeout in the state ──▶ Timer, which sends ──▶ Punctual { message } ──▶ the turn
//!            └───────────── is set? ◀──────────────────────┘  looks first
//! ```
//! Invariant: the message of a timeout is handled only if the timeout has not been set again, cancelled or
//! dropped before that turn. A message that is in the mailbox already is dropped in its turn.

use crate::exit::drop_users;
use crate::process::{Process, Turn};
use crate::sync::atomic::{AtomicBool, Ordering};
use crate::timer::message_timer::Timer;
use crate::turn::context::Context;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// A timer with a place in the process's state, which is its name. The process can set it again, cancel or
/// drop it, and then never handles its earlier message, not even one that waits in the mailbox. In OTP these
/// are a `gen_statem`'s generic timeouts.
///
/// A timeout in a state of a state machine ends when the process leaves that state, because the state is
/// dropped: this is `gen_statem`'s state timeout.
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
/// Cost: a [`Timer`], and an allocation of 24 bytes while it is set.
#[derive(Default)]
#[must_use = "a timeout that is dropped is cancelled"]
pub struct Timeout(Option<Pending>);

struct Pending {
    timer: Timer,
    /// False once the message is not to be handled any more, or its turn has begun.
    is_set: Arc<AtomicBool>,
}

impl Timeout {
    /// Sends this process the message after a time, in place of the message that was set before.
    ///
    /// Times are rounded up to milliseconds.
    pub fn set<P: Process>(&mut self, cx: &Context<P>, after: Duration, message: impl Turn<P>) {
        self.cancel();
        let is_set = Arc::new(AtomicBool::new(true));
        let timer = cx.send_after(after, Punctual { turn: message, is_set: is_set.clone() });
        self.0 = Some(Pending { timer, is_set });
    }

    /// Cancels the message: its turn does not begin any more. Returns whether there was a message whose turn
    /// had not begun.
    pub fn cancel(&mut self) -> bool {
        let Some(Pending { timer, is_set }) = self.0.take() else { return false };
        timer.cancel();
        // Relaxed, as all accesses: turns of one process are in order, and the flag guards no other data.
        is_set.swap(false, Ordering::Relaxed)
    }

    /// Whether there is a message whose turn has not begun.
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

/// The message of a timeout.
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
