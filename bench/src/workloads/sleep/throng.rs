//! `sleep` with throng: the state is the process, and its receive times out.

use std::io;

use throng::{Address, Context, ExitReason, Process, RuntimeHandle};

use super::{SleepSteps, State, measure, receive_timeout};
use crate::outcome::Outcome;
use crate::runtimes;
use crate::settings::Settings;

pub(super) fn run(settings: &Settings) -> io::Result<Outcome> {
    runtimes::throng::drive(settings, settings.count, |runtime, settings| {
        measure(Throng { runtime }, settings)
    })
}

struct Throng {
    runtime: RuntimeHandle,
}

impl Process for State {
    async fn started(&mut self, cx: &mut Context<Self>) {
        cx.receive_timeout(receive_timeout());
    }

    async fn timeout(&mut self, cx: &mut Context<Self>) {
        self.time_out();
        cx.stop(ExitReason::Normal);
    }
}

impl SleepSteps for Throng {
    type Kept = Vec<Address<State>>;

    async fn start(self, states: impl Iterator<Item = State> + Send) -> Self::Kept {
        states.map(|state| runtimes::throng::start(&self.runtime, state)).collect()
    }
}
