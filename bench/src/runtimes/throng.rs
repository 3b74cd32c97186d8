//! throng as its builder starts it by default, with the number of workers and the process limit
//! set.

pub(crate) mod feature;

use std::io;
use std::pin::Pin;
use std::time::Duration;

use throng::{
    Address, CallError, Context, Handle, Message, Process, Runtime, RuntimeBuilder, RuntimeHandle,
};

use super::{AnyWork, Measured, Work};
use crate::settings::Settings;

/// Deadline of the call that runs the workload; no workload reaches it.
const DEADLINE: Duration = Duration::from_secs(3600);

/// Number of places below a large process limit that 256 threads may keep: each worker, each spare
/// worker for a blocked one, and each thread outside that calls keeps up to 128.
const RESERVED: u64 = 256 * 128;

/// Limits below this are exact: no thread keeps a place for itself.
const RESERVING: u64 = 65_536;

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
    drive_on(builder(settings, processes + 1), settings, workload)
}

/// The same as [`drive`] with a limit of processes that is to be reached: beside the driver, at most
/// `limit` processes can live, or a few more if the limit is large.
///
/// # Errors
/// The same.
pub(crate) fn drive_limited<F: Work>(
    settings: &Settings,
    limit: u64,
    workload: impl FnOnce(RuntimeHandle, Settings) -> F,
) -> Measured {
    let limited = if limit < RESERVING {
        Runtime::builder().workers(settings.workers).process_limit(limit + 1)
    } else {
        builder(settings, limit + 1)
    };
    drive_on(limited, settings, workload)
}

fn drive_on<F: Work>(
    builder: RuntimeBuilder,
    settings: &Settings,
    workload: impl FnOnce(RuntimeHandle, Settings) -> F,
) -> Measured {
    let runtime = builder.start().map_err(io::Error::other)?;
    let work: AnyWork = Box::pin(workload(runtime.handle().clone(), settings.clone()));
    drive_alone(runtime, work)
}

fn drive_alone(runtime: Runtime, work: AnyWork) -> Measured {
    let work = Drive(work);
    runtime.block_on(async |handle| match start(handle, Driver).call(work).within(DEADLINE).await {
        Ok(outcome) => outcome,
        Err(CallError::Died(reason)) => {
            Err(io::Error::other(format!("the driver died: {reason:?}")))
        }
        Err(error) => Err(io::Error::other(error.to_string())),
    })
}

/// Runs the workload outside of the runtime's workers: as the future of `block_on` on a tokio runtime
/// with as many threads as the settings have workers, to which the runtime is attached.
///
/// # Errors
/// If either runtime cannot be started, a process does not end, or the workload fails.
pub(crate) fn drive_outside<F: Work>(
    settings: &Settings,
    processes: u64,
    workload: impl FnOnce(RuntimeHandle, Settings) -> F,
) -> Measured {
    let tokio = super::tokio::runtime(settings)?;
    let runtime = {
        let _entered = tokio.enter();
        builder(settings, processes).attach().map_err(io::Error::other)?
    };
    let work: AnyWork = Box::pin(workload(runtime.handle().clone(), settings.clone()));
    tokio.block_on(drive_attached(runtime, work))
}

async fn drive_attached(runtime: Runtime, work: AnyWork) -> Measured {
    let mut outcome = work.await?;
    let shutdown = runtime.shutdown_async(DEADLINE).await;
    outcome.check("processes that did not end", shutdown.abandoned, 0);
    Ok(outcome)
}

/// Runs a future in a process of its own, which the process limit given to [`drive`] must include.
///
/// # Panics
/// If the process limit is reached.
pub(crate) fn run(runtime: &RuntimeHandle, work: impl Future<Output = ()> + Send + 'static) {
    // A future that does not run is missing in the counts that the workload checks.
    let work: Pin<Box<dyn Future<Output = ()> + Send>> = Box::pin(work);
    let _ = start(runtime, Driver).send(Drive(work));
}

fn builder(settings: &Settings, processes: u64) -> RuntimeBuilder {
    Runtime::builder().workers(settings.workers).process_limit(processes + RESERVED)
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

struct Drive<F>(F);

impl<F: Future<Output: Send> + Send + 'static> Message for Drive<F> {
    type Reply = F::Output;
}

impl<F: Future<Output: Send> + Send + 'static> Handle<Drive<F>> for Driver {
    async fn handle(&mut self, Drive(work): Drive<F>, _: &mut Context<Self>) -> F::Output {
        work.await
    }
}
