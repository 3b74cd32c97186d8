//! Files as people read them: their openings, their lengths, and the promises of documents.

use super::Violation;
use super::source::Source;
use super::tree::Tree;
use crate::test;

const CODE_LINES_MAX: usize = 900;

/// Every Rust file opens with its subject.
pub(super) fn check_openings(tree: &Tree) -> Vec<Violation> {
    tree.rust()
        .filter(|(_, text)| !text.starts_with("//! "))
        .map(|(path, _)| {
            Violation::new(path, 1, "the file does not open with `//!` and its subject")
        })
        .collect()
}

/// No file is too long to be read at once; the tests at its end do not count.
pub(super) fn check_file_lengths(tree: &Tree) -> Vec<Violation> {
    let mut violations = Vec::new();
    for (path, text) in tree.rust() {
        let tests = tree.source(path).map_or(0, Source::test_lines);
        let count = text.lines().count() - tests;
        if count > CODE_LINES_MAX {
            let message = format!("{count} lines before its tests; split it at a noun");
            violations.push(Violation::new(path, CODE_LINES_MAX + 1, message));
        }
    }
    violations
}

/// No file names a directory of a single machine, or a package registry's host.
pub(super) fn check_foreign_places(tree: &Tree) -> Vec<Violation> {
    // Composed at run time, because this file would break its own rule otherwise.
    let dirs = ["work", "tmp", "root"].map(|dir| format!("/{dir}/"));
    let hosts = [
        ["crates", "io"],
        ["npmjs", "org"],
        ["npmjs", "com"],
        ["pypi", "org"],
        ["hex", "pm"],
        ["golang", "org"],
        ["rubygems", "org"],
    ]
    .map(|host| host.join("."));
    let mut violations = Vec::new();
    for (path, text) in tree.files() {
        for (index, line) in text.lines().enumerate() {
            let dir = dirs.iter().find(|dir| names_dir(line, dir));
            if let Some(dir) = dir {
                let message = format!("{dir} is a directory of one machine");
                violations.push(Violation::new(path, index + 1, message));
            }
            let host = hosts.iter().find(|host| line.contains(host.as_str()));
            if let Some(host) = host.filter(|host| !is_standard_source(path, line, host)) {
                let message = format!("{host} is the host of a package registry");
                violations.push(Violation::new(path, index + 1, message));
            }
        }
    }
    violations
}

/// Whether `line` holds the absolute path `dir`, other than as the end of a longer path.
fn names_dir(line: &str, dir: &str) -> bool {
    line.match_indices(dir).any(|(start, _)| {
        !line[..start].ends_with(|c: char| c.is_alphanumeric() || "_-.}):".contains(c))
            || line[..start].ends_with("://")
    })
}

/// The line that cargo writes into a lock file for every dependency from the standard registry.
fn is_standard_source(path: &str, line: &str, host: &str) -> bool {
    path.ends_with("Cargo.lock")
        && line == format!("source = \"registry+https://github.com/rust-lang/{host}-index\"")
}

/// Pages whose commands are run by tests.
const PAGES_WITH_COMMANDS: [&str; 4] =
    ["README.md", "docs/operate.md", "docs/compare.md", "apps/social/README.md"];

/// Every command on these pages is run by a test, which stands before its block:
/// `<!-- test:NAME -->`, where `NAME` is a step of `cargo xtask test` or a test function.
pub(super) fn check_commands(tree: &Tree) -> Vec<Violation> {
    PAGES_WITH_COMMANDS.iter().flat_map(|page| check_commands_of(tree, page)).collect()
}

