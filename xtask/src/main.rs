//! The project's own commands, as `cargo xtask COMMAND`: what a change must pass, and nothing else.
//!
//! ```text
//! ci ──┬─ fmt, clippy, tidy, doc     ci.rs, tidy.rs
//!      └─ test ─ unit … browser      test.rs
//! miri, tsan                         nightly.rs  (a nightly compiler, so not part of `ci`)
//! stress                             stress.rs
//! every command line they run        steps.rs
//! ```
//!
//! Invariant: a command succeeds only if each of its steps did, and a step that was meant to run
//! tests but ran none has failed.

#![forbid(unsafe_code)]

mod ci;
mod nightly;
mod readme;
mod steps;
mod stress;
mod test;
mod tidy;

use clap::{Parser, Subcommand};
use std::process::ExitCode;

/// Tests and checks of the workspace.
#[derive(Parser)]
#[command(name = "cargo xtask", disable_help_subcommand = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Everything a change must pass: format, lints, tidy, documentation, tests
    Ci,
    /// All tests, or the named ones, in an order that fails early
    Test {
        /// Steps to run; all of them when none is named
        steps: Vec<String>,
        /// Print the steps instead of running them
        #[arg(long)]
        list: bool,
    },
    /// The checks of structure that the compiler does not make
    Tidy,
    /// The tests in modules named `tests_miri`, under Miri
    Miri,
    /// Data races in the runtime, under ThreadSanitizer
    Tsan,
    /// What must hold under load, at full size; each run checks its outcome
    Stress {
        /// Which; all of them when none is named
        name: Option<String>,
        /// At what size, instead of the full one
        size: Option<u64>,
    },
}

fn main() -> ExitCode {
    let result = match Cli::parse().command {
        Command::Ci => ci::run(),
        Command::Test { list: true, .. } => {
            test::list();
            Ok(())
        }
        Command::Test { steps, list: false } => test::run(&steps),
        Command::Tidy => tidy::run(),
        Command::Miri => nightly::miri(),
        Command::Tsan => nightly::tsan(),
        Command::Stress { name, size } => stress::run(name, size),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("xtask: {failure}");
            ExitCode::FAILURE
        }
    }
}
