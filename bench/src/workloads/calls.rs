//! `calls`: many processes call at once, each its own callee or some of them the same; see
//! [`clients`] for the order of work, the clocks and the checks.

use super::clients;
use super::shape::{self, Shape, ShapeHost};
use crate::runtimes::{Measured, Work};
use crate::settings::Settings;

pub(crate) fn run(row: &str, settings: &Settings) -> Measured {
    shape::run::<Calls>(row, settings)
}

struct Calls;

impl Shape for Calls {
    fn measure<H: ShapeHost>(host: H, settings: Settings) -> impl Work {
        let (callers, callees) = (settings.get("callers"), settings.get("callees"));
        clients::measure(host, settings, clients::Callers::Processes, callers, callees)
    }
}
