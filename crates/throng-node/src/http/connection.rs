//! One HTTP/1 connection, from its first byte to its last.
//!
//! hyper speaks the protocol. Around it, this file enforces timeouts, catches panics, and sends the
//! final answer where hyper would send none (a head that never came) or an answer without a body
//! (bytes that are not HTTP). In these cases it takes the stream back and writes the [`Problem`]
//! itself. In the same way it takes the stream back after a 101, and goes on with the socket.
//!
//! ```text
//! requests ──closed, drained──► last problem, if any ──► closed
//!     └──────101 written──────► socket::run ──────────────►┘
//! ```
//!
//! Invariant: only bytes of an answer to a request leave the stream (see [`ExchangeGuard`]), so the
//! problem is the only answer that such a client gets. *Stream* is the TCP connection's, *socket* a
//! WebSocket.

use std::convert::Infallible;
use std::future::poll_fn;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::{Pin, pin};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::Poll;
use std::time::{Duration, Instant};

use axum::Router;
use axum::body::Body;
use axum::http::uri::Authority;
use axum::http::{HeaderValue, Request, StatusCode, Version, header};
use axum::response::{IntoResponse, Response};
use http_body_util::Limited;
use hyper::body::{Body as _, Incoming};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::sync::watch;
use tokio::time::timeout;
use tower::Service;
use tracing::Instrument;

use crate::http::answers::RouteNote;
use crate::http::exchange::{BodyProgress, Exchange, ExchangeGuard, ExchangePhase};
use crate::http::extract::body_too_large;
use crate::http::head::head_too_large;
use crate::http::problem::{NO_SNIFF, ensure_problem};
use crate::http::socket::{self, Endpoint, SocketEnd, take_endpoint};
use crate::http::tls::{Arrival, Secure, Stream, strict_transport};
use crate::http::{Answers, ClientAddress, Limits, Problem, request_id};

/// Serves a connection until either side closes it, or, after `drain` becomes true, until the
/// request in flight is answered. A connection that becomes a socket goes on in the same task.
pub(crate) async fn serve(
    arrival: Arrival,
    client: ClientAddress,
    router: Router,
    limits: Arc<Limits>,
    answers: Answers,
    drain: watch::Receiver<bool>,
) {
    let Some(stream) = arrival.secure(limits.header_timeout, drain.clone()).await else { return };
    // Boxed, because the state of HTTP is many times as large as that of a socket, and a socket
    // would keep its memory.
    let requests = Box::pin(serve_requests(stream, client, router, limits, answers, drain.clone()));
    if let Some(Upgraded { endpoint, stream, unread }) = requests.await {
        socket::run(endpoint, stream, unread, drain).await;
    }
}

/// Connection that has become a socket.
struct Upgraded {
    endpoint: Endpoint,
    stream: Stream,
    /// Bytes that arrived behind the handshake.
    unread: Vec<u8>,
}

