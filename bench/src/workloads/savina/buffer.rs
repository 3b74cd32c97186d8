//! `buffer`: a manager passes items from producers to consumers, and holds a bounded number of them.
//! Savina's `bndbuffer`.
//!
//! ```text
//! producer ←─ produce ── manager        unless the manager holds too many items
//! producer ──── item ──→ manager ── item ─→ consumer
//!                        manager ←─ ready ─ consumer
//! producer ──── over ──→ manager ── exit ─→ consumer ── consumed ─→ manager
//! ```
//!
//! - As in Savina the manager asks a producer for its next item if it holds fewer items than its capacity
//!   less the number of producers, each of which may be making an item.
//! - An item is a number of its producer's generator after `work` steps. A consumer makes as many steps.

use std::collections::VecDeque;

use super::*;

pub(crate) struct Buffer;

impl OnActors for Buffer {
    async fn measure<H: ActorHost>(host: H, settings: Settings) -> Measured {
        let [producers, consumers, capacity, work] =
            ["producers", "consumers", "capacity", "work"].map(|name| settings.get(name));
        let make = |reporter| Manager::<H> {
            items: settings.count,
            work,
            room: capacity.saturating_sub(producers).max(1),
            producers: vec![None; producers as usize],
            consumers: vec![None; consumers as usize],
            held: VecDeque::new(),
            waiting: VecDeque::new(),
            ready: VecDeque::new(),
            over: 0,
            exiting: false,
            report: Report::default(),
            reporter,
        };
        let (report, mut outcome) = measure(host, make).await;
        let items = settings.count * producers;
        outcome.check("consumers that exited", report.consumers, consumers);
        outcome.check("items consumed", report.items, items);
        outcome.check("their sum", report.sum, sum(producers, settings.count, work));
        let bound = capacity.max(producers + 1);
        outcome.check("items beyond the capacity", report.most_held.saturating_sub(bound), 0);
        Ok(outcome)
    }
}

fn sum(producers: u64, items: u64, work: u64) -> u64 {
    let sum_of = |producer| {
        let mut random = Random::of(producer);
        (0..items).map(|_| u64::from(random.advance(work))).sum::<u64>()
    };
    (0..producers).map(sum_of).sum()
}

#[derive(Default)]
struct Report {
    consumers: u64,
    items: u64,
    sum: u64,
    most_held: u64,
}

struct Manager<H: ActorHost> {
    items: u64,
    work: u64,
    /// Number of items from which producers have to wait.
    room: u64,
    producers: Vec<Option<H::ActorAddress<Producer<H>>>>,
    consumers: Vec<Option<H::ActorAddress<Consumer<H>>>>,
    held: VecDeque<u32>,
    waiting: VecDeque<usize>,
    ready: VecDeque<usize>,
    /// Producers that have made all of their items.
    over: usize,
    exiting: bool,
    report: Report,
    reporter: Reporter<Report>,
}

enum ToManager {
    Item { item: u32, producer: usize },
    Over,
    Ready { consumer: usize },
    Consumed { items: u64, sum: u64 },
}

impl<H: ActorHost> Manager<H> {
    fn ask(&self, producer: usize) {
        if let Some(producer) = &self.producers[producer] {
            H::tell(producer, Produce);
        }
    }

    fn supply(&self, consumer: usize, order: ToConsumer) {
        if let Some(consumer) = &self.consumers[consumer] {
            H::tell(consumer, order);
        }
    }

    fn exit_if_done(&mut self) {
        let is_done = self.over == self.producers.len() && self.ready.len() == self.consumers.len();
        if is_done && !self.exiting {
            self.exiting = true;
            (0..self.consumers.len()).for_each(|index| self.supply(index, ToConsumer::Exit));
        }
    }
}

impl<H: ActorHost> Actor<H> for Manager<H> {
    type Message = ToManager;

    fn started(&mut self, context: &mut impl ActorContext<H, Self>) {
        let work = self.work;
        for (index, place) in self.consumers.iter_mut().enumerate() {
            let state = Random::of(index as u64);
            let manager = context.address();
            *place =
                Some(context.start(Consumer { index, work, manager, state, items: 0, sum: 0 }));
            self.ready.push_back(index);
        }
        for (index, place) in self.producers.iter_mut().enumerate() {
            let random = Random::of(index as u64);
            let (manager, left) = (context.address(), self.items);
            *place = Some(context.start(Producer { index, work, manager, random, left }));
        }
        (0..self.producers.len()).for_each(|index| self.ask(index));
    }

    fn handle(&mut self, message: ToManager, context: &mut impl ActorContext<H, Self>) {
        match message {
            ToManager::Item { item, producer } => {
                match self.ready.pop_front() {
                    Some(consumer) => self.supply(consumer, ToConsumer::Item(item)),
                    None => self.held.push_back(item),
                }
                let held = self.held.len() as u64;
                self.report.most_held = self.report.most_held.max(held);
                if held >= self.room {
                    self.waiting.push_back(producer);
                } else {
                    self.ask(producer);
                }
            }
            ToManager::Over => {
                self.over += 1;
                self.exit_if_done();
            }
            ToManager::Ready { consumer } => match self.held.pop_front() {
                Some(item) => {
                    self.supply(consumer, ToConsumer::Item(item));
                    if let Some(producer) = self.waiting.pop_front() {
                        self.ask(producer);
                    }
                }
                None => {
                    self.ready.push_back(consumer);
                    self.exit_if_done();
                }
            },
            ToManager::Consumed { items, sum } => {
                self.report.consumers += 1;
                self.report.items += items;
                self.report.sum += sum;
                if self.report.consumers == self.consumers.len() as u64 {
                    self.reporter.report(std::mem::take(&mut self.report));
                    context.stop();
                }
            }
        }
    }
}

struct Producer<H: ActorHost> {
    index: usize,
    work: u64,
    manager: H::ActorAddress<Manager<H>>,
    random: Random,
    left: u64,
}

struct Produce;

impl<H: ActorHost> Actor<H> for Producer<H> {
    type Message = Produce;

    fn handle(&mut self, _: Produce, context: &mut impl ActorContext<H, Self>) {
        if self.left == 0 {
            H::tell(&self.manager, ToManager::Over);
            return context.stop();
        }
        self.left -= 1;
        let item = self.random.advance(self.work);
        H::tell(&self.manager, ToManager::Item { item, producer: self.index });
    }
}

struct Consumer<H: ActorHost> {
    index: usize,
    work: u64,
    manager: H::ActorAddress<Manager<H>>,
    state: Random,
    items: u64,
    sum: u64,
}

enum ToConsumer {
    Item(u32),
    Exit,
}

impl<H: ActorHost> Actor<H> for Consumer<H> {
    type Message = ToConsumer;

    fn handle(&mut self, message: ToConsumer, context: &mut impl ActorContext<H, Self>) {
        match message {
            ToConsumer::Item(item) => {
                self.state.add(item);
                self.state.advance(self.work);
                self.items += 1;
                self.sum += u64::from(item);
                H::tell(&self.manager, ToManager::Ready { consumer: self.index });
            }
            ToConsumer::Exit => {
                let (items, sum) = (self.items, self.sum);
                H::tell(&self.manager, ToManager::Consumed { items, sum });
                context.stop();
            }
        }
    }
}
