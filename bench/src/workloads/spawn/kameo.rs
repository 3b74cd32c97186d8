//! `spawn` with kameo: an actor stops when its last address is dropped.

use std::convert::Infallible;
use std::io;

use kameo::Actor;
use kameo::actor::ActorRef;
use kameo::message::{Context, Message};

use super::{SpawnSteps, State, measure};
use crate::outcome::Outcome;
use crate::runtimes;
use crate::settings::Settings;

pub(super) fn run(settings: &Settings) -> io::Result<Outcome> {
    runtimes::kameo::drive(settings, |settings| measure(Kameo, settings))
}

struct Kameo;

impl Actor for State {
    type Args = Self;
    type Error = Infallible;

    async fn on_start(state: Self, _: ActorRef<Self>) -> Result<Self, Infallible> {
        Ok(state)
    }
}

struct Count;

impl Message<Count> for State {
    type Reply = ();

    async fn handle(&mut self, _: Count, _: &mut Context<Self, ()>) {
        self.count();
    }
}

impl SpawnSteps for Kameo {
    type Address = ActorRef<State>;

    async fn spawn(&self, state: State) -> Self::Address {
        runtimes::kameo::start(state)
    }

    fn count(&self, process: &Self::Address) {
        // A message without a receiver is missing in the count.
        let _ = process.tell(Count).try_send();
    }

    fn stop(&self, process: Self::Address) {
        drop(process);
    }
}
