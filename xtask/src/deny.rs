//! Licences, versions, sources and advisories of the dependencies, by cargo-deny after `deny.toml`.
//!
//! `cargo xtask ci` makes the checks that need no database, if cargo-deny is installed. `cargo xtask stress deny` makes
//! all of them: it needs cargo-deny, and the network for the database of advisories.

use crate::fuzz::ensure;
use crate::steps::{Failure, Tests, Tool};

const VERSION: &str = "cargo deny --version";

/// Makes the checks that need no database; without cargo-deny, the step is skipped.
///
/// # Errors
/// If a dependency breaks a rule.
pub(crate) fn offline() -> Result<Tests, Failure> {
    match Tool::new(VERSION).output() {
        Some(_) => {
            Tool::new("cargo deny --locked check licenses bans sources").run()?;
            Ok(Tests::default())
        }
        None => {
            println!("    not checked: cargo-deny is not installed");
            Ok(Tests::skipped())
        }
    }
}

/// Makes all checks.
///
/// # Errors
/// If cargo-deny is missing, or a dependency breaks a rule.
pub(crate) fn all(_: Option<u64>) -> Result<(), Failure> {
    ensure("program cargo-deny", Tool::new(VERSION), "cargo install --locked cargo-deny")?;
    Tool::new("cargo deny --locked check advisories licenses bans sources").run()
}
