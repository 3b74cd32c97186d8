//! Invariants about things that are absent: unsafe code, other layers' libraries, in the runtime and the
//! durable layer a clock, threads and randomness of their own, and in the runtime I/O.
//!
//! The compiler and clippy check as much of it as they can: the lint `unsafe_code`, and the lists
//! of definitions in crates/throng/clippy.toml, which cover methods, macros and second names. Paths
//! are checked here. Clippy's lists take no module such as `std::fs`, and a type on them is refused
//! by any name, also by the name that `sync.rs` exports for all other files.

use super::Violation;
use super::tree::{DependencyKind, Tree};

/// The runtime, whose code decides when and where everything else runs.
const RUNTIME: &str = "crates/throng/src/";

/// The only file of the runtime that reaches clock, threads and randomness, so that a simulator can
/// replace them.
const SYNC: &str = "crates/throng/src/sync.rs";

/// The durable layer, which reaches them through the runtime.
const DURABLE: &str = "crates/throng-durable/src/";

/// A library and the crates that may name it.
struct Confined {
    library: &'static str,
    to: &'static [&'static str],
    in_tests: bool,
}

const HTTP: &[&str] = &["throng-node", "social", "throng-cli"];

/// An example shows a service to copy, on axum alone.
const HTTP_OR_EXAMPLES: &[&str] = &["throng-node", "social", "throng-cli", "throng-examples"];

const CONFINED: &[Confined] = &[
    Confined { library: "heed", to: &["throng-store"], in_tests: false },
    Confined { library: "heed3", to: &["throng-store"], in_tests: false },
    Confined { library: "lmdb-master-sys", to: &["throng-store"], in_tests: false },
    Confined { library: "async-nats", to: &["throng-nats"], in_tests: true },
    Confined { library: "axum", to: HTTP_OR_EXAMPLES, in_tests: true },
    Confined { library: "hyper", to: HTTP, in_tests: true },
    Confined { library: "hyper-util", to: HTTP, in_tests: true },
    Confined { library: "http", to: HTTP, in_tests: true },
    Confined { library: "http-body", to: HTTP, in_tests: true },
    Confined { library: "http-body-util", to: HTTP, in_tests: true },
    Confined { library: "reqwest", to: HTTP_OR_EXAMPLES, in_tests: true },
    Confined { library: "tower-http", to: HTTP, in_tests: true },
    Confined { library: "tokio-tungstenite", to: HTTP, in_tests: true },
];

/// Sources of chance, which would make two runs from one seed differ.
const CHANCE: &[&str] = &[
    "std::time::Instant",
    // The type itself is a time in an argument.
    "std::time::SystemTime::now",
    "std::time::SystemTime::elapsed",
    "std::time::UNIX_EPOCH",
    "tokio::time::Instant",
    "std::thread",
    "tokio::task::spawn_blocking",
    "std::hash::RandomState",
    "std::collections::hash_map::RandomState",
    "rand",
    "fastrand",
    "getrandom",
];

/// Atomics, which the model checker replaces in the runtime.
const ATOMICS: &[&str] = &["std::sync::atomic"];

const IO: &[&str] = &[
    "std::fs",
    "std::net",
    "std::os",
    "std::process",
    "tokio::fs",
    "tokio::net",
    "tokio::process",
];

/// The compiler forbids unsafe code in each crate without a file named under "Unsafe" in the
/// architecture.
///
/// `unsafe_code = "forbid"` is a lint of the workspace. A crate with unsafe files cannot inherit
/// it, and cargo lets no crate inherit the others alone: its manifest repeats their lines.
pub(super) fn check_forbid_unsafe(tree: &Tree) -> Vec<Violation> {
    const FORBID: &str = "unsafe_code = \"forbid\"";
    let allowed = super::architecture::unsafe_files(tree);
    let sections = tree.text("Cargo.toml").unwrap_or_default().split("[workspace.lints.").skip(1);
    let lines = sections.flat_map(|text| text.lines().skip(1).take_while(|l| !l.starts_with('[')));
    let (forbids, shared): (Vec<&str>, Vec<&str>) = lines.partition(|line| *line == FORBID);
    let mut violations = Vec::new();
    if forbids.is_empty() {
        let message = format!("the workspace lacks the lint {FORBID}");
        violations.push(Violation::new("Cargo.toml", 1, message));
    }
    for member in tree.members() {
        let text = tree.text(member.path).unwrap_or_default();
        let has_unsafe = allowed.iter().any(|(_, file)| file.starts_with(member.dir));
        if text.contains("[lints]\nworkspace = true") {
            continue;
        }
        if !has_unsafe {
            let message = "it needs [lints] workspace = true, which forbids unsafe code: \
                           ARCHITECTURE.md names no unsafe file of this crate";
            violations.push(Violation::new(member.path, 1, message));
            continue;
        }
        for lint in shared.iter().filter(|lint| !text.lines().any(|line| line == **lint)) {
            let message = format!("it lacks the workspace's lint {lint}");
            violations.push(Violation::new(member.path, 1, message));
        }
    }
    violations
}

