//! `send`: M messages, each a `u64`, from a process (or from `senders` processes) to another
//! process.
//!
//! ```text
//! driver    start senders │                      wait │ wait for the receiver's sum
//! senders                 │ send × M/senders          │
//!           ├────── send_ns, the last sender is done ─┤
//!           ├───────────────────────────── delivered_ns ┤
//! ```
//!
//! - The values are 0…M−1, each sent once, so the sum shows that no message was lost or duplicated.
//! - Mailboxes are unbounded and no sender waits for the receiver: the receiver's backlog depends
//!   on the runtime, and `delivered_ns` includes its processing.
//! - In the rows `…-batch` a sender collects [`BATCH`] values in a vector, and sends that as a message.
//! - Each sender reads the clock itself when it is done, so `send_ns` does not include the wake-up
//!   of the driver.
use std::convert::Infallible;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use super::prelude::*;
use super::tally::{Tally, share, sum_below};
use crate::host::{Host, Next, OnHost, Receiver, on_host};
use crate::runtimes::throng::feature;

pub(crate) fn run(row: &str, settings: &Settings) -> Measured {
    match row.strip_suffix("-batch") {
        Some(row) => on_host::<Batches>(row, settings),
        None if feature::is_none(settings) => on_host::<Sending>(row, settings),
        None => feature::send(settings),
    }
}

struct Sending;

impl OnHost for Sending {
    async fn measure<H: Host>(host: H, settings: Settings) -> Measured {
        let receiver = host.start(Adder::new(settings.count)).await?;
        let send_all = {
            let receiver = receiver.clone();
            move |values: Range<u64>| values.for_each(|value| H::send(&receiver, value))
        };
        measure(host, send_all, settings).await
    }
}

/// Number of values in a message of the rows that batch.
const BATCH: u64 = 64;

struct Batches;

impl OnHost for Batches {
    async fn measure<H: Host>(host: H, settings: Settings) -> Measured {
        let receiver = host.start(BatchAdder(Adder::new(settings.count))).await?;
        let send_all = {
            let receiver = receiver.clone();
            move |values: Range<u64>| {
                for first in values.clone().step_by(BATCH as usize) {
                    let end = values.end.min(first + BATCH);
                    let mut batch = Vec::with_capacity(BATCH as usize);
                    batch.extend(first..end);
                    H::send(&receiver, batch);
                }
            }
        };
        measure(host, send_all, settings).await
    }
}

struct BatchAdder(Adder);

impl Receiver for BatchAdder {
    type Message = Vec<u64>;
    type Pause = Infallible;

    fn receive(&mut self, batch: Vec<u64>) -> Next {
        for value in batch {
            self.0.receive(value);
        }
        Next::Message
    }
}

/// The sum of the receiver, once it has all messages.
static RECEIVED: Tally = Tally::new();
static SENDERS_DONE: Tally = Tally::new();
static LAST_DONE_NS: AtomicU64 = AtomicU64::new(0);

pub(crate) struct Share {
    values: Range<u64>,
    clock: Instant,
}

impl Share {
    /// Sends all values and reports the sender as done; called in the sender's process.
    fn send(self, send_all: impl Fn(Range<u64>)) {
        let count = self.values.end - self.values.start;
        send_all(self.values);
        LAST_DONE_NS.fetch_max(self.clock.elapsed().as_nanos() as u64, Ordering::Relaxed);
        SENDERS_DONE.add(count);
    }
}

/// The receiver, which confirms the sum with its last message.
#[derive(Clone)]
pub(crate) struct Adder {
    left: u64,
    sum: u64,
}

impl Adder {
    pub(crate) fn new(count: u64) -> Adder {
        Adder { left: count, sum: 0 }
    }
}

impl Receiver for Adder {
    type Message = u64;
    type Pause = Infallible;

    fn receive(&mut self, value: u64) -> Next {
        self.sum = self.sum.wrapping_add(value);
        self.left = self.left.wrapping_sub(1);
        if self.left == 0 {
            RECEIVED.add(self.sum);
        }
        Next::Message
    }
}

/// A process that sends its whole share in a single turn.
struct Sender<F>(F);

impl<F: Fn(Range<u64>) + Send + Unpin + 'static> Receiver for Sender<F> {
    type Message = Share;
    type Pause = Infallible;

    fn receive(&mut self, share: Share) -> Next {
        share.send(&self.0);
        Next::Message
    }
}

/// Drives the workload: its order, clocks and checks. `send_all` sends to the receiver, which is already running.
pub(crate) async fn measure<H: Host, F: Fn(Range<u64>) + Clone + Send + Unpin + 'static>(
    host: H,
    send_all: F,
    settings: Settings,
) -> Measured {
    let count = settings.count;
    let senders = settings.get("senders");
    SENDERS_DONE.arm(senders);
    RECEIVED.arm(1);

    let clock = Instant::now();
    let mut kept = Vec::with_capacity(senders as usize);
    for sender in 0..senders {
        let process = host.start(Sender(send_all.clone())).await?;
        H::send(&process, Share { values: share(count, sender, senders), clock });
        kept.push(process);
    }
    SENDERS_DONE.complete().await;
    RECEIVED.complete().await;
    let delivered = clock.elapsed();

    let each = 1.0 / count as f64;
    let mut outcome = Outcome::default();
    outcome.metric("send_ns", LAST_DONE_NS.load(Ordering::Relaxed) as f64 * each);
    outcome.metric("delivered_ns", delivered.as_nanos() as f64 * each);
    outcome.check("receivers that confirmed", RECEIVED.count(), 1);
    outcome.check("the sum received", RECEIVED.sum(), sum_below(count));
    outcome.check("senders that finished", SENDERS_DONE.count(), senders);
    outcome.check("messages sent", SENDERS_DONE.sum(), count);
    Ok(outcome)
}
