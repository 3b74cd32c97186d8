//! `durable-send`: entities send each other stored messages, each of which is handled exactly once.
//!
//! ```text
//! each receiver one message │ N messages │ `paced` messages, `pace` a second │ close, open │ read, check all
//! ├────────── first_per_s ──┤├sends_per_s┤                                   │
//!                            ├───────────────────── device_bytes_per_send ───┤
//! ```
//!
//! - A turn of a sender sends `batch` messages to as many receivers, as a program does that has many to tell. A sender
//!   gets its next call after the reply to the last, so at most `senders` turns wait for the disk. A receiver takes a
//!   turn for each message.
//! - The receivers come up in random order, each once, and then all of them again. A clock stops when the last turn of
//!   each receiver is on the disk, as [`after_commit`](DurableContext::after_commit) tells.
//! - Before the clock each receiver gets a message, which activates it; it stays live unless `cap` limits their number.
//! - The percentiles are of the paced messages: from the send, within the sender's turn, until the receiver's turn is on
//!   the disk.
//! - Each receiver counts its messages and adds up their numbers. At the end, and when all was closed and opened again,
//!   each count and the sum over all receivers must be right, and every inbox empty.

use std::future::ready;
use std::str;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use bench_steps::Error;
use bench_steps::disk::device_written_bytes;
use bench_steps::latency::Latencies;
use serde::{Deserialize, Serialize};
use throng::prelude::*;
use throng_durable::{Durable, DurableContext, Entity, Node};

use super::durable::{
    self, Acknowledged, Calls, Counters, Done, Home, Order, TIMEOUT, Tasks, ThrongCounters,
    ThrongHome, call_all, key, live_max, on_node, wait,
};
use super::prelude::*;
use super::records::rate;

/// The messages of a run, shared by senders and receivers.
struct Plan {
    receivers: u64,
    /// Number of messages to each receiver before the paced ones.
    due: u64,
    /// Number of messages that a turn sends.
    batch: u64,
    begun: Instant,
    /// Number of reports of receivers: of the first message, of the last before the paced ones, of each paced one.
    reports: AtomicU64,
    latencies: Latencies,
    /// Sums over the receivers that a check has read.
    sum: AtomicU64,
    waiting: AtomicU64,
}

impl Plan {
    fn nanoseconds(&self) -> u64 {
        self.begun.elapsed().as_nanos() as u64
    }

    fn report(&self, sent_ns: Option<u64>) {
        if let Some(sent) = sent_ns {
            self.latencies.record(self.nanoseconds().saturating_sub(sent));
        }
        self.reports.fetch_add(1, Ordering::Relaxed);
    }
}

#[derive(Durable, Default, Serialize, Deserialize)]
#[durable(kind = "sender", deps = Arc<Plan>)]
struct Sender {
    turns: u64,
}

#[process]
impl Sender {
    /// Sends the messages with these numbers, and returns the number of turns.
    #[message]
    fn tell(&mut self, first: u64, end: u64, timed: bool, cx: &mut Context<Self>) -> u64 {
        let (node, plan) = (cx.node(), cx.deps().clone());
        for number in first..end {
            let receiver = entity::<Receiver>(&node, Order::Rounds.pick(number, plan.receivers));
            let sent_ns = timed.then(|| plan.nanoseconds());
            cx.send_durable(&receiver, Count { number, sent_ns });
        }
        self.turns += 1;
        self.turns
    }
}

#[derive(Durable, Default, Serialize, Deserialize)]
#[durable(kind = "receiver", deps = Arc<Plan>)]
struct Receiver {
    messages: u64,
    sum: u64,
}

#[process]
impl Receiver {
    #[message(durable)]
    fn count(&mut self, number: u64, sent_ns: Option<u64>, cx: &mut Context<Self>) {
        self.messages += 1;
        self.sum = self.sum.wrapping_add(number);
        let plan = cx.deps();
        if sent_ns.is_some() || self.messages == 1 || self.messages == plan.due {
            let plan = plan.clone();
            cx.after_commit(move || plan.report(sent_ns));
        }
    }

    #[message]
    fn counted(&self) -> (u64, u64) {
        (self.messages, self.sum)
    }
}

/// The senders as counters of their turns, and the receivers as counters of their messages, which are only read.
#[derive(Clone)]
struct Exchange {
    counters: ThrongCounters,
    plan: Arc<Plan>,
    part: Arc<Part>,
}

/// Messages that are sent together.
#[derive(Default)]
struct Part {
    first: u64,
    end: u64,
    next: AtomicU64,
    /// Messages per second; 0 without a limit.
    pace: u64,
    begun_ns: u64,
}

impl Tasks for Exchange {
    fn start(&self, task: impl Future<Output = ()> + Send + 'static) {
        self.counters.start(task);
    }
}

impl Counters for Exchange {
    async fn add(&self, sender: u64) -> Result<u64, Error> {
        let (Part { first, end, next, pace, begun_ns }, batch) = (&*self.part, self.plan.batch);
        let from = next.fetch_add(batch, Ordering::Relaxed);
        if *pace > 0 {
            let due = begun_ns + (from - first) * 1_000_000_000 / pace;
            let wait = due.saturating_sub(self.plan.nanoseconds());
            tokio::time::sleep(Duration::from_nanos(wait)).await;
        }
        let sender = entity::<Sender>(self.counters.node(), sender);
        Ok(sender.tell(from, (*end).min(from + batch), *pace > 0).within(TIMEOUT).await?)
    }

