//! [`Links`]: calls between the nodes of a cluster, whose content is for others to know.
//!
//! ```text
//!  node a                                                                   node b
//!  call ─▶ route ─▶ outgoing: unsent │ sent ─▶ REQUEST ─ mTLS ─▶ incoming: in flight ─▶ Service
//!    ▲     dials,            ▲       │                                │                    │
//!    │     backs off         │       └────── end of the connection:   │                    │
//!    │                       │               nothing happened│unknown │                    │
//!    └── reply, refusal ─────┴──────────── REPLY, REFUSAL ◀───────────┴──── until the deadline
//! ```
//!
//! A node dials when it has something to ask, so between two nodes there are at most two connections, one for the
//! questions of each. Both sides introduce themselves by HELLO before anything else.
//!
//! 1. [`CallError::Unknown`] is said only of a request that was handed to TLS, and no other error of such a request
//!    unless the peer has said that nothing has happened. All other errors hand the request back.
//! 2. A request goes to the incarnation that it is meant for, or nowhere.
//! 3. A request whose time is over is not begun, and a reply whose time is over is not delivered. Time that passes in
//!    a queue is taken off before the next node hears how much is left; time on the wire is not known to anybody.
//! 4. Each queue, frame, wait and number of connections has a limit, and each that is reached has a counter.

use std::collections::HashMap;
use std::fmt;
use std::net::SocketAddr;
use std::ops::RangeInclusive;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use tokio::net::TcpListener;
use tokio::sync::{Semaphore, watch};
use tokio::time::{Instant, timeout, timeout_at};

use crate::{BoxFuture, Incarnation};

mod connection;
pub mod frame;
mod identity;
mod incoming;
mod outgoing;
mod stats;

pub use identity::{ALPN, Files, Identity, IdentityError};
pub use stats::Stats;

use outgoing::{DialError, Outcome, Route, SubmitError};
use stats::{Counters, count};

/// Calls to other nodes, and the service of theirs. Dropped, it closes all connections; [`Links::stop`] does so in
/// order.
///
/// ```no_run
/// # use std::{sync::Arc, time::Duration};
/// # use bytes::Bytes;
/// # use throng_cluster::{BoxFuture, Incarnation, link::*};
/// struct Echo;
///
/// impl Service for Echo {
///     fn call(&self, _: Peer, request: Bytes, _: Deadline) -> BoxFuture<Result<Bytes, Refusal>> {
///         Box::pin(async move { Ok(request) })
///     }
/// }
///
/// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
/// let files = Files { ca: "ca.pem".into(), cert: "node.pem".into(), key: "node.key".into() };
/// let identity = Identity::load(files, "shop")?;
/// let listener = tokio::net::TcpListener::bind("0.0.0.0:7001").await?;
/// let links = Links::start(listener, identity, Incarnation(1), Arc::new(Echo), Options::default());
/// let other = Target { address: "b.example:7001".into(), node: Incarnation(2) };
/// let reply = links.call(&other, "hello".into(), Duration::from_secs(1)).await?;
/// # Ok(()) }
/// ```
#[derive(Debug)]
pub struct Links(Arc<Shared>);

/// Answers to the calls of other nodes.
pub trait Service: Send + Sync + 'static {
    /// Answers a request. The future is dropped when the deadline is over, when the caller has lost interest, and when
    /// the connection ends: work that has to be done nevertheless belongs into a task of its own.
    fn call(
        &self,
        from: Peer,
        request: Bytes,
        deadline: Deadline,
    ) -> BoxFuture<Result<Bytes, Refusal>>;
}

/// Answer of a service that has done nothing, with the reason in the service's own encoding.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal(pub Bytes);

/// Node that a call goes to.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Target {
    /// Host and port.
    pub address: String,
    /// Incarnation that has to be found there.
    pub node: Incarnation,
}

/// Node that a call comes from, as it has introduced itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Peer {
    /// Incarnation of the node.
    pub node: Incarnation,
    /// Levels of features that the node's program understands.
    pub levels: RangeInclusive<u32>,
    /// Address of the other end of the connection; the node listens elsewhere.
    pub address: SocketAddr,
}

/// Moment after which nobody waits for an answer any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Deadline(Instant);

