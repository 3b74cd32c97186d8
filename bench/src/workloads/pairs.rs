//! `pairs`: pairs of processes send a message to and fro, all pairs at once; see [`relay`] for the
//! order of work, the clock and the checks.

use super::shape::{self, Shape, ShapeHost};
use super::{Workload, relay};
use crate::runtimes::Work;
use crate::settings::{Key, Kind, Settings};

pub(crate) const WORKLOAD: Workload = Workload {
    name: "pairs",
    about: "M messages to and fro in pairs of processes, all pairs at once",
    counts: "messages",
    count: 10_000_000,
    keys: &[Key {
        name: "pairs",
        kind: Kind::Number(1000),
        about: "number of pairs; each passes its share of the messages",
    }],
    metrics: "message_ns",
    processes: Pairs::processes,
    peers: &shape::peers::<Pairs>(),
};

struct Pairs;

impl Shape for Pairs {
    fn processes(settings: &Settings) -> u64 {
        2 * settings.get("pairs")
    }

    fn measure<H: ShapeHost>(host: H, settings: Settings) -> impl Work {
        async move {
            let count = settings.count;
            let (elapsed, mut outcome) =
                relay::measure(host, count, settings.get("pairs"), 2).await?;
            outcome.metric("message_ns", elapsed.as_nanos() as f64 / count as f64);
            Ok(outcome)
        }
    }
}
