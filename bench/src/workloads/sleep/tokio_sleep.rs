//! `sleep` with tokio tasks that only sleep and cannot receive messages.

use std::io;

use tokio::time::sleep;

use super::{SleepSteps, State, measure, receive_timeout};
use crate::outcome::Outcome;
use crate::runtimes;
use crate::settings::Settings;

pub(super) fn run(settings: &Settings) -> io::Result<Outcome> {
    runtimes::tokio::drive(settings, |settings| measure(Tokio, settings))
}

struct Tokio;

impl SleepSteps for Tokio {
    type Kept = ();

    async fn start(self, states: impl Iterator<Item = State> + Send) {
        for state in states {
            tokio::spawn(async move {
                sleep(receive_timeout()).await;
                state.time_out();
            });
        }
    }
}
