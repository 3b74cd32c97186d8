//! `spawn` with ractor: an actor is stopped by a request.

use std::io;

use ractor::{Actor, ActorProcessingErr, ActorRef};

use super::{SpawnSteps, State, measure};
use crate::outcome::Outcome;
use crate::runtimes;
use crate::settings::Settings;

pub(super) fn run(settings: &Settings) -> io::Result<Outcome> {
    runtimes::ractor::drive(settings, |settings| measure(Ractor, settings))
}

struct Ractor;

struct Counter;

struct Count;

impl Actor for Counter {
    type Msg = Count;
    type State = State;
    type Arguments = State;

    async fn pre_start(
        &self,
        _: ActorRef<Count>,
        state: State,
    ) -> Result<State, ActorProcessingErr> {
        Ok(state)
    }

    async fn handle(
        &self,
        _: ActorRef<Count>,
        _: Count,
        state: &mut State,
    ) -> Result<(), ActorProcessingErr> {
        state.count();
        Ok(())
    }
}

impl SpawnSteps for Ractor {
    type Address = ActorRef<Count>;

    async fn spawn(&self, state: State) -> Self::Address {
        runtimes::ractor::start(Counter, state).await
    }

    fn count(&self, process: &Self::Address) {
        // A message without a receiver is missing in the count.
        let _ = process.send_message(Count);
    }

    fn stop(&self, process: Self::Address) {
        process.stop(None);
    }
}
