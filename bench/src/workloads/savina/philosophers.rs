//! `philosophers`: the dining philosophers; an arbiter owns the forks.
//!
//! ```text
//! philosopher ── hungry ─→ arbiter ── denied ─→ philosopher ── hungry ─→ …     a fork is taken
//! philosopher ── hungry ─→ arbiter ── eat ─→ philosopher ── done ─→ arbiter
//! ```
//!
//! - As in Savina a philosopher that is denied asks again at once, so the number of messages depends on the
//!   order in which the runtime lets the philosophers run.
//! - Apart from the forks the arbiter notes which philosophers eat: beside one that eats, nobody may. When a
//!   meal is over its forks must be taken, and at the end all must be free.

use super::*;

pub(crate) struct Dining;

impl OnActors for Dining {
    async fn measure<H: ActorHost>(host: H, settings: Settings) -> Measured {
        let (meals, philosophers) = (settings.count, settings.get("philosophers"));
        let make = |reporter| Arbiter::<H>::new(philosophers as usize, meals, reporter);
        let (report, mut outcome) = measure(host, make).await;
        outcome.check("philosophers that are done", report.philosophers, philosophers);
        outcome.check("meals eaten", report.eaten, meals * philosophers);
        outcome.check("meals granted", report.granted, meals * philosophers);
        outcome.check("meals beside another, or without forks", report.wrong, 0);
        outcome.check("forks that are taken at the end", report.taken, 0);
        Ok(outcome)
    }
}

#[derive(Default)]
struct Report {
    philosophers: u64,
    eaten: u64,
    granted: u64,
    wrong: u64,
    taken: u64,
}

struct Arbiter<H: ActorHost> {
    meals: u64,
    philosophers: Vec<H::ActorAddress<Philosopher<H>>>,
    /// Whether each fork is taken: a philosopher uses the fork of its index and the next.
    forks: Vec<bool>,
    eating: Vec<bool>,
    report: Report,
    reporter: Reporter<Report>,
}

enum ToArbiter {
    Hungry { philosopher: usize },
    Done { philosopher: usize },
    Exit { meals: u64 },
}

impl<H: ActorHost> Arbiter<H> {
    fn new(count: usize, meals: u64, reporter: Reporter<Report>) -> Self {
        let (forks, eating) = (vec![false; count], vec![false; count]);
        let report = Report::default();
        Self { meals, philosophers: Vec::new(), forks, eating, report, reporter }
    }

    /// The index after another, round the table.
    fn after(&self, index: usize) -> usize {
        let next = index + 1;
        if next == self.forks.len() { 0 } else { next }
    }

    fn feed(&mut self, index: usize) {
        let (left, right) = (index, self.after(index));
        if self.forks[left] || self.forks[right] {
            return H::tell(&self.philosophers[index], ToPhilosopher::Denied);
        }
        (self.forks[left], self.forks[right]) = (true, true);
        let before = index.checked_sub(1).unwrap_or(self.forks.len() - 1);
        let is_beside = self.eating[before] || self.eating[right];
        self.eating[index] = true;
        self.report.granted += 1;
        self.report.wrong += u64::from(is_beside);
        H::tell(&self.philosophers[index], ToPhilosopher::Eat);
    }

    fn clear(&mut self, index: usize) {
        let (left, right) = (index, self.after(index));
        let had_forks = self.forks[left] && self.forks[right] && self.eating[index];
        self.report.wrong += u64::from(!had_forks);
        (self.forks[left], self.forks[right]) = (false, false);
        self.eating[index] = false;
    }
}

impl<H: ActorHost> Actor<H> for Arbiter<H> {
    type Message = ToArbiter;

    fn started(&mut self, context: &mut impl ActorContext<H, Self>) {
        for index in 0..self.forks.len() {
            let (arbiter, meals) = (context.address(), self.meals);
            let philosopher = Philosopher { index, arbiter, meals, eaten: 0 };
            self.philosophers.push(context.start(philosopher));
        }
    }

    fn handle(&mut self, message: ToArbiter, context: &mut impl ActorContext<H, Self>) {
        match message {
            ToArbiter::Hungry { philosopher } => self.feed(philosopher),
            ToArbiter::Done { philosopher } => self.clear(philosopher),
            ToArbiter::Exit { meals } => {
                self.report.philosophers += 1;
                self.report.eaten += meals;
                if self.report.philosophers == self.philosophers.len() as u64 {
                    self.report.taken = self.forks.iter().filter(|taken| **taken).count() as u64;
                    self.reporter.report(std::mem::take(&mut self.report));
                    context.stop();
                }
            }
        }
    }
}

struct Philosopher<H: ActorHost> {
    index: usize,
    arbiter: H::ActorAddress<Arbiter<H>>,
    meals: u64,
    eaten: u64,
}

enum ToPhilosopher {
    Start,
    Denied,
    Eat,
}

impl<H: ActorHost> Philosopher<H> {
    fn ask(&self) {
        H::tell(&self.arbiter, ToArbiter::Hungry { philosopher: self.index });
    }
}

impl<H: ActorHost> Actor<H> for Philosopher<H> {
    type Message = ToPhilosopher;

    fn started(&mut self, _: &mut impl ActorContext<H, Self>) {
        self.ask();
    }

    fn handle(&mut self, message: ToPhilosopher, context: &mut impl ActorContext<H, Self>) {
        match message {
            ToPhilosopher::Start | ToPhilosopher::Denied => self.ask(),
            ToPhilosopher::Eat => {
                self.eaten += 1;
                H::tell(&self.arbiter, ToArbiter::Done { philosopher: self.index });
                if self.eaten < self.meals {
                    context.tell_self(ToPhilosopher::Start);
                } else {
                    H::tell(&self.arbiter, ToArbiter::Exit { meals: self.eaten });
                    context.stop();
                }
            }
        }
    }
}
