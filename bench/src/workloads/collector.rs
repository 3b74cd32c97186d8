//! Receivers of numbers that one process sends to them in turn, for `fan` and `burst`.
//!
//! - The numbers are 0, 1, 2, …, sent round robin: receiver r must receive r, r + R, r + 2R, … in
//!   this order, where R is the number of receivers.
//! - The numbers are sent in chunks. A receiver reports the sum of a chunk when it has received its
//!   last number of the chunk, so counting costs little of what is measured. The first chunk is one
//!   number for each receiver, so that no first touch of its memory is measured.

use super::receiver::{Latch, Order, Receiver, ReceiverHost};
use super::tally::{Tally, sum_below};
use crate::outcome::Outcome;

/// Reports of the receivers, with the sums of the numbers.
static RECEIVED: Tally = Tally::new();

/// The chunks in which numbers are sent to the receivers.
#[derive(Clone, Copy)]
pub(super) struct Chunks {
    receivers: u64,
    /// Numbers in each chunk but the first and the last; a multiple of `receivers`.
    chunk: u64,
    /// Numbers in all.
    total: u64,
}

impl Chunks {
    /// The first chunk, then `count` numbers in chunks of `chunk`, rounded up so that each receiver
    /// gets as many; in a single chunk if `chunk` is zero.
    pub(super) fn new(receivers: u64, chunk: u64, count: u64) -> Self {
        let chunk = if chunk == 0 { u64::MAX } else { chunk };
        let chunk = chunk.checked_next_multiple_of(receivers).unwrap_or(u64::MAX);
        Self { receivers, chunk, total: receivers + count }
    }

    /// The end of the chunk that begins with a number.
    fn end(self, begin: u64) -> u64 {
        let length = if begin == 0 { self.receivers } else { self.chunk };
        begin.saturating_add(length).min(self.total)
    }

    /// Checks that every number was received, and that each receiver received its numbers in order.
    pub(super) fn check(self, outcome: &mut Outcome) {
        outcome.check("the sum received", RECEIVED.sum(), sum_below(self.total));
        Order::check(outcome);
    }
}

/// A receiver.
pub(super) struct Collector {
    chunks: Chunks,
    latch: Option<&'static Latch>,
    order: Order,
    /// End of the current chunk.
    end: u64,
    /// Sum of the received numbers of the current chunk.
    sum: u64,
}

impl Receiver for Collector {
    fn receive(&mut self, value: u64) {
        let due = self.order.note(value);
        self.sum = self.sum.wrapping_add(value);
        if due >= self.end {
            RECEIVED.add(self.sum);
            self.sum = 0;
            self.end = self.chunks.end(self.end);
        }
    }

    fn latch(&self) -> Option<&'static Latch> {
        self.latch
    }
}

/// The running receivers, and the numbers sent to them so far.
pub(super) struct Sender<H: ReceiverHost> {
    mailboxes: Vec<H::Mailbox<Collector>>,
    chunks: Chunks,
    next: u64,
    /// Reports due for all numbers sent so far.
    reports: u64,
}

impl<H: ReceiverHost> Sender<H> {
    /// Starts the receivers and sends the first chunk; returns when it has been received. With a
    /// latch, each receiver then waits at it.
    pub(super) async fn start(host: &H, chunks: Chunks, latch: Option<&'static Latch>) -> Self {
        let make = |index, _: &[H::Mailbox<Collector>]| Collector {
            chunks,
            latch,
            order: Order::new(index as u64, chunks.receivers),
            end: chunks.end(0),
            sum: 0,
        };
        let mailboxes = host.start_receivers(chunks.receivers, make).await;
        let mut sender = Self { mailboxes, chunks, next: 0, reports: 0 };
        sender.send_chunk();
        received().await;
        sender
    }

    /// Whether every chunk has been sent.
    pub(super) fn is_done(&self) -> bool {
        self.next == self.chunks.total
    }

    /// Sends the next chunk.
    pub(super) fn send_chunk(&mut self) {
        let end = self.chunks.end(self.next);
        // Every chunk begins with the first receiver; the last chunk may not reach all of them.
        self.reports += self.chunks.receivers.min(end - self.next);
        RECEIVED.arm(self.reports);
        for (value, to) in (self.next..end).zip(self.mailboxes.iter().cycle()) {
            H::send(to, value);
        }
        self.next = end;
    }
}

/// Waits until the chunk that was sent last has been received.
pub(super) async fn received() {
    RECEIVED.complete().await;
}
