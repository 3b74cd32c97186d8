//! The listener: accepts connections up to its limits, refuses the rest, and drains at the end.
//!
//! ```text
//! bind ──► start ──► accepting ──drain──► not accepting, requests in flight finish ──► closed
//!                                              └── deadline: what is left is cut
//! ```
//!
//! Invariants: at most `connections_max` connections are served, of each network of clients at most
//! `connections_per_network_max`, and at most [`Limits::refusals_max`] are being refused. When
//! [`Serving::drain`] returns, no task of this server is left.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::http::{HeaderValue, StatusCode, header};
use tokio::net::TcpListener;
use tokio::runtime::Handle;
use tokio::sync::watch;
use tokio::task::{JoinHandle, JoinSet};

use crate::http::admission::ConnectionPlace;
use crate::http::tls::{Listener, Tls};
use crate::http::{
    Answers, ClientAddress, Connections, Problem, TrustedProxies, answers, connection,
};

/// Limits of a server; change the fields that differ from [`Limits::default`].
#[derive(Clone, Debug)]
pub struct Limits {
    /// Maximum number of connections served at once, sockets among them; further connections get
    /// 503 and are closed.
    pub connections_max: usize,
    /// Maximum number of connections of one network of clients (see [`ClientAddress::network`]); further
    /// connections get 429 and are closed. Connections of trusted proxies do not count. No limit by default.
    pub connections_per_network_max: usize,
    /// Proxies that are trusted to name the address of their client; none by default.
    pub trusted_proxies: TrustedProxies,
    /// Maximum bytes of a request's head, up to and including the empty line at its end. Larger
    /// heads, and heads with more than 100 header lines, get 431.
    pub head_bytes_max: usize,
    /// Maximum bytes of a request's body; larger bodies get 413.
    pub body_bytes_max: usize,
    /// Maximum time for a request's head to arrive, from the opening of the connection or the end
    /// of the previous answer. When it is over, the client gets 408; or nothing, if the connection
    /// has served a request before and no byte of the next request came.
    pub header_timeout: Duration,
    /// Maximum time for a request's body to arrive and be answered. When it is over, the client
    /// gets 408 if the handler waits for more of the body, otherwise 503. Also the longest time for
    /// which a client may read no byte of its answer.
    pub request_timeout: Duration,
    /// Maximum time for a client to read its whole answer, from the first write that waits for the
    /// client. When it is over, the connection is closed.
    pub answer_timeout: Duration,
    /// Maximum time for requests in flight to finish, and for sockets to close, after
    /// [`Serving::drain`].
    pub drain_timeout: Duration,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            connections_max: 10_000,
            connections_per_network_max: usize::MAX,
            trusted_proxies: TrustedProxies::default(),
            head_bytes_max: 32 * 1024,
            body_bytes_max: 64 * 1024,
            header_timeout: Duration::from_secs(10),
            request_timeout: Duration::from_secs(30),
            answer_timeout: Duration::from_secs(300),
            drain_timeout: Duration::from_secs(10),
        }
    }
}

impl Limits {
    /// Returns the maximum number of open files that the connections of the server take: those that are served, those
    /// that are being refused, and one that is being accepted.
    pub fn files_max(&self) -> usize {
        self.connections_max.saturating_add(self.refusals_max() + 1)
    }

    /// Returns the maximum number of connections that are being answered 429 or 503; further connections are closed at
    /// once.
    fn refusals_max(&self) -> usize {
        (self.connections_max / 8).clamp(8, 64)
    }
}

/// Bound listener that serves nothing yet: clients may connect and wait.
///
/// ```
/// use axum::{Router, routing::get};
/// use throng_node::http::{Limits, Server};
/// use tokio::runtime::Handle;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> std::io::Result<()> {
/// let server = Server::bind(([127, 0, 0, 1], 0).into(), Limits::default()).await?;
/// let hello = Router::new().route("/", get(|| async { "hello" }));
/// let serving = server.start(hello, &Handle::current());
/// println!("serving http://{}/", serving.address());
/// assert_eq!(serving.drain().await.cut, 0);
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Server {
    listener: Listener,
    address: SocketAddr,
    limits: Limits,
    connections: Connections,
    answers: Answers,
}

/// A running server. Dropping it begins the [`drain`](Serving::drain) without waiting for its end.
#[derive(Debug)]
pub struct Serving {
    address: SocketAddr,
    drain: watch::Sender<bool>,
    acceptor: JoinHandle<Drained>,
}

/// Outcome of [`Serving::drain`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub struct Drained {
    /// Number of connections that were still busy at the deadline and were closed.
    pub cut: usize,
}

