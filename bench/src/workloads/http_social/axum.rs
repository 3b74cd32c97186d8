//! `http-social` with a server that answers every request with "hello": the least that a request costs.

use axum::Router;
use axum::body::Bytes;

use super::AXUM_HELLO;
use crate::workloads::prelude::*;
use crate::workloads::served;

pub(super) const HELLO: &str = "hello";

pub(super) fn run(settings: &Settings) -> Measured {
    runtimes::tokio::drive(settings, true, |settings| {
        // The body of a post has to be read, so that the connection can be used again.
        let hello = Router::new().fallback(|_: Bytes| async { HELLO });
        served::serve_on_axum(AXUM_HELLO, hello, settings)
    })
}
