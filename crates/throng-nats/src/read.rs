//! Readers of a log: a consumer in the memory of a server, without acknowledgements, that begins at a position.
//!
//! A server sends a message once, and may lose it with a connection or with itself; the client then goes on with a
//! later one. So the reader counts: any position but the next is an error, and the caller reads again from the next.
//! A server that is gone, with its consumer, is noticed by missing heartbeats.

use std::sync::Arc;
use std::time::Duration;

use async_nats::jetstream::consumer::{AckPolicy, DeliverPolicy, pull};
use bytes::Bytes;
use futures_util::{StreamExt, stream};
use throng_cluster::{BoxStream, LogError, Position};

use crate::log::{Stream, unavailable};

/// Interval of heartbeats of a consumer without records; two missing ones end the reader.
const HEARTBEAT: Duration = Duration::from_secs(2);

/// Time after which a server forgets a consumer whose reader has gone.
const ABANDONED: Duration = Duration::from_secs(30);

/// Time for which a server keeps a request for records open.
const REQUEST: Duration = Duration::from_secs(30);

/// Bytes of records that are on their way to a reader, at least.
const AHEAD_BYTES: usize = 8 << 20;

/// Number of records on their way to a reader, at most.
const AHEAD: usize = 1000;

struct Reader {
    stream: Arc<Stream>,
    next: Position,
    messages: Option<pull::Stream>,
}

/// Returns the records of a stream from a position on.
pub(crate) fn read(
    stream: Arc<Stream>,
    from: Position,
) -> BoxStream<Result<(Position, Bytes), LogError>> {
    let reader = Reader { stream, next: Position(from.0.max(1)), messages: None };
    Box::pin(stream::try_unfold(reader, |reader| async { reader.read().await.map(Some) }))
}

impl Reader {
    async fn read(mut self) -> Result<((Position, Bytes), Reader), LogError> {
        let mut messages = match self.messages.take() {
            Some(messages) => messages,
            None => self.open().await?,
        };
        loop {
            let message = match messages.next().await {
                Some(Ok(message)) => message,
                Some(Err(error)) => return Err(self.unavailable(&error)),
                None => return Err(self.unavailable(&"the connection was closed")),
            };
            let at = message.info().map(|info| Position(info.stream_sequence));
            let at = at.map_err(|e| self.unavailable(&e))?;
            if at > self.next {
                return Err(self.missing(at).await);
            }
            if at == self.next {
                self.next = Position(at.0 + 1);
                self.messages = Some(messages);
                return Ok(((at, message.message.payload), self));
            }
        }
    }

    async fn open(&self) -> Result<pull::Stream, LogError> {
        self.check_begin().await?;
        let config = pull::Config {
            deliver_policy: DeliverPolicy::ByStartSequence { start_sequence: self.next.0 },
            ack_policy: AckPolicy::None,
            inactive_threshold: ABANDONED,
            // Another reader is made in milliseconds, and a consumer on three servers would be written to their disks.
            num_replicas: 1,
            memory_storage: true,
            ..pull::Config::default()
        };
        let context = &self.stream.context;
        let consumer = context.create_consumer_on_stream(config, &self.stream.name).await;
        let consumer = consumer.map_err(|e| self.unavailable(&e))?;
        // A record that does not fit into the limit would never come.
        let bytes = AHEAD_BYTES.max(context.client().server_info().max_payload * 2);
        let request = consumer.stream().max_messages_per_batch(AHEAD).max_bytes_per_batch(bytes);
        let messages = request.expires(REQUEST).heartbeat(HEARTBEAT).messages().await;
        messages.map_err(|e| self.unavailable(&e))
    }

    /// Refuses a position that was trimmed.
    async fn check_begin(&self) -> Result<(), LogError> {
        let first = Position(self.stream.find().await?.cached_info().state.first_sequence);
        if first > self.next { Err(LogError::Trimmed(first)) } else { Ok(()) }
    }

    /// Returns the error of a record that came in place of the next one.
    async fn missing(&self, at: Position) -> LogError {
        let reason = format!(
            "position {} was to come, and {} came; if it does again, the servers have lost records",
            self.next.0, at.0
        );
        self.check_begin().await.err().unwrap_or_else(|| self.unavailable(&reason))
    }

    fn unavailable(&self, reason: &dyn std::fmt::Display) -> LogError {
        unavailable(&self.stream.name, reason)
    }
}
