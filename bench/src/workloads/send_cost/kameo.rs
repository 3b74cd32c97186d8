//! `send-cost` with kameo: an actor with an unbounded mailbox, whose handler may wait.

use std::convert::Infallible;
use std::io;

use kameo::Actor;
use kameo::actor::ActorRef;
use kameo::message::{Context, Message};

use super::{Account, PAYLOAD, Payload, SendCostSteps, measure};
use crate::outcome::Outcome;
use crate::runtimes;
use crate::settings::Settings;

pub(super) fn run(settings: &Settings) -> io::Result<Outcome> {
    runtimes::kameo::drive(settings, |settings| async move {
        let kameo = Kameo { receiver: runtimes::kameo::start(Account::default()) };
        match settings.get(PAYLOAD) {
            0 => measure::<u64, _>(kameo, settings).await,
            _ => measure::<Vec<u8>, _>(kameo, settings).await,
        }
    })
}

struct Kameo {
    receiver: ActorRef<Account>,
}

impl Actor for Account {
    type Args = Self;
    type Error = Infallible;

    async fn on_start(account: Self, _: ActorRef<Self>) -> Result<Self, Infallible> {
        Ok(account)
    }
}

struct Item<P>(P);

impl<P: Payload> Message<Item<P>> for Account {
    type Reply = ();

    async fn handle(&mut self, Item(payload): Item<P>, _: &mut Context<Self, ()>) {
        self.receive(&payload);
    }
}

struct Suspend;

impl Message<Suspend> for Account {
    type Reply = ();

    async fn handle(&mut self, _: Suspend, _: &mut Context<Self, ()>) {
        Account::suspended().await;
    }
}

struct Confirm;

impl Message<Confirm> for Account {
    type Reply = ();

    async fn handle(&mut self, _: Confirm, _: &mut Context<Self, ()>) {
        self.confirm();
    }
}

impl<P: Payload> SendCostSteps<P> for Kameo {
    fn send(&self, payload: P) {
        // A message without a receiver is missing in the count.
        let _ = self.receiver.tell(Item(payload)).try_send();
    }

    fn suspend(&self) {
        let _ = self.receiver.tell(Suspend).try_send();
    }

    fn confirm(&self) {
        let _ = self.receiver.tell(Confirm).try_send();
    }
}
