//! `churn` with kameo: the actor stops when its only address is dropped.

use std::convert::Infallible;
use std::io;

use kameo::Actor;
use kameo::actor::ActorRef;
use kameo::message::{Context, Message};

use super::{Cycle, State, measure};
use crate::outcome::Outcome;
use crate::runtimes;
use crate::settings::Settings;

pub(super) fn run(settings: &Settings) -> io::Result<Outcome> {
    runtimes::kameo::drive(settings, measure(Kameo, settings.clone()))
}

struct Kameo;

impl Actor for State {
    type Args = Self;
    type Error = Infallible;

    async fn on_start(state: Self, _: ActorRef<Self>) -> Result<Self, Infallible> {
        Ok(state)
    }
}

struct Request(u64);

impl Message<Request> for State {
    type Reply = u64;

    async fn handle(&mut self, Request(value): Request, _: &mut Context<Self, u64>) -> u64 {
        self.reply(value)
    }
}

impl Cycle for Kameo {
    async fn cycle(&self, state: State, value: u64) -> Option<u64> {
        runtimes::kameo::start(state).ask(Request(value)).await.ok()
    }
}
