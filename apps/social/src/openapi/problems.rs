//! Problems of the API: their statuses and meanings.
//!
//! Invariant: the status here is the status of the answer. The tests of the document compare the two.

use serde_json::{Value, json};

use super::{MEDIA_TYPE, every_answer, reference};

/// Problem that an answer may have.
pub(super) struct Listed {
    pub(super) status: u16,
    /// Last part of the problem's URN.
    pub(super) name: &'static str,
    meaning: &'static str,
}

const fn listed(status: u16, name: &'static str, meaning: &'static str) -> Listed {
    Listed { status, name, meaning }
}

/// Problems that any request can have: of the connection, of the head, of the node's state.
pub(super) const OF_EVERY_REQUEST: &[&str] = &[
    "body-too-large",
    "broken",
    "draining",
    "head-timeout",
    "head-too-large",
    "header-repeated",
    "host-invalid",
    "internal",
    "malformed-request",
    "panicked",
    "rate-limited",
    "request-timeout",
    "tls-required",
    "too-many-connections",
    "too-many-connections-of-network",
    "transfer-encoding-unknown",
    "unavailable",
    "uncertain",
];

/// Problems of a request that needs a token.
pub(super) const OF_TOKENS: &[&str] =
    &["token-expired", "token-forged", "token-malformed", "token-missing", "token-revoked"];

/// Problems of a request with a body.
pub(super) const OF_BODIES: &[&str] =
    &["body-incomplete", "body-timeout", "malformed-json", "unprocessable", "wrong-content-type"];

/// All problems, by status.
pub(super) const ALL: &[Listed] = &[
    listed(400, "after-invalid", "`after` is no `next_after` of a page"),
    listed(400, "body-incomplete", "the connection ended before the whole body arrived"),
    listed(400, "cursor-invalid", "`cursor` is no `next_cursor` of this same listing"),
    listed(400, "header-repeated", "`Authorization` or `Content-Type` is repeated"),
    listed(400, "host-invalid", "there is not exactly one valid `Host`"),
    listed(400, "idempotency-key-invalid", "the `Idempotency-Key` is malformed or repeated"),
    listed(400, "limit-invalid", "`limit` is out of its range"),
    listed(400, "malformed-json", "the body is not JSON"),
    listed(400, "malformed-path", "a part of the path is not UTF-8"),
    listed(400, "malformed-query", "the query has an unknown parameter or a value of another type"),
    listed(400, "malformed-request", "the request is not valid HTTP/1.1"),
    listed(400, "malformed-websocket-handshake", "the handshake has a body or a malformed key"),
    listed(400, "tag-invalid", "a tag is 1 to 32 letters, digits or `_`"),
    listed(400, "tls-required", "the port speaks TLS, and the request came without it"),
    listed(401, "token-expired", "the token has expired; log in again"),
    listed(401, "token-forged", "the token's signature is invalid; log in again"),
    listed(
        401,
        "token-malformed",
        "the `Authorization` header has no bearer token of this service",
    ),
    listed(401, "token-missing", "there is no `Authorization` header"),
    listed(401, "token-revoked", "the token was revoked; log in again"),
    listed(401, "wrong-credentials", "the name or the password is wrong"),
    listed(403, "blocked", "that user, or the owner of the room, blocks you"),
    listed(403, "not-a-member", "you are not a member of the room"),
    listed(403, "not-the-owner", "only the owner of the room can do this"),
    listed(403, "origin-refused", "the page that opens the socket has a foreign origin"),
    listed(404, "no-such-message", "the room has no message with this number"),
    listed(404, "no-such-post", "the user has no such post, or has deleted it"),
    listed(404, "no-such-room", "there is no such room"),
    listed(404, "no-such-user", "there is no such user"),
    listed(408, "body-timeout", "the body did not arrive in time"),
    listed(408, "head-timeout", "the head did not arrive in time"),
    listed(409, "blocking", "you block that user"),
    listed(409, "name-taken", "the name is taken"),
    listed(409, "room-taken", "there is a room with this name already"),
    listed(410, "post-deleted", "the post of this `Idempotency-Key` was deleted; use a new key"),
    listed(410, "visit-over", "the visit of this `cursor` is over; begin again without one"),
    listed(413, "body-too-large", "the body is larger than the server accepts"),
    listed(415, "wrong-content-type", "the body is not declared as `application/json`"),
    listed(422, "blocks-full", "you block the maximum number of users"),
    listed(422, "blocks-oneself", "you cannot block or unblock yourself"),
    listed(422, "following-full", "you follow the maximum number of users"),
    listed(422, "follows-oneself", "you cannot follow or unfollow yourself"),
    listed(422, "idempotency-key-reused", "the key was used for a different text"),
    listed(422, "interests-full", "you have the maximum number of interests"),
    listed(422, "memberships-full", "you are a member of the maximum number of rooms"),
    listed(422, "name-invalid", "the name is invalid"),
    listed(422, "password-length", "the password is too short, too long, or invisible"),
    listed(422, "room-full", "the room has the maximum number of members"),
    listed(422, "text-length", "the text is too long or has no visible character"),
    listed(422, "unprocessable", "the body is JSON of another shape; `detail` names the field"),
    listed(426, "upgrade-required", "the request does not upgrade HTTP/1.1 to a WebSocket"),
    listed(426, "websocket-version", "the version of the WebSocket protocol is not 13"),
    listed(429, "rate-limited", "the account or the client network has made too many requests"),
    listed(
        429,
        "too-many-connections-of-network",
        "your network has its maximum number of connections",
    ),
    listed(429, "too-many-logins", "too many passwords wait to be hashed"),
    listed(431, "head-too-large", "the head has more bytes or lines than the server accepts"),
    listed(500, "broken", "the service failed and did nothing; its log has the reason"),
    listed(500, "internal", "the server could not write the answer"),
    listed(500, "panicked", "the server failed while it handled the request"),
    listed(501, "transfer-encoding-unknown", "the only transfer encoding is `chunked`"),
    listed(503, "draining", "the server is shutting down"),
    listed(503, "request-timeout", "the request may or may not have taken effect"),
    listed(503, "too-many-connections", "the server has its maximum number of connections"),
    listed(503, "too-many-sockets", "the server has its maximum number of sockets"),
    listed(503, "unavailable", "the service did nothing; try again later"),
    listed(503, "uncertain", "the request may or may not have taken effect; check, or repeat it"),
];

/// Returns the response of `status` with one of the problems `names`.
pub(super) fn response(status: u16, names: &[&'static str]) -> Value {
    let is_named = |problem: &&Listed| names.contains(&problem.name);
    let meanings = ALL
        .iter()
        .filter(is_named)
        .map(|problem| format!("`urn:throng:problem:{}`: {}.", problem.name, problem.meaning));
    let types = names.iter().map(|name| format!("urn:throng:problem:{name}"));
    let types: Vec<String> = types.collect();
    let mut headers = every_answer();
    let header = match status {
        401 => Some("WWW-Authenticate"),
        426 => Some("Sec-WebSocket-Version"),
        429 => Some("Retry-After"),
        503 => Some("Retry-After-If-Known"),
        _ => None,
    };
    if let Some(header) = header {
        let name = header.trim_end_matches("-If-Known");
        headers[name] = reference("headers", header);
    }
    json!({
        "description": meanings.collect::<Vec<_>>().join("\n\n"),
        "headers": headers,
        "content": { MEDIA_TYPE: { "schema": { "allOf": [
            reference("schemas", "Problem"),
            { "properties": { "type": { "enum": types }, "status": { "const": status } } },
        ] } } },
    })
}
