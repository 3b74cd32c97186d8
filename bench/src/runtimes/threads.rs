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
use crate::limits::{COUNT, Limit};
use crate::peer::{Class, Peer, Threads};
use crate::settings::Settings;

/// Creates the peer of a workload with threads.
pub(crate) const fn peer(run: fn(&Settings) -> Measured) -> Peer {
    let version = env!("VERSION_RUST");
    Peer::here("threads", version, Class::OsThread, Threads::Cores, run).limited(LIMITS)
}

const LIMITS: &[Limit] = &[
    Limit::of_threads(&["processes", "spawn", "sleep", "tasks", "skynet"], COUNT, 10_000),
    Limit::of_threads(&["send"], "senders", 10_000),
    Limit::of_threads(&["call"], "callees", 10_000),
    Limit::of_threads(&["calls"], "callers", 5000),
    Limit::of_threads(&["calls"], "callees", 5000),
    Limit::of_threads(&["pairs"], "pairs", 5000),
    Limit::of_threads(&["ring"], "processes", 10_000),
    Limit::of_threads(&["barber"], COUNT, 10_000),
    Limit::of_threads(&["chameneos"], "creatures", 10_000),
    Limit::of_threads(&["dictionary"], "clients", 10_000),
    Limit::of_threads(&["buffer"], "producers", 5000),
    Limit::of_threads(&["buffer"], "consumers", 5000),
    Limit::of_threads(&["philosophers"], "philosophers", 10_000),
    Limit::of_threads(&["smokers"], "smokers", 10_000),
    Limit::of_threads(&["banking"], "accounts", 10_000),
    Limit::of_threads(&["queens"], "solvers", 10_000),
    Limit::of_threads(&["big"], "actors", 10_000),
    Limit::of_time(&["fan", "burst"], "receivers", 1000),
    Limit::of_time(&["big"], COUNT, 10_000),
    Limit::of_time(&["fairness"], "flooders", 100),
    Limit::of_time(&["pairs", "fan"], COUNT, 1_000_000),
];

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
