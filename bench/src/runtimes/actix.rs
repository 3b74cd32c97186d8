//! actix with a single arbiter: an actor stays on the thread of the arbiter that started it, and
//! `System` has a single arbiter.

use std::io;
use std::pin::Pin;

use actix::{Actor, Context, Handler, Message, ResponseFuture, System};

use super::{Measured, Work};
use crate::outcome::Outcome;
use crate::peer::{Peer, Threads};
use crate::settings::Settings;

/// Creates the actix peer of a workload.
pub(crate) const fn peer(run: fn(&Settings) -> Measured) -> Peer {
    Peer::here("actix", env!("VERSION_ACTIX"), Threads::One, run)
}

/// Starts the system and runs the workload as the handler of an actor.
///
/// # Errors
/// If the driver dies or the workload fails.
pub(crate) fn drive<F: Work>(settings: &Settings, work: impl FnOnce(Settings) -> F) -> Measured {
    let work = Drive(Box::pin(work(settings.clone())));
    System::new().block_on(async { Driver.start().send(work).await.map_err(io::Error::other)? })
}

/// Runs the workload outside of every actor: as the future of `block_on`.
///
/// # Errors
/// If the workload fails.
pub(crate) fn drive_outside<F: Work>(
    settings: &Settings,
    work: impl FnOnce(Settings) -> F,
) -> Measured {
    System::new().block_on(work(settings.clone()))
}

/// Runs a future in the handler of an actor of its own.
pub(crate) fn run(work: impl Future<Output = ()> + Send + 'static) {
    // A future that does not run is missing in the counts that the workload checks.
    Driver.start().do_send(Drive(Box::pin(async {
        work.await;
        Ok(Outcome::default())
    })));
}

struct Driver;

impl Actor for Driver {
    type Context = Context<Self>;
}

#[derive(Message)]
#[rtype(result = "Measured")]
struct Drive(Pin<Box<dyn Work>>);

impl Handler<Drive> for Driver {
    type Result = ResponseFuture<Measured>;

    fn handle(&mut self, Drive(workload): Drive, _: &mut Context<Self>) -> Self::Result {
        workload
    }
}
