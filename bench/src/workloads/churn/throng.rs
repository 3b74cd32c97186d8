//! `churn` with throng: the process is told to stop once it has replied.

use std::io;

use throng::{Context, Handle, Message, Process, RuntimeHandle};

use super::{Cycle, State, measure};
use crate::outcome::Outcome;
use crate::runtimes;
use crate::settings::Settings;

/// Beside the process that is called there may be some whose exit is still under way.
const ALIVE_MAX: u64 = 1_000_000;

pub(super) fn run(settings: &Settings) -> io::Result<Outcome> {
    let settings_inside = settings.clone();
    runtimes::throng::drive(settings, ALIVE_MAX, |runtime| {
        measure(Throng { runtime }, settings_inside)
    })
}

struct Throng {
    runtime: RuntimeHandle,
}

impl Process for State {}

struct Request(u64);

impl Message for Request {
    type Reply = u64;
}

impl Handle<Request> for State {
    async fn handle(&mut self, Request(value): Request, _: &mut Context<Self>) -> u64 {
        self.reply(value)
    }
}

impl Cycle for Throng {
    async fn cycle(&self, state: State, value: u64) -> Option<u64> {
        let process = runtimes::throng::start(&self.runtime, state);
        let reply = process.call(Request(value)).await.ok();
        process.stop();
        reply
    }
}
