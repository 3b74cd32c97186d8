//! Stress: what must hold under a load that no test waits for. Each run checks its own outcome and
//! fails with a sentence that says what did not hold.
//!
//! ```text
//! cargo xtask stress                    all of them, at full size
//! cargo xtask stress monitors           one of them
//! cargo xtask stress monitors 1000      one of them, at another size
//! THRONG_SIM_SEED=7 cargo xtask stress trees      one tree alone
//! ```

// The outcome of a stress run is its exit status.
#![allow(clippy::unwrap_used)]

mod blocking;
mod flood;
mod monitors;
mod panics;
mod resident;
mod spawn_exit;
mod trees;

use std::process::ExitCode;
use std::time::Instant;

/// What did not hold.
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
        about: "processes spawned and exiting, with resident memory flat",
        size: 100_000_000,
        run: spawn_exit::run,
    },
    Stress {
        name: "monitors",
        about: "monitors on one process that dies, each fires exactly once",
        size: 1_000_000,
        run: monitors::run,
    },
    Stress {
        name: "panics",
        about: "panics in supervised processes, with every supervisor alive",
        size: 1_000_000,
        run: panics::run,
    },
    Stress {
        name: "blocking",
        about: "milliseconds a handler blocks its thread, while others keep their latency",
        size: 5_000,
        run: blocking::run,
    },
    Stress {
        name: "flood",
        about: "seconds a slow consumer is flooded, with resident memory flat at the mailbox budget",
        size: 60,
        run: flood::run,
    },
    Stress {
        name: "trees",
        about: "supervision trees drawn at random, in the simulator, with crashes injected",
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
            Ok(held) => println!("{} {size}: ok in {seconds:.1} s: {held}", stress.name),
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

/// Fails with a sentence unless a condition holds.
pub(crate) fn ensure(holds: bool, otherwise: impl FnOnce() -> String) -> Result<(), String> {
    if holds { Ok(()) } else { Err(otherwise()) }
}
