//! A PostgreSQL server for the time of a run, with its own data, reached by a socket of Unix.
//!
//! Every commit is flushed: `fsync` and `synchronous_commit` have their default, which is on. The other settings are
//! those that a guide to tuning names for a machine of this size, and a log that is long enough for a run.

use std::fs::{self, File};
use std::io::Read;
use std::os::unix::fs::chown;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, geteuid, kill_process};
use tempfile::TempDir;

use crate::Error;

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

/// Time after which a server counts as one that does not start or end.
const STARTING: Duration = Duration::from_secs(60);

/// Places of the programs of PostgreSQL that are in no `PATH`, with a folder for each release.
const RELEASES: &str = "/usr/lib/postgresql";

pub(crate) struct Cluster {
    server: Child,
    /// The directory of the socket, whose path has to be short.
    socket: TempDir,
    version: String,
}

/// Returns the folder with the programs of the newest release.
fn programs() -> Result<PathBuf, Error> {
    let releases = fs::read_dir(RELEASES).into_iter().flatten().flatten();
    let folders = releases.filter_map(|entry| {
        let release: u32 = entry.file_name().to_str()?.parse().ok()?;
        Some((release, entry.path().join("bin")))
    });
    let newest = folders.filter(|(_, folder)| folder.join("initdb").exists()).max();
    let missing = || format!("PostgreSQL is not installed: {RELEASES} has no `initdb`");
    Ok(newest.ok_or_else(missing)?.1)
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
    /// Makes a server's data in a directory, and starts it.
    pub(crate) fn start(directory: &Path) -> Result<Cluster, Error> {
        let (programs, user) = (programs()?, unprivileged()?);
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
        let mut initdb = command("initdb");
        initdb.arg("-D").arg(&data).args(["-U", USER, "-A", "trust", "-E", "UTF8", "--no-locale"]);
        if !initdb.status()?.success() {
            return Err("`initdb` has failed".into());
        }
        let mut version = String::new();
        File::open(data.join("PG_VERSION"))?.read_to_string(&mut version)?;
        let mut server = command("postgres");
        server.arg("-D").arg(&data).arg("-k").arg(socket.path());
        for setting in SETTINGS {
            server.args(["-c", setting]);
        }
        let cluster =
            Cluster { server: server.spawn()?, socket, version: version.trim().to_owned() };
        let (begun, state) = (Instant::now(), data.join("postmaster.pid"));
        while !fs::read_to_string(&state).is_ok_and(|state| is_ready(&state)) {
            if begun.elapsed() > STARTING {
                return Err("PostgreSQL does not start".into());
            }
            sleep(Duration::from_millis(20));
        }
        Ok(cluster)
    }

    pub(crate) fn version(&self) -> &str {
        &self.version
    }

    /// The directory of the socket, as the name of a host.
    pub(crate) fn host(&self) -> String {
        self.socket.path().to_string_lossy().into_owned()
    }

    /// Ends the server, so that its processor time counts as that of this program.
    pub(crate) fn stop(mut self) -> Result<(), Error> {
        self.end(Signal::INT)?;
        Ok(())
    }

    fn end(&mut self, signal: Signal) -> Result<(), Error> {
        let begun = Instant::now();
        let mut signal = Some(signal);
        while self.server.try_wait()?.is_none() {
            if let Some(signal) = signal.take() {
                kill_process(Pid::from_child(&self.server), signal)?;
            }
            if begun.elapsed() > STARTING {
                return Err("PostgreSQL does not end".into());
            }
            sleep(Duration::from_millis(5));
        }
        Ok(())
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        // After an error nobody waits for the server's data.
        let _ = self.end(Signal::QUIT);
    }
}
