//! Reasons for the end of a process, and panics of user code turned into reasons.

pub(crate) mod panic;

use crate::exit::panic::Panic;
use std::any::Any;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

/// Reason why a process ended, as its monitors, links and watchers learn it.
///
/// ```
/// use throng::ExitReason;
///
/// assert_eq!(ExitReason::other("no more work").to_string(), "no more work");
/// ```
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum ExitReason {
    /// The process stopped itself, or was asked to stop.
    Normal,
    /// The runtime shut down, or the process's supervisor ended it in order.
    Shutdown,
    /// The process was killed.
    Killed,
    /// The process had exited before its reason was asked for.
    NoProcess,
    /// The reason was asked for in a turn of the process itself, which cannot exit before that turn
    /// is over. No process exits with this reason.
    Cycle,
    /// A handler panicked, or a hook or other code of the user's in the process.
    Panicked(Panic),
    /// A reason of the user's own.
    Other(Arc<str>),
}

impl ExitReason {
    /// Makes a reason from a text of the user's own.
    pub fn other(reason: impl Into<Arc<str>>) -> ExitReason {
        ExitReason::Other(reason.into())
    }

    /// Makes a reason from the payload of a caught panic, for a layer that catches panics itself.
    ///
    /// ```
    /// use throng::ExitReason;
    ///
    /// let payload = std::panic::catch_unwind(|| panic!("out of paper")).unwrap_err();
    /// assert_eq!(ExitReason::from_panic(payload), ExitReason::Panicked("out of paper".into()));
    /// ```
    pub fn from_panic(payload: Box<dyn Any + Send>) -> ExitReason {
        ExitReason::Panicked(Panic::from_payload(payload))
    }
}

impl fmt::Display for ExitReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ExitReason::Normal => f.write_str("stopped normally"),
            ExitReason::Shutdown => f.write_str("shut down"),
            ExitReason::Killed => f.write_str("killed"),
            ExitReason::NoProcess => f.write_str("there was no such process"),
            ExitReason::Cycle => f.write_str("a process cannot wait for its own exit"),
            ExitReason::Panicked(panic) => panic.fmt(f),
            ExitReason::Other(text) => f.write_str(text),
        }
    }
}

/// Result of an async process's future, from which its exit reason is made.
///
/// `()` and `Ok(())` make a normal exit; an error makes an exit with the error's text as its
/// reason.
pub trait IntoExitReason {
    /// Converts the result into the exit reason.
    fn into_exit_reason(self) -> ExitReason;
}

impl IntoExitReason for () {
    fn into_exit_reason(self) -> ExitReason {
        ExitReason::Normal
    }
}

impl<E: fmt::Display> IntoExitReason for Result<(), E> {
    fn into_exit_reason(self) -> ExitReason {
        self.map_or_else(|error| ExitReason::other(error.to_string()), |()| ExitReason::Normal)
    }
}

impl IntoExitReason for ExitReason {
    fn into_exit_reason(self) -> ExitReason {
        self
    }
}

/// The type `!` of a loop without an end. Stable Rust cannot name it directly.
type Never = <fn() -> ! as never::Returns>::Type;

mod never {
    pub trait Returns {
        type Type;
    }

    impl<R> Returns for fn() -> R {
        type Type = R;
    }
}

impl IntoExitReason for Never {
    fn into_exit_reason(self) -> ExitReason {
        self
    }
}

#[inline(always)]
pub(crate) fn catch<R>(f: impl FnOnce() -> R) -> Result<R, ExitReason> {
    catch_panic(f).map_err(ExitReason::Panicked)
}

#[inline(always)]
pub(crate) fn catch_panic<R>(f: impl FnOnce() -> R) -> Result<R, Panic> {
    catch_unwind(AssertUnwindSafe(f)).map_err(Panic::from_payload)
}

/// Drops a value of the user's, and catches a panic of its drop.
#[inline(always)]
pub(crate) fn drop_users<T>(value: T) {
    if std::mem::needs_drop::<T>() {
        // The panic is ignored: no caller waits for the outcome of a drop.
        let _ = catch(|| drop(value));
    }
}
