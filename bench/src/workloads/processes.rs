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
use std::convert::Infallible;
use std::io;
use std::time::Instant;

use super::prelude::*;
use super::tally::Tally;
use crate::host::{Host, Next, OnHost, Receiver, on_host};
use crate::runtimes::throng::Throng;
use crate::usage;

pub(crate) fn run(row: &str, settings: &Settings) -> Measured {
    if row != "throng" {
        return on_host::<Processes>(row, settings);
    }
    let maximum = settings.get("maximum");
    runtimes::throng::drive_limited(settings, maximum, Processes::measure::<Throng>)
}

struct Processes;

impl OnHost for Processes {
    async fn measure<H: Host>(host: H, settings: Settings) -> Measured {
        let (count, maximum) = (settings.count, settings.get("maximum"));
        let mut processes = memory::resident_vec(count as usize);
        EXITED.arm(count);

        let (cpu, clock) = (usage::own_cpu_ns(), Instant::now());
        for living in 0..count {
            let spawned = if H::LIMITS_PROCESSES || living < maximum {
                host.start(Waiting).await
            } else {
                Err(io::Error::other(format!("the limit of {maximum} processes is reached")))
            };
            let process = spawned.map_err(|error| {
                let requested = format!("{count} processes requested, {maximum} allowed");
                io::Error::other(format!("{requested}: number {} was refused: {error}", living + 1))
            })?;
            processes.push(process);
        }
        let (cpu, wall) = (usage::own_cpu_ns() - cpu, clock.elapsed());
        for process in &processes {
            H::send(process, ());
        }
        EXITED.complete().await;

        let mut outcome = Outcome::default();
        outcome.metric("wall_ns", wall.as_nanos() as f64 / count as f64);
        outcome.metric("cpu_ns", cpu as f64 / count as f64);
        outcome.check("processes that exited", EXITED.count(), count);
        outcome.check("processes beyond the maximum", count.saturating_sub(maximum), 0);
        Ok(outcome)
    }
}

static EXITED: Tally = Tally::new();

/// The state of each process, which counts the process when it is dropped.
struct Waiting;

impl Receiver for Waiting {
    type Message = ();
    type Pause = Infallible;

    fn receive(&mut self, (): ()) -> Next {
        Next::Stop
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        EXITED.add(1);
    }
}
