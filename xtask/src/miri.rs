//! `cargo xtask miri`: the tests in modules named `tests_miri`, and the runtime's integration tests,
//! interpreted, so that undefined behaviour in the unsafe files is an error even where it happens to
//! work.

use crate::steps::{self, Failure, Step, Tests, Tool};

const STEPS: &[Step] = &[
    Step {
        name: "parts",
        about: "undefined behaviour in the unsafe files, one by one",
        run: parts,
    },
    Step { name: "whole", about: "undefined behaviour in the runtime as it runs", run: whole },
];

/// Installs Miri if it is missing, then runs the tests in it.
///
/// # Errors
/// If Miri cannot be installed, or a test fails.
pub(crate) fn run() -> Result<(), Failure> {
    steps::run(STEPS)
}

fn parts() -> Result<Tests, Failure> {
    ensure_miri()?;
    nightly("cargo miri test -p throng --lib --locked --target-dir target/miri miri")
        .env("MIRIFLAGS", "-Zmiri-strict-provenance -Zmiri-disable-isolation")
        .run_tests()
}

/// Leaks are not looked for: threads of the runtime may be in their last lines when a test ends.
fn whole() -> Result<Tests, Failure> {
    nightly("cargo miri test -p throng --test runtime --locked --target-dir target/miri")
        .env("MIRIFLAGS", "-Zmiri-strict-provenance -Zmiri-disable-isolation -Zmiri-ignore-leaks")
        .run_tests()
}

fn ensure_miri() -> Result<(), Failure> {
    let components = Tool::new("rustup component list --installed --toolchain nightly").output();
    if components.is_some_and(|list| list.contains("miri") && list.contains("rust-src")) {
        return Ok(());
    }
    Tool::new("rustup toolchain install nightly --profile minimal --component miri,rust-src")
        .run()
        .map_err(|Failure(why)| {
            Failure(format!(
                "Miri is part of the nightly tool chain, and installing that did not work ({why})"
            ))
        })
}

/// A command of the nightly tool chain, without what the `cargo` that runs us told us about its own.
fn nightly(line: &str) -> Tool {
    ["CARGO", "RUSTC", "RUSTUP_TOOLCHAIN"]
        .into_iter()
        .fold(Tool::new(&format!("rustup run nightly {line}")), Tool::env_remove)
}
