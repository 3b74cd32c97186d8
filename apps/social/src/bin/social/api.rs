//! Client of a node's public interface: HTTP requests on kept connections, and sockets of users.
//!
//! ```text
//! Target ──► Connection ── send ──► Reply       one request at a time; connects again when it has to
//!        └─► Socket ── send / next              hello is said, welcome is read
//! ```
//!
//! Invariants: every wait for the node has a deadline. A request is sent at most once, because the
//! client cannot know whether a node that closed the connection has served it.

use std::fmt;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::Path;
use std::str::FromStr;
use std::time::Duration;

use axum::http::{Method, Request, StatusCode, Uri, header};
use futures_util::{SinkExt, StreamExt};
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Bytes;
use hyper::client::conn::http1::{self, SendRequest};
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::rustls::pki_types::ServerName;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::Message;

use crate::trust::{Trust, TrustError};

/// Place of a node, parsed from its URL.
#[derive(Clone, Debug)]
pub(crate) struct Target {
    protocol: Protocol,
    /// Host, without the brackets of an IPv6 address.
    host: String,
    port: u16,
}

#[derive(Clone, Debug)]
enum Protocol {
    Http,
    Https(Trust),
}

/// Connection to a node, with TLS or without.
trait Stream: AsyncRead + AsyncWrite + fmt::Debug + Send + Unpin {}

impl<S: AsyncRead + AsyncWrite + fmt::Debug + Send + Unpin> Stream for S {}

#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "a node's URL is http:// or https:// with a host and no path, such as http://127.0.0.1:7070"
)]
pub(crate) struct TargetError;

#[derive(Debug, thiserror::Error)]
pub(crate) enum ApiError {
    /// Nothing was sent.
    #[error("cannot reach a node at {target}; start one with `social serve`")]
    Unreachable { target: String, source: io::Error },
    /// The request may have been served.
    #[error("{target} closed the connection")]
    Closed { target: String },
    /// The request may have been served.
    #[error("{target} did not answer within {} seconds", ANSWER_TIMEOUT.as_secs())]
    TimedOut { target: String },
    #[error("{target} answered {status} to {request}: {detail}")]
    Refused { target: String, request: String, status: StatusCode, detail: String },
}

#[derive(Debug)]
pub(crate) struct Reply {
    pub(crate) status: StatusCode,
    /// Seconds to wait before another attempt, if the node says so.
    pub(crate) retry_after: Option<u64>,
    pub(crate) body: Bytes,
}

/// HTTP connection to a node, for one request at a time.
#[derive(Debug)]
pub(crate) struct Connection {
    target: Target,
    sender: Option<SendRequest<Full<Bytes>>>,
}

/// Request of a [`Connection`].
#[derive(Clone, Debug)]
pub(crate) struct Call<'a> {
    pub(crate) method: Method,
    /// Path and query.
    pub(crate) path: &'a str,
    pub(crate) token: Option<&'a str>,
    pub(crate) body: Option<Value>,
}

/// Socket of a user that is logged in.
#[derive(Debug)]
pub(crate) struct Socket {
    target: Target,
    stream: WebSocketStream<Box<dyn Stream>>,
}

impl FromStr for Target {
    type Err = TargetError;

    fn from_str(text: &str) -> Result<Target, TargetError> {
        let uri: Uri = text.parse().map_err(|_| TargetError)?;
        let (protocol, usual) = match uri.scheme_str() {
            Some("http") => (Protocol::Http, 80),
            Some("https") => (Protocol::Https(Trust::of_system()), 443),
            _ => return Err(TargetError),
        };
        let authority = uri.authority().filter(|authority| !authority.as_str().contains('@'));
        match (authority, uri.path(), uri.query()) {
            (Some(authority), "" | "/", None) => {
                let host = authority.host().trim_start_matches('[').trim_end_matches(']');
                let port = authority.port_u16().unwrap_or(usual);
                Ok(Target { protocol, host: host.to_owned(), port })
            }
            _ => Err(TargetError),
        }
    }
}

