//! `processes` with threads: a thread that owns its receiver.

use std::io;
use std::sync::mpsc::{Sender, channel};

use super::{Maximum, ProcessesSteps, Waiting, measure};
use crate::outcome::Outcome;
use crate::runtimes;
use crate::settings::Settings;

pub(super) fn run(settings: &Settings) -> io::Result<Outcome> {
    let start = |_, settings| measure(Threads(Maximum::of(&settings)), settings);
    runtimes::threads::drive(settings, start)
}

struct Threads(Maximum);

struct Die;

impl ProcessesSteps for Threads {
    type Address = Sender<Die>;

    fn spawn(&self, living: u64) -> io::Result<Self::Address> {
        self.0.allow(living)?;
        let (sender, mailbox) = channel();
        let waiting = Waiting;
        runtimes::threads::try_spawn(move || {
            // The thread ends in any case, and `die` is the only message.
            let _: Option<Die> = mailbox.recv().ok();
            drop(waiting);
        })?;
        Ok(sender)
    }

    fn die(&self, process: &Self::Address) {
        // A message without a receiver is missing in the count of exits.
        let _ = process.send(Die);
    }
}
