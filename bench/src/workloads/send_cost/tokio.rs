//! `send-cost` with tokio: a task that owns the receiver of an unbounded channel.

use std::io;

use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};

use super::{Account, Entry, PAYLOAD, Payload, SendCostSteps, measure};
use crate::outcome::Outcome;
use crate::runtimes;
use crate::settings::Settings;

pub(super) fn run(settings: &Settings) -> io::Result<Outcome> {
    runtimes::tokio::drive(settings, |settings| async {
        match settings.get(PAYLOAD) {
            0 => measure(Tokio::<u64>::start(), settings).await,
            _ => measure(Tokio::<Vec<u8>>::start(), settings).await,
        }
    })
}

struct Tokio<P> {
    mailbox: UnboundedSender<Entry<P>>,
}

impl<P: Payload> Tokio<P> {
    fn start() -> Self {
        let (mailbox, mut entries) = unbounded_channel();
        tokio::spawn(async move {
            let mut account = Account::default();
            while let Some(entry) = entries.recv().await {
                match entry {
                    Entry::Item(payload) => account.receive::<P>(&payload),
                    Entry::Suspend => Account::suspended().await,
                    Entry::Confirm => account.confirm(),
                }
            }
        });
        Self { mailbox }
    }
}

impl<P: Payload> SendCostSteps<P> for Tokio<P> {
    fn send(&self, payload: P) {
        // A message without a receiver is missing in the count.
        let _ = self.mailbox.send(Entry::Item(payload));
    }

    fn suspend(&self) {
        let _ = self.mailbox.send(Entry::Suspend);
    }

    fn confirm(&self) {
        let _ = self.mailbox.send(Entry::Confirm);
    }
}
