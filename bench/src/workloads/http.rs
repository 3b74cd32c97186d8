//! `http`: a web server counts the requests of each user; the client is on the same machine, and keeps
//! its connections.
//!
//! ```text
//! driver    start users │ connect, a request each │ wait                   │ wait                     │ sum
//! client                                          │ request × N/connections│ (clock, request, clock) × samples/connections
//!                                                 ├─── requests_per_s ─────┤ p50_ns, p99_ns
//! ```
//!
//! - The server is axum's, with the same route and the same handler in each row, on a tokio runtime
//!   with as many threads as the settings have workers. The rows differ in the place of the counts:
//!   see [`Users`]. All users exist before the clock starts.
//! - A connection has one request in flight. Its users are its own, picked at random, so the client
//!   knows the answer to each request: the user's number, and the number of the user's requests.
//!   Every answer is checked.
//! - At the end the counts of all users add up to the number of requests.
//! - `server_cpu_ns` is processor time per request of all threads but the client's, and
//!   `client_cpu_ns` that of the client's. A busy machine moves them less than the rate.

mod axum;
mod client;
mod processor;
mod throng;
mod tokio;

use std::io;
use std::time::Instant;

use ::axum::Router;
use ::axum::extract::{Path, State};
use ::axum::http::StatusCode;
use ::axum::routing::get;
use ::tokio::net::TcpListener;
use ::tokio::time::timeout;

use self::client::{Client, Timing};
use self::processor::Usage;
use super::prelude::*;
use super::tally::TIMEOUT;
use super::{latency, served};

pub(crate) fn run(row: &str, settings: &Settings) -> Measured {
    match row {
        "throng" => throng::run(settings),
        "axum" => axum::run(settings),
        "tokio" => tokio::run(settings),
        _ => Err(runtimes::no_row(row)),
    }
}

/// The users of a server: each has a number below the number of users, and a count of its requests.
trait Users: Clone + Send + Sync + 'static {
    /// Counts a request of a user. Returns the number of the user's requests, this one included, or
    /// the status of an answer without it.
    fn visit(&self, user: u64) -> impl Future<Output = Result<u64, StatusCode>> + Send;

    /// The number of the requests of all users.
    fn visits(&self) -> impl Future<Output = u64> + Send;
}

async fn visit<U: Users>(
    State(users): State<U>,
    Path(user): Path<u64>,
) -> Result<String, StatusCode> {
    let visits = users.visit(user).await?;
    Ok(format!("{user} {visits}"))
}

async fn measure<U: Users>(users: U, settings: Settings) -> Measured {
    let samples = settings.get("samples");
    let connection_count = settings.get("connections");
    served::allow_open_files()?;
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?;
    let routes = Router::new().route("/users/{user}", get(visit::<U>)).with_state(users.clone());
    let server = ::tokio::spawn(::axum::serve(listener, routes).into_future());

    let client = Client::start(settings.workers)?;
    let work = async {
        let connections = client.connect(address, connection_count, settings.get("users")).await?;
        let warm_up = client.request(connections, connection_count, Timing::Together).await?;
        let usage = Usage::read()?;
        let clock = Instant::now();
        let counted = client.request(warm_up.connections, settings.count, Timing::Together).await?;
        let elapsed = clock.elapsed();
        let usage = Usage::read()?.since(usage);
        let sampled = client.request(counted.connections, samples, Timing::Each).await?;
        let correct = warm_up.correct + counted.correct + sampled.correct;
        io::Result::Ok((elapsed, usage, correct, sampled.latencies))
    };
    let (elapsed, usage, correct, sampled) = timeout(TIMEOUT, work).await??;
    server.abort();
    // A task wakes other tasks more cheaply than the future of `block_on`.
    let visits = ::tokio::spawn(async move { users.visits().await });
    let visits = visits.await?;
    let latencies = latency::of(sampled)?;

    let requests = connection_count + settings.count + samples;
    let mut outcome = Outcome::default();
    outcome.metric("requests_per_s", settings.count as f64 / elapsed.as_secs_f64());
    latency::report(&mut outcome, "", &latencies);
    outcome.metric("server_cpu_ns", usage.server_ns as f64 / settings.count as f64);
    outcome.metric("client_cpu_ns", usage.client_ns as f64 / settings.count as f64);
    outcome.check("correct answers", correct, requests);
    outcome.check("the requests of all users", visits, requests);
    outcome.check("requests that were timed separately", latencies.len(), samples);
    Ok(outcome)
}
