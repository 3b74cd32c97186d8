//! WebSockets (RFC 6455): text messages in both directions over an upgraded connection.
//!
//! ```text
//!                       ┌───────────── task of the connection ─────────────┐
//!  client ──frames──►   │ MessageReader ──whole text messages──► inbox     │ ──► SocketInbox
//!         ◄──frames──   │ Session: ping, limits, close ◄──────── queue     │ ◄── Outbox, Outbox, …
//!                       └──────────────────────────────────────────────────┘
//! ```
//!
//! | file | subject |
//! |---|---|
//! | `upgrade` | the handshake: a request becomes a socket or is refused |
//! | `frames` | messages for clients, encoded once |
//! | `reader` | bytes from the client to messages |
//! | `queues` | the two bounded queues between a socket and the application |
//! | `session` | the socket's life in its task: reading, writing, timeouts, the close handshake |
//!
//! Invariants:
//! * A socket has no task of its own: the connection's task serves it, so that the socket counts as a
//!   connection and ends with the server's drain.
//! * Memory of a socket is bounded: an incomplete message, the two queues, and buffers that are freed
//!   when they are empty. A frame is not copied for each of its receivers.
//! * A [`SocketInbox`] always ends with a [`SocketEnd`], even if the request does not become a socket.

mod frames;
mod queues;
mod reader;
mod session;
mod upgrade;

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use tungstenite::Utf8Bytes;

pub use frames::Frames;
pub(crate) use queues::Endpoint;
pub use queues::{Outbox, OutboxError, SocketInbox};
#[cfg(feature = "fuzzing")]
pub(crate) use reader::{ClientMessage, MessageReader, Violation};
pub(crate) use session::run;
pub use upgrade::SocketUpgrade;
pub(crate) use upgrade::take_endpoint;

/// Limits of each socket; change the fields that differ from [`SocketLimits::default`].
#[derive(Clone, Debug)]
pub struct SocketLimits {
    /// Maximum number of sockets at once; further handshakes get 503. No limit by default.
    pub sockets_max: usize,
    /// Maximum bytes of a frame's payload from the client; a larger frame ends the socket with
    /// close code 1009.
    pub frame_bytes_max: usize,
    /// Maximum bytes of a message from the client, over all of its frames; a larger message ends
    /// the socket with close code 1009.
    pub message_bytes_max: usize,
    /// Maximum number of messages that wait in a [`SocketInbox`]. While so many messages wait, or
    /// `message_bytes_max` bytes of messages, the server does not read from the client.
    pub inbox_messages_max: usize,
    /// Maximum number of frames that wait in an [`Outbox`].
    pub outbox_frames_max: usize,
    /// Maximum bytes of the frames that wait in an [`Outbox`], with 2 to 10 bytes for the head of each.
    pub outbox_bytes_max: usize,
    /// Silence of the client after which the server sends a ping, repeated while the silence lasts.
    pub ping_interval: Duration,
    /// Silence of the client after which the server drops the connection. Time in which the server does
    /// not read from the client, because its inbox is full, does not count.
    pub idle_timeout: Duration,
    /// Maximum time in which no byte of a frame can be written, because the client does not read.
    /// Afterwards, the server closes the socket with code 1013.
    pub stall_timeout: Duration,
    /// Maximum time of a close, until the frames before it are written and the client has closed, too.
    /// Afterwards, the server drops the connection.
    pub close_timeout: Duration,
}

impl SocketLimits {
    /// Returns whether an outbox may have so many frames, with so many bytes.
    fn can_hold(&self, frames: usize, bytes: usize) -> bool {
        frames <= self.outbox_frames_max && bytes <= self.outbox_bytes_max
    }
}

