//! `send-then-call`: a tokio task spawns a process, sends it a message, and calls it at once; see [`account`] for the
//! order of work, the clocks and the checks.

use super::{Workload, account};
use crate::settings::Settings;

pub(crate) const WORKLOAD: Workload = Workload {
    name: "send-then-call",
    about: "a tokio task spawns a process, sends it a message, and calls it; N times in sequence",
    counts: "processes",
    count: 100_000,
    keys: account::KEYS,
    metrics: account::METRICS,
    processes: Settings::sum,
    peers: &account::peers::<true>(),
};
