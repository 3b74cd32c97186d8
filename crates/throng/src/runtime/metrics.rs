//! The metrics of a runtime, and their text form for Prometheus.
//!
//! [`RuntimeHandle::metrics`](crate::RuntimeHandle::metrics) takes a snapshot of plain values:
//! relaxed loads of counters that their owners write anyway. So a snapshot costs a few loads for
//! each worker, and metrics that nobody reads cost nothing.
//!
//! Invariants of the text: each family has a single `# HELP` and a single `# TYPE` line before its
//! samples; names of counters end in `_total`; units are base units (seconds, bytes) and part of
//! the name.

use crate::mailbox::dead_letters::{DropReason, DroppedMessages};
use crate::memory::block;
use crate::runtime::RuntimeHandle;
use crate::scheduler::kinds::Counts;
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::fmt::{Display, Write};
use std::time::Duration;

/// A snapshot of a runtime's counters and gauges.
///
/// ```
/// use throng::prelude::*;
///
/// # struct Idle;
/// # impl Process for Idle {}
/// # fn main() -> Result<(), throng::Error> {
/// let runtime = Runtime::builder().workers(2).start()?;
/// runtime.spawn(Idle)?;
/// let metrics = runtime.metrics();
/// assert_eq!((metrics.processes, metrics.spawned), (1, 1));
/// let workers = metrics.workers.iter().filter(|worker| !worker.guest);
/// assert_eq!(workers.count(), 2);
/// assert!(metrics.to_prometheus().contains("\nthrong_processes 1\n"));
/// # Ok(())
/// # }
/// ```
///
/// The counters of different workers are read one after the other, so sums may be off by the events
/// that happen meanwhile.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct Metrics {
    /// Time since the start of the runtime.
    pub uptime: Duration,
    /// Number of live processes.
    pub processes: u64,
    /// Maximum number of live processes.
    pub process_limit: u64,
    /// Number of processes spawned since the start.
    pub spawned: u64,
    /// Number of processes that have exited, for any reason.
    pub exited: u64,
    /// Number of processes that have exited by a panic.
    pub panicked: u64,
    /// Memory of the processes, in bytes: their slots, and the blocks of messages, suspended turns and timers, which all
    /// runtimes of the program share. Heap memory that states and messages own is not included.
    pub memory_bytes: u64,
    /// Bytes of all queued messages and signals, including messages that async processes have
    /// [passed over](crate::Inbox::recv_match).
    pub mailbox_bytes: u64,
    /// Maximum bytes of queued messages.
    pub mailbox_bytes_limit: u64,
    /// Number of ready processes that any worker may take from the shared queue; processes in a
    /// worker's own queue are counted in [`WorkerMetrics::queued`].
    pub injected: u64,
    /// Metrics of each worker, in the order of the threads' names, with those of all
    /// [guests](crate::RuntimeBuilder::guests) together behind the regular workers; of spare workers
    /// only if they have run.
    pub workers: Vec<WorkerMetrics>,
    /// Metrics of each kind of process that has been spawned, in the order of their names; empty
    /// unless [`kind_metrics`](crate::RuntimeBuilder::kind_metrics) is on. At most 4,096 kinds are
    /// counted.
    pub kinds: Vec<KindMetrics>,
    /// Numbers of the messages that were dropped unhandled, by the process that would have handled them
    /// and by reason, in the order of the processes' names; see
    /// [`dead_letters`](crate::RuntimeHandle::dead_letters).
    pub dropped: Vec<DroppedMessages>,
}

