//! `send-then-call`: a tokio task spawns a process, sends it a message, and calls it at once; see [`account`] for the
//! order of work, the clocks and the checks.

use super::account;
use crate::runtimes::Measured;
use crate::settings::Settings;

pub(crate) fn run(row: &str, settings: &Settings) -> Measured {
    account::run::<true>(row, settings)
}
