//! A server and its client in processes of their own, so that the processor time and the memory of the server can
//! be told apart from the client's.
//!
//! ```text
//! harness ── bench peer R W ─→ server ── bench client W --address … ─→ client
//!                                │ ◀──────── line of JSON ───────────────┤ /proc/SERVER
//!                                └──→ line of JSON
//! ```
//!
//! - The client drives the run: its order of work, its clocks and its checks are the same for every server.
//! - A server in another language is a program that starts the client itself, with its own arguments behind those
//!   that tell the client about the server, and that leaves its standard output to the client. The environment variable
//!   [`CLIENT_VARIABLE`] names the program of the client.

use std::env;
use std::io;
use std::net::SocketAddr;
use std::process::{self, Command, Stdio};
use std::time::Duration;

use axum::Router;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use throng::{Runtime, RuntimeHandle};
use throng_node::http::{Limits, Server as NodeServer};
use tokio::net::TcpListener;
use tokio::runtime::Builder;
use tokio::sync::oneshot;
use tokio::task::spawn_blocking;
use tokio::time::timeout;

use super::prelude::*;
use super::tally::TIMEOUT;
use crate::outcome::{Line, Outcome};

/// Name of the variable that tells a server in another language where the program of the client is.
pub(crate) const CLIENT_VARIABLE: &str = "BENCH_CLIENT";

/// Time for processes to end; they do so at once.
const DEADLINE: Duration = Duration::from_secs(60);

/// The function that runs a workload's client in this process.
pub(crate) type Client = fn(&Settings, &Server) -> Measured;

/// The server that a client measures.
pub(crate) struct Server {
    pub(crate) row: String,
    pub(crate) process: u32,
    pub(crate) address: SocketAddr,
}

/// Runs the client of a server of this process in a process of its own, and returns its result.
pub(crate) fn run_client(row: &str, address: SocketAddr, settings: &Settings) -> Measured {
    let mut client = Command::new(env::current_exe()?);
    client.args(["client", "--server", row, "--address", &address.to_string()]);
    client.args(["--process", &process::id().to_string(), settings.workload.name]);
    client.args(["--count", &settings.count.to_string()]);
    client.args(["--workers", &settings.workers.to_string()]);
    for (key, value) in settings.keys() {
        client.arg("--set").arg(format!("{key}={value}"));
    }
    let output = client.stdin(Stdio::null()).stderr(Stdio::inherit()).output()?;
    if !output.status.success() {
        return Err(format!("the client failed ({})", output.status).into());
    }
    let line: Line = serde_json::from_slice(&output.stdout)?;
    Ok(Outcome::of_line(line))
}

/// Does work on throng as a service starts it, with threads of throng's own for the sockets.
pub(crate) fn on_throng(
    settings: &Settings,
    work: impl AsyncFnOnce(&RuntimeHandle) -> Measured,
) -> Measured {
    let mut builder = Runtime::builder().workers(settings.workers);
    match settings.get("io") {
        0 => {}
        threads => builder = builder.io_threads(threads as usize),
    }
    let runtime = builder.start()?;
    let mut outcome = runtime.block_on(work)?;
    let shutdown = runtime.shutdown(DEADLINE);
    outcome.check("processes that did not end", shutdown.abandoned, 0);
    Ok(outcome)
}

/// Serves routes by the server of `throng-node` until the client has ended, and returns the client's result.
pub(crate) async fn serve_on_throng(
    runtime: &RuntimeHandle,
    routes: Router,
    settings: Settings,
) -> Measured {
    let limits = Limits { connections_max: usize::MAX, ..Limits::default() };
    let server = NodeServer::bind(([127, 0, 0, 1], 0).into(), limits).await?;
    let address = server.address();
    let serving = server.start(routes, runtime.tokio());
    let client = spawn_blocking(move || run_client("throng", address, &settings));
    let outcome = client.await?;
    let drained = serving.drain().await;
    let mut outcome = outcome?;
    outcome.check("connections that were cut", drained.cut as u64, 0);
    Ok(outcome)
}

/// Serves routes by axum until the client of a row has ended, and returns the client's result.
pub(crate) async fn serve_on_axum(
    row: &'static str,
    routes: Router,
    settings: Settings,
) -> Measured {
    allow_open_files()?;
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?;
    let (stop, stopped) = oneshot::channel::<()>();
    // The tasks of the connections hold the routes' state, so the end of the last one is awaited.
    let server = axum::serve(listener, routes).with_graceful_shutdown(async {
        let _ = stopped.await;
    });
    let server = tokio::spawn(server.into_future());
    let client = spawn_blocking(move || run_client(row, address, &settings));
    let outcome = client.await?;
    drop(stop);
    server.await??;
    outcome
}

/// Drives a client in this process, on half as many threads as the server has workers, as in `http`.
pub(crate) fn drive(settings: &Settings, work: impl Future<Output = Measured>) -> Measured {
    allow_open_files()?;
    let threads = settings.workers.div_ceil(2);
    let runtime = Builder::new_multi_thread().worker_threads(threads).enable_all().build()?;
    runtime.block_on(async { timeout(TIMEOUT, work).await? })
}

/// Allows this process as many open files as its hard limit: the usual limit of 1,024 is too low for many
/// connections.
pub(crate) fn allow_open_files() -> io::Result<()> {
    let limit = getrlimit(Resource::Nofile);
    Ok(setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit })?)
}
