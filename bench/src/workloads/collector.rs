//! `fan` and `burst`: a process sends numbers to several receivers in turn.
//!
//! ```text
//! fan       one message to each receiver │ start sender │       wait              │ settle │ RSS
//! sender                                 │ send × M (or × chunk, wait, …)         │
//!                                        ├──────── delivered_ns ──────────────────┤
//!
//! burst     one message to each receiver │ RSS │ start sender, wait │ RSS │ open │ wait │ settle │ RSS
//! sender                                       │ send × M           │
//! receivers                              │ wait at the gate                      │ receive │
//! ```
//!
//! - By default the sender of `fan` never waits, so the receivers' backlog is part of the result. With a `chunk`, at most
//!   that many messages are in flight, and the backlog costs little.
//! - In `burst` every receiver waits in the handler of its first message until all M messages are queued, so
//!   `bytes_per_message`, the growth of resident memory until then, counts exactly M messages. With `receivers=1` that is
//!   the queue of a slow consumer. `rss_after_bytes` is the whole program's resident memory, `settle` seconds after the
//!   last message was handled.
//! - The numbers are 0, 1, 2, …, sent round robin: receiver r must receive r, r + R, r + 2R, … in
//!   this order, where R is the number of receivers.
//! - The numbers are sent in chunks. A receiver reports the sum of a chunk when it has received its
//!   last number of the chunk, so counting costs little of what is measured. The first chunk is one
//!   number for each receiver, so that no first touch of its memory is measured.
use std::io;
use std::time::Instant;

use tokio::sync::Semaphore;

use super::prelude::*;
use super::relay::Order;
use super::tally::{Tally, sum_below};
use crate::host::{ActorHost, Host, Next, OnActors, Receiver};

static GATE: Semaphore = Semaphore::const_new(0);
static SENT: Tally = Tally::new();
/// Reports of the receivers, with the sums of the numbers.
static RECEIVED: Tally = Tally::new();

/// The chunks in which numbers are sent to the receivers.
#[derive(Clone, Copy)]
struct Chunks {
    receivers: u64,
    /// Numbers in each chunk but the first and the last; a multiple of `receivers`.
    chunk: u64,
    total: u64,
}

impl Chunks {
    /// The first chunk, then `count` numbers in chunks of `chunk`, rounded up so that each receiver
    /// gets as many; in a single chunk if `chunk` is zero.
    fn new(receivers: u64, chunk: u64, count: u64) -> Self {
        let chunk = if chunk == 0 { u64::MAX } else { chunk };
        let chunk = chunk.checked_next_multiple_of(receivers).unwrap_or(u64::MAX);
        Self { receivers, chunk, total: receivers + count }
    }

    fn end(self, begin: u64) -> u64 {
        let length = if begin == 0 { self.receivers } else { self.chunk };
        begin.saturating_add(length).min(self.total)
    }

    /// Checks that every number was received, and that each receiver received its numbers in order.
    fn check(self, outcome: &mut Outcome) {
        outcome.check("the sum received", RECEIVED.sum(), sum_below(self.total));
        Order::check(outcome);
    }
}

struct Collector {
    chunks: Chunks,
    gate: Option<&'static Semaphore>,
    order: Order,
    end: u64,
    sum: u64,
}

impl Receiver for Collector {
    type Message = u64;
    type Pause = &'static Semaphore;

    fn receive(&mut self, value: u64) -> Next<Self::Pause> {
        let due = self.order.note(value);
        self.sum = self.sum.wrapping_add(value);
        if due >= self.end {
            RECEIVED.add(self.sum);
            self.sum = 0;
            self.end = self.chunks.end(self.end);
        }
        self.gate.map_or(Next::Message, Next::Wait)
    }
}

struct Sender<H: Host> {
    mailboxes: Vec<H::Address<Collector>>,
    chunks: Chunks,
    next: u64,
    reports: u64,
}

impl<H: Host> Sender<H> {
    /// Starts the receivers and sends the first chunk; returns when it has been received. With a gate, each receiver then
    /// waits at it.
    async fn start(host: &H, chunks: Chunks, gate: Option<&'static Semaphore>) -> io::Result<Self> {
        let mut mailboxes = Vec::with_capacity(chunks.receivers as usize);
        for index in 0..chunks.receivers {
            let order = Order::new(index, chunks.receivers);
            let receiver = Collector { chunks, gate, order, end: chunks.end(0), sum: 0 };
            mailboxes.push(host.start_part(index, chunks.receivers, receiver).await?);
        }
        let mut sender = Self { mailboxes, chunks, next: 0, reports: 0 };
        sender.send_chunk();
        RECEIVED.complete().await;
        Ok(sender)
    }

    fn is_done(&self) -> bool {
        self.next == self.chunks.total
    }

    fn send_chunk(&mut self) {
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

pub(crate) struct Fan;

impl OnActors for Fan {
    async fn measure<H: ActorHost>(host: H, settings: Settings) -> Measured {
        let count = settings.count;
        let chunks = Chunks::new(settings.get("receivers"), settings.get("chunk"), count);
        let mut sender = Sender::start(&host, chunks, None).await?;

        SENT.arm(1);
        let clock = Instant::now();
        host.run(async move {
            while !sender.is_done() {
                sender.send_chunk();
                RECEIVED.complete().await;
            }
            SENT.add(0);
        })
        .await;
        SENT.complete().await;
        let elapsed = clock.elapsed();

        let mut outcome = Outcome::default();
        outcome.metric("delivered_ns", elapsed.as_nanos() as f64 / count as f64);
        outcome.metric("rss_after_bytes", memory::settled_bytes(&settings).await? as f64);
        chunks.check(&mut outcome);
        Ok(outcome)
    }
}

pub(crate) struct Burst;

impl OnActors for Burst {
    async fn measure<H: ActorHost>(host: H, settings: Settings) -> Measured {
        let chunks = Chunks::new(settings.get("receivers"), 0, settings.count);
        let mut sender = Sender::start(&host, chunks, Some(&GATE)).await?;
        let resident_before = memory::resident_bytes()?;

        SENT.arm(1);
        host.run(async move {
            sender.send_chunk();
            SENT.add(0);
        })
        .await;
        SENT.complete().await;
        let resident = memory::resident_bytes()?;
        GATE.close();
        RECEIVED.complete().await;

        let grown = resident.saturating_sub(resident_before) as f64;
        let mut outcome = Outcome::default();
        outcome.metric("bytes_per_message", grown / settings.count as f64);
        outcome.metric(memory::PEAK, memory::peak_resident_bytes()? as f64);
        outcome.metric("rss_after_bytes", memory::settled_bytes(&settings).await? as f64);
        chunks.check(&mut outcome);
        Ok(outcome)
    }
}
