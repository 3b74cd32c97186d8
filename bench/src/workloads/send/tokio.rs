//! `send` with tokio: the channel closes when the last sender is done, and the receiver's task then
//! returns its sum, so that a message is a bare `u64`.

use std::io;

use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};
use tokio::task::JoinHandle;

use super::{SendSteps, Share, measure};
use crate::outcome::Outcome;
use crate::runtimes;
use crate::settings::Settings;

pub(super) fn run(settings: &Settings) -> io::Result<Outcome> {
    runtimes::tokio::drive(settings, |settings| async { measure(Tokio::start(), settings).await })
}

struct Tokio {
    mailbox: UnboundedSender<u64>,
    receiver: JoinHandle<u64>,
}

impl Tokio {
    fn start() -> Self {
        let (mailbox, mut values) = unbounded_channel();
        let receiver = tokio::spawn(async move {
            let mut sum = 0u64;
            while let Some(value) = values.recv().await {
                sum = sum.wrapping_add(value);
            }
            sum
        });
        Self { mailbox, receiver }
    }
}

impl SendSteps for Tokio {
    async fn start_sender(&self, share: Share) {
        let mailbox = self.mailbox.clone();
        tokio::spawn(async move {
            share.send_all(|value| {
                // A message without a receiver is missing in the sum.
                let _ = mailbox.send(value);
            });
        });
    }

    async fn sum(self) -> Option<u64> {
        drop(self.mailbox);
        self.receiver.await.ok()
    }
}
