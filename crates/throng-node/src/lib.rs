//! A node for any program on throng: a window on its processes, and what a service needs around them.
//!
//! ```text
//!                 ┌─────────────── serve(runtime, node, options, router) ───────────────┐
//! clients ──HTTP─►│ listener ─► bounds, TLS ─► latency ─► router of the program          │
//! balancer ──────►│   /livez, /readyz     Prometheus ─► /metrics                         │
//! operator ─token►│ dashboard, on a listener of its own                                  │──► runtime
//! `throng top` ──►│ admin socket, in the data directory                                  │──► node, store
//! systemd, kill ─►│ signals ─► drain ─► every process at rest, every change on disk      │
//!                 └──────────────────────────────────────────────────────────────────────┘
//! ```
//!
//! A program passes its own [`Router`](axum::Router) and gets all of it:
//!
//! ```no_run
//! use axum::Router;
//! use axum::routing::get;
//! use throng::prelude::*;
//! use throng_durable::Node;
//! use throng_node::Options;
//!
//! fn main() -> Result<(), Box<dyn std::error::Error>> {
//!     let runtime = Runtime::builder().start()?;
//!     runtime.block_on(async |runtime| {
//!         let node = Node::options("./data").open(runtime)?;
//!         let router = Router::new().route("/", get(async || "hello"));
//!         throng_node::serve(runtime, node, Options::default(), router).await?;
//!         Ok(())
//!     })
//! }
//! ```
//!
//! The program prints where it serves, and where the dashboard is. Ctrl-C or SIGTERM stops it in order.
//!
//! | to | see |
//! |---|---|
//! | make the data directory private, and open it while a signal may come | [`open`] |
//! | use WebSockets, add metrics, run something beside the server | [`Host`] |
//! | read requests, limit clients, sign tokens | [`http`] |
//! | write JSON for a collector of logs | [`log`] |
//! | take the settings from a command line | [`args`], with the feature `clap` |
//!
//! Invariants: requests are served only after the data is open, and the data is closed after the last answer is sent.
//! No handler can keep a node from stopping after a second signal. Without its token, the dashboard shows nothing.

pub mod admin;
#[cfg(feature = "clap")]
pub mod args;
mod dashboard;
mod data;
mod files;
pub mod http;
pub mod log;
mod metrics;
mod notify;
mod options;
mod private;
mod probe;
mod process;
mod serve;
mod signals;

pub use dashboard::token::{TOKEN_FILE, TokenFileError, replace_token};
pub use dashboard::{DashboardError, dashboard_url};
pub use data::{OpenError, open};
pub use files::TooFewFiles;
pub use options::{DashboardAddress, Options};
pub use serve::{Host, Interrupted, ServeError, Started, serve, shut_down};
pub use signals::Signals;
