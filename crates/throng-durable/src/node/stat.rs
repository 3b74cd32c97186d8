//! Statistics of a node, and their text for Prometheus.

use std::collections::BTreeMap;

use throng::PrometheusText;
use throng_store::Stat;

/// Statistics of a node, from [`Node::stat`](crate::Node::stat).
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct NodeStat {
    /// Number of entities in memory.
    pub live: usize,
    /// Number of stored entities that may be in memory before entities that are seldom used are
    /// passivated.
    pub live_max: usize,
    /// Memory of the stored entities that are in memory, in bytes, as [`Options::live_bytes_max`](crate::Options::live_bytes_max) counts it.
    pub live_bytes: usize,
    /// Number of times an entity was brought into memory since the node was started.
    pub activations: u64,
    /// Number of times an entity left memory in order: because it was idle for too long, to make
    /// room, or because it had nothing to keep. An entity that leaves memory in another way has
    /// failed, and is not counted.
    pub passivations: u64,
    /// Number of these times that a timer, a stream, a link or the like of the entity ended with its activation,
    /// because all entities over the limit had some; see [`Options::live_max`](crate::Options::live_max).
    pub evicted_with_ties: u64,
    /// Number of pinned entities, in memory or not.
    pub pinned: u64,
    /// Number of times that a pinned entity has failed since the node was started. The node activates it again.
    pub pinned_failures: u64,
    /// Number of [durable messages](crate::DurableMessage) that were parked since the node was started.
    pub parked: u64,
    /// Number of times since the node was started that an entity has stopped to take durable messages, because one of
    /// them has failed too often; see [`OnFailure::stop_after`](crate::OnFailure::stop_after).
    pub stopped: u64,
    /// Number of entities whose durable messages are to be delivered from the store, now or after a pause.
    pub redeliveries: usize,
    /// Number of occurrences of [reminders](crate::DurableContext::remind) since the node was started that were missed,
    /// and did not come: see [`Missed::Skip`](crate::Missed::Skip).
    pub reminders_skipped: u64,
    /// Number of entities with a reminder that is due for a second or longer: they cannot be activated, work on another
    /// message, or have stopped.
    pub reminders_late: usize,
    /// Number of times since the node was started that the run of a workflow got [stuck](crate::RunStatus::Stuck).
    pub workflows_stuck: u64,
    /// Number of jobs that have become [dead](crate::JobState::Dead) since the node was started.
    pub jobs_dead: u64,
    /// Number of entities on disk for each kind, in memory or not. An entity that was never changed
    /// is not on disk.
    pub stored: BTreeMap<String, u64>,
    /// The part of `stored` whose kinds this program has not used since the node was started. The entities
    /// of a kind that was renamed stay under its earlier name, and are listed here.
    pub unclaimed: BTreeMap<String, u64>,
    /// Statistics of the store: its `entries` are the records of all states, cells and counts.
    pub store: Stat,
}

impl NodeStat {
    /// Number of entities on disk that are not in memory. The number is too low by each live entity
    /// that is not stored yet.
    pub fn at_rest(&self) -> u64 {
        self.stored.values().sum::<u64>().saturating_sub(self.live as u64)
    }

    /// Returns the statistics in the text format of Prometheus.
    pub fn to_prometheus(&self) -> String {
        let store = &self.store;
        let mut text = PrometheusText::default();
        for (name, help, value) in [
            ("throng_entities_live", "Entities in memory.", self.live as u64),
            (
                "throng_entities_live_limit",
                "Entities that may be in memory before seldom used ones are passivated.",
                self.live_max as u64,
            ),
            (
                "throng_entities_live_bytes",
                "Memory of stored entities in memory, by the sizes of their records.",
                self.live_bytes as u64,
            ),
            ("throng_entities_stored", "Entities on disk.", self.stored.values().sum::<u64>()),
            (
                "throng_entities_unclaimed",
                "Entities on disk of kinds that the program has not used since the start.",
                self.unclaimed.values().sum::<u64>(),
            ),
            (
                "throng_entities_activated_total",
                "Times an entity was brought into memory.",
                self.activations,
            ),
            (
                "throng_entities_passivated_total",
                "Times an entity left memory in order.",
                self.passivations,
            ),
            ("throng_entities_pinned", "Pinned entities.", self.pinned),
            (
                "throng_entities_pinned_failures_total",
                "Times a pinned entity failed.",
                self.pinned_failures,
            ),
            (
                "throng_messages_parked_total",
                "Durable messages that were parked because their handler failed too often.",
                self.parked,
            ),
            (
                "throng_entities_stopped_total",
                "Times an entity stopped to take durable messages because one failed too often.",
                self.stopped,
            ),
            (
                "throng_entities_redeliveries",
                "Entities whose durable messages are to be delivered from the store.",
                self.redeliveries as u64,
            ),
            (
                "throng_reminders_skipped_total",
                "Occurrences of reminders that were missed, and did not come.",
                self.reminders_skipped,
            ),
            (
                "throng_reminders_late",
                "Entities with a reminder that is due for a second or longer.",
                self.reminders_late as u64,
            ),
            (
                "throng_workflows_stuck_total",
                "Times the run of a workflow got stuck.",
                self.workflows_stuck,
            ),
            ("throng_jobs_dead_total", "Jobs that are not tried any more.", self.jobs_dead),
            (
                "throng_entities_evicted_with_ties_total",
                "Times an entity left memory to make room although a timer, a stream, a link or the like was to wake it.",
                self.evicted_with_ties,
            ),
            ("throng_store_entries", "Keys in the store.", store.entries),
            ("throng_store_file_bytes", "Size of the data file.", store.file_bytes),
            ("throng_store_log_bytes", "Size of the log.", store.log_bytes),
            (
                "throng_store_memory_bytes",
                "Memory of the changes since the last checkpoint.",
                store.memory_bytes,
            ),
            ("throng_store_map_bytes", "Size limit of the data file.", store.map_bytes),
            ("throng_store_batches_total", "Batches made durable.", store.batches),
            (
                "throng_store_commits_total",
                "Groups of batches, each made durable by a flush of its own.",
                store.commits,
            ),
            (
                "throng_store_checkpoints_total",
                "Checkpoints, each of which writes the changes in memory to the data file.",
                store.checkpoints,
            ),
            (
                "throng_store_snapshot_lag_commits",
                "Commits that the oldest snapshot is behind; the data file grows while it is kept.",
                store.snapshot_lag_commits,
            ),
            (
                "throng_store_writable",
                "Whether the store takes writes: 1 if it does.",
                u64::from(store.writable),
            ),
        ] {
            text.gauge(name, help, value);
        }
        for (name, help, time) in [
            ("throng_store_flush_seconds_total", "Time that these flushes took.", store.flush_time),
            (
                "throng_store_checkpoint_seconds_total",
                "Time that checkpoints took.",
                store.checkpoint_time,
            ),
        ] {
            text.counter(name, help, time.as_secs_f64());
        }
        text.into_text()
    }
}
