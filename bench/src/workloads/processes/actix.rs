//! `processes` with actix: an actor that stops itself.

use std::io;

use actix::{Actor, ActorContext, Addr, Context, Handler, Message};

use super::{Maximum, ProcessesSteps, Waiting, measure};
use crate::outcome::Outcome;
use crate::runtimes;
use crate::settings::Settings;

pub(super) fn run(settings: &Settings) -> io::Result<Outcome> {
    runtimes::actix::drive(settings, |settings| measure(Actix(Maximum::of(&settings)), settings))
}

struct Actix(Maximum);

impl Actor for Waiting {
    type Context = Context<Self>;
}

#[derive(Message)]
#[rtype(result = "()")]
struct Die;

impl Handler<Die> for Waiting {
    type Result = ();

    fn handle(&mut self, _: Die, cx: &mut Context<Self>) {
        cx.stop();
    }
}

impl ProcessesSteps for Actix {
    type Address = Addr<Waiting>;

    fn spawn(&self, living: u64) -> io::Result<Self::Address> {
        self.0.allow(living)?;
        Ok(Waiting.start())
    }

    fn die(&self, process: &Self::Address) {
        process.do_send(Die);
    }
}
