//! Rust files as tokens: comments and literals are gone, and each word has its line.
//!
//! The tokens are those of `proc-macro2`. A parser such as `syn` would see less: it leaves the
//! arguments of macros unparsed, and `assert!(Instant::now() < end)` names the clock all the same.
//!
//! Invariant: a file that is no Rust has no tokens, and [`check_tokens`] reports it.

use super::Violation;
use super::tree::Tree;
use proc_macro2::{Group, TokenStream, TokenTree};
use std::collections::HashMap;

/// A Rust file.
#[derive(Debug, Default)]
pub(super) struct Source {
    words: Vec<(usize, String)>,
    test_modules: Vec<TestModule>,
    imports: Vec<Import>,
    /// Paths outside of imports, as they are written.
    plain: Vec<(usize, String)>,
    /// The line on which the tokens end because the rest is no Rust.
    error: Option<usize>,
}

/// A module under a `cfg` that asks for tests or for loom.
#[derive(Debug)]
struct TestModule {
    name: String,
    /// The number of lines between its braces; `None` if it is in a file of its own.
    body_lines: Option<usize>,
}

#[derive(Debug)]
struct Import {
    line: usize,
    path: String,
    /// The name of the path in this file.
    name: String,
}

/// Each file ending in `.rs` consists of Rust's tokens.
pub(super) fn check_tokens(tree: &Tree) -> Vec<Violation> {
    let error = |(path, source): (&str, &Source)| {
        source.error.map(|line| Violation::new(path, line, "from here on the file is no Rust"))
    };
    tree.sources().filter_map(error).collect()
}

impl Source {
    pub(super) fn parse(text: &str) -> Source {
        let mut source = Source::default();
        match text.parse::<TokenStream>() {
            Ok(tokens) => source.read(tokens, false),
            Err(error) => source.error = Some(error.span().start().line),
        }
        source
    }

    /// Reads `tokens` and all groups in them; of tests, the words alone.
    fn read(&mut self, tokens: TokenStream, in_tests: bool) {
        let trees: Vec<TokenTree> = tokens.into_iter().collect();
        let mut test_body = None;
        // The index after the last path or import.
        let mut read = 0;
        for (index, tree) in trees.iter().enumerate() {
            let rest = &trees[index..];
            if let Some((name, body)) = test_module(rest) {
                let lines = |group: &Group| line(group.span_close()) - line(group.span_open());
                // A module under two conditions is found once for each.
                if test_body.is_none_or(|at| at < index) {
                    let body_lines = body.map(|(_, group)| lines(group));
                    self.test_modules.push(TestModule { name, body_lines });
                }
                test_body = body.map(|(offset, _)| index + offset);
            }
            match tree {
                TokenTree::Group(group) if test_body == Some(index) => {
                    self.read(group.stream(), true);
                }
                TokenTree::Group(group) => self.read(group.stream(), in_tests || index < read),
                TokenTree::Ident(word) => {
                    self.words.push((line(word.span()), word.to_string()));
                    if in_tests || index < read {
                        continue;
                    }
                    if word == "use" && !is_sign(rest.get(1), '<') {
                        let end = rest.iter().position(|tree| is_sign(Some(tree), ';'));
                        read = index + end.unwrap_or(rest.len());
                        self.import(&trees[index + 1..read], "");
                    } else {
                        let (path, length) = path(rest);
                        self.plain.push((line(word.span()), path));
                        read = index + length;
                    }
                }
                TokenTree::Punct(_) | TokenTree::Literal(_) => {}
            }
        }
    }

    /// Reads the branches of an import, which commas separate; each continues `prefix`.
    fn import(&mut self, trees: &[TokenTree], prefix: &str) {
        for branch in trees.split(|tree| is_sign(Some(tree), ',')) {
            let mut path = prefix.to_owned();
            let mut branch = branch.iter();
            let (mut last, mut alias) = (None, None);
            for tree in branch.by_ref() {
                match tree {
                    TokenTree::Group(group) => {
                        let inner: Vec<TokenTree> = group.stream().into_iter().collect();
                        self.import(&inner, &path);
                        last = None;
                        break;
                    }
                    TokenTree::Ident(word) if word == "as" => {
                        alias = last.take().map(|line| (line, path.clone()));
                        break;
                    }
                    TokenTree::Ident(word) if word == "self" && !path.is_empty() => {}
                    TokenTree::Punct(sign) if sign.as_char() == ':' => continue,
                    tree => {
                        let separator = if path.is_empty() { "" } else { "::" };
                        path.push_str(&format!("{separator}{tree}"));
                    }
                }
                last = Some(line(tree.span()));
            }
            if let Some((line, path)) = alias {
                let name = branch.next().map(ToString::to_string).unwrap_or_default();
                self.imports.push(Import { line, path, name });
            } else if let Some(line) = last {
                let name = path.rsplit("::").next().unwrap_or_default().to_owned();
                self.imports.push(Import { line, path, name });
            }
        }
    }

