//! Threads of the operating system, as `std::thread::spawn` starts them by default; a process is a thread with
//! an unbounded channel of `std::sync::mpsc`. The system schedules the threads on all cores.
//!
//! The driver is the first thread of the program, and blocks in its calls as every thread does. It awaits
//! counts in `block_on` of a tokio runtime, whose timers limit these waits. Other threads use this runtime
//! only where the workload has them await something.

use std::io;
use std::thread;

use tokio::runtime::{Builder, Handle};

use super::{AnyWork, Measured, Work};
use crate::settings::Settings;

/// Runs the workload on the calling thread.
///
/// # Errors
/// If the runtime of the driver's timers cannot be started, or the workload fails.
pub(crate) fn drive<F: Work>(
    settings: &Settings,
    work: impl FnOnce(Handle, Settings) -> F,
) -> Measured {
    let timers = Builder::new_current_thread().enable_time().build()?;
    let work: AnyWork = Box::pin(work(timers.handle().clone(), settings.clone()));
    timers.block_on(work)
}

/// Starts a thread without the panic of `std::thread::spawn`.
///
/// # Errors
/// If the system refuses another thread.
pub(crate) fn try_spawn(work: impl FnOnce() + Send + 'static) -> io::Result<()> {
    thread::Builder::new().spawn(work).map(drop)
}
