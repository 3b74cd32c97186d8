//! Receivers in tokio: a task that owns the receiver of an unbounded channel of numbers. All
//! channels exist before the first task.

use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};

use super::super::service::tokio::{Next, Take, Tokio};
use super::{Receiver, ReceiverHost};

impl<T: Take> ReceiverHost for Tokio<T> {
    type Mailbox<R: Receiver> = UnboundedSender<u64>;

    async fn start_receivers<R: Receiver>(
        &self,
        count: u64,
        mut make: impl FnMut(usize, &[UnboundedSender<u64>]) -> R + Send,
    ) -> Vec<UnboundedSender<u64>> {
        let (mailboxes, inboxes): (Vec<_>, Vec<_>) =
            (0..count).map(|_| unbounded_channel()).unzip();
        for (index, inbox) in inboxes.into_iter().enumerate() {
            let mut receiver = make(index, &mailboxes);
            tokio::spawn(T::take_all(inbox, move |value| {
                receiver.receive(value);
                receiver.latch().map_or(Next::Message, Next::Latch)
            }));
        }
        mailboxes
    }

    fn send<R: Receiver>(to: &UnboundedSender<u64>, value: u64) {
        let _ = to.send(value);
    }
}