    /// All identifiers and keywords with their lines.
    pub(super) fn words(&self) -> impl Iterator<Item = (usize, &str)> {
        self.words.iter().map(|(line, word)| (*line, word.as_str()))
    }

    /// The first line on which `wanted` is a word.
    pub(super) fn line_with_word(&self, wanted: &str) -> Option<usize> {
        self.words().find(|(_, word)| *word == wanted).map(|(line, _)| line)
    }

    /// The names of modules declared, not defined, for tests only: `#[cfg(test)] mod name;`.
    pub(super) fn declared_test_modules(&self) -> impl Iterator<Item = &str> {
        let declared = |module: &&TestModule| module.body_lines.is_none();
        self.test_modules.iter().filter(declared).map(|module| module.name.as_str())
    }

    /// The number of lines in its test modules.
    pub(super) fn test_lines(&self) -> usize {
        self.test_modules.iter().filter_map(|module| module.body_lines).sum()
    }

    /// Every path outside of test modules, with its line. Imports are taken apart, and names that
    /// they bring in are written out: `use std::{thread, time as t}; t::Instant::now()` has
    /// `std::thread` and `std::time::Instant::now`.
    pub(super) fn paths(&self) -> Vec<(usize, String)> {
        let imports = self.imports.iter();
        let names: HashMap<&str, &str> =
            imports.clone().map(|import| (import.name.as_str(), import.path.as_str())).collect();
        let plain = self.plain.iter().map(|(line, path)| {
            let full = path.split_once("::").and_then(|(first, rest)| {
                names.get(first).map(|import| format!("{import}::{rest}"))
            });
            (*line, full.unwrap_or_else(|| path.clone()))
        });
        let mut paths: Vec<_> =
            imports.map(|import| (import.line, import.path.clone())).chain(plain).collect();
        paths.sort();
        paths
    }
}

fn line(span: proc_macro2::Span) -> usize {
    span.start().line
}

/// The path at the start of `trees`, and the number of its tokens.
fn path(trees: &[TokenTree]) -> (String, usize) {
    let mut path = trees[0].to_string();
    let mut length = 1;
    while let [first, second, TokenTree::Ident(word), ..] = &trees[length..]
        && is_sign(Some(first), ':')
        && is_sign(Some(second), ':')
    {
        path.push_str(&format!("::{word}"));
        length += 3;
    }
    (path, length)
}

/// The name of the module at the start of `trees` and its body with the body's index, if the first
/// of its attributes there asks for tests.
fn test_module(trees: &[TokenTree]) -> Option<(String, Option<(usize, &Group)>)> {
    let mut at = 0;
    while is_sign(trees.get(at), '#') {
        let TokenTree::Group(attribute) = trees.get(at + 1)? else { return None };
        if at == 0 && !is_test_condition(attribute) {
            return None;
        }
        at += 2;
    }
    if at > 0 && is_word(trees.get(at), "pub") {
        at += 1;
        at += usize::from(matches!(trees.get(at), Some(TokenTree::Group(_))));
    }
    if at == 0 || !is_word(trees.get(at), "mod") {
        return None;
    }
    let name = trees.get(at + 1)?.to_string();
    match trees.get(at + 2)? {
        TokenTree::Group(body) => Some((name, Some((at + 2, body)))),
        _ => Some((name, None)),
    }
}

fn is_sign(tree: Option<&TokenTree>, wanted: char) -> bool {
    matches!(tree, Some(TokenTree::Punct(sign)) if sign.as_char() == wanted)
}

fn is_word(tree: Option<&TokenTree>, wanted: &str) -> bool {
    matches!(tree, Some(TokenTree::Ident(word)) if word == wanted)
}

/// Whether an attribute, in its brackets, is a `cfg` that asks for tests.
fn is_test_condition(attribute: &Group) -> bool {
    let trees: Vec<TokenTree> = attribute.stream().into_iter().collect();
    match trees.as_slice() {
        [TokenTree::Ident(name), TokenTree::Group(condition)] => {
            name == "cfg" && asks_for_tests(condition.stream())
        }
        _ => false,
    }
}