/// A snapshot of the counters of a kind of process: of all processes of a type. Types of the same
/// name count as one kind.
///
/// The messages that wait are not counted by kind, because that would cost each send: see
/// [`top`](crate::RuntimeHandle::top).
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct KindMetrics {
    /// Name of the type, with its path.
    pub process: &'static str,
    /// Number of live processes.
    pub processes: u64,
    /// Number of processes spawned since the start.
    pub spawned: u64,
    /// Number of processes that have exited, for any reason.
    pub exited: u64,
    /// Number of processes that have exited by a panic.
    pub panicked: u64,
    /// Number of messages that were dropped unhandled, for any reason; see [`Metrics::dropped`].
    pub dropped: u64,
    /// Number of messages and hooks that workers and guests have handled. They are counted when
    /// their run is over, which is when the process waits or other processes come.
    pub turns: u64,
    /// Time that processes of this kind have held a worker, an estimate: one run in 64 is timed, a
    /// run being the turns that a process has in a row, and each run of at least 8 ms. The error is
    /// some 8/√n after n runs: 8 % after 10,000, 0.8 % after a million. It is larger if most of the
    /// time is that of few runs.
    pub busy: Duration,
}

impl KindMetrics {
    /// Adds up the counts of two kinds of the same name.
    fn add(&mut self, other: KindMetrics) {
        self.processes += other.processes;
        self.spawned += other.spawned;
        self.exited += other.exited;
        self.panicked += other.panicked;
        self.dropped += other.dropped;
        self.turns += other.turns;
        self.busy += other.busy;
    }
}

/// A snapshot of the counters and gauges of a worker.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct WorkerMetrics {
    /// Number of messages and hooks this worker has begun to handle.
    pub turns: u64,
    /// Total time this worker was awake.
    pub busy: Duration,
    /// Total time this worker was asleep.
    pub idle: Duration,
    /// Number of processes this worker has spawned.
    pub spawned: u64,
    /// Number of processes that have exited on this worker.
    pub exited: u64,
    /// Number of processes that have panicked on this worker.
    pub panicked: u64,
    /// Number of ready processes in this worker's queue; other workers may steal them.
    pub queued: u64,
    /// Number of times this worker has stolen processes from another worker.
    pub steals: u64,
    /// Number of times this worker has found nothing to do and gone to sleep.
    pub parks: u64,
    /// Number of turns that have blocked this worker for longer than
    /// [`stuck_after`](crate::RuntimeBuilder::stuck_after).
    pub stuck_turns: u64,
    /// Whether this is a spare worker, which stands in for a worker blocked by a turn.
    pub spare: bool,
    /// Whether these are the sums of all [guests](crate::RuntimeBuilder::guests): workers that are tasks of
    /// tokio runtimes. Their time counts as neither `busy` nor `idle`.
    pub guest: bool,
}

impl WorkerMetrics {
    pub(crate) fn add(self, other: WorkerMetrics) -> WorkerMetrics {
        WorkerMetrics {
            turns: self.turns + other.turns,
            busy: self.busy + other.busy,
            idle: self.idle + other.idle,
            spawned: self.spawned + other.spawned,
            exited: self.exited + other.exited,
            panicked: self.panicked + other.panicked,
            queued: self.queued + other.queued,
            steals: self.steals + other.steals,
            parks: self.parks + other.parks,
            stuck_turns: self.stuck_turns + other.stuck_turns,
            spare: self.spare || other.spare,
            guest: self.guest || other.guest,
        }
    }
}

