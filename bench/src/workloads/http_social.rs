//! `http-social`: the message service on a durable store, under reads of timelines and profiles and under posts; and
//! a web server that answers every request with "hello", under the same requests of the same client.
//!
//! ```text
//! server  users, follows, posts │ serve ─────────────────────────────────────────────────────────────┐
//! client                        │ read all │ N × (80 % timeline, 15 % profile, 5 % post) │ N × reads   │ read all
//!                                          ├─ requests_per_s, p50_ns …, post_p50_ns … ───┤
//!                                                                                       ├─ reads_per_s, …_cpu_ns ┤
//! ```
//!
//! - A timeline is the newest 20 posts of all users that the caller follows, a profile the newest 20 posts of a
//!   user. A post is on the disk before it is answered.
//! - With `home=for-you` the mix has the first page of a new visit of For you in the place of each timeline.
//! - A connection has one request in flight, and its users are its own, picked at random. So the client knows the
//!   newest post of each of its users.
//! - Every answer is checked: its status, its shape, the number of its posts, their order, newest first, and their
//!   authors. A timeline that does not have a post of a followed user that was acknowledged before the request is
//!   wrong, as is a profile whose first post is not the user's newest.
//! - At the end the client reads all posts of all users, and each timeline must be the newest of those that its
//!   reader follows.

mod axum;
mod client;
mod connection;
mod population;
mod throng;

pub(crate) use client::run as client;

use super::prelude::*;

pub(crate) fn run(row: &str, settings: &Settings) -> Measured {
    match row {
        "throng" => throng::run(settings),
        "axum-hello" => axum::run(settings),
        _ => Err(runtimes::no_row(row)),
    }
}

/// Name of the row whose server does nothing.
const AXUM_HELLO: &str = "axum-hello";
