//! `cargo xtask stress`: what must hold under a load that no test waits for. The runs themselves are
//! an example program of the runtime, `crates/throng/examples/stress`, and tests of the store.

use crate::steps::{Failure, Tests, Tool};

/// Every run, at a size that takes a second or so, for the ordinary tests.
pub(crate) const SMALL: &[(&str, u64)] = &[
    ("spawn-exit", 50_000),
    ("monitors", 10_000),
    ("panics", 20_000),
    ("blocking", 300),
    ("flood", 2),
    ("trees", 2_000),
];

/// Tests of the store that the ordinary tests run as well, but shorter: the name of the run, the
/// target and the test, and the variable that says the full size.
const STORE: &[(&str, &str, &str, u64)] = &[
    ("store-kill", "store killed_writers_lose_nothing", "THRONG_STORE_KILLS", 200),
    ("store-power", "power a_power_cut", "THRONG_STORE_CUTS", 50_000),
    ("store-damage", "store a_damaged_byte", "THRONG_STORE_FLIP_STRIDE", 1),
];

/// Runs one of them, or all, optimised.
///
/// # Errors
/// If anything did not hold.
pub(crate) fn run(name: Option<String>, size: Option<u64>) -> Result<(), Failure> {
    for &(store, test, variable, full) in STORE {
        if name.as_deref().is_none_or(|name| name == store) {
            let line = format!(
                "cargo test --release --locked -p throng-store --test {test} -- --nocapture"
            );
            Tool::new(&line).env(variable, &size.unwrap_or(full).to_string()).run_tests()?;
            if name.is_some() {
                return Ok(());
            }
        }
    }
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
