//! `cargo xtask ci`: the cheap checks first, then every test.
//!
//! Invariant: all steps but the loom models share one target directory and one feature set, so
//! that a clean clone compiles each dependency once to check it and once to run it.

use crate::steps::{self, Failure, Step, Tests, Tool};
use crate::{test, tidy};

/// Runs all of it.
///
/// # Errors
/// Names the first step that failed.
pub(crate) fn run() -> Result<(), Failure> {
    let mut all = CHECKS.to_vec();
    all.extend_from_slice(test::STEPS);
    steps::run(&all)
}

const CHECKS: &[Step] = &[
    Step { name: "fmt", about: "formatting", run: fmt },
    Step { name: "tidy", about: "structure, absences, licences", run: tidy_step },
    Step { name: "clippy", about: "lints, warnings denied", run: clippy },
    Step { name: "doc", about: "documentation builds without a warning", run: doc },
];

fn fmt() -> Result<Tests, Failure> {
    Tool::new("cargo fmt --all --check").run()?;
    Tool::new("cargo fmt --all --check --manifest-path bench/Cargo.toml").run()?;
    Ok(Tests::default())
}

fn tidy_step() -> Result<Tests, Failure> {
    tidy::run().map(|()| Tests::default())
}

fn clippy() -> Result<Tests, Failure> {
    Tool::new("cargo clippy --workspace --all-targets --locked -- -D warnings").run()?;
    // In release mode, as its tests are: they share the build scripts and procedural macros.
    Tool::new("cargo clippy --manifest-path bench/Cargo.toml --workspace --all-targets --release --locked -- -D warnings").run()?;
    Ok(Tests::default())
}

fn doc() -> Result<Tests, Failure> {
    // The simulator's reference too.
    Tool::new("cargo doc --workspace --no-deps --locked --features throng/sim")
        .env("RUSTDOCFLAGS", "-D warnings")
        .run()?;
    Ok(Tests::default())
}
