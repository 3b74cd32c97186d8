//! Errors, one enum per operation. An error hands back a value that the operation did not consume.

use crate::exit::ExitReason;
use crate::exit::panic::Panic;
use crate::memory::spare_bits::NoSpareBits;
use std::fmt;
use thiserror::Error;

/// A message that could not be sent.
#[derive(Error)]
#[non_exhaustive]
pub enum SendError<T> {
    /// The process has exited. Holds the message.
    #[error("the process has exited")]
    NoProcess(T),
    /// There is no room for the message: this mailbox is full, or the runtime's mailbox budget is
    /// used up. Holds the message. Try again later, send less, or do without.
    #[error("the mailbox is full")]
    Overloaded(T),
}

impl<T> SendError<T> {
    /// Returns the same error, with the result of `f` to hand back.
    pub(crate) fn map<U>(self, f: impl FnOnce(T) -> U) -> SendError<U> {
        match self {
            SendError::NoProcess(message) => SendError::NoProcess(f(message)),
            SendError::Overloaded(message) => SendError::Overloaded(f(message)),
        }
    }

    /// Returns the message that was not sent.
    pub fn into_message(self) -> T {
        match self {
            SendError::NoProcess(message) | SendError::Overloaded(message) => message,
        }
    }
}

/// A call without a reply.
#[derive(Error)]
#[non_exhaustive]
pub enum CallError<T> {
    /// The process had exited before the message was queued. Holds the message.
    #[error("the process has exited")]
    NoProcess(T),
    /// There was no room for the message, or it was dropped to make room for a newer message. Holds
    /// the message, which was not handled.
    #[error("the mailbox is full")]
    Overloaded(T),
    /// The process exited before it replied. The process may or may not have begun to handle the
    /// message.
    #[error("the process exited before it replied: {0}")]
    Died(ExitReason),
    /// The [`ReplyTo`](crate::ReplyTo) was dropped without an answer, on purpose or because the
    /// process that had it exited.
    #[error("the question was dropped without an answer")]
    Unanswered,
    /// The process would wait for itself: a deadlock. If the process has called itself, or its
    /// message was still waiting for room, this holds the message. Otherwise this is `None`: the
    /// process that was called is itself waiting, directly or not, for the caller, and may still
    /// handle the message.
    ///
    /// A call to oneself fails at once. A longer cycle takes some twenty milliseconds to find.
    /// Cycles are found among calls and questions that processes wait for directly: not through a
    /// [`ReplyTo`](crate::ReplyTo) that was passed on or [detached](crate::ReplyTo::detach), nor inside
    /// a set of futures that polls only the futures that were woken. Other things for which a turn waits at the same time, as in a
    /// `select!`, are ignored.
    ///
    /// The page [`deadlock`](crate::guide::deadlock) of the guide has examples and remedies.
    #[doc(alias = "deadlock")]
    #[doc(alias = "call cycle")]
    #[error("a cycle of calls: the caller would wait for itself")]
    Cycle(Option<T>),
    /// No reply came before the deadline.
    #[error("no reply in time")]
    TimedOut {
        /// Whether the message had reached the mailbox. If so, it may still be handled; otherwise
        /// it was still waiting for room, and is dropped.
        enqueued: bool,
    },
}

impl<T> CallError<T> {
    /// Returns the same error, with the result of `f` to hand back.
    pub(crate) fn map<U>(self, f: impl FnOnce(T) -> U) -> CallError<U> {
        match self {
            CallError::NoProcess(message) => CallError::NoProcess(f(message)),
            CallError::Overloaded(message) => CallError::Overloaded(f(message)),
            CallError::Died(reason) => CallError::Died(reason),
            CallError::Unanswered => CallError::Unanswered,
            CallError::Cycle(message) => CallError::Cycle(message.map(f)),
            CallError::TimedOut { enqueued } => CallError::TimedOut { enqueued },
        }
    }
}

impl<T> From<SendError<T>> for CallError<T> {
    fn from(error: SendError<T>) -> CallError<T> {
        match error {
            SendError::NoProcess(message) => CallError::NoProcess(message),
            SendError::Overloaded(message) => CallError::Overloaded(message),
        }
    }
}

/// A process that could not be spawned; its state is handed back.
#[derive(Error)]
#[non_exhaustive]
pub enum SpawnError<P> {
    /// The runtime's limit of live processes is reached. Try again when some have exited, or raise
    /// [`process_limit`](crate::RuntimeBuilder::process_limit).
    #[error("the limit of {limit} processes is reached")]
    Limit {
        /// Greatest number of live processes in the runtime.
        limit: u64,
        /// The state that was to be spawned.
        process: P,
    },
    /// The runtime is shutting down.
    #[error("the runtime is shutting down")]
    ShutDown {
        /// The state that was to be spawned.
        process: P,
    },
}

