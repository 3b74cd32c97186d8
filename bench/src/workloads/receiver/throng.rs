//! Receivers in throng. A process starts empty, and its first message brings the receiver, which
//! may have the addresses of other processes.

use throng::{Address, Context, Handle, Message, Process};

use super::super::service::throng::Throng;
use super::{Receiver, ReceiverHost};
use crate::runtimes;

pub(in super::super) struct Inbox<R>(Option<R>);

impl<R: Receiver> Process for Inbox<R> {}

struct Begin<R>(R);

impl<R: Receiver> Message for Begin<R> {
    type Reply = ();
}

impl<R: Receiver> Handle<Begin<R>> for Inbox<R> {
    async fn handle(&mut self, Begin(receiver): Begin<R>, _: &mut Context<Self>) {
        self.0 = Some(receiver);
    }
}

struct Number(u64);

impl Message for Number {
    type Reply = ();
}

impl<R: Receiver> Handle<Number> for Inbox<R> {
    async fn handle(&mut self, Number(value): Number, _: &mut Context<Self>) {
        // Without a receiver the number is missing in the counts that the workload checks.
        let Some(receiver) = &mut self.0 else { return };
        receiver.receive(value);
        if let Some(latch) = receiver.latch() {
            latch.wait().await;
        }
    }
}

impl ReceiverHost for Throng {
    type Mailbox<R: Receiver> = Address<Inbox<R>>;

    async fn start_receivers<R: Receiver>(
        &self,
        count: u64,
        mut make: impl FnMut(usize, &[Self::Mailbox<R>]) -> R + Send,
    ) -> Vec<Self::Mailbox<R>> {
        let mailboxes: Vec<_> =
            (0..count).map(|_| runtimes::throng::start(&self.runtime, Inbox(None))).collect();
        for (index, mailbox) in mailboxes.iter().enumerate() {
            let _ = mailbox.send(Begin(make(index, &mailboxes)));
        }
        mailboxes
    }

    fn send<R: Receiver>(to: &Self::Mailbox<R>, value: u64) {
        let _ = to.send(Number(value));
    }
}
