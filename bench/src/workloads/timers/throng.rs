//! `timers` with throng: `Context::send_after`, and `Timer::cancel`.

use std::io;
use std::time::Duration;

use throng::{Context, Handle, Message, Process, Timer};

use super::{Owner, Timers, fire, measure};
use crate::outcome::Outcome;
use crate::runtimes;
use crate::settings::Settings;

pub(super) fn run(settings: &Settings) -> io::Result<Outcome> {
    runtimes::throng::drive(settings, 1, |runtime, settings| {
        let start = async move || {
            // A process that does not begin is missing in the checks.
            let _ = runtimes::throng::start(&runtime, Owner::new()).send(Slice);
        };
        measure(start, settings)
    })
}

impl Process for Owner<Timer> {}

struct Slice;

impl Message for Slice {
    type Reply = ();
}

impl Handle<Slice> for Owner<Timer> {
    async fn handle(&mut self, _: Slice, cx: &mut Context<Self>) {
        if self.slice(&mut Own(cx)) {
            let _ = cx.address().send(Slice);
        }
    }
}

struct Fire(u64);

impl Message for Fire {
    type Reply = ();
}

impl Handle<Fire> for Owner<Timer> {
    async fn handle(&mut self, Fire(number): Fire, _: &mut Context<Self>) {
        fire(number);
    }
}

struct Own<'a>(&'a Context<Owner<Timer>>);

impl Timers for Own<'_> {
    type Timer = Timer;

    fn start(&mut self, delay: Duration, number: u64) -> Timer {
        self.0.send_after(delay, Fire(number))
    }

    fn cancel(&mut self, timer: Timer) -> bool {
        timer.cancel()
    }
}
