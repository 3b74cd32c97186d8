//! `call` with actix: `Addr::send`, awaited.

use std::io;

use actix::{Actor, Addr, Context, Handler, Message};

use super::{Callees, measure, reply};
use crate::outcome::Outcome;
use crate::runtimes;
use crate::settings::Settings;

pub(super) fn run(settings: &Settings) -> io::Result<Outcome> {
    let settings = settings.clone();
    runtimes::actix::drive(async {
        let callees = (0..settings.get("callees")).map(|_| Callee.start()).collect();
        measure(Actix { callees }, settings).await
    })
}

struct Actix {
    callees: Vec<Addr<Callee>>,
}

struct Callee;

impl Actor for Callee {
    type Context = Context<Self>;
}

#[derive(Message)]
#[rtype(result = "u64")]
struct Request(u64);

impl Handler<Request> for Callee {
    type Result = u64;

    fn handle(&mut self, Request(value): Request, _: &mut Context<Self>) -> u64 {
        reply(value)
    }
}

impl Callees for Actix {
    async fn call(&self, callee: usize, value: u64) -> Option<u64> {
        self.callees[callee].send(Request(value)).await.ok()
    }
}
