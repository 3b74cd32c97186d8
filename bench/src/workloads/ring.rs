//! `ring`: a token passes through a ring of processes, as in Savina's `threadring`; see [`relay`]
//! for the order of work, the clock and the checks.

use super::shape::{self, Shape, ShapeHost};
use super::{Workload, relay};
use crate::runtimes::Work;
use crate::settings::{Key, Kind, Settings};

pub(crate) const WORKLOAD: Workload = Workload {
    name: "ring",
    about: "a token makes M hops through a ring of processes",
    counts: "hops",
    count: 1_000_000,
    keys: &[Key {
        name: "processes",
        kind: Kind::Number(100),
        about: "number of processes in the ring",
    }],
    metrics: "wall_s hop_ns",
    processes: Ring::processes,
    peers: &shape::peers::<Ring>(),
};

struct Ring;

impl Shape for Ring {
    fn processes(settings: &Settings) -> u64 {
        settings.get("processes")
    }

    fn measure<H: ShapeHost>(host: H, settings: Settings) -> impl Work {
        async move {
            let count = settings.count;
            let (elapsed, mut outcome) =
                relay::measure(host, count, 1, settings.get("processes")).await?;
            outcome.metric("wall_s", elapsed.as_secs_f64());
            outcome.metric("hop_ns", elapsed.as_nanos() as f64 / count as f64);
            Ok(outcome)
        }
    }
}
