//! The suite: the measurements that `bench run all` makes, in the groups of the report.
//!
//! A measurement is a workload with its settings. Those with one worker stand beside the same with a
//! worker for each core, because a runtime may win by one and lose by the other. Measurements that vary
//! another leave some runtimes out ([`ASIDE`]), because all of the suite takes hours.
//! `--quick` makes a smaller selection with small counts: it shows that everything works, and its figures are
//! rough.

use std::fmt;

use clap::ValueEnum;
use clap::builder::PossibleValue;

use crate::harness::RUNS;
use crate::settings::Settings;
use crate::workloads::{
    Workload, activate, burst, call, calls, chat, children, churn, durable_live, durable_rest,
    durable_turns, fairness, fan, first_call, http, http_social, monitors, outside, pairs,
    processes, ring, savina, send, send_cost, send_then_call, skynet, sleep, social, spawn,
    store_get, store_mega, store_put, store_recover, store_scan, store_update, tasks, timers,
};

/// The source whose claim a measurement repeats, or the group that it belongs to.
#[derive(Clone, Copy, PartialEq, Eq, Debug, clap::ValueEnum)]
pub(crate) enum Group {
    /// A million Erlang processes, from a book on Erlang.
    Processes,
    /// A million waiting tasks, from a video that compares languages.
    Tasks,
    /// Many processes on one store, from the benchmark of an LMDB library for Erlang.
    Store,
    /// The cost of a message, from an article on Elixir.
    Messages,
    /// The other shapes of work that programs of processes have.
    Shapes,
    /// Ten workloads of a benchmark suite for actors.
    Savina,
    /// Processes whose state outlives the program.
    Durable,
    /// The message service, over HTTP and WebSockets.
    Service,
    /// A microblog of actors, from a report on Erlang.
    Social,
}

impl fmt::Display for Group {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.to_possible_value().as_ref().map_or("", PossibleValue::get_name))
    }
}

/// Measurements of a workload that differ in one number only. The report draws them as lines over that
/// number.
#[derive(PartialEq, Eq, Debug)]
pub(crate) struct Series {
    pub(crate) name: &'static str,
    /// Name of the number in the parameters of a row: `count`, or a setting of the workload.
    pub(crate) over: &'static str,
}

/// A workload with its settings, by a name of its own.
#[derive(Debug)]
pub(crate) struct Measurement {
    pub(crate) name: &'static str,
    pub(crate) group: Group,
    pub(crate) workload: &'static Workload,
    /// The series that the measurement is a part of, at most two.
    pub(crate) series: [Option<&'static Series>; 2],
    /// `--count`; `None` for the workload's default.
    count: Option<u64>,
    /// Number of workers; `None` for the number of cores.
    workers: Option<usize>,
    /// Values of settings that differ from the defaults.
    set: &'static [(&'static str, &'static str)],
    /// `--count` with `--quick`; `None` if the measurement is left out then.
    quick: Option<u64>,
    /// Number of counted runs per runtime.
    runs: u64,
    /// Whether a run that does not count comes first.
    pub(crate) warms_up: bool,
    /// Whether the runtimes of [`ASIDE`] are left out.
    is_variant: bool,
    /// Values of further settings with `--quick`.
    set_quick: &'static [(&'static str, &'static str)],
}

/// A measurement with the workload's defaults.
const fn of(
    name: &'static str,
    group: Group,
    workload: &'static Workload,
    quick: u64,
) -> Measurement {
    Measurement {
        name,
        group,
        workload,
        series: [None, None],
        count: None,
        workers: None,
        set: &[],
        quick: Some(quick),
        runs: RUNS,
        warms_up: true,
        is_variant: false,
        set_quick: &[],
    }
}

impl Measurement {
    const fn with(self, set: &'static [(&'static str, &'static str)]) -> Measurement {
        Measurement { set, ..self }
    }

    const fn quick_with(self, set_quick: &'static [(&'static str, &'static str)]) -> Measurement {
        Measurement { set_quick, ..self }
    }

    /// The same with one worker, left out with `--quick`.
    const fn alone(self) -> Measurement {
        Measurement { workers: Some(1), ..self.variant() }
    }

    /// A variant of another measurement, left out with `--quick`.
    const fn variant(self) -> Measurement {
        Measurement { is_variant: true, quick: None, ..self }
    }

    /// The same with a count of its own, as a part of a series.
    const fn part_of(self, series: &'static Series, count: u64) -> Measurement {
        Measurement { count: Some(count), ..self.within(series) }
    }

    /// The same as a part of a series, or of a second one.
    const fn within(self, series: &'static Series) -> Measurement {
        let series = match self.series {
            [None, _] => [Some(series), None],
            [first, _] => [first, Some(series)],
        };
        Measurement { series, ..self }
    }

