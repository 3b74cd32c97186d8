//! The workloads: their work, their metrics, and the runtimes that implement them.
//!
//! A workload's file holds its definition and everything that must be the same for every runtime:
//! the order of work, the clocks and the checks. Each file below it, or below `service` for the
//! workloads that call services, implements the steps on a runtime. A [shape](shape::Shape) needs no
//! file per runtime: it is written in terms of services, receivers, actors and clients. To add a
//! workload, add its file, a file per runtime unless it is a shape, and a line in [`ALL`].

mod account;
pub(crate) mod activate;
mod actor;
mod answer;
pub(crate) mod burst;
pub(crate) mod call;
pub(crate) mod calls;
pub(crate) mod chat;
pub(crate) mod children;
pub(crate) mod churn;
mod clients;
mod collector;
mod durable;
pub(crate) mod durable_live;
pub(crate) mod durable_rest;
pub(crate) mod durable_turns;
pub(crate) mod fairness;
pub(crate) mod fan;
pub(crate) mod first_call;
pub(crate) mod http;
pub(crate) mod http_social;
pub(crate) mod latency;
pub(crate) mod message_node;
pub(crate) mod monitors;
pub(crate) mod outside;
pub(crate) mod pairs;
pub(crate) mod processes;
mod receiver;
pub(crate) mod records;
mod relay;
pub(crate) mod ring;
pub(crate) mod savina;
pub(crate) mod send;
pub(crate) mod send_cost;
pub(crate) mod send_then_call;
pub(crate) mod served;
mod service;
mod shape;
pub(crate) mod skynet;
pub(crate) mod sleep;
pub(crate) mod social;
pub(crate) mod spawn;
pub(crate) mod store_get;
pub(crate) mod store_mega;
pub(crate) mod store_put;
mod store_read;
pub(crate) mod store_recover;
pub(crate) mod store_rest;
pub(crate) mod store_scan;
pub(crate) mod store_update;
pub(crate) mod tally;
pub(crate) mod tasks;
pub(crate) mod timers;

use crate::foreign;
use crate::peer::Peer;
use crate::settings::{ALLOCATOR, Key, Settings};

/// A benchmark that several runtimes implement.
#[derive(Debug)]
pub(crate) struct Workload {
    pub(crate) name: &'static str,
    pub(crate) about: &'static str,
    /// Name of the unit that `--count` counts.
    pub(crate) counts: &'static str,
    /// Default of `--count`.
    pub(crate) count: u64,
    /// The workload's own settings.
    pub(crate) keys: &'static [Key],
    /// Names of the metrics, in the order of the table, separated by white space. A name that ends with `?` is of
    /// a metric that some settings leave out.
    pub(crate) metrics: &'static str,
    /// Number of processes that the workload starts, at most; some runtimes must know it before.
    pub(crate) processes: fn(&Settings) -> u64,
    /// The peers in this program.
    pub(crate) peers: &'static [Peer],
}

/// A measured quantity. Lower is better, except for rates, whose unit is `1/s`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Metric {
    pub(crate) name: &'static str,
    /// Whether some settings leave it out.
    pub(crate) is_optional: bool,
}

impl Metric {
    /// The unit, derived from the end of the name: `1/s`, `ns`, `s`, `1` per call, or else `bytes`.
    pub(crate) fn unit(self) -> &'static str {
        let ends = [("_per_s", "1/s"), ("_ns", "ns"), ("_s", "s"), ("_per_call", "1")];
        let end = ends.iter().find(|(end, _)| self.name.ends_with(end));
        end.map_or("bytes", |(_, unit)| unit)
    }

    /// Whether higher is better.
    pub(crate) fn is_rate(self) -> bool {
        self.unit() == "1/s"
    }
}

/// All workloads, in the order of `list`.
pub(crate) const ALL: &[&Workload] = &[
    &processes::WORKLOAD,
    &spawn::WORKLOAD,
    &send::WORKLOAD,
    &send_cost::WORKLOAD,
    &call::WORKLOAD,
    &churn::WORKLOAD,
    &sleep::WORKLOAD,
    &tasks::WORKLOAD,
    &pairs::WORKLOAD,
    &ring::WORKLOAD,
    &calls::WORKLOAD,
    &outside::WORKLOAD,
    &first_call::WORKLOAD,
    &send_then_call::WORKLOAD,
    &http::WORKLOAD,
    &http_social::WORKLOAD,
    &chat::WORKLOAD,
    &fan::WORKLOAD,
    &burst::WORKLOAD,
    &fairness::WORKLOAD,
    &skynet::WORKLOAD,
    &monitors::WORKLOAD,
    &timers::WORKLOAD,
    &children::WORKLOAD,
    &social::WORKLOAD,
    &savina::chameneos::WORKLOAD,
    &savina::big::WORKLOAD,
    &savina::dictionary::WORKLOAD,
    &savina::buffer::WORKLOAD,
    &savina::philosophers::WORKLOAD,
    &savina::barber::WORKLOAD,
    &savina::smokers::WORKLOAD,
    &savina::banking::WORKLOAD,
    &savina::sieve::WORKLOAD,
    &savina::queens::WORKLOAD,
    &store_mega::WORKLOAD,
    &store_put::WORKLOAD,
    &store_get::WORKLOAD,
    &store_scan::WORKLOAD,
    &store_update::WORKLOAD,
    &store_rest::WORKLOAD,
    &store_recover::WORKLOAD,
    &durable_turns::WORKLOAD,
    &durable_live::WORKLOAD,
    &activate::WORKLOAD,
    &durable_rest::WORKLOAD,
];

/// The client of a workload whose server is another process.
pub(crate) fn client(name: &str) -> Option<served::Client> {
    match name {
        "http-social" => Some(http_social::client),
        "chat" => Some(chat::client),
        _ => None,
    }
}

/// The function that prepares the data of a workload's server in a process of its own.
pub(crate) fn seed(name: &str) -> Option<served::Seed> {
    match name {
        "chat" => Some(chat::seed),
        _ => None,
    }
}

/// Finds a workload by its name.
pub(crate) fn find(name: &str) -> Option<&'static Workload> {
    ALL.iter().copied().find(|workload| workload.name == name)
}

impl Workload {
    /// The metrics, in the order of the table.
    pub(crate) fn metrics(&self) -> impl Iterator<Item = Metric> + use<> {
        self.metrics.split_whitespace().map(|name| {
            let without_mark = name.strip_suffix('?');
            Metric { name: without_mark.unwrap_or(name), is_optional: without_mark.is_some() }
        })
    }

    /// All settings: the workload's own, then the setting that every workload has.
    pub(crate) fn all_keys(&self) -> impl Iterator<Item = &'static Key> + use<> {
        self.keys.iter().chain([&ALLOCATOR])
    }

    /// Finds a setting of the workload by its name.
    pub(crate) fn key(&self, name: &str) -> Option<&'static Key> {
        self.all_keys().find(|key| key.name == name)
    }

    /// All peers: those in this program, then those in other languages.
    pub(crate) fn all_peers(&self) -> impl Iterator<Item = Peer> + use<> {
        self.peers.iter().copied().chain(foreign::peers(self))
    }

    /// Finds the workload's peer for a runtime.
    pub(crate) fn peer(&self, runtime: &str) -> Option<Peer> {
        self.all_peers().find(|peer| peer.runtime == runtime)
    }
}
