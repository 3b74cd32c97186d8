//! `timers` with tokio: a task that owns a `DelayQueue` of tokio-util.

use std::io;
use std::time::Duration;

use futures_util::stream::StreamExt;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio_util::time::DelayQueue;
use tokio_util::time::delay_queue::Key;

use super::{Owner, Timers, fire, measure};
use crate::outcome::Outcome;
use crate::runtimes;
use crate::settings::Settings;

pub(super) fn run(settings: &Settings) -> io::Result<Outcome> {
    runtimes::tokio::drive(settings, |settings| {
        let start = async || {
            let (sender, mailbox) = unbounded_channel();
            // A process that does not begin is missing in the checks.
            let _ = sender.send(Slice);
            tokio::spawn(live(Owner::new(), sender, mailbox));
        };
        measure(start, settings)
    })
}

struct Slice;

async fn live(
    mut owner: Owner<Key>,
    myself: UnboundedSender<Slice>,
    mut mailbox: UnboundedReceiver<Slice>,
) {
    let mut timers = DelayQueue::new();
    loop {
        tokio::select! {
            Some(expired) = timers.next() => fire(expired.into_inner()),
            Some(Slice) = mailbox.recv() => {
                if owner.slice(&mut timers) {
                    let _ = myself.send(Slice);
                }
            }
        }
    }
}

impl Timers for DelayQueue<u64> {
    type Timer = Key;

    fn start(&mut self, delay: Duration, number: u64) -> Key {
        self.insert(number, delay)
    }

    fn cancel(&mut self, timer: Key) -> bool {
        self.try_remove(&timer).is_some()
    }
}
