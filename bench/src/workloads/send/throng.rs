//! `send` with throng: each sender sends its whole share in a single turn.

use std::io;

use throng::{Context, Handle, Message, Process, RuntimeHandle};

use super::super::tally::TIMEOUT;
use super::{SendSteps, Share, measure};
use crate::outcome::Outcome;
use crate::runtimes::{
    self,
    throng::feature::{self, Fixture, SendTarget},
};
use crate::settings::Settings;

pub(super) fn run(settings: &Settings) -> io::Result<Outcome> {
    let processes = settings.get("senders") + 1 + feature::PROCESSES;
    runtimes::throng::drive(settings, processes, move |runtime, settings| async move {
        let receiver = || Receiver { sum: 0 };
        if feature::is_supervised(&settings) {
            let fixture = Fixture::supervise(&runtime, 1, receiver).await?;
            measure_with(fixture, runtime, settings).await
        } else {
            let capacity = settings.count + 1;
            let fixture = Fixture::start(&runtime, &settings, 1, capacity, receiver).await?;
            measure_with(fixture, runtime, settings).await
        }
    })
}

async fn measure_with<R: SendTarget<Receiver>>(
    fixture: Fixture<R>,
    runtime: RuntimeHandle,
    settings: Settings,
) -> io::Result<Outcome> {
    let (senders, messages) = (settings.get("senders"), settings.count);
    let [receiver] = fixture.processes() else {
        return Err(io::Error::other("expected exactly one receiver"));
    };
    let mut outcome = measure(Throng { runtime, receiver: receiver.clone() }, settings).await?;
    // Started: the driver, the receiver and the senders. Each sender handles a `Go`.
    fixture.check(2 + senders, senders + messages, &mut outcome).await;
    Ok(outcome)
}

struct Throng<R> {
    runtime: RuntimeHandle,
    receiver: R,
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

struct Sender<R> {
    receiver: R,
}

impl<R: SendTarget<Receiver>> Process for Sender<R> {}

struct Go(Share);

impl Message for Go {
    type Reply = ();
}

impl<R: SendTarget<Receiver>> Handle<Go> for Sender<R> {
    async fn handle(&mut self, Go(share): Go, _: &mut Context<Self>) {
        share.send_all(|value| {
            // A message without a receiver is missing in the sum.
            let _ = self.receiver.send(Add(value));
        });
    }
}

impl<R: SendTarget<Receiver>> SendSteps for Throng<R> {
    async fn start_sender(&self, share: Share) {
        let sender = Sender { receiver: self.receiver.clone() };
        // A sender that did not receive its `Go` is missing in the count of senders.
        let _ = runtimes::throng::start(&self.runtime, sender).send(Go(share));
    }

    async fn sum(self) -> Option<u64> {
        self.receiver.call(Sum).within(TIMEOUT).await.ok()
    }
}
