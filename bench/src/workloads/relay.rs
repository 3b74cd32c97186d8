//! `pairs` and `ring`: rings of processes that pass a number on. In `pairs` all rings have two processes; in `ring` there
//! is one, as in Savina's `threadring`.
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
//! - With `message=bytes` each message owns 64 bytes, which its sender allocates and its receiver frees; the first eight are
//!   the number.
use std::convert::Infallible;
use std::io;
use std::marker::PhantomData;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use super::prelude::*;
use super::tally::{Tally, share};
use crate::host::{ActorHost, Host, Next, OnActors, OnHost, Receiver, on_actors, on_host};
use crate::runtimes::Work;

pub(crate) fn pairs(row: &str, settings: &Settings) -> Measured {
    let has_bytes = settings.word("message") == "bytes";
    match row {
        "xtra" if has_bytes => on_host::<Pairs<Box<[u8]>>>(row, settings),
        "xtra" => on_host::<Pairs<u64>>(row, settings),
        _ if has_bytes => on_actors::<Pairs<Box<[u8]>>>(row, settings),
        _ => on_actors::<Pairs<u64>>(row, settings),
    }
}

struct Pairs<C>(PhantomData<C>);

impl<C: Carrier> OnHost for Pairs<C> {
    async fn measure<H: Host>(host: H, settings: Settings) -> Measured {
        let count = settings.count;
        let (elapsed, mut outcome) = measure::<H, C>(host, count, settings.get("pairs"), 2).await?;
        outcome.metric("message_ns", elapsed.as_nanos() as f64 / count as f64);
        Ok(outcome)
    }
}

impl<C: Carrier> OnActors for Pairs<C> {
    fn measure<H: ActorHost>(host: H, settings: Settings) -> impl Work {
        <Self as OnHost>::measure(host, settings)
    }
}

/// A message that carries a number.
trait Carrier: Send + Unpin + 'static {
    fn of(value: u64) -> Self;

    fn value(&self) -> u64;
}

impl Carrier for u64 {
    fn of(value: u64) -> u64 {
        value
    }

    fn value(&self) -> u64 {
        *self
    }
}

impl Carrier for Box<[u8]> {
    fn of(value: u64) -> Self {
        let mut bytes = vec![0; 64].into_boxed_slice();
        bytes[..8].copy_from_slice(&value.to_le_bytes());
        bytes
    }

    fn value(&self) -> u64 {
        self.first_chunk().map_or(u64::MAX, |bytes| u64::from_le_bytes(*bytes))
    }
}

pub(crate) struct Ring;

impl OnActors for Ring {
    async fn measure<H: ActorHost>(host: H, settings: Settings) -> Measured {
        let count = settings.count;
        let (elapsed, mut outcome) =
            measure::<H, u64>(host, count, 1, settings.get("processes")).await?;
        outcome.metric("wall_s", elapsed.as_secs_f64());
        outcome.metric("hop_ns", elapsed.as_nanos() as f64 / count as f64);
        Ok(outcome)
    }
}

/// Rings whose last number has arrived, and the number of their messages.
static FINISHED: Tally = Tally::new();

/// Processes that may send to each other, once all have been started.
pub(super) struct Links<H: Host, R: Receiver>(Arc<OnceLock<Vec<H::Address<R>>>>);

impl<H: Host, R: Receiver> Links<H, R> {
    /// Starts `count` receivers: `make` creates the receiver of an index, which can look up others with its first message.
    pub(super) async fn start(
        host: &H,
        count: u64,
        mut make: impl FnMut(u64, Links<H, R>) -> R + Send,
    ) -> io::Result<Links<H, R>> {
        let links = Links(Arc::default());
        let mut addresses = Vec::with_capacity(count as usize);
        for index in 0..count {
            let receiver = make(index, Links(links.0.clone()));
            addresses.push(host.start_part(index, count, receiver).await?);
        }
        let _ = links.0.set(addresses);
        Ok(links)
    }

    pub(super) fn all(&self) -> &[H::Address<R>] {
        self.0.get().map_or(&[], |addresses| addresses)
    }
}

struct Link<H: Host, C: Carrier> {
    links: Links<H, Link<H, C>>,
    /// Index of the next process, and its address, which is looked up with the first message.
    next_index: usize,
    next: Option<H::Address<Link<H, C>>>,
    order: Order,
    messages: u64,
}

impl<H: Host, C: Carrier> Receiver for Link<H, C> {
    type Message = C;
    type Pause = Infallible;

    fn receive(&mut self, message: C) -> Next {
        let value = message.value();
        self.order.note(value);
        let sent = value + 1;
        if sent == self.messages {
            FINISHED.add(sent);
        } else {
            let next = self.next.get_or_insert_with(|| self.links.all()[self.next_index].clone());
            H::send(next, C::of(sent));
        }
        Next::Message
    }
}

/// Passes `count` messages through `rings` rings of `size` processes, each ring its share; returns
/// the time that it took, and the outcome of the checks.
async fn measure<H: Host, C: Carrier>(
    host: H,
    count: u64,
    rings: u64,
    size: u64,
) -> io::Result<(Duration, Outcome)> {
    let messages = |ring| {
        let values = share(count, ring, rings);
        values.end - values.start
    };
    let make = |index, links| {
        let (ring, place) = (index / size, index % size);
        let next_index = (ring * size + (place + 1) % size) as usize;
        let order = Order::new(place, size);
        Link { links, next_index, next: None, order, messages: messages(ring) }
    };
    let links = Links::start(&host, rings * size, make).await?;

    // A ring without a share of the messages does not begin.
    let begun = rings.min(count);
    FINISHED.arm(begun);
    let clock = Instant::now();
    for (ring, first) in links.all().iter().step_by(size as usize).enumerate() {
        if messages(ring as u64) > 0 {
            H::send::<Link<H, C>>(first, C::of(0));
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

static MISPLACED: AtomicU64 = AtomicU64::new(0);

/// The order in which a receiver must receive its numbers: each greater than the previous number
/// by the same step.
pub(super) struct Order {
    due: u64,
    step: u64,
}

impl Order {
    pub(super) fn new(first: u64, step: u64) -> Self {
        Self { due: first, step }
    }

    /// Notes a number that was received; returns the number that must be received next.
    pub(super) fn note(&mut self, value: u64) -> u64 {
        if value != self.due {
            MISPLACED.fetch_add(1, Ordering::Relaxed);
        }
        self.due = value.wrapping_add(self.step);
        self.due
    }

    pub(super) fn check(outcome: &mut Outcome) {
        let misplaced = MISPLACED.load(Ordering::Relaxed);
        outcome.check("messages received in the wrong order", misplaced, 0);
    }
}
