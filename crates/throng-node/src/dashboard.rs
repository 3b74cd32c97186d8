//! The dashboard: a page about this node for its operator, on a listener of its own.
//!
//! ```text
//!                    ┌ Host is this machine's? ┐
//! browser ── page ──►│ static files            │ no token, no data
//!         ── hello ─►│ socket: checks the token│◄── frame ── Sampler: one sample a second for all
//!         ── ask ───►│   top, info, tree, kinds│──► the requests of the admin socket
//!                    └─────────────────────────┘
//! ```
//!
//! Invariants:
//! * Without the admin token, the listener answers with the files of the page and nothing else. No URL that
//!   a server sees has the token: the page reads it from the fragment of its own URL.
//! * A page of another origin reaches nothing, not even if its name resolves to this machine: requests need a
//!   `Host` that is an address of this listener, and sockets an `Origin` that matches it.
//! * A token that was replaced opens nothing, and sockets that it has opened are closed within a second.
//! * What a dashboard can change are the messages of an entity: by the same socket, and so with the same token and from
//!   the same origin.
//! * The number of dashboards, their requests in progress and the size of each answer have bounds, and nothing
//!   is sampled while no dashboard is open.

pub(crate) mod latency;
mod page;
mod sampler;
mod socket;
pub(crate) mod token;

use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use crate::http::{
    Answers, ClientAddress, Limited, Limits, Problem, Rate, RateTable, Server, Serving,
    SocketLimits, Sockets, bearer_text, unauthorized,
};
use axum::Router;
use axum::extract::{FromRef, FromRequestParts, Request, State};
use axum::http::request::Parts;
use axum::http::uri::Authority;
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use throng::RuntimeHandle;
use throng_durable::Node;
use tokio::sync::Semaphore;

use latency::Latency;
use sampler::{Sampler, Source};
use token::{AdminToken, Digest, TokenFileError};

use crate::admin::Inspected;
use crate::options::DashboardAddress;

/// Error in opening the dashboard.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DashboardError {
    /// The token cannot be read or drawn.
    #[error(transparent)]
    Token(#[from] TokenFileError),
    /// The address cannot be used: choose another one.
    #[error(
        "cannot listen on {address} for the dashboard; choose another address with --admin-listen"
    )]
    Listen {
        /// Address of the dashboard.
        address: SocketAddr,
        /// Error of the operating system.
        source: io::Error,
    },
}

/// Parts of a node that its dashboard shows.
#[derive(Clone, Debug)]
pub(crate) struct Subject {
    pub(crate) runtime: RuntimeHandle,
    pub(crate) node: Option<Node>,
    pub(crate) latency: Latency,
    pub(crate) answers: Answers,
}

/// A running dashboard.
#[derive(Debug)]
pub(crate) struct Dashboard {
    serving: Serving,
    /// Token that was drawn at this start.
    drawn: Option<String>,
}

impl Dashboard {
    /// Opens the dashboard, unless it is off, with the token in `directory`; draws one if there is none. `metrics` are
    /// routes that the token opens, too. A drain takes `drain_timeout` at most, and a second.
    ///
    /// # Errors
    /// The token cannot be read or written, or the address cannot be used.
    pub(crate) async fn open(
        address: DashboardAddress,
        directory: &Path,
        subject: Subject,
        metrics: Router,
        connections_max: usize,
        drain_timeout: Duration,
    ) -> Result<Option<Dashboard>, DashboardError> {
        let address = match address {
            DashboardAddress::Off => return Ok(None),
            DashboardAddress::At(address) => Some(address),
            DashboardAddress::Default => None,
        };
        let (token, drawn) = AdminToken::load_or_draw(directory)?;
        let server = bind(address, connections_max, drain_timeout.min(DRAIN_MAX)).await?;
        let address = server.address();
        if !address.ip().is_loopback() {
            tracing::warn!(
                %address,
                "other machines can reach the dashboard: the admin token opens the names, labels, counts and \
                 links of all processes and the contents of all entities to them, and crosses the network \
                 unencrypted"
            );
        }
        let tokio = subject.runtime.tokio().clone();
        let routes = routes(Admin::new(address, token, subject), metrics);
        Ok(Some(Dashboard { serving: server.start(routes, &tokio), drawn }))
    }

    /// Returns the lines that tell the operator where the dashboard is.
    pub(crate) fn announcement(&self) -> String {
        let address = self.serving.address();
        match &self.drawn {
            Some(token) => format!("dashboard at {}", dashboard_url(address, token)),
            None => format!(
                "dashboard at http://{address}/, with the token of the first start; \
                 `throng admin-token` draws another"
            ),
        }
    }

    /// Returns the address of the listener.
    pub(crate) fn address(&self) -> SocketAddr {
        self.serving.address()
    }

