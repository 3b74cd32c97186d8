//! `dictionary`: clients write to a dictionary and read from it, each request after the answer to the
//! previous one. Savina's `concdict`.
//!
//! ```text
//! master       start all │       wait for done × clients       │ end │ wait for the size
//! clients                │ read or write, wait for answer; × N │
//! dictionary             │ answers                             │     │ size
//! ```
//!
//! - A client has 512 keys of its own, so every read must return the client's last write to the key, or
//!   nothing. The dictionary starts empty.

use std::collections::HashMap;

use super::*;

pub(crate) struct Concurrent;

impl OnActors for Concurrent {
    async fn measure<H: ActorHost>(host: H, settings: Settings) -> Measured {
        let clients = settings.get("clients");
        let make = |reporter| Master {
            clients,
            requests: settings.count,
            writes_percent: settings.get("writes"),
            dictionary: None::<H::ActorAddress<Dictionary>>,
            report: Report::default(),
            reporter,
        };
        let (report, mut outcome) = measure(host, make).await;
        outcome.check("clients that are done", report.clients, clients);
        outcome.check("wrong answers", report.misread, 0);
        outcome.check("writes handled", report.handled, report.writes);
        outcome.check("entries of the dictionary", report.size, report.keys);
        Ok(outcome)
    }
}

#[derive(Default)]
struct Report {
    clients: u64,
    writes: u64,
    keys: u64,
    misread: u64,
    handled: u64,
    size: u64,
}

struct Master<H: ActorHost> {
    clients: u64,
    requests: u64,
    writes_percent: u64,
    dictionary: Option<H::ActorAddress<Dictionary>>,
    report: Report,
    reporter: Reporter<Report>,
}

enum ToMaster {
    Done { writes: u64, keys: u64, misread: u64 },
    Ended { handled: u64, size: u64 },
}

impl<H: ActorHost> Actor<H> for Master<H> {
    type Message = ToMaster;

    fn started(&mut self, context: &mut impl ActorContext<H, Self>) {
        let dictionary = context.start(Dictionary::default());
        for index in 0..self.clients {
            let (master, dictionary) = (context.address(), dictionary.clone());
            context.start(Client {
                index,
                requests: self.requests,
                writes_percent: self.writes_percent,
                master,
                dictionary,
                random: Random::of(index),
                sent: 0,
                due: 0,
                written: HashMap::new(),
                writes: 0,
                misread: 0,
            });
        }
        self.dictionary = Some(dictionary);
    }

    fn handle(&mut self, message: ToMaster, context: &mut impl ActorContext<H, Self>) {
        let report = &mut self.report;
        match message {
            ToMaster::Done { writes, keys, misread } => {
                report.clients += 1;
                report.writes += writes;
                report.keys += keys;
                report.misread += misread;
                if let Some(dictionary) = &self.dictionary
                    && report.clients == self.clients
                {
                    H::tell(dictionary, ToDictionary::End { master: context.address() });
                }
            }
            ToMaster::Ended { handled, size } => {
                (report.handled, report.size) = (handled, size);
                self.reporter.report(std::mem::take(report));
                context.stop();
            }
        }
    }
}

#[derive(Default)]
struct Dictionary {
    entries: HashMap<u64, u64>,
    handled: u64,
}

enum ToDictionary<H: ActorHost> {
    Read { key: u64, client: H::ActorAddress<Client<H>> },
    Write { key: u64, value: u64, client: H::ActorAddress<Client<H>> },
    End { master: H::ActorAddress<Master<H>> },
}

impl<H: ActorHost> Actor<H> for Dictionary {
    type Message = ToDictionary<H>;

    fn handle(&mut self, message: ToDictionary<H>, context: &mut impl ActorContext<H, Self>) {
        match message {
            ToDictionary::Read { key, client } => {
                H::tell(&client, Answer(self.entries.get(&key).copied().unwrap_or(NONE)));
            }
            ToDictionary::Write { key, value, client } => {
                self.handled += 1;
                self.entries.insert(key, value);
                H::tell(&client, Answer(value));
            }
            ToDictionary::End { master } => {
                let (handled, size) = (self.handled, self.entries.len() as u64);
                H::tell(&master, ToMaster::Ended { handled, size });
                context.stop();
            }
        }
    }
}

/// The answer to a read of a key that was never written; no value is zero.
const NONE: u64 = 0;

struct Client<H: ActorHost> {
    index: u64,
    requests: u64,
    writes_percent: u64,
    master: H::ActorAddress<Master<H>>,
    dictionary: H::ActorAddress<Dictionary>,
    random: Random,
    sent: u64,
    due: u64,
    written: HashMap<u64, u64>,
    writes: u64,
    misread: u64,
}

struct Answer(u64);

impl<H: ActorHost> Client<H> {
    fn request(&mut self, client: H::ActorAddress<Self>) {
        self.sent += 1;
        let is_write = self.random.below(100) < self.writes_percent;
        let key = self.index * 65_536 + u64::from(self.random.next() / 128);
        let request = if is_write {
            self.due = self.sent;
            self.writes += 1;
            self.written.insert(key, self.sent);
            ToDictionary::Write { key, value: self.sent, client }
        } else {
            self.due = self.written.get(&key).copied().unwrap_or(NONE);
            ToDictionary::Read { key, client }
        };
        H::tell(&self.dictionary, request);
    }
}

impl<H: ActorHost> Actor<H> for Client<H> {
    type Message = Answer;

    fn started(&mut self, context: &mut impl ActorContext<H, Self>) {
        self.request(context.address());
    }

    fn handle(&mut self, Answer(value): Answer, context: &mut impl ActorContext<H, Self>) {
        self.misread += u64::from(value != self.due);
        if self.sent < self.requests {
            return self.request(context.address());
        }
        let (writes, keys, misread) = (self.writes, self.written.len() as u64, self.misread);
        H::tell(&self.master, ToMaster::Done { writes, keys, misread });
        context.stop();
    }
}