impl Metrics {
    /// Formats these metrics in the Prometheus text format, version 0.0.4. Its media type is
    /// [`PROMETHEUS_MEDIA_TYPE`](Self::PROMETHEUS_MEDIA_TYPE).
    ///
    /// Names begin with `throng_`; metrics of a worker have the label `worker`, those
    /// of a kind of process the label `process`.
    pub fn to_prometheus(&self) -> String {
        let mut text = PrometheusText::default();
        text.gauge(
            "throng_uptime_seconds",
            "Time since the runtime's start.",
            seconds(self.uptime),
        );
        text.gauge("throng_processes", "Live processes.", self.processes);
        text.gauge("throng_process_limit", "Maximum number of live processes.", self.process_limit);
        text.counter("throng_processes_spawned_total", "Processes spawned.", self.spawned);
        text.counter("throng_processes_exited_total", "Processes that have exited.", self.exited);
        text.counter(
            "throng_processes_panicked_total",
            "Processes that have exited by a panic.",
            self.panicked,
        );
        text.gauge(
            "throng_memory_bytes",
            "Memory of the processes, without heap memory that their states own.",
            self.memory_bytes,
        );
        text.gauge("throng_mailbox_bytes", "Bytes of all queued messages.", self.mailbox_bytes);
        text.gauge(
            "throng_mailbox_limit_bytes",
            "Maximum bytes of queued messages.",
            self.mailbox_bytes_limit,
        );
        text.gauge(
            "throng_injected_processes",
            "Ready processes that any worker may take.",
            self.injected,
        );
        text.by_worker(
            &self.workers,
            "throng_worker_turns_total",
            "Messages and hooks this worker has begun to handle.",
            |worker| worker.turns,
        );
        text.by_worker(
            &self.workers,
            "throng_worker_busy_seconds_total",
            "Time this worker was awake.",
            |worker| seconds(worker.busy),
        );
        text.by_worker(
            &self.workers,
            "throng_worker_idle_seconds_total",
            "Time this worker was asleep.",
            |worker| seconds(worker.idle),
        );
        text.by_worker(
            &self.workers,
            "throng_worker_queued_processes",
            "Ready processes in this worker's queue.",
            |worker| worker.queued,
        );
        text.by_worker(
            &self.workers,
            "throng_worker_steals_total",
            "Times this worker has stolen processes from another.",
            |worker| worker.steals,
        );
        text.by_worker(
            &self.workers,
            "throng_worker_parks_total",
            "Times this worker has gone to sleep.",
            |worker| worker.parks,
        );
        text.by_worker(
            &self.workers,
            "throng_worker_stuck_turns_total",
            "Turns that have blocked this worker for too long.",
            |worker| worker.stuck_turns,
        );
        self.write_dropped(&mut text);
        if !self.kinds.is_empty() {
            self.write_kinds(&mut text);
        }
        text.text
    }

    fn write_dropped(&self, text: &mut PrometheusText) {
        let name = "throng_dropped_messages_total";
        text.family(name, "Messages dropped unhandled, by reason.");
        for reason in DropReason::ALL {
            let of = self.dropped.iter().filter(|dropped| dropped.reason == reason);
            let messages: u64 = of.map(|dropped| dropped.messages).sum();
            text.line(format_args!("{name}{{reason=\"{reason}\"}} {messages}"));
        }
        if self.dropped.is_empty() {
            return;
        }
        let name = "throng_kind_dropped_messages_total";
        text.family(name, "Messages to processes of this kind dropped unhandled, by reason.");
        for DroppedMessages { process, reason, messages } in &self.dropped {
            let process = escape(process);
            text.line(format_args!(
                "{name}{{process=\"{process}\",reason=\"{reason}\"}} {messages}"
            ));
        }
    }

    fn write_kinds(&self, text: &mut PrometheusText) {
        let kinds = &self.kinds;
        text.by_kind(kinds, "throng_kind_processes", "Live processes of this kind.", |kind| {
            kind.processes
        });
        text.by_kind(
            kinds,
            "throng_kind_spawned_total",
            "Processes of this kind spawned.",
            |kind| kind.spawned,
        );
        text.by_kind(
            kinds,
            "throng_kind_exited_total",
            "Processes of this kind that have exited.",
            |kind| kind.exited,
        );
        text.by_kind(
            kinds,
            "throng_kind_panicked_total",
            "Processes of this kind that have exited by a panic.",
            |kind| kind.panicked,
        );
        text.by_kind(
            kinds,
            "throng_kind_turns_total",
            "Messages and hooks that processes of this kind have handled.",
            |kind| kind.turns,
        );
        text.by_kind(
            kinds,
            "throng_kind_busy_seconds_total",
            "Time that processes of this kind have held a worker, an estimate.",
            |kind| seconds(kind.busy),
        );
    }