    /// The same with fewer runs, and none before: for measurements that take long, and whose metrics hardly
    /// vary. Without a warm-up the instructions of an operation are not counted.
    const fn few_runs(self) -> Measurement {
        Measurement { runs: 2, warms_up: false, ..self }
    }

    /// The same with a count of its own.
    const fn counting(self, count: u64) -> Measurement {
        Measurement { count: Some(count), ..self }
    }

    const fn unhurried(self) -> Measurement {
        Measurement { quick: None, ..self }
    }

    /// Number of counted runs per runtime.
    pub(crate) fn runs(&self, quick: bool) -> u64 {
        if quick { 1 } else { self.runs }
    }

    /// Whether the measurement is made of a runtime, unless runtimes are named.
    pub(crate) fn is_of(&self, runtime: &str) -> bool {
        !(self.is_variant && ASIDE.contains(&runtime))
    }

    /// The settings; `None` if the measurement is left out.
    ///
    /// # Panics
    /// If a setting is not one of the workload's.
    pub(crate) fn settings(&self, quick: bool, cores: usize) -> Option<Settings> {
        let full = self.count.unwrap_or(self.workload.count);
        let count = if quick { self.quick? } else { full };
        let workers = self.workers.unwrap_or(cores);
        let mut settings = Settings::new(count, workers, self.workload.keys);
        let set_quick = if quick { self.set_quick } else { &[] };
        for (name, value) in self.set.iter().chain(set_quick) {
            let value = self.workload.key(name).and_then(|key| key.kind.parse(value));
            let value = value.unwrap_or_else(|| panic!("{}: {name} is no setting", self.name));
            settings.set(name, value);
        }
        Some(settings)
    }
}

/// Runtimes that measurements leave out if they vary another: those that are several times slower than
/// others of their kind, those with one thread in any case, those beside a tuned row, and stores other than
/// throng, because what varies is a setting of throng's.
const ASIDE: &[&str] = &[
    "bun",
    "caf",
    "caf-max-throughput",
    "elixir",
    "elixir-tuned",
    "erlang",
    "fjall",
    "go",
    "java-threads",
    "java-virtual",
    "kameo",
    "node",
    "pekko",
    "pekko-thread-pool",
    "pekko-tuned",
    "python",
    "python-uvloop",
    "ractor",
    "redb",
    "smol",
    "tellus",
    "tellus-memory",
    "threads",
];

use Group::{Durable, Messages, Processes, Savina, Service, Shapes, Social, Store, Tasks};

/// Spawning over the number of processes.
const SPAWNING: Series = Series { name: "processes-by-count", over: "count" };

/// Tasks that sleep over their number.
const SLEEPING: Series = Series { name: "sleep-by-count", over: "count" };

/// Tasks with real work over their number.
const WORKING: Series = Series { name: "tasks-by-count", over: "count" };

/// The cost of a send over the length of the longest loop, the bytes of a message, and the messages that
/// wait before.
const SENDING_FOR: Series = Series { name: "send-cost-by-count", over: "count" };
const SENDING_BYTES: Series = Series { name: "send-cost-by-payload", over: "payload" };
const SENDING_BEHIND: Series = Series { name: "send-cost-by-depth", over: "depth" };

/// Chat over the size of its rooms.
const ROOMS: Series = Series { name: "chat-by-room", over: "room" };

/// The source's experiments with a microblog: over the users of a process, the follows of a user, the threads, and
/// the followers of a post's author. Then the same service with many clients, over its users.
const TIMELINES_BY_SHARD: Series =
    Series { name: "social-timelines-by-shard", over: "users_per_process" };
const PROFILES_BY_SHARD: Series =
    Series { name: "social-profiles-by-shard", over: "users_per_process" };
const POSTS_BY_SHARD: Series = Series { name: "social-posts-by-shard", over: "users_per_process" };
const TIMELINES_BY_FOLLOWS: Series =
    Series { name: "social-timelines-by-follows", over: "follows" };
const POSTS_BY_FOLLOWS: Series = Series { name: "social-posts-by-follows", over: "follows" };
const TIMELINES_BY_WORKERS: Series =
    Series { name: "social-timelines-by-workers", over: "workers" };
const PROFILES_BY_WORKERS: Series = Series { name: "social-profiles-by-workers", over: "workers" };
const POSTS_BY_WORKERS: Series = Series { name: "social-posts-by-workers", over: "workers" };
const FOLLOWERS: Series = Series { name: "social-one-post-by-followers", over: "follows" };
const FOLLOWERS_ALONE: Series = Series { name: "social-one-post-by-followers-1", over: "follows" };
const USERS: Series = Series { name: "social-mix-by-users", over: "count" };

/// The settings of an experiment of the source: one client, whose rounds of 10,000 requests are repeated.
macro_rules! experiment {
    ($part:literal $(, $name:literal = $value:literal)*) => {
        &[
            ("part", $part),
            ("clients", "1"),
            ("requests", "10000"),
            ("rounds", "30"),
            ("dropped", "5")
            $(, ($name, $value))*
        ]
    };
}

/// The settings of the experiment that posts to a number of followers, and waits for the last of them.
macro_rules! one_post {
    ($follows:literal) => {
        experiment!(
            "deliveries",
            "graph" = "ring",
            "follows" = $follows,
            "posts" = "0",
            "requests" = "100"
        )
    };
}

/// A measurement of the microblog with a number of users.
const fn social(
    name: &'static str,
    users: u64,
    set: &'static [(&'static str, &'static str)],
) -> Measurement {
    let small = &[("requests", "200"), ("rounds", "2"), ("dropped", "1"), ("posts", "1")];
    let measurement = of(name, Social, &social::WORKLOAD, users / 50);
    measurement.counting(users).with(set).quick_with(small).few_runs()
}

/// All measurements, in the order in which they are made and shown.
pub(crate) const SUITE: &[Measurement] = &[
    of("processes-200k", Processes, &processes::WORKLOAD, 2_000).part_of(&SPAWNING, 200_000),
    of("processes-1m", Processes, &processes::WORKLOAD, 10_000).part_of(&SPAWNING, 1_000_000),
    of("processes-5m", Processes, &processes::WORKLOAD, 50_000)
        .part_of(&SPAWNING, 5_000_000)
        .few_runs(),
    of("processes-10m", Processes, &processes::WORKLOAD, 100_000)
        .part_of(&SPAWNING, 10_000_000)
        .few_runs(),
    of("processes-100m", Processes, &processes::WORKLOAD, 1_000_000)
        .part_of(&SPAWNING, 100_000_000)
        .with(&[("maximum", "100000000")])
        .few_runs()
        .unhurried(),
    of("spawn", Processes, &spawn::WORKLOAD, 50_000),
    of("spawn-1", Processes, &spawn::WORKLOAD, 0).alone(),
    of("spawn-mimalloc", Processes, &spawn::WORKLOAD, 0)
        .with(&[("allocator", "mimalloc")])
        .variant(),
    of("churn", Processes, &churn::WORKLOAD, 20_000).quick_with(&[("warmup", "1000")]),
    of("churn-1", Processes, &churn::WORKLOAD, 0).alone(),
    of("churn-mimalloc", Processes, &churn::WORKLOAD, 0)
        .with(&[("allocator", "mimalloc")])
        .variant(),
    of("sleep-1", Tasks, &sleep::WORKLOAD, 0)
        .part_of(&SLEEPING, 1)
        .with(&[("seconds", "2")])
        .few_runs()
        .unhurried(),
    of("sleep-10k", Tasks, &sleep::WORKLOAD, 0)
        .part_of(&SLEEPING, 10_000)
        .with(&[("seconds", "2")])
        .few_runs()
        .unhurried(),
    of("sleep-100k", Tasks, &sleep::WORKLOAD, 1_000)
        .part_of(&SLEEPING, 100_000)
        .with(&[("seconds", "2")])
        .few_runs()
        .quick_with(&[("seconds", "1")]),
    of("sleep-1m", Tasks, &sleep::WORKLOAD, 10_000)
        .part_of(&SLEEPING, 1_000_000)
        .few_runs()
        .quick_with(&[("seconds", "1")]),
    of("tasks-10k", Tasks, &tasks::WORKLOAD, 250)
        .part_of(&WORKING, 10_000)
        .with(&[("seconds", "3")])
        .quick_with(&[("seconds", "1")])
        .few_runs(),
    of("tasks-100k", Tasks, &tasks::WORKLOAD, 500)
        .part_of(&WORKING, 100_000)
        .with(&[("seconds", "3")])
        .quick_with(&[("seconds", "1")])
        .few_runs(),
    of("tasks-1m", Tasks, &tasks::WORKLOAD, 1_000)
        .part_of(&WORKING, 1_000_000)
        .quick_with(&[("seconds", "1")])
        .few_runs(),
    of("store-mega", Store, &store_mega::WORKLOAD, 2_000),
    of("store-put", Store, &store_put::WORKLOAD, 20_000),
    of("store-get", Store, &store_get::WORKLOAD, 20_000),
    of("store-scan", Store, &store_scan::WORKLOAD, 20_000),
    of("store-update", Store, &store_update::WORKLOAD, 20_000).quick_with(&[("keys", "20000")]),
    of("store-recover", Store, &store_recover::WORKLOAD, 20_000).few_runs(),
    of("store-recover-64m", Store, &store_recover::WORKLOAD, 0)
        .with(&[("memory", "64")])
        .variant()
        .few_runs(),
    of("store-recover-1g", Store, &store_recover::WORKLOAD, 0)
        .with(&[("memory", "1024")])
        .variant()
        .few_runs(),
    of("store-recover-sorted", Store, &store_recover::WORKLOAD, 20_000)
        .with(&[("order", "sorted")])
        .few_runs(),
    of("send", Messages, &send::WORKLOAD, 200_000),
    of("send-1", Messages, &send::WORKLOAD, 0).alone(),
    of("send-mimalloc", Messages, &send::WORKLOAD, 0).with(&[("allocator", "mimalloc")]).variant(),
    of("send-100-senders", Messages, &send::WORKLOAD, 200_000).with(&[("senders", "100")]),
    of("send-cost", Messages, &send_cost::WORKLOAD, 20)
        .part_of(&SENDING_FOR, 500)
        .within(&SENDING_BYTES),
    of("send-cost-3s", Messages, &send_cost::WORKLOAD, 40).part_of(&SENDING_FOR, 3000).few_runs(),
    of("send-cost-1", Messages, &send_cost::WORKLOAD, 0).alone(),
    of("send-cost-64", Messages, &send_cost::WORKLOAD, 0)
        .with(&[("payload", "64")])
        .within(&SENDING_BYTES)
        .variant(),
    of("send-cost-1k", Messages, &send_cost::WORKLOAD, 20)
        .with(&[("payload", "1024")])
        .within(&SENDING_BYTES),
    of("send-cost-1k-1", Messages, &send_cost::WORKLOAD, 0).with(&[("payload", "1024")]).alone(),
    of("send-cost-64k", Messages, &send_cost::WORKLOAD, 0)
        .with(&[("payload", "65536")])
        .within(&SENDING_BYTES)
        .variant(),
    of("send-cost-1k-mimalloc", Messages, &send_cost::WORKLOAD, 0)
        .with(&[("payload", "1024"), ("allocator", "mimalloc")])
        .variant(),
    of("send-cost-64k-mimalloc", Messages, &send_cost::WORKLOAD, 0)
        .with(&[("payload", "65536"), ("allocator", "mimalloc")])
        .variant(),
    of("send-cost-depth-1", Messages, &send_cost::WORKLOAD, 20)
        .with(&[("depth", "1")])
        .part_of(&SENDING_BEHIND, 100),
    of("send-cost-depth-1k", Messages, &send_cost::WORKLOAD, 0)
        .with(&[("depth", "1000")])
        .part_of(&SENDING_BEHIND, 100)
        .variant(),
    of("send-cost-depth-1m", Messages, &send_cost::WORKLOAD, 20)
        .with(&[("depth", "1000000")])
        .part_of(&SENDING_BEHIND, 100)
        .quick_with(&[("depth", "10000")]),
    of("call", Shapes, &call::WORKLOAD, 50_000).quick_with(&[("samples", "1000")]),
    of("call-1", Shapes, &call::WORKLOAD, 0).alone(),
    of("call-1m-callees", Shapes, &call::WORKLOAD, 0).with(&[("callees", "1000000")]).variant(),
    of("calls", Shapes, &calls::WORKLOAD, 50_000).quick_with(&[("samples", "1000")]),
    of("calls-1", Shapes, &calls::WORKLOAD, 0).alone(),
    of("calls-mimalloc", Shapes, &calls::WORKLOAD, 0).with(&[("allocator", "mimalloc")]).variant(),
    of("calls-64-to-1", Shapes, &calls::WORKLOAD, 50_000)
        .with(&[("callers", "64"), ("callees", "1")])
        .quick_with(&[("samples", "1000")]),
    of("calls-64-to-1-1", Shapes, &calls::WORKLOAD, 0)
        .with(&[("callers", "64"), ("callees", "1")])
        .alone(),
    of("pairs", Shapes, &pairs::WORKLOAD, 200_000),
    of("pairs-1", Shapes, &pairs::WORKLOAD, 0).alone(),
    of("ring", Shapes, &ring::WORKLOAD, 50_000),
    of("outside", Shapes, &outside::WORKLOAD, 20_000)
        .with(&[("tasks", "1")])
        .quick_with(&[("samples", "1000")]),
    of("outside-1", Shapes, &outside::WORKLOAD, 0).with(&[("tasks", "1")]).alone(),
    of("outside-64", Shapes, &outside::WORKLOAD, 20_000)
        .with(&[("tasks", "64")])
        .quick_with(&[("samples", "1000")]),
    of("outside-64-1", Shapes, &outside::WORKLOAD, 0).with(&[("tasks", "64")]).alone(),
    of("first-call", Shapes, &first_call::WORKLOAD, 5_000).quick_with(&[("samples", "1000")]),
    of("first-call-1", Shapes, &first_call::WORKLOAD, 0).alone(),
    of("send-then-call", Shapes, &send_then_call::WORKLOAD, 5_000)
        .quick_with(&[("samples", "1000")]),
    of("send-then-call-1", Shapes, &send_then_call::WORKLOAD, 0).alone(),
    of("http", Shapes, &http::WORKLOAD, 5_000)
        .quick_with(&[("users", "10000"), ("samples", "1000")]),
    of("http-1", Shapes, &http::WORKLOAD, 0).alone(),
    of("http-1-connection", Shapes, &http::WORKLOAD, 0).with(&[("connections", "1")]).unhurried(),
    of("http-512-connections", Shapes, &http::WORKLOAD, 0)
        .with(&[("connections", "512")])
        .unhurried(),
    of("fan-2", Shapes, &fan::WORKLOAD, 100_000)
        .with(&[("receivers", "2")])
        .quick_with(&[("settle", "0")])
        .few_runs(),
    of("fan-100", Shapes, &fan::WORKLOAD, 100_000)
        .with(&[("receivers", "100")])
        .quick_with(&[("settle", "0")])
        .few_runs(),
    of("fan-100-1", Shapes, &fan::WORKLOAD, 0).with(&[("receivers", "100")]).alone().few_runs(),
    of("fan-10000", Shapes, &fan::WORKLOAD, 0).with(&[("receivers", "10000")]).variant().few_runs(),
    of("burst", Shapes, &burst::WORKLOAD, 20_000).quick_with(&[("settle", "0")]).few_runs(),
    of("fairness", Shapes, &fairness::WORKLOAD, 5).quick_with(&[("flooders", "1000")]).few_runs(),
    of("skynet", Shapes, &skynet::WORKLOAD, 10_000),
    of("skynet-1", Shapes, &skynet::WORKLOAD, 0).alone(),
    of("monitors", Shapes, &monitors::WORKLOAD, 5_000),
    of("monitors-1", Shapes, &monitors::WORKLOAD, 0).alone(),
    of("monitors-many", Shapes, &monitors::WORKLOAD, 70)
        .counting(1_000)
        .with(&[("watchers", "1000")])
        .quick_with(&[("watchers", "70")]),
    of("timers", Shapes, &timers::WORKLOAD, 2_000)
        .quick_with(&[("live", "1000"), ("longest", "150")]),
    of("timers-1", Shapes, &timers::WORKLOAD, 0).alone(),
    of("children", Shapes, &children::WORKLOAD, 5_000),
    of("chameneos", Savina, &savina::chameneos::WORKLOAD, 2_000),
    of("chameneos-1", Savina, &savina::chameneos::WORKLOAD, 0).alone(),
    of("big", Savina, &savina::big::WORKLOAD, 100),
    of("big-1", Savina, &savina::big::WORKLOAD, 0).alone(),
    of("dictionary", Savina, &savina::dictionary::WORKLOAD, 100),
    of("dictionary-1", Savina, &savina::dictionary::WORKLOAD, 0).alone(),
    of("buffer", Savina, &savina::buffer::WORKLOAD, 20),
    of("buffer-1", Savina, &savina::buffer::WORKLOAD, 0).alone(),
    of("philosophers", Savina, &savina::philosophers::WORKLOAD, 100),
    of("philosophers-1", Savina, &savina::philosophers::WORKLOAD, 0).alone(),
    of("barber", Savina, &savina::barber::WORKLOAD, 50),
    of("barber-1", Savina, &savina::barber::WORKLOAD, 0).alone(),
    of("smokers", Savina, &savina::smokers::WORKLOAD, 50),
    of("smokers-1", Savina, &savina::smokers::WORKLOAD, 0).alone(),
    of("banking", Savina, &savina::banking::WORKLOAD, 500),
    of("banking-1", Savina, &savina::banking::WORKLOAD, 0).alone(),
    of("sieve", Savina, &savina::sieve::WORKLOAD, 5_000),
    of("sieve-1", Savina, &savina::sieve::WORKLOAD, 0).alone(),
    of("queens", Savina, &savina::queens::WORKLOAD, 8),
    of("queens-1", Savina, &savina::queens::WORKLOAD, 0).alone(),
    of("durable-turns", Durable, &durable_turns::WORKLOAD, 20_000)
        .quick_with(&[("entities", "1000")]),
    of("durable-turns-1", Durable, &durable_turns::WORKLOAD, 0).alone(),
    of("durable-turns-hot", Durable, &durable_turns::WORKLOAD, 2_000)
        .counting(20_000)
        .with(&[("entities", "1")]),
    of("durable-turns-hot-1", Durable, &durable_turns::WORKLOAD, 0)
        .counting(20_000)
        .with(&[("entities", "1")])
        .alone(),
    of("durable-turns-1-in-flight", Durable, &durable_turns::WORKLOAD, 200)
        .counting(10_000)
        .with(&[("inflight", "1")])
        .quick_with(&[("entities", "1000")]),
    of("durable-turns-1m", Durable, &durable_turns::WORKLOAD, 0)
        .with(&[("entities", "1000000")])
        .variant()
        .few_runs(),
    of("durable-turns-reads", Durable, &durable_turns::WORKLOAD, 20_000)
        .counting(2_000_000)
        .with(&[("reads", "100")])
        .quick_with(&[("entities", "1000")]),
    of("durable-turns-reads-1", Durable, &durable_turns::WORKLOAD, 0)
        .counting(2_000_000)
        .with(&[("reads", "100")])
        .alone(),
    of("durable-live", Durable, &durable_live::WORKLOAD, 10_000).few_runs(),
    of("activate", Durable, &activate::WORKLOAD, 5_000)
        .quick_with(&[("entities", "10000")])
        .few_runs(),
    of("activate-1", Durable, &activate::WORKLOAD, 0).alone().few_runs(),
    of("activate-capped", Durable, &activate::WORKLOAD, 5_000)
        .with(&[("cap", "100000")])
        .quick_with(&[("entities", "10000"), ("cap", "1000")])
        .few_runs(),
    of("durable-rest", Durable, &durable_rest::WORKLOAD, 10_000)
        .quick_with(&[("seconds", "1"), ("killed", "2000")])
        .few_runs(),
    of("http-social", Service, &http_social::WORKLOAD, 5_000)
        .quick_with(&[("users", "200"), ("follows", "10")]),
    of("chat-10", Service, &chat::WORKLOAD, 2_000)
        .within(&ROOMS)
        .quick_with(&[("sockets", "100"), ("settle", "1")]),
    of("chat-1000", Service, &chat::WORKLOAD, 0)
        .with(&[("room", "1000")])
        .within(&ROOMS)
        .unhurried(),
    of("chat-10000", Service, &chat::WORKLOAD, 20_000)
        .with(&[("room", "10000"), ("sockets", "10000")])
        .within(&ROOMS)
        .quick_with(&[("room", "200"), ("sockets", "200"), ("settle", "1")])
        .few_runs(),
    of("chat-idle", Service, &chat::WORKLOAD, 0)
        .counting(150_000)
        .with(&[("sockets", "15000")])
        .few_runs()
        .unhurried(),
    social("social-timelines-shard-1", 1_000, experiment!("timelines", "users_per_process" = "1"))
        .within(&TIMELINES_BY_SHARD),
    social(
        "social-timelines-shard-10",
        1_000,
        experiment!("timelines", "users_per_process" = "10"),
    )
    .within(&TIMELINES_BY_SHARD)
    .unhurried(),
    social(
        "social-timelines-shard-100",
        1_000,
        experiment!("timelines", "users_per_process" = "100"),
    )
    .within(&TIMELINES_BY_SHARD)
    .unhurried(),
    social(
        "social-timelines-shard-500",
        1_000,
        experiment!("timelines", "users_per_process" = "500"),
    )
    .within(&TIMELINES_BY_SHARD)
    .unhurried(),
    social(
        "social-timelines-shard-1000",
        1_000,
        experiment!("timelines", "users_per_process" = "1000"),
    )
    .within(&TIMELINES_BY_SHARD),
    social("social-profiles-shard-1", 1_000, experiment!("profiles", "users_per_process" = "1"))
        .within(&PROFILES_BY_SHARD),
    social("social-profiles-shard-10", 1_000, experiment!("profiles", "users_per_process" = "10"))
        .within(&PROFILES_BY_SHARD)
        .unhurried(),
    social(
        "social-profiles-shard-100",
        1_000,
        experiment!("profiles", "users_per_process" = "100"),
    )
    .within(&PROFILES_BY_SHARD)
    .unhurried(),
    social(
        "social-profiles-shard-500",
        1_000,
        experiment!("profiles", "users_per_process" = "500"),
    )
    .within(&PROFILES_BY_SHARD)
    .unhurried(),
    social(
        "social-profiles-shard-1000",
        1_000,
        experiment!("profiles", "users_per_process" = "1000"),
    )
    .within(&PROFILES_BY_SHARD),
    social("social-posts-shard-1", 1_000, experiment!("deliveries", "users_per_process" = "1"))
        .within(&POSTS_BY_SHARD),
    social("social-posts-shard-10", 1_000, experiment!("deliveries", "users_per_process" = "10"))
        .within(&POSTS_BY_SHARD)
        .unhurried(),
    social("social-posts-shard-100", 1_000, experiment!("deliveries", "users_per_process" = "100"))
        .within(&POSTS_BY_SHARD)
        .unhurried(),
    social("social-posts-shard-500", 1_000, experiment!("deliveries", "users_per_process" = "500"))
        .within(&POSTS_BY_SHARD)
        .unhurried(),
    social(
        "social-posts-shard-1000",
        1_000,
        experiment!("deliveries", "users_per_process" = "1000"),
    )
    .within(&POSTS_BY_SHARD),
    social("social-timelines-follows-1", 1_000, experiment!("timelines", "follows" = "1"))
        .within(&TIMELINES_BY_FOLLOWS),
    social("social-timelines-follows-5", 1_000, experiment!("timelines", "follows" = "5"))
        .within(&TIMELINES_BY_FOLLOWS)
        .unhurried(),
    social("social-timelines-follows-10", 1_000, experiment!("timelines", "follows" = "10"))
        .within(&TIMELINES_BY_FOLLOWS)
        .unhurried(),
    social("social-timelines-follows-25", 1_000, experiment!("timelines", "follows" = "25"))
        .within(&TIMELINES_BY_FOLLOWS)
        .unhurried(),
    social("social-timelines-follows-30", 1_000, experiment!("timelines", "follows" = "30"))
        .within(&TIMELINES_BY_FOLLOWS),
    social("social-posts-follows-1", 1_000, experiment!("deliveries", "follows" = "1"))
        .within(&POSTS_BY_FOLLOWS),
    social("social-posts-follows-5", 1_000, experiment!("deliveries", "follows" = "5"))
        .within(&POSTS_BY_FOLLOWS)
        .unhurried(),
    social("social-posts-follows-10", 1_000, experiment!("deliveries", "follows" = "10"))
        .within(&POSTS_BY_FOLLOWS)
        .unhurried(),
    social("social-posts-follows-25", 1_000, experiment!("deliveries", "follows" = "25"))
        .within(&POSTS_BY_FOLLOWS)
        .unhurried(),
    social("social-posts-follows-30", 1_000, experiment!("deliveries", "follows" = "30"))
        .within(&POSTS_BY_FOLLOWS),
    social("social-timelines-1", 5_000, experiment!("timelines"))
        .within(&TIMELINES_BY_WORKERS)
        .alone(),
    social("social-timelines", 5_000, experiment!("timelines")).within(&TIMELINES_BY_WORKERS),
    social("social-profiles-1", 5_000, experiment!("profiles"))
        .within(&PROFILES_BY_WORKERS)
        .alone(),
    social("social-profiles", 5_000, experiment!("profiles")).within(&PROFILES_BY_WORKERS),
    social("social-posts-1", 5_000, experiment!("deliveries")).within(&POSTS_BY_WORKERS).alone(),
    social("social-posts", 5_000, experiment!("deliveries")).within(&POSTS_BY_WORKERS),
    social("social-followers-0-1", 1_000, one_post!("0")).within(&FOLLOWERS_ALONE).alone(),
    social("social-followers-1-1", 1_000, one_post!("1"))
        .within(&FOLLOWERS_ALONE)
        .alone()
        .unhurried(),
    social("social-followers-10-1", 1_000, one_post!("10")).within(&FOLLOWERS_ALONE).alone(),
    social("social-followers-20-1", 1_000, one_post!("20"))
        .within(&FOLLOWERS_ALONE)
        .alone()
        .unhurried(),
    social("social-followers-50-1", 1_000, one_post!("50"))
        .within(&FOLLOWERS_ALONE)
        .alone()
        .unhurried(),
    social("social-followers-100-1", 1_000, one_post!("100"))
        .within(&FOLLOWERS_ALONE)
        .alone()
        .unhurried(),
    social("social-followers-500-1", 1_000, one_post!("500")).within(&FOLLOWERS_ALONE).alone(),
    social("social-followers-0", 1_000, one_post!("0")).within(&FOLLOWERS),
    social("social-followers-1", 1_000, one_post!("1")).within(&FOLLOWERS).unhurried(),
    social("social-followers-10", 1_000, one_post!("10")).within(&FOLLOWERS),
    social("social-followers-20", 1_000, one_post!("20")).within(&FOLLOWERS).unhurried(),
    social("social-followers-50", 1_000, one_post!("50")).within(&FOLLOWERS).unhurried(),
    social("social-followers-100", 1_000, one_post!("100")).within(&FOLLOWERS).unhurried(),
    social("social-followers-500", 1_000, one_post!("500")).within(&FOLLOWERS).unhurried(),
    social("social-mix-1k", 1_000, &[("follows", "10"), ("posts", "1")]).within(&USERS),
    social("social-mix-10k", 10_000, &[("follows", "10"), ("posts", "1")]).within(&USERS),
    social("social-mix-100k", 100_000, &[("follows", "10"), ("posts", "1")])
        .within(&USERS)
        .unhurried(),
    social("social-mix-1m", 1_000_000, &[("follows", "10"), ("posts", "1")])
        .within(&USERS)
        .unhurried(),
    social("social-mix-zipf", 10_000, &[("graph", "zipf")]),
    social("social-mix-1", 10_000, &[]).alone(),
    social("social-clients-deliveries", 10_000, &[("part", "deliveries")]),
    social("social-clients-deliveries-1", 10_000, &[("part", "deliveries")]).alone().unhurried(),
    social("social-clients-timelines", 10_000, &[("part", "timelines")]),
    social("social-clients-timelines-1", 10_000, &[("part", "timelines")]).alone().unhurried(),
    social("social-clients-profiles", 10_000, &[("part", "profiles")]),
    social("social-clients-profiles-1", 10_000, &[("part", "profiles")]).alone().unhurried(),
    social(
        "social-one-follower",
        10_000,
        &[("part", "deliveries"), ("graph", "ring"), ("follows", "1")],
    )
    .variant(),
    social(
        "social-one-user-per-process",
        10_000,
        &[("part", "deliveries"), ("users_per_process", "1")],
    )
    .variant(),
    social(
        "social-celebrity",
        120_000,
        &[("part", "deliveries"), ("graph", "zipf"), ("follows", "25"), ("posts", "0")],
    )
    .variant(),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_measurement_has_a_name_of_its_own_and_settings_of_its_workload() {
        for (index, measurement) in SUITE.iter().enumerate() {
            assert!(SUITE[..index].iter().all(|other| other.name != measurement.name));
            let full = measurement.settings(false, 2).expect("all of the suite is measured");
            assert_eq!(full.count, measurement.count.unwrap_or(measurement.workload.count));
            let quick = measurement.settings(true, 2);
            assert!(quick.is_none_or(|settings| (1..=full.count).contains(&settings.count)));
        }
    }

    #[test]
    fn a_variant_leaves_out_runtimes_that_other_measurements_have() {
        let of =
            |name| SUITE.iter().find(|measurement| measurement.name == name).expect("is there");
        assert!(of("send").is_of("kameo") && !of("send-1").is_of("kameo"));
        assert!(of("send-1").is_of("erlang-tuned"));
        for runtime in ASIDE {
            let has = |measurement: &Measurement| measurement.workload.peer(runtime).is_some();
            assert!(SUITE.iter().any(|measurement| !measurement.is_variant && has(measurement)));
        }
    }

    #[test]
    fn the_parts_of_a_series_differ_in_its_number() {
        for series in SUITE.iter().flat_map(|measurement| measurement.series.into_iter().flatten())
        {
            let parts = SUITE.iter().filter(|other| other.series.contains(&Some(series)));
            let number = |part: &Measurement, quick| {
                let settings = part.settings(quick, 2)?;
                Some(match series.over {
                    "count" => settings.count,
                    "workers" => settings.workers as u64,
                    key => settings.get(key),
                })
            };
            // A quick run has no measurement with one worker.
            let has_quick = parts.clone().filter(|part| part.quick.is_some()).count() > 1;
            for quick in [false, true].into_iter().filter(|quick| !quick || has_quick) {
                let numbers: Vec<_> =
                    parts.clone().filter_map(|part| number(part, quick)).collect();
                assert!(numbers.len() > 1 && numbers.is_sorted_by(|a, b| a < b), "{numbers:?}");
            }
            assert!(SUITE.iter().all(|other| other.name != series.name));
        }
    }

    #[test]
    fn a_quick_run_has_every_group_and_every_workload_of_the_suite() {
        for measurement in SUITE {
            let is_quick = |other: &&Measurement| other.quick.is_some();
            let mut quick = SUITE.iter().filter(is_quick);
            assert!(quick.any(|other| other.workload.name == measurement.workload.name));
        }
    }
}
