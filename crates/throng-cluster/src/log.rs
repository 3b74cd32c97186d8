//! [`ShardLog`]: what a replicated log has to offer, whichever engine it is.
//!
//! An engine orders records, keeps their bytes, and says at which position it has put each. It need not know who
//! appends, nor what a record is: [`Tail`](crate::Tail) decides by the content which records count.
//!
//! 1. A position that was acknowledged keeps its bytes. Where an engine breaks this, the readers notice.
//! 2. Appends of one handle reach the engine in the order of the calls, unless their outcome is not `Ok`.
//! 3. After an append with a condition has been refused, later ones may still be stored: an engine compares the end of
//!    the log with a number, and does not know who has put it there.

use std::pin::Pin;

use bytes::Bytes;
use futures_core::Stream;

use crate::replica::{AppendError, Position};

/// A future on the heap, of an operation on a log.
pub type BoxFuture<T> = Pin<Box<dyn Future<Output = T> + Send>>;
/// A stream on the heap, of the records of a log.
pub type BoxStream<T> = Pin<Box<dyn Stream<Item = T> + Send>>;

/// A log of records that several nodes append to and read. Cheap operations on a handle; what they start is done by the
/// futures that they return.
pub trait ShardLog: Send + Sync + 'static {
    /// Appends a record; if `after` is given, then only if the log ends there. The order of the appends is that of the
    /// calls, whenever the futures are polled.
    ///
    /// The future may never resolve: a caller that waits for it has a deadline.
    fn append(
        &self,
        record: Bytes,
        after: Option<Position>,
    ) -> BoxFuture<Result<Position, AppendError>>;

    /// Returns a position to which the log goes at least; 0 if it is empty. It may be too low.
    fn end(&self) -> BoxFuture<Result<Position, LogError>>;

    /// Returns the records from a position on: those that the log has, then those that are appended, for ever. After
    /// an error the stream is over; read again from the next position.
    fn read(&self, from: Position) -> BoxStream<Result<(Position, Bytes), LogError>>;

    /// Returns the length of the longest record that the log takes, in bytes. An append of a longer one is refused.
    fn record_bytes_max(&self) -> usize {
        usize::MAX
    }

    /// Removes the records before a position, or fewer of them.
    fn trim(&self, before: Position) -> BoxFuture<Result<(), LogError>>;
}

/// Error of reading a log, or of removing a part of it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LogError {
    /// The engine does not answer, or not now: try again.
    #[error("the log cannot be reached: {0}")]
    Unavailable(String),
    /// The records from there on are not in the log any more; this is the first that is. A copy of the state is
    /// needed to go on.
    #[error("the log begins at {}", .0.0)]
    Trimmed(Position),
}
