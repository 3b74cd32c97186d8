//! Why a process ended.

use std::any::Any;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

/// Why a process ended, as told to those who wait for it.
///
/// ```
/// use throng::ExitReason;
///
/// assert_eq!(ExitReason::other("no more work").to_string(), "no more work");
/// ```
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum ExitReason {
    /// It stopped because it or somebody asked for that.
    Normal,
    /// Its runtime shut down, or its supervisor ended it in order.
    Shutdown,
    /// It was killed.
    Killed,
    /// It had exited before anybody asked why.
    NoProcess,
    /// A handler panicked; the text is the panic's message.
    Panicked(Arc<str>),
    /// A reason of the user's own.
    Other(Arc<str>),
}

impl ExitReason {
    /// A reason in the user's own words.
    pub fn other(reason: impl Into<Arc<str>>) -> ExitReason {
        ExitReason::Other(reason.into())
    }

    /// The reason that a caught panic is, for a layer that catches one itself.
    ///
    /// ```
    /// use throng::ExitReason;
    ///
    /// let payload = std::panic::catch_unwind(|| panic!("out of paper")).unwrap_err();
    /// assert_eq!(ExitReason::from_panic(payload), ExitReason::Panicked("out of paper".into()));
    /// ```
    pub fn from_panic(payload: Box<dyn Any + Send>) -> ExitReason {
        let text = payload
            .downcast_ref::<&'static str>()
            .copied()
            .or_else(|| payload.downcast_ref::<String>().map(String::as_str))
            .unwrap_or("a panic without a message");
        let reason = ExitReason::Panicked(text.into());
        // The payload is the user's too, and may panic as it is dropped.
        if let Err(again) = catch_unwind(AssertUnwindSafe(|| drop(payload))) {
            std::mem::forget(again);
        }
        reason
    }
}

impl fmt::Display for ExitReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ExitReason::Normal => f.write_str("stopped normally"),
            ExitReason::Shutdown => f.write_str("shut down"),
            ExitReason::Killed => f.write_str("killed"),
            ExitReason::NoProcess => f.write_str("there was no such process"),
            ExitReason::Panicked(text) => write!(f, "panicked: {text}"),
            ExitReason::Other(text) => f.write_str(text),
        }
    }
}

/// What the future of an async process may return: it says why the process ended.
///
/// `()` is a normal exit; so is `Ok(())`, and an error's text is the reason of any other.
pub trait IntoExitReason {
    /// The reason.
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

/// The type `!` of a loop without an end, which cannot be written as such yet.
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

/// Runs what is the user's: no panic of it gets any further.
#[inline(always)]
pub(crate) fn catch<R>(f: impl FnOnce() -> R) -> Result<R, ExitReason> {
    catch_unwind(AssertUnwindSafe(f)).map_err(ExitReason::from_panic)
}

/// Drops what is the user's: no panic of it gets any further.
#[inline(always)]
pub(crate) fn drop_users<T>(value: T) {
    if std::mem::needs_drop::<T>() {
        // Nobody is left to be told.
        let _ = catch(|| drop(value));
    }
}
