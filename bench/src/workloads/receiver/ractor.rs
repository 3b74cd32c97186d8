//! Receivers in ractor. An actor starts without a receiver, and its first message brings the
//! receiver, which may have the addresses of other actors.

use std::marker::PhantomData;

use ractor::{Actor, ActorProcessingErr, ActorRef};

use super::super::service::ractor::Ractor;
use super::{Receiver, ReceiverHost};
use crate::runtimes;

/// An actor whose state, in ractor's sense, is the receiver.
struct Inbox<R>(PhantomData<fn() -> R>);

pub(in super::super) enum Entry<R> {
    Begin(R),
    Number(u64),
}

impl<R: Receiver> Actor for Inbox<R> {
    type Msg = Entry<R>;
    type State = Option<R>;
    type Arguments = ();

    async fn pre_start(
        &self,
        _: ActorRef<Entry<R>>,
        (): (),
    ) -> Result<Option<R>, ActorProcessingErr> {
        Ok(None)
    }

    async fn handle(
        &self,
        _: ActorRef<Entry<R>>,
        entry: Entry<R>,
        receiver: &mut Option<R>,
    ) -> Result<(), ActorProcessingErr> {
        match (entry, receiver) {
            (Entry::Begin(begun), receiver) => *receiver = Some(begun),
            (Entry::Number(value), Some(receiver)) => {
                receiver.receive(value);
                if let Some(latch) = receiver.latch() {
                    latch.wait().await;
                }
            }
            // Without a receiver the number is missing in the counts that the workload checks.
            (Entry::Number(_), None) => {}
        }
        Ok(())
    }
}

impl ReceiverHost for Ractor {
    type Mailbox<R: Receiver> = ActorRef<Entry<R>>;

    async fn start_receivers<R: Receiver>(
        &self,
        count: u64,
        mut make: impl FnMut(usize, &[Self::Mailbox<R>]) -> R + Send,
    ) -> Vec<Self::Mailbox<R>> {
        let mut mailboxes = Vec::new();
        for _ in 0..count {
            mailboxes.push(runtimes::ractor::start(Inbox(PhantomData), ()).await);
        }
        for (index, mailbox) in mailboxes.iter().enumerate() {
            let _ = mailbox.send_message(Entry::Begin(make(index, &mailboxes)));
        }
        mailboxes
    }

    fn send<R: Receiver>(to: &Self::Mailbox<R>, value: u64) {
        let _ = to.send_message(Entry::Number(value));
    }
}
