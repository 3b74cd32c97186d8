//! `sleep` with smol: a task that owns its receiver and waits for a message or for a timer.

use std::io;

use smol::Timer;
use smol::channel::{Sender, unbounded};
use smol::future::or;

use super::{SleepSteps, State, measure, receive_timeout};
use crate::outcome::Outcome;
use crate::runtimes;
use crate::settings::Settings;

pub(super) fn run(settings: &Settings) -> io::Result<Outcome> {
    runtimes::smol::drive(settings, |settings| measure(Smol, settings))
}

struct Smol;

struct Wake;

impl SleepSteps for Smol {
    type Kept = Vec<Sender<Wake>>;

    async fn start(self, states: impl Iterator<Item = State> + Send) -> Self::Kept {
        states.map(start).collect()
    }
}

fn start(state: State) -> Sender<Wake> {
    let (sender, mailbox) = unbounded();
    let process = runtimes::smol::spawn(async move {
        let message = async { mailbox.recv().await.ok() };
        let timeout = async {
            Timer::after(receive_timeout()).await;
            None
        };
        if or(message, timeout).await.is_none() {
            state.time_out();
        }
    });
    process.detach();
    sender
}
