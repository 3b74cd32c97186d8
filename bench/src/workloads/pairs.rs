//! `pairs`: pairs of processes send a message to and fro, all pairs at once; see [`relay`] for the
//! order of work, the clock and the checks.

use super::relay;
use super::shape::{self, Shape, ShapeHost};
use crate::runtimes::{Measured, Work};
use crate::settings::Settings;

pub(crate) fn run(row: &str, settings: &Settings) -> Measured {
    shape::run::<Pairs>(row, settings)
}

struct Pairs;

impl Shape for Pairs {
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
