//! `processes` with smol: a task that owns its receiver.

use std::io;

use smol::channel::{Sender, unbounded};

use super::{Maximum, ProcessesSteps, Waiting, measure};
use crate::outcome::Outcome;
use crate::runtimes;
use crate::settings::Settings;

pub(super) fn run(settings: &Settings) -> io::Result<Outcome> {
    runtimes::smol::drive(settings, |settings| measure(Smol(Maximum::of(&settings)), settings))
}

struct Smol(Maximum);

struct Die;

impl ProcessesSteps for Smol {
    type Address = Sender<Die>;

    fn spawn(&self, living: u64) -> io::Result<Self::Address> {
        self.0.allow(living)?;
        let (sender, mailbox) = unbounded();
        let waiting = Waiting;
        let process = runtimes::smol::spawn(async move {
            // The task ends in any case, and `die` is the only message.
            let _: Option<Die> = mailbox.recv().await.ok();
            drop(waiting);
        });
        process.detach();
        Ok(sender)
    }

    fn die(&self, process: &Self::Address) {
        // A message without a receiver is missing in the count of exits.
        let _ = process.try_send(Die);
    }
}
