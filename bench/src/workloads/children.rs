//! `children`: N children are started under one supervisor, from outside, one after the other.
//!
//! ```text
//! driver    (start a child, wait until it runs) × N │ message × N, wait until counted
//!           ├──────────────── start_ns ─────────────┤
//! ```
//!
//! - The driver is outside of the runtime's workers, as the future of `block_on`.
//! - A child counts itself when it is made, and once more when it handles a message; the supervisor
//!   must then have N children that run.

mod throng;

use super::Workload;
use super::tally::Tally;
use crate::runtimes;
use crate::settings::Settings;

pub(crate) const WORKLOAD: Workload = Workload {
    name: "children",
    about: "N children started under one supervisor from outside, one after the other",
    counts: "children",
    count: 100_000,
    keys: &[],
    metrics: "start_ns",
    processes: Settings::sum,
    peers: &[runtimes::throng::peer(throng::run)],
};

static MADE: Tally = Tally::new();
static COUNTED: Tally = Tally::new();
