//! `spawn` with throng: the state is the process.

use std::io;

use throng::{Address, Context, Handle, Message, Process, RuntimeHandle};

use super::{SpawnSteps, State, measure};
use crate::outcome::Outcome;
use crate::runtimes;
use crate::settings::Settings;

pub(super) fn run(settings: &Settings) -> io::Result<Outcome> {
    runtimes::throng::drive(settings, settings.count, |runtime, settings| {
        measure(Throng { runtime }, settings)
    })
}

struct Throng {
    runtime: RuntimeHandle,
}

impl Process for State {}

struct Count;

impl Message for Count {
    type Reply = ();
}

impl Handle<Count> for State {
    async fn handle(&mut self, _: Count, _: &mut Context<Self>) {
        self.count();
    }
}

impl SpawnSteps for Throng {
    type Address = Address<State>;

    async fn spawn(&self, state: State) -> Self::Address {
        runtimes::throng::start(&self.runtime, state)
    }

    fn count(&self, process: &Self::Address) {
        // A message without a receiver is missing in the count.
        let _ = process.send(Count);
    }

    fn stop(&self, process: Self::Address) {
        process.stop();
    }
}
