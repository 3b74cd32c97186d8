//! The workloads: what each does, what it measures, and which runtimes can do it.
//!
//! A workload's file holds its definition and everything that must be the same for every runtime:
//! the order of work, the clocks and the checks. The files below it, or below `service` for those
//! that call services, say how one runtime does each step. To add a workload, add its file, one file
//! per runtime, and a line in [`ALL`].

pub(crate) mod call;
pub(crate) mod churn;
mod latency;
pub(crate) mod records;
pub(crate) mod send;
mod service;
pub(crate) mod sleep;
pub(crate) mod spawn;
pub(crate) mod store_get;
pub(crate) mod store_mega;
pub(crate) mod store_put;
mod store_read;
pub(crate) mod store_rest;
pub(crate) mod store_scan;
pub(crate) mod tally;

use crate::peer::Peer;
use crate::settings::Key;

/// One thing that runtimes can be compared by.
#[derive(Debug)]
pub(crate) struct Workload {
    pub(crate) name: &'static str,
    pub(crate) about: &'static str,
    /// What `--count` counts.
    pub(crate) counts: &'static str,
    /// How many of those unless `--count` says.
    pub(crate) count: u64,
    pub(crate) keys: &'static [Key],
    /// The names of the measured quantities, in the order of the table, separated by white space.
    pub(crate) metrics: &'static str,
    pub(crate) peers: &'static [Peer],
}

/// A measured quantity; less is better, except for rates, whose unit is `1/s`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Metric {
    pub(crate) name: &'static str,
}

impl Metric {
    /// The unit, which the name ends in or contains.
    pub(crate) fn unit(self) -> &'static str {
        let ends: [(&str, &str); 3] = [("_per_s", "1/s"), ("_ns", "ns"), ("_s", "s")];
        let end = ends.iter().find(|(end, _)| self.name.ends_with(end));
        end.map_or("bytes", |(_, unit)| unit)
    }
}

/// Every workload, in the order in which they are listed.
pub(crate) const ALL: &[&Workload] = &[
    &spawn::WORKLOAD,
    &send::WORKLOAD,
    &call::WORKLOAD,
    &churn::WORKLOAD,
    &sleep::WORKLOAD,
    &store_mega::WORKLOAD,
    &store_put::WORKLOAD,
    &store_get::WORKLOAD,
    &store_scan::WORKLOAD,
    &store_rest::WORKLOAD,
];

/// The workload of this name.
pub(crate) fn find(name: &str) -> Option<&'static Workload> {
    ALL.iter().copied().find(|workload| workload.name == name)
}

impl Workload {
    /// The measured quantities, in the order of the table.
    pub(crate) fn metrics(&self) -> impl Iterator<Item = Metric> + use<> {
        self.metrics.split_whitespace().map(|name| Metric { name })
    }

    /// The workload's setting of this name.
    pub(crate) fn key(&self, name: &str) -> Option<&'static Key> {
        self.keys.iter().find(|key| key.name == name)
    }

    /// How this runtime does the workload.
    pub(crate) fn peer(&self, runtime: &str) -> Option<&'static Peer> {
        self.peers.iter().find(|peer| peer.runtime == runtime)
    }
}
