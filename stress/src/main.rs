//! Stress: properties that must hold under loads too long for a test. Each run checks its own
//! outcome, and fails with a sentence that names the broken property.
//!
//! ```text
//! cargo xtask stress                    all runs, at full size
//! cargo xtask stress monitors           a single run
//! cargo xtask stress monitors 1000      the same, at another size
//! THRONG_SIM_SEED=7 cargo xtask stress trees      a single tree
//! ```

// The outcome of a stress run is its exit status.
#![allow(clippy::unwrap_used)]

mod blocking;
mod burst;
mod flood;
mod monitors;
mod panics;
mod resident;
mod spawn_exit;
mod trees;

use std::process::ExitCode;
use std::time::Instant;

/// A summary of the run, or the property that did not hold.
pub(crate) type Outcome = Result<String, String>;

struct Stress {
    name: &'static str,
    about: &'static str,
    size: u64,
    run: fn(u64) -> Outcome,
}

const ALL: &[Stress] = &[
    Stress {
        name: "spawn-exit",
        about: "processes that are spawned and exit, with resident memory flat",
        size: 100_000_000,
        run: spawn_exit::run,
    },
    Stress {
        name: "monitors",
        about: "monitors of a process that dies: each fires exactly once",
        size: 1_000_000,
        run: monitors::run,
    },
    Stress {
        name: "panics",
        about: "panics in supervised processes: every supervisor survives",
        size: 1_000_000,
        run: panics::run,
    },
    Stress {
        name: "blocking",
        about: "milliseconds that a handler blocks its thread: other processes keep their latency",
        size: 5_000,
        run: blocking::run,
    },
    Stress {
        name: "flood",
        about: "seconds of flood at a slow consumer: resident memory stays within the mailbox budget",
        size: 60,
        run: flood::run,
    },
    Stress {
        name: "burst",
        about: "messages that wait at 1 to 10,000 receivers: once handled, their memory goes back",
        size: 1_000_000,
        run: burst::run,
    },
    Stress {
        name: "trees",
        about: "random supervision trees in the simulator, with injected crashes",
        size: 10_000,
        run: trees::run,
    },
];

fn main() -> ExitCode {
    let mut arguments = std::env::args().skip(1);
    let (name, size) = (arguments.next(), arguments.next());
    let size = match size.as_deref().map(str::parse) {
        None => None,
        Some(Ok(size)) => Some(size),
        Some(Err(_)) => return usage("the size is not a number"),
    };
    let chosen: Vec<_> = ALL
        .iter()
        .filter(|stress| name.as_deref().is_none_or(|name| name == stress.name))
        .collect();
    if chosen.is_empty() {
        return usage("no stress run has that name");
    }
    let mut code = ExitCode::SUCCESS;
    for stress in chosen {
        let size = size.unwrap_or(stress.size);
        let begun = Instant::now();
        let outcome = (stress.run)(size);
        let seconds = begun.elapsed().as_secs_f64();
        match outcome {
            Ok(summary) => println!("{} {size}: ok in {seconds:.1} s: {summary}", stress.name),
            Err(failed) => {
                println!("{} {size}: FAILED after {seconds:.1} s: {failed}", stress.name);
                code = ExitCode::FAILURE;
            }
        }
    }
    code
}

fn usage(problem: &str) -> ExitCode {
    eprintln!("stress: {problem}; usage: stress [NAME [SIZE]], with NAME one of");
    for stress in ALL {
        eprintln!("  {:<12} {} (size {})", stress.name, stress.about, stress.size);
    }
    ExitCode::from(2)
}

/// Returns the sentence `otherwise` as an error unless the condition holds.
pub(crate) fn ensure(holds: bool, otherwise: impl FnOnce() -> String) -> Result<(), String> {
    if holds { Ok(()) } else { Err(otherwise()) }
}