impl From<SocketAddr> for Target {
    /// Returns the target that listens on `address`; if that is every address, the target on this machine.
    fn from(address: SocketAddr) -> Target {
        let host = match address.ip() {
            IpAddr::V4(ip) if ip.is_unspecified() => IpAddr::V4(Ipv4Addr::LOCALHOST),
            IpAddr::V6(ip) if ip.is_unspecified() => IpAddr::V6(Ipv6Addr::LOCALHOST),
            ip => ip,
        };
        Target { protocol: Protocol::Http, host: host.to_string(), port: address.port() }
    }
}

impl Target {
    /// Returns the target, whose certificate may also be signed by an authority in a file.
    pub(crate) fn trusting(mut self, file: &Path) -> Result<Target, TrustError> {
        match &mut self.protocol {
            Protocol::Http => return Err(TrustError::NotHttps { url: self.url() }),
            Protocol::Https(trust) => *trust = trust.and_file(file)?,
        }
        Ok(self)
    }

    /// Returns the host and the port, as in the header `Host`.
    fn authority(&self) -> String {
        let Target { host, port, .. } = self;
        if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") }
    }

    pub(crate) fn url(&self) -> String {
        let scheme = match self.protocol {
            Protocol::Http => "http",
            Protocol::Https(_) => "https",
        };
        format!("{scheme}://{}", self.authority())
    }

    async fn connect(&self) -> Result<Box<dyn Stream>, ApiError> {
        let unreachable = |source| ApiError::Unreachable { target: self.url(), source };
        let connected = timeout(ANSWER_TIMEOUT, TcpStream::connect((&*self.host, self.port)));
        let late = |_| unreachable(io::ErrorKind::TimedOut.into());
        let stream = connected.await.map_err(late)?.map_err(unreachable)?;
        // Requests are small: without this option, a request could wait for an acknowledgement.
        stream.set_nodelay(true).map_err(unreachable)?;
        let trust = match &self.protocol {
            Protocol::Http => return Ok(Box::new(stream)),
            Protocol::Https(trust) => trust,
        };
        let name = ServerName::try_from(self.host.clone());
        let name = name.map_err(|error| unreachable(io::Error::other(error)))?;
        let secured = timeout(ANSWER_TIMEOUT, trust.connector().connect(name, stream)).await;
        Ok(Box::new(secured.map_err(late)?.map_err(unreachable)?))
    }

    fn closed(&self) -> ApiError {
        ApiError::Closed { target: self.url() }
    }

    fn timed_out(&self) -> ApiError {
        ApiError::TimedOut { target: self.url() }
    }
}

impl Reply {
    /// Parses the body; null if it is no JSON.
    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_default()
    }
}

