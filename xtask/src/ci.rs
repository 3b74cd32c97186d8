//! `cargo xtask ci`: the cheap checks first, then every test.
//!
//! Most time is spent on compiling dependencies, so steps share them. Cargo compiles a dependency
//! only once for all steps that agree in directory, profile, flags and features:
//!
//! | compiled            | for the steps                                  | how                    |
//! |---------------------|------------------------------------------------|------------------------|
//! | to check            | clippy, doc; of `bench/` as well               | dev, `target/debug`    |
//! | to run              | unit, models, stress, costs, bench, browser    | dev, `target/debug`    |
//! | to run, optimised   | readme                                         | release, as users do   |
//!
//! Crates that only `bench/` has, and the few whose features `-p throng` changes, are extra. For the models alone the
//! crate `throng` is optimised.
//!
//! Invariant: no step sets `RUSTFLAGS` or a target directory of its own, which would compile every
//! dependency again.

use crate::steps::{self, Failure, Step, Tests, Tool};
use crate::{deny, test, tidy};

/// Runs the checks and then all tests.
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
    Step { name: "tidy", about: "structure, absences", run: tidy_step },
    Step { name: "deny", about: "licences and sources of dependencies", run: deny::offline },
    Step { name: "clippy", about: "lints, warnings denied", run: clippy },
    Step { name: "doc", about: "documentation builds without a warning", run: doc },
];

fn fmt() -> Result<Tests, Failure> {
    Tool::new("cargo fmt --all --check").run()?;
    Tool::new("cargo fmt --all --check --manifest-path bench/Cargo.toml").run()?;
    // Without `--all`, which would format the crates that the targets depend on once more.
    Tool::new("cargo fmt --check --manifest-path fuzz/Cargo.toml").run()?;
    Ok(Tests::default())
}

fn tidy_step() -> Result<Tests, Failure> {
    tidy::run().map(|()| Tests::default())
}

fn clippy() -> Result<Tests, Failure> {
    Tool::new("cargo clippy --workspace --all-targets --locked -- -D warnings").run()?;
    // Unoptimised and in the directory of this workspace, like the tests of `bench/`: both share
    // the build scripts and procedural macros.
    Tool::new("cargo clippy --manifest-path bench/Cargo.toml --workspace --all-targets --locked -- -D warnings").in_our_directory().run()?;
    Ok(Tests::default())
}

fn doc() -> Result<Tests, Failure> {
    // The feature adds the reference of the simulator.
    Tool::new("cargo doc --workspace --no-deps --locked --features throng/sim")
        .env("RUSTDOCFLAGS", "-D warnings")
        .run()?;
    Ok(Tests::default())
}
