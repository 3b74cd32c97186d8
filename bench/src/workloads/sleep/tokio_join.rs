//! `sleep` with a single tokio task that awaits N timers: no timer can run independently of the
//! others.

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
        // `unconstrained`: with a task's budget of polls, `join_all` would poll all N timers again
        // for every 128 that are done.
        unconstrained(join_all(naps)).await
    }
}