impl<P> SpawnError<P> {
    /// Returns the same error, with the result of `f` to hand back.
    pub(crate) fn map<Q>(self, f: impl FnOnce(P) -> Q) -> SpawnError<Q> {
        match self {
            SpawnError::Limit { limit, process } => {
                SpawnError::Limit { limit, process: f(process) }
            }
            SpawnError::ShutDown { process } => SpawnError::ShutDown { process: f(process) },
        }
    }

    /// Returns the state that was to be spawned.
    pub fn into_process(self) -> P {
        match self {
            SpawnError::Limit { process, .. } | SpawnError::ShutDown { process } => process,
        }
    }
}

/// A message that could not be sent to all of the processes.
#[derive(Error)]
#[error("the message could not be sent to {} of the processes", failed.len())]
pub struct SendAllError<A, T> {
    /// The addresses to which the message was not sent, each with the reason and the message, in
    /// the order of sending. All other processes were sent the message.
    pub failed: Vec<(A, SendError<T>)>,
}

/// Error of [`Context::blocking`](crate::Context::blocking): the closure gave no result. A closure that
/// has not run is handed back.
#[derive(Error, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum BlockingError<F = ()> {
    /// The closure panicked.
    #[error("the blocking closure {0}")]
    Panicked(Panic),
    /// The tokio runtime is shutting down, and did not run the closure.
    #[error("the blocking threads are shutting down")]
    ShutDown(F),
    /// There is no blocking thread, and the system refuses to start one. Try again later, run the
    /// closure elsewhere, or raise the system's limit of threads.
    #[error("the system has no thread for the blocking closure")]
    NoThread(F),
}

impl<F> BlockingError<F> {
    /// Drops the closure, so that the error can be returned or stored.
    pub fn without_closure(self) -> BlockingError {
        match self {
            BlockingError::Panicked(panic) => BlockingError::Panicked(panic),
            BlockingError::ShutDown(_) => BlockingError::ShutDown(()),
            BlockingError::NoThread(_) => BlockingError::NoThread(()),
        }
    }
}

/// A runtime that could not be started.
#[derive(Error, Debug)]
#[non_exhaustive]
pub enum StartError {
    /// The operating system refused to start a thread.
    #[error("cannot start a worker thread")]
    Thread(#[source] std::io::Error),
    /// The tokio runtime that drives timers and sockets could not be built.
    #[error("cannot start the tokio runtime")]
    Tokio(#[source] std::io::Error),
    /// `attach` was called outside of a tokio runtime.
    #[error("there is no tokio runtime here to attach to")]
    NoTokio,
    /// The program's memory lies at addresses of more than 48 bits, for which mailboxes have no
    /// room: the allocator tags its pointers or maps memory with five levels of pages.
    #[error("{}", NoSpareBits { address: *address })]
    Address {
        /// Address of memory that the allocator has returned.
        address: usize,
    },
}

/// Text of any of this crate's errors, without the value it hands back: for `?` in a `main`.
///
/// ```
/// # use throng::prelude::*;
/// # struct Idle;
/// # impl Process for Idle {}
/// fn main() -> Result<(), throng::Error> {
///     let runtime = Runtime::builder().workers(1).start()?;
///     runtime.spawn(Idle)?;
///     Ok(())
/// }
/// ```
#[derive(Error, Debug, Clone, PartialEq, Eq)]
#[error("{0}")]
pub struct Error(String);

impl Error {
    pub(crate) fn new(error: impl fmt::Display) -> Error {
        Error(error.to_string())
    }
}

// The value that is handed back need not implement `Debug`, so a derive would not do.
macro_rules! debug_and_convert {
    ($($name:ident),*) => {$(
        impl<T> fmt::Debug for $name<T> {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!(stringify!($name), "({})"), self)
            }
        }

        impl<T> From<$name<T>> for Error {
            fn from(error: $name<T>) -> Error {
                Error::new(error)
            }
        }
    )*};
}
pub(crate) use debug_and_convert;
debug_and_convert!(SendError, CallError, SpawnError, BlockingError);

impl<A, T> fmt::Debug for SendAllError<A, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SendAllError({self})")
    }
}

impl<A, T> From<SendAllError<A, T>> for Error {
    fn from(error: SendAllError<A, T>) -> Error {
        Error(error.to_string())
    }
}

impl From<StartError> for Error {
    fn from(error: StartError) -> Error {
        use std::error::Error as _;
        Error(match error.source() {
            Some(source) => format!("{error}: {source}"),
            None => error.to_string(),
        })
    }
}
