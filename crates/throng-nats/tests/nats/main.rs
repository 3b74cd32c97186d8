//! Logs on real servers of NATS, which the tests start, kill and start again.

#![allow(clippy::unwrap_used, reason = "a failed unwrap fails the test")]

mod cluster;
mod entities;
mod owners;
mod servers;
mod single;
