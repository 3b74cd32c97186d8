//! `sleep` with actix: an actor that stops when its `run_later` timer fires, the nearest equivalent
//! of a receive with a time-out.

use std::io;

use actix::{Actor, ActorContext, Addr, AsyncContext, Context};

use super::{SleepSteps, State, measure, receive_timeout};
use crate::outcome::Outcome;
use crate::runtimes;
use crate::settings::Settings;

pub(super) fn run(settings: &Settings) -> io::Result<Outcome> {
    runtimes::actix::drive(settings, |settings| measure(Actix, settings))
}

struct Actix;

impl Actor for State {
    type Context = Context<Self>;

    fn started(&mut self, cx: &mut Context<Self>) {
        cx.run_later(receive_timeout(), |state, cx| {
            state.time_out();
            cx.stop();
        });
    }
}

impl SleepSteps for Actix {
    type Kept = Vec<Addr<State>>;

    async fn start(self, states: impl Iterator<Item = State> + Send) -> Self::Kept {
        states.map(State::start).collect()
    }
}
