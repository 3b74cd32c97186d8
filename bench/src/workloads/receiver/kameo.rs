//! Receivers in kameo. An actor starts empty, and its first message brings the receiver, which may
//! have the addresses of other actors.

use std::convert::Infallible;

use kameo::Actor;
use kameo::actor::ActorRef;
use kameo::message::{Context, Message};

use super::super::service::kameo::Kameo;
use super::{Receiver, ReceiverHost};
use crate::runtimes;

pub(in super::super) struct Inbox<R>(Option<R>);

impl<R: Receiver> Actor for Inbox<R> {
    type Args = Self;
    type Error = Infallible;

    async fn on_start(inbox: Self, _: ActorRef<Self>) -> Result<Self, Infallible> {
        Ok(inbox)
    }
}

struct Begin<R>(R);

impl<R: Receiver> Message<Begin<R>> for Inbox<R> {
    type Reply = ();

    async fn handle(&mut self, Begin(receiver): Begin<R>, _: &mut Context<Self, ()>) {
        self.0 = Some(receiver);
    }
}

struct Number(u64);

impl<R: Receiver> Message<Number> for Inbox<R> {
    type Reply = ();

    async fn handle(&mut self, Number(value): Number, _: &mut Context<Self, ()>) {
        // Without a receiver the number is missing in the counts that the workload checks.
        let Some(receiver) = &mut self.0 else { return };
        receiver.receive(value);
        if let Some(latch) = receiver.latch() {
            latch.wait().await;
        }
    }
}

impl ReceiverHost for Kameo {
    type Mailbox<R: Receiver> = ActorRef<Inbox<R>>;

    async fn start_receivers<R: Receiver>(
        &self,
        count: u64,
        mut make: impl FnMut(usize, &[Self::Mailbox<R>]) -> R + Send,
    ) -> Vec<Self::Mailbox<R>> {
        let mailboxes: Vec<_> = (0..count).map(|_| runtimes::kameo::start(Inbox(None))).collect();
        for (index, mailbox) in mailboxes.iter().enumerate() {
            let _ = mailbox.tell(Begin(make(index, &mailboxes))).try_send();
        }
        mailboxes
    }

    fn send<R: Receiver>(to: &Self::Mailbox<R>, value: u64) {
        let _ = to.tell(Number(value)).try_send();
    }
}
