//! `cargo xtask tidy`: rules for the tree as a whole that no compiler checks.
//!
//! Invariants: a check is a pure function of the [`Tree`], so a test shows for each check that it
//! fails on a made-up tree; all violations are printed, not only the first; `cargo test` runs the
//! same checks.

mod absences;
mod architecture;
mod manifests;
mod prose;
mod rooms;
mod source;
mod tree;

use crate::steps::Failure;
use std::fmt;
use tree::Tree;

/// All checks, in the order of their output.
const CHECKS: &[fn(&Tree) -> Vec<Violation>] = &[
    architecture::check_map,
    architecture::check_length,
    architecture::check_edges,
    architecture::check_unsafe_files,
    rooms::check_arrows,
    absences::check_forbid_unsafe,
    absences::check_confined_dependencies,
    absences::check_clock_threads_randomness,
    absences::check_no_io,
    manifests::check_reasons,
    source::check_tokens,
    prose::check_openings,
    prose::check_file_lengths,
    prose::check_foreign_places,
    prose::check_commands,
    prose::check_changelog,
    prose::check_cited_tests,
];

/// A place that breaks a rule.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Violation {
    path: String,
    /// Counted from 1.
    line: usize,
    message: String,
}

impl Violation {
    fn new(path: &str, line: usize, message: impl Into<String>) -> Violation {
        Violation { path: path.to_owned(), line, message: message.into() }
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {}", self.path, self.line, self.message)
    }
}

/// Checks the tree of the workspace and prints the violations.
///
/// # Errors
/// If there is a violation, or the tree cannot be read.
pub(crate) fn run() -> Result<(), Failure> {
    let violations = check(&Tree::load()?);
    for violation in &violations {
        println!("{violation}");
    }
    match violations.len() {
        0 => Ok(()),
        1 => Err(Failure("tidy found 1 violation".to_owned())),
        count => Err(Failure(format!("tidy found {count} violations"))),
    }
}

fn check(tree: &Tree) -> Vec<Violation> {
    CHECKS.iter().flat_map(|check| check(tree)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_tree_is_tidy() {
        let tree = Tree::load().unwrap_or_else(|failure| panic!("{failure}"));
        let violations: Vec<_> = check(&tree).iter().map(ToString::to_string).collect();
        assert!(violations.is_empty(), "\n{}", violations.join("\n"));
    }

    #[test]
    fn a_violation_reads_as_a_place_that_editors_find() {
        let violation = Violation::new("crates/throng/src/lib.rs", 3, "too long");
        assert_eq!(violation.to_string(), "crates/throng/src/lib.rs:3: too long");
    }
}
