//! The life of a connection that TLS has secured, the same on both sides.
//!
//! ```text
//!  introduce   HELLO ▶◀ HELLO: version, cluster          within the time of the handshake
//!  run         read  ◀── frames ── each within its time; a byte at least every `silence_max`
//!              write ──▶ batches ── the peer takes a byte at least every `write_timeout`; a frame every `heartbeat`
//! ```
//!
//! Frames have their effects in a [`Traffic`]: there is one for the side that asks, and one for the side that answers.
//!
//! 1. A connection is read until something is wrong with it, whatever the peer does with what it is sent.
//! 2. A sign of life does not wait for an answer: each side sends its own, so that neither a long frame in one
//!    direction nor a busy service looks like a death.

use std::fmt;
use std::io;
use std::ops::RangeInclusive;
use std::time::Duration;

use bytes::{Buf, BytesMut};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::sync::Notify;
use tokio::time::{Instant, timeout, timeout_at};

use super::frame::{Frame, Hello, Limits, Malformed};
use super::stats::count;
use super::{Phase, Shared};

/// Versions of the protocol that this program speaks.
pub(super) const VERSIONS: RangeInclusive<u8> = 1..=1;

/// Bytes of a batch, to which its last frame may add. Each frame begins within what TLS takes at once, so none of a
/// batch that was offered to TLS has surely not left this node.
pub(super) const BATCH_BYTES: usize = 64 << 10;

const READ_BYTES: usize = 16 << 10;

/// Frames of one side of a connection.
pub(super) trait Traffic {
    /// Appends frames that are to be sent, until there are none or a batch is full.
    fn fill(&self, batch: &mut BytesMut) -> Result<(), End>;

    /// Takes a frame of the peer.
    fn arrived(&self, frame: Frame) -> Result<(), End>;

    /// Begins with nothing from here on.
    fn leave(&self);

    /// Returns the bell that rings when there is something to fill in.
    fn bell(&self) -> &Notify;
}

/// Reason for which a connection has ended.
#[derive(Debug)]
pub(super) enum End {
    /// There was nothing to ask.
    Idle,
    /// One of the nodes ends, and nothing is in flight.
    Left,
    /// This node has ended.
    Stopped,
    /// The node has as many open connections as it may have.
    Full,
    Closed(Option<io::Error>),
    Malformed(Malformed),
    /// A frame that the peer may not send.
    Forbidden(&'static str),
    Slow,
    Silent,
    Stalled,
}

impl End {
    pub(super) fn is_orderly(&self) -> bool {
        matches!(self, End::Idle | End::Left)
    }
}

impl fmt::Display for End {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            End::Idle => "the connection was idle",
            End::Left => "the node ends",
            End::Stopped => "this node has ended",
            End::Full => "as many connections are open as this node may have",
            End::Closed(None) => "the peer has closed the connection",
            End::Closed(Some(error)) => return write!(formatter, "the connection broke: {error}"),
            End::Malformed(malformed) => return write!(formatter, "the peer has sent {malformed}"),
            End::Forbidden(what) => return write!(formatter, "the peer has sent {what}"),
            End::Slow => "a frame of the peer did not arrive in time",
            End::Silent => "the peer gave no sign of life",
            End::Stalled => "the peer does not read",
        })
    }
}

/// Exchanges HELLO with the peer, which has to speak a version of ours and be of this cluster. Also returns the bytes
/// that have arrived behind its HELLO.
pub(super) async fn introduce<S>(stream: &mut S, shared: &Shared) -> Result<(Hello, BytesMut), End>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let (ours, mut bytes) = (shared.hello(), BytesMut::new());
    Frame::Hello(ours.clone()).encode(&mut bytes);
    let closed = |error| End::Closed(Some(error));
    stream.write_all(&bytes).await.map_err(closed)?;
    stream.flush().await.map_err(closed)?;
    bytes.clear();
    let nothing = Limits { request_bytes: 0, reply_bytes: 0, requests: 0 };
    let theirs = loop {
        match Frame::decode(&mut bytes, &nothing).map_err(End::Malformed)? {
            Some(Frame::Hello(hello)) => break hello,
            Some(_) => return Err(End::Forbidden("another frame before HELLO")),
            None if stream.read_buf(&mut bytes).await.map_err(closed)? == 0 => {
                return Err(End::Closed(None));
            }
            None => {}
        }
    };
    if ours.common_version(&theirs).is_none() {
        return Err(End::Forbidden("a HELLO without a version that this node speaks"));
    }
    if ours.cluster != theirs.cluster {
        return Err(End::Forbidden("a HELLO of another cluster"));
    }
    Ok((theirs, bytes))
}

