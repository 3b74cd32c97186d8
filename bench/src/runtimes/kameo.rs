//! kameo on tokio as `#[tokio::main]` starts it, with the number of workers set. Every mailbox is
//! unbounded; kameo's default is a bound of 64 messages.

use std::convert::Infallible;
use std::io;

use kameo::actor::Spawn;
use kameo::mailbox;
use kameo::message::{Context, Message};
use kameo::{Actor, actor::ActorRef};

use super::{AnyWork, Measured, Work};
use crate::outcome::Outcome;
use crate::settings::Settings;

/// Starts the runtime and runs the workload as the handler of an actor.
///
/// # Errors
/// If the threads cannot be started, the driver dies, or the workload fails.
pub(crate) fn drive<F: Work>(settings: &Settings, work: impl FnOnce(Settings) -> F) -> Measured {
    let work = Drive(Box::pin(work(settings.clone())));
    super::tokio::runtime(settings)?.block_on(async {
        let driven = start(Driver).ask(work).await;
        driven.map_err(|error| io::Error::other(error.to_string()))
    })
}

/// Runs a future in the handler of an actor of its own.
pub(crate) fn run(work: impl Future<Output = ()> + Send + 'static) {
    let work = Drive(Box::pin(async {
        work.await;
        Ok(Outcome::default())
    }));
    // A future that does not run is missing in the counts that the workload checks.
    let _ = start(Driver).tell(work).try_send();
}

/// Starts an actor with an unbounded mailbox.
pub(crate) fn start<A: Actor<Args = A>>(actor: A) -> ActorRef<A> {
    A::spawn_with_mailbox(actor, mailbox::unbounded())
}

struct Driver;

impl Actor for Driver {
    type Args = Self;
    type Error = Infallible;

    async fn on_start(driver: Self, _: ActorRef<Self>) -> Result<Self, Infallible> {
        Ok(driver)
    }
}

struct Drive(AnyWork);

impl Message<Drive> for Driver {
    type Reply = Measured;

    async fn handle(
        &mut self,
        Drive(workload): Drive,
        _: &mut Context<Self, Self::Reply>,
    ) -> Self::Reply {
        workload.await
    }
}
