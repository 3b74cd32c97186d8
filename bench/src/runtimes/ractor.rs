//! ractor on tokio as `#[tokio::main]` starts it, with the number of workers set.

use std::io;

use ractor::rpc::CallResult;
use ractor::{Actor, ActorProcessingErr, ActorRef, RpcReplyPort};

use super::{AnyWork, Measured, Work};
use crate::outcome::Outcome;
use crate::settings::Settings;

/// Starts the runtime and runs the workload as the handler of an actor.
///
/// # Errors
/// If the threads cannot be started, the driver dies, or the workload fails.
pub(crate) fn drive<F: Work>(settings: &Settings, work: impl FnOnce(Settings) -> F) -> Measured {
    let workload = Box::pin(work(settings.clone()));
    super::tokio::runtime(settings)?.block_on(async {
        let driver = start(Driver, ()).await;
        match driver.call(|done| Drive { workload, done }, None).await {
            Ok(CallResult::Success(outcome)) => outcome,
            Ok(_) => Err(io::Error::other("the driver died")),
            Err(error) => Err(io::Error::other(error.to_string())),
        }
    })
}

/// Runs a future in the handler of an actor of its own.
pub(crate) async fn run(work: impl Future<Output = ()> + Send + 'static) {
    let workload = Box::pin(async {
        work.await;
        Ok(Outcome::default())
    });
    let (done, _) = ractor::concurrency::oneshot();
    // A future that does not run is missing in the counts that the workload checks.
    let _ = start(Driver, ()).await.send_message(Drive { workload, done: done.into() });
}

/// Starts an actor without a name or a supervisor.
///
/// # Panics
/// If the actor's start fails; no actor of the benchmarks fails to start.
pub(crate) async fn start<A: Actor>(actor: A, arguments: A::Arguments) -> ActorRef<A::Msg> {
    match Actor::spawn(None, actor, arguments).await {
        Ok((address, _)) => address,
        Err(error) => panic!("an actor without a name does not fail to start: {error}"),
    }
}

struct Driver;

struct Drive {
    workload: AnyWork,
    done: RpcReplyPort<Measured>,
}

impl Actor for Driver {
    type Msg = Drive;
    type State = ();
    type Arguments = ();

    async fn pre_start(&self, _: ActorRef<Drive>, (): ()) -> Result<(), ActorProcessingErr> {
        Ok(())
    }

    async fn handle(
        &self,
        _: ActorRef<Drive>,
        Drive { workload, done }: Drive,
        (): &mut (),
    ) -> Result<(), ActorProcessingErr> {
        // The send fails only if `drive` no longer waits, at the end of the program.
        let _ = done.send(workload.await);
        Ok(())
    }
}
