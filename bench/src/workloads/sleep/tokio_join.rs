//! `sleep` with one tokio task that awaits N timers: there is nothing in it that could run by itself.

use std::io;

use futures_util::future::join_all;
use tokio::task::unconstrained;
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
    type Kept = Vec<()>;

    async fn start(self, states: impl Iterator<Item = State> + Send) -> Vec<()> {
        let naps = states.map(|state| async move {
            sleep(receive_timeout()).await;
            state.time_out();
        });
        // With a budget of polls, as tasks have it, `join_all` would poll all N again for every 128.
        unconstrained(join_all(naps)).await
    }
}
