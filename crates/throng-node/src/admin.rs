//! The admin socket: a Unix socket in the data directory, over which a node reports its state to
//! users with access to its files.
//!
//! ```text
//! bind ──► mode 0600 ──► listen ──► one task for each client: line in, line out ──► removed
//! ```
//!
//! Invariants: no client can connect between bind and listen, so no client connects before the mode
//! is set. Only a node that holds the lock on the data opens the socket, so an existing socket is
//! left over from a crash. The memory that a client can occupy is bounded, whatever it sends.

#[expect(missing_docs, reason = "fields and variants have the names of the JSON")]
pub mod entities;
#[expect(missing_docs, reason = "fields and variants have the names of the JSON")]
pub mod wire;

use std::cmp::Reverse;
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use throng::{ProcessInfo, RuntimeHandle, SortBy};
use throng_durable::WeakNode;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{UnixListener, UnixSocket, UnixStream};
use tokio::sync::Semaphore;
use tokio::task::AbortHandle;
use tokio::time::timeout;

use wire::{Answer, KindSums, LineError, PidList, Refusal, RefusalKind, Request};

/// Name of the socket in the data directory.
pub const SOCKET_FILE: &str = "admin.sock";

/// Parts of a node about which clients ask. It does not keep the node open.
#[derive(Clone, Debug)]
pub(crate) struct Inspected {
    pub(crate) runtime: RuntimeHandle,
    pub(crate) node: Option<WeakNode>,
}

/// Open admin socket; closed and removed when dropped.
#[derive(Debug)]
pub(crate) struct AdminSocket {
    path: PathBuf,
    /// Device and inode of the socket.
    identity: (u64, u64),
    acceptor: AbortHandle,
}

impl AdminSocket {
    /// Opens the socket at `path`. The caller must hold the lock on the data that the socket
    /// belongs to.
    ///
    /// # Errors
    /// The error of the operating system: the path may be too long for a socket, or be in use.
    ///
    /// # Panics
    /// Panics if the caller is outside a tokio runtime.
    pub(crate) fn open(path: PathBuf, inspected: Inspected) -> io::Result<AdminSocket> {
        remove_leftover(&path)?;
        let socket = UnixSocket::new_stream()?;
        socket.bind(&path)?;
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600))?;
        let identity = identity(&path)?;
        let listener = socket.listen(BACKLOG)?;
        let acceptor = tokio::spawn(accept(listener, inspected)).abort_handle();
        Ok(AdminSocket { path, identity, acceptor })
    }
}

