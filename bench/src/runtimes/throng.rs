//! throng as its builder starts it by default, with the number of workers and the process limit
//! set.

pub(crate) mod feature;

use std::io;
use std::pin::Pin;
use std::time::Duration;

use throng::{Address, CallError, Context, Handle, Message, Process, Runtime, RuntimeHandle};

use super::{Measured, Work};
use crate::peer::{Peer, Threads};
use crate::settings::Settings;

/// Deadline of the call that runs the workload; no workload reaches it.
const DEADLINE: Duration = Duration::from_secs(3600);

/// Creates the throng peer of a workload.
pub(crate) const fn peer(run: fn(&Settings) -> Measured) -> Peer {
    Peer::here("throng", env!("VERSION_THRONG"), Threads::Workers, run)
}

/// Starts the runtime, with room for `processes` processes besides the driver, and runs the workload
/// as the handler of a process.
///
/// # Errors
/// If the runtime cannot be started, the driver dies, or the workload fails.
pub(crate) fn drive<F: Work>(
    settings: &Settings,
    processes: u64,
    workload: impl FnOnce(RuntimeHandle, Settings) -> F,
) -> Measured {
    let runtime = Runtime::builder()
        .workers(settings.workers)
        .process_limit(processes + 1)
        .start()
        .map_err(io::Error::other)?;
    let work = Drive(Box::pin(workload(runtime.handle().clone(), settings.clone())));
    runtime.block_on(async |handle| match start(handle, Driver).call(work).within(DEADLINE).await {
        Ok(outcome) => outcome,
        Err(CallError::Died(reason)) => {
            Err(io::Error::other(format!("the driver died: {reason:?}")))
        }
        Err(error) => Err(io::Error::other(error.to_string())),
    })
}

/// Starts a process, which the process limit given to [`drive`] must include.
///
/// # Panics
/// If the process limit is reached.
pub(crate) fn start<P: Process>(runtime: &RuntimeHandle, process: P) -> Address<P> {
    match runtime.spawn(process) {
        Ok(address) => address,
        Err(error) => panic!("the process limit leaves room for every process: {error}"),
    }
}

struct Driver;

impl Process for Driver {}

struct Drive(Pin<Box<dyn Work>>);

impl Message for Drive {
    type Reply = Measured;
}

impl Handle<Drive> for Driver {
    async fn handle(&mut self, Drive(work): Drive, _: &mut Context<Self>) -> Measured {
        work.await
    }
}
