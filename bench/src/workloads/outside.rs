//! `outside`: tokio tasks call a process at once, as the handlers of a web server do; see
//! [`clients`] for the order of work, the clocks and the checks.
//!
//! - The tasks run on a tokio runtime with as many threads as the settings have workers. For tokio
//!   and the actors on it, this is the runtime of the callee. For throng it is a runtime beside
//!   throng's own workers.

use super::shape::{self, Shape, ShapeHost};
use super::{Workload, clients};
use crate::runtimes::Work;
use crate::settings::{Key, Kind, Settings};

pub(crate) const WORKLOAD: Workload = Workload {
    name: "outside",
    about: "M calls by tokio tasks to one process, each reply checked",
    counts: "calls",
    count: 500_000,
    keys: &[
        Key {
            name: "tasks",
            kind: Kind::Number(64),
            about: "number of tokio tasks that call; each makes its share of the calls",
        },
        Key { kind: Kind::Number(50_000), ..clients::SAMPLES },
    ],
    metrics: clients::METRICS,
    processes: Outside::processes,
    peers: &shape::rust_peers::<Outside>(),
};

struct Outside;

impl Shape for Outside {
    const OUTSIDE: bool = true;

    fn processes(_: &Settings) -> u64 {
        1
    }

    fn measure<H: ShapeHost>(host: H, settings: Settings) -> impl Work {
        let tasks = settings.get("tasks");
        clients::measure(host, settings, clients::Callers::Tasks, tasks, 1)
    }
}