impl Deadline {
    /// Returns the deadline after some time from here, at most a day.
    pub fn after(within: Duration) -> Deadline {
        // A peer may say any number, and the sum with the largest would overflow.
        Deadline(Instant::now() + within.min(Duration::from_secs(24 * 60 * 60)))
    }

    /// Returns the time that is left.
    pub fn remaining(self) -> Duration {
        self.0.saturating_duration_since(Instant::now())
    }

    /// Whether no time is left.
    pub fn is_over(self) -> bool {
        self.remaining().is_zero()
    }
}

/// Limits and intervals. All nodes of a cluster should have the same.
#[derive(Clone, Debug)]
pub struct Options {
    /// Levels of features that this program understands, for peers to know.
    pub levels: RangeInclusive<u32>,
    /// Longest request, in bytes, at most 1 GiB; 1 MiB.
    pub request_bytes_max: u32,
    /// Longest reply, in bytes, at most 1 GiB; 16 MiB.
    pub reply_bytes_max: u32,
    /// Requests in flight on a connection; 4,096.
    pub requests_max: u32,
    /// Bytes of requests in flight, and bytes of replies that wait for being written, each per connection; 32 MiB.
    pub queued_bytes_max: u32,
    /// Connections that were made and accepted, together; 1,024.
    pub connections_max: u32,
    /// Accepted connections that have not introduced themselves yet; 64.
    pub handshakes_max: u32,
    /// Time for connecting, TLS and HELLO together; 5 s.
    pub handshake_timeout: Duration,
    /// Time for a frame to arrive once its first byte has; 10 s.
    pub frame_timeout: Duration,
    /// Time for which the peer may take nothing of what it is sent; 10 s.
    pub write_timeout: Duration,
    /// Interval in which a node sends something, be it only a sign of life; 2 s.
    pub heartbeat: Duration,
    /// Time without a byte after which the peer is dead; 7 s. It is a multiple of the peers' heartbeat.
    pub silence_max: Duration,
    /// Time without a call after which the connection is closed by the node that has dialed; 60 s.
    pub idle_timeout: Duration,
    /// Pauses before the second and before the last of many dials that fail, with random parts; 50 ms to 5 s.
    pub backoff: RangeInclusive<Duration>,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            levels: 0..=0,
            request_bytes_max: 1 << 20,
            reply_bytes_max: 16 << 20,
            requests_max: 4096,
            queued_bytes_max: 32 << 20,
            connections_max: 1024,
            handshakes_max: 64,
            handshake_timeout: Duration::from_secs(5),
            frame_timeout: Duration::from_secs(10),
            write_timeout: Duration::from_secs(10),
            heartbeat: Duration::from_secs(2),
            silence_max: Duration::from_secs(7),
            idle_timeout: Duration::from_secs(60),
            backoff: Duration::from_millis(50)..=Duration::from_secs(5),
        }
    }
}

impl Options {
    fn limits(&self) -> frame::Limits {
        // The length of a frame has 4 bytes, and is more than that of its payload.
        const PAYLOAD_BYTES_MAX: u32 = 1 << 30;
        frame::Limits {
            request_bytes: self.request_bytes_max.min(PAYLOAD_BYTES_MAX),
            reply_bytes: self.reply_bytes_max.min(PAYLOAD_BYTES_MAX),
            requests: self.requests_max,
        }
    }
}

/// Error of a call. After all but [`Unknown`](CallError::Unknown) nothing has happened, and the request is handed back.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CallError {
    /// The node cannot be reached, or ends: try another node, or again later.
    #[error("the node cannot be reached: {reason}")]
    Unreachable {
        /// Request that was not sent, or not begun.
        request: Bytes,
        /// Reason, for people.
        reason: String,
    },
    /// Another node is at the address: look for the node elsewhere.
    #[error("{found} is at the address")]
    WrongNode {
        /// Request that was not sent.
        request: Bytes,
        /// Incarnation that was found.
        found: Incarnation,
    },
    /// This node or the other has too much in flight: wait.
    #[error("too much is in flight")]
    Busy {
        /// Request that was not sent, or not begun.
        request: Bytes,
    },
    /// The request is longer than this node sends or the other takes: it can never be sent.
    #[error("the request is longer than {bytes_max} bytes")]
    TooLarge {
        /// Request that was not sent.
        request: Bytes,
        /// Length of the longest request, in bytes.
        bytes_max: u32,
    },
    /// The time was over before the request could be sent.
    #[error("the time was over before the request could be sent")]
    Expired {
        /// Request that was not sent.
        request: Bytes,
    },
    /// The service has done nothing.
    #[error("the service has refused the request")]
    Refused {
        /// Request that was refused.
        request: Bytes,
        /// Reason, in the encoding of the service.
        reason: Bytes,
    },
    /// The request was sent, and no answer has come: it may have been carried out, and may yet be.
    #[error("it is unknown whether the request was carried out: {0}")]
    Unknown(String),
}

