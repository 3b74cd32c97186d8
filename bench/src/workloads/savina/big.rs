//! `big`: actors send pings to random others, one at a time, and answer the pings of others meanwhile.
//!
//! ```text
//! sink     start all │ peers │ begin │        wait for done × actors        │ exit │ wait for reports
//! actors                     │ ping a random other, wait for its pong; × N  │ report
//! ```
//!
//! - A pong has the number of its ping, which must be the ping that the actor waits for.
//! - The sink sends all addresses to every actor before it lets the first begin.

use std::sync::Arc;

use super::*;

pub(crate) struct Big;

impl OnActors for Big {
    async fn measure<H: ActorHost>(host: H, settings: Settings) -> Measured {
        let (pings, actors) = (settings.count, settings.get("actors"));
        let make = |reporter| Sink::<H>::new(actors, pings, reporter);
        let (report, mut outcome) = measure(host, make).await;
        outcome.check("actors that reported", report.actors, actors);
        outcome.check("pings received", report.pings, pings * actors);
        outcome.check("pongs received", report.pongs, pings * actors);
        outcome.check("pongs without their ping", report.misplaced, 0);
        Ok(outcome)
    }
}

#[derive(Default)]
struct Report {
    actors: u64,
    pings: u64,
    pongs: u64,
    misplaced: u64,
}

impl Report {
    fn add(&mut self, other: &Report) {
        self.actors += other.actors;
        self.pings += other.pings;
        self.pongs += other.pongs;
        self.misplaced += other.misplaced;
    }
}

struct Sink<H: ActorHost> {
    actors: u64,
    pings: u64,
    peers: Peers<H>,
    done: u64,
    report: Report,
    reporter: Reporter<Report>,
}

type Peers<H> = Arc<[<H as ActorHost>::ActorAddress<Pinger<H>>]>;

enum ToSink {
    Done,
    Report(Report),
}

impl<H: ActorHost> Sink<H> {
    fn new(actors: u64, pings: u64, reporter: Reporter<Report>) -> Self {
        let (peers, report) = (Arc::new([]), Report::default());
        Self { actors, pings, peers, done: 0, report, reporter }
    }
}

impl<H: ActorHost> Actor<H> for Sink<H> {
    type Message = ToSink;

    fn started(&mut self, context: &mut impl ActorContext<H, Self>) {
        let sink = context.address();
        let pinger = |index| Pinger::new(index as usize, self.pings, sink.clone());
        self.peers = (0..self.actors).map(|index| context.start(pinger(index))).collect();
        for peer in self.peers.iter() {
            H::tell(peer, ToPinger::Peers(Arc::clone(&self.peers)));
        }
        for peer in self.peers.iter() {
            H::tell(peer, ToPinger::Begin);
        }
    }

    fn handle(&mut self, message: ToSink, context: &mut impl ActorContext<H, Self>) {
        match message {
            ToSink::Done => {
                self.done += 1;
                if self.done == self.actors {
                    self.peers.iter().for_each(|peer| H::tell(peer, ToPinger::Exit));
                }
            }
            ToSink::Report(report) => {
                self.report.add(&report);
                if self.report.actors == self.actors {
                    self.reporter.report(std::mem::take(&mut self.report));
                    context.stop();
                }
            }
        }
    }
}

struct Pinger<H: ActorHost> {
    index: usize,
    pings: u64,
    sink: H::ActorAddress<Sink<H>>,
    peers: Peers<H>,
    random: Random,
    report: Report,
}

enum ToPinger<H: ActorHost> {
    Peers(Peers<H>),
    Begin,
    Ping { from: usize, number: u64 },
    Pong { number: u64 },
    Exit,
}

impl<H: ActorHost> Pinger<H> {
    fn new(index: usize, pings: u64, sink: H::ActorAddress<Sink<H>>) -> Self {
        let (peers, random) = (Arc::new([]), Random::of(index as u64));
        Self { index, pings, sink, peers, random, report: Report::default() }
    }

    /// Sends the next ping to a random other actor; if there is no other, to this actor.
    fn ping(&mut self) {
        let actors = self.peers.len();
        let step = 1 + self.random.below((actors as u64 - 1).max(1)) as usize;
        let (from, number) = (self.index, self.report.pongs);
        H::tell(&self.peers[(from + step) % actors], ToPinger::Ping { from, number });
    }
}

impl<H: ActorHost> Actor<H> for Pinger<H> {
    type Message = ToPinger<H>;

    fn handle(&mut self, message: ToPinger<H>, context: &mut impl ActorContext<H, Self>) {
        match message {
            ToPinger::Peers(peers) => self.peers = peers,
            ToPinger::Begin => self.ping(),
            ToPinger::Ping { from, number } => {
                self.report.pings += 1;
                H::tell(&self.peers[from], ToPinger::Pong { number });
            }
            ToPinger::Pong { number } => {
                self.report.misplaced += u64::from(number != self.report.pongs);
                self.report.pongs += 1;
                if self.report.pongs == self.pings {
                    H::tell(&self.sink, ToSink::Done);
                } else {
                    self.ping();
                }
            }
            ToPinger::Exit => {
                self.report.actors = 1;
                H::tell(&self.sink, ToSink::Report(std::mem::take(&mut self.report)));
                context.stop();
            }
        }
    }
}
