//! `chameneos`: a mall pairs creatures that ask for a meeting; both take the colour that the meeting makes.
//!
//! ```text
//! creature a ── meet ─→ mall                         a waits in the mall
//! creature b ── meet ─→ mall ── meet b ─→ a ── change ─→ b     both ask again
//! creature   ── meet ─→ mall ── over ─→ creature ── report ─→ mall    no meetings are left
//! ```
//!
//! - Two creatures of one colour keep it; two of different colours take the third.
//! - The mall counts the meetings of each creature itself, and computes its colour: each request must have
//!   this colour, and each report this number.

use super::*;

pub(crate) struct Chameneos;

impl Chameneos {
    /// Number of creatures: two at least, as a meeting needs two.
    fn creatures(settings: &Settings) -> u64 {
        settings.get("creatures").max(2)
    }
}

impl OnActors for Chameneos {
    async fn measure<H: ActorHost>(host: H, settings: Settings) -> Measured {
        let (meetings, creatures) = (settings.count, Chameneos::creatures(&settings));
        let make = |reporter| Mall::<H>::new(creatures, meetings, reporter);
        let (report, mut outcome) = measure(host, make).await;
        outcome.check("creatures that reported", report.creatures, creatures);
        outcome.check("meetings of all creatures", report.meetings, 2 * meetings);
        outcome.check("creatures that met themselves", report.selves, 0);
        outcome.check("creatures whose count is not the mall's", report.miscounted, 0);
        outcome.check("colours that no meeting made", report.miscoloured, 0);
        Ok(outcome)
    }
}

type Colour = u8;

/// The colour that a meeting makes.
fn complement(one: Colour, other: Colour) -> Colour {
    if one == other { one } else { 3 - one - other }
}

#[derive(Default)]
struct Report {
    creatures: u64,
    meetings: u64,
    selves: u64,
    miscounted: u64,
    miscoloured: u64,
}

struct Guest<H: ActorHost> {
    address: H::ActorAddress<Creature<H>>,
    colour: Colour,
    meetings: u64,
}

struct Mall<H: ActorHost> {
    creatures: u64,
    meetings: u64,
    guests: Vec<Guest<H>>,
    waiting: Option<usize>,
    report: Report,
    reporter: Reporter<Report>,
}

enum ToMall {
    Meet { creature: usize, colour: Colour },
    Report { creature: usize, meetings: u64, selves: u64 },
}

impl<H: ActorHost> Mall<H> {
    fn new(creatures: u64, meetings: u64, reporter: Reporter<Report>) -> Self {
        let report = Report::default();
        Self { creatures, meetings, guests: Vec::new(), waiting: None, report, reporter }
    }

    fn meet(&mut self, creature: usize) {
        if self.meetings == 0 {
            return H::tell(&self.guests[creature].address, ToCreature::Over);
        }
        let Some(waiting) = self.waiting.take() else {
            self.waiting = Some(creature);
            return;
        };
        self.meetings -= 1;
        let Guest { address: partner, colour, .. } = &self.guests[creature];
        let (partner, colour) = (partner.clone(), *colour);
        let meet = ToCreature::Meet { partner, creature, colour };
        H::tell(&self.guests[waiting].address, meet);
        let made = complement(self.guests[waiting].colour, colour);
        for index in [waiting, creature] {
            self.guests[index].colour = made;
            self.guests[index].meetings += 1;
        }
    }
}

impl<H: ActorHost> Actor<H> for Mall<H> {
    type Message = ToMall;

    fn started(&mut self, context: &mut impl ActorContext<H, Self>) {
        for index in 0..self.creatures as usize {
            let (mall, colour) = (context.address(), (index % 3) as Colour);
            let creature = Creature { mall, index, colour, meetings: 0, selves: 0 };
            let address = context.start(creature);
            self.guests.push(Guest { address, colour, meetings: 0 });
        }
    }

    fn handle(&mut self, message: ToMall, context: &mut impl ActorContext<H, Self>) {
        match message {
            ToMall::Meet { creature, colour } => {
                self.report.miscoloured += u64::from(colour != self.guests[creature].colour);
                self.meet(creature);
            }
            ToMall::Report { creature, meetings, selves } => {
                let report = &mut self.report;
                report.creatures += 1;
                report.meetings += meetings;
                report.selves += selves;
                report.miscounted += u64::from(meetings != self.guests[creature].meetings);
                if report.creatures == self.creatures {
                    self.reporter.report(std::mem::take(report));
                    context.stop();
                }
            }
        }
    }
}

struct Creature<H: ActorHost> {
    mall: H::ActorAddress<Mall<H>>,
    index: usize,
    colour: Colour,
    meetings: u64,
    selves: u64,
}

enum ToCreature<H: ActorHost> {
    Meet { partner: H::ActorAddress<Creature<H>>, creature: usize, colour: Colour },
    Change { creature: usize, colour: Colour },
    Over,
}

impl<H: ActorHost> Creature<H> {
    fn ask(&self) {
        H::tell(&self.mall, ToMall::Meet { creature: self.index, colour: self.colour });
    }

    fn change(&mut self, partner: usize, colour: Colour) {
        self.colour = colour;
        self.meetings += 1;
        self.selves += u64::from(partner == self.index);
    }
}

impl<H: ActorHost> Actor<H> for Creature<H> {
    type Message = ToCreature<H>;

    fn started(&mut self, _: &mut impl ActorContext<H, Self>) {
        self.ask();
    }

    fn handle(&mut self, message: ToCreature<H>, context: &mut impl ActorContext<H, Self>) {
        match message {
            ToCreature::Meet { partner, creature, colour } => {
                self.change(creature, complement(self.colour, colour));
                let (creature, colour) = (self.index, self.colour);
                H::tell(&partner, ToCreature::Change { creature, colour });
                self.ask();
            }
            ToCreature::Change { creature, colour } => {
                self.change(creature, colour);
                self.ask();
            }
            ToCreature::Over => {
                let Self { index: creature, meetings, selves, .. } = *self;
                H::tell(&self.mall, ToMall::Report { creature, meetings, selves });
                context.stop();
            }
        }
    }
}
