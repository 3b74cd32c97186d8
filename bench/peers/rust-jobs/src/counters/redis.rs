//! `redis`: counters in a server of Redis that flushes its log before each reply (`appendfsync always`).
//!
//! The server flushes once for all commands that its connections have sent meanwhile, and replies after that. Each of a
//! few connections sends the calls that wait as one pipeline. The server has no snapshots (`save ""`), and its defaults
//! otherwise: a log of 64 MiB that has doubled is rewritten.

use std::env;
use std::io::{self, Read, Write};
use std::net::TcpListener;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use bench_steps::outcome::Outcome;
use bench_steps::{Error, counters};
use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Client};

use super::group::{Group, Lanes, Ledger, Sum};
use crate::Settings;
use crate::server::Server;

const PROGRAM: &str = "redis-server";

/// Number of connections that write, and of those that read.
const CONNECTIONS: usize = 4;

pub(super) struct Home<'a> {
    pub(super) path: &'a Path,
    /// The port of the server on this machine; 0 for none.
    pub(super) port: u16,
}

struct Connection(MultiplexedConnection);

/// Whether a server takes commands: it refuses them while it reads its log.
fn is_ready(socket: &Path) -> bool {
    let ping = || {
        let mut stream = UnixStream::connect(socket)?;
        stream.write_all(b"PING\r\n")?;
        let mut reply = [0; 5];
        stream.read_exact(&mut reply)?;
        io::Result::Ok(reply == *b"+PONG")
    };
    ping().unwrap_or(false)
}

impl Home<'_> {
    fn start(&self) -> Result<(Server, PathBuf), Error> {
        let directory = tempfile::Builder::new().prefix("bench-redis-").tempdir()?;
        let socket = directory.path().join("socket");
        let mut command = Command::new(PROGRAM);
        command.args(["--port", &self.port.to_string(), "--bind", "127.0.0.1"]);
        command.args(["--appendonly", "yes", "--appendfsync", "always"]);
        command.args(["--save", "", "--loglevel", "warning"]);
        command.arg("--dir").arg(self.path).arg("--unixsocket").arg(&socket);
        command.stdin(Stdio::null()).stdout(Stdio::null());
        Ok((Server::start(&mut command, directory, || is_ready(&socket))?, socket))
    }
}

impl counters::Home for Home<'_> {
    type Counters = Lanes;

    async fn open(&self, _: u64) -> Result<Lanes, Error> {
        let (server, socket) = self.start()?;
        let client = Client::open(format!("redis+unix://{}", socket.display()))?;
        let unlimited = AsyncConnectionConfig::new();
        let unlimited = unlimited.set_connection_timeout(None).set_response_timeout(None);
        let (mut writers, mut readers) = (Vec::new(), Vec::new());
        for groups in [&mut writers, &mut readers] {
            for _ in 0..CONNECTIONS {
                let connection = client.get_multiplexed_async_connection_with_config(&unlimited);
                groups.push(Group::of_task(Connection(connection.await?)));
            }
        }
        Ok(Lanes::new(writers, readers, server))
    }
}

/// Runs the client of `durable-http` against the server itself, by its own protocol.
pub(super) async fn serve(path: &Path, settings: &Settings) -> Result<Outcome, Error> {
    let port = TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
    let entities = settings.get("entities")?;
    let serve = async |counters: &Lanes| {
        let program = env::var_os("BENCH_CLIENT").ok_or("BENCH_CLIENT names no program")?;
        let mut client = Command::new(program);
        client.args(["client", "--server", "redis", "--address", &format!("127.0.0.1:{port}")]);
        client.args(["--process", &counters.server().id().to_string()]);
        client.args(env::args_os().skip(2));
        client.stderr(Stdio::inherit());
        let output = tokio::task::spawn_blocking(move || client.output()).await??;
        if !output.status.success() {
            return Err(format!("the client failed ({})", output.status).into());
        }
        Ok(Outcome::of_line(serde_json::from_slice(&output.stdout)?))
    };
    counters::served(&Home { path, port }, entities, u64::MAX, serve).await
}

pub(super) fn version() -> Result<String, Error> {
    let output = Command::new(PROGRAM).arg("--version").output()?;
    let text = String::from_utf8(output.stdout)?;
    let version = text.split_whitespace().find_map(|part| part.strip_prefix("v="));
    Ok(version.ok_or("the server does not state its version")?.to_owned())
}

impl Ledger for Connection {
    async fn apply(&mut self, sums: &[Sum]) -> Result<Vec<u64>, Error> {
        let mut pipeline = redis::Pipeline::with_capacity(sums.len());
        for Sum { key, added, .. } in sums {
            let command = ["GET", "INCR", "INCRBY"][(*added).min(2) as usize];
            pipeline.cmd(command).arg(&key[..]);
            if *added > 1 {
                pipeline.arg(*added);
            }
        }
        let values: Vec<Option<u64>> = pipeline.query_async(&mut self.0).await?;
        Ok(values.into_iter().map(Option::unwrap_or_default).collect())
    }
}
