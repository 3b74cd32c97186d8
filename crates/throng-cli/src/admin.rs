//! The admin socket: a Unix socket in the data directory over which a node tells what goes on in
//! it, to those who may read its files anyway.
//!
//! ```text
//! bind ──► mode 0600 ──► listen ──► one task for each client: line in, line out ──► removed
//! ```
//!
//! Invariants: between bind and listen nobody can connect, so nobody does before the mode is set;
//! only a node that holds the lock on the data opens the socket, so one that is there already is
//! left over from a crash; whatever a client sends, what it makes the node keep has a bound.

pub(crate) mod wire;

use std::io;
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use throng::{ProcessInfo, RuntimeHandle};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{UnixListener, UnixSocket, UnixStream};
use tokio::sync::Semaphore;
use tokio::task::AbortHandle;
use tokio::time::timeout;

use wire::{Answer, LineError, PidList, Refusal, RefusalKind, Request};

/// The socket's name in the data directory.
pub(crate) const SOCKET_FILE: &str = "admin.sock";

/// An open admin socket; closed and removed when dropped.
#[derive(Debug)]
pub(crate) struct AdminSocket {
    path: PathBuf,
    acceptor: AbortHandle,
}

impl AdminSocket {
    /// Opens the socket at `path`. The caller has the lock on the data that it belongs to.
    ///
    /// # Errors
    /// What the system says: the path may be too long for a socket, or something else be there.
    ///
    /// # Panics
    /// Outside a tokio runtime.
    pub(crate) fn open(path: PathBuf, runtime: RuntimeHandle) -> io::Result<AdminSocket> {
        remove_leftover(&path)?;
        let socket = UnixSocket::new_stream()?;
        socket.bind(&path)?;
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600))?;
        let listener = socket.listen(BACKLOG)?;
        let acceptor = tokio::spawn(accept(listener, runtime)).abort_handle();
        Ok(AdminSocket { path, acceptor })
    }
}

impl Drop for AdminSocket {
    fn drop(&mut self) {
        self.acceptor.abort();
        // One that stays is removed by the next start.
        let _ = std::fs::remove_file(&self.path);
    }
}

/// Removes the socket of a node that ended without doing so; nothing but a socket.
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

async fn accept(listener: UnixListener, runtime: RuntimeHandle) {
    // Clients are dropped with this task: nobody is answered once the node has closed the socket.
    let mut clients = tokio::task::JoinSet::new();
    let permits = Arc::new(Semaphore::new(CLIENTS_MAX));
    loop {
        while clients.try_join_next().is_some() {}
        match listener.accept().await {
            Ok((stream, _)) => {
                let permit = permits.clone().try_acquire_owned();
                let runtime = runtime.clone();
                clients.spawn(async move {
                    // What goes wrong with a client is the client's affair.
                    let _ = match permit {
                        Ok(_permit) => serve(stream, &runtime).await,
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

async fn serve(stream: UnixStream, runtime: &RuntimeHandle) -> io::Result<()> {
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
            answer(&line, runtime).await
        };
        send(stream.get_mut(), &answer).await?;
        if !line.ends_with(b"\n") {
            // Too long or cut off: where the next line would begin is not known.
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

async fn answer(line: &[u8], runtime: &RuntimeHandle) -> Answer {
    match wire::read(line) {
        Ok(request) => inspect(request, runtime).await,
        Err(error) => {
            let kind = match error {
                LineError::Malformed(_) => RefusalKind::Malformed,
                LineError::Version(_) => RefusalKind::Version,
            };
            Answer::Error(Refusal { kind, detail: error.to_string() })
        }
    }
}

async fn inspect(request: Request, runtime: &RuntimeHandle) -> Answer {
    match request {
        Request::Metrics => Answer::Metrics(runtime.metrics().into()),
        Request::Top { by, limit } => {
            let processes = runtime.top(limit.min(PROCESSES_MAX), by.into()).await;
            Answer::Top(processes.into_iter().map(Into::into).collect())
        }
        Request::List { limit } => {
            let mut list = runtime.list();
            let pids = list.by_ref().take(limit.min(PROCESSES_MAX)).map(|pid| pid.to_string());
            let pids = pids.collect();
            Answer::List(PidList { pids, more: list.next().is_some() })
        }
        Request::Info { pid } => match find(runtime, &pid).await {
            Some(info) => Answer::Info(info.into()),
            None => {
                let detail = format!("there is no live process with the pid {pid:?}");
                Answer::Error(Refusal { kind: RefusalKind::NoProcess, detail })
            }
        },
        Request::Tree { limit } => {
            let branches = runtime.tree(limit.min(PROCESSES_MAX)).await;
            Answer::Tree(branches.into_iter().map(Into::into).collect())
        }
    }
}

async fn find(runtime: &RuntimeHandle, pid: &str) -> Option<ProcessInfo> {
    runtime.info(runtime.find(pid)?).await
}

/// Connections that wait to be accepted.
const BACKLOG: u32 = 16;

/// Clients answered at once; one more is told so.
const CLIENTS_MAX: usize = 16;

/// Processes in one answer; more are not given, whatever is asked for.
const PROCESSES_MAX: usize = 100_000;

/// Bytes of a question.
const LINE_BYTES_MAX: u64 = 4096;

/// How long a client may say nothing, or not take its answer.
const IDLE_MAX: Duration = Duration::from_secs(60);

/// The pause after the system could not accept, lest the acceptor spin.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);
