//! `call` with kameo: `ask` without a timeout.

use std::convert::Infallible;
use std::io;

use kameo::Actor;
use kameo::actor::ActorRef;
use kameo::message::{Context, Message};

use super::{Callees, measure, reply};
use crate::outcome::Outcome;
use crate::runtimes;
use crate::settings::Settings;

pub(super) fn run(settings: &Settings) -> io::Result<Outcome> {
    let settings_inside = settings.clone();
    runtimes::kameo::drive(settings, async {
        let count = settings_inside.get("callees");
        let callees = (0..count).map(|_| runtimes::kameo::start(Callee)).collect();
        measure(Kameo { callees }, settings_inside).await
    })
}

struct Kameo {
    callees: Vec<ActorRef<Callee>>,
}

struct Callee;

impl Actor for Callee {
    type Args = Self;
    type Error = Infallible;

    async fn on_start(callee: Self, _: ActorRef<Self>) -> Result<Self, Infallible> {
        Ok(callee)
    }
}

struct Request(u64);

impl Message<Request> for Callee {
    type Reply = u64;

    async fn handle(&mut self, Request(value): Request, _: &mut Context<Self, u64>) -> u64 {
        reply(value)
    }
}

impl Callees for Kameo {
    async fn call(&self, callee: usize, value: u64) -> Option<u64> {
        self.callees[callee].ask(Request(value)).await.ok()
    }
}
