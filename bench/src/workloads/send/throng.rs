//! `send` with throng: each sender sends its share in one turn.

use std::io;

use throng::{Address, Context, Handle, Message, Process, RuntimeHandle};

use super::super::tally::PATIENCE;
use super::{Post, Share, measure};
use crate::outcome::Outcome;
use crate::runtimes::{
    self,
    throng::feature::{self, Equipment},
};
use crate::settings::Settings;

pub(super) fn run(settings: &Settings) -> io::Result<Outcome> {
    let settings_inside = settings.clone();
    let processes = settings.get("senders") + 1;
    runtimes::throng::drive(settings, processes, |runtime| async move {
        let post = Throng::start(runtime.clone(), &settings_inside);
        let equipment = Equipment::give(&runtime, &settings_inside, vec![post.receiver]).await?;
        let mut outcome = measure(post, settings_inside).await?;
        equipment.check(&mut outcome).await;
        Ok(outcome)
    })
}

struct Throng {
    runtime: RuntimeHandle,
    receiver: Address<Receiver>,
}

impl Throng {
    fn start(runtime: RuntimeHandle, settings: &Settings) -> Self {
        let receiver = feature::start(&runtime, settings, settings.count + 1, Receiver { sum: 0 });
        Self { runtime, receiver }
    }
}

struct Receiver {
    sum: u64,
}

impl Process for Receiver {}

struct Add(u64);

impl Message for Add {
    type Reply = ();
}

impl Handle<Add> for Receiver {
    async fn handle(&mut self, Add(value): Add, _: &mut Context<Self>) {
        self.sum = self.sum.wrapping_add(value);
    }
}

struct Sum;

impl Message for Sum {
    type Reply = u64;
}

impl Handle<Sum> for Receiver {
    async fn handle(&mut self, _: Sum, _: &mut Context<Self>) -> u64 {
        self.sum
    }
}

struct Sender {
    receiver: Address<Receiver>,
}

impl Process for Sender {}

struct Go(Share);

impl Message for Go {
    type Reply = ();
}

impl Handle<Go> for Sender {
    async fn handle(&mut self, Go(share): Go, _: &mut Context<Self>) {
        share.send_all(|value| {
            // A message that found nobody is missing in the sum.
            let _ = self.receiver.send(Add(value));
        });
    }
}

impl Post for Throng {
    async fn start_sender(&self, share: Share) {
        let sender = Sender { receiver: self.receiver };
        // A sender that was not told to go is missing in the senders' count.
        let _ = runtimes::throng::start(&self.runtime, sender).send(Go(share));
    }

    async fn sum(self) -> Option<u64> {
        self.receiver.call(Sum).within(PATIENCE).await.ok()
    }
}