impl Default for SocketLimits {
    fn default() -> SocketLimits {
        SocketLimits {
            sockets_max: usize::MAX,
            frame_bytes_max: 64 * 1024,
            message_bytes_max: 64 * 1024,
            inbox_messages_max: 16,
            outbox_frames_max: 128,
            outbox_bytes_max: 256 * 1024,
            ping_interval: Duration::from_secs(30),
            idle_timeout: Duration::from_secs(60),
            stall_timeout: Duration::from_secs(15),
            close_timeout: Duration::from_secs(5),
        }
    }
}

/// Configuration and counters of a service's sockets, which the state of a router provides to
/// [`SocketUpgrade`]. A clone refers to the same counters.
#[derive(Clone)]
pub struct Sockets(Arc<SocketsInner>);

struct SocketsInner {
    limits: SocketLimits,
    origins: Vec<String>,
    open: AtomicUsize,
    /// Sockets that are open, or whose handshake is being answered.
    places: AtomicUsize,
    refused: AtomicU64,
    frames_dropped: AtomicU64,
}

impl Sockets {
    /// Creates the configuration. Browsers may connect from pages of `origins`, and from pages that
    /// this server itself serves, by HTTP, under the request's `Host`.
    ///
    /// An origin is written as browsers send it, such as `https://example.org`. Behind a proxy that
    /// speaks TLS, list the service's own origin, because the server cannot see the scheme.
    pub fn new<O: Into<String>>(
        limits: SocketLimits,
        origins: impl IntoIterator<Item = O>,
    ) -> Sockets {
        let origins = origins.into_iter().map(Into::into).collect();
        let (open, places, refused, frames_dropped) = Default::default();
        let inner = SocketsInner { limits, origins, open, places, refused, frames_dropped };
        Sockets(Arc::new(inner))
    }

    /// Returns the number of open sockets.
    pub fn open(&self) -> usize {
        // Relaxed: the number guards no other data.
        self.0.open.load(Ordering::Relaxed)
    }

    /// Returns the number of handshakes that were refused since the start, because there were
    /// [`SocketLimits::sockets_max`] sockets.
    pub fn refused(&self) -> u64 {
        self.0.refused.load(Ordering::Relaxed) // Relaxed: as in `open`
    }

    /// Returns the number of frames that found no room in the queue of their socket, for all sockets
    /// since the start.
    pub fn frames_dropped(&self) -> u64 {
        // Relaxed: the number guards no other data.
        self.0.frames_dropped.load(Ordering::Relaxed)
    }

    fn limits(&self) -> &SocketLimits {
        &self.0.limits
    }

    fn origins(&self) -> &[String] {
        &self.0.origins
    }

    fn count_dropped_frames(&self, count: usize) {
        // Relaxed: as in `frames_dropped`.
        self.0.frames_dropped.fetch_add(count as u64, Ordering::Relaxed);
    }

    /// Takes a place for a socket, or counts a refusal if all places are taken.
    fn place(&self) -> Option<SocketPlace> {
        let max = self.limits().sockets_max;
        let next = |taken| if taken < max { Some(taken + 1) } else { None };
        // Relaxed: the number guards no other data.
        match self.0.places.fetch_update(Ordering::Relaxed, Ordering::Relaxed, next) {
            Ok(_) => Some(SocketPlace(self.clone())),
            Err(_) => {
                self.0.refused.fetch_add(1, Ordering::Relaxed); // Relaxed: as in `refused`
                None
            }
        }
    }

    /// Counts a socket as open until the returned value is dropped.
    fn count_open(&self) -> OpenSocket {
        self.0.open.fetch_add(1, Ordering::Relaxed); // Relaxed: as in `open`
        OpenSocket(self.clone())
    }
}

impl Default for Sockets {
    fn default() -> Sockets {
        Sockets::new(SocketLimits::default(), None::<String>)
    }
}

impl fmt::Debug for Sockets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sockets")
            .field("limits", self.limits())
            .field("origins", &self.origins())
            .field("open", &self.open())
            .field("frames_dropped", &self.frames_dropped())
            .finish()
    }
}

/// A socket that [`Sockets::open`] counts until this value is dropped.
struct OpenSocket(Sockets);

