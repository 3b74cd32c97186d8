//! Receivers in threads: a thread that owns the receiver of an unbounded channel of numbers. All channels
//! exist before the first thread.

use std::sync::mpsc::{Sender, channel};
use std::thread;

use super::super::service::threads::Threads;
use super::{Receiver, ReceiverHost};

impl ReceiverHost for Threads {
    type Mailbox<R: Receiver> = Sender<u64>;

    async fn start_receivers<R: Receiver>(
        &self,
        count: u64,
        mut make: impl FnMut(usize, &[Sender<u64>]) -> R + Send,
    ) -> Vec<Sender<u64>> {
        let (mailboxes, inboxes): (Vec<_>, Vec<_>) = (0..count).map(|_| channel()).unzip();
        for (index, inbox) in inboxes.into_iter().enumerate() {
            let mut receiver = make(index, &mailboxes);
            let timers = self.timers.clone();
            thread::spawn(move || {
                for value in inbox {
                    receiver.receive(value);
                    if let Some(latch) = receiver.latch() {
                        timers.block_on(latch.wait());
                    }
                }
            });
        }
        mailboxes
    }

    fn send<R: Receiver>(to: &Sender<u64>, value: u64) {
        let _ = to.send(value);
    }
}
