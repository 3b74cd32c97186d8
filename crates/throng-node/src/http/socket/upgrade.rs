//! The handshake: checks the requests for a socket, and refuses bad requests.
//!
//! ```text
//! request ──checks──► SocketUpgrade ──accept──► 101 with an Endpoint in its extensions
//!            │                                      │ connection: after the 101 is written
//!            └─► Problem: 400, 403, 426             └─► the Endpoint's socket gets the TCP stream
//! ```
//!
//! Invariant: a request from a browser becomes a socket only if its page has the same origin as the
//! server, or an origin in the list. Browsers send cookies with the handshake of any page, so without
//! this check any page could open a socket in the name of its visitor.

use std::sync::{Arc, Mutex, PoisonError};

use axum::body::Body;
use axum::extract::{FromRef, FromRequestParts};
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, Version, header};
use axum::response::Response;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use tungstenite::handshake::derive_accept_key;

use super::queues::{Endpoint, queues};
use super::{Outbox, SocketInbox, SocketPlace, Sockets};
use crate::http::Problem;
use crate::http::tls::Secure;

/// Extracts the handshake of a socket from a GET request; the router's state must provide
/// [`Sockets`].
///
/// Rejections: 426 for a request without a handshake or with another version than 13, 400 for a
/// malformed handshake, 403 for a browser's page of a foreign origin, 503 if there are as many sockets as may
/// be. A request without an `Origin` is
/// accepted, because browsers always send this header with a handshake.
///
/// Extensions of the protocol, such as compression, are not negotiated. A handler that selects one
/// of the client's subprotocols adds `Sec-WebSocket-Protocol` to the response.
///
/// ```
/// use axum::{Router, response::Response, routing::get};
/// use throng_node::http::{SocketUpgrade, Sockets};
///
/// async fn greet(upgrade: SocketUpgrade) -> Response {
///     let (response, inbox, outbox) = upgrade.accept();
///     let _ = outbox.send("hello");
///     // The inbox is a `Stream` for the process that serves this client.
///     tokio::spawn(async move { drop(inbox) });
///     response
/// }
///
/// let router: Router = Router::new().route("/socket", get(greet)).with_state(Sockets::default());
/// ```
#[derive(Debug)]
#[must_use]
pub struct SocketUpgrade {
    place: SocketPlace,
    accept_key: String,
}

impl SocketUpgrade {
    /// Accepts the socket. The handler must return the response; the socket opens once the response is
    /// written.
    ///
    /// Frames that are sent earlier wait in the queue. If the socket does not open, the inbox ends
    /// with [`SocketEnd::NotOpened`](crate::http::SocketEnd::NotOpened).
    pub fn accept(self) -> (Response, SocketInbox, Outbox) {
        let (endpoint, inbox, outbox) = queues(self.place);
        let mut response = Response::new(Body::empty());
        *response.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
        let headers = response.headers_mut();
        headers.insert(header::CONNECTION, HeaderValue::from_static("upgrade"));
        headers.insert(header::UPGRADE, HeaderValue::from_static("websocket"));
        // Base64 is always a valid value.
        if let Ok(key) = HeaderValue::try_from(self.accept_key) {
            headers.insert(header::SEC_WEBSOCKET_ACCEPT, key);
        }
        response.extensions_mut().insert(Handover(Arc::new(Mutex::new(Some(endpoint)))));
        (response, inbox, outbox)
    }
}

impl<S> FromRequestParts<S> for SocketUpgrade
where
    S: Send + Sync,
    Sockets: FromRef<S>,
{
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        let sockets = Sockets::from_ref(state);
        let accept_key = check_handshake(parts)?;
        let is_secure = parts.extensions.get::<Secure>().is_some();
        check_origin(&parts.headers, is_secure, sockets.origins())?;
        let place = sockets.place().ok_or_else(too_many_sockets)?;
        Ok(SocketUpgrade { place, accept_key })
    }
}

/// Extension of the response that takes the endpoint from the handler to the connection. An extension
/// must be `Clone` and `Sync`.
#[derive(Clone)]
struct Handover(Arc<Mutex<Option<Endpoint>>>);

/// Takes the endpoint out of the response of [`SocketUpgrade::accept`].
pub(crate) fn take_endpoint(response: &mut Response) -> Option<Endpoint> {
    let Handover(endpoint) = response.extensions_mut().remove()?;
    if response.status() != StatusCode::SWITCHING_PROTOCOLS {
        return None;
    }
    endpoint.lock().unwrap_or_else(PoisonError::into_inner).take()
}