/// Serves requests until the connection is closed or becomes a socket.
async fn serve_requests(
    stream: Stream,
    client: ClientAddress,
    router: Router,
    limits: Arc<Limits>,
    answers: Answers,
    mut drain: watch::Receiver<bool>,
) -> Option<Upgraded> {
    let exchange = Exchange::default();
    let is_secure = stream.is_secure();
    let guard = ExchangeGuard::new(stream, exchange.clone(), &limits);
    let answerer = Arc::new(Answerer {
        router: Mutex::new(router),
        client,
        is_secure,
        limits,
        answers,
        route: RouteNote::default(),
        drain: drain.clone(),
        upgrading: Mutex::default(),
    });
    let service = service_fn({
        let (answerer, exchange) = (answerer.clone(), exchange.clone());
        move |request: Request<Incoming>| {
            let (answerer, answering) = (answerer.clone(), exchange.begin());
            Box::pin(async move {
                let response = answerer.answer(request).await;
                Ok::<_, Infallible>(response.map(|body| answering.until_end_of(body)))
            })
        }
    });
    let mut connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(answerer.limits.header_timeout)
        // hyper accepts no smaller buffer.
        .max_buf_size(answerer.limits.head_bytes_max.max(8 * 1024))
        .serve_connection(TokioIo::new(guard), service);

    let mut draining = false;
    let outcome = loop {
        tokio::select! {
            outcome = poll_fn(|cx| connection.poll_without_shutdown(cx)) => break outcome,
            // A dropped sender counts as a drain, too.
            _ = drain.wait_for(|drain| *drain), if !draining => draining = true,
        }
        Pin::new(&mut connection).graceful_shutdown();
    };
    let parts = connection.into_parts();
    let guard = parts.io.into_inner();
    // hyper ends the connection after a 101. Only a 101 that was written opens a socket.
    let endpoint = answerer.upgrading.lock().unwrap_or_else(PoisonError::into_inner).take();
    if let Some(endpoint) = endpoint
        && outcome.is_ok()
        && exchange.phase() == ExchangePhase::Idle
    {
        let (stream, rest) = guard.into_parts();
        let unread = [&parts.read_buf[..], &rest].concat();
        return Some(Upgraded { endpoint, stream, unread });
    }
    let nothing_unread = parts.read_buf.is_empty() && !guard.requests().has_unread();
    if let Err(error) = &outcome {
        tracing::debug!(%error, "connection failed");
    }
    let problem = problem_at_end(exchange.phase(), guard.refusal(), &outcome, nothing_unread);
    // With nothing sent and nothing unread, no data can be lost by closing at once; and a client
    // that keeps an idle connection open must not delay the drain.
    if draining && problem.is_none() && nothing_unread {
        return None;
    }
    if let Some(problem) = &problem {
        answerer.answers.count(None, problem.status());
    }
    close_with(guard.into_parts().0, problem).await;
    None
}

/// Returns the problem with which a connection ends.
fn problem_at_end(
    phase: ExchangePhase,
    refusal: Option<crate::http::head::HeadRefusal>,
    outcome: &Result<(), hyper::Error>,
    nothing_unread: bool,
) -> Option<Problem> {
    match (phase, refusal, outcome) {
        // The client is still receiving another answer.
        (ExchangePhase::Answering | ExchangePhase::Answered, _, _) => None,
        (_, Some(refusal), _) => Some(refusal.problem()),
        // A client may stay silent on a connection that has already served a request.
        (ExchangePhase::Idle, _, Err(error)) if error.is_timeout() && nothing_unread => None,
        (_, _, Err(error)) if error.is_timeout() => Some(head_too_slow()),
        (_, _, Err(error)) if error.is_parse() => Some(not_http(error)),
        (ExchangePhase::Fresh | ExchangePhase::Idle, _, _) => None,
    }
}

/// Sends `problem`, if any, and closes the connection so that the client can read the answer. If
/// the stream were dropped while bytes of a request lie unread in it, the system would reset the
/// connection and discard the answer.
pub(crate) async fn close_with(mut stream: Stream, problem: Option<Problem>) {
    let closing = async {
        if let Some(problem) = problem {
            stream.write_all(&problem.to_wire()).await?;
        }
        stream.shutdown().await?;
        let mut unread = [0; 4096];
        let mut unread_bytes = 0;
        while unread_bytes < LINGER_BYTES_MAX {
            match stream.read(&mut unread).await? {
                0 => break,
                n => unread_bytes += n,
            }
        }
        Ok::<_, io::Error>(())
    };
    // The stream is closed in every case; no error can be reported to the client at this point.
    let _ = timeout(LINGER, closing).await;
}

/// Answers a connection that is not served, and closes it.
pub(crate) async fn refuse(
    arrival: Arrival,
    problem: Problem,
    limits: Arc<Limits>,
    drain: watch::Receiver<bool>,
) {
    if let Some(stream) = arrival.secure(limits.header_timeout, drain).await {
        close_with(stream, Some(problem)).await;
    }
}

