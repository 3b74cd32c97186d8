//! Licences of all dependencies, against the list in `deny.toml`.
//!
//! `cargo deny` checks more, but has to be installed first. This check needs no program but cargo,
//! and no network once the dependencies are downloaded.

use super::Violation;
use super::tree::Tree;
use crate::steps::{Failure, Tool};
use std::collections::BTreeSet;

const DENY: &str = "deny.toml";

/// A dependency from outside of this tree, and its licence as its manifest states it.
#[derive(Clone, Debug)]
pub(super) struct Licence {
    pub(super) package: String,
    /// An SPDX expression, or `None` if it states none.
    pub(super) expression: Option<String>,
}

/// Reads the licences of the dependencies of the workspace, for all platforms.
///
/// The benchmarks and the programs of cargo-fuzz, which are workspaces of their own, are left out: the rivals and the
/// fuzzer are not distributed.
///
/// # Errors
/// If cargo does not list them: offline, when they have never been downloaded, or with a lock file
/// that is not up to date.
pub(super) fn load() -> Result<Vec<Licence>, Failure> {
    let list = "cargo metadata --format-version 1 --locked";
    // Offline, the dependencies for other platforms may be absent: the host platform has to
    // suffice.
    let host = Tool::new("rustc --print host-tuple").output().unwrap_or_default();
    let ours = format!("{list} --offline --filter-platform {host}");
    let json = Tool::new(list).output().or_else(|| Tool::new(&ours).output());
    let json = json.ok_or_else(|| {
        Failure("cargo does not list the dependencies: is Cargo.lock up to date?".to_owned())
    })?;
    let metadata: serde_json::Value = serde_json::from_str(&json)
        .map_err(|error| Failure(format!("cargo metadata is not JSON: {error}")))?;
    let packages = metadata["packages"].as_array().map(Vec::as_slice).unwrap_or_default();
    // Packages of this tree have no source.
    let foreign = packages.iter().filter(|package| package["source"].is_string());
    Ok(foreign
        .map(|package| Licence {
            package: package["name"].as_str().unwrap_or_default().to_owned(),
            expression: package["license"].as_str().map(str::to_owned),
        })
        .collect())
}

/// Every dependency may be used under a licence that `deny.toml` allows.
pub(super) fn check_licences(tree: &Tree) -> Vec<Violation> {
    let deny: Option<toml::Table> = tree.text(DENY).and_then(|text| text.parse().ok());
    let allow = deny.as_ref().and_then(|deny| deny.get("licenses")?.get("allow")?.as_array());
    let Some(allow) = allow else {
        return vec![Violation::new(DENY, 1, "it does not list licences under `licenses.allow`")];
    };
    let allow: Vec<&str> = allow.iter().filter_map(toml::Value::as_str).collect();
    let mut messages = BTreeSet::new();
    for Licence { package, expression } in &tree.licences {
        match expression {
            None => {
                messages.insert(format!("{package} states no licence"));
            }
            Some(expression) if !is_allowed(expression, &allow) => {
                messages.insert(format!("{package} is under {expression}, which is not allowed"));
            }
            Some(_) => {}
        }
    }
    messages.into_iter().map(|message| Violation::new(DENY, 1, message)).collect()
}

/// Whether the SPDX expression holds when exactly the licences in `allow` do. An `A WITH B` is a
/// licence of its own. The old spelling `A/B` means `A OR B`.
fn is_allowed(expression: &str, allow: &[&str]) -> bool {
    let spaced = expression.replace('/', " OR ").replace('(', " ( ").replace(')', " ) ");
    let words: Vec<&str> = spaced.split_whitespace().collect();
    let mut expression = Expression { words: &words, allow };
    expression.any().unwrap_or(false) && expression.words.is_empty()
}

/// A recursive descent over the remaining words; `None` if they are no expression.
struct Expression<'a> {
    words: &'a [&'a str],
    allow: &'a [&'a str],
}

impl Expression<'_> {
    fn any(&mut self) -> Option<bool> {
        let mut holds = self.all()?;
        while self.take("OR") {
            holds |= self.all()?;
        }
        Some(holds)
    }

    fn all(&mut self) -> Option<bool> {
        let mut holds = self.term()?;
        while self.take("AND") {
            holds &= self.term()?;
        }
        Some(holds)
    }

    fn term(&mut self) -> Option<bool> {
        if self.take("(") {
            let holds = self.any()?;
            return self.take(")").then_some(holds);
        }
        let (name, rest) = self.words.split_first()?;
        self.words = rest;
        if self.take("WITH") {
            let (exception, rest) = self.words.split_first()?;
            self.words = rest;
            return Some(self.allow.contains(&format!("{name} WITH {exception}").as_str()));
        }
        Some(self.allow.contains(name))
    }

    fn take(&mut self, word: &str) -> bool {
        match self.words.split_first() {
            Some((first, rest)) if *first == word => {
                self.words = rest;
                true
            }
            _ => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn expressions_are_read_as_spdx_reads_them() {
        let allow = ["MIT", "ISC", "Apache-2.0 WITH LLVM-exception"];
        for allowed in [
            "MIT",
            "GPL-3.0 OR MIT",
            "MIT/GPL-3.0",
            "(MIT OR X) AND ISC",
            "Apache-2.0 WITH LLVM-exception OR X",
            "X AND Y OR MIT",
            "((MIT))",
        ] {
            assert!(is_allowed(allowed, &allow), "{allowed}");
        }
        for denied in [
            "GPL-3.0",
            "MIT AND X",
            "Apache-2.0",
            "(MIT OR X) AND Y",
            "",
            "MIT MIT",
            "(MIT",
            "MIT AND",
            "MIT WITH Classpath-exception-2.0",
        ] {
            assert!(!is_allowed(denied, &allow), "{denied}");
        }
    }

    #[test]
    fn a_licence_that_is_not_listed_is_a_violation() {
        let licence = |expression: Option<&str>| Licence {
            package: "x".to_owned(),
            expression: expression.map(str::to_owned),
        };
        let check = |expression: Option<&str>| {
            let mut tree = Tree::of(&[(DENY, "[licenses]\nallow = [\"MIT\"]")]);
            tree.licences = vec![licence(expression)];
            check_licences(&tree)
        };
        assert!(check(Some("MIT")).is_empty());
        assert_eq!(check(Some("GPL-3.0")).len(), 1);
        assert_eq!(check(None).len(), 1);
        assert_eq!(check_licences(&Tree::default()).len(), 1, "without a list");
    }

    #[test]
    fn the_licences_of_this_workspace_are_listed() {
        let licences = load().unwrap_or_else(|failure| panic!("{failure}"));
        assert!(licences.iter().any(|licence| licence.package == "toml"));
        assert!(licences.iter().all(|licence| licence.package != "xtask"));
    }
}