impl Server {
    /// Binds `address`; port 0 picks a free port.
    ///
    /// # Errors
    /// The error of the operating system, such as `AddrInUse`.
    ///
    /// # Panics
    /// Panics if the caller is outside a tokio runtime.
    pub async fn bind(address: SocketAddr, limits: Limits) -> io::Result<Server> {
        let listener = TcpListener::bind(address).await?;
        let address = listener.local_addr()?;
        let listener = Listener::new(listener);
        let (connections, answers) = Default::default();
        Ok(Server { listener, address, limits, connections, answers })
    }

    /// Returns the counts of the server's connections, which go on while the server runs.
    pub fn connections(&self) -> &Connections {
        &self.connections
    }

    /// Returns the counts of the server's answers, which go on while the server runs.
    pub fn answers(&self) -> &Answers {
        &self.answers
    }

    /// Serves with TLS: HTTP/1.1 inside, and a handshake within [`Limits::header_timeout`].
    #[must_use]
    pub fn with_tls(mut self, tls: Tls) -> Server {
        self.listener.secure(tls);
        self
    }

    /// Returns the bound address, with the actual port.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Serves `router` on `tokio` until drained.
    pub fn start(self, router: Router, tokio: &Handle) -> Serving {
        let (drain, drained) = watch::channel(false);
        let Server { listener, address, limits, connections, answers } = self;
        let (router, limits) = (answers::noting(router), Arc::new(limits));
        let acceptor = tokio.spawn(accept(listener, router, limits, connections, answers, drained));
        Serving { address, drain, acceptor }
    }
}

impl Serving {
    /// Returns the address of the server.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Stops accepting, closes sockets with code 1012, waits for them and for requests in flight up
    /// to the drain timeout, and cuts the rest.
    pub async fn drain(self) -> Drained {
        // The acceptor holds a receiver while it lives; if the send fails, the server has ended.
        let _ = self.drain.send(true);
        self.acceptor.await.unwrap_or(Drained { cut: 0 })
    }
}

/// Pause after the system failed to accept (for example without free file descriptors), so that the
/// acceptor does not spin.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

async fn accept(
    listener: Listener,
    router: Router,
    limits: Arc<Limits>,
    counts: Connections,
    answers: Answers,
    mut drain: watch::Receiver<bool>,
) -> Drained {
    let mut connections = JoinSet::new();
    let mut refusals = JoinSet::new();
    let mut failing = false;
    loop {
        counts.note_open(connections.len());
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            Some(_) = connections.join_next() => continue,
            Some(_) = refusals.join_next() => continue,
            _ = drain.changed() => break,
        };
        let failed_before = std::mem::replace(&mut failing, accepted.is_err());
        match accepted {
            Ok((stream, peer)) => {
                let client = ClientAddress(peer.ip());
                let admitted = if connections.len() < limits.connections_max {
                    admit(client, &limits, &counts)
                } else {
                    counts.count_refused();
                    Err(too_many_connections())
                };
                match admitted {
                    Ok(place) => {
                        let serving = connection::serve(
                            stream,
                            client,
                            router.clone(),
                            limits.clone(),
                            answers.clone(),
                            drain.clone(),
                        );
                        connections.spawn(async move {
                            let _place = place;
                            serving.await;
                        });
                    }
                    Err(problem) if refusals.len() < limits.refusals_max() => {
                        answers.count(None, problem.status());
                        let (limits, drain) = (limits.clone(), drain.clone());
                        refusals.spawn(connection::refuse(stream, problem, limits, drain));
                    }
                    Err(_) => {}
                }
            }
            Err(error) => {
                if !failed_before {
                    tracing::warn!(%error, "cannot accept connections; retrying");
                }
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
    drop(listener);
    let all = async {
        while connections.join_next().await.is_some() {
            counts.note_open(connections.len());
        }
    };
    let _ = tokio::time::timeout(limits.drain_timeout, all).await;
    let cut = connections.len();
    connections.shutdown().await;
    counts.note_open(0);
    refusals.shutdown().await;
    Drained { cut }
}

/// Takes a place among the connections of a client's network. A trusted proxy stands for many clients and needs none.
fn admit(
    client: ClientAddress,
    limits: &Limits,
    counts: &Connections,
) -> Result<Option<ConnectionPlace>, Problem> {
    let max = limits.connections_per_network_max;
    if max == usize::MAX || limits.trusted_proxies.contains(client.0) {
        return Ok(None);
    }
    counts.enter(client, max).map(Some).ok_or_else(too_many_connections_of_network)
}

fn too_many_connections() -> Problem {
    Problem::new(
        StatusCode::SERVICE_UNAVAILABLE,
        "too-many-connections",
        "the server has reached its maximum number of connections; try again in a second",
    )
    .with_header(header::RETRY_AFTER, HeaderValue::from_static("1"))
}

fn too_many_connections_of_network() -> Problem {
    Problem::new(
        StatusCode::TOO_MANY_REQUESTS,
        "too-many-connections-of-network",
        "your network has reached its maximum number of connections; close one, or try again in a second",
    )
    .with_header(header::RETRY_AFTER, HeaderValue::from_static("1"))
}
