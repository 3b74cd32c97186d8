//! The HTTP plumbing over real connections.
#![expect(clippy::unwrap_used, reason = "the helpers of tests are tests, too")]

mod server;
mod sockets;
mod support;
mod tls;
