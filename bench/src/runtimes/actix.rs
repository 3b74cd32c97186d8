//! actix with a single arbiter: an actor stays on the thread of the arbiter that started it, and
//! `System` has a single arbiter. The variant `actix-arbiters` has as many arbiters as workers, and
//! spreads the actors among them.

use std::io;
use std::sync::Arc;

use actix::{
    Actor, Addr, Arbiter, ArbiterHandle, Context, Handler, Message, ResponseFuture, System,
};

use super::{AnyWork, Measured, Work};
use crate::outcome::Outcome;
use crate::settings::Settings;

/// The arbiters among which a workload spreads its actors; by default none.
#[derive(Clone, Default)]
pub(crate) struct Arbiters(Arc<[ArbiterHandle]>);

impl Arbiters {
    /// Starts an actor on the arbiter with an index modulo their number, or on the thread of the
    /// caller if there are no arbiters.
    pub(crate) fn start<A>(&self, index: usize, actor: A) -> Addr<A>
    where
        A: Actor<Context = Context<A>> + Send,
    {
        match index.checked_rem(self.0.len()) {
            Some(index) => A::start_in_arbiter(&self.0[index], |_| actor),
            None => actor.start(),
        }
    }

    /// The index of the arbiter for a part, so that parts that follow each other share an arbiter.
    pub(crate) fn index_of(&self, part: usize, parts: u64) -> usize {
        (part as u64 * self.0.len() as u64 / parts) as usize
    }
}

/// Starts the system and runs the workload as the handler of an actor.
///
/// # Errors
/// If the driver dies or the workload fails.
pub(crate) fn drive<F: Work>(settings: &Settings, work: impl FnOnce(Settings) -> F) -> Measured {
    let work = Drive(Box::pin(work(settings.clone())));
    System::new().block_on(async { Driver.start().send(work).await.map_err(io::Error::other)? })
}

/// The same as [`drive`], with as many arbiters as workers, of which the system's is the first.
///
/// # Errors
/// If an arbiter's thread cannot be started, the driver dies, or the workload fails.
pub(crate) fn drive_on_arbiters<F: Work>(
    settings: &Settings,
    work: impl FnOnce(Arbiters, Settings) -> F,
) -> Measured {
    let settings = settings.clone();
    System::new().block_on(async {
        let mut arbiters = vec![Arbiter::current()];
        for _ in 1..settings.workers {
            arbiters.push(Arbiter::try_new()?.handle());
        }
        let work = Drive(Box::pin(work(Arbiters(arbiters.into()), settings)));
        Driver.start().send(work).await.map_err(io::Error::other)?
    })
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

/// Runs a future in the handler of an actor of its own, which is started as by [`Arbiters::start`].
pub(crate) fn run(
    arbiters: &Arbiters,
    index: usize,
    work: impl Future<Output = ()> + Send + 'static,
) {
    // A future that does not run is missing in the counts that the workload checks.
    arbiters.start(index, Driver).do_send(Drive(Box::pin(async {
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
struct Drive(AnyWork);

impl Handler<Drive> for Driver {
    type Result = ResponseFuture<Measured>;

    fn handle(&mut self, Drive(workload): Drive, _: &mut Context<Self>) -> Self::Result {
        workload
    }
}
