//! actix with its one arbiter: an actor lives on the thread of the arbiter that started it, and
//! `System` has one.

use std::io;
use std::pin::Pin;

use actix::{Actor, Context, Handler, Message, ResponseFuture, System};

use crate::outcome::Outcome;
use crate::peer::{Peer, Threads};
use crate::settings::Settings;

/// The actix peer that runs like this.
pub(crate) const fn peer(run: fn(&Settings) -> io::Result<Outcome>) -> Peer {
    Peer::here("actix", env!("VERSION_ACTIX"), Threads::One, run)
}

/// Starts the system and runs the workload as the handler of an actor.
///
/// # Errors
/// What the workload says.
pub(crate) fn drive<W, F>(settings: &Settings, workload: W) -> io::Result<Outcome>
where
    W: FnOnce(Settings) -> F,
    F: Future<Output = io::Result<Outcome>> + Send + 'static,
{
    let work = Drive(Box::pin(workload(settings.clone())));
    System::new().block_on(async { Driver.start().send(work).await.map_err(io::Error::other)? })
}

struct Driver;

impl Actor for Driver {
    type Context = Context<Self>;
}

#[derive(Message)]
#[rtype(result = "io::Result<Outcome>")]
struct Drive(Pin<Box<dyn Future<Output = io::Result<Outcome>> + Send>>);

impl Handler<Drive> for Driver {
    type Result = ResponseFuture<io::Result<Outcome>>;

    fn handle(&mut self, Drive(workload): Drive, _: &mut Context<Self>) -> Self::Result {
        workload
    }
}