impl CallError {
    /// Returns the request, if nothing has happened.
    pub fn into_request(self) -> Option<Bytes> {
        match self {
            CallError::Unreachable { request, .. }
            | CallError::WrongNode { request, .. }
            | CallError::Busy { request }
            | CallError::TooLarge { request, .. }
            | CallError::Expired { request }
            | CallError::Refused { request, .. } => Some(request),
            CallError::Unknown(_) => None,
        }
    }
}

/// Parts that all connections of a node share.
struct Shared {
    identity: Identity,
    me: Incarnation,
    service: Arc<dyn Service>,
    options: Options,
    counters: Counters,
    phase: watch::Sender<Phase>,
    /// One permit for each connection that may be open.
    places: Arc<Semaphore>,
    /// One permit for each connection that may be introducing itself.
    handshakes: Arc<Semaphore>,
    routes: Mutex<HashMap<Target, Arc<Route>>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Phase {
    Running,
    /// Calls in flight come to their end, and no other call is begun.
    Leaving,
    Over,
}

impl Links {
    /// Starts to accept connections from other nodes. The incarnation is a random number of this start.
    ///
    /// # Panics
    ///
    /// Panics outside of a Tokio runtime with I/O and time.
    pub fn start(
        listener: TcpListener,
        identity: Identity,
        me: Incarnation,
        service: Arc<dyn Service>,
        options: Options,
    ) -> Links {
        let permits = |number| Arc::new(Semaphore::new(number as usize));
        let shared = Arc::new(Shared {
            identity,
            me,
            service,
            counters: Counters::default(),
            phase: watch::Sender::new(Phase::Running),
            places: permits(options.connections_max),
            handshakes: permits(options.handshakes_max),
            routes: Mutex::default(),
            options,
        });
        tokio::spawn(incoming::listen(listener, shared.clone()));
        Links(shared)
    }

    /// Sends a request to a node and returns its reply. Dropped, the call makes room for others, and the other node is
    /// told that nobody waits.
    ///
    /// # Errors
    ///
    /// See [`CallError`]: it says whether something may have happened.
    pub async fn call(
        &self,
        to: &Target,
        request: Bytes,
        within: Duration,
    ) -> Result<Bytes, CallError> {
        let Shared { counters, .. } = &*self.0;
        count(&counters.calls);
        let result = self.0.call(to, request, Deadline::after(within)).await;
        count(match &result {
            Ok(_) => &counters.calls_replied,
            Err(CallError::Unreachable { .. }) => &counters.calls_unreachable,
            Err(CallError::WrongNode { .. }) => &counters.calls_wrong_node,
            Err(CallError::Busy { .. }) => &counters.calls_busy,
            Err(CallError::TooLarge { .. }) => &counters.calls_too_large,
            Err(CallError::Expired { .. }) => &counters.calls_expired,
            Err(CallError::Refused { .. }) => &counters.calls_refused,
            Err(CallError::Unknown(_)) => &counters.calls_unknown,
        });
        result
    }

    /// Returns the counters since the start.
    pub fn stats(&self) -> Stats {
        let free = self.0.places.available_permits() as u64;
        let open = u64::from(self.0.options.connections_max).saturating_sub(free);
        self.0.counters.read(open)
    }

