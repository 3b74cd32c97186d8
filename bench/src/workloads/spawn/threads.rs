//! `spawn` with threads: a thread that owns its receiver; dropping the only sender ends it.

use std::io;
use std::sync::mpsc::{Sender, channel};
use std::thread;

use super::{SpawnSteps, State, measure};
use crate::outcome::Outcome;
use crate::runtimes;
use crate::settings::Settings;

pub(super) fn run(settings: &Settings) -> io::Result<Outcome> {
    runtimes::threads::drive(settings, |_, settings| measure(Threads, settings))
}

struct Threads;

struct Count;

impl SpawnSteps for Threads {
    type Address = Sender<Count>;

    async fn spawn(&self, state: State) -> Self::Address {
        let (sender, mailbox) = channel();
        thread::spawn(move || {
            for Count in mailbox {
                state.count();
            }
        });
        sender
    }

    fn count(&self, process: &Self::Address) {
        // A message without a receiver is missing in the count.
        let _ = process.send(Count);
    }

    fn stop(&self, process: Self::Address) {
        drop(process);
    }
}