impl Drop for OpenSocket {
    fn drop(&mut self) {
        self.0.0.open.fetch_sub(1, Ordering::Relaxed); // Relaxed: as in `open`
    }
}

/// Place of a socket among [`SocketLimits::sockets_max`], given back when dropped.
struct SocketPlace(Sockets);

impl Drop for SocketPlace {
    fn drop(&mut self) {
        self.0.0.places.fetch_sub(1, Ordering::Relaxed); // Relaxed: as in `place`
    }
}

impl fmt::Debug for SocketPlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SocketPlace")
    }
}

/// Code of a close frame that the server sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CloseCode(u16);

impl CloseCode {
    /// Code 1000: the conversation has reached its end.
    pub const NORMAL: CloseCode = CloseCode(1000);
    /// Code 1001: the server is going away.
    pub const GOING_AWAY: CloseCode = CloseCode(1001);
    /// Code 1008: the client broke a rule of the application.
    pub const POLICY: CloseCode = CloseCode(1008);
    /// Code 1011: the server failed.
    pub const ERROR: CloseCode = CloseCode(1011);
    /// Code 1012: the server restarts; the client should connect again.
    pub const RESTART: CloseCode = CloseCode(1012);
    /// Code 1013: the server is overloaded, or the client reads too slowly; the client should
    /// connect again later.
    pub const TRY_AGAIN_LATER: CloseCode = CloseCode(1013);

    const PROTOCOL: CloseCode = CloseCode(1002);
    const UNSUPPORTED: CloseCode = CloseCode(1003);
    const NOT_UTF8: CloseCode = CloseCode(1007);
    const TOO_LARGE: CloseCode = CloseCode(1009);

    /// Returns the application's own code `code`, if it is in the range for such codes: 3000 to 4999.
    pub const fn application(code: u16) -> Option<CloseCode> {
        if 3000 <= code && code <= 4999 { Some(CloseCode(code)) } else { None }
    }

    /// Returns the code as a number.
    pub const fn get(self) -> u16 {
        self.0
    }
}

/// Reason for the end of a [`SocketInbox`], and its last item.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum SocketEnd {
    /// The client closed the socket, possibly with a code and a reason.
    Client {
        /// Code of the client's close frame.
        code: Option<u16>,
        /// Reason in the client's close frame; empty without a code.
        reason: Utf8Bytes,
    },
    /// The application closed the socket through its [`Outbox`].
    Application,
    /// The server drains, and asks the client by code 1012 to connect again.
    Drain,
    /// The client broke the protocol or exceeded a limit; the server sends this close code.
    Violation(CloseCode),
    /// The client did not read its frames within the stall timeout.
    Stalled,
    /// The client was silent for the idle timeout.
    Silent,
    /// The connection broke without a close.
    Lost,
    /// The request did not become a socket: the client left before, or the handler did not return the
    /// response of [`SocketUpgrade::accept`].
    NotOpened,
}

impl fmt::Display for SocketEnd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SocketEnd::Client { code: Some(code), reason } if reason.is_empty() => {
                write!(f, "the client closed the socket with code {code}")
            }
            SocketEnd::Client { code: Some(code), reason } => {
                write!(f, "the client closed the socket with code {code}: {reason:?}")
            }
            SocketEnd::Client { code: None, .. } => f.write_str("the client closed the socket"),
            SocketEnd::Application => f.write_str("the application closed the socket"),
            SocketEnd::Drain => f.write_str("the server drains"),
            SocketEnd::Violation(code) => {
                write!(f, "the client broke the protocol or a limit (close code {})", code.get())
            }
            SocketEnd::Stalled => f.write_str("the client does not read"),
            SocketEnd::Silent => f.write_str("the client is silent"),
            SocketEnd::Lost => f.write_str("the connection was lost"),
            SocketEnd::NotOpened => f.write_str("the request did not become a socket"),
        }
    }
}

impl std::error::Error for SocketEnd {}
