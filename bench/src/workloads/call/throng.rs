//! `call` with throng: `Address::call` with its default deadline.

use std::io;

use super::super::service::Successor;
use super::super::service::throng::{Request, Server};
use super::{Callees, measure};
use crate::outcome::Outcome;
use crate::runtimes::{
    self,
    throng::feature::{self, Fixture, SendTarget},
};
use crate::settings::Settings;

/// Capacity of a bounded mailbox: more than the single message that the only caller has in flight.
const CAPACITY: u64 = 1000;

pub(super) fn run(settings: &Settings) -> io::Result<Outcome> {
    let count = settings.get("callees");
    runtimes::throng::drive(
        settings,
        count + feature::PROCESSES,
        move |runtime, settings| async move {
            if feature::is_supervised(&settings) {
                let fixture = Fixture::supervise(&runtime, count, || Server(Successor)).await?;
                measure_with(fixture, settings).await
            } else {
                let fixture =
                    Fixture::start(&runtime, &settings, count, CAPACITY, || Server(Successor))
                        .await?;
                measure_with(fixture, settings).await
            }
        },
    )
}

async fn measure_with<R: SendTarget<Server<Successor>>>(
    fixture: Fixture<R>,
    settings: Settings,
) -> io::Result<Outcome> {
    let (callees, calls) = (settings.get("callees"), settings.count + settings.get("samples"));
    let mut outcome = measure(Throng { callees: fixture.processes().to_vec() }, settings).await?;
    // Started: the driver and the callees. Each callee was called once before the clock started.
    fixture.check(1 + callees, callees + calls, &mut outcome).await;
    Ok(outcome)
}

struct Throng<R> {
    callees: Vec<R>,
}

impl<R: SendTarget<Server<Successor>>> Callees for Throng<R> {
    async fn call(&self, callee: usize, value: u64) -> Option<u64> {
        self.callees[callee].call(Request(value)).await.ok()
    }
}