fn check_commands_of(tree: &Tree, page: &str) -> Vec<Violation> {
    let Some(text) = tree.text(page) else {
        return vec![Violation::new(page, 1, "missing")];
    };
    let mut violations = Vec::new();
    let mut block: Option<Block<'_>> = None;
    let mut before = "";
    for (index, line) in text.lines().enumerate() {
        let line = line.trim();
        let Some(language) = line.strip_prefix("```") else {
            if let Some(block) = &mut block {
                block.has_command |= line.starts_with("$ ");
            } else if !line.is_empty() {
                before = line;
            }
            continue;
        };
        let Some(ended) = block.take() else {
            block = Some(Block { line: index + 1, language, before, has_command: false });
            continue;
        };
        before = "";
        if let Some(message) = ended.complaint(tree) {
            violations.push(Violation::new(page, ended.line, message));
        }
    }
    violations
}

/// A fenced block, and the line of text before it.
struct Block<'a> {
    line: usize,
    language: &'a str,
    before: &'a str,
    has_command: bool,
}

impl Block<'_> {
    fn complaint(&self, tree: &Tree) -> Option<String> {
        if ["sh", "bash", "shell", "zsh"].contains(&self.language) {
            return Some("write commands as ```console, each after `$ `".to_owned());
        }
        if !self.has_command {
            return None;
        }
        let name =
            self.before.strip_prefix("<!-- test:").and_then(|rest| rest.strip_suffix(" -->"));
        match name {
            None => Some("no test runs these commands: put `<!-- test:NAME -->` before".to_owned()),
            Some(name) if !is_test(tree, name) => Some(format!("no test is called {name}")),
            Some(_) => None,
        }
    }
}

/// Whether `name` is a step of `cargo xtask test` or a function with a test attribute.
fn is_test(tree: &Tree, name: &str) -> bool {
    let signature = format!("fn {name}(");
    let has_test_attribute = |before: &str| {
        let lines = before.rsplit('\n').skip(1).map(str::trim);
        let attributes = lines.take_while(|line| line.starts_with("#["));
        attributes
            .flat_map(|line| line.split(|c: char| !c.is_alphanumeric()))
            .any(|word| word == "test")
    };
    test::STEPS.iter().any(|step| step.name == name)
        || tree.rust().any(|(_, text)| {
            text.match_indices(&signature).any(|(start, _)| has_test_attribute(&text[..start]))
        })
}

/// Every test that a page in `docs/` names as `target::module::function` exists.
///
/// The function may be in any Rust file whose path has all the other names in it.
pub(super) fn check_cited_tests(tree: &Tree) -> Vec<Violation> {
    const TARGETS: [&str; 7] = ["store", "power", "memory", "durable", "node", "social", "src"];
    let is_there = |(places, function): (&str, &str)| {
        let signature = format!("fn {function}(");
        tree.rust().any(|(path, text)| {
            let path = path.replace(".rs", "/");
            places.split("::").all(|place| path.contains(&format!("/{place}/")))
                && text.contains(&signature)
        })
    };
    let is_name = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || "_:".contains(c);
    let mut violations = Vec::new();
    for (path, text) in tree.files().filter(|(path, _)| path.starts_with("docs/")) {
        for (index, line) in text.lines().enumerate() {
            for cited in line.split('`').filter(|cited| cited.chars().all(is_name)) {
                let target = cited.split_once("::").map_or("", |(target, _)| target);
                if TARGETS.contains(&target) && !cited.rsplit_once("::").is_some_and(is_there) {
                    let message = format!("no test is called {cited}");
                    violations.push(Violation::new(path, index + 1, message));
                }
            }
        }
    }
    violations
}

