//! `outside`: tokio tasks call a process at once, as the handlers of a web server do; see
//! [`clients`] for the order of work, the clocks and the checks.
//!
//! - The tasks run on a tokio runtime with as many threads as the settings have workers. For tokio
//!   and the actors on it, this is the runtime of the callee. For throng it is a runtime beside
//!   throng's own workers.

use super::clients;
use super::shape::{self, Shape, ShapeHost};
use crate::runtimes::{Measured, Work};
use crate::settings::Settings;

pub(crate) fn run(row: &str, settings: &Settings) -> Measured {
    shape::run::<Outside>(row, settings)
}

struct Outside;

impl Shape for Outside {
    const OUTSIDE: bool = true;

    fn measure<H: ShapeHost>(host: H, settings: Settings) -> impl Work {
        let tasks = settings.get("tasks");
        clients::measure(host, settings, clients::Callers::Tasks, tasks, 1)
    }
}
