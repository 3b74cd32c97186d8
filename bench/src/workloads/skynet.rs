//! `skynet`: a tree of processes, ten children to each, whose N leaves are numbered; each process
//! reports the sum of its leaves to its parent and exits.
//!
//! ```text
//! driver    start the root │ wait for the sum
//!           ├──────────────── wall_s ────────┤
//! ```
//!
//! - With the original's million leaves there are 1,111,111 processes. For a number that is no
//!   power of ten, a process divides its leaves among at most ten children as evenly as possible.
//! - The sum shows that each leaf has run once.

mod smol;
mod threads;
mod throng;
mod tokio;
mod tokio_channels;

use std::io;
use std::ops::Range;
use std::time::Instant;

use super::tally::{Tally, share, sum_below};
use crate::outcome::Outcome;
use crate::runtimes::{self, Measured};
use crate::settings::Settings;

pub(crate) fn run(row: &str, settings: &Settings) -> Measured {
    match row {
        "throng" => throng::run(settings),
        "tokio" => runtimes::tokio::drive(settings, tokio::measure),
        "tokio-channels" => runtimes::tokio::drive(settings, tokio_channels::measure),
        "tokio-current-thread" => runtimes::tokio::drive_current_thread(settings, tokio::measure),
        "smol" => runtimes::smol::drive(settings, smol::measure),
        "threads" => runtimes::threads::drive(settings, |_, settings| threads::measure(settings)),
        _ => Err(runtimes::no_row(row)),
    }
}

/// The root's sum, for a runtime in which no process awaits the root.
static ROOT: Tally = Tally::new();

/// Number of processes with N leaves, at most.
fn processes(leaves: u64) -> u64 {
    leaves.saturating_mul(2)
}

/// The leaves of each child of the process that has some leaves. A process with a single leaf has no
/// children.
fn children(leaves: Range<u64>) -> impl ExactSizeIterator<Item = Range<u64>> + Send {
    let count = leaves.end - leaves.start;
    let parts = count.min(10);
    (0..parts as usize).map(move |part| {
        let share = share(count, part as u64, parts);
        leaves.start + share.start..leaves.start + share.end
    })
}

/// Drives the workload: its clock and its check. `root` starts the root, and awaits its sum.
async fn measure<F: Future<Output = Option<u64>>>(
    settings: Settings,
    root: impl FnOnce(Range<u64>) -> F,
) -> io::Result<Outcome> {
    let clock = Instant::now();
    let sum = root(0..settings.count).await;
    let elapsed = clock.elapsed();

    let mut outcome = Outcome::default();
    outcome.metric("wall_s", elapsed.as_secs_f64());
    outcome.check("roots that reported", u64::from(sum.is_some()), 1);
    outcome.check("the sum", sum.unwrap_or_default(), sum_below(settings.count));
    Ok(outcome)
}