/// CHANGELOG.md has a section for changes since the last release.
pub(super) fn check_changelog(tree: &Tree) -> Vec<Violation> {
    const CHANGELOG: &str = "CHANGELOG.md";
    let text = tree.text(CHANGELOG).unwrap_or_default();
    if text.lines().any(|line| line.trim_end() == "## [Unreleased]") {
        return Vec::new();
    }
    vec![Violation::new(CHANGELOG, 1, "there is no section `## [Unreleased]`")]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_opens_with_what_it_is() {
        let check = |text: &str| check_openings(&Tree::of(&[("a.rs", text), ("b.md", "")])).len();
        assert_eq!(check("//! The queue.\n"), 0);
        assert_eq!(check("//!\nuse a;"), 1);
        assert_eq!(check("// The queue.\n"), 1);
    }

    #[test]
    fn long_files_are_found_and_tests_do_not_count() {
        let check = |text: &str| check_file_lengths(&Tree::of(&[("a.rs", text)])).len();
        let tests = format!("#[cfg(test)]\nmod tests {{\n{}}}\n", "a();\n".repeat(1000));
        assert_eq!(check(&("a();\n".repeat(890) + &tests)), 0);
        assert_eq!(check(&"a();\n".repeat(901)), 1);
    }

    #[test]
    fn places_of_one_machine_are_found() {
        let check = |path: &str, line: &str| check_foreign_places(&Tree::of(&[(path, line)])).len();
        for dir in ["work", "tmp", "root"] {
            assert_eq!(check("a.md", &format!("see /{dir}/x")), 1, "{dir}");
            assert_eq!(check("a.md", &format!("`file:///{dir}/x`")), 1, "{dir}");
            assert_eq!(check("a.md", &format!("target/{dir}/x")), 0, "{dir}");
        }
        let host = ["crates", "io"].join(".");
        assert_eq!(check("README.md", &format!("on {host}")), 1);
        let source = format!("source = \"registry+https://github.com/rust-lang/{host}-index\"");
        assert_eq!(check("Cargo.lock", &source), 0);
        assert_eq!(check("README.md", &source), 1);
        assert_eq!(check("Cargo.lock", &source.replace("github.com", "example.com")), 1);
    }

    #[test]
    fn commands_of_a_page_are_run_by_a_test_that_exists() {
        let check = |page: &str| {
            let test = "//! T.\n#[tokio::test]\n#[ignore]\nasync fn serves() {}\nfn helper() {}";
            let pages = PAGES_WITH_COMMANDS.map(|name| (name, page));
            let files = [pages.as_slice(), &[("a.rs", test)]].concat();
            check_commands(&Tree::of(&files)).len() / pages.len()
        };
        let block = "```console\n$ social serve\n```\n";
        assert_eq!(check(block), 1);
        assert_eq!(check(&format!("<!-- test:serves -->\n{block}")), 0);
        assert_eq!(check(&format!("<!-- test:serves -->\n\n{block}")), 0);
        assert_eq!(check(&format!("<!-- test:unit -->\n{block}")), 0);
        assert_eq!(check(&format!("<!-- test:helper -->\n{block}")), 1);
        assert_eq!(check(&format!("<!-- test:gone -->\n{block}")), 1);
        assert_eq!(check(&format!("<!-- test:serves -->\n{block}{block}")), 1);
        assert_eq!(check(&format!("<!-- test:serves -->\nText.\n{block}")), 1);
        assert_eq!(check("```sh\nsocial serve\n```\n"), 1);
        assert_eq!(check("```rust\nlet a = 1;\n```\n"), 0);
        assert_eq!(check_commands(&Tree::default()).len(), PAGES_WITH_COMMANDS.len());
    }

    #[test]
    fn tests_that_a_page_cites_exist() {
        let check = |page: &str| {
            let file = "crates/throng-store/tests/store/crash.rs";
            check_cited_tests(&Tree::of(&[("docs/a.md", page), (file, "fn kills() {}")])).len()
        };
        assert_eq!(check("in `store::crash::kills`, `Store::sync`, `target::module::function`"), 0);
        assert_eq!(check("goes on` after `store::crash::kill`"), 1);
        assert_eq!(check("`store::power::kills` and `src::crash::kills`"), 2);
    }

    #[test]
    fn the_changelog_has_a_place_for_what_is_new() {
        let check = |text: &str| check_changelog(&Tree::of(&[("CHANGELOG.md", text)])).len();
        assert_eq!(check("# Changelog\n\n## [Unreleased]\n"), 0);
        assert_eq!(check("# Changelog\n\n## [0.1.0]\n"), 1);
        assert_eq!(check_changelog(&Tree::default()).len(), 1);
    }
}
