//! Problems of the API: their statuses and meanings.
//!
//! Invariant: the status here is the status of the answer. The tests of the document compare the two.

use std::sync::LazyLock;

use serde_json::{Value, json};

use super::{MEDIA_TYPE, every_answer, reference};

/// Problem that an answer may have.
pub(super) struct Listed {
    pub(super) status: u16,
    /// Requests that can have the problem; see [`TABLE`].
    need: &'static str,
    /// Last part of the problem's URN.
    pub(super) name: &'static str,
    meaning: &'static str,
}

/// All problems by status, in lines `STATUS NEED NAME MEANING`.
///
/// The need is `any` for a problem that any request can have: of the connection, of the head, of the node's state. It is
/// `token` or `body` for a problem of all requests with one, and `-` if operations or parameters name the problem.
pub(super) const TABLE: &str = "
400 - after-invalid `after` is no `next_after` of a page
400 body body-incomplete the connection ended before the whole body arrived
400 - cursor-invalid `cursor` is no `next_cursor` of this same listing
400 any header-repeated `Authorization` or `Content-Type` is repeated
400 any host-invalid there is not exactly one valid `Host`
400 - idempotency-key-invalid the `Idempotency-Key` is malformed or repeated
400 - limit-invalid `limit` is out of its range
400 body malformed-json the body is not JSON
400 - malformed-path a part of the path is not UTF-8
400 - malformed-query the query has an unknown parameter or a value of another type
400 any malformed-request the request is not valid HTTP/1.1
400 - malformed-websocket-handshake the handshake has a body or a malformed key
400 - tag-invalid a tag is 1 to 32 letters, digits or `_`
400 any tls-required the port speaks TLS, and the request came without it
401 token token-expired the token has expired; log in again
401 token token-forged the token's signature is invalid; log in again
401 token token-malformed the `Authorization` header has no bearer token of this service
401 token token-missing there is no `Authorization` header
401 token token-revoked the token was revoked; log in again
401 - wrong-credentials the name or the password is wrong
403 - blocked that user, or the owner of the room, blocks you
403 - not-a-member you are not a member of the room
403 - not-the-owner only the owner of the room can do this
403 - origin-refused the page that opens the socket has a foreign origin
404 - no-such-message the room has no message with this number
404 - no-such-post the user has no such post, or has deleted it
404 - no-such-room there is no such room
404 - no-such-user there is no such user
408 body body-timeout the body did not arrive in time
408 any head-timeout the head did not arrive in time
409 - blocking you block that user
409 - name-taken the name is taken
409 - room-taken there is a room with this name already
410 - post-deleted the post of this `Idempotency-Key` was deleted; use a new key
410 - visit-over the visit of this `cursor` is over; begin again without one
413 any body-too-large the body is larger than the server accepts
415 body wrong-content-type the body is not declared as `application/json`
422 - blocks-full you block the maximum number of users
422 - blocks-oneself you cannot block or unblock yourself
422 - following-full you follow the maximum number of users
422 - follows-oneself you cannot follow or unfollow yourself
422 - idempotency-key-reused the key was used for a different text
422 - interests-full you have the maximum number of interests
422 - memberships-full you are a member of the maximum number of rooms
422 - name-invalid the name is invalid
422 - password-length the password is too short, too long, or invisible
422 - room-full the room has the maximum number of members
422 - text-length the text is too long or has no visible character
422 body unprocessable the body is JSON of another shape; `detail` names the field
426 - upgrade-required the request does not upgrade HTTP/1.1 to a WebSocket
426 - websocket-version the version of the WebSocket protocol is not 13
429 any rate-limited the account or the client network has made too many requests
429 any too-many-connections-of-network your network has its maximum number of connections
429 - too-many-logins too many passwords wait to be hashed
431 any head-too-large the head has more bytes or lines than the server accepts
500 any broken the service failed and did nothing; its log has the reason
500 any internal the server could not write the answer
500 any panicked the server failed while it handled the request
501 any transfer-encoding-unknown the only transfer encoding is `chunked`
503 any draining the server is shutting down
503 any request-timeout the request may or may not have taken effect
503 any too-many-connections the server has its maximum number of connections
503 - too-many-sockets the server has its maximum number of sockets
503 any unavailable the service did nothing; try again later
503 any uncertain the request may or may not have taken effect; check, or repeat it
";

/// Problems of the table.
pub(super) static ALL: LazyLock<Vec<Listed>> =
    LazyLock::new(|| TABLE.trim().lines().filter_map(Listed::parse).collect());

impl Listed {
    fn parse(line: &'static str) -> Option<Listed> {
        let mut parts = line.splitn(4, ' ');
        let status = parts.next()?.parse().ok()?;
        Some(Listed { status, need: parts.next()?, name: parts.next()?, meaning: parts.next()? })
    }
}

/// Returns the names of the problems of a need.
pub(super) fn of(need: &str) -> impl Iterator<Item = &'static str> {
    ALL.iter().filter(move |problem| problem.need == need).map(|problem| problem.name)
}

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
