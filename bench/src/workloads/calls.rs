//! `calls`: many processes call at once, each its own callee or some of them the same; see
//! [`clients`] for the order of work, the clocks and the checks.

use super::shape::{self, Shape, ShapeHost};
use super::{Workload, clients};
use crate::runtimes::Work;
use crate::settings::{Key, Kind, Settings};

pub(crate) const WORKLOAD: Workload = Workload {
    name: "calls",
    about: "M calls by many processes at once, each reply checked",
    counts: "calls",
    count: 2_000_000,
    keys: &[
        Key {
            name: "callers",
            kind: Kind::Number(1000),
            about: "number of processes that call; each makes its share of the calls",
        },
        Key {
            name: "callees",
            kind: Kind::Number(1000),
            about: "number of processes that are called; caller i calls callee i modulo this number",
        },
        clients::SAMPLES,
    ],
    metrics: clients::METRICS,
    processes: Calls::processes,
    peers: &shape::peers::<Calls>(),
};

struct Calls;

impl Shape for Calls {
    fn processes(settings: &Settings) -> u64 {
        // Each caller is a process in each of two rounds.
        2 * settings.get("callers") + settings.get("callees")
    }

    fn measure<H: ShapeHost>(host: H, settings: Settings) -> impl Work {
        let (callers, callees) = (settings.get("callers"), settings.get("callees"));
        clients::measure(host, settings, clients::Callers::Processes, callers, callees)
    }
}
