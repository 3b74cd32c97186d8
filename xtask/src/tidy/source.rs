//! Enough of Rust's grammar to look for words where they mean something.
//!
//! Invariant: [`code`] and [`without_tests`] keep every line break, so line numbers stay true.

use std::collections::HashMap;

/// `text` with comments, strings and character literals blanked.
pub(super) fn code(text: &str) -> String {
    let chars: Vec<char> = text.chars().collect();
    let mut out = String::with_capacity(text.len());
    let mut at = 0;
    while at < chars.len() {
        let Some(end) = literal_end(&chars, at) else {
            out.push(chars[at]);
            at += 1;
            continue;
        };
        out.extend(chars[at..end].iter().map(|&c| if c == '\n' { '\n' } else { ' ' }));
        at = end;
    }
    out
}

/// Where the comment, string or character literal that begins at `at` ends, if one begins there.
fn literal_end(chars: &[char], at: usize) -> Option<usize> {
    let next = |offset: usize| chars.get(at + offset).copied();
    let find = |from: usize, stop: &dyn Fn(usize) -> bool| {
        (from..chars.len()).find(|&i| stop(i)).unwrap_or(chars.len())
    };
    match chars[at] {
        '/' if next(1) == Some('/') => Some(find(at, &|i| chars[i] == '\n')),
        '/' if next(1) == Some('*') => Some(block_comment_end(chars, at)),
        '"' => Some(string_end(chars, at + 1)),
        'r' if !follows_word(chars, at, "bc") => {
            let hashes = chars[at + 1..].iter().take_while(|&&c| c == '#').count();
            if next(1 + hashes) != Some('"') {
                return None;
            }
            let closes = |i: usize| {
                chars[i] == '"'
                    && chars[i + 1..].iter().take(hashes).all(|&c| c == '#')
                    && i + hashes < chars.len()
            };
            Some((find(at + 2 + hashes, &closes) + 1 + hashes).min(chars.len()))
        }
        '\'' if next(1) == Some('\\') => {
            Some((find(at + 3, &|i| chars[i] == '\'') + 1).min(chars.len()))
        }
        // Otherwise a lifetime.
        '\'' if next(2) == Some('\'') => Some(at + 3),
        _ => None,
    }
}

/// Whether the character at `at` continues a word, other than after a lone one of `prefixes`.
fn follows_word(chars: &[char], at: usize, prefixes: &str) -> bool {
    let in_word = |c: &&char| c.is_alphanumeric() || **c == '_';
    let before: String = chars[..at].iter().rev().take(2).take_while(in_word).collect();
    let is_prefix = before.len() == 1 && prefixes.contains(&before);
    !before.is_empty() && !is_prefix
}

fn block_comment_end(chars: &[char], start: usize) -> usize {
    let (mut at, mut depth) = (start, 0);
    while at + 1 < chars.len() {
        match (chars[at], chars[at + 1]) {
            ('/', '*') => (depth, at) = (depth + 1, at + 2),
            ('*', '/') => (depth, at) = (depth - 1, at + 2),
            _ => at += 1,
        }
        if depth == 0 {
            return at;
        }
    }
    chars.len()
}

fn string_end(chars: &[char], mut at: usize) -> usize {
    while at < chars.len() && chars[at] != '"' {
        at += if chars[at] == '\\' { 2 } else { 1 };
    }
    (at + 1).min(chars.len())
}

/// The lines, from 1, on which `word` stands as a word of its own.
pub(super) fn lines_with_word(code: &str, word: &str) -> Vec<usize> {
    let has =
        |line: &str| line.split(|c: char| !c.is_alphanumeric() && c != '_').any(|w| w == word);
    code.lines().enumerate().filter(|(_, line)| has(line)).map(|(index, _)| index + 1).collect()
}

/// The names of modules declared, not defined, for tests only: `#[cfg(test)] mod name;`.
pub(super) fn test_modules(code: &str) -> Vec<String> {
    let declared = |module: TestModule<'_>| module.body.is_none().then(|| module.name.to_owned());
    find_test_modules(code).into_iter().filter_map(declared).collect()
}

/// `code` with the bodies of its test modules blanked.
pub(super) fn without_tests(code: &str) -> String {
    let mut rest = 0;
    let mut out = String::with_capacity(code.len());
    for module in find_test_modules(code) {
        let Some((start, end)) = module.body.filter(|(start, _)| *start >= rest) else { continue };
        out.push_str(&code[rest..start]);
        out.extend(code[start..end].chars().map(|c| if c == '\n' { '\n' } else { ' ' }));
        rest = end;
    }
    out.push_str(&code[rest..]);
    out
}

/// How many lines of `code` are outside of its test modules.
pub(super) fn lines_before_tests(code: &str) -> usize {
    let tests: usize = find_test_modules(code)
        .iter()
        .filter_map(|module| module.body)
        .map(|(start, end)| code[start..end].matches('\n').count())
        .sum();
    code.lines().count() - tests
}

