//! `send` with threads: the channel closes when the last sender is done, and the receiver's thread then
//! returns its sum, so that a message is a bare `u64`.

use std::io;
use std::sync::mpsc::{Sender, channel};
use std::thread::{self, JoinHandle};

use super::{SendSteps, Share, measure};
use crate::outcome::Outcome;
use crate::runtimes;
use crate::settings::Settings;

pub(super) fn run(settings: &Settings) -> io::Result<Outcome> {
    runtimes::threads::drive(settings, |_, settings| async {
        measure(Threads::start(), settings).await
    })
}

struct Threads {
    mailbox: Sender<u64>,
    receiver: JoinHandle<u64>,
}

impl Threads {
    fn start() -> Self {
        let (mailbox, values) = channel();
        let receiver = thread::spawn(move || values.iter().fold(0, u64::wrapping_add));
        Self { mailbox, receiver }
    }
}

impl SendSteps for Threads {
    async fn start_sender(&self, share: Share) {
        let mailbox = self.mailbox.clone();
        thread::spawn(move || {
            share.send_all(|value| {
                // A message without a receiver is missing in the sum.
                let _ = mailbox.send(value);
            });
        });
    }

    async fn sum(self) -> Option<u64> {
        drop(self.mailbox);
        self.receiver.join().ok()
    }
}
