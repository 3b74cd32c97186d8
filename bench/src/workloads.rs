//! The workloads: `workloads.toml` has their names, settings and metrics, and each file below the program of one.
//!
//! A file holds everything that must be the same for every runtime: the order of work, the clocks and the checks. To
//! add a workload, add its file, an entry in `workloads.toml`, a line in [`run`], and its rows in `runtimes.toml`.

pub(crate) mod account;
pub(crate) mod activate;
pub(crate) mod answer;
pub(crate) mod call;
pub(crate) mod chat;
pub(crate) mod children;
pub(crate) mod churn;
pub(crate) mod clients;
pub(crate) mod collector;
pub(crate) mod durable;
pub(crate) mod durable_http;
pub(crate) mod durable_live;
pub(crate) mod durable_rest;
pub(crate) mod durable_send;
pub(crate) mod durable_turns;
pub(crate) mod fairness;
pub(crate) mod http;
pub(crate) mod http_social;
pub(crate) mod message_node;
pub(crate) mod monitors;
pub(crate) mod once;
pub(crate) mod part;
pub(crate) mod processes;
pub(crate) mod queue;
pub(crate) mod records;
pub(crate) mod relay;
pub(crate) mod reminders;
pub(crate) mod savina;
pub(crate) mod selective;
pub(crate) mod send;
pub(crate) mod send_cost;
pub(crate) mod served;
pub(crate) mod skynet;
pub(crate) mod sleep;
pub(crate) mod social;
pub(crate) mod spawn;
pub(crate) mod store_get;
pub(crate) mod store_mega;
pub(crate) mod store_put;
pub(crate) mod store_read;
pub(crate) mod store_recover;
pub(crate) mod store_rest;
pub(crate) mod store_scan;
pub(crate) mod store_update;
pub(crate) mod tally;
pub(crate) mod tasks;
pub(crate) mod timers;
pub(crate) mod traffic;
pub(crate) mod workflow;

use std::cmp::Ordering;
use std::sync::LazyLock;

pub(crate) use bench_steps::latency;

use serde::Deserialize;

use crate::host::{on_actors, on_host};
use crate::runtimes::{self, Measured};
use crate::settings::{ALLOCATOR, Key, Settings};

/// The terms in which every workload is written: what it is given, reads, and returns.
mod prelude {
    pub(super) use super::latency;
    pub(super) use crate::memory;
    pub(super) use crate::outcome::Outcome;
    pub(super) use crate::runtimes::{self, Measured};
    pub(super) use crate::settings::Settings;
}

#[derive(Deserialize, Debug)]
#[serde(deny_unknown_fields)]
pub(crate) struct Workload {
    pub(crate) name: &'static str,
    pub(crate) about: &'static str,
    pub(crate) counts: &'static str,
    pub(crate) count: u64,
    #[serde(default)]
    pub(crate) keys: Vec<Key>,
    metrics: &'static str,
    /// When the clocks of the metrics stop, and what is checked.
    #[serde(default)]
    pub(crate) measures: &'static str,
    /// Number of processes that the workload starts, at most: see [`Settings::processes`].
    pub(crate) processes: Option<&'static str>,
}

/// A measured quantity. Lower is better, except for rates, whose unit is `1/s`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Metric {
    pub(crate) name: &'static str,
    /// Whether some settings leave it out.
    pub(crate) is_optional: bool,
}

impl Metric {
    pub(crate) fn unit(self) -> &'static str {
        unit(self.name)
    }

    pub(crate) fn is_rate(self) -> bool {
        self.unit() == "1/s"
    }

    /// The order of two values, the better first.
    pub(crate) fn order(self, a: f64, b: f64) -> Ordering {
        if self.is_rate() { b.total_cmp(&a) } else { a.total_cmp(&b) }
    }
}

/// The unit of a metric, derived from the end of its name: `1/s`, `ns`, `µs`, `s`, `1`, or else `bytes`.
pub(crate) fn unit(metric: &str) -> &'static str {
    let ends = [
        ("_per_s", "1/s"),
        ("_ns", "ns"),
        ("_us_per_turn", "µs"),
        ("_s", "s"),
        ("_per_call", "1"),
        ("_ratio", "1"),
    ];
    let end = ends.iter().find(|(end, _)| metric.ends_with(end));
    end.map_or("bytes", |(_, unit)| unit)
}

