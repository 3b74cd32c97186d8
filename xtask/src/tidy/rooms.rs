//! The rooms of the runtime: the modules directly under `crates/throng/src`.
//!
//! ```text
//! code map      arrows of the sources
//! address/      address ──▶ mailbox     leads down: the room may know the rooms below it
//! mailbox/      mailbox ──▶ address     leads back up: counted, at most BACK_UP_MOST
//! sync.rs
//! ```
//!
//! An arrow leads from a room to another that its code names by `crate::…`, also by a name that the root of
//! the crate has from there. Many names between two rooms are one arrow. Tests are not counted, and neither are the files that only name others: [`FACADE`].
//!
//! Invariant: each room has one place in the code map of ARCHITECTURE.md, so each arrow has a direction.

use super::Violation;
use super::architecture::{ARCHITECTURE, fenced, section};
use super::source::Source;
use super::tree::Tree;
use std::collections::BTreeMap;

const SRC: &str = "crates/throng/src/";
const ROOT: &str = "crates/throng/src/lib.rs";

/// Files that bring names of the rooms to users or to macros.
const FACADE: &[&str] = &["lib", "prelude", "expansion"];

/// Number of arrows that lead back up: those between the parts of the machine that runs a message, each
/// of which needs the others. A change may lower the number.
const BACK_UP_MOST: usize = 19;

/// A room and one that it names, by their places in the code map.
type Arrow = (usize, usize);

/// At most [`BACK_UP_MOST`] arrows lead from a room to one above it.
pub(super) fn check_arrows(tree: &Tree) -> Vec<Violation> {
    check_most(tree, BACK_UP_MOST)
}

fn check_most(tree: &Tree, most: usize) -> Vec<Violation> {
    let Some(text) = tree.text(ARCHITECTURE) else { return Vec::new() };
    let lines = section(text, "Code map");
    let entries = fenced(&lines).into_iter().filter_map(|(_, entry)| entry.split_once(" — "));
    let rooms: Vec<&str> = entries.filter_map(|(path, _)| room(path.trim())).collect();
    let root: BTreeMap<String, String> = tree
        .source(ROOT)
        .map(Source::paths)
        .into_iter()
        .flatten()
        .filter_map(|(_, path)| Some((path.rsplit("::").next()?.to_owned(), path)))
        .collect();
    let mut violations = Vec::new();
    let mut back_up: BTreeMap<Arrow, Vec<(&str, usize)>> = BTreeMap::new();
    for (path, source) in tree.sources().filter(|(path, _)| !tree.is_test(path)) {
        let Some(name) = room(path).filter(|name| !FACADE.contains(name)) else { continue };
        let Some(from) = rooms.iter().position(|room| *room == name) else {
            let message = format!("the code map of {ARCHITECTURE} lacks the room {name}");
            violations.push(Violation::new(path, 1, message));
            continue;
        };
        for (line, named) in source.paths() {
            let first =
                |path: &str| path.strip_prefix("crate::")?.split("::").next().map(str::to_owned);
            let to =
                first(&named).map(|to| root.get(&to).and_then(|path| first(path)).unwrap_or(to));
            let to = to.and_then(|to| rooms.iter().position(|room| *room == to));
            if let Some(to) = to.filter(|to| *to < from) {
                back_up.entry((from, to)).or_default().push((path, line));
            }
        }
    }
    if back_up.len() > most {
        let count = back_up.len();
        for ((from, to), places) in back_up {
            let (from, to, (path, line)) = (rooms[from], rooms[to], places[0]);
            let message = format!(
                "{from} -> {to} leads back up the code map, from {} places: {count} arrows do, at most {most} may",
                places.len()
            );
            violations.push(Violation::new(path, line, message));
        }
    }
    violations
}

/// The room that a file or a folder of the runtime belongs to.
fn room(path: &str) -> Option<&str> {
    let name = path.strip_prefix(SRC)?.split(['/', '.']).next()?;
    Some(name).filter(|name| !name.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAP: &str = "## Code map\n```text\ncrates/throng/src/address/  — a\n\
                       crates/throng/src/mailbox/  — m\ncrates/throng/src/sync.rs  — s\n```\n";

    fn violations(mailbox: &str, most: usize) -> Vec<Violation> {
        let tree = Tree::of(&[
            (ARCHITECTURE, MAP),
            ("crates/throng/src/lib.rs", "pub use crate::address::Pid;"),
            ("crates/throng/src/address/raw.rs", "use crate::{mailbox::Link, sync::lock};"),
            ("crates/throng/src/mailbox.rs", mailbox),
            ("crates/throng/src/sync.rs", "#[cfg(test)]\nmod tests { use crate::mailbox::Link; }"),
        ]);
        check_most(&tree, most)
    }

    #[test]
    fn an_added_arrow_back_up_fails_and_says_where_it_is() {
        assert_eq!(violations("use crate::sync::lock;", 0), []);
        for mailbox in [
            "use crate::address::{Pid, RawAddress};",
            "fn f() { crate::address::f() }",
            "fn f() { crate::Pid::new() }",
        ] {
            assert_eq!(violations(mailbox, 1), []);
            let found = violations(mailbox, 0);
            assert_eq!((found.len(), &*found[0].path), (1, "crates/throng/src/mailbox.rs"));
        }
    }

    #[test]
    fn names_of_the_own_room_and_in_tests_are_no_arrows() {
        let own = "use crate::mailbox::Link;\n#[cfg(test)]\nmod tests { use crate::address::Pid; }";
        assert_eq!(violations(own, 0), []);
    }

    #[test]
    fn a_room_without_a_place_in_the_map_is_reported() {
        let files = [(ARCHITECTURE, MAP), ("crates/throng/src/cellar.rs", "//! Cellar.")];
        assert_eq!(check_most(&Tree::of(&files), 0).len(), 1);
    }
}
