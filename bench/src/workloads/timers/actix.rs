//! `timers` with actix: `run_later`, and `cancel_future`.

use std::io;
use std::time::Duration;

use actix::{Actor, AsyncContext, Context, Handler, Message, SpawnHandle};

use super::{Owner, Timers, fire, measure};
use crate::outcome::Outcome;
use crate::runtimes;
use crate::settings::Settings;

pub(super) fn run(settings: &Settings) -> io::Result<Outcome> {
    runtimes::actix::drive(settings, |settings| {
        let start = async || Owner::new().start().do_send(Slice);
        measure(start, settings)
    })
}

impl Actor for Owner<SpawnHandle> {
    type Context = Context<Self>;
}

#[derive(Message)]
#[rtype(result = "()")]
struct Slice;

impl Handler<Slice> for Owner<SpawnHandle> {
    type Result = ();

    fn handle(&mut self, _: Slice, cx: &mut Context<Self>) {
        if self.slice(&mut Own(cx)) {
            cx.address().do_send(Slice);
        }
    }
}

struct Own<'a>(&'a mut Context<Owner<SpawnHandle>>);

impl Timers for Own<'_> {
    type Timer = SpawnHandle;

    fn start(&mut self, delay: Duration, number: u64) -> SpawnHandle {
        self.0.run_later(delay, move |_, _| fire(number))
    }

    fn cancel(&mut self, timer: SpawnHandle) -> bool {
        self.0.cancel_future(timer)
    }
}
