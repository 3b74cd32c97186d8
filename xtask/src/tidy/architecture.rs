//! ARCHITECTURE.md and the tree agree. The sections that are read from it:
//!
//! ````text
//! ## Code map            ```text
//!                        crates/throng/src/mailbox/  — a folder and its description
//!                        crates/throng/src/lib.rs  — a file and its description
//!                        ```
//! ## Edges               throng-durable -> throng, throng-store      (`-> nothing` for none)
//! ## Unsafe              - `crates/throng/src/cell.rs`: why
//! ````
//!
//! The code map has an entry for each crate and for each directory directly under the root. A map that
//! goes into the `src` of a crate covers it: each folder directly under that `src` with more than two
//! Rust files has an entry, which is the folder `src/mailbox/`, its face `src/mailbox.rs`, or a file
//! inside of it. The entry of the crate itself covers a `src` that the map does not go into.

use super::Violation;
use super::source::Source;
use super::tree::{DependencyKind, Tree};
use std::collections::{BTreeMap, BTreeSet};

pub(super) const ARCHITECTURE: &str = "ARCHITECTURE.md";
const LINES_MAX: usize = 260;

/// Rust files in a folder that needs no entry in the code map.
const FOLDER_FILES_MAX: usize = 2;

/// Everything the code map names exists; every member, every top-level directory and every larger
/// folder of sources is in it.
pub(super) fn check_map(tree: &Tree) -> Vec<Violation> {
    let Some(text) = tree.text(ARCHITECTURE) else {
        return vec![Violation::new(
            ARCHITECTURE,
            1,
            "missing: it holds the code map, the table of edges and the list of unsafe files",
        )];
    };
    let lines = section(text, "Code map");
    let Some(&(heading, _)) = lines.first() else {
        return vec![Violation::new(ARCHITECTURE, 1, "there is no section `## Code map`")];
    };
    let mut violations = Vec::new();
    let mut named = BTreeSet::new();
    for (line, entry) in fenced(&lines) {
        let Some((path, _)) = entry.split_once(" — ") else {
            violations.push(Violation::new(ARCHITECTURE, line, "not `path  — description`"));
            continue;
        };
        let path = path.trim();
        if !tree.contains(path) {
            violations.push(Violation::new(ARCHITECTURE, line, format!("{path} does not exist")));
        }
        named.insert(path);
    }
    for member in tree.members() {
        if !named.contains(member.dir) {
            let message = format!("the code map lacks the crate {}", member.dir);
            violations.push(Violation::new(ARCHITECTURE, heading, message));
        }
    }
    for (src, folder) in source_folders(tree) {
        if !named.iter().any(|path| path.starts_with(&src)) {
            continue;
        }
        let face = format!("{}.rs", folder.trim_end_matches('/'));
        if !named.iter().any(|path| *path == face || path.starts_with(&folder)) {
            let message = format!("the code map lacks the folder {folder}");
            violations.push(Violation::new(ARCHITECTURE, heading, message));
        }
    }
    for dir in tree.top_level_dirs() {
        if !named.iter().any(|path| path.starts_with(dir)) {
            let message = format!("the code map lacks the directory {dir}");
            violations.push(Violation::new(ARCHITECTURE, heading, message));
        }
    }
    violations
}

/// The folders directly under the `src` of a member that hold more than [`FOLDER_FILES_MAX`] Rust
/// files, each after its `src`; both end in `/`.
fn source_folders(tree: &Tree) -> Vec<(String, String)> {
    let mut files: BTreeMap<(String, String), usize> = BTreeMap::new();
    for member in tree.members() {
        let src = format!("{}src/", member.dir);
        let inside = tree.rust().filter_map(|(path, _)| path.strip_prefix(&src)?.split_once('/'));
        for (folder, _) in inside {
            *files.entry((src.clone(), format!("{src}{folder}/"))).or_default() += 1;
        }
    }
    files.retain(|_, count| *count > FOLDER_FILES_MAX);
    files.into_keys().collect()
}

/// ARCHITECTURE.md is short enough to be read.
pub(super) fn check_length(tree: &Tree) -> Vec<Violation> {
    let count = tree.text(ARCHITECTURE).map_or(0, |text| text.lines().count());
    if count <= LINES_MAX {
        return Vec::new();
    }
    let message = format!("{count} lines; at most {LINES_MAX} are read");
    vec![Violation::new(ARCHITECTURE, LINES_MAX + 1, message)]
}

