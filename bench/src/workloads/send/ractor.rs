//! `send` with ractor: each sender sends its whole share in a single handler.

use std::io;

use ractor::{Actor, ActorProcessingErr, ActorRef, RpcReplyPort};

use super::{SendSteps, Share, measure};
use crate::outcome::Outcome;
use crate::runtimes;
use crate::settings::Settings;

pub(super) fn run(settings: &Settings) -> io::Result<Outcome> {
    runtimes::ractor::drive(settings, move |settings| async move {
        let receiver = runtimes::ractor::start(Receiver, ()).await;
        measure(Ractor { receiver }, settings).await
    })
}

struct Ractor {
    receiver: ActorRef<Entry>,
}

struct Receiver;

enum Entry {
    Add(u64),
    Sum(RpcReplyPort<u64>),
}

impl Actor for Receiver {
    type Msg = Entry;
    type State = u64;
    type Arguments = ();

    async fn pre_start(&self, _: ActorRef<Entry>, (): ()) -> Result<u64, ActorProcessingErr> {
        Ok(0)
    }

    async fn handle(
        &self,
        _: ActorRef<Entry>,
        entry: Entry,
        sum: &mut u64,
    ) -> Result<(), ActorProcessingErr> {
        match entry {
            Entry::Add(value) => *sum = sum.wrapping_add(value),
            Entry::Sum(reply) => reply.send(*sum)?,
        }
        Ok(())
    }
}

struct Sender {
    receiver: ActorRef<Entry>,
}

struct Go(Share);

impl Actor for Sender {
    type Msg = Go;
    type State = ();
    type Arguments = ();

    async fn pre_start(&self, _: ActorRef<Go>, (): ()) -> Result<(), ActorProcessingErr> {
        Ok(())
    }

    async fn handle(
        &self,
        _: ActorRef<Go>,
        Go(share): Go,
        (): &mut (),
    ) -> Result<(), ActorProcessingErr> {
        share.send_all(|value| {
            // A message without a receiver is missing in the sum.
            let _ = self.receiver.send_message(Entry::Add(value));
        });
        Ok(())
    }
}

impl SendSteps for Ractor {
    async fn start_sender(&self, share: Share) {
        let sender = Sender { receiver: self.receiver.clone() };
        // A sender that did not receive its `Go` is missing in the count of senders.
        let _ = runtimes::ractor::start(sender, ()).await.send_message(Go(share));
    }

    async fn sum(self) -> Option<u64> {
        self.receiver.call(Entry::Sum, None).await.ok()?.success_or(()).ok()
    }
}
