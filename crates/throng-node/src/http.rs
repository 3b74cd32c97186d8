//! HTTP plumbing of a throng node. The crate knows HTTP and no domain: an application passes a
//! [`Router`](axum::Router), and this crate adds the protections that every public HTTP service
//! needs.
//!
//! ```text
//!   TCP ──► Server ──► connection ──► Router ──► handler
//!           caps       head timeout    (app)      Json, Query, Bearer in
//!           drain      body limit                 Json, Problem out
//!                      request timeout    SocketUpgrade ──► SocketInbox, Outbox
//!                      panics caught
//! ```
//!
//! Invariants:
//! * Every error leaves as problem JSON (RFC 9457), also for a head that never came, for bytes that
//!   are not HTTP, for a full server and for a handler that panicked.
//! * A request that two programs could read differently is answered 400 and reaches no handler: a
//!   request with a bare LF, without exactly one valid `Host`, with `Content-Length` beside
//!   `Transfer-Encoding`, or with either of these, `Authorization` or `Content-Type` twice. Other
//!   headers may be repeated.
//! * Everything that a client can make grow has a bound: connections, heads, bodies, messages of a
//!   socket and the queues of both directions, and the time of each.
//! * The address of a client is that of its connection, or the address that a trusted proxy names.
//! * A browser's page opens a socket only if its origin is the server's own or listed.
//! * Every answer has `X-Content-Type-Options: nosniff`.
//! * Every answer to a request with a whole head has an `X-Request-Id`, and the handler runs in a `tracing` span with
//!   the same id: the client's, or a drawn one. Logs have no query strings, headers or bodies.
//! * A server with a certificate ([`Tls`]) serves nothing without TLS.
//! * A token or cursor from a client is trusted only if [`Signer`] signed it for the same purpose.

mod admission;
mod answers;
mod bearer;
mod client;
mod connection;
mod exchange;
mod extract;
mod forwarded;
#[cfg(feature = "fuzzing")]
#[doc(hidden)]
pub mod fuzzing;
mod head;
mod page;
mod problem;
mod rate;
mod request_id;
mod server;
mod sign;
mod socket;
mod tls;

pub use admission::Connections;
pub use answers::Answers;
pub use bearer::{Bearer, bearer_text, unauthorized};
pub use client::ClientAddress;
pub use extract::{Json, Path, Query};
pub use forwarded::{ForwardedHeader, Network, NetworkError, TrustedProxies};
pub use page::page_routes;
pub use problem::Problem;
pub use rate::{Limited, Rate, RateTable};
pub use server::{Drained, Limits, Server, Serving};
pub use sign::{Cursor, CursorError, KEY_FILE, KeyError, Signer, Token, TokenError};
pub use socket::{
    CloseCode, Frames, Outbox, OutboxError, SocketEnd, SocketInbox, SocketLimits, SocketUpgrade,
    Sockets,
};
pub use tls::{Tls, TlsError};
pub use tungstenite::Utf8Bytes;
