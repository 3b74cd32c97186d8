//! Receivers in smol: a task that owns the receiver of an unbounded channel of numbers. All channels exist
//! before the first task.

use smol::channel::{Sender, unbounded};

use super::super::service::smol::Smol;
use super::{Receiver, ReceiverHost};
use crate::runtimes;

impl ReceiverHost for Smol {
    type Mailbox<R: Receiver> = Sender<u64>;

    async fn start_receivers<R: Receiver>(
        &self,
        count: u64,
        mut make: impl FnMut(usize, &[Sender<u64>]) -> R + Send,
    ) -> Vec<Sender<u64>> {
        let (mailboxes, inboxes): (Vec<_>, Vec<_>) = (0..count).map(|_| unbounded()).unzip();
        for (index, inbox) in inboxes.into_iter().enumerate() {
            let mut receiver = make(index, &mailboxes);
            let process = runtimes::smol::spawn(async move {
                while let Ok(value) = inbox.recv().await {
                    receiver.receive(value);
                    if let Some(latch) = receiver.latch() {
                        latch.wait().await;
                    }
                }
            });
            process.detach();
        }
        mailboxes
    }

    fn send<R: Receiver>(to: &Sender<u64>, value: u64) {
        let _ = to.try_send(value);
    }
}