impl<'a> Call<'a> {
    pub(crate) fn get(path: &'a str) -> Call<'a> {
        Call { method: Method::GET, path, token: None, body: None }
    }

    pub(crate) fn put(path: &'a str) -> Call<'a> {
        Call { method: Method::PUT, ..Call::get(path) }
    }

    pub(crate) fn delete(path: &'a str) -> Call<'a> {
        Call { method: Method::DELETE, ..Call::get(path) }
    }

    pub(crate) fn post(path: &'a str, body: Value) -> Call<'a> {
        Call { method: Method::POST, body: Some(body), ..Call::get(path) }
    }

    pub(crate) fn with_token(self, token: &'a str) -> Call<'a> {
        Call { token: Some(token), ..self }
    }
}

impl Connection {
    /// Creates a connection, which connects with its first request.
    pub(crate) fn new(target: Target) -> Connection {
        Connection { target, sender: None }
    }

    /// Sends a request and reads the answer, whatever its status.
    ///
    /// # Errors
    /// There was no whole answer. The next request connects again.
    pub(crate) async fn send(&mut self, call: Call<'_>) -> Result<Reply, ApiError> {
        let kept = match self.sender.take() {
            Some(mut sender) => sender.ready().await.is_ok().then_some(sender),
            None => None,
        };
        let mut sender = match kept {
            Some(sender) => sender,
            None => self.connect().await?,
        };
        let body = call.body.map_or_else(Bytes::new, |body| body.to_string().into());
        let mut request = Request::new(Full::new(body));
        *request.method_mut() = call.method;
        *request.uri_mut() = call.path.parse().map_err(|_| self.target.closed())?;
        let headers = request.headers_mut();
        // A host that was parsed from a URL, and a token of the node, are valid in a header.
        let header = |text: String| text.parse().map_err(|_| self.target.closed());
        headers.insert(header::HOST, header(self.target.authority())?);
        headers.insert(header::CONTENT_TYPE, header("application/json".to_owned())?);
        if let Some(token) = call.token {
            headers.insert(header::AUTHORIZATION, header(format!("Bearer {token}"))?);
        }
        let answer = async {
            let response = sender.send_request(request).await.ok()?;
            let (head, body) = response.into_parts();
            let body = Limited::new(body, BODY_BYTES_MAX).collect().await.ok()?.to_bytes();
            let retry_after = head.headers.get(header::RETRY_AFTER);
            let retry_after = retry_after.and_then(|seconds| seconds.to_str().ok()?.parse().ok());
            Some(Reply { status: head.status, retry_after, body })
        };
        let answer = timeout(ANSWER_TIMEOUT, answer).await;
        let reply = answer.map_err(|_| self.target.timed_out())?;
        let reply = reply.ok_or_else(|| self.target.closed())?;
        self.sender = Some(sender);
        Ok(reply)
    }

    /// Sends a request whose answer must be a success; tries again while the node is overloaded.
    ///
    /// # Errors
    /// There was no answer, another status, [`ATTEMPTS_MAX`] times no room, or a limit for longer than [`WAIT_MAX`].
    pub(crate) async fn expect(&mut self, call: Call<'_>) -> Result<Reply, ApiError> {
        let mut attempts = 1;
        loop {
            let reply = self.send(call.clone()).await?;
            if reply.status.is_success() {
                return Ok(reply);
            }
            let wait = Duration::from_secs(reply.retry_after.unwrap_or(1));
            let is_overloaded = reply.status == StatusCode::TOO_MANY_REQUESTS && wait <= WAIT_MAX;
            if !is_overloaded || attempts == ATTEMPTS_MAX {
                return Err(self.refused(&call, &reply));
            }
            attempts += 1;
            tokio::time::sleep(wait).await;
        }
    }

    /// Registers a user, or logs a user of an earlier run in; returns a token.
    ///
    /// # Errors
    /// The same errors as those of [`expect`](Connection::expect). If the name belongs to a user with another
    /// password, the node refuses with 401.
    pub(crate) async fn enter(&mut self, name: &str, password: &str) -> Result<String, ApiError> {
        let credentials = json!({ "name": name, "password": password });
        let registered = Call::post("/api/v1/users", credentials.clone());
        let reply = match self.expect(registered).await {
            Err(ApiError::Refused { status: StatusCode::CONFLICT, .. }) => {
                self.expect(Call::post("/api/v1/sessions", credentials)).await?
            }
            outcome => outcome?,
        };
        match reply.json()["token"].as_str() {
            Some(token) => Ok(token.to_owned()),
            None => Err(self.refused(&Call::get("/api/v1/users"), &reply)),
        }
    }

    /// Makes a user a member of a room, which is created if it does not exist.
    pub(crate) async fn join(&mut self, token: &str, room: &str) -> Result<(), ApiError> {
        let create = Call::post("/api/v1/rooms", json!({ "name": room })).with_token(token);
        match self.expect(create).await {
            Ok(_) | Err(ApiError::Refused { status: StatusCode::CONFLICT, .. }) => {}
            Err(error) => return Err(error),
        }
        let path = format!("/api/v1/memberships/{room}");
        self.expect(Call::put(&path).with_token(token)).await.map(drop)
    }

    async fn connect(&self) -> Result<SendRequest<Full<Bytes>>, ApiError> {
        let stream = self.target.connect().await?;
        let handshake = http1::handshake(TokioIo::new(stream));
        let (sender, connection) = handshake.await.map_err(|_| self.target.closed())?;
        // The task ends with its sender, and an error in it is the error of the request.
        tokio::spawn(async move { drop(connection.await) });
        Ok(sender)
    }

    fn refused(&self, call: &Call<'_>, reply: &Reply) -> ApiError {
        let detail = reply.json()["detail"].as_str().unwrap_or("without a reason").to_owned();
        let request = format!("{} {}", call.method, call.path);
        ApiError::Refused { target: self.target.url(), request, status: reply.status, detail }
    }
}

impl Socket {
    pub(crate) async fn open(target: &Target, token: &str) -> Result<Socket, ApiError> {
        let stream = target.connect().await?;
        let url = format!("ws://{}/api/v1/socket", target.authority());
        let upgraded = timeout(ANSWER_TIMEOUT, tokio_tungstenite::client_async(url, stream)).await;
        let upgraded = upgraded.map_err(|_| target.timed_out())?;
        let (stream, _) = upgraded.map_err(|_| target.closed())?;
        let mut socket = Socket { target: target.clone(), stream };
        socket.send(&json!({ "type": "hello", "token": token, "last": null })).await?;
        socket.until("welcome").await?;
        Ok(socket)
    }

    /// Opens a socket with a token, in a room that is created if it does not exist.
    pub(crate) async fn enter(
        target: &Target,
        token: &str,
        room: &str,
    ) -> Result<Socket, ApiError> {
        let mut connection = Connection::new(target.clone());
        connection.join(token, room).await?;
        let mut socket = Socket::open(target, token).await?;
        socket.send(&json!({ "type": "enter", "room": room, "last": null })).await?;
        socket.until("entered").await?;
        Ok(socket)
    }

    pub(crate) async fn send(&mut self, message: &Value) -> Result<(), ApiError> {
        let sent = timeout(ANSWER_TIMEOUT, self.stream.send(Message::text(message.to_string())));
        sent.await.map_err(|_| self.target.timed_out())?.map_err(|_| self.target.closed())
    }

    /// Reads the next message. It may be cancelled without losing a message.
    pub(crate) async fn next(&mut self) -> Result<Value, ApiError> {
        loop {
            match self.stream.next().await {
                Some(Ok(Message::Text(text))) => {
                    return serde_json::from_str(text.as_str()).map_err(|_| self.target.closed());
                }
                Some(Ok(Message::Close(_)) | Err(_)) | None => return Err(self.target.closed()),
                Some(Ok(_)) => {}
            }
        }
    }

    /// Reads to the next message of a type, and returns it.
    pub(crate) async fn until(&mut self, kind: &str) -> Result<Value, ApiError> {
        let found = async {
            loop {
                let message = self.next().await?;
                if message["type"] == kind {
                    return Ok(message);
                }
            }
        };
        let found = timeout(ANSWER_TIMEOUT, found).await;
        found.map_err(|_| self.target.timed_out())?
    }
}

/// Maximum time for a connection or an answer. It exceeds the request timeout of a node, which
/// therefore answers first.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(35);

/// Maximum bytes of an answer: a page of posts has at most 256 KiB of text, and its JSON may be
/// several times as long.
const BODY_BYTES_MAX: usize = 4 << 20;

/// Maximum time to wait before another attempt. A node that is overloaded asks for seconds; a rate limit may ask for
/// more, as that of registrations does.
const WAIT_MAX: Duration = Duration::from_secs(10);

/// Attempts of a request while the node is overloaded.
const ATTEMPTS_MAX: u32 = 20;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_target_is_a_url_without_a_path() {
        for (url, shown) in [
            ("http://127.0.0.1:7070", "http://127.0.0.1:7070"),
            ("http://localhost/", "http://localhost:80"),
            ("http://[::1]:8080/", "http://[::1]:8080"),
            ("https://throng.example", "https://throng.example:443"),
            ("https://[::1]:8443/", "https://[::1]:8443"),
        ] {
            assert_eq!(url.parse::<Target>().unwrap().url(), shown);
        }
        for other in ["", "localhost:7070", "ws://a", "http://a/b", "https://a/?q", "http://u@a"] {
            assert!(other.parse::<Target>().is_err(), "{other}");
        }
    }
}
