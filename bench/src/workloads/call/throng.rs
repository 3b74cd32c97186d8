//! `call` with throng: `Address::call` with its default deadline.

use std::io;

use throng::{Context, Handle, Message, Process};

use super::{Callees, measure, reply};
use crate::outcome::Outcome;
use crate::runtimes::{
    self,
    throng::feature::{self, Equipment, Reach},
};
use crate::settings::Settings;

/// One caller has one message at a time on its way.
const CAPACITY: u64 = 1000;

pub(super) fn run(settings: &Settings) -> io::Result<Outcome> {
    let settings_inside = settings.clone();
    let count = settings.get("callees");
    runtimes::throng::drive(settings, count + feature::PROCESSES, move |runtime| async move {
        let settings = settings_inside;
        if feature::is_supervised(&settings) {
            let equipment = Equipment::supervise(&runtime, count, || Callee).await?;
            measure_with(equipment, settings).await
        } else {
            let equipment =
                Equipment::start(&runtime, &settings, count, CAPACITY, || Callee).await?;
            measure_with(equipment, settings).await
        }
    })
}

async fn measure_with<R: Reach<Callee>>(
    equipment: Equipment<R>,
    settings: Settings,
) -> io::Result<Outcome> {
    let (callees, calls) = (settings.get("callees"), settings.count + settings.get("samples"));
    let mut outcome = measure(Throng { callees: equipment.processes().to_vec() }, settings).await?;
    // The driver and the callees; each was called once before the clock.
    equipment.check(1 + callees, callees + calls, &mut outcome).await;
    Ok(outcome)
}

struct Throng<R> {
    callees: Vec<R>,
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

impl<R: Reach<Callee>> Callees for Throng<R> {
    async fn call(&self, callee: usize, value: u64) -> Option<u64> {
        self.callees[callee].call(Request(value)).await.ok()
    }
}
