//! Rings of processes that pass a number on, for `pairs` and `ring`.
//!
//! ```text
//! driver    start rings × size │ 0 to the first of each ring │            wait
//! ring                         │ 0 → 1 → 2 → … → M/rings − 1, round and round
//!                              ├────────────────── elapsed ──────────────────┤
//! ```
//!
//! - Each process adds one to the number that it receives and sends it on, so a ring has one
//!   message in flight, and the last number proves that every message was sent and received.
//! - Process i of a ring must receive i, i + size, i + 2 × size, … in this order.

use std::io;
use std::time::{Duration, Instant};

use super::receiver::{Order, Receiver, ReceiverHost};
use super::tally::{Tally, share};
use crate::outcome::Outcome;

/// Rings whose last number has arrived, and the number of their messages.
static FINISHED: Tally = Tally::new();

/// A process of a ring.
struct Link<H: ReceiverHost> {
    next: H::Mailbox<Link<H>>,
    order: Order,
    /// Number of messages in the ring.
    messages: u64,
}

impl<H: ReceiverHost> Receiver for Link<H> {
    fn receive(&mut self, value: u64) {
        self.order.note(value);
        let sent = value + 1;
        if sent == self.messages {
            FINISHED.add(sent);
        } else {
            H::send(&self.next, sent);
        }
    }
}

/// Passes `count` messages through `rings` rings of `size` processes, each ring its share; returns
/// the time that it took, and the outcome of the checks.
pub(super) async fn measure<H: ReceiverHost>(
    host: H,
    count: u64,
    rings: u64,
    size: u64,
) -> io::Result<(Duration, Outcome)> {
    let messages = |ring| {
        let values = share(count, ring, rings);
        values.end - values.start
    };
    let links = host
        .start_receivers(rings * size, |index, mailboxes: &[H::Mailbox<Link<H>>]| {
            let (ring, place) = (index as u64 / size, index as u64 % size);
            let next = ring * size + (place + 1) % size;
            let next = mailboxes[next as usize].clone();
            Link { next, order: Order::new(place, size), messages: messages(ring) }
        })
        .await;

    // A ring without a share of the messages does not begin.
    let begun = rings.min(count);
    FINISHED.arm(begun);
    let clock = Instant::now();
    for (ring, first) in links.iter().step_by(size as usize).enumerate() {
        if messages(ring as u64) > 0 {
            H::send(first, 0);
        }
    }
    FINISHED.complete().await;
    let elapsed = clock.elapsed();

    let mut outcome = Outcome::default();
    outcome.check("rings that finished", FINISHED.count(), begun);
    outcome.check("messages passed on", FINISHED.sum(), count);
    Order::check(&mut outcome);
    Ok((elapsed, outcome))
}