    /// Ends in order: accepts nothing, lets what is in flight come to its end, and closes all connections, at the latest
    /// after some time. Peers that heed it lose no call to [`CallError::Unknown`].
    pub async fn stop(&self, within: Duration) {
        self.0.phase.send_replace(Phase::Leaving);
        let all = self.0.places.acquire_many(self.0.options.connections_max);
        // The connections that are left after that time are cut.
        let _ = timeout(within, all).await;
        self.0.phase.send_replace(Phase::Over);
    }
}

impl Drop for Links {
    fn drop(&mut self) {
        self.0.phase.send_replace(Phase::Over);
    }
}

impl Shared {
    async fn call(
        self: &Arc<Shared>,
        to: &Target,
        request: Bytes,
        deadline: Deadline,
    ) -> Result<Bytes, CallError> {
        let bytes_max = self.options.limits().request_bytes;
        if request.len() > bytes_max as usize {
            return Err(CallError::TooLarge { request, bytes_max });
        }
        let route = self.route(to);
        // A connection may be closed between its choice and its use, but hardly twice.
        for _ in 0..3 {
            let outgoing = match timeout_at(deadline.0, route.connection(self)).await {
                Ok(Ok(outgoing)) => outgoing,
                Ok(Err(DialError::Failed(reason))) => {
                    return Err(CallError::Unreachable { request, reason });
                }
                Ok(Err(DialError::WrongNode(found))) => {
                    return Err(CallError::WrongNode { request, found });
                }
                Ok(Err(DialError::Full)) => return Err(CallError::Busy { request }),
                Err(_) => return Err(CallError::Expired { request }),
            };
            let outcome = match outgoing.submit(request.clone(), deadline) {
                Ok(waiting) => waiting.outcome(deadline).await,
                Err(SubmitError::Closed) => continue,
                Err(SubmitError::Busy) => return Err(CallError::Busy { request }),
                Err(SubmitError::TooLarge(bytes_max)) => {
                    return Err(CallError::TooLarge { request, bytes_max });
                }
            };
            return result(outcome, request);
        }
        Err(CallError::Unreachable { request, reason: "its connections close at once".to_owned() })
    }

    fn route(&self, to: &Target) -> Arc<Route> {
        let mut routes = lock(&self.routes);
        if let Some(route) = routes.get(to) {
            return route.clone();
        }
        // Each start of a node is another target, so those of the past have to go.
        routes.retain(|_, route| route.is_used());
        routes.entry(to.clone()).or_insert_with(|| Arc::new(Route::new(to.clone()))).clone()
    }

    /// Waits until the node has reached a phase of its end.
    async fn reached(&self, phase: Phase) {
        // The sender is in this very value, so there is no error.
        let _ = self.phase.subscribe().wait_for(|now| *now >= phase).await;
    }

    fn hello(&self) -> frame::Hello {
        frame::Hello {
            versions: connection::VERSIONS,
            cluster: self.identity.cluster().to_owned(),
            node: self.me,
            levels: self.options.levels.clone(),
            limits: self.options.limits(),
        }
    }
}

/// Returns the result of a call whose request was accepted by a connection.
fn result(outcome: Outcome, request: Bytes) -> Result<Bytes, CallError> {
    use frame::Reason;
    let unknown = |reason: &str| CallError::Unknown(reason.to_owned());
    Err(match outcome {
        Outcome::Reply(reply) => return Ok(reply),
        Outcome::Refusal(Reason::Service, reason) => CallError::Refused { request, reason },
        Outcome::Refusal(Reason::Busy, _) => CallError::Busy { request },
        Outcome::Refusal(Reason::Leaving, _) => {
            CallError::Unreachable { request, reason: "the node ends".to_owned() }
        }
        Outcome::Refusal(Reason::Failed, _) => unknown("the service has failed"),
        Outcome::Refusal(Reason::ReplyTooLarge, _) => unknown("the reply is too long"),
        Outcome::Unsent(reason) => CallError::Unreachable { request, reason },
        Outcome::Expired => CallError::Expired { request },
        Outcome::Lost(reason) => CallError::Unknown(reason),
    })
}

impl fmt::Debug for Shared {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Shared { identity, me, options, .. } = self;
        let mut debug = formatter.debug_struct("Links");
        debug.field("identity", identity).field("me", me).field("options", options);
        debug.finish_non_exhaustive()
    }
}

/// Locks a state, each change of which is whole before anything can panic.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
