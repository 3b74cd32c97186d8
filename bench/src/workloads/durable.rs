//! The places of durable counters: the shared parts of `durable-turns`, `durable-http`, `once`, `durable-send`,
//! `durable-live`, `activate`, `durable-rest`, `queue`, `workflow`, `workflow-rest` and `reminders`.
//!
//! The calls and the checks of their values are those of [`bench_steps::counters`]. A counter is a durable process or the
//! like, of the kind `counter`, and a caller is a process of the runtime, or a task.

mod tellus;
mod throng;
mod tokio_heed;

use std::time::Duration;

use bench_steps::Error;
pub(super) use bench_steps::counters::*;
pub(super) use bench_steps::numbers::key;
pub(super) use bench_steps::tasks::{Done, Tasks, in_turn, wait};

pub(super) use self::tellus::TellusHome;
pub(super) use self::throng::{
    TIMEOUT, ThrongCounters, ThrongHome, load, on_node, on_node_at, processes,
};
pub(super) use self::tokio_heed::TokioHeedHome;
use crate::settings::Settings;

/// Time for which a workload waits until a closed directory can be opened again.
const REOPENING: Duration = Duration::from_secs(10);

/// Limit of live counters above any number that a workload reaches.
pub(super) fn unlimited(counters: u64) -> u64 {
    counters.saturating_mul(2).max(1_000_000)
}

/// The limit of live counters in the settings, above the number of counters if there is none.
pub(super) fn live_max(settings: &Settings, counters: u64) -> u64 {
    match settings.get("cap") {
        0 => unlimited(counters),
        cap => cap,
    }
}

/// Returns additions in an order: their number, time and number in flight are in the settings.
pub(super) fn calls(settings: &Settings, order: Order) -> Calls {
    Calls::adding(order, settings.get("inflight"), settings.count, settings.get("seconds"))
}

/// A setting, as the workloads that are written for several programs ask for it.
pub(super) fn setting(settings: &Settings) -> impl Fn(&str) -> Result<u64, Error> {
    |name| Ok(settings.get(name))
}
