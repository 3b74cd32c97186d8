//! `sleep` with tokio tasks that only sleep: nothing can be sent to them.

use std::io;

use tokio::time::sleep;

use super::{Sleepers, State, measure, patience};
use crate::outcome::Outcome;
use crate::runtimes;
use crate::settings::Settings;

pub(super) fn run(settings: &Settings) -> io::Result<Outcome> {
    runtimes::tokio::drive(settings, |settings| measure(Tokio, settings))
}

struct Tokio;

impl Sleepers for Tokio {
    type Kept = ();

    async fn start(self, states: impl Iterator<Item = State> + Send) {
        for state in states {
            tokio::spawn(async move {
                sleep(patience()).await;
                state.time_out();
            });
        }
    }
}
