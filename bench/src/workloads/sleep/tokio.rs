//! `sleep` with tokio: a task that owns its receiver and waits for a message with a time-out.

use std::io;

use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};
use tokio::time::timeout;

use super::{SleepSteps, State, measure, receive_timeout};
use crate::outcome::Outcome;
use crate::runtimes;
use crate::settings::Settings;

pub(super) fn run(settings: &Settings) -> io::Result<Outcome> {
    runtimes::tokio::drive(settings, |settings| measure(Tokio, settings))
}

struct Tokio;

struct Wake;

impl SleepSteps for Tokio {
    type Kept = Vec<UnboundedSender<Wake>>;

    async fn start(self, states: impl Iterator<Item = State> + Send) -> Self::Kept {
        states.map(start).collect()
    }
}

fn start(state: State) -> UnboundedSender<Wake> {
    let (sender, mut mailbox) = unbounded_channel();
    tokio::spawn(async move {
        if timeout(receive_timeout(), mailbox.recv()).await.is_err() {
            state.time_out();
        }
    });
    sender
}
