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

use super::tally::Tally;
use crate::runtimes::{self, Measured};
use crate::settings::Settings;

pub(crate) fn run(row: &str, settings: &Settings) -> Measured {
    match row {
        "throng" => throng::run(settings),
        _ => Err(runtimes::no_row(row)),
    }
}

static MADE: Tally = Tally::new();
static COUNTED: Tally = Tally::new();
