//! What can go wrong, one enum per operation; what was not consumed is handed back.

use crate::exit::ExitReason;
use crate::memory::spare_bits::NoSpareBits;
use std::fmt;
use std::sync::Arc;
use thiserror::Error;

/// A message that could not be sent.
#[derive(Error)]
#[non_exhaustive]
pub enum SendError<T> {
    /// The process has exited; here is the message.
    #[error("there is no such process any more")]
    NoProcess(T),
    /// There is no room for the message, in this mailbox or in all of the runtime's together; here
    /// it is. Try again later, send less, or do without.
    #[error("the mailbox is full")]
    Overloaded(T),
}

impl<T> SendError<T> {
    /// The message that was not sent.
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
    /// The process had exited before; here is the message.
    #[error("there is no such process any more")]
    NoProcess(T),
    /// There was no room for the message, or it had to make room for a newer one; here it is. It
    /// was not handled.
    #[error("the mailbox is full")]
    Overloaded(T),
    /// The process exited before it replied; whether it had begun is not known.
    #[error("the process exited before it replied: {0}")]
    Died(ExitReason),
    /// Whoever was to answer has dropped the [`ReplyTo`](crate::ReplyTo), on purpose or because
    /// it exited.
    #[error("the question was dropped without an answer")]
    Unanswered,
    /// The process would wait for itself: it has called itself, and here is the message; or, with
    /// none, somebody that waits for it, and what is queued there may still be handled.
    ///
    /// The second takes some ten milliseconds to find out, and is found among calls and questions
    /// that processes wait for directly: not through a [`ReplyTo`](crate::ReplyTo) that was passed
    /// on, nor inside a set of futures that polls only those which were woken. What else a turn waits
    /// for at the same time, as in a `select!`, does not count.
    ///
    /// The page [`deadlock`](crate::guide::deadlock) of the guide has examples and remedies.
    #[doc(alias = "deadlock")]
    #[doc(alias = "call cycle")]
    #[error("the call would wait for itself")]
    Cycle(Option<T>),
    /// No reply came in time.
    #[error("no reply in time")]
    TimedOut {
        /// Whether the message had reached the mailbox. It may still be handled then; otherwise it
        /// has waited for room, and is dropped.
        enqueued: bool,
    },
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
    /// As many processes live as the runtime allows. Try again when some have exited, or raise
    /// [`process_limit`](crate::RuntimeBuilder::process_limit).
    #[error("the limit of {limit} processes is reached")]
    Limit {
        /// The runtime's limit.
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
    /// The same with something else to hand back.
    pub(crate) fn map<Q>(self, f: impl FnOnce(P) -> Q) -> SpawnError<Q> {
        match self {
            SpawnError::Limit { limit, process } => {
                SpawnError::Limit { limit, process: f(process) }
            }
            SpawnError::ShutDown { process } => SpawnError::ShutDown { process: f(process) },
        }
    }

    /// The state that was to be spawned.
    pub fn into_process(self) -> P {
        match self {
            SpawnError::Limit { process, .. } | SpawnError::ShutDown { process } => process,
        }
    }
}

/// A message that could not be sent to all.
#[derive(Error)]
#[error("the message could not be sent to {} of the processes", failed.len())]
pub struct SendAllError<A, T> {
    /// To whom it was not sent, and why; in the order of sending. To all others it was.
    pub failed: Vec<(A, SendError<T>)>,
}

/// Processes of which not all could be spawned.
#[derive(Error)]
#[error("{} of the processes were not spawned: {reason}", rest.len())]
pub struct SpawnManyError<P> {
    /// Those that live.
    pub spawned: Vec<crate::Address<P>>,
    /// The states of those that do not, in their order.
    pub rest: Vec<P>,
    /// Why.
    pub reason: SpawnError<()>,
}

impl<P> SpawnManyError<P> {
    pub(crate) fn new(
        spawned: Vec<crate::Address<P>>,
        error: SpawnError<P>,
        later: impl Iterator<Item = P>,
    ) -> Self {
        let mut rest = Vec::new();
        let reason = error.map(|process| rest.push(process));
        rest.extend(later);
        SpawnManyError { spawned, rest, reason }
    }
}

/// A closure on the blocking threads that gave no result.
#[derive(Error, Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum BlockingError {
    /// It panicked; the text is the panic's message.
    #[error("the blocking closure panicked: {0}")]
    Panicked(Arc<str>),
    /// The tokio runtime is shutting down, and did not run it.
    #[error("the blocking threads are shutting down")]
    ShutDown,
}

/// A runtime that could not be started.
#[derive(Error, Debug)]
#[non_exhaustive]
pub enum StartError {
    /// The system refused a thread.
    #[error("cannot start a worker thread")]
    Thread(#[source] std::io::Error),
    /// The tokio runtime that drives timers and sockets could not be built.
    #[error("cannot start the tokio runtime")]
    Tokio(#[source] std::io::Error),
    /// `attach` was called outside of a tokio runtime.
    #[error("there is no tokio runtime here to attach to")]
    NoTokio,
    /// The program's memory lies at addresses of more than 48 bits, and mailboxes have room for no
    /// more: the allocator tags its pointers or maps memory with five levels of pages.
    #[error("{}", NoSpareBits { address: *address })]
    Address {
        /// Where the allocator has placed a piece of memory.
        address: usize,
    },
}

/// Any of this crate's errors, without what they hand back: for `?` in a `main`.
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

// What is handed back need not be printable, so these are written by hand.
macro_rules! debug_and_convert {
    ($($name:ident),*) => {$(
        impl<T> fmt::Debug for $name<T> {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!(stringify!($name), "({})"), self)
            }
        }

        impl<T> From<$name<T>> for Error {
            fn from(error: $name<T>) -> Error {
                Error(error.to_string())
            }
        }
    )*};
}
debug_and_convert!(SendError, CallError, SpawnError, SpawnManyError);

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

impl From<BlockingError> for Error {
    fn from(error: BlockingError) -> Error {
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