    async fn read(&self, receiver: u64) -> Result<u64, Error> {
        let receiver = entity::<Receiver>(self.counters.node(), receiver);
        let (messages, sum) = receiver.counted().within(TIMEOUT).await?;
        let waiting = receiver.inbox()?.waiting.len();
        self.plan.sum.fetch_add(sum, Ordering::Relaxed);
        self.plan.waiting.fetch_add(waiting as u64, Ordering::Relaxed);
        Ok(messages)
    }

    async fn close(self) -> Result<(), Error> {
        self.counters.close().await
    }
}

impl Exchange {
    async fn open(home: &ThrongHome, live_max: u64, plan: &Arc<Plan>) -> Result<Exchange, Error> {
        let counters = home.open(live_max).await?;
        counters.node().register::<Sender>(plan.clone());
        counters.node().register::<Receiver>(plan.clone());
        Ok(Exchange { counters, plan: plan.clone(), part: Arc::default() })
    }

    /// Sends messages, `pace` a second unless that is 0; returns the rate until so many reports have come in all.
    async fn send(
        &self,
        turns: &Arc<Acknowledged>,
        (first, end): (u64, u64),
        pace: u64,
        reports: u64,
    ) -> Result<f64, Error> {
        let (begun, begun_ns) = (Instant::now(), self.plan.nanoseconds());
        let part = Arc::new(Part { first, end, next: first.into(), pace, begun_ns });
        let senders = turns.counters();
        let count = (end - first).div_ceil(self.plan.batch);
        let calls = Calls { inflight: senders, count, ..Calls::creating(senders) };
        call_all(&Exchange { part, ..self.clone() }, calls, turns).await?;
        wait(|| {
            let number = self.plan.reports.load(Ordering::Relaxed);
            ready(Ok(Done { number, is_all: number >= reports }))
        })
        .await?;
        Ok(rate(end - first, begun.elapsed()))
    }

    /// Reads all receivers, and checks that each message below `end` was handled once.
    async fn check(
        &self,
        handled: &Arc<Acknowledged>,
        end: u64,
        moment: &str,
        outcome: &mut Outcome,
    ) -> Result<(), Error> {
        durable::check_values(self, handled, handled.counters(), moment, outcome).await?;
        let (sum, waiting) = (&self.plan.sum, &self.plan.waiting);
        let sum = sum.swap(0, Ordering::Relaxed);
        outcome.check(&format!("sum of the messages {moment}"), sum, end * (end - 1) / 2);
        let waiting = waiting.swap(0, Ordering::Relaxed);
        outcome.check(&format!("messages that wait {moment}"), waiting, 0);
        Ok(())
    }
}

fn entity<P: Durable>(node: &Node, number: u64) -> Entity<P> {
    node.entity(str::from_utf8(&key(number)).unwrap_or_default())
}

pub(crate) fn run(_: &str, settings: &Settings) -> Measured {
    let (receivers, senders) = (settings.get("receivers"), settings.get("senders"));
    let live = live_max(settings, receivers + senders).min(receivers + senders);
    on_node(settings, durable::processes(live, senders), measure)
}

async fn measure(home: ThrongHome, settings: Settings) -> Measured {
    let (receivers, senders) = (settings.get("receivers"), settings.get("senders"));
    let due = 1 + settings.count.div_ceil(receivers);
    let plan = Arc::new(Plan {
        receivers,
        due,
        batch: settings.get("batch"),
        begun: Instant::now(),
        reports: AtomicU64::new(0),
        latencies: Latencies::new()?,
        sum: AtomicU64::new(0),
        waiting: AtomicU64::new(0),
    });
    let live_max = live_max(&settings, receivers + senders);
    let exchange = Exchange::open(&home, live_max, &plan).await?;
    let turns = Acknowledged::all(senders, 0).into();
    let first = exchange.send(&turns, (0, receivers), 0, receivers).await?;

    let device = device_written_bytes(home.directory())?;
    let (all, paced) = (receivers * due, settings.get("paced"));
    let sent = exchange.send(&turns, (receivers, all), 0, 2 * receivers).await?;
    let (end, pace) = (all + paced, settings.get("pace"));
    exchange.send(&turns, (all, end), pace, 2 * receivers + paced).await?;

    let mut handled = Acknowledged::all(receivers, due as u32);
    (all..end).for_each(|message| handled.acknowledge(Order::Rounds.pick(message, receivers)));
    let (handled, mut outcome) = (handled.into(), Outcome::default());
    exchange.check(&handled, end, "after the run", &mut outcome).await?;
    exchange.close().await?;
    let device = device_written_bytes(home.directory())?.saturating_sub(device);
    let reopened = Exchange::open(&home, live_max, &plan).await?;
    reopened.check(&handled, end, "when opened again", &mut outcome).await?;
    reopened.close().await?;

    outcome.metric("sends_per_s", sent);
    outcome.metric("first_per_s", first);
    plan.latencies.report(&mut outcome);
    outcome.metric("device_bytes_per_send", device as f64 / (end - receivers) as f64);
    Ok(outcome)
}
