//! `cargo xtask miri` and `cargo xtask tsan`: the checks that need a nightly compiler.
//!
//! Miri interprets the tests in modules named `tests_miri` and the runtime's integration tests, so
//! that undefined behaviour in the unsafe files is an error even if it happens to work.
//! ThreadSanitizer watches the integration tests and the stress runs for data races, at full speed
//! and with the real scheduler of the system.

use crate::steps::{self, Failure, Step, Tests, Tool};
use crate::stress;

const MIRI: &[Step] = &[
    Step { name: "parts", about: "undefined behaviour in each unsafe file", run: parts },
    Step { name: "whole", about: "undefined behaviour in the runtime as it runs", run: whole },
];

const TSAN: &[Step] = &[
    Step { name: "tests", about: "data races in the runtime's integration tests", run: races },
    Step { name: "stress", about: "data races in the stress runs", run: races_under_stress },
];

/// Installs Miri if it is missing, then runs the tests in it.
///
/// # Errors
/// If Miri cannot be installed, or a test fails.
pub(crate) fn miri() -> Result<(), Failure> {
    steps::run(MIRI)
}

/// Runs tests and stress runs under ThreadSanitizer, with a standard library built for it.
///
/// # Errors
/// If the nightly compiler cannot be installed, a test fails, or there is a data race.
pub(crate) fn tsan() -> Result<(), Failure> {
    steps::run(TSAN)
}

/// Runs the unit tests in Miri. Addresses are reused as often as possible, and a pointer may be made
/// from an exposed address, as `mailbox.rs` does; clippy forbids that everywhere else.
fn parts() -> Result<Tests, Failure> {
    ensure_nightly()?;
    nightly("cargo miri test -p throng --lib --locked --target-dir target/miri miri")
        .env(
            "MIRIFLAGS",
            "-Zmiri-permissive-provenance -Zmiri-disable-isolation -Zmiri-address-reuse-rate=1.0",
        )
        .run_tests()
}

/// Runs the integration tests in Miri. Leaks are ignored: threads of the runtime may still be
/// ending when a test ends.
fn whole() -> Result<Tests, Failure> {
    // A single test thread: Miri interleaves all threads, and parallel tests miss their deadlines.
    nightly("cargo miri test -p throng --test runtime --locked --target-dir target/miri -- --test-threads=1")
        .env("MIRIFLAGS", "-Zmiri-permissive-provenance -Zmiri-disable-isolation -Zmiri-ignore-leaks")
        .run_tests()
}

fn races() -> Result<Tests, Failure> {
    ensure_nightly()?;
    // tokio's socket driver synchronises through the system, which the sanitizer does not see.
    sanitized("test", "-p throng --test runtime --locked", " -- --skip sockets")?.run_tests()
}

fn races_under_stress() -> Result<Tests, Failure> {
    for (name, size) in stress::SMALL {
        let arguments = format!(" -- {name} {size}");
        sanitized("run", "-p throng-stress --locked", &arguments)?.run()?;
    }
    Ok(Tests::one_passed())
}

/// A command on the runtime, with the runtime and the standard library built for the sanitizer.
fn sanitized(command: &str, what: &str, arguments: &str) -> Result<Tool, Failure> {
    let version = Tool::new("rustc -vV").output().unwrap_or_default();
    let host = version.lines().find_map(|line| line.strip_prefix("host: "));
    let host = host.ok_or_else(|| Failure("rustc does not print its host".into()))?;
    let line = format!(
        "cargo {command} -Zbuild-std --target {host} {what} --target-dir target/tsan{arguments}"
    );
    Ok(nightly(&line).env("RUSTFLAGS", "-Zsanitizer=thread"))
}

fn ensure_nightly() -> Result<(), Failure> {
    let components = Tool::new("rustup component list --installed --toolchain nightly").output();
    if components.is_some_and(|list| list.contains("miri") && list.contains("rust-src")) {
        return Ok(());
    }
    Tool::new("rustup toolchain install nightly --profile minimal --component miri,rust-src")
        .run()
        .map_err(|Failure(why)| {
            Failure(format!("this needs the nightly tool chain, and installing it failed ({why})"))
        })
}

/// A command of the nightly tool chain, without the variables that `cargo` sets for its own tool
/// chain.
pub(crate) fn nightly(line: &str) -> Tool {
    ["CARGO", "RUSTC", "RUSTUP_TOOLCHAIN"]
        .into_iter()
        .fold(Tool::new(&format!("rustup run nightly {line}")), Tool::env_remove)
}
