//! `cargo xtask conformance`: the scenarios of throng's conformance suite, against Erlang/OTP.
//!
//! Invariants: the committed log of a scenario was written by Erlang/OTP, never by throng and never
//! by hand; throng is compared with that log even if Erlang is not installed.

use crate::steps::{self, Failure, Tool, root};
use std::path::{Path, PathBuf};

const SUITE: &str = "crates/throng/tests/conformance";
const INTERPRETER: &str = "crates/throng/tests/conformance/erlang/conformance.escript";

/// The implementations that are compared with the committed logs.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Compare {
    /// throng.
    Throng,
    /// throng, and the installed Erlang/OTP.
    ThrongAndErlang,
    /// None: the installed Erlang/OTP writes the logs again.
    Record,
}

/// Runs the suite.
///
/// # Errors
/// If a log differs, or Erlang/OTP is needed and absent.
pub(crate) fn run(compare: Compare) -> Result<(), Failure> {
    if compare != Compare::Throng {
        let version = erlang_version()?;
        println!("    Erlang/OTP {version}");
        for path in scenario_files()? {
            erlang(&path, compare)?;
        }
    }
    if compare == Compare::Record {
        return Ok(());
    }
    steps::run(&[steps::Step {
        name: "throng",
        about: "throng against the committed logs",
        run: || Tool::new("cargo test -p throng --locked --test conformance").run_tests(),
    }])
}

fn erlang_version() -> Result<String, Failure> {
    const ASK: &str = "io:put_chars(erlang:system_info(otp_release)),halt().";
    Tool::new("erl -noshell -eval").arg(ASK).output().ok_or_else(|| {
        Failure(
            "Erlang/OTP is not installed: put `erl` and `escript` on the PATH (on Debian the \
             package erlang-base), or drop the option to compare throng alone with the committed \
             logs"
                .to_owned(),
        )
    })
}

/// The files of the suite that hold scenarios, relative to the root, in order.
fn scenario_files() -> Result<Vec<PathBuf>, Failure> {
    let dir = Path::new(SUITE).join("scenarios");
    let unreadable = |error| Failure(format!("cannot list {}: {error}", dir.display()));
    let mut paths = Vec::new();
    for entry in std::fs::read_dir(root().join(&dir)).map_err(unreadable)? {
        let name = entry.map_err(unreadable)?.file_name();
        if Path::new(&name).extension().is_some_and(|extension| extension == "scn") {
            paths.push(dir.join(name));
        }
    }
    paths.sort();
    if paths.is_empty() {
        return Err(Failure(format!("there are no scenarios in {}", dir.display())));
    }
    Ok(paths)
}

/// Runs the scenarios of a file in Erlang. Compares its events with the committed events, or
/// replaces the committed events by them.
fn erlang(path: &Path, compare: Compare) -> Result<(), Failure> {
    let line = path.display();
    let full = root().join(path);
    let recorded = Tool::new("escript").arg(INTERPRETER).arg(&line.to_string()).output();
    let recorded = recorded.ok_or_else(|| Failure(format!("Erlang did not run {line}")))?;
    let committed = std::fs::read_to_string(&full)
        .map_err(|error| Failure(format!("cannot read {line}: {error}")))?;
    match first_difference(&committed, &recorded) {
        None => println!("    {line}: as committed"),
        Some(_) if compare == Compare::Record => {
            std::fs::write(&full, recorded)
                .map_err(|error| Failure(format!("cannot write {line}: {error}")))?;
            println!("    {line}: written");
        }
        Some(difference) => return Err(Failure(format!("{line}:{difference}"))),
    }
    Ok(())
}

/// The number of the first line that differs, and its two versions.
fn first_difference(committed: &str, recorded: &str) -> Option<String> {
    let (mut left, mut right) = (committed.lines(), recorded.lines());
    let mut number = 1;
    loop {
        match (left.next(), right.next()) {
            (None, None) => return None,
            (left, right) if left == right => number += 1,
            (left, right) => {
                let [left, right] = [left, right].map(|line| line.unwrap_or("(the end)").trim());
                return Some(format!("{number}: committed is `{left}`, but Erlang has `{right}`"));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_difference_is_named_by_its_line() {
        assert_eq!(first_difference("a\nb\n", "a\nb\n"), None);
        let sentence = first_difference("a\n    b\n", "a\n    c\n").expect("they differ");
        assert_eq!(sentence, "2: committed is `b`, but Erlang has `c`");
        assert!(first_difference("a\n", "a\nb\n").is_some_and(|s| s.contains("(the end)")));
    }

    #[test]
    fn the_suite_has_scenarios_and_an_interpreter() {
        let files = scenario_files().unwrap_or_else(|failure| panic!("{failure}"));
        assert!(files.len() > 5, "{files:?}");
        assert!(root().join(INTERPRETER).is_file());
    }
}
