//! `cargo xtask stress`: what must hold under a load that no test waits for. The runs themselves are
//! an example program of the runtime, `crates/throng/examples/stress`.

use crate::steps::{Failure, Tests, Tool};

/// Every run, at a size that takes a second or so, for the ordinary tests.
pub(crate) const SMALL: &[(&str, u64)] = &[
    ("spawn-exit", 50_000),
    ("monitors", 10_000),
    ("panics", 20_000),
    ("blocking", 300),
    ("flood", 2),
    ("trees", 300),
];

/// Runs one of them, or all, optimised.
///
/// # Errors
/// If anything did not hold.
pub(crate) fn run(name: Option<String>, size: Option<u64>) -> Result<(), Failure> {
    let mut line = String::from("cargo run --release --locked -p throng --example stress --");
    for argument in name.into_iter().chain(size.map(|size| size.to_string())) {
        line.push(' ');
        line.push_str(&argument);
    }
    Tool::new(&line).run()
}

/// All of them, small.
pub(crate) fn small() -> Result<Tests, Failure> {
    for &(name, size) in SMALL {
        run(Some(name.into()), Some(size))?;
    }
    Ok(Tests::one_passed())
}
