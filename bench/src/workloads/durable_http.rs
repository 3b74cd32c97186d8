//! `durable-http`: durable counters behind a web server. A request adds 1 to a counter, and is answered with the
//! counter's value when the change is on the disk.
//!
//! ```text
//! server  open │ serve ───────────────────────────────────────────────────────┐ read all │ close, open │ read all
//! client       │ add 1 to each of E │ add 1 × N at random │ read all, check ──┘
//!                                   ├─ turns_per_s, p50_ns …, cpu_us_per_turn
//! ```
//!
//! - The counters are those of `durable-turns`, and the routes are the same for each row: `POST /counters/{number}`
//!   adds 1, `GET /counters/{number}` reads. All counters are live when the clock starts.
//! - Server and client are processes of their own. `cpu_us_per_turn` is processor time of the server's process, the
//!   kernel's part included.
//! - A connection has one request in flight. The percentiles are of the time of a request, as the client sees it.
//! - The client compares the value of each counter with the number of its acknowledged additions; of more than a
//!   million, of 100,000 at random. Then the server closes the counters and opens them again, and each must have the
//!   value that it had.

mod client;
mod remote;

pub(crate) use client::run as client;

use axum::Router;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::routing::get;
use bench_steps::Error;
use bench_steps::counters::served;

use super::durable::{self, Counters, Home, ThrongHome, TokioHeedHome};
use super::prelude::*;
use super::served::{on_throng, serve_on_axum, serve_on_throng};
use crate::stores::Directory;

pub(crate) fn run(row: &str, settings: &Settings) -> Measured {
    let directory = Directory::make(settings)?;
    let counters = settings.get("entities");
    match row {
        "throng" => on_throng(settings, async |runtime| {
            let home = ThrongHome::new(runtime, directory.path());
            let serve = |routes| serve_on_throng(runtime, routes, settings.clone());
            measure(home, counters, serve).await
        }),
        "tokio+heed" => {
            let home = TokioHeedHome::new(directory.path())?;
            runtimes::tokio::drive(settings, true, |settings| {
                measure(home, counters, |routes| serve_on_axum("tokio+heed", routes, settings))
            })
        }
        _ => Err(runtimes::no_row(row)),
    }
}

/// Serves counters until the client has ended.
async fn measure<H: Home, F: Future<Output = Measured>>(
    home: H,
    count: u64,
    serve: impl FnOnce(Router) -> F,
) -> Measured {
    let serve = async |counters: &H::Counters| serve(routes(counters.clone())).await;
    served(&home, count, durable::unlimited(count), serve).await
}

fn routes<C: Counters>(counters: C) -> Router {
    Router::new().route("/counters/{number}", get(read::<C>).post(add::<C>)).with_state(counters)
}

async fn add<C: Counters>(
    State(counters): State<C>,
    Path(number): Path<u64>,
) -> Result<String, (StatusCode, String)> {
    answer(counters.add(number).await)
}

async fn read<C: Counters>(
    State(counters): State<C>,
    Path(number): Path<u64>,
) -> Result<String, (StatusCode, String)> {
    answer(counters.read(number).await)
}

fn answer(value: Result<u64, Error>) -> Result<String, (StatusCode, String)> {
    let failed = |error: Error| (StatusCode::INTERNAL_SERVER_ERROR, error.to_string());
    value.map(|value| value.to_string()).map_err(failed)
}