/// The table of edges agrees with the manifests. Dependencies of tests are no edges.
pub(super) fn check_edges(tree: &Tree) -> Vec<Violation> {
    let Some(text) = tree.text(ARCHITECTURE) else { return Vec::new() };
    let members = tree.members();
    let names: BTreeSet<&str> = members.iter().map(|member| member.name.as_str()).collect();
    let lines = section(text, "Edges");
    let heading = lines.first().map_or(1, |(line, _)| *line);
    let mut violations = Vec::new();
    let mut seen = BTreeSet::new();
    for (line, entry) in fenced(&lines) {
        let Some((from, to)) = entry.split_once("->") else {
            violations.push(Violation::new(ARCHITECTURE, line, "not `crate -> crate, crate`"));
            continue;
        };
        let from = from.trim();
        let to: BTreeSet<&str> =
            to.split(',').map(str::trim).filter(|to| *to != "nothing").collect();
        seen.insert(from);
        let Some(member) = members.iter().find(|member| member.name == from) else {
            violations.push(Violation::new(
                ARCHITECTURE,
                line,
                format!("no crate is called {from}"),
            ));
            continue;
        };
        let dependencies = member.dependencies();
        let actual: BTreeSet<&str> = dependencies
            .iter()
            .filter(|(name, kind)| *kind != DependencyKind::Test && names.contains(name.as_str()))
            .map(|(name, _)| name.as_str())
            .collect();
        for extra in actual.difference(&to) {
            let message = format!("{from} depends on {extra}, which is not among its edges");
            violations.push(Violation::new(ARCHITECTURE, line, message));
        }
        for gone in to.difference(&actual) {
            let message = format!("{from} does not depend on {gone}");
            violations.push(Violation::new(ARCHITECTURE, line, message));
        }
    }
    for missing in names.difference(&seen) {
        let message = format!("the edges of {missing} are not listed");
        violations.push(Violation::new(ARCHITECTURE, heading, message));
    }
    violations
}

/// Unsafe code is in the files listed, in all of them and in no others.
pub(super) fn check_unsafe_files(tree: &Tree) -> Vec<Violation> {
    if tree.text(ARCHITECTURE).is_none() {
        return Vec::new();
    }
    let listed = unsafe_files(tree);
    let mut violations = Vec::new();
    for (path, source) in tree.sources() {
        if listed.iter().any(|(_, file)| *file == path) {
            continue;
        }
        if let Some(line) = source.line_with_word("unsafe") {
            violations.push(Violation::new(
                path,
                line,
                "unsafe code in a file that ARCHITECTURE.md does not list under `## Unsafe`",
            ));
        }
    }
    for (line, file) in listed {
        let has = |source: &Source| source.line_with_word("unsafe").is_some();
        if !tree.source(file).is_some_and(has) {
            let message = format!("{file} holds no unsafe code");
            violations.push(Violation::new(ARCHITECTURE, line, message));
        }
    }
    violations
}

/// The files that may hold unsafe code, with the lines that name them.
pub(super) fn unsafe_files<'a>(tree: &'a Tree) -> Vec<(usize, &'a str)> {
    let file = |(line, item): (usize, &'a str)| {
        let (file, _) = item.trim_start().strip_prefix("- `")?.split_once('`')?;
        Some((line, file))
    };
    let text = tree.text(ARCHITECTURE).unwrap_or_default();
    section(text, "Unsafe").into_iter().filter_map(file).collect()
}

/// The lines under the heading `## title`, the heading first; empty if there is none.
pub(super) fn section<'a>(text: &'a str, title: &str) -> Vec<(usize, &'a str)> {
    let heading = format!("## {title}");
    let mut lines = text
        .lines()
        .enumerate()
        .map(|(index, line)| (index + 1, line))
        .skip_while(|(_, line)| line.trim_end() != heading);
    let first = lines.next();
    first.into_iter().chain(lines.take_while(|(_, line)| !line.starts_with("## "))).collect()
}

