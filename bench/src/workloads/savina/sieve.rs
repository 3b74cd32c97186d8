//! `sieve`: the sieve of Eratosthenes as a chain of filters.
//!
//! ```text
//! producer ── 3, 5, 7, … ─→ filter of 2 … ─→ filter of the next primes ─→ …
//! producer ── end ─→ filter, its primes ─→ filter, the primes of both ─→ … ─→ driver
//! ```
//!
//! - A filter keeps the first `block` primes that reach it, and then starts the next filter with the prime
//!   that follows. It passes on numbers that none of its primes divides.
//! - As in Savina a filter tries all of its primes, in order, also those beyond a number's root.
//! - The driver finds the primes by a sieve of its own, and compares their number and their sum.

use std::convert::Infallible;

use super::*;

pub(crate) struct Sieve;

impl OnActors for Sieve {
    async fn measure<H: ActorHost>(host: H, settings: Settings) -> Measured {
        let (limit, block) = (settings.count, settings.get("block"));
        let make = |reporter| Producer { limit, block, reporter: Some(reporter) };
        let (report, mut outcome) = measure(host, make).await;
        let expected = primes_below(limit);
        outcome.check("primes", report.primes, expected.primes);
        outcome.check("their sum", report.sum, expected.sum);
        Ok(outcome)
    }
}

/// Finds the primes below a limit, and 2 below any limit, as the first filter always has it.
fn primes_below(limit: u64) -> Report {
    let mut composite = vec![false; limit.max(3) as usize];
    let mut report = Report::default();
    for number in 2..composite.len() {
        if !composite[number] {
            report.primes += 1;
            report.sum += number as u64;
            (number * number..composite.len())
                .step_by(number)
                .for_each(|multiple| composite[multiple] = true);
        }
    }
    report
}

#[derive(Default)]
struct Report {
    primes: u64,
    sum: u64,
}

struct Producer {
    limit: u64,
    block: u64,
    reporter: Option<Reporter<Report>>,
}

impl<H: ActorHost> Actor<H> for Producer {
    type Message = Infallible;

    fn started(&mut self, context: &mut impl ActorContext<H, Self>) {
        let filter = context.start(Filter::<H>::new(2, self.block));
        for number in (3..self.limit).step_by(2) {
            H::tell(&filter, ToFilter::Number(number));
        }
        if let Some(reporter) = self.reporter.take() {
            H::tell(&filter, ToFilter::End { found: Report::default(), reporter });
        }
        context.stop();
    }

    fn handle(&mut self, message: Infallible, _: &mut impl ActorContext<H, Self>) {
        match message {}
    }
}

struct Filter<H: ActorHost> {
    block: u64,
    primes: Vec<u64>,
    next: Option<H::ActorAddress<Filter<H>>>,
}

enum ToFilter {
    Number(u64),
    End { found: Report, reporter: Reporter<Report> },
}

impl<H: ActorHost> Filter<H> {
    fn new(prime: u64, block: u64) -> Self {
        Self { block, primes: vec![prime], next: None }
    }
}

impl<H: ActorHost> Actor<H> for Filter<H> {
    type Message = ToFilter;

    fn handle(&mut self, message: ToFilter, context: &mut impl ActorContext<H, Self>) {
        match message {
            ToFilter::Number(number) => {
                if self.primes.iter().any(|prime| number % prime == 0) {
                    return;
                }
                match &self.next {
                    Some(next) => H::tell(next, message),
                    None if (self.primes.len() as u64) < self.block => self.primes.push(number),
                    None => self.next = Some(context.start(Filter::new(number, self.block))),
                }
            }
            ToFilter::End { mut found, mut reporter } => {
                found.primes += self.primes.len() as u64;
                found.sum += self.primes.iter().sum::<u64>();
                match &self.next {
                    Some(next) => H::tell(next, ToFilter::End { found, reporter }),
                    None => reporter.report(found),
                }
                context.stop();
            }
        }
    }
}