    /// Media type of the text that [`to_prometheus`](Self::to_prometheus) returns.
    pub const PROMETHEUS_MEDIA_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";
}

fn seconds(time: Duration) -> f64 {
    time.as_secs_f64()
}

/// Builder of a text in the Prometheus format, family by family, for the metrics of a program.
///
/// ```
/// let mut text = throng::PrometheusText::default();
/// text.gauge("bank_accounts", "Accounts that are open.", 7);
/// assert!(text.into_text().ends_with("# TYPE bank_accounts gauge\nbank_accounts 7\n"));
/// ```
#[derive(Default, Debug)]
pub struct PrometheusText {
    text: String,
}

impl PrometheusText {
    /// Appends a gauge: a number that may rise and fall; or a counter, if its name ends in `_total`.
    pub fn gauge(&mut self, name: &str, help: &str, value: impl Display) {
        self.family(name, help);
        self.line(format_args!("{name} {value}"));
    }

    /// Appends a counter: a number that only grows. Its name must end in `_total`.
    pub fn counter(&mut self, name: &str, help: &str, value: impl Display) {
        debug_assert!(name.ends_with(TOTAL), "counter {name} must end in {TOTAL}");
        self.gauge(name, help, value);
    }

    /// Returns the metrics appended so far, in the text format of Prometheus.
    pub fn into_text(self) -> String {
        self.text
    }

    fn by_worker<V: Display>(
        &mut self,
        workers: &[WorkerMetrics],
        name: &str,
        help: &str,
        value: impl Fn(&WorkerMetrics) -> V,
    ) {
        self.family(name, help);
        for guests in workers.iter().filter(|worker| worker.guest) {
            self.line(format_args!("{name}{{worker=\"guests\"}} {}", value(guests)));
        }
        for (index, worker) in workers.iter().filter(|worker| !worker.guest).enumerate() {
            self.line(format_args!("{name}{{worker=\"{index}\"}} {}", value(worker)));
        }
    }

    fn by_kind<V: Display>(
        &mut self,
        kinds: &[KindMetrics],
        name: &str,
        help: &str,
        value: impl Fn(&KindMetrics) -> V,
    ) {
        self.family(name, help);
        for kind in kinds {
            let process = escape(kind.process);
            self.line(format_args!("{name}{{process=\"{process}\"}} {}", value(kind)));
        }
    }

    /// Appends the `# HELP` and `# TYPE` lines that precede a family's samples.
    fn family(&mut self, name: &str, help: &str) {
        let kind = if name.ends_with(TOTAL) { "counter" } else { "gauge" };
        self.line(format_args!("# HELP {name} {help}"));
        self.line(format_args!("# TYPE {name} {kind}"));
    }

    fn line(&mut self, line: std::fmt::Arguments<'_>) {
        // Writing to a `String` never fails.
        let _ = writeln!(self.text, "{line}");
    }
}

