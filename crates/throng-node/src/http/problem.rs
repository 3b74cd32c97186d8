//! Problem JSON (RFC 9457), the format of every error response.
//!
//! ```text
//! HTTP/1.1 409 Conflict
//! content-type: application/problem+json
//! cache-control: no-store
//!
//! {"type":"urn:throng:problem:name-taken","title":"name taken","status":409,"detail":"…"}
//! ```
//!
//! Invariants: no cache may keep a problem, because a problem describes one moment; a handler can say
//! otherwise in a header. A `type` is stable, and programs may compare it. The `title` is derived from the
//! type, so it is the same for all problems of a type. The `detail` is for people and may change.

use std::borrow::Cow;
use std::fmt;

use axum::body::Body;
use axum::http::response::Parts;
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::Serialize;

/// Error response for the client.
///
/// ```
/// use axum::http::StatusCode;
/// use throng_node::http::Problem;
///
/// let problem = Problem::new(StatusCode::CONFLICT, "name-taken", "the name is already taken");
/// assert_eq!(problem.kind(), "urn:throng:problem:name-taken");
/// assert_eq!(problem.to_string(), "name taken: the name is already taken");
/// ```
#[derive(Clone, Debug)]
pub struct Problem(Box<Fields>); // boxed, so that a `Result<_, Problem>` stays small

#[derive(Clone, Debug)]
struct Fields {
    status: StatusCode,
    name: &'static str,
    detail: Cow<'static, str>,
    headers: HeaderMap,
}

impl Problem {
    /// Creates a problem of type `urn:throng:problem:NAME`; `name` is lowercase words joined by
    /// hyphens.
    pub fn new(
        status: StatusCode,
        name: &'static str,
        detail: impl Into<Cow<'static, str>>,
    ) -> Problem {
        let mut headers = HeaderMap::new();
        headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
        Problem(Box::new(Fields { status, name, detail: detail.into(), headers }))
    }

    /// Adds a header to the response, such as `Retry-After`, and replaces any header of the same
    /// name.
    pub fn with_header(mut self, name: HeaderName, value: HeaderValue) -> Problem {
        self.0.headers.insert(name, value);
        self
    }

    /// Returns the response's status.
    pub fn status(&self) -> StatusCode {
        self.0.status
    }

    /// Returns the problem's type, as it appears in the body.
    pub fn kind(&self) -> String {
        format!("urn:throng:problem:{}", self.0.name)
    }

    /// Returns the whole response as bytes, for a stream without hyper.
    pub(crate) fn to_wire(&self) -> Vec<u8> {
        let body = self.body();
        let status = self.0.status;
        let mut wire = format!(
            "HTTP/1.1 {} {}\r\ncontent-type: {MEDIA_TYPE}\r\ncontent-length: {}\r\n\
             x-content-type-options: nosniff\r\nconnection: close\r\n",
            status.as_u16(),
            status.canonical_reason().unwrap_or_default(),
            body.len(),
        )
        .into_bytes();
        for (name, value) in &self.0.headers {
            wire.extend_from_slice(name.as_str().as_bytes());
            wire.extend_from_slice(b": ");
            wire.extend_from_slice(value.as_bytes());
            wire.extend_from_slice(b"\r\n");
        }
        wire.extend_from_slice(b"\r\n");
        wire.extend_from_slice(&body);
        wire
    }

    fn title(&self) -> String {
        self.0.name.replace('-', " ")
    }

    fn body(&self) -> Vec<u8> {
        #[derive(Serialize)]
        struct Wire<'a> {
            r#type: String,
            title: String,
            status: u16,
            detail: &'a str,
        }
        let wire = Wire {
            r#type: self.kind(),
            title: self.title(),
            status: self.0.status.as_u16(),
            detail: &self.0.detail,
        };
        // Four strings and a number always serialise; an empty body is still a valid response.
        serde_json::to_vec(&wire).unwrap_or_default()
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.title(), self.0.detail)
    }
}

impl std::error::Error for Problem {}

impl IntoResponse for Problem {
    fn into_response(mut self) -> Response {
        let mut response = Response::new(Body::from(self.body()));
        *response.status_mut() = self.0.status;
        let headers = response.headers_mut();
        *headers = std::mem::take(&mut self.0.headers);
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(MEDIA_TYPE));
        response
    }
}

/// Converts an error response that is not a problem (an unknown route, a wrong method, a rejection
/// by the router itself) into a problem. The status stays, and so do all headers that describe neither
/// the body nor its caching, such as `Allow` and `Retry-After`.
pub(crate) fn ensure_problem(response: Response) -> Response {
    let status = response.status();
    let is_error = status.is_client_error() || status.is_server_error();
    let is_problem = response
        .headers()
        .get(header::CONTENT_TYPE)
        .is_some_and(|value| value.as_bytes() == MEDIA_TYPE.as_bytes());
    if !is_error || is_problem {
        return response;
    }
    let problem = match status {
        StatusCode::NOT_FOUND => {
            Problem::new(status, "no-such-route", "there is nothing at this path")
        }
        StatusCode::METHOD_NOT_ALLOWED => Problem::new(
            status,
            "method-not-allowed",
            "this path does not support this method; see the Allow header",
        ),
        _ => Problem::new(
            status,
            "rejected",
            format!("the server does not accept this request ({status}); change it and try again"),
        ),
    };
    let (Parts { mut headers, .. }, _) = response.into_parts();
    for name in [
        header::CACHE_CONTROL,
        header::CONTENT_TYPE,
        header::CONTENT_LENGTH,
        header::CONTENT_ENCODING,
        header::CONTENT_RANGE,
        header::TRANSFER_ENCODING,
        header::ETAG,
        header::LAST_MODIFIED,
    ] {
        headers.remove(name);
    }
    let mut response = problem.into_response();
    response.headers_mut().extend(headers);
    response
}

/// Header of every answer: a browser takes the content for what its type says.
pub(crate) const NO_SNIFF: HeaderValue = HeaderValue::from_static("nosniff");

const MEDIA_TYPE: &str = "application/problem+json";
