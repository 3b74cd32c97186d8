//! The project's own commands, as `cargo xtask COMMAND`: the checks that a change must pass, and
//! nothing else.
//!
//! ```text
//! ci ──┬─ fmt, tidy, deny, clippy …  ci.rs, tidy.rs, deny.rs
//!      └─ test ─ unit … browser      test.rs
//! miri, tsan                         nightly.rs  (a nightly compiler, so not part of `ci`)
//! stress                             stress.rs, openapi.rs, fuzz.rs, deny.rs
//! conformance                        conformance.rs (the part without Erlang is a test, too)
//! every command line they run        steps.rs
//! ```
//!
//! Invariant: a command succeeds only if each of its steps did, and a step that was meant to run
//! tests but ran none has failed.

mod ci;
mod conformance;
mod deny;
mod fuzz;
mod nightly;
mod node;
mod openapi;
mod quickstart;
mod readme;
mod steps;
mod stress;
mod test;
mod tidy;

use clap::{Parser, Subcommand};
use conformance::Compare;
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
    /// Checks of structure and wording that the compiler does not make
    Tidy,
    /// Undefined behaviour, in the unsafe files and in the runtime as it runs, under Miri
    Miri,
    /// Compares throng with Erlang/OTP, scenario by scenario
    Conformance {
        /// Compare the installed Erlang/OTP with the committed logs as well
        #[arg(long)]
        with_erlang: bool,
        /// Write the logs again with the installed Erlang/OTP, and run nothing else
        #[arg(long, conflicts_with = "with_erlang")]
        record: bool,
    },
    /// Data races in the runtime, under ThreadSanitizer
    Tsan,
    /// Stress runs at full size; each checks its outcome
    Stress {
        /// Name of the run; all of them when none is named
        name: Option<String>,
        /// Size of the run, instead of the full size
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
        Command::Conformance { record: true, .. } => conformance::run(Compare::Record),
        Command::Conformance { with_erlang: true, .. } => {
            conformance::run(Compare::ThrongAndErlang)
        }
        Command::Conformance { .. } => conformance::run(Compare::Throng),
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
