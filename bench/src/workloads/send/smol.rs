//! `send` with smol: the channel closes when the last sender is done, and the receiver's task then returns
//! its sum, so that a message is a bare `u64`.

use std::io;

use smol::Task;
use smol::channel::{Sender, unbounded};

use super::{SendSteps, Share, measure};
use crate::outcome::Outcome;
use crate::runtimes;
use crate::settings::Settings;

pub(super) fn run(settings: &Settings) -> io::Result<Outcome> {
    runtimes::smol::drive(settings, |settings| async { measure(Smol::start(), settings).await })
}

struct Smol {
    mailbox: Sender<u64>,
    receiver: Task<u64>,
}

impl Smol {
    fn start() -> Self {
        let (mailbox, values) = unbounded();
        let receiver = runtimes::smol::spawn(async move {
            let mut sum = 0u64;
            while let Ok(value) = values.recv().await {
                sum = sum.wrapping_add(value);
            }
            sum
        });
        Self { mailbox, receiver }
    }
}

impl SendSteps for Smol {
    async fn start_sender(&self, share: Share) {
        let mailbox = self.mailbox.clone();
        let sender = runtimes::smol::spawn(async move {
            share.send_all(|value| {
                // A message without a receiver is missing in the sum.
                let _ = mailbox.try_send(value);
            });
        });
        sender.detach();
    }

    async fn sum(self) -> Option<u64> {
        drop(self.mailbox);
        Some(self.receiver.await)
    }
}
