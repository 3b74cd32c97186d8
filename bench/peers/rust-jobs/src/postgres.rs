//! A PostgreSQL server for the time of a run, with its own data, reached by a socket of Unix.
//!
//! Every commit is flushed: `fsync` and `synchronous_commit` have their default, which is on. The other settings are
//! those that a guide to tuning names for a machine of this size, and a log that is long enough for a run.

use std::fs;
use std::os::unix::fs::chown;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use rustix::process::geteuid;
use tokio_postgres::{Client, Config, NoTls};

use crate::server::Server;
use bench_steps::Error;

/// The superuser of the server, and the database that it has from the start.
pub(crate) const USER: &str = "postgres";

const SETTINGS: [&str; 10] = [
    "listen_addresses=",
    "max_connections=200",
    "shared_buffers=1GB",
    "max_wal_size=8GB",
    "checkpoint_timeout=15min",
    "wal_buffers=64MB",
    "autovacuum_naptime=5s",
    "autovacuum_vacuum_cost_delay=0",
    "jit=off",
    "log_min_messages=panic",
];

/// Places of the programs of PostgreSQL that are in no `PATH`, with a folder for each release.
const RELEASES: &str = "/usr/lib/postgresql";

pub(crate) struct Cluster {
    pub(crate) server: Server,
}

/// Returns the newest release, and the folder with its programs.
fn newest() -> Result<(u32, PathBuf), Error> {
    let releases = fs::read_dir(RELEASES).into_iter().flatten().flatten();
    let folders = releases.filter_map(|entry| {
        let release: u32 = entry.file_name().to_str()?.parse().ok()?;
        Some((release, entry.path().join("bin")))
    });
    let newest = folders.filter(|(_, folder)| folder.join("initdb").exists()).max();
    let missing = || format!("PostgreSQL is not installed: {RELEASES} has no `initdb`");
    Ok(newest.ok_or_else(missing)?)
}

pub(crate) fn version() -> Result<String, Error> {
    Ok(newest()?.0.to_string())
}

/// Returns the ids of a user and its group as which the server runs, if this is root, as which it refuses to.
fn unprivileged() -> Result<Option<(u32, u32)>, Error> {
    if !geteuid().is_root() {
        return Ok(None);
    }
    let users = fs::read_to_string("/etc/passwd")?;
    let find = |name: &str| {
        let fields = users.lines().map(|line| line.split(':').collect::<Vec<_>>());
        fields
            .into_iter()
            .find(|fields| fields.first() == Some(&name))
            .and_then(|fields| Some((fields.get(2)?.parse().ok()?, fields.get(3)?.parse().ok()?)))
    };
    let found = find(USER).or_else(|| find("nobody"));
    Ok(Some(found.ok_or("there is no user without privileges for PostgreSQL")?))
}

/// Whether a server takes connections, by its file of state. Its socket is there before.
fn is_ready(state: &str) -> bool {
    state.lines().nth(7).is_some_and(|line| line.trim_end() == "ready")
}

impl Cluster {
    /// Starts a server on the data in a directory, which it makes if there is none.
    pub(crate) fn start(directory: &Path) -> Result<Cluster, Error> {
        let ((_, programs), user) = (newest()?, unprivileged()?);
        let socket = tempfile::Builder::new().prefix("bench-pg-").tempdir()?;
        if let Some((user, group)) = user {
            for path in [directory, socket.path()] {
                chown(path, Some(user), Some(group))?;
            }
        }
        let command = |program: &str| {
            let mut command = Command::new(programs.join(program));
            if let Some((user, group)) = user {
                command.gid(group).uid(user);
            }
            command.current_dir(directory).stdin(Stdio::null()).stdout(Stdio::null());
            command
        };
        let data = directory.join("pg");
        if !data.exists() {
            let mut initdb = command("initdb");
            initdb.arg("-D").arg(&data);
            initdb.args(["-U", USER, "-A", "trust", "-E", "UTF8", "--no-locale"]);
            if !initdb.status()?.success() {
                return Err("`initdb` has failed".into());
            }
        }
        let mut server = command("postgres");
        server.arg("-D").arg(&data).arg("-k").arg(socket.path());
        for setting in SETTINGS {
            server.args(["-c", setting]);
        }
        let state = data.join("postmaster.pid");
        let is_ready = || fs::read_to_string(&state).is_ok_and(|state| is_ready(&state));
        Ok(Cluster { server: Server::start(&mut server, socket, is_ready)? })
    }

    /// The directory of the socket, as the name of a host.
    pub(crate) fn host(&self) -> String {
        self.server.socket().to_string_lossy().into_owned()
    }

    pub(crate) async fn connect(&self) -> Result<Client, Error> {
        let mut config = Config::new();
        config.host_path(self.server.socket()).user(USER).dbname(USER);
        let (client, connection) = config.connect(NoTls).await?;
        tokio::spawn(async move {
            if let Err(error) = connection.await {
                eprintln!("a connection has failed: {error}");
            }
        });
        Ok(client)
    }
}
