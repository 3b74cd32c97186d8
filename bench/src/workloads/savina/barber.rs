//! `barber`: the sleeping barber. Customers enter a waiting room, and one that finds it full tries again.
//!
//! ```text
//! factory ── enter ─→ room ── full ─→ customer ── returned ─→ factory ── enter ─→ …
//!                     room ── enter ─→ barber ── start, done ─→ customer ── done ─→ factory
//!                     room ←── next ── barber                        room ── wait ─→ barber
//! ```
//!
//! - As in Savina a customer that is turned away tries again at once, so the number of messages depends on
//!   how far the factory's work, the room and the barber run at the same time.
//! - The factory counts the haircuts of each customer, the barber all haircuts.

use std::collections::VecDeque;

use super::*;

pub(crate) struct Sleeping;

impl OnActors for Sleeping {
    async fn measure<H: ActorHost>(host: H, settings: Settings) -> Measured {
        let [places, arrival, work] = ["room", "arrival", "work"].map(|name| settings.get(name));
        let make = |reporter| Factory::<H> {
            places,
            arrival,
            work,
            room: None,
            haircuts: vec![0; settings.count as usize],
            done: 0,
            reporter,
        };
        let (report, mut outcome) = measure(host, make).await;
        outcome.check("customers that are done", report.done, settings.count);
        outcome.check("customers with another number of haircuts than one", report.wrong, 0);
        outcome.check("haircuts", report.haircuts, settings.count);
        Ok(outcome)
    }
}

/// Least number of steps between arrivals, and of a haircut.
const LEAST: u64 = 10;

#[derive(Default)]
struct Report {
    done: u64,
    wrong: u64,
    haircuts: u64,
}

struct Factory<H: ActorHost> {
    places: u64,
    arrival: u64,
    work: u64,
    room: Option<H::ActorAddress<Room<H>>>,
    haircuts: Vec<u64>,
    done: u64,
    reporter: Reporter<Report>,
}

enum ToFactory<H: ActorHost> {
    Returned(H::ActorAddress<Customer<H>>),
    Done { customer: usize },
    Closed { haircuts: u64 },
}

impl<H: ActorHost> Actor<H> for Factory<H> {
    type Message = ToFactory<H>;

    fn started(&mut self, context: &mut impl ActorContext<H, Self>) {
        let (factory, work) = (context.address(), self.work);
        let barber = context.start(Barber { factory, work, random: Random::of(0), haircuts: 0 });
        let waiting = VecDeque::new();
        let room =
            context.start(Room { places: self.places, barber, waiting, barber_asleep: true });
        let mut random = Random::of(0);
        for index in 0..self.haircuts.len() {
            let factory = context.address();
            H::tell(&room, ToRoom::Enter(context.start(Customer { index, factory })));
            busy(random.below(self.arrival) + LEAST);
        }
        self.room = Some(room);
    }

    fn handle(&mut self, message: ToFactory<H>, context: &mut impl ActorContext<H, Self>) {
        let Some(room) = &self.room else { return };
        match message {
            ToFactory::Returned(customer) => H::tell(room, ToRoom::Enter(customer)),
            ToFactory::Done { customer } => {
                self.haircuts[customer] += 1;
                self.done += 1;
                if self.done == self.haircuts.len() as u64 {
                    H::tell(room, ToRoom::Exit);
                }
            }
            ToFactory::Closed { haircuts } => {
                let wrong = self.haircuts.iter().filter(|number| **number != 1).count() as u64;
                self.reporter.report(Report { done: self.done, wrong, haircuts });
                context.stop();
            }
        }
    }
}

struct Room<H: ActorHost> {
    places: u64,
    barber: H::ActorAddress<Barber<H>>,
    waiting: VecDeque<H::ActorAddress<Customer<H>>>,
    barber_asleep: bool,
}

enum ToRoom<H: ActorHost> {
    Enter(H::ActorAddress<Customer<H>>),
    Next,
    Exit,
}

impl<H: ActorHost> Actor<H> for Room<H> {
    type Message = ToRoom<H>;

    fn handle(&mut self, message: ToRoom<H>, context: &mut impl ActorContext<H, Self>) {
        match message {
            ToRoom::Enter(customer) if self.waiting.len() as u64 == self.places => {
                H::tell(&customer, ToCustomer::Full);
            }
            ToRoom::Enter(customer) => {
                if self.barber_asleep {
                    self.barber_asleep = false;
                    context.tell_self(ToRoom::Next);
                } else {
                    H::tell(&customer, ToCustomer::Wait);
                }
                self.waiting.push_back(customer);
            }
            ToRoom::Next => match self.waiting.pop_front() {
                Some(customer) => {
                    let room = context.address();
                    H::tell(&self.barber, ToBarber::Enter { customer, room });
                }
                None => {
                    H::tell(&self.barber, ToBarber::Wait);
                    self.barber_asleep = true;
                }
            },
            ToRoom::Exit => {
                H::tell(&self.barber, ToBarber::Exit);
                context.stop();
            }
        }
    }
}

struct Barber<H: ActorHost> {
    factory: H::ActorAddress<Factory<H>>,
    work: u64,
    random: Random,
    haircuts: u64,
}

enum ToBarber<H: ActorHost> {
    Enter { customer: H::ActorAddress<Customer<H>>, room: H::ActorAddress<Room<H>> },
    Wait,
    Exit,
}

impl<H: ActorHost> Actor<H> for Barber<H> {
    type Message = ToBarber<H>;

    fn handle(&mut self, message: ToBarber<H>, context: &mut impl ActorContext<H, Self>) {
        match message {
            ToBarber::Enter { customer, room } => {
                H::tell(&customer, ToCustomer::Start);
                busy(self.random.below(self.work) + LEAST);
                self.haircuts += 1;
                H::tell(&customer, ToCustomer::Done);
                H::tell(&room, ToRoom::Next);
            }
            ToBarber::Wait => {}
            ToBarber::Exit => {
                H::tell(&self.factory, ToFactory::Closed { haircuts: self.haircuts });
                context.stop();
            }
        }
    }
}

struct Customer<H: ActorHost> {
    index: usize,
    factory: H::ActorAddress<Factory<H>>,
}

enum ToCustomer {
    Full,
    Wait,
    Start,
    Done,
}

impl<H: ActorHost> Actor<H> for Customer<H> {
    type Message = ToCustomer;

    fn handle(&mut self, message: ToCustomer, context: &mut impl ActorContext<H, Self>) {
        match message {
            ToCustomer::Full => H::tell(&self.factory, ToFactory::Returned(context.address())),
            ToCustomer::Wait | ToCustomer::Start => {}
            ToCustomer::Done => {
                H::tell(&self.factory, ToFactory::Done { customer: self.index });
                context.stop();
            }
        }
    }
}