struct TestModule<'a> {
    name: &'a str,
    /// What is between its braces; `None` if it is in a file of its own.
    body: Option<(usize, usize)>,
}

/// The modules under a `cfg` that asks for tests or for loom.
fn find_test_modules(code: &str) -> Vec<TestModule<'_>> {
    let mut found = Vec::new();
    for (start, _) in code.match_indices("#[cfg(") {
        let Some(attribute_end) = code[start..].find(")]").map(|end| start + end + 2) else {
            break;
        };
        let condition = &code[start..attribute_end];
        if !asks_for_tests(condition) {
            continue;
        }
        let mut rest = code[attribute_end..].trim_start();
        while rest.starts_with("#[") {
            rest = rest.split_once(']').map_or("", |(_, rest)| rest.trim_start());
        }
        if let Some(after) = rest.strip_prefix("pub") {
            rest = after.trim_start();
            if rest.starts_with('(') {
                rest = rest.split_once(')').map_or("", |(_, rest)| rest.trim_start());
            }
        }
        let Some(rest) = rest.strip_prefix("mod ") else { continue };
        let name = rest.split(|c: char| !c.is_alphanumeric() && c != '_').next().unwrap_or("");
        let after = rest[name.len()..].trim_start();
        let body = after.strip_prefix('{').map(|body| {
            let start = code.len() - body.len();
            (start, start + closing(body, '{', '}'))
        });
        found.push(TestModule { name, body });
    }
    found
}

/// Whether `condition` names `test` or a loom other than inside of a `not(…)`.
fn asks_for_tests(condition: &str) -> bool {
    let mut parts = condition.split("not(");
    let outside = parts.next().into_iter().chain(parts.map(|part| {
        // What is negated is one name or one list; after its end the condition goes on.
        &part[closing(part, '(', ')')..]
    }));
    let mut words = outside.flat_map(|part| part.split(|c: char| !c.is_alphanumeric() && c != '_'));
    words.any(|word| word == "test" || word == "loom" || word.ends_with("_loom"))
}

/// The position of the sign that closes one which was opened before `text`; its end if none does.
fn closing(text: &str, open: char, close: char) -> usize {
    let mut depth = 1_usize;
    for (index, c) in text.char_indices() {
        if c == open {
            depth += 1;
        } else if c == close {
            depth -= 1;
        }
        if depth == 0 {
            return index;
        }
    }
    text.len()
}

/// Every path in `code` with its line, imports taken apart and names they bring in written out:
/// `use std::{thread, time as t}; t::Instant::now()` has `std::thread` and `std::time::Instant::now`.
pub(super) fn paths(code: &str) -> Vec<(usize, String)> {
    let tokens = tokens(code);
    let mut parser = Paths { tokens: &tokens, at: 0, imported: Vec::new(), plain: Vec::new() };
    parser.run();
    let names: HashMap<&str, &str> =
        parser.imported.iter().map(|import| (import.name.as_str(), import.path.as_str())).collect();
    let mut paths: Vec<_> =
        parser.imported.iter().map(|import| (import.line, import.path.clone())).collect();
    for (line, path) in parser.plain {
        let (first, rest) = path.split_once("::").unwrap_or((&path, ""));
        match names.get(first) {
            Some(full) if !rest.is_empty() => paths.push((line, format!("{full}::{rest}"))),
            _ => paths.push((line, path)),
        }
    }
    paths.sort();
    paths
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Token<'a> {
    Word(&'a str),
    Colons,
    Sign(char),
}

fn tokens(code: &str) -> Vec<(usize, Token<'_>)> {
    let mut tokens = Vec::new();
    for (index, line) in code.lines().enumerate() {
        let mut rest = line.trim_start();
        while let Some(first) = rest.chars().next() {
            let length =
                rest.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(rest.len());
            let (token, length) = if length > 0 {
                (Token::Word(&rest[..length]), length)
            } else if rest.starts_with("::") {
                (Token::Colons, 2)
            } else {
                (Token::Sign(first), first.len_utf8())
            };
            tokens.push((index + 1, token));
            rest = rest[length..].trim_start();
        }
    }
    tokens
}

struct Import {
    line: usize,
    path: String,
    /// What the path is called in this file.
    name: String,
}

struct Paths<'a> {
    tokens: &'a [(usize, Token<'a>)],
    at: usize,
    imported: Vec<Import>,
    plain: Vec<(usize, String)>,
}

impl<'a> Paths<'a> {
    fn peek(&self) -> Option<(usize, Token<'a>)> {
        self.tokens.get(self.at).copied()
    }

    fn run(&mut self) {
        while let Some((line, token)) = self.peek() {
            self.at += 1;
            match token {
                Token::Word("use") => self.import(&[]),
                Token::Word(word) => {
                    let mut path = word.to_owned();
                    while let (Some((_, Token::Colons)), Some((_, Token::Word(next)))) =
                        (self.peek(), self.tokens.get(self.at + 1).copied())
                    {
                        path.push_str("::");
                        path.push_str(next);
                        self.at += 2;
                    }
                    self.plain.push((line, path));
                }
                Token::Colons | Token::Sign(_) => {}
            }
        }
    }

