//! Receivers in actix: `do_send`, which ignores the mailbox's capacity. An actor starts empty, and
//! its first message brings the receiver, which may have the addresses of other actors. At a latch
//! the actor's context waits, so that the actor takes no message. Where there are several arbiters,
//! each has receivers that follow each other.

use actix::{Actor, Addr, AsyncContext, Context, Handler, Message, WrapFuture};

use super::super::service::actix::Actix;
use super::{Receiver, ReceiverHost};

pub(in super::super) struct Inbox<R>(Option<R>);

impl<R: Receiver> Actor for Inbox<R> {
    type Context = Context<Self>;
}

#[derive(Message)]
#[rtype(result = "()")]
struct Begin<R>(R);

impl<R: Receiver> Handler<Begin<R>> for Inbox<R> {
    type Result = ();

    fn handle(&mut self, Begin(receiver): Begin<R>, _: &mut Context<Self>) {
        self.0 = Some(receiver);
    }
}

#[derive(Message)]
#[rtype(result = "()")]
struct Number(u64);

impl<R: Receiver> Handler<Number> for Inbox<R> {
    type Result = ();

    fn handle(&mut self, Number(value): Number, context: &mut Context<Self>) {
        // Without a receiver the number is missing in the counts that the workload checks.
        let Some(receiver) = &mut self.0 else { return };
        receiver.receive(value);
        if let Some(latch) = receiver.latch() {
            context.wait(latch.wait().into_actor(self));
        }
    }
}

impl ReceiverHost for Actix {
    type Mailbox<R: Receiver> = Addr<Inbox<R>>;

    async fn start_receivers<R: Receiver>(
        &self,
        count: u64,
        mut make: impl FnMut(usize, &[Self::Mailbox<R>]) -> R + Send,
    ) -> Vec<Self::Mailbox<R>> {
        let mailboxes: Vec<_> = (0..count as usize)
            .map(|index| self.arbiters.start(self.arbiters.index_of(index, count), Inbox(None)))
            .collect();
        for (index, mailbox) in mailboxes.iter().enumerate() {
            mailbox.do_send(Begin(make(index, &mailboxes)));
        }
        mailboxes
    }

    fn send<R: Receiver>(to: &Self::Mailbox<R>, value: u64) {
        to.do_send(Number(value));
    }
}