/// A library that a layer wraps is named by the manifests of that layer only.
///
/// The benchmarks are a workspace of their own and compare with these libraries.
pub(super) fn check_confined_dependencies(tree: &Tree) -> Vec<Violation> {
    let mut violations = Vec::new();
    for manifest in tree.members() {
        for (dependency, kind) in manifest.dependencies() {
            let Some(rule) = CONFINED.iter().find(|rule| rule.library == dependency) else {
                continue;
            };
            let as_test = rule.in_tests && kind == DependencyKind::Test;
            if !as_test && !rule.to.contains(&manifest.name.as_str()) {
                let line = super::manifests::line_of(tree, manifest.path, &dependency);
                let only = rule.to.join(", ");
                violations.push(Violation::new(
                    manifest.path,
                    line,
                    format!("{} depends on {dependency}, which is for {only} only", manifest.name),
                ));
            }
        }
    }
    violations
}

/// The runtime reaches clock, threads and randomness through `sync.rs` only, and the durable layer through the
/// runtime.
pub(super) fn check_clock_threads_randomness(tree: &Tree) -> Vec<Violation> {
    const IN_SYNC: &str = "only crates/throng/src/sync.rs reaches this";
    const BY_RUNTIME: &str = "the durable layer reaches this through the runtime, throng::layer";
    let mut violations = forbidden_paths(tree, RUNTIME, CHANCE, Some(SYNC), IN_SYNC);
    violations.extend(forbidden_paths(tree, RUNTIME, ATOMICS, Some(SYNC), IN_SYNC));
    violations.extend(forbidden_paths(tree, DURABLE, CHANCE, None, BY_RUNTIME));
    violations
}

/// The runtime does no I/O of its own.
pub(super) fn check_no_io(tree: &Tree) -> Vec<Violation> {
    forbidden_paths(tree, RUNTIME, IO, None, "the runtime does no I/O of its own")
}

/// Uses of the paths `forbidden` in a folder outside of its tests and `except`.
fn forbidden_paths(
    tree: &Tree,
    folder: &str,
    forbidden: &[&str],
    except: Option<&str>,
    why: &str,
) -> Vec<Violation> {
    let mut violations = Vec::new();
    for (path, source) in tree.sources() {
        if !path.starts_with(folder) || Some(path) == except || tree.is_test(path) {
            continue;
        }
        for (line, used) in source.paths() {
            let hit = forbidden.iter().any(|forbidden| {
                is_within(&used, forbidden)
                    || used.strip_suffix("::*").is_some_and(|module| is_within(forbidden, module))
            });
            if hit {
                violations.push(Violation::new(path, line, format!("{used}: {why}")));
            }
        }
    }
    violations
}

