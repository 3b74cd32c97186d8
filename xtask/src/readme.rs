//! The README's command that starts a node, run unchanged.
//!
//! The directory of the data and the address come from the environment. So the command needs no
//! change, and nothing else on the machine is touched.

use crate::steps::{Failure, Tests, root};
use crate::{node, quickstart};
use std::process::Command;

/// The line before the block in the README.
const MARK: &str = "<!-- test:readme -->";

/// Starts the node, requests its health, and stops it with the signal of Ctrl-C.
///
/// # Errors
/// The first of these that fails.
pub(crate) fn run() -> Result<Tests, Failure> {
    let text = std::fs::read_to_string(root().join("README.md"))
        .map_err(|error| Failure(format!("README.md cannot be read: {error}")))?;
    let page = quickstart::parse(&text, MARK);
    let line = page
        .commands
        .first()
        .ok_or_else(|| Failure(format!("README.md has no command after {MARK}")))?;
    println!("    {line}");
    let mut words = line.split_whitespace();
    let mut command = Command::new(words.next().unwrap_or_default());
    node::with_node(command.args(words), "readme", |address| {
        let health = node::request(address, "GET /api/v1/health", "")?;
        let is_well = health.contains("\"status\":\"ok\"");
        if is_well { Ok(()) } else { Err(Failure(format!("{address} is not well: {health}"))) }
    })?;
    Ok(Tests::one_passed())
}
