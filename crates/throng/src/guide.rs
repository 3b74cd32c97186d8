//! The guide: pages of prose and examples. Every example that needs no other library is run as a test.
//!
//! Learning throng:
//!
//! - [`tutorial`]: processes, messages, failures and supervisors in ten minutes
//! - [`deadlock`]: call cycles, their detection, and designs without them
//! - [`sockets`]: a process for each TCP connection, and web handlers that call processes
//! - [`testing`]: schedules from a seed, virtual time and crashes, for your own tests
//! - [`costs`]: the cost of every operation, and the command that measures it
//!
//! For readers who know another system, with a table from its names to throng's:
//!
//! - [`erlang`]: Erlang, Elixir and OTP
//! - [`kameo`], [`ractor`], [`actix`]: actor libraries in Rust

#[doc = include_str!("guide/tutorial.md")]
pub mod tutorial {}

#[doc = include_str!("guide/deadlock.md")]
#[doc(alias = "call cycle")]
#[doc(alias = "cycle")]
pub mod deadlock {}

#[doc = include_str!("guide/sockets.md")]
#[doc(alias = "tcp")]
#[doc(alias = "axum")]
#[doc(alias = "http")]
pub mod sockets {}

#[doc = include_str!("guide/testing.md")]
#[doc(alias = "simulation")]
pub mod testing {}

#[doc = include_str!("guide/costs.md")]
#[doc(alias = "performance")]
pub mod costs {}

#[doc = include_str!("guide/erlang.md")]
#[doc(alias = "elixir")]
#[doc(alias = "otp")]
pub mod erlang {}

#[doc = include_str!("guide/kameo.md")]
pub mod kameo {}

#[doc = include_str!("guide/ractor.md")]
pub mod ractor {}

#[doc = include_str!("guide/actix.md")]
pub mod actix {}
