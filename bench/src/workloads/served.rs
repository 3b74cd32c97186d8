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

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tokio::runtime::Builder;
use tokio::time::timeout;

use super::tally::TIMEOUT;
use crate::outcome::{Line, Outcome};
use crate::settings::Settings;

/// Name of the variable that tells a server in another language where the program of the client is.
pub(crate) const CLIENT_VARIABLE: &str = "BENCH_CLIENT";

/// The function that runs a workload's client in this process.
pub(crate) type Client = fn(&Settings, &Server) -> io::Result<Outcome>;

/// The server that a client measures.
pub(crate) struct Server {
    pub(crate) row: String,
    pub(crate) process: u32,
    pub(crate) address: SocketAddr,
}

/// Runs the client of a server of this process in a process of its own, and returns its result.
pub(crate) fn run_client(
    row: &str,
    address: SocketAddr,
    settings: &Settings,
) -> io::Result<Outcome> {
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
        return Err(io::Error::other(format!("the client failed ({})", output.status)));
    }
    let line: Line = serde_json::from_slice(&output.stdout).map_err(io::Error::other)?;
    Ok(Outcome::of_line(line))
}

/// Drives a client in this process, on half as many threads as the server has workers, as in `http`.
pub(crate) fn drive(
    settings: &Settings,
    work: impl Future<Output = io::Result<Outcome>>,
) -> io::Result<Outcome> {
    allow_open_files()?;
    let threads = settings.workers.div_ceil(2);
    let runtime = Builder::new_multi_thread().worker_threads(threads).enable_all().build()?;
    runtime.block_on(async { timeout(TIMEOUT, work).await.map_err(io::Error::other)? })
}

/// Allows this process as many open files as its hard limit: the usual limit of 1,024 is too low for many
/// connections.
pub(crate) fn allow_open_files() -> io::Result<()> {
    let limit = getrlimit(Resource::Nofile);
    Ok(setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit })?)
}
