//! `first-call`: a tokio task looks up a key that has no process yet, which spawns one, and calls the process; see
//! [`account`] for the order of work, the clocks and the checks.

use super::{Workload, account};
use crate::settings::Settings;

pub(crate) const WORKLOAD: Workload = Workload {
    name: "first-call",
    about: "a tokio task gets or spawns the process of a new key, and calls it; N times in sequence",
    counts: "processes",
    count: 100_000,
    keys: account::KEYS,
    metrics: account::METRICS,
    processes: Settings::sum,
    peers: &account::peers::<false>(),
};
