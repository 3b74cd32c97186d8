//! `first-call`: a tokio task looks up a key that has no process yet, which spawns one, and calls the process; see
//! [`account`] for the order of work, the clocks and the checks.

use super::account;
use crate::runtimes::Measured;
use crate::settings::Settings;

pub(crate) fn run(row: &str, settings: &Settings) -> Measured {
    account::run::<false>(row, settings)
}