/// Limits, in time and in bytes, of reading from a closing stream.
const LINGER: Duration = Duration::from_secs(1);
const LINGER_BYTES_MAX: usize = 1024 * 1024;

/// Part of a connection that answers its requests. All requests of the connection share it by one pointer, because
/// cloning a pointer that all connections share moves its cache line between cores.
struct Answerer {
    /// Router of the server. The lock is never contended, because only the connection's task calls the router.
    router: Mutex<Router>,
    /// Peer of the connection.
    client: ClientAddress,
    is_secure: bool,
    limits: Arc<Limits>,
    answers: Answers,
    /// Route of the request that is being answered.
    route: RouteNote,
    drain: watch::Receiver<bool>,
    /// Endpoint of an accepted socket, from the handler's answer until the answer is written.
    upgrading: Mutex<Option<Endpoint>>,
}

impl Answerer {
    /// Answers a request in a span with its id, and gives the id to the answer.
    async fn answer(&self, request: Request<Incoming>) -> Response {
        let id = request_id::of(request.headers());
        // The span has the level of errors, so that the warnings of a handler have the id at every level of the log,
        // and the target of the access log, so that the access log has the id under every filter.
        let span =
            tracing::error_span!(target: ACCESS, "request", id = id.to_str().unwrap_or_default());
        let strict = if self.is_secure { strict_transport(request.headers()) } else { None };
        let response = self.answer_in_span(request).instrument(span).await;
        let mut response = self.hand_over(response);
        self.answers.count(self.route.take().as_ref(), response.status());
        response.headers_mut().insert(request_id::HEADER, id);
        response.headers_mut().insert(header::X_CONTENT_TYPE_OPTIONS, NO_SNIFF);
        if let Some(strict) = strict {
            response.headers_mut().insert(header::STRICT_TRANSPORT_SECURITY, strict);
        }
        response
    }

    /// Passes a request through the router, within its timeout, and turns a panic into an answer.
    async fn answer_in_span(&self, mut request: Request<Incoming>) -> Response {
        let (began, limits) = (Instant::now(), &*self.limits);
        let ClientAddress(peer) = self.client;
        let client = limits.trusted_proxies.client(peer, request.headers());
        request.extensions_mut().insert(ClientAddress(client));
        request.extensions_mut().insert(self.route.clone());
        if self.is_secure {
            request.extensions_mut().insert(Secure);
        }
        let (method, uri) = (request.method().clone(), request.uri().clone());
        let has_body = !request.body().is_end_stream();
        let progress = has_body.then(BodyProgress::default);
        let too_large = request.body().size_hint().lower() > limits.body_bytes_max as u64;
        let mut response = if let Some(problem) = ambiguous(&request) {
            problem.into_response()
        } else if too_large {
            body_too_large().into_response()
        } else {
            let request = request.map(|body| match &progress {
                Some(progress) => {
                    Body::new(progress.track(Limited::new(body, limits.body_bytes_max)))
                }
                None => Body::empty(),
            });
            match timeout(limits.request_timeout, catch_panic(self.route(request))).await {
                Ok(Some(response)) => ensure_problem(response),
                Ok(None) => panicked().into_response(),
                Err(_) if progress.as_ref().is_some_and(BodyProgress::is_awaited) => {
                    body_too_slow().into_response()
                }
                Err(_) => too_slow().into_response(),
            }
        };
        if progress.is_some_and(|progress| !progress.is_at_end()) {
            // The rest of the body lies between this request and the next. Without this header, the
            // client would send the next request into the closing stream.
            response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
        }
        let (path, status) = (uri.path(), response.status().as_u16());
        if response.status().is_server_error() {
            tracing::warn!(%method, %path, status, "request failed");
        }
        // A body of unknown length has no size here.
        let bytes = response.body().size_hint().exact();
        let elapsed = began.elapsed();
        tracing::debug!(target: ACCESS, %method, %path, status, bytes, ?elapsed, %client, "answered");
        response
    }

