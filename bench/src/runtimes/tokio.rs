//! tokio as `#[tokio::main]` starts it, with the number of workers set; a process is a task with
//! an unbounded channel. The variant `tokio-current-thread` runs all tasks on the thread that
//! started it, as `#[tokio::main(flavor = "current_thread")]` does.

use std::io;

use tokio::runtime::{Builder, Runtime};

use super::{AnyWork, Measured, Work};
use crate::settings::Settings;

/// Starts the runtime and runs the workload in a task. A task spawns and wakes other tasks more
/// cheaply than the future of `block_on`, whose thread is not a worker.
///
/// # Errors
/// If the threads cannot be started, the task panics, or the workload fails.
pub(crate) fn drive<F: Work>(settings: &Settings, work: impl FnOnce(Settings) -> F) -> Measured {
    in_task(&runtime(settings)?, Box::pin(work(settings.clone())))
}

/// Starts the runtime and runs the workload outside of its workers: as the future of `block_on`.
///
/// # Errors
/// If the threads cannot be started, or the workload fails.
pub(crate) fn drive_outside<F: Work>(
    settings: &Settings,
    work: impl FnOnce(Settings) -> F,
) -> Measured {
    let work: AnyWork = Box::pin(work(settings.clone()));
    runtime(settings)?.block_on(work)
}

/// The same as [`drive`] on a runtime that has only the calling thread.
///
/// # Errors
/// If the runtime cannot be started, the task panics, or the workload fails.
pub(crate) fn drive_current_thread<F: Work>(
    settings: &Settings,
    work: impl FnOnce(Settings) -> F,
) -> Measured {
    in_task(&current_thread_runtime()?, Box::pin(work(settings.clone())))
}

/// The same as [`drive_outside`] on a runtime that has only the calling thread.
///
/// # Errors
/// If the runtime cannot be started, or the workload fails.
pub(crate) fn drive_current_thread_outside<F: Work>(
    settings: &Settings,
    work: impl FnOnce(Settings) -> F,
) -> Measured {
    let work: AnyWork = Box::pin(work(settings.clone()));
    current_thread_runtime()?.block_on(work)
}

fn in_task(runtime: &Runtime, work: AnyWork) -> Measured {
    runtime.block_on(async { tokio::spawn(work).await.map_err(io::Error::other)? })
}

fn current_thread_runtime() -> io::Result<Runtime> {
    Builder::new_current_thread().enable_all().build()
}

/// Starts a tokio runtime; also for the runtimes built on tokio.
pub(super) fn runtime(settings: &Settings) -> io::Result<Runtime> {
    Builder::new_multi_thread().worker_threads(settings.workers).enable_all().build()
}
