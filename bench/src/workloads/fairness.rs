//! `fairness`: a process is called from outside while other processes flood themselves.
//!
//! ```text
//! flooders    │ each sends itself a message, on each message another …             │
//! driver      │ wait until all have run │ (pause, clock, call, clock) × M         │ stop │ wait
//!             ├──────────────── message_ns ───────────────────────────────────────┤
//! ```
//!
//! - The driver is outside of the runtime's workers, as the future of `block_on`: it shows how long
//!   a runtime that is fully loaded leaves a new message unhandled.
//! - Between two calls the driver pauses, because a call that follows at once could find the worker
//!   still busy with the callee's part of the queue: each call is to come unexpected.
//! - A flooder always has exactly one message in its mailbox. Its messages are numbered, and it
//!   receives them in order.
//! - `message_ns` is the time divided by the messages of the flood: a runtime could answer sooner
//!   at the cost of the others.
use std::convert::Infallible;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use super::prelude::*;
use super::relay::{Links, Order};
use super::tally::{Tally, sum_below};
use crate::host::{ActorHost, Host, Next, OnActors, Receiver, Service, Successor};

/// Flooders that have received their first message.
static RUNNING: Tally = Tally::new();
/// Flooders that have stopped, and the number of their messages.
static STOPPED: Tally = Tally::new();
static STOP: AtomicBool = AtomicBool::new(false);

struct Flooder<H: Host> {
    links: Links<H, Flooder<H>>,
    /// Its address, which is looked up with the first message.
    itself: Option<H::Address<Flooder<H>>>,
    index: u64,
    order: Order,
}

impl<H: Host> Receiver for Flooder<H> {
    type Message = u64;
    type Pause = Infallible;

    fn receive(&mut self, value: u64) -> Next {
        let next = self.order.note(value);
        if value == 0 {
            RUNNING.add(self.index);
        }
        if STOP.load(Ordering::Relaxed) {
            STOPPED.add(next);
        } else {
            let find = || self.links.all()[self.index as usize].clone();
            H::send(self.itself.get_or_insert_with(find), next);
        }
        Next::Message
    }
}

pub(crate) struct Fairness;

impl OnActors for Fairness {
    const OUTSIDE: bool = true;

    async fn measure<H: ActorHost>(host: H, settings: Settings) -> Measured {
        let count = settings.get("flooders");
        let callee = host.serve(Successor).await;
        let make = |index, links| Flooder { links, itself: None, index, order: Order::new(0, 1) };
        let flooders = Links::start(&host, count, make).await?;
        let pause = Duration::from_millis(settings.get("pause"));
        let mut latencies = latency::histogram()?;
        let mut replies = 0;

        RUNNING.arm(count);
        STOPPED.arm(count);
        let flooding = Instant::now();
        for flooder in flooders.all() {
            H::send::<Flooder<H>>(flooder, 0);
        }
        RUNNING.complete().await;
        for value in 0..settings.count {
            tokio::time::sleep(pause).await;
            let clock = Instant::now();
            let reply = host.call(&callee, value).await;
            latencies.saturating_record(clock.elapsed().as_nanos() as u64);
            replies += u64::from(reply == Some(Successor.reply(value)));
        }
        STOP.store(true, Ordering::Relaxed);
        STOPPED.complete().await;
        let flooded = flooding.elapsed();

        let mut outcome = Outcome::default();
        latency::report(&mut outcome, "", &latencies);
        outcome.metric("message_ns", flooded.as_nanos() as f64 / STOPPED.sum().max(1) as f64);
        outcome.check("correct replies", replies, settings.count);
        outcome.check("flooders that ran", RUNNING.count(), count);
        outcome.check("the sum of their numbers", RUNNING.sum(), sum_below(count));
        outcome.check("flooders that stopped", STOPPED.count(), count);
        Order::check(&mut outcome);
        Ok(outcome)
    }
}
