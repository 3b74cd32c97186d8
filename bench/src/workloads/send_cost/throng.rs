//! `send-cost` with throng: a round is sent in a single turn of the driver.

use std::io;

use throng::{Address, Context, Handle, Message, Process, RuntimeHandle};

use super::{Account, PAYLOAD, Payload, SendCostSteps, measure};
use crate::outcome::Outcome;
use crate::runtimes;
use crate::settings::Settings;

pub(super) fn run(settings: &Settings) -> io::Result<Outcome> {
    runtimes::throng::drive(settings, 1, |runtime, settings| async move {
        match settings.get(PAYLOAD) {
            0 => measure::<u64, _>(Throng::start(&runtime), settings).await,
            _ => measure::<Vec<u8>, _>(Throng::start(&runtime), settings).await,
        }
    })
}

struct Throng {
    receiver: Address<Account>,
}

impl Throng {
    fn start(runtime: &RuntimeHandle) -> Self {
        Self { receiver: runtimes::throng::start(runtime, Account::default()) }
    }
}

impl Process for Account {}

struct Item<P>(P);

impl<P: Payload> Message for Item<P> {
    type Reply = ();
}

impl<P: Payload> Handle<Item<P>> for Account {
    async fn handle(&mut self, Item(payload): Item<P>, _: &mut Context<Self>) {
        self.receive(&payload);
    }
}

struct Suspend;

impl Message for Suspend {
    type Reply = ();
}

impl Handle<Suspend> for Account {
    async fn handle(&mut self, _: Suspend, _: &mut Context<Self>) {
        Account::suspended().await;
    }
}

struct Confirm;

impl Message for Confirm {
    type Reply = ();
}

impl Handle<Confirm> for Account {
    async fn handle(&mut self, _: Confirm, _: &mut Context<Self>) {
        self.confirm();
    }
}

impl<P: Payload> SendCostSteps<P> for Throng {
    fn send(&self, payload: P) {
        // A message without a receiver is missing in the count.
        let _ = self.receiver.send(Item(payload));
    }

    fn suspend(&self) {
        let _ = self.receiver.send(Suspend);
    }

    fn confirm(&self) {
        let _ = self.receiver.send(Confirm);
    }
}
