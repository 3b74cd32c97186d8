//! `churn` with actix: the actor stops when its only address is dropped.

use std::io;

use actix::{Actor, Context, Handler, Message};

use super::{Cycle, State, measure};
use crate::outcome::Outcome;
use crate::runtimes;
use crate::settings::Settings;

pub(super) fn run(settings: &Settings) -> io::Result<Outcome> {
    runtimes::actix::drive(measure(Actix, settings.clone()))
}

struct Actix;

impl Actor for State {
    type Context = Context<Self>;
}

#[derive(Message)]
#[rtype(result = "u64")]
struct Request(u64);

impl Handler<Request> for State {
    type Result = u64;

    fn handle(&mut self, Request(value): Request, _: &mut Context<Self>) -> u64 {
        self.reply(value)
    }
}

impl Cycle for Actix {
    async fn cycle(&self, state: State, value: u64) -> Option<u64> {
        state.start().send(Request(value)).await.ok()
    }
}
