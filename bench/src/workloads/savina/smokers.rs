//! `smokers`: an arbiter lets one random smoker after another smoke. Savina's `cigsmok`.
//!
//! ```text
//! arbiter ── smoke, for a random time ─→ smoker ── started ─→ arbiter ── smoke ─→ another …
//!                                        busy
//! arbiter ── exit ─→ all smokers, each ── smoked ─→ arbiter
//! ```
//!
//! - The arbiter goes on when a smoker has begun, so several may be busy at a time.
//! - Each smoker must have smoked as often as the arbiter chose it.

use super::*;

pub(crate) struct Smoking;

impl OnActors for Smoking {
    async fn measure<H: ActorHost>(host: H, settings: Settings) -> Measured {
        let (rounds, smokers) = (settings.count, settings.get("smokers"));
        let make = |reporter| Arbiter::<H> {
            rounds,
            chosen: vec![0; smokers as usize],
            smokers: Vec::new(),
            random: Random::of(0),
            report: Report::default(),
            reporter,
        };
        let (report, mut outcome) = measure(host, make).await;
        outcome.check("rounds", report.rounds, rounds);
        outcome.check("smokers that reported", report.smokers, smokers);
        outcome.check("times that they smoked", report.smoked, rounds);
        outcome.check("smokers that smoked more or less than chosen", report.wrong, 0);
        Ok(outcome)
    }
}

/// Numbers of steps for which a smoker may be busy.
const BUSY: std::ops::Range<u64> = 10..1010;

#[derive(Default)]
struct Report {
    rounds: u64,
    smokers: u64,
    smoked: u64,
    wrong: u64,
}

struct Arbiter<H: ActorHost> {
    rounds: u64,
    /// Number of times that the arbiter chose each smoker.
    chosen: Vec<u64>,
    smokers: Vec<H::ActorAddress<Smoker<H>>>,
    random: Random,
    report: Report,
    reporter: Reporter<Report>,
}

enum ToArbiter {
    Started,
    Smoked { smoker: usize, times: u64 },
}

impl<H: ActorHost> Arbiter<H> {
    fn choose(&mut self) {
        let smoker = self.random.below(self.chosen.len() as u64) as usize;
        let steps = self.random.below(BUSY.end - BUSY.start) + BUSY.start;
        self.chosen[smoker] += 1;
        H::tell(&self.smokers[smoker], ToSmoker::Smoke { steps });
    }
}

impl<H: ActorHost> Actor<H> for Arbiter<H> {
    type Message = ToArbiter;

    fn started(&mut self, context: &mut impl ActorContext<H, Self>) {
        for index in 0..self.chosen.len() {
            let smoker = Smoker { index, arbiter: context.address(), times: 0 };
            self.smokers.push(context.start(smoker));
        }
        self.choose();
    }

    fn handle(&mut self, message: ToArbiter, context: &mut impl ActorContext<H, Self>) {
        match message {
            ToArbiter::Started => {
                self.report.rounds += 1;
                if self.report.rounds < self.rounds {
                    self.choose();
                } else {
                    self.smokers.iter().for_each(|smoker| H::tell(smoker, ToSmoker::Exit));
                }
            }
            ToArbiter::Smoked { smoker, times } => {
                self.report.smokers += 1;
                self.report.smoked += times;
                self.report.wrong += u64::from(times != self.chosen[smoker]);
                if self.report.smokers == self.chosen.len() as u64 {
                    self.reporter.report(std::mem::take(&mut self.report));
                    context.stop();
                }
            }
        }
    }
}

struct Smoker<H: ActorHost> {
    index: usize,
    arbiter: H::ActorAddress<Arbiter<H>>,
    times: u64,
}

enum ToSmoker {
    Smoke { steps: u64 },
    Exit,
}

impl<H: ActorHost> Actor<H> for Smoker<H> {
    type Message = ToSmoker;

    fn handle(&mut self, message: ToSmoker, context: &mut impl ActorContext<H, Self>) {
        match message {
            ToSmoker::Smoke { steps } => {
                H::tell(&self.arbiter, ToArbiter::Started);
                busy(steps);
                self.times += 1;
            }
            ToSmoker::Exit => {
                let (smoker, times) = (self.index, self.times);
                H::tell(&self.arbiter, ToArbiter::Smoked { smoker, times });
                context.stop();
            }
        }
    }
}