/// The lines in the fenced blocks of `lines`, without empty lines.
pub(super) fn fenced<'a>(lines: &[(usize, &'a str)]) -> Vec<(usize, &'a str)> {
    let mut inside = false;
    let mut found = Vec::new();
    for &(line, text) in lines {
        if text.starts_with("```") {
            inside = !inside;
        } else if inside && !text.trim().is_empty() {
            found.push((line, text));
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A workspace of two crates, `b` on top of `a`, and the text of its architecture.
    fn tree(architecture: &str) -> Tree {
        Tree::of(&[
            (ARCHITECTURE, architecture),
            ("crates/a/Cargo.toml", "[package]\nname = \"a\""),
            ("crates/a/src/lib.rs", "fn f() { unsafe { g() } }"),
            (
                "crates/b/Cargo.toml",
                "[package]\nname = \"b\"\n[dependencies]\na.workspace = true\nserde.workspace = true",
            ),
            ("crates/b/src/lib.rs", "// unsafe"),
        ])
    }

    fn messages(violations: &[Violation]) -> Vec<String> {
        violations.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn a_missing_architecture_is_said_once() {
        let tree = Tree::of(&[("crates/a/src/lib.rs", "unsafe")]);
        let found: Vec<_> = [check_map, check_length, check_edges, check_unsafe_files]
            .iter()
            .flat_map(|check| check(&tree))
            .collect();
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(found[0].message.starts_with("missing"));
    }

    #[test]
    fn map_and_tree_agree() {
        let good = "## Code map\n```text\ncrates/a/  — first\ncrates/a/src/lib.rs  — its file\n\ncrates/b/  — second\n```\n";
        assert_eq!(check_map(&tree(good)), []);
        let found = messages(&check_map(&tree(&good.replace("crates/b/", "crates/c/"))));
        assert_eq!(
            found,
            [
                "ARCHITECTURE.md:6: crates/c/ does not exist",
                "ARCHITECTURE.md:1: the code map lacks the crate crates/b/",
            ]
        );
        assert_eq!(check_map(&tree(&good.replace(" — second", ""))).len(), 2);
        let elsewhere = check_map(&tree("## Code map\n```text\n```\n"));
        assert!(messages(&elsewhere).iter().any(|message| message.ends_with("directory crates/")));
        assert_eq!(check_map(&tree("# Nothing")).len(), 1);
    }

    #[test]
    fn larger_folders_of_sources_are_in_the_map() {
        let check = |entry: &str, deepest: &str| {
            let map = format!("## Code map\n```text\ncrates/a/  — first\n{entry}```\n");
            let tree = Tree::of(&[
                (ARCHITECTURE, &map),
                ("crates/a/Cargo.toml", "[package]\nname = \"a\""),
                ("crates/a/src/lib.rs", ""),
                ("crates/a/src/queue.rs", ""),
                ("crates/a/src/queue/ring.rs", ""),
                ("crates/a/src/queue/waiters.rs", ""),
                (deepest, ""),
            ]);
            messages(&check_map(&tree))
        };
        let three = "crates/a/src/queue/ring/slot.rs";
        let face = "crates/a/src/lib.rs  — the face\n";
        assert_eq!(
            check(face, three),
            ["ARCHITECTURE.md:1: the code map lacks the folder crates/a/src/queue/"]
        );
        for entry in ["queue/", "queue.rs", "queue/ring.rs"] {
            let entry = format!("{face}crates/a/src/{entry}  — it\n");
            assert_eq!(check(&entry, three), [""; 0], "{entry}");
        }
        assert_eq!(check("", three), [""; 0], "the crate's entry covers its src");
        assert_eq!(check(face, "crates/a/src/main.rs"), [""; 0]);
        assert_eq!(check(face, "crates/a/src/queue/ring.md"), [""; 0]);
    }

    #[test]
    fn the_architecture_stays_short() {
        assert!(check_length(&tree(&"x\n".repeat(LINES_MAX))).is_empty());
        assert_eq!(check_length(&tree(&"x\n".repeat(LINES_MAX + 1))).len(), 1);
    }

    #[test]
    fn edges_and_manifests_agree() {
        let edges = |lines: &str| {
            messages(&check_edges(&tree(&format!("## Edges\n```text\n{lines}\n```\n"))))
        };
        assert_eq!(edges("a -> nothing\nb -> a"), [""; 0]);
        assert_eq!(
            edges("a -> b\nb -> nothing\nc -> a"),
            [
                "ARCHITECTURE.md:3: a does not depend on b",
                "ARCHITECTURE.md:4: b depends on a, which is not among its edges",
                "ARCHITECTURE.md:5: no crate is called c",
            ]
        );
        assert_eq!(edges("b -> a"), ["ARCHITECTURE.md:1: the edges of a are not listed"]);
    }

    #[test]
    fn unsafe_code_is_where_it_is_said_to_be() {
        let unsafe_in = |file: &str| {
            messages(&check_unsafe_files(&tree(&format!("## Unsafe\n- `{file}`: why\n"))))
        };
        assert_eq!(unsafe_in("crates/a/src/lib.rs"), [""; 0]);
        let found = unsafe_in("crates/b/src/lib.rs");
        assert_eq!(found.len(), 2);
        assert!(found[0].starts_with("crates/a/src/lib.rs:1:"), "{found:?}");
        assert!(found[1].ends_with("crates/b/src/lib.rs holds no unsafe code"), "{found:?}");
    }
}