    /// Closes all sockets with code 1012, and stops listening.
    pub(crate) async fn drain(self) {
        let drained = self.serving.drain().await;
        if drained.cut > 0 {
            tracing::debug!(connections = drained.cut, "closed busy connections of the dashboard");
        }
    }
}

async fn bind(
    address: Option<SocketAddr>,
    connections_max: usize,
    drain_timeout: Duration,
) -> Result<Server, DashboardError> {
    let limits =
        || Limits { connections_max, body_bytes_max: 0, drain_timeout, ..Limits::default() };
    let chosen = address.unwrap_or(DEFAULT_ADDRESS);
    let mut bound = Server::bind(chosen, limits()).await;
    // Another node on this machine may have the default port; its operator did not choose it.
    if address.is_none() && bound.as_ref().is_err_and(|e| e.kind() == io::ErrorKind::AddrInUse) {
        bound = Server::bind((Ipv4Addr::LOCALHOST, 0).into(), limits()).await;
    }
    bound.map_err(|source| DashboardError::Listen { address: chosen, source })
}

/// Returns the URL that opens the dashboard at `address`. The token is in the fragment, which a browser sends to no
/// server.
pub fn dashboard_url(address: SocketAddr, token: &str) -> String {
    format!("http://{address}/#token={token}")
}

/// State of the routes. Clones share everything.
#[derive(Clone)]
struct Admin(Arc<AdminInner>);

struct AdminInner {
    /// Address of the listener.
    address: SocketAddr,
    token: AdminToken,
    /// Wrong tokens of each network.
    attempts: RateTable<IpAddr>,
    inspected: Inspected,
    sampler: Sampler,
    sockets: Sockets,
    /// Permits of open dashboards.
    dashboards: Arc<Semaphore>,
    /// Permits of requests that visit processes, over all dashboards.
    surveys: Semaphore,
}

/// Reason why a token opens nothing.
#[derive(Clone, Copy, Debug)]
enum Denied {
    Wrong,
    /// Too many wrong tokens came from the client, so this one was not looked at.
    Limited(Limited),
}

impl Admin {
    fn new(address: SocketAddr, token: AdminToken, subject: Subject) -> Admin {
        let limits = SocketLimits {
            frame_bytes_max: REQUEST_BYTES_MAX,
            message_bytes_max: REQUEST_BYTES_MAX,
            inbox_messages_max: REQUESTS_WAITING_MAX,
            outbox_bytes_max: OUTBOX_BYTES_MAX,
            ..SocketLimits::default()
        };
        let (runtime, node) = (subject.runtime.clone(), subject.node.as_ref());
        let inspected = Inspected { runtime, node: node.map(Node::downgrade) };
        let sampler = Sampler::new(Source { subject, token: token.clone() });
        Admin(Arc::new(AdminInner {
            address,
            token,
            attempts: RateTable::new(ATTEMPTS, NETWORKS_MAX),
            inspected,
            sampler,
            sockets: Sockets::new(limits, None::<String>),
            dashboards: Arc::new(Semaphore::new(DASHBOARDS_MAX)),
            surveys: Semaphore::new(SURVEYS_MAX),
        }))
    }

    /// Checks a token that `client` has sent, and returns its digest.
    async fn check(&self, client: ClientAddress, token: &str) -> Result<Digest, Denied> {
        let network = client.network();
        // Taken before the check, so that requests at the same time try no more tokens.
        self.0.attempts.take(&network).map_err(Denied::Limited)?;
        let digest = Digest::of(token);
        // The file is read each time, so that a replaced token opens nothing from then on.
        let stored = self.0.token.read().await;
        if stored.is_some_and(|stored| stored.equals(&digest)) {
            self.0.attempts.give_back(&network);
            return Ok(digest);
        }
        Err(Denied::Wrong)
    }
}

impl FromRef<Admin> for Sockets {
    fn from_ref(admin: &Admin) -> Sockets {
        admin.0.sockets.clone()
    }
}

/// Proof that the request has the admin token.
struct Operator;

impl FromRequestParts<Admin> for Operator {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, admin: &Admin) -> Result<Operator, Problem> {
        let client = ClientAddress::from_request_parts(parts, admin).await?;
        let token = bearer_text(&parts.headers)?;
        match admin.check(client, token).await {
            Ok(_) => Ok(Operator),
            Err(Denied::Wrong) => {
                let detail = "this is not the admin token; `throng admin-token` draws another";
                Err(unauthorized("admin-token-wrong", detail))
            }
            Err(Denied::Limited(limited)) => Err(Problem::new(
                StatusCode::TOO_MANY_REQUESTS,
                "too-many-attempts",
                "too many wrong tokens came from this address; try again later",
            )
            .with_header(header::RETRY_AFTER, HeaderValue::from(limited.retry_after_seconds()))),
        }
    }
}

