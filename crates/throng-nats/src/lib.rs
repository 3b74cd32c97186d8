//! A replicated log of [`throng_cluster`] on a stream of NATS JetStream.
//!
//! ```text
//!  NatsLog::append ──▶ queue ──▶ task of the log ──publish──▶ ┌ stream, 3 replicas ┐
//!    the future  ◀── oneshot ◀── task of the ack ◀──sequence──┤ 1 │ 2 │ 3 │ …      │
//!  NatsLog::read ◀── positions without a gap ◀── consumer ◀───┴────────────────────┘
//! ```
//!
//! A log is a stream with one subject; a position is a sequence of the stream; a record is the payload of a message.
//! [`Nats`] is the connection of a node to the servers, and makes and opens logs. All other crates know a log by
//! [`ShardLog`](throng_cluster::ShardLog) alone.
//!
//! 1. Appends leave in the order of the calls, and each has an outcome within the time-out of its call, whether or
//!    not its future is polled.
//! 2. A reader gets each position once and in order, or an error.
//! 3. A stream is used only if it keeps all records: its settings are compared before.
//!
//! The condition of an append is the header `Nats-Expected-Last-Sequence`, never `Nats-Expected-Last-Msg-Id`: servers
//! of version 2.15 stop a replicated stream for good after one append whose id is wrong.

#![warn(missing_docs)]

mod error;
mod log;
mod logs;
mod nats;
mod options;
mod read;
mod settings;
mod system;
mod version;

pub use error::NatsError;
pub use log::NatsLog;
pub use logs::NatsLogs;
pub use nats::Nats;
pub use options::{Certificate, Credentials, Options};