/// Checks the handshake, and returns the value of `Sec-WebSocket-Accept` for the response.
fn check_handshake(parts: &Parts) -> Result<String, Problem> {
    let Parts { headers, .. } = parts;
    let is_upgrade = parts.method == Method::GET
        && parts.version == Version::HTTP_11
        && lists(headers, header::CONNECTION, "upgrade")
        && lists(headers, header::UPGRADE, "websocket");
    if !is_upgrade {
        let detail = "this path serves WebSockets; send a GET request that upgrades HTTP/1.1";
        return Err(upgrade_required("upgrade-required", detail));
    }
    if only(headers, header::SEC_WEBSOCKET_VERSION) != Some("13") {
        let detail = "the only supported version of the WebSocket protocol is 13";
        return Err(upgrade_required("websocket-version", detail));
    }
    let malformed =
        |detail| Problem::new(StatusCode::BAD_REQUEST, "malformed-websocket-handshake", detail);
    let has_body = headers.contains_key(header::TRANSFER_ENCODING)
        || headers.get(header::CONTENT_LENGTH).is_some_and(|length| length != "0");
    if has_body {
        return Err(malformed("a WebSocket handshake has no body"));
    }
    only(headers, header::SEC_WEBSOCKET_KEY)
        .filter(|key| STANDARD.decode(key).is_ok_and(|key| key.len() == 16))
        .map(|key| derive_accept_key(key.as_bytes()))
        .ok_or_else(|| malformed("the Sec-WebSocket-Key header is not the base64 of 16 bytes"))
}

fn upgrade_required(name: &'static str, detail: &'static str) -> Problem {
    Problem::new(StatusCode::UPGRADE_REQUIRED, name, detail)
        .with_header(header::CONNECTION, HeaderValue::from_static("upgrade"))
        .with_header(header::UPGRADE, HeaderValue::from_static("websocket"))
        .with_header(header::SEC_WEBSOCKET_VERSION, HeaderValue::from_static("13"))
}

fn too_many_sockets() -> Problem {
    Problem::new(
        StatusCode::SERVICE_UNAVAILABLE,
        "too-many-sockets",
        "the server has reached its maximum number of sockets; try again in a second",
    )
    .with_header(header::RETRY_AFTER, HeaderValue::from_static("1"))
}

/// Refuses the handshake of a browser's page whose origin is neither the server's own nor listed.
fn check_origin(headers: &HeaderMap, is_secure: bool, listed: &[String]) -> Result<(), Problem> {
    if !headers.contains_key(header::ORIGIN) {
        return Ok(());
    }
    let is_allowed = only(headers, header::ORIGIN).is_some_and(|origin| {
        let own = only(headers, header::HOST).is_some_and(|host| is_own(origin, host, is_secure));
        own || listed.iter().any(|listed| listed.eq_ignore_ascii_case(origin))
    });
    if is_allowed {
        return Ok(());
    }
    let detail = "pages of this origin may not connect; see the server's list of origins";
    Err(Problem::new(StatusCode::FORBIDDEN, "origin-refused", detail))
}

/// Returns whether `origin` is the origin of this server's own pages, requested under the name `host`.
fn is_own(origin: &str, host: &str, is_secure: bool) -> bool {
    // The port is the default, which an origin leaves out and a host may leave out.
    let (scheme, port) = if is_secure { ("https://", ":443") } else { ("http://", ":80") };
    let Some(origin) = origin.strip_prefix(scheme) else { return false };
    let [origin, host] = [origin, host].map(|host| host.strip_suffix(port).unwrap_or(host));
    !host.is_empty() && origin.eq_ignore_ascii_case(host)
}

/// Returns the value of a header that occurs exactly once.
fn only(headers: &HeaderMap, name: HeaderName) -> Option<&str> {
    let mut values = headers.get_all(name).iter();
    match (values.next(), values.next()) {
        (Some(value), None) => value.to_str().ok(),
        _ => None,
    }
}

/// Returns whether a header that is a list of tokens has `token`.
fn lists(headers: &HeaderMap, name: HeaderName, token: &str) -> bool {
    headers
        .get_all(name)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .any(|listed| listed.trim().eq_ignore_ascii_case(token))
}