    async fn route(&self, request: Request<Body>) -> Response {
        // A router is always ready, and has no state that a panic leaves inconsistent.
        let routed = self.router.lock().unwrap_or_else(PoisonError::into_inner).call(request);
        let Ok(response) = routed.await;
        response
    }

    /// Takes the endpoint out of an answer that accepts a socket, unless the server drains.
    fn hand_over(&self, mut response: Response) -> Response {
        let Some(endpoint) = take_endpoint(&mut response) else { return response };
        if *self.drain.borrow() {
            // hyper adds `close` to the headers of answers during a drain, and some clients take such a
            // 101 for malformed.
            endpoint.end(SocketEnd::Drain);
            return draining().into_response();
        }
        *self.upgrading.lock().unwrap_or_else(PoisonError::into_inner) = Some(endpoint);
        response
    }
}

/// Target of the event for each answered request, at the level of debugging.
const ACCESS: &str = "throng_node::access";

/// Rejects a request with ambiguous headers, which two programs could read as different requests.
fn ambiguous<B>(request: &Request<B>) -> Option<Problem> {
    let bad = |name, detail| Some(Problem::new(StatusCode::BAD_REQUEST, name, detail));
    let mut hosts = request.headers().get_all(header::HOST).iter();
    match (hosts.next(), hosts.next()) {
        (None, _) if request.version() < Version::HTTP_11 => {}
        (Some(host), None) if is_host(host.as_bytes()) => {}
        _ => {
            return bad(
                "host-invalid",
                "an HTTP/1.1 request must have exactly one Host header, with one valid host",
            );
        }
    }
    for name in [header::AUTHORIZATION, header::CONTENT_TYPE] {
        if request.headers().get_all(&name).iter().nth(1).is_some() {
            return bad(
                "header-repeated",
                "the Authorization or Content-Type header is repeated; send each at most once",
            );
        }
    }
    None
}

/// Returns whether `value` is a valid `Host`: empty, or a host with or without a port.
fn is_host(value: &[u8]) -> bool {
    value.is_empty() || (!value.contains(&b'@') && Authority::try_from(value).is_ok())
}

/// Returns the future's output, or `None` if it panicked (the panic hook has printed the reason).
async fn catch_panic<F: Future>(future: F) -> Option<F::Output> {
    let mut future = pin!(future);
    // Unwind safe: the future is not polled after a panic, and what it borrows stays consistent.
    poll_fn(|cx| match catch_unwind(AssertUnwindSafe(|| future.as_mut().poll(cx))) {
        Ok(poll) => poll.map(Some),
        Err(_) => Poll::Ready(None),
    })
    .await
}

fn panicked() -> Problem {
    Problem::new(
        StatusCode::INTERNAL_SERVER_ERROR,
        "panicked",
        "the server failed while it handled this request; its log has the details",
    )
}

fn too_slow() -> Problem {
    Problem::new(
        StatusCode::SERVICE_UNAVAILABLE,
        "request-timeout",
        "the request timed out; it may or may not have taken effect",
    )
    .with_header(header::RETRY_AFTER, HeaderValue::from_static("1"))
}

fn draining() -> Problem {
    Problem::new(
        StatusCode::SERVICE_UNAVAILABLE,
        "draining",
        "the server is shutting down; try again in a second",
    )
    .with_header(header::RETRY_AFTER, HeaderValue::from_static("1"))
}

fn body_too_slow() -> Problem {
    Problem::new(
        StatusCode::REQUEST_TIMEOUT,
        "body-timeout",
        "the request's body did not arrive in time",
    )
}

fn head_too_slow() -> Problem {
    Problem::new(
        StatusCode::REQUEST_TIMEOUT,
        "head-timeout",
        "the request's head did not arrive in time",
    )
}

fn not_http(error: &hyper::Error) -> Problem {
    if error.is_parse_too_large() {
        head_too_large()
    } else {
        Problem::new(
            StatusCode::BAD_REQUEST,
            "malformed-request",
            "the request is not valid HTTP/1.1",
        )
    }
}
