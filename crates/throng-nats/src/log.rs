//! [`NatsLog`]: a log on a stream, and the task that appends to it.
//!
//! ```text
//! append ─▶ queue ─▶ task of the log: sends, in order ─▶ task of each ack ─▶ oneshot ─▶ future of the append
//! ```
//!
//! 1. The queue has the order of the calls, and one task empties it.
//! 2. The time-out of an append runs from its call on. The client's own begins when its future is first polled, so a
//!    caller that awaits a window one by one would wait for one time-out after another.
//! 3. A success is a position of this stream: anything else that comes back is an unknown outcome.

use std::sync::Arc;
use std::time::Duration;

use async_nats::datetime::DateTime;
use async_nats::jetstream::context::{PublishAckFuture, PublishError, PublishErrorKind};
use async_nats::jetstream::message::PublishMessage;
use async_nats::jetstream::publish::PublishAck;
use async_nats::jetstream::{Context, stream};
use bytes::Bytes;
use throng_cluster::{AppendError, BoxFuture, BoxStream, LogError, Position, ShardLog};
use tokio::sync::{mpsc, oneshot};
use tokio::time::{Instant, timeout_at};

use crate::read;
use crate::settings;

/// Length of the headers of an append, at most: the server counts them as a part of the message.
const HEADERS_BYTES_MAX: usize = 64;

/// A log on a stream of NATS JetStream. Clones are handles to the same log, and share its order of appends.
///
/// Poll the futures and streams of a log within a runtime of tokio.
#[derive(Clone, Debug)]
pub struct NatsLog {
    stream: Arc<Stream>,
    appends: mpsc::UnboundedSender<Append>,
    ack_timeout: Duration,
}

/// The stream of a log.
#[derive(Debug)]
pub(crate) struct Stream {
    pub(crate) context: Context,
    pub(crate) name: String,
    /// Time at which the stream was made: another stream of the name is not the log.
    created: DateTime,
}

/// An append under way to the server.
#[derive(Debug)]
struct Append {
    record: Bytes,
    after: Option<Position>,
    deadline: Instant,
    outcome: oneshot::Sender<Result<Position, AppendError>>,
}

impl NatsLog {
    pub(crate) fn new(
        context: Context,
        ack_timeout: Duration,
        name: &str,
        created: DateTime,
    ) -> NatsLog {
        let name = name.to_owned();
        let stream = Arc::new(Stream { context, name, created });
        // The callers bound the queue: an owner has a window.
        let (appends, queue) = mpsc::unbounded_channel();
        tokio::spawn(send_all(stream.clone(), queue));
        NatsLog { stream, appends, ack_timeout }
    }
}

impl Stream {
    /// Asks the servers for the stream, with its state.
    pub(crate) async fn find(&self) -> Result<stream::Stream, LogError> {
        let found = self.context.get_stream(&self.name).await;
        let found = found.map_err(|e| unavailable(&self.name, &e))?;
        if found.cached_info().created != self.created {
            return Err(unavailable(&self.name, &"it was deleted, and made again"));
        }
        Ok(found)
    }
}

/// Returns the error of a log that cannot be used for some reason.
pub(crate) fn unavailable(name: &str, reason: &dyn std::fmt::Display) -> LogError {
    LogError::Unavailable(format!("stream {name}: {reason}"))
}

impl ShardLog for NatsLog {
    fn append(
        &self,
        record: Bytes,
        after: Option<Position>,
    ) -> BoxFuture<Result<Position, AppendError>> {
        let (bytes, bytes_max) = (record.len(), self.record_bytes_max());
        if bytes > bytes_max {
            let log = &self.stream.name;
            tracing::error!(log, bytes, bytes_max, "a record is longer than the servers take");
            // The server would break the connection, and all that is in flight with it.
            return Box::pin(async { Err(AppendError::Refused) });
        }
        let (outcome, answer) = oneshot::channel();
        let deadline = Instant::now() + self.ack_timeout;
        // If the task is gone, so is its runtime, and the answer is that nothing is known.
        let _ = self.appends.send(Append { record, after, deadline, outcome });
        Box::pin(async move { answer.await.unwrap_or(Err(AppendError::Unknown)) })
    }

