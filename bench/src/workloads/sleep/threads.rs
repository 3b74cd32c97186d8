//! `sleep` with threads: a thread that owns its receiver and waits for a message with a time-out.

use std::io;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread;

use super::{SleepSteps, State, measure, receive_timeout};
use crate::outcome::Outcome;
use crate::runtimes;
use crate::settings::Settings;

pub(super) fn run(settings: &Settings) -> io::Result<Outcome> {
    runtimes::threads::drive(settings, |_, settings| measure(Threads, settings))
}

struct Threads;

struct Wake;

impl SleepSteps for Threads {
    type Kept = Vec<Sender<Wake>>;

    async fn start(self, states: impl Iterator<Item = State> + Send) -> Self::Kept {
        states.map(start).collect()
    }
}

fn start(state: State) -> Sender<Wake> {
    let (sender, mailbox) = channel();
    thread::spawn(move || {
        if matches!(mailbox.recv_timeout(receive_timeout()), Err(RecvTimeoutError::Timeout)) {
            state.time_out();
        }
    });
    sender
}