/// Reads and writes until one of both ends. `arrived` has come behind the HELLO.
pub(super) async fn run<S>(
    stream: S,
    arrived: BytesMut,
    traffic: &impl Traffic,
    shared: &Shared,
) -> End
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let (mut reader, mut writer) = tokio::io::split(stream);
    let phases = async {
        shared.reached(Phase::Leaving).await;
        traffic.leave();
        traffic.bell().notify_one();
        shared.reached(Phase::Over).await;
        End::Stopped
    };
    let end = tokio::select! {
        end = read(&mut reader, arrived, traffic, shared) => end,
        end = write(&mut writer, traffic, shared) => end,
        end = phases => end,
    };
    let counters = &shared.counters;
    match end {
        End::Malformed(_) | End::Forbidden(_) => count(&counters.connections_malformed),
        End::Slow => count(&counters.connections_slow),
        End::Silent => count(&counters.connections_silent),
        End::Stalled => count(&counters.connections_stalled),
        End::Idle | End::Left => {
            // A courtesy: the peer tells an end from a cut.
            let _ = timeout(Duration::from_secs(1), writer.shutdown()).await;
        }
        End::Stopped | End::Full | End::Closed(_) => {}
    }
    end
}

async fn read(
    reader: &mut (impl AsyncRead + Unpin),
    mut bytes: BytesMut,
    traffic: &impl Traffic,
    shared: &Shared,
) -> End {
    let (options, limits) = (&shared.options, shared.options.limits());
    let mut alive = Instant::now();
    let mut frame_begun = None;
    loop {
        loop {
            match Frame::decode(&mut bytes, &limits) {
                Ok(Some(frame)) => {
                    frame_begun = None;
                    if let Err(end) = traffic.arrived(frame) {
                        return end;
                    }
                }
                Ok(None) => break,
                Err(malformed) => return End::Malformed(malformed),
            }
        }
        let mut until = (alive + options.silence_max, End::Silent);
        if !bytes.is_empty() {
            let begun = *frame_begun.get_or_insert(alive);
            if begun + options.frame_timeout <= until.0 {
                until = (begun + options.frame_timeout, End::Slow);
            }
        }
        if bytes.capacity() - bytes.len() < READ_BYTES / 4 {
            bytes.reserve(READ_BYTES);
        }
        match timeout_at(until.0, reader.read_buf(&mut bytes)).await {
            Ok(Ok(0)) => return End::Closed(None),
            Ok(Ok(_)) => alive = Instant::now(),
            Ok(Err(error)) => return End::Closed(Some(error)),
            Err(_) => return until.1,
        }
    }
}

async fn write(
    writer: &mut (impl AsyncWrite + Unpin),
    traffic: &impl Traffic,
    shared: &Shared,
) -> End {
    let options = &shared.options;
    let interval = options.heartbeat.min(options.idle_timeout);
    let mut batch = BytesMut::new();
    let mut beat = Instant::now() + interval;
    loop {
        if let Err(end) = traffic.fill(&mut batch) {
            return end;
        }
        if batch.is_empty() {
            if timeout_at(beat, traffic.bell().notified()).await.is_ok() {
                continue;
            }
            Frame::Heartbeat.encode(&mut batch);
        }
        while batch.has_remaining() {
            match timeout(options.write_timeout, writer.write_buf(&mut batch)).await {
                Ok(Ok(0)) => return End::Closed(None),
                Ok(Ok(_)) => {}
                Ok(Err(error)) => return End::Closed(Some(error)),
                Err(_) => return End::Stalled,
            }
        }
        match timeout(options.write_timeout, writer.flush()).await {
            Ok(Ok(())) => beat = Instant::now() + interval,
            Ok(Err(error)) => return End::Closed(Some(error)),
            Err(_) => return End::Stalled,
        }
        batch.clear();
        if batch.capacity() > 4 * BATCH_BYTES {
            // One long reply must not cost its length for as long as the connection lives.
            batch = BytesMut::new();
        }
    }
}
