//! The client address of a request.

use std::net::IpAddr;

use axum::extract::FromRequestParts;
use axum::http::StatusCode;
use axum::http::request::Parts;

use crate::Problem;

/// Extracts the remote address of the connection: the client's, or that of a proxy before it.
///
/// Headers such as `X-Forwarded-For` are ignored, because any client can send them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClientAddress(pub IpAddr);

impl<S: Send + Sync> FromRequestParts<S> for ClientAddress {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _state: &S) -> Result<Self, Problem> {
        // A `Server` inserts the address; a router that is called in another way has no client.
        parts.extensions.get().copied().ok_or_else(|| {
            let detail = "the client's address is unknown";
            Problem::new(StatusCode::INTERNAL_SERVER_ERROR, "internal", detail)
        })
    }
}
