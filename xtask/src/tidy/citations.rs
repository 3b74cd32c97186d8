//! The tests that docs/store.md and docs/durable.md cite exist.
//!
//! A citation is `` `target::module::function` `` in the page. The target gives the directory of the
//! file, the modules its path in there:
//!
//! | target | directory | without a module |
//! |---|---|---|
//! | `store`, `power`, `memory` | crates/throng-store/tests/TARGET/ | main.rs |
//! | `durable` | crates/throng-durable/tests/durable/ | main.rs |
//! | `node` | apps/social/tests/node/ | main.rs |
//! | `social` | apps/social/tests/ | social.rs |
//! | `src` | crates/CRATE/src/ of the page's crate | lib.rs |
//!
//! The file must hold `fn function(`.

use super::Violation;
use super::tree::Tree;

/// The pages that cite tests, each with the directory of its crate.
const PAGES: [(&str, &str); 2] =
    [("docs/store.md", "crates/throng-store/"), ("docs/durable.md", "crates/throng-durable/")];

/// The pages are there, and every test that they cite exists.
pub(super) fn check_citations(tree: &Tree) -> Vec<Violation> {
    let mut violations = Vec::new();
    for (page, member) in PAGES {
        let Some(text) = tree.text(page) else {
            violations.push(Violation::new(page, 1, "missing: it cites the tests of its crate"));
            continue;
        };
        for (index, line) in text.lines().enumerate() {
            for cited in citations(line) {
                let Some((file, function)) = place(cited, member) else { continue };
                let message = match tree.text(&file) {
                    None => format!("{cited}: {file} does not exist"),
                    Some(text) if !text.contains(&format!("fn {function}(")) => {
                        format!("{cited}: {file} has no such function")
                    }
                    Some(_) => continue,
                };
                violations.push(Violation::new(page, index + 1, message));
            }
        }
    }
    violations
}

/// The code spans of a line that are paths of lower-case names.
fn citations(line: &str) -> impl Iterator<Item = &str> {
    let is_name = |name: &str| {
        let in_name = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
        !name.is_empty() && name.chars().all(in_name)
    };
    // Text between two code spans holds a blank, so it is no path. Counting backticks to tell the two
    // apart would go wrong after a span that goes on in the next line.
    let parts = line.split('`').skip(1);
    parts.filter(move |span| span.contains("::") && span.split("::").all(is_name))
}

/// The file and the function of a citation, or `None` if it starts with no known target.
fn place<'c>(cited: &'c str, member: &str) -> Option<(String, &'c str)> {
    let (path, function) = cited.rsplit_once("::")?;
    let (target, modules) = path.split_once("::").unwrap_or((path, ""));
    let (directory, face) = match target {
        "store" | "power" | "memory" => (format!("crates/throng-store/tests/{target}/"), "main"),
        "durable" => ("crates/throng-durable/tests/durable/".to_owned(), "main"),
        "cli" => ("crates/throng-cli/tests/".to_owned(), "store"),
        "node" => ("apps/social/tests/node/".to_owned(), "main"),
        "social" => ("apps/social/tests/".to_owned(), "social"),
        "src" => (format!("{member}src/"), "lib"),
        _ => return None,
    };
    let file = if modules.is_empty() { face.to_owned() } else { modules.replace("::", "/") };
    Some((format!("{directory}{file}.rs"), function))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The messages about a page of the store with this text.
    fn messages(page: &str) -> Vec<String> {
        let tree = Tree::of(&[
            ("docs/store.md", page),
            ("docs/durable.md", ""),
            ("crates/throng-store/tests/store/crash.rs", "#[test]\nfn kills_lose_no_write() {}"),
            ("crates/throng-store/tests/power/main.rs", "fn a_cut_loses_nothing() {}"),
            ("crates/throng-store/src/lib.rs", "fn opens() {}"),
            ("crates/throng-store/src/write/queue.rs", "fn keeps_order(steps in steps()) {}"),
            ("apps/social/tests/node/store.rs", "fn a_copy_is_a_store() {}"),
            ("apps/social/tests/social.rs", "fn a_key_posts_once() {}"),
        ]);
        check_citations(&tree).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn each_target_has_its_directory() {
        let page = "A line with `store::crash::kills_lose_no_write` and `power::a_cut_loses_nothing`,\n\
                    `src::opens`, `src::write::queue::keeps_order`,\n\
                    (`node::store::a_copy_is_a_store`, `social::a_key_posts_once`).";
        assert_eq!(messages(page), [""; 0]);
    }

    #[test]
    fn a_test_that_does_not_exist_is_reported_with_its_line() {
        assert_eq!(
            messages("# Page\n`store::crash::kills_lose` and `store::crashes::kills`"),
            [
                "docs/store.md:2: store::crash::kills_lose: \
                 crates/throng-store/tests/store/crash.rs has no such function",
                "docs/store.md:2: store::crashes::kills: \
                 crates/throng-store/tests/store/crashes.rs does not exist",
            ]
        );
        assert_eq!(messages("`power::cut` `social::x` `src::x`").len(), 3);
    }

    #[test]
    fn unit_tests_belong_to_the_crate_of_the_page() {
        let tree = Tree::of(&[
            ("docs/store.md", ""),
            ("docs/durable.md", "`src::layout::keys_fit`, `durable::crash::kills_lose_no_turn`"),
            ("crates/throng-durable/src/layout.rs", "fn keys_fit() {}"),
            ("crates/throng-durable/tests/durable/crash.rs", "fn kills_lose_no_turn() {}"),
        ]);
        assert_eq!(check_citations(&tree), []);
    }

    #[test]
    fn a_page_that_moved_is_reported() {
        let found = check_citations(&Tree::of(&[("docs/store.md", "")]));
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(found[0].message.starts_with("missing"));
    }

    #[test]
    fn a_span_that_goes_on_in_the_next_line_hides_no_citation() {
        assert_eq!(messages("goes on` after `power::cut`").len(), 1);
    }

    #[test]
    fn other_code_spans_are_no_citations() {
        let page = "`Store::sync`, `target::module::function`, `src`, store::crash::none, \
                    `store::crash::`, `cargo test -p throng-store store::crash`";
        assert_eq!(messages(page), [""; 0]);
    }
}
