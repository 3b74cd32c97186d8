//! `churn` with ractor: the actor is told to stop once it has replied.

use std::io;

use ractor::{Actor, ActorProcessingErr, ActorRef, RpcReplyPort};

use super::{Cycle, State, measure};
use crate::outcome::Outcome;
use crate::runtimes;
use crate::settings::Settings;

pub(super) fn run(settings: &Settings) -> io::Result<Outcome> {
    runtimes::ractor::drive(settings, measure(Ractor, settings.clone()))
}

struct Ractor;

struct Guest;

struct Request {
    value: u64,
    reply: RpcReplyPort<u64>,
}

impl Actor for Guest {
    type Msg = Request;
    type State = State;
    type Arguments = State;

    async fn pre_start(
        &self,
        _: ActorRef<Request>,
        state: State,
    ) -> Result<State, ActorProcessingErr> {
        Ok(state)
    }

    async fn handle(
        &self,
        _: ActorRef<Request>,
        request: Request,
        state: &mut State,
    ) -> Result<(), ActorProcessingErr> {
        // A caller that no longer waits misses its own reply.
        let _ = request.reply.send(state.reply(request.value));
        Ok(())
    }
}

impl Cycle for Ractor {
    async fn cycle(&self, state: State, value: u64) -> Option<u64> {
        let guest = runtimes::ractor::start(Guest, state).await;
        let called = guest.call(|reply| Request { value, reply }, None).await;
        guest.stop(None);
        called.ok()?.success_or(()).ok()
    }
}