/// Whether `condition` names `test` or a loom other than inside of a `not(…)`.
fn asks_for_tests(condition: TokenStream) -> bool {
    let mut is_negated = false;
    condition.into_iter().any(|tree| match tree {
        TokenTree::Ident(word) => {
            is_negated = word == "not";
            let word = word.to_string();
            word == "test" || word == "loom" || word.ends_with("_loom")
        }
        TokenTree::Group(group) => !is_negated && asks_for_tests(group.stream()),
        TokenTree::Punct(_) | TokenTree::Literal(_) => false,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str) -> Vec<(usize, String)> {
        Source::parse(text).words().map(|(line, word)| (line, word.to_owned())).collect()
    }

    #[test]
    fn comments_and_literals_hold_no_words_and_lines_are_kept() {
        let text = "a // unsafe\n/* unsafe /* x */ unsafe\n */ b \"un\\\"safe\n\" r#\"unsafe\"\"# c\n\
                    '\"' 'x' '\\'' '\\u{41}' d b\"unsafe\" br\"unsafe\" c\"unsafe\" e!(f)";
        let found = words(text);
        let expected = [(1, "a"), (3, "b"), (4, "c"), (5, "d"), (5, "e"), (5, "f")];
        assert_eq!(found, expected.map(|(line, word)| (line, word.to_owned())));
        assert!(words("/// unsafe\n//! unsafe\n/** unsafe */").iter().all(|(_, w)| w == "doc"));
    }

    #[test]
    fn a_file_that_is_no_rust_is_reported() {
        for text in ["\"abc", "/* abc", "r#\"abc\"", "a\n)", "fn f() {"] {
            let tree = Tree::of(&[("a.rs", text), ("b.md", text)]);
            assert_eq!(check_tokens(&tree).len(), 1, "{text}");
        }
        assert_eq!(check_tokens(&Tree::of(&[("a.rs", "//! A.\nfn f() {}")])), []);
    }

    #[test]
    fn words_are_whole_words() {
        let source = Source::parse("unsafe_code\n(unsafe)\nmy_unsafe");
        assert_eq!(source.line_with_word("unsafe"), Some(2));
        assert_eq!(source.line_with_word("safe"), None);
    }

    #[test]
    fn test_modules_are_left_out_but_other_items_are_not() {
        let source = Source::parse(
            "#[cfg(test)]\nuse a;\nfn b() {}\n#[cfg(all(test, not_loom))]\n#[allow(x)]\n\
             pub(crate) mod tests {\n  fn c() { {} }\n}\nfn d() {}\n#[cfg(not(test))]\nmod e { fn f() {} }\n\
             #[allow(x)]\n#[cfg(test)]\n#[cfg(loom)]\nmod g {\n  fn h() {}\n}",
        );
        let found: Vec<_> = source.paths().into_iter().map(|(_, path)| path).collect();
        for item in ["c", "h"] {
            assert!(!found.iter().any(|path| path == item), "{item} in {found:?}");
        }
        for item in ["a", "b", "d", "f"] {
            assert!(found.iter().any(|path| path == item), "{item} in {found:?}");
        }
        assert_eq!(source.test_lines(), 4);
    }

    #[test]
    fn conditions_that_negate_tests_ask_for_none() {
        let asks = |condition: &str| {
            asks_for_tests(condition.parse().unwrap_or_else(|error| panic!("{error}")))
        };
        for condition in ["test", "all(test, not(x_loom))", "all(not(any(a, b)), x_loom)"] {
            assert!(asks(condition), "{condition}");
        }
        for condition in ["not(test)", "all(unix, not(any(test, loom)))", "tests"] {
            assert!(!asks(condition), "{condition}");
        }
    }

    #[test]
    fn declared_test_modules_are_named() {
        let source = Source::parse(
            "#[cfg(loom)] mod models;\n#[cfg(test)]\nmod tests { }\nmod real;\n\
             wrap! { #[cfg(test)] pub mod deep; }",
        );
        assert_eq!(source.declared_test_modules().collect::<Vec<_>>(), ["models", "deep"]);
    }

    #[test]
    fn paths_see_through_imports_and_into_macros() {
        let source = Source::parse(
            "use std::{thread, time::{self as t, Duration}};\nuse x::*;\nlet a = t::Instant::now();\n\
             ::std::fs::read(b)\nlet d: ::std::fs::File;\nassert!(t::SystemTime::now() > c, \"std::net\")",
        );
        let expected = [
            (1, "std::thread"),
            (1, "std::time"),
            (1, "std::time::Duration"),
            (2, "x::*"),
            (3, "std::time::Instant::now"),
            (4, "std::fs::read"),
            (5, "std::fs::File"),
            (6, "std::time::SystemTime::now"),
        ];
        let found = source.paths();
        for (line, path) in expected {
            assert!(found.contains(&(line, path.to_owned())), "{path} in {found:?}");
        }
        assert!(!found.iter().any(|(_, path)| path == "std::net"));
    }
}