impl Drop for AdminSocket {
    fn drop(&mut self) {
        self.acceptor.abort();
        // After the data directory was renamed, the path may lead to the socket of another node. A socket that
        // cannot be removed here is removed by the next start.
        if identity(&self.path).is_ok_and(|found| found == self.identity) {
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

fn identity(path: &Path) -> io::Result<(u64, u64)> {
    std::fs::symlink_metadata(path).map(|metadata| (metadata.dev(), metadata.ino()))
}

/// Removes the socket of a node that crashed; fails if the path is not a socket.
fn remove_leftover(path: &Path) -> io::Result<()> {
    match std::fs::symlink_metadata(path) {
        Ok(found) if found.file_type().is_socket() => std::fs::remove_file(path),
        Ok(_) => {
            Err(io::Error::new(io::ErrorKind::AlreadyExists, "the path exists and is not a socket"))
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(error),
    }
}

async fn accept(listener: UnixListener, inspected: Inspected) {
    // Clients are dropped with this task: no client is answered after the node has closed the
    // socket.
    let mut clients = tokio::task::JoinSet::new();
    let permits = Arc::new(Semaphore::new(CLIENTS_MAX));
    loop {
        while clients.try_join_next().is_some() {}
        match listener.accept().await {
            Ok((stream, _)) => {
                let permit = permits.clone().try_acquire_owned();
                let inspected = inspected.clone();
                clients.spawn(async move {
                    // Errors of a connection concern only its client.
                    let _ = match permit {
                        Ok(_permit) => serve(stream, &inspected).await,
                        Err(_) => refuse(stream).await,
                    };
                });
            }
            Err(error) => {
                tracing::warn!(%error, "cannot accept connections on the admin socket; retrying");
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

async fn serve(stream: UnixStream, inspected: &Inspected) -> io::Result<()> {
    let mut stream = BufReader::new(stream);
    let mut line = Vec::new();
    loop {
        line.clear();
        let mut limited = (&mut stream).take(LINE_BYTES_MAX + 1);
        timeout(IDLE_MAX, limited.read_until(b'\n', &mut line)).await??;
        if line.is_empty() {
            return Ok(());
        }
        let answer = if line.len() as u64 > LINE_BYTES_MAX {
            let detail = format!("the line is longer than {LINE_BYTES_MAX} bytes");
            Answer::Error(Refusal { kind: RefusalKind::Malformed, detail })
        } else {
            answer(&line, inspected).await
        };
        send(stream.get_mut(), &answer).await?;
        if !line.ends_with(b"\n") {
            // The line was too long or incomplete, so the start of the next line is unknown.
            return Ok(());
        }
    }
}

async fn refuse(mut stream: UnixStream) -> io::Result<()> {
    let detail = format!(
        "{CLIENTS_MAX} clients are connected already, which is the maximum; try again later"
    );
    send(&mut stream, &Answer::Error(Refusal { kind: RefusalKind::Busy, detail })).await
}

async fn send(stream: &mut UnixStream, answer: &Answer) -> io::Result<()> {
    let line = wire::write(answer)?;
    timeout(IDLE_MAX, stream.write_all(line.as_bytes())).await?
}

async fn answer(line: &[u8], inspected: &Inspected) -> Answer {
    match wire::read(line) {
        Ok(request) => inspect(request, inspected, PROCESSES_MAX).await,
        Err(error) => {
            let kind = match error {
                LineError::Malformed(_) => RefusalKind::Malformed,
                LineError::Version(_) => RefusalKind::Version,
            };
            Answer::Error(Refusal { kind, detail: error.to_string() })
        }
    }
}

/// Answers a request, with at most `rows_max` processes or kinds, whatever its limit.
pub(crate) async fn inspect(request: Request, inspected: &Inspected, rows_max: usize) -> Answer {
    let Inspected { runtime, node } = inspected;
    match request {
        Request::Entity(request) => {
            let node = node.as_ref().and_then(WeakNode::upgrade);
            entities::answer(request, runtime, node).await
        }
        Request::Metrics => Answer::Metrics(runtime.metrics().into()),
        Request::Top { by, limit, offset, filter } => {
            let offset = offset.min(PROCESSES_MAX);
            let most = offset.saturating_add(limit.min(rows_max)).min(PROCESSES_MAX);
            let processes = runtime.search(&filter, most, by.into()).await;
            Answer::Top(processes.into_iter().skip(offset).map(Into::into).collect())
        }
        Request::Sums { by, limit, filter } => {
            let sums = runtime.sums_by_kind(&filter).await;
            let mut sums: Vec<KindSums> = sums.into_iter().map(Into::into).collect();
            sums.sort_by(|one, other| other.compare(one, by));
            sums.truncate(limit.min(rows_max));
            Answer::Sums(sums)
        }
        Request::List { limit, filter } if filter.is_empty() => {
            let mut list = runtime.list();
            let pids = list.by_ref().take(limit.min(rows_max)).map(|pid| pid.to_string());
            let pids = pids.collect();
            Answer::List(PidList { pids, more: list.next().is_some() })
        }
        Request::List { limit, filter } => {
            let limit = limit.min(rows_max);
            let found = runtime.search(&filter, limit + 1, SortBy::Memory).await;
            let more = found.len() > limit;
            let pids = found.into_iter().take(limit).map(|info| info.pid.to_string()).collect();
            Answer::List(PidList { pids, more })
        }
        Request::Info { pid } => match find(runtime, &pid).await {
            Some(info) => Answer::Info(info.into()),
            None => {
                let detail = format!("there is no live process with the pid {pid:?}");
                Answer::Error(Refusal { kind: RefusalKind::NoProcess, detail })
            }
        },
        Request::Tree { limit } => {
            let branches = runtime.tree(limit.min(rows_max)).await;
            Answer::Tree(branches.into_iter().map(Into::into).collect())
        }
        Request::Kinds { limit } => {
            let mut kinds = runtime.metrics().kinds;
            kinds.sort_by_key(|kind| Reverse(kind.busy));
            kinds.truncate(limit.min(rows_max));
            Answer::Kinds(kinds.into_iter().map(Into::into).collect())
        }
    }
}

async fn find(runtime: &RuntimeHandle, pid: &str) -> Option<ProcessInfo> {
    runtime.info(runtime.find(pid)?).await
}

/// Maximum number of connections that wait to be accepted.
const BACKLOG: u32 = 16;

/// Maximum number of clients; further clients get a refusal.
const CLIENTS_MAX: usize = 16;

/// Maximum number of processes in an answer, whatever the requested limit.
const PROCESSES_MAX: usize = 100_000;

/// Maximum number of bytes in a request line.
const LINE_BYTES_MAX: u64 = 4096;

/// Maximum time for which a client may be silent, or not read its answer.
const IDLE_MAX: Duration = Duration::from_secs(60);

/// Pause after a failure to accept, so that the acceptor does not spin.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);