    /// One branch of an import, up to what separates it from the next.
    fn import(&mut self, prefix: &[&'a str]) {
        let mut path = prefix.to_vec();
        let mut name = None;
        let mut last_line = 0;
        while let Some((line, token)) = self.peek() {
            match token {
                Token::Word("self") if !path.is_empty() => {}
                Token::Word("as") => {
                    if let Some(&(_, Token::Word(alias))) = self.tokens.get(self.at + 1) {
                        name = Some(alias);
                        self.at += 1;
                    }
                }
                Token::Word(word) => path.push(word),
                Token::Colons => {}
                Token::Sign('*') => path.push("*"),
                Token::Sign('{') => {
                    self.at += 1;
                    return self.branches(&path);
                }
                Token::Sign(_) => break,
            }
            last_line = line;
            self.at += 1;
        }
        if let Some(last) = path.last() {
            let name = name.unwrap_or(last).to_owned();
            self.imported.push(Import { line: last_line, path: path.join("::"), name });
        }
    }

    fn branches(&mut self, prefix: &[&'a str]) {
        while let Some((_, token)) = self.peek() {
            match token {
                Token::Sign('}') => {
                    self.at += 1;
                    return;
                }
                Token::Sign(_) => self.at += 1,
                Token::Word(_) | Token::Colons => self.import(prefix),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comments_and_literals_are_blanked_and_lines_kept() {
        let text = "a // unsafe\n/* unsafe /* x */ unsafe\n */ b \"un\\\"safe\n\" r#\"unsafe\"\"# c\n\
                    '\"' 'x' '\\'' '\\u{41}' <'a> d b\"unsafe\" br\"unsafe\" for\"unsafe\"";
        let code = code(text);
        assert_eq!(code.lines().count(), text.lines().count());
        let words: Vec<_> = code.split_whitespace().collect();
        assert_eq!(words, ["a", "b", "c", "<'a>", "d", "b", "b", "for"]);
    }

    #[test]
    fn unfinished_literals_end_with_the_text() {
        for text in ["\"abc", "/* abc", "r#\"abc\"", "'\\", "r#", "'", "\"\\", "// x"] {
            assert_eq!(code(text).chars().count(), text.chars().count(), "{text}");
        }
    }

    #[test]
    fn words_are_whole_words() {
        let code = "unsafe_code\n(unsafe)\nmy_unsafe";
        assert_eq!(lines_with_word(code, "unsafe"), [2]);
    }

    #[test]
    fn test_modules_are_blanked_but_other_items_are_not() {
        let code = "#[cfg(test)]\nuse a;\nfn b() {}\n#[cfg(all(test, not_loom))]\n#[allow(x)]\n\
                    pub(crate) mod tests {\n  fn c() { {} }\n}\nfn d() {}\n#[cfg(not(test))]\nmod e { fn f() {} }";
        let kept = without_tests(code);
        assert_eq!(kept.lines().count(), code.lines().count());
        assert!(!kept.contains("fn c"), "{kept}");
        for item in ["use a", "fn b", "fn d", "fn f"] {
            assert!(kept.contains(item), "{item} in {kept}");
        }
        assert_eq!(lines_before_tests(code), code.lines().count() - 2);
    }

    #[test]
    fn conditions_that_negate_tests_ask_for_none() {
        for asks in [
            "#[cfg(test)]",
            "#[cfg(all(test, not(x_loom)))]",
            "#[cfg(all(not(any(a, b)), x_loom))]",
        ] {
            assert!(asks_for_tests(asks), "{asks}");
        }
        for asks_not in
            ["#[cfg(not(test))]", "#[cfg(all(unix, not(any(test, loom))))]", "#[cfg(tests)]"]
        {
            assert!(!asks_for_tests(asks_not), "{asks_not}");
        }
    }

    #[test]
    fn declared_test_modules_are_named() {
        let code = "#[cfg(loom)] mod models;\n#[cfg(test)]\nmod tests { }\nmod real;";
        assert_eq!(test_modules(code), ["models"]);
    }

    #[test]
    fn paths_see_through_imports() {
        let code = "use std::{thread, time::{self as t, Duration}};\nuse x::*;\nlet a = t::Instant::now();\n\
                    ::std::fs::read(b)";
        let expected = [
            (1, "std::thread"),
            (1, "std::time"),
            (1, "std::time::Duration"),
            (2, "x::*"),
            (3, "std::time::Instant::now"),
            (4, "std::fs::read"),
        ];
        let found = paths(code);
        for (line, path) in expected {
            assert!(found.contains(&(line, path.to_owned())), "{path} in {found:?}");
        }
    }
}
