//! tokio as `#[tokio::main]` starts it, with the number of workers set; a process is a task with
//! an unbounded channel.

use std::io;

use tokio::runtime::{Builder, Runtime};

use super::{Measured, Work};
use crate::peer::{Peer, Threads};
use crate::settings::Settings;

/// Creates the tokio peer of a workload.
pub(crate) const fn peer(run: fn(&Settings) -> Measured) -> Peer {
    Peer::here("tokio", env!("VERSION_TOKIO"), Threads::Workers, run)
}

/// Starts the runtime and runs the workload in a task. A task spawns and wakes other tasks more
/// cheaply than the future of `block_on`, whose thread is not a worker.
///
/// # Errors
/// If the threads cannot be started, the task panics, or the workload fails.
pub(crate) fn drive<F: Work>(settings: &Settings, work: impl FnOnce(Settings) -> F) -> Measured {
    let work = work(settings.clone());
    runtime(settings)?.block_on(async { tokio::spawn(work).await.map_err(io::Error::other)? })
}

/// Starts a tokio runtime; also for the runtimes built on tokio.
pub(super) fn runtime(settings: &Settings) -> io::Result<Runtime> {
    Builder::new_multi_thread().worker_threads(settings.workers).enable_all().build()
}
