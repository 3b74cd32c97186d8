//! The rows of each workload, which `runtimes.toml` lists. Each file below starts a runtime in Rust and runs the
//! workload's driver as a process of it.

pub(crate) mod actix;
pub(crate) mod kameo;
pub(crate) mod ractor;
pub(crate) mod smol;
pub(crate) mod tellus;
pub(crate) mod threads;
pub(crate) mod throng;
pub(crate) mod tokio;
pub(crate) mod xtra;

use std::collections::BTreeMap;
use std::pin::Pin;
use std::sync::LazyLock;

use bench_steps::Error;
use serde::Deserialize;

use crate::foreign::ForeignRuntime;
use crate::limits::Limit;
use crate::outcome::Outcome;
use crate::peer::{Peer, Program, Threads};

pub(crate) type Measured = Result<Outcome, Error>;

/// A workload's driver, as a future.
pub(crate) trait Work: Future<Output = Measured> + Send + 'static {}

impl<F: Future<Output = Measured> + Send + 'static> Work for F {}

/// A driver without its type. The compiler then makes one copy of a runtime's start for all workloads: with a copy
/// for each, the library took a third longer to compile.
pub(crate) type AnyWork = Pin<Box<dyn Work>>;

#[derive(Deserialize)]
#[serde(deny_unknown_fields, bound(deserialize = "'de: 'static"))]
struct Table {
    lists: BTreeMap<&'static str, &'static str>,
    row: Vec<Row>,
    foreign: Vec<ForeignRuntime>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Row {
    name: &'static str,
    #[serde(default)]
    about: &'static str,
    class: &'static str,
    version: &'static str,
    #[serde(default)]
    threads: Threads,
    workloads: &'static str,
    #[serde(default)]
    words: &'static str,
    #[serde(default)]
    limits: Vec<Limit>,
}

static TABLE: LazyLock<Table> =
    LazyLock::new(|| parse("runtimes.toml", include_str!("../runtimes.toml")));

/// Parses a file of this program's data.
pub(crate) fn parse<T: Deserialize<'static>>(name: &str, text: &'static str) -> T {
    toml::from_str(text).unwrap_or_else(|error| panic!("{name}: {error}"))
}

pub(crate) fn foreign() -> &'static [ForeignRuntime] {
    &TABLE.foreign
}

/// Whether a list of workloads, some of them by the name of a list, has a workload.
pub(crate) fn has(workloads: &str, name: &str) -> bool {
    workloads.split(' ').any(|listed| match listed.strip_prefix('@') {
        Some(list) => has(TABLE.lists.get(list).copied().unwrap_or_default(), name),
        None => listed == name,
    })
}

/// The peers of a workload: those in this program, then those in other languages.
pub(crate) fn peers(workload: &str) -> impl Iterator<Item = Peer> {
    let here = TABLE.row.iter().filter(move |row| has(row.workloads, workload)).map(|row| Peer {
        runtime: row.name,
        about: row.about,
        class: row.class,
        program: Program::Here { version: row.version, threads: row.threads },
        words: row.words,
        limits: &row.limits,
    });
    here.chain(TABLE.foreign.iter().flat_map(move |runtime| runtime.peers(workload)))
}

pub(crate) fn peer(workload: &str, row: &str) -> Option<Peer> {
    peers(workload).find(|peer| peer.runtime == row)
}

/// Returns the runtime's part of a row's name, such as `tokio` of `tokio-kanal`.
pub(crate) fn family(row: &str) -> &str {
    row.split(['-', '+']).next().unwrap_or(row)
}

/// Whether a row has other settings than a row of the same runtime in the same workload.
pub(crate) fn is_tuned(workload: &str, row: &str) -> bool {
    let is_longer = |name| row.strip_prefix(name).is_some_and(|more| more.starts_with(['-', '+']));
    peers(workload).any(|peer| is_longer(peer.runtime))
}

/// The versions of packages, of which several are separated by ` + `.
pub(crate) fn version(packages: &str) -> String {
    let of = |package: &str| {
        let mut known = env!("VERSIONS").split(' ').filter_map(|known| known.split_once('='));
        known.find(|(name, _)| *name == package).map_or("unknown", |(_, version)| version)
    };
    packages.split(" + ").map(of).collect::<Vec<_>>().join(" + ")
}

/// The error of a row or a workload that `runtimes.toml` lists, and this program lacks.
pub(crate) fn no_row(name: &str) -> Error {
    format!("this program has no code for {name}").into()
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;
    use crate::settings::Kind;
    use crate::workloads;

    /// The classes that README.md explains.
    const CLASSES: [&str; 6] =
        ["timer", "stackless task", "actor", "green thread", "OS thread", "isolated process"];

    #[test]
    fn every_row_has_a_name_of_its_own_in_each_workload_a_class_a_version_and_known_words() {
        for workload in workloads::all() {
            let mut seen = HashSet::new();
            for peer in peers(workload.name) {
                let context = format!("{}: {}", workload.name, peer.runtime);
                assert!(seen.insert(peer.runtime), "{context}");
                assert!(CLASSES.contains(&peer.class), "{context}");
                if let Program::Here { version, .. } = peer.program {
                    assert!(!super::version(version).contains("unknown"), "{context}");
                }
                let of_limits = peer.limits.iter().flat_map(|limit| limit.workloads.split(' '));
                assert!(
                    of_limits.into_iter().all(|name| peer_exists(name, peer.runtime)),
                    "{context}"
                );
                for limit in peer.limits.iter().filter(|limit| has(limit.workloads, workload.name))
                {
                    let is_number = |kind| matches!(kind, Kind::Number(_) | Kind::Count(_));
                    let key = workload.key(limit.setting).map(|key| key.kind);
                    assert!(key.is_some_and(is_number) || limit.setting == "count", "{context}");
                }
            }
            assert!(seen.contains("throng"), "{}", workload.name);
        }
        let words =
            TABLE.row.iter().flat_map(|row| row.words.split(' ')).filter(|word| !word.is_empty());
        for word in words {
            let keys = workloads::all().iter().flat_map(|workload| &workload.keys);
            assert!(keys.into_iter().any(|key| key.kind.parse(word).is_some()), "{word}");
        }
    }

    fn peer_exists(workload: &str, row: &str) -> bool {
        peer(workload, row).is_some()
    }

    #[test]
    fn every_list_has_names_of_workloads() {
        let of_rows = TABLE.row.iter().map(|row| row.workloads);
        let of_foreign = TABLE.foreign.iter().map(|runtime| runtime.workloads);
        for listed in of_rows.chain(of_foreign).chain(TABLE.lists.values().copied()) {
            for name in listed.split(' ') {
                let is_known = match name.strip_prefix('@') {
                    Some(list) => TABLE.lists.contains_key(list),
                    None => workloads::find(name).is_some(),
                };
                assert!(is_known, "{name}");
            }
        }
    }
}
