//! `spawn` with tokio: a task that owns its receiver; dropping the only sender ends it.

use std::io;

use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};

use super::{SpawnSteps, State, measure};
use crate::outcome::Outcome;
use crate::runtimes;
use crate::settings::Settings;

pub(super) fn run(settings: &Settings) -> io::Result<Outcome> {
    runtimes::tokio::drive(settings, |settings| measure(Tokio, settings))
}

struct Tokio;

struct Count;

impl SpawnSteps for Tokio {
    type Address = UnboundedSender<Count>;

    async fn spawn(&self, state: State) -> Self::Address {
        let (sender, mut mailbox) = unbounded_channel();
        tokio::spawn(async move {
            while let Some(Count) = mailbox.recv().await {
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