#[derive(Deserialize)]
#[serde(bound(deserialize = "'de: 'static"))]
struct Table {
    workload: Vec<Workload>,
}

static TABLE: LazyLock<Table> =
    LazyLock::new(|| runtimes::parse("workloads.toml", include_str!("../workloads.toml")));

pub(crate) fn all() -> &'static [Workload] {
    &TABLE.workload
}

pub(crate) fn find(name: &str) -> Option<&'static Workload> {
    all().iter().find(|workload| workload.name == name)
}

pub(crate) fn run(row: &str, settings: &Settings) -> Measured {
    let run: fn(&str, &Settings) -> Measured = match settings.workload.name {
        "processes" => processes::run,
        "spawn" => on_host::<spawn::Spawn>,
        "send" => send::run,
        "send-cost" => send_cost::run,
        "call" => call::run,
        "churn" => on_host::<churn::Churn>,
        "sleep" => sleep::run,
        "tasks" => on_host::<tasks::Tasks>,
        "pairs" => relay::pairs,
        "ring" => on_actors::<relay::Ring>,
        "calls" => on_actors::<clients::Calls>,
        "outside" => on_actors::<clients::Outside>,
        "first-call" => account::first_call,
        "send-then-call" => account::send_then_call,
        "http" => http::run,
        "http-social" => http_social::run,
        "chat" => chat::run,
        "fan" => on_actors::<collector::Fan>,
        "burst" => on_actors::<collector::Burst>,
        "fairness" => on_actors::<fairness::Fairness>,
        "skynet" => skynet::run,
        "monitors" => monitors::run,
        "timers" => timers::run,
        "children" => children::run,
        "selective" => selective::run,
        "traffic" => traffic::run,
        "social" => social::run,
        "chameneos" => on_actors::<savina::chameneos::Chameneos>,
        "big" => on_actors::<savina::big::Big>,
        "dictionary" => on_actors::<savina::dictionary::Concurrent>,
        "buffer" => on_actors::<savina::buffer::Buffer>,
        "philosophers" => on_actors::<savina::philosophers::Dining>,
        "barber" => on_actors::<savina::barber::Sleeping>,
        "smokers" => on_actors::<savina::smokers::Smoking>,
        "banking" => on_actors::<savina::banking::Banking>,
        "sieve" => on_actors::<savina::sieve::Sieve>,
        "queens" => on_actors::<savina::queens::Queens>,
        "store-mega" => store_mega::run,
        "store-put" => store_put::run,
        "store-get" => store_get::run,
        "store-scan" => store_scan::run,
        "store-update" => store_update::run,
        "store-rest" => store_rest::run,
        "store-recover" => store_recover::run,
        "durable-turns" => durable_turns::run,
        "durable-http" => durable_http::run,
        "once" => once::run,
        "durable-send" => durable_send::run,
        "durable-live" => durable_live::run,
        "activate" => activate::run,
        "durable-rest" => durable_rest::run,
        "queue" => queue::run,
        "workflow" => workflow::run,
        "workflow-rest" => workflow::rest::run,
        "reminders" => reminders::run,
        name => return Err(runtimes::no_row(name)),
    };
    run(row, settings)
}

pub(crate) fn client(name: &str) -> Option<served::Client> {
    match name {
        "http-social" => Some(http_social::client),
        "durable-http" => Some(durable_http::client),
        "chat" => Some(chat::client),
        _ => None,
    }
}

impl Workload {
    /// The metrics, in the order of the table. A name that ends with `?` is of a metric that some settings leave out.
    pub(crate) fn metrics(&self) -> impl Iterator<Item = Metric> + use<> {
        self.metrics.split(' ').map(|name| {
            let without_mark = name.strip_suffix('?');
            Metric { name: without_mark.unwrap_or(name), is_optional: without_mark.is_some() }
        })
    }

    /// All settings: the workload's own, then the setting that every workload has.
    pub(crate) fn all_keys(&'static self) -> impl Iterator<Item = &'static Key> {
        self.keys.iter().chain([&ALLOCATOR])
    }

    pub(crate) fn key(&'static self, name: &str) -> Option<&'static Key> {
        self.all_keys().find(|key| key.name == name)
    }
}