/// Escapes the name of a type for a label: a constant in it may hold any character.
fn escape(process: &str) -> String {
    process.replace('\\', r"\\").replace('"', r#"\""#).replace('\n', r"\n")
}

const TOTAL: &str = "_total";

impl RuntimeHandle {
    /// Returns a snapshot of this runtime's metrics.
    ///
    /// Cost: a few loads for each worker, for each kind of process on each worker if these are
    /// counted, and a read of the clock.
    pub fn metrics(&self) -> Metrics {
        let scheduler = self.scheduler();
        let (workers, dropped) = (scheduler.worker_metrics(), self.drops().all());
        Metrics {
            uptime: scheduler.clock.elapsed(),
            processes: self.process_count(),
            process_limit: self.process_limit(),
            spawned: scheduler.spawned(),
            exited: workers.iter().map(|worker| worker.exited).sum(),
            panicked: workers.iter().map(|worker| worker.panicked).sum(),
            memory_bytes: self.slab().lent_bytes() + block::lent_bytes(),
            mailbox_bytes: self.mailbox_bytes(),
            mailbox_bytes_limit: self.mailbox_bytes_limit(),
            injected: scheduler.injected() as u64,
            workers,
            kinds: self.kind_metrics(&dropped),
            dropped,
        }
    }

    fn kind_metrics(&self, dropped: &[DroppedMessages]) -> Vec<KindMetrics> {
        let mut kinds = BTreeMap::<&'static str, KindMetrics>::new();
        for (process, number) in self.kinds() {
            let counts = self.scheduler().counts_of(number);
            let sum = |count: fn(&Counts) -> u64| counts.clone().map(count).sum::<u64>();
            // Before the spawns, so that no process counts as exited that does not as spawned.
            let exited = sum(Counts::exited);
            let spawned = sum(Counts::spawned);
            if spawned == 0 {
                continue;
            }
            let kind = KindMetrics {
                process,
                processes: spawned.saturating_sub(exited),
                spawned,
                exited,
                panicked: sum(Counts::panicked),
                dropped: 0,
                turns: sum(Counts::turns),
                busy: counts.clone().map(Counts::busy).sum(),
            };
            match kinds.entry(process) {
                Entry::Vacant(entry) => drop(entry.insert(kind)),
                Entry::Occupied(mut entry) => entry.get_mut().add(kind),
            }
        }
        for DroppedMessages { process, messages, .. } in dropped {
            if let Some(kind) = kinds.get_mut(process) {
                kind.dropped += messages;
            }
        }
        kinds.into_values().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::{BTreeMap, BTreeSet};

    /// Parses a text as a scraper does and returns each sample; panics on a malformed text.
    fn scrape(text: &str) -> BTreeMap<String, f64> {
        let is_name = |name: &str| {
            !name.is_empty()
                && !name.starts_with(|c: char| c.is_ascii_digit())
                && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
        };
        assert!(text.ends_with('\n'), "the last line ends, too");
        let mut families = BTreeSet::new();
        let mut family: Option<(&str, &str)> = None;
        let mut help: Option<&str> = None;
        let mut samples = BTreeMap::new();
        for line in text.lines() {
            if let Some(rest) = line.strip_prefix("# HELP ") {
                let (name, words) = rest.split_once(' ').expect("a help text");
                assert!(is_name(name) && words.ends_with('.'), "{line}");
                assert!(families.insert(name), "{name} comes twice");
                (help, family) = (Some(name), None);
            } else if let Some(rest) = line.strip_prefix("# TYPE ") {
                let (name, kind) = rest.split_once(' ').expect("a type");
                assert_eq!(help, Some(name), "a help text goes before each type");
                assert!(["gauge", "counter"].contains(&kind), "{line}");
                assert_eq!(kind == "counter", name.ends_with("_total"), "{line}");
                for unit in ["_ms", "_us", "_ns", "_kb", "_milliseconds", "_kib"] {
                    assert!(!name.contains(unit), "{name} is in no base unit");
                }
                family = Some((name, kind));
            } else {
                let (series, value) = line.rsplit_once(' ').expect("a value");
                let (name, labels) = series.split_once('{').unwrap_or((series, ""));
                assert_eq!(Some(name), family.map(|(name, _)| name), "{line}");
                if !labels.is_empty() {
                    for label in labels.strip_suffix('}').expect("a closing brace").split(',') {
                        let (key, value) = label.split_once('=').expect("a label");
                        assert!(is_name(key), "{line}");
                        let value = value.strip_prefix('"').and_then(|v| v.strip_suffix('"'));
                        assert!(value.is_some_and(|v| !v.contains(['"', '\\', '\n'])), "{line}");
                    }
                }
                let value: f64 = value.parse().expect("a number");
                assert!(samples.insert(series.to_owned(), value).is_none(), "{series} twice");
            }
        }
        samples
    }

    #[test]
    fn a_scraper_reads_every_metric_from_the_text() {
        let worker = |number: u64| WorkerMetrics {
            turns: 100 + number,
            busy: Duration::from_millis(200 + number),
            spawned: 300 + number,
            exited: 400 + number,
            panicked: 0,
            queued: 500 + number,
            steals: 600 + number,
            parks: 700 + number,
            stuck_turns: 800 + number,
            idle: Duration::from_millis(900 + number),
            spare: number > 0,
            guest: false,
        };
        let metrics = Metrics {
            uptime: Duration::from_millis(1500),
            processes: u64::MAX,
            process_limit: 2,
            spawned: 3,
            exited: 4,
            panicked: 5,
            memory_bytes: 640,
            mailbox_bytes: 7,
            mailbox_bytes_limit: 8,
            injected: 9,
            workers: vec![worker(0), worker(1)],
            kinds: vec![KindMetrics {
                process: "app::Room",
                processes: 10,
                spawned: 11,
                exited: 1,
                panicked: 12,
                dropped: 15,
                turns: 13,
                busy: Duration::from_millis(1400),
            }],
            dropped: vec![
                DroppedMessages { process: "app::Room", reason: DropReason::Exit, messages: 10 },
                DroppedMessages { process: "app::User", reason: DropReason::Exit, messages: 5 },
            ],
        };
        let samples = scrape(&metrics.to_prometheus());
        for (name, value) in [
            ("throng_uptime_seconds", 1.5),
            ("throng_processes", u64::MAX as f64),
            ("throng_process_limit", 2.0),
            ("throng_processes_spawned_total", 3.0),
            ("throng_processes_exited_total", 4.0),
            ("throng_processes_panicked_total", 5.0),
            ("throng_memory_bytes", 640.0),
            ("throng_mailbox_bytes", 7.0),
            ("throng_mailbox_limit_bytes", 8.0),
            ("throng_injected_processes", 9.0),
            ("throng_kind_processes{process=\"app::Room\"}", 10.0),
            ("throng_kind_spawned_total{process=\"app::Room\"}", 11.0),
            ("throng_kind_exited_total{process=\"app::Room\"}", 1.0),
            ("throng_kind_panicked_total{process=\"app::Room\"}", 12.0),
            ("throng_kind_turns_total{process=\"app::Room\"}", 13.0),
            ("throng_kind_busy_seconds_total{process=\"app::Room\"}", 1.4),
            ("throng_dropped_messages_total{reason=\"exit\"}", 15.0),
            ("throng_dropped_messages_total{reason=\"panic\"}", 0.0),
            ("throng_kind_dropped_messages_total{process=\"app::User\",reason=\"exit\"}", 5.0),
            ("throng_worker_turns_total{worker=\"0\"}", 100.0),
            ("throng_worker_turns_total{worker=\"1\"}", 101.0),
            ("throng_worker_busy_seconds_total{worker=\"0\"}", 0.2),
            ("throng_worker_queued_processes{worker=\"1\"}", 501.0),
            ("throng_worker_steals_total{worker=\"1\"}", 601.0),
            ("throng_worker_parks_total{worker=\"1\"}", 701.0),
            ("throng_worker_stuck_turns_total{worker=\"1\"}", 801.0),
            ("throng_worker_idle_seconds_total{worker=\"0\"}", 0.9),
        ] {
            assert_eq!(samples[name], value, "{name}");
        }
        assert_eq!(samples.len(), 10 + 2 * 7 + 6 + DropReason::ALL.len() + 2);
    }

    #[test]
    fn metrics_without_workers_have_a_text_too() {
        let samples = scrape(&Metrics::default().to_prometheus());
        assert!(samples.len() >= 6 && samples.values().all(|&value| value == 0.0));
    }
}
