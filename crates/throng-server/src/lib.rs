//! HTTP plumbing of a throng node. It knows HTTP and no domain: an application hands it a
//! [`Router`](axum::Router), and this crate does what every public HTTP service must.
//!
//! ```text
//!   TCP ──► Server ──► connection ──► Router ──► handler
//!           cap        head timeout    (app)      Json, Query, Bearer in
//!           drain      body limit                 Json, Problem out
//!                      request timeout
//!                      panics caught
//! ```
//!
//! Invariants:
//! * Every error leaves as problem JSON (RFC 9457), also those of a head that never came, of bytes
//!   that are not HTTP, of a full server and of a handler that panicked.
//! * A request that two programs could read differently is answered 400 and reaches no handler: one with
//!   a bare LF, without one sound `Host`, with `Content-Length` beside `Transfer-Encoding`, or with
//!   either of them, `Authorization` or `Content-Type` twice. Other headers may be repeated.
//! * Everything a stranger can make grow has a bound: connections, heads, bodies, the time of each.
//! * Nothing a client sends back (token, cursor) is believed unless [`Signer`] signed it for the
//!   very purpose it is used for.
#![forbid(unsafe_code)]

mod bearer;
mod client;
mod connection;
mod exchange;
mod extract;
mod head;
mod problem;
mod server;
mod sign;

pub use bearer::Bearer;
pub use client::ClientAddress;
pub use extract::{Json, Query};
pub use problem::Problem;
pub use server::{Drained, Limits, Server, Serving};
pub use sign::{Cursor, CursorError, KeyError, Signer, Token, TokenError};
