//! `processes` with tokio: a task that owns its receiver.

use std::io;

use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};

use super::{Maximum, ProcessesSteps, Waiting, measure};
use crate::outcome::Outcome;
use crate::runtimes;
use crate::settings::Settings;

pub(super) fn run(settings: &Settings) -> io::Result<Outcome> {
    runtimes::tokio::drive(settings, |settings| measure(Tokio(Maximum::of(&settings)), settings))
}

struct Tokio(Maximum);

struct Die;

impl ProcessesSteps for Tokio {
    type Address = UnboundedSender<Die>;

    fn spawn(&self, living: u64) -> io::Result<Self::Address> {
        self.0.allow(living)?;
        let (sender, mut mailbox) = unbounded_channel();
        let waiting = Waiting;
        tokio::spawn(async move {
            // The task ends in any case, and `die` is the only message.
            let _: Option<Die> = mailbox.recv().await;
            drop(waiting);
        });
        Ok(sender)
    }

    fn die(&self, process: &Self::Address) {
        // A message without a receiver is missing in the count of exits.
        let _ = process.send(Die);
    }
}