/// Whether `path` is `parent` or something in it.
fn is_within(path: &str, parent: &str) -> bool {
    path.strip_prefix(parent).is_some_and(|rest| rest.is_empty() || rest.starts_with("::"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_crate_forbids_unsafe_unless_a_file_of_it_is_named() {
        let check = |lints: &str, named: &str| {
            let root = "[workspace.lints.rust]\nunsafe_code = \"forbid\"\nx = { level = \"deny\" }\n\
                        [workspace.lints.clippy]\ny = \"warn\"";
            let tree = Tree::of(&[
                ("Cargo.toml", root),
                ("crates/a/Cargo.toml", &format!("[package]\nname = \"a\"\n{lints}")),
                ("ARCHITECTURE.md", &format!("## Unsafe\n- `{named}`: why\n")),
            ]);
            check_forbid_unsafe(&tree).len()
        };
        assert_eq!(check("", "b.rs"), 1);
        assert_eq!(check("[lints]\nworkspace = true", "b.rs"), 0);
        let own =
            "[lints.rust]\nx = { level = \"deny\" }\n[lints.clippy]\ny = \"warn\"\nz = \"deny\"";
        assert_eq!(check(own, "b.rs"), 1);
        assert_eq!(check(own, "crates/a/tests/all.rs"), 0);
        assert_eq!(check(&own.replace("deny", "warn"), "crates/a/src/cell.rs"), 1);
        assert_eq!(check("", "crates/a/src/cell.rs"), 2);
        assert_eq!(check_forbid_unsafe(&Tree::default()).len(), 1, "no lint of the workspace");
    }

    #[test]
    fn libraries_stay_in_their_layer() {
        let check = |name: &str, section: &str, library: &str| {
            let text = format!("[package]\nname = \"{name}\"\n[{section}]\n{library} = \"1\"");
            check_confined_dependencies(&Tree::of(&[("crates/x/Cargo.toml", &text)]))
        };
        let found = check("throng", "dependencies", "heed");
        assert_eq!((found.len(), found[0].line), (1, 4));
        assert_eq!(check("throng-durable", "dev-dependencies", "heed").len(), 1);
        assert_eq!(check("throng-durable", "dependencies", "hyper").len(), 1);
        assert!(check("throng-store", "dependencies", "heed").is_empty());
        assert!(check("throng-durable", "dev-dependencies", "hyper").is_empty());
        assert!(check("social", "dependencies", "axum").is_empty());
    }

    #[test]
    fn the_clock_is_reached_through_sync() {
        let check = |path: &str, text: &str| {
            check_clock_threads_randomness(&Tree::of(&[(path, text)])).len()
        };
        let file = "crates/throng/src/worker.rs";
        assert_eq!(check(file, "use std::{time::{Duration, Instant}, thread};"), 2);
        assert_eq!(check(file, "fn a() { std::thread::sleep(b) }"), 1);
        assert_eq!(check(file, "use std::time;\nfn a() { time::SystemTime::now() }"), 1);
        assert_eq!(check(file, "use std::time::*;"), 1);
        assert_eq!(check(file, "use crate::sync::{Instant, thread};\nuse std::time::Duration;"), 0);
        assert_eq!(check(file, "#[cfg(test)]\nmod tests { use std::thread; }"), 0);
        assert_eq!(check(SYNC, "pub use std::thread;"), 0);
        assert_eq!(check("crates/throng/tests/all.rs", "use std::thread;"), 0);
        assert_eq!(check("crates/throng-store/src/write/writer.rs", "use std::thread;"), 0);
        assert_eq!(check(file, "use std::sync::atomic::AtomicU32;"), 1);
    }

    #[test]
    fn the_durable_layer_reaches_the_clock_through_the_runtime() {
        let check = |path: &str, text: &str| {
            check_clock_threads_randomness(&Tree::of(&[(path, text)])).len()
        };
        let file = "crates/throng-durable/src/entity.rs";
        assert_eq!(check(file, "use std::time::{Duration, Instant};"), 1);
        assert_eq!(check(file, "use std::collections::hash_map::RandomState;"), 1);
        assert_eq!(check(file, "fn a() { tokio::task::spawn_blocking(b) }"), 1);
        assert_eq!(
            check(file, "use throng::layer::Instant;\nuse std::sync::atomic::AtomicU32;"),
            0
        );
        assert_eq!(check("crates/throng-durable/tests/durable/main.rs", "use std::thread;"), 0);
    }

    #[test]
    fn the_runtime_does_no_io_not_even_in_sync() {
        let check = |path: &str, text: &str| check_no_io(&Tree::of(&[(path, text)])).len();
        assert_eq!(check(SYNC, "use std::fs;"), 1);
        assert_eq!(check("crates/throng/src/lib.rs", "std::net::TcpStream::connect(a)"), 1);
        assert_eq!(check("crates/throng/src/lib.rs", "//! std::net\nuse std::network::x;"), 0);
    }
}
