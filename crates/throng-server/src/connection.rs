//! One HTTP/1 connection, from its first byte to its last.
//!
//! hyper speaks the protocol; around it this file keeps time, catches panics, and says the last
//! word where hyper would say none (a head that never came) or a wordless one (bytes that are not
//! HTTP). For that it takes the socket back and writes the [`Problem`] itself.
//!
//! Invariant: nothing goes out that is not part of an answer to a request (see [`Gate`]); so the
//! problem is the only answer that such a client gets.

use std::convert::Infallible;
use std::future::poll_fn;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::http::{HeaderValue, Request, StatusCode, header};
use axum::response::{IntoResponse, Response};
use http_body_util::Limited;
use hyper::body::{Body as _, Incoming};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio::time::timeout;
use tower::ServiceExt;

use crate::extract::body_too_large;
use crate::gate::{Exchange, Gate, Phase, ReachedEnd};
use crate::problem::ensure_problem;
use crate::{Limits, Problem};

/// Serves a connection until either side closes it, or, once `drain` says so, until the request
/// in flight is answered.
pub(crate) async fn serve(
    stream: TcpStream,
    router: Router,
    limits: Arc<Limits>,
    mut drain: watch::Receiver<bool>,
) {
    // Small answers must not wait for the client's acknowledgement of the ones before.
    let _ = stream.set_nodelay(true);
    let exchange = Exchange::default();
    let gate = Gate::new(stream, exchange.clone(), &limits);
    let header_timeout = limits.header_timeout;
    let service = service_fn({
        let exchange = exchange.clone();
        move |request| {
            let answering = exchange.begin();
            let answer = answer(router.clone(), request, limits.clone());
            Box::pin(async move {
                Ok::<_, Infallible>(answer.await.map(|body| answering.until_end_of(body)))
            })
        }
    });
    let mut connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(header_timeout)
        .max_buf_size(HEAD_BYTES_MAX)
        .serve_connection(TokioIo::new(gate), service);

    let mut draining = false;
    let outcome = loop {
        tokio::select! {
            outcome = poll_fn(|cx| connection.poll_without_shutdown(cx)) => break outcome,
            // A drain that ended without a word (the sender gone) is a drain, too.
            _ = drain.wait_for(|drain| *drain), if !draining => draining = true,
        }
        Pin::new(&mut connection).graceful_shutdown();
    };
    let parts = connection.into_parts();
    let phase = exchange.phase();
    let problem = outcome.err().and_then(|error| {
        tracing::debug!(%error, "connection ended");
        match phase {
            Phase::Answering | Phase::Answered => None, // the client is being told something else
            // Silence on a connection that has served is the client's right.
            Phase::Idle if error.is_timeout() && parts.read_buf.is_empty() => None,
            Phase::Fresh | Phase::Idle if error.is_timeout() => Some(head_too_slow()),
            Phase::Fresh | Phase::Idle if error.is_parse() => Some(not_http(&error)),
            Phase::Fresh | Phase::Idle => None,
        }
    });
    // With nothing said and nothing unread there is nothing to lose, and a client that keeps an
    // idle connection open must not hold up the end.
    if draining && problem.is_none() && parts.read_buf.is_empty() {
        return;
    }
    close_with(parts.io.into_inner().into_stream(), problem).await;
}

/// Bytes of a request's head, and of its body that are kept before the handler takes them.
const HEAD_BYTES_MAX: usize = 32 * 1024;

/// Says `problem`, if any, and closes so that the client can read what was said: were the socket
/// dropped while bytes of a request lie unread in it, the system would reset the connection and
/// with it throw away the answer.
pub(crate) async fn close_with(mut stream: TcpStream, problem: Option<Problem>) {
    let farewell = async {
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
    // However it ends, the socket is closed now; there is nobody left to tell.
    let _ = timeout(LINGER, farewell).await;
}

/// How long, and for how many bytes, a closing socket is still read.
const LINGER: Duration = Duration::from_secs(1);
const LINGER_BYTES_MAX: usize = 1024 * 1024;

/// One request through the router, within its time, whatever happens inside.
async fn answer(router: Router, request: Request<Incoming>, limits: Arc<Limits>) -> Response {
    let method = request.method().clone();
    let path = request.uri().path().to_owned();
    let end = ReachedEnd::default();
    let no_body = request.body().is_end_stream();
    let too_large = request.body().size_hint().lower() > limits.body_bytes_max as u64;
    let mut response = if too_large {
        body_too_large().into_response()
    } else {
        let request =
            request.map(|body| Body::new(end.watch(Limited::new(body, limits.body_bytes_max))));
        match timeout(limits.request_timeout, caught(router.oneshot(request))).await {
            Ok(Some(Ok(response))) => ensure_problem(response),
            Ok(None) => panicked().into_response(),
            Err(_) => too_slow().into_response(),
        }
    };
    if !(no_body || end.is_reached()) {
        // The rest of the body lies between here and the next request. Were the client not told
        // that the connection ends, it would send that request into the closing socket.
        response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
    }
    let status = response.status().as_u16();
    if response.status().is_server_error() {
        tracing::warn!(%method, %path, status, "request failed");
    } else {
        tracing::debug!(%method, %path, status, "request answered");
    }
    response
}

/// The future's output, or none if it panicked (the panic hook has printed why).
async fn caught<F: Future>(future: F) -> Option<F::Output> {
    let mut future = pin!(future);
    // Unwind safe: after a panic the future is not polled again, and the router that it borrowed
    // nothing from is cloned anew for each request.
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
        "the handler of this request panicked",
    )
}

fn too_slow() -> Problem {
    Problem::new(
        StatusCode::SERVICE_UNAVAILABLE,
        "request-timeout",
        "the request was not answered in time; whether it took effect is unknown",
    )
    .with_header(header::RETRY_AFTER, HeaderValue::from_static("1"))
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
        Problem::new(
            StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE,
            "head-too-large",
            "the request's head is larger than this server takes",
        )
    } else {
        Problem::new(StatusCode::BAD_REQUEST, "malformed-request", "this is not HTTP/1.1")
    }
}
