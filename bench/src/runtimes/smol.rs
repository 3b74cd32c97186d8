//! smol's `Executor`, run by as many threads as there are workers, as its documentation shows; a process is a
//! task with an unbounded channel.
//!
//! The thread that waits for the driver also runs tokio's timers, which limit the driver's waits. The
//! executor's threads enter that tokio runtime, as the package `async-compat` does it; no process uses it.

use std::convert::Infallible;
use std::thread;

use smol::channel::unbounded;
use smol::{Executor, Task, block_on};
use tokio::runtime::Builder;

use super::{AnyWork, Measured, Work};
use crate::settings::Settings;

static EXECUTOR: Executor<'static> = Executor::new();

/// Starts a task.
pub(crate) fn spawn<T: Send + 'static>(
    future: impl Future<Output = T> + Send + 'static,
) -> Task<T> {
    EXECUTOR.spawn(future)
}

/// Starts the threads and runs the workload in a task.
///
/// # Errors
/// If a thread cannot be started, or the workload fails.
pub(crate) fn drive<F: Work>(settings: &Settings, work: impl FnOnce(Settings) -> F) -> Measured {
    let timers = Builder::new_current_thread().enable_time().build()?;
    let (stop, stopped) = unbounded::<Infallible>();
    thread::scope(|scope| {
        for _ in 0..settings.workers {
            thread::Builder::new().spawn_scoped(scope, || {
                let _entered = timers.enter();
                // The threads end when `stop` is dropped.
                block_on(EXECUTOR.run(stopped.recv()))
            })?;
        }
        let work: AnyWork = Box::pin(work(settings.clone()));
        let measured = timers.block_on(spawn(work));
        drop(stop);
        measured
    })
}
