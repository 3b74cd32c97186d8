//! `send` with kameo: each sender sends its whole share in a single handler.

use std::convert::Infallible;
use std::io;

use kameo::Actor;
use kameo::actor::ActorRef;
use kameo::message::{Context, Message};

use super::{SendSteps, Share, measure};
use crate::outcome::Outcome;
use crate::runtimes;
use crate::settings::Settings;

pub(super) fn run(settings: &Settings) -> io::Result<Outcome> {
    runtimes::kameo::drive(settings, move |settings| async move {
        let receiver = runtimes::kameo::start(Receiver { sum: 0 });
        measure(Kameo { receiver }, settings).await
    })
}

struct Kameo {
    receiver: ActorRef<Receiver>,
}

struct Receiver {
    sum: u64,
}

impl Actor for Receiver {
    type Args = Self;
    type Error = Infallible;

    async fn on_start(receiver: Self, _: ActorRef<Self>) -> Result<Self, Infallible> {
        Ok(receiver)
    }
}

struct Add(u64);

impl Message<Add> for Receiver {
    type Reply = ();

    async fn handle(&mut self, Add(value): Add, _: &mut Context<Self, ()>) {
        self.sum = self.sum.wrapping_add(value);
    }
}

struct Sum;

impl Message<Sum> for Receiver {
    type Reply = u64;

    async fn handle(&mut self, _: Sum, _: &mut Context<Self, u64>) -> u64 {
        self.sum
    }
}

struct Sender {
    receiver: ActorRef<Receiver>,
}

impl Actor for Sender {
    type Args = Self;
    type Error = Infallible;

    async fn on_start(sender: Self, _: ActorRef<Self>) -> Result<Self, Infallible> {
        Ok(sender)
    }
}

struct Go(Share);

impl Message<Go> for Sender {
    type Reply = ();

    async fn handle(&mut self, Go(share): Go, _: &mut Context<Self, ()>) {
        share.send_all(|value| {
            // A message without a receiver is missing in the sum.
            let _ = self.receiver.tell(Add(value)).try_send();
        });
    }
}

impl SendSteps for Kameo {
    async fn start_sender(&self, share: Share) {
        let sender = runtimes::kameo::start(Sender { receiver: self.receiver.clone() });
        // A sender that did not receive its `Go` is missing in the count of senders.
        let _ = sender.tell(Go(share)).try_send();
    }

    async fn sum(self) -> Option<u64> {
        self.receiver.ask(Sum).await.ok()
    }
}
