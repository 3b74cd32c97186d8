//! A server for the time of a run: a child of this program, reached by a socket of Unix.
//!
//! The signals are those that PostgreSQL and Redis have in common: at a termination PostgreSQL awaits the end of its
//! connections, at an interrupt it ends them. A server is awaited, so that its processor time counts as this program's.

use std::path::Path;
use std::process::{Child, Command};
use std::thread::sleep;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

use bench_steps::Error;

/// Time after which a server counts as one that does not start or end.
const PATIENCE: Duration = Duration::from_secs(60);

pub(crate) struct Server {
    name: String,
    child: Child,
    /// The directory of the socket, whose path has to be short.
    socket: TempDir,
}

impl Server {
    /// Starts a server with its socket in a directory, and waits until it is ready.
    pub(crate) fn start(
        command: &mut Command,
        socket: TempDir,
        is_ready: impl Fn() -> bool,
    ) -> Result<Server, Error> {
        let name = command.get_program().to_string_lossy().into_owned();
        let child =
            command.spawn().map_err(|error| format!("{name} cannot be started: {error}"))?;
        let mut server = Server { name, child, socket };
        let begun = Instant::now();
        while !is_ready() {
            if begun.elapsed() > PATIENCE || server.child.try_wait()?.is_some() {
                return Err(format!("{} does not start", server.name).into());
            }
            sleep(Duration::from_millis(20));
        }
        Ok(server)
    }

    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    pub(crate) fn socket(&self) -> &Path {
        self.socket.path()
    }

    /// Ends a server whose clients have gone, or are about to.
    pub(crate) fn stop(mut self) -> Result<(), Error> {
        self.end(Signal::TERM)
    }

    fn end(&mut self, signal: Signal) -> Result<(), Error> {
        let (begun, mut signal) = (Instant::now(), Some(signal));
        while self.child.try_wait()?.is_none() {
            if let Some(signal) = signal.take() {
                kill_process(Pid::from_child(&self.child), signal)?;
            }
            if begun.elapsed() > PATIENCE {
                return Err(format!("{} does not end", self.name).into());
            }
            sleep(Duration::from_millis(5));
        }
        Ok(())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // After an error clients may stay, and nobody needs the data.
        let _ = self.end(Signal::INT);
    }
}
