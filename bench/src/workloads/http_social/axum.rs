//! `http-social` with a server that answers every request with "hello": the least that a request costs.

use std::io;

use axum::Router;
use axum::body::Bytes;
use tokio::net::TcpListener;
use tokio::task::spawn_blocking;

use super::AXUM_HELLO;
use crate::runtimes::{self, Measured};
use crate::settings::Settings;
use crate::workloads::served;

pub(super) const HELLO: &str = "hello";

pub(super) fn run(settings: &Settings) -> Measured {
    runtimes::tokio::drive(settings, true, |settings| async move {
        served::allow_open_files()?;
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        // The body of a post has to be read, so that the connection can be used again.
        let hello = Router::new().fallback(|_: Bytes| async { HELLO });
        let server = tokio::spawn(axum::serve(listener, hello).into_future());
        let client = spawn_blocking(move || served::run_client(AXUM_HELLO, address, &settings));
        let outcome = client.await.map_err(io::Error::other)?;
        server.abort();
        outcome
    })
}
