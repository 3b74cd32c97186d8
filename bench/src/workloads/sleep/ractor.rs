//! `sleep` with ractor: an actor that sends itself a delayed message, the nearest equivalent of a
//! receive with a time-out; the delayed message takes a second task per actor.

use std::io;

use ractor::{Actor, ActorProcessingErr, ActorRef};

use super::{SleepSteps, State, measure, receive_timeout};
use crate::outcome::Outcome;
use crate::runtimes;
use crate::settings::Settings;

pub(super) fn run(settings: &Settings) -> io::Result<Outcome> {
    runtimes::ractor::drive(settings, |settings| measure(Ractor, settings))
}

struct Ractor;

struct Sleeper;

struct TimeOut;

impl Actor for Sleeper {
    type Msg = TimeOut;
    type State = State;
    type Arguments = State;

    async fn pre_start(
        &self,
        myself: ActorRef<TimeOut>,
        state: State,
    ) -> Result<State, ActorProcessingErr> {
        myself.send_after(receive_timeout(), || TimeOut);
        Ok(state)
    }

    async fn handle(
        &self,
        myself: ActorRef<TimeOut>,
        _: TimeOut,
        state: &mut State,
    ) -> Result<(), ActorProcessingErr> {
        state.time_out();
        myself.stop(None);
        Ok(())
    }
}

impl SleepSteps for Ractor {
    type Kept = Vec<ActorRef<TimeOut>>;

    async fn start(self, states: impl Iterator<Item = State> + Send) -> Self::Kept {
        let mut addresses = Vec::new();
        for state in states {
            addresses.push(runtimes::ractor::start(Sleeper, state).await);
        }
        addresses
    }
}
