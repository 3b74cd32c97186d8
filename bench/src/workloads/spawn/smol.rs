//! `spawn` with smol: a task that owns its receiver; dropping the only sender ends it.

use std::io;

use smol::channel::{Sender, unbounded};

use super::{SpawnSteps, State, measure};
use crate::outcome::Outcome;
use crate::runtimes;
use crate::settings::Settings;

pub(super) fn run(settings: &Settings) -> io::Result<Outcome> {
    runtimes::smol::drive(settings, |settings| measure(Smol, settings))
}

struct Smol;

struct Count;

impl SpawnSteps for Smol {
    type Address = Sender<Count>;

    async fn spawn(&self, state: State) -> Self::Address {
        let (sender, mailbox) = unbounded();
        let process = runtimes::smol::spawn(async move {
            while let Ok(Count) = mailbox.recv().await {
                state.count();
            }
        });
        process.detach();
        sender
    }

    fn count(&self, process: &Self::Address) {
        // A message without a receiver is missing in the count.
        let _ = process.try_send(Count);
    }

    fn stop(&self, process: Self::Address) {
        drop(process);
    }
}
