//! tokio as `#[tokio::main]` starts it, with the number of workers set; a process is a task with
//! an unbounded channel.

use std::io;

use tokio::runtime::{Builder, Runtime};

use super::{Measured, Work};
use crate::peer::{Peer, Threads};
use crate::settings::Settings;

/// The tokio peer that runs like this.
pub(crate) const fn peer(run: fn(&Settings) -> Measured) -> Peer {
    Peer::here("tokio", env!("VERSION_TOKIO"), Threads::Workers, run)
}

/// Starts the runtime and runs the workload in a task of it, since a task spawns and wakes others
/// more cheaply than `block_on` does, which is on a thread outside the workers.
///
/// # Errors
/// When the threads cannot be started, or what the workload says.
pub(crate) fn drive<F: Work>(settings: &Settings, work: impl FnOnce(Settings) -> F) -> Measured {
    let work = work(settings.clone());
    runtime(settings)?.block_on(async { tokio::spawn(work).await.map_err(io::Error::other)? })
}

/// The runtime itself, for those that are built on it too.
pub(super) fn runtime(settings: &Settings) -> io::Result<Runtime> {
    Builder::new_multi_thread().worker_threads(settings.workers).enable_all().build()
}
