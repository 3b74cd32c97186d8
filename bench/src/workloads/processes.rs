//! `processes`: N processes that wait for `die`, as the program `processes.erl` spawns them.
//!
//! ```text
//! driver   spawn × N │ die × N, wait until all have exited
//!          ├─────────┤ wall_ns, and cpu_ns of all threads
//! ```
//!
//! - As in the original, the clocks stop when the last spawn has returned, whether or not a process has run
//!   by then. `spawn` measures until each process has handled a message.
//! - The original sends `die` and does not look; here all exits are awaited and counted.
//! - `maximum` is the limit of processes that the original sets by `erl +P`. A run that exceeds it is an
//!   error: a runtime with a limit of its own has this one and refuses the next process, elsewhere the
//!   driver does.

mod actix;
mod smol;
mod threads;
mod throng;
mod tokio;

use std::io;
use std::time::Instant;

use super::tally::Tally;
use crate::memory;
use crate::outcome::Outcome;
use crate::runtimes::{self, Measured};
use crate::settings::Settings;
use crate::usage;

pub(crate) fn run(row: &str, settings: &Settings) -> Measured {
    match row {
        "throng" => throng::run(settings),
        "tokio" => tokio::run(settings),
        "smol" => smol::run(settings),
        "actix" => actix::run(settings),
        "threads" => threads::run(settings),
        _ => Err(runtimes::no_row(row)),
    }
}

/// Name of the setting for the number of processes that are allowed.
pub(crate) const MAXIMUM: &str = "maximum";

static EXITED: Tally = Tally::new();

/// The state of each process, which counts the process when it is dropped.
struct Waiting;

impl Drop for Waiting {
    fn drop(&mut self) {
        EXITED.add(1);
    }
}

/// A runtime's implementation of the steps; called in a process of the runtime.
trait ProcessesSteps {
    /// The address of a process.
    type Address;

    /// Starts a process, beside a number of processes that already live.
    ///
    /// # Errors
    /// If the limit of processes is reached.
    fn spawn(&self, living: u64) -> io::Result<Self::Address>;

    /// Sends the message on which a process exits.
    fn die(&self, process: &Self::Address);
}

/// The limit of a runtime that has none itself.
struct Maximum(u64);

impl Maximum {
    fn of(settings: &Settings) -> Maximum {
        Maximum(settings.get(MAXIMUM))
    }

    /// Checks that another process is allowed beside those that live.
    fn allow(&self, living: u64) -> io::Result<()> {
        if living < self.0 {
            return Ok(());
        }
        Err(io::Error::other(format!("the limit of {} processes is reached", self.0)))
    }
}

/// Drives the workload: its order, clocks and checks.
async fn measure<S: ProcessesSteps>(steps: S, settings: Settings) -> io::Result<Outcome> {
    let (count, maximum) = (settings.count, settings.get(MAXIMUM));
    let mut processes = memory::resident_vec(count as usize);
    EXITED.arm(count);

    let (cpu, clock) = (usage::own_cpu_ns(), Instant::now());
    for living in 0..count {
        let process = steps.spawn(living).map_err(|error| {
            let requested = format!("{count} processes requested, {maximum} allowed");
            io::Error::other(format!("{requested}: number {} was refused: {error}", living + 1))
        })?;
        processes.push(process);
    }
    let (cpu, wall) = (usage::own_cpu_ns() - cpu, clock.elapsed());
    for process in &processes {
        steps.die(process);
    }
    EXITED.complete().await;

    let mut outcome = Outcome::default();
    outcome.metric("wall_ns", wall.as_nanos() as f64 / count as f64);
    outcome.metric("cpu_ns", cpu as f64 / count as f64);
    outcome.check("processes that exited", EXITED.count(), count);
    outcome.check("processes beyond the maximum", count.saturating_sub(maximum), 0);
    Ok(outcome)
}
