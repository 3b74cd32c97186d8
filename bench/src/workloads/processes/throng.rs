//! `processes` with throng, whose runtime has the limit of processes.

use std::io;

use throng::{Address, Context, ExitReason, Handle, Message, Process, RuntimeHandle};

use super::{MAXIMUM, ProcessesSteps, Waiting, measure};
use crate::outcome::Outcome;
use crate::runtimes;
use crate::settings::Settings;

pub(super) fn run(settings: &Settings) -> io::Result<Outcome> {
    runtimes::throng::drive_limited(settings, settings.get(MAXIMUM), |runtime, settings| {
        measure(Throng { runtime }, settings)
    })
}

struct Throng {
    runtime: RuntimeHandle,
}

impl Process for Waiting {}

struct Die;

impl Message for Die {
    type Reply = ();
}

impl Handle<Die> for Waiting {
    async fn handle(&mut self, _: Die, cx: &mut Context<Self>) {
        cx.stop(ExitReason::Normal);
    }
}

impl ProcessesSteps for Throng {
    type Address = Address<Waiting>;

    fn spawn(&self, _: u64) -> io::Result<Self::Address> {
        self.runtime.spawn(Waiting).map_err(|error| io::Error::other(error.to_string()))
    }

    fn die(&self, process: &Self::Address) {
        // A message without a receiver is missing in the count of exits.
        let _ = process.send(Die);
    }
}
