//! `spawn` with actix: an actor stops when its last address is dropped.

use std::io;

use actix::{Actor, Addr, Context, Handler, Message};

use super::{SpawnSteps, State, measure};
use crate::outcome::Outcome;
use crate::runtimes;
use crate::settings::Settings;

pub(super) fn run(settings: &Settings) -> io::Result<Outcome> {
    runtimes::actix::drive(settings, |settings| measure(Actix, settings))
}

struct Actix;

impl Actor for State {
    type Context = Context<Self>;
}

#[derive(Message)]
#[rtype(result = "()")]
struct Count;

impl Handler<Count> for State {
    type Result = ();

    fn handle(&mut self, _: Count, _: &mut Context<Self>) {
        self.count();
    }
}

impl SpawnSteps for Actix {
    type Address = Addr<State>;

    async fn spawn(&self, state: State) -> Self::Address {
        state.start()
    }

    fn count(&self, process: &Self::Address) {
        process.do_send(Count);
    }

    fn stop(&self, process: Self::Address) {
        drop(process);
    }
}
