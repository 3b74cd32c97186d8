//! `call` with throng: `Address::call` with its default deadline.

use std::io;

use throng::{Address, Context, Handle, Message, Process};

use super::{Callees, measure, reply};
use crate::outcome::Outcome;
use crate::runtimes::{
    self,
    throng::feature::{self, Equipment},
};
use crate::settings::Settings;

pub(super) fn run(settings: &Settings) -> io::Result<Outcome> {
    let settings_inside = settings.clone();
    let count = settings.get("callees");
    runtimes::throng::drive(settings, count, move |runtime| async move {
        let callees: Vec<_> =
            (0..count).map(|_| feature::start(&runtime, &settings_inside, 1000, Callee)).collect();
        let equipment = Equipment::give(&runtime, &settings_inside, callees.clone()).await?;
        let mut outcome = measure(Throng { callees }, settings_inside).await?;
        equipment.check(&mut outcome).await;
        Ok(outcome)
    })
}

struct Throng {
    callees: Vec<Address<Callee>>,
}

struct Callee;

impl Process for Callee {}

struct Request(u64);

impl Message for Request {
    type Reply = u64;
}

impl Handle<Request> for Callee {
    async fn handle(&mut self, Request(value): Request, _: &mut Context<Self>) -> u64 {
        reply(value)
    }
}

impl Callees for Throng {
    async fn call(&self, callee: usize, value: u64) -> Option<u64> {
        self.callees[callee].call(Request(value)).await.ok()
    }
}