    /// Returns the servers' setting `max_payload` less 64. An append of a longer record tells both lengths by an event.
    fn record_bytes_max(&self) -> usize {
        let max_payload = self.stream.context.client().server_info().max_payload;
        max_payload.saturating_sub(HEADERS_BYTES_MAX)
    }

    fn end(&self) -> BoxFuture<Result<Position, LogError>> {
        let stream = self.stream.clone();
        Box::pin(
            async move { Ok(Position(stream.find().await?.cached_info().state.last_sequence)) },
        )
    }

    fn read(&self, from: Position) -> BoxStream<Result<(Position, Bytes), LogError>> {
        read::read(self.stream.clone(), from)
    }

    /// Removes the records before a position, except for the last one: how an engine keeps the end of a log without
    /// records is nothing to rely on.
    fn trim(&self, before: Position) -> BoxFuture<Result<(), LogError>> {
        let stream = self.stream.clone();
        Box::pin(async move {
            let found = stream.find().await?;
            let state = &found.cached_info().state;
            // A purge up to 0 removes all records, and one beyond the end moves the end.
            let before = before.0.min(state.last_sequence);
            if before <= state.first_sequence.max(1) {
                return Ok(());
            }
            let purged = found.purge().sequence(before).await;
            purged.map(|_| ()).map_err(|e| unavailable(&stream.name, &e))
        })
    }
}

/// Sends the appends of a log in their order, until all handles of the log are gone.
async fn send_all(stream: Arc<Stream>, mut queue: mpsc::UnboundedReceiver<Append>) {
    let subject = settings::subject(&stream.name);
    while let Some(Append { record, after, deadline, outcome }) = queue.recv().await {
        let mut message = PublishMessage::build().payload(record);
        if let Some(Position(after)) = after {
            message = message.expected_last_sequence(after);
        }
        // While the connection is lost the client keeps what it can, and then this waits.
        let sent = timeout_at(deadline, stream.context.send_publish(subject.clone(), message));
        match sent.await {
            Ok(Ok(ack)) => {
                let stream = stream.clone();
                tokio::spawn(async move {
                    // The caller may have gone.
                    let _ = outcome.send(acknowledged(&stream.name, deadline, ack).await);
                });
            }
            Ok(Err(error)) => {
                let _ = outcome.send(failed(&stream.name, &error));
            }
            Err(_elapsed) => {
                let _ = outcome.send(Err(AppendError::Unknown));
            }
        }
    }
}

async fn acknowledged(
    name: &str,
    deadline: Instant,
    ack: PublishAckFuture,
) -> Result<Position, AppendError> {
    match timeout_at(deadline, ack.into_future()).await {
        Ok(Ok(PublishAck { stream, sequence, duplicate: false, .. }))
            if stream == name && sequence > 0 =>
        {
            Ok(Position(sequence))
        }
        Ok(Ok(ack)) => {
            tracing::error!(log = name, ?ack, "an append came to another place than the log");
            Err(AppendError::Unknown)
        }
        Ok(Err(error)) => failed(name, &error),
        Err(_elapsed) => Err(AppendError::Unknown),
    }
}

/// Returns the outcome of an append that the client or the server did not carry out.
fn failed(name: &str, error: &PublishError) -> Result<Position, AppendError> {
    match error.kind() {
        PublishErrorKind::WrongLastSequence => return Err(AppendError::Refused),
        // Nothing answers while the stream has no leader.
        PublishErrorKind::TimedOut | PublishErrorKind::StreamNotFound => {}
        _ => tracing::warn!(log = name, %error, "an append failed"),
    }
    Err(AppendError::Unknown)
}