fn routes(admin: Admin, metrics: Router) -> Router {
    let with_token = from_fn_with_state(admin.clone(), require_token);
    Router::new()
        .route("/api/session", get(|| async { StatusCode::NO_CONTENT }))
        .merge(metrics.with_state(()))
        .fallback(|| async { StatusCode::NOT_FOUND })
        .layer(with_token)
        .merge(page::routes())
        .route("/api/socket", get(socket::open))
        .layer(from_fn_with_state(admin.clone(), check_host))
        .with_state(admin)
}

async fn require_token(
    State(_): State<Admin>,
    _: Operator,
    request: Request,
    next: Next,
) -> Response {
    next.run(request).await
}

/// Refuses a request for another host, which a browser sends if a page's name was made to resolve to this
/// machine (*DNS rebinding*).
async fn check_host(State(admin): State<Admin>, request: Request, next: Next) -> Response {
    if is_own_host(request.headers(), admin.0.address.ip()) {
        return next.run(request).await;
    }
    let detail = "open the dashboard by the address that it listens on, or as localhost";
    Problem::new(StatusCode::MISDIRECTED_REQUEST, "host-refused", detail).into_response()
}

/// Returns whether `Host` is this machine's loopback, or the address that the dashboard listens on. The port may
/// be another one, because a tunnel may have its own.
///
/// If it listens on all addresses, any address will do, but no name: only names can be made to resolve to another
/// machine.
fn is_own_host(headers: &HeaderMap, own: IpAddr) -> bool {
    let host = headers.get(header::HOST).and_then(|host| Authority::try_from(host.as_bytes()).ok());
    let Some(host) = host else { return false };
    let host = host.host();
    if host.eq_ignore_ascii_case("localhost") {
        return true;
    }
    let address = host.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>();
    address.is_ok_and(|address| address.is_loopback() || address == own || own.is_unspecified())
}

/// Address of the dashboard unless another is chosen.
const DEFAULT_ADDRESS: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 7071);

/// Maximum time of a drain. It comes after the drain of the service, and nothing is lost if it is cut short.
const DRAIN_MAX: Duration = Duration::from_secs(1);

/// Maximum number of connections, unless there are too few open files: those of the dashboards, and some for pages that
/// load or log in.
pub(crate) const CONNECTIONS_MAX: usize = 64;

/// Maximum number of open dashboards: an operator's tabs and a screen on the wall, not an audience.
const DASHBOARDS_MAX: usize = 16;

/// Maximum number of requests that visit processes at a time. Each may visit millions.
const SURVEYS_MAX: usize = 2;

/// Wrong tokens of a network; further tokens are not looked at, right or wrong. A token has 256 bits, so the bound is
/// for the log and the processor; one second for another attempt is no obstacle for an operator who mistypes.
const ATTEMPTS: Rate = match Rate::new(10, Duration::from_secs(10)) {
    Some(rate) => rate,
    None => Rate::UNLIMITED,
};

/// Maximum number of networks whose wrong tokens are counted.
const NETWORKS_MAX: usize = 1024;

/// Maximum bytes of a client's message: a request has a hundred.
const REQUEST_BYTES_MAX: usize = 4096;

/// Maximum number of requests of a dashboard that wait for the one in progress.
const REQUESTS_WAITING_MAX: usize = 8;

/// Maximum bytes that wait for a slow client: the largest answer, of [`socket::ROWS_MAX`] rows, and samples.
const OUTBOX_BYTES_MAX: usize = 4 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_name_or_address_of_this_machine_is_its_host() {
        let loopback: IpAddr = [127, 0, 0, 1].into();
        let lan: IpAddr = [10, 0, 0, 5].into();
        let any: IpAddr = [0, 0, 0, 0].into();
        for (host, own, expected) in [
            ("localhost", loopback, true),
            ("LOCALHOST:9000", loopback, true),
            ("127.0.0.1:7071", loopback, true),
            ("[::1]:7071", loopback, true),
            ("10.0.0.5:7071", loopback, false),
            ("10.0.0.5:7071", lan, true),
            ("10.0.0.6", lan, false),
            ("127.0.0.1", lan, true),
            ("10.0.0.6", any, true),
            ("evil.example", loopback, false),
            ("evil.example", any, false),
            ("localhost.evil.example", loopback, false),
            ("127.0.0.1.evil.example:7071", loopback, false),
            ("", loopback, false),
        ] {
            let mut headers = HeaderMap::new();
            headers.insert(header::HOST, HeaderValue::from_static(host));
            assert_eq!(is_own_host(&headers, own), expected, "{host} for {own}");
        }
        assert!(!is_own_host(&HeaderMap::new(), loopback));
    }
}
