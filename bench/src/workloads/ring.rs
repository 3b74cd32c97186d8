//! `ring`: a token passes through a ring of processes, as in Savina's `threadring`; see [`relay`]
//! for the order of work, the clock and the checks.

use super::relay;
use super::shape::{self, Shape, ShapeHost};
use crate::runtimes::{Measured, Work};
use crate::settings::Settings;

pub(crate) fn run(row: &str, settings: &Settings) -> Measured {
    shape::run::<Ring>(row, settings)
}

struct Ring;

impl Shape for Ring {
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
