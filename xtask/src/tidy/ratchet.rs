//! Limits on prose that can only fall: how comments and identifiers are worded, folder by folder.
//!
//! ```text
//! crates/throng/src/**/*.rs ──► Tally of the folder ──► its row in xtask/prose.toml
//!                               openings   item docs whose first word is a pronoun or a question word
//!                               safety     SAFETY notes of at most three words
//!                               replaced   private words that the field's words have replaced
//!                               seven words, each per 1,000 words of comments
//! ```
//!
//! A comment is a line that starts with `//`; its words are runs of letters and apostrophes. A
//! folder is a path up to its first `src` or `examples`; tests have no limits.
//!
//! Invariants: a tally above its limit is a violation that names the lines with the most hits; a
//! tally well below it is a violation that names the lower limit; [`tightened`] raises no limit,
//! lowers none below [`Measure::standard`], and gives a new folder none above it.

use super::Violation;
use super::tree::Tree;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::LazyLock;

/// The file of the limits.
pub(super) const LIMITS: &str = "xtask/prose.toml";

const HEAD: &str = "\
# Limits on prose, checked by `cargo xtask tidy` and explained in xtask/src/tidy/ratchet.rs. They only
# fall: `cargo xtask tidy --tighten` lowers each to today's figure, but not below the standard. The first
# three are counts, the others are words per 1,000 words of comments.

[limits]
";

/// Places that a violation names.
const PLACES_MAX: usize = 8;

/// A property of prose that has a limit.
struct Measure {
    name: &'static str,
    /// A plural, which a colon and the count follow.
    finds: &'static str,
    /// Counted per 1,000 words of comments, in hundredths.
    is_rate: bool,
    /// The limit of a new folder, and the lowest limit: below it, a folder that loses a page of
    /// text would break its rates.
    standard: u64,
}

const MEASURES: [Measure; 10] = [
    Measure {
        name: "openings",
        finds: "item docs that open with a pronoun or a question word",
        is_rate: false,
        standard: 0,
    },
    Measure {
        name: "safety",
        finds: "SAFETY notes of at most three words",
        is_rate: false,
        standard: 0,
    },
    Measure {
        name: "replaced",
        finds: "private words that the field's words have replaced",
        is_rate: false,
        standard: 0,
    },
    Measure { name: "what", finds: "uses of `what`", is_rate: true, standard: 110 },
    Measure { name: "who", finds: "uses of `who`", is_rate: true, standard: 60 },
    Measure { name: "whoever", finds: "uses of `whoever`", is_rate: true, standard: 0 },
    Measure { name: "those", finds: "uses of `those`", is_rate: true, standard: 110 },
    Measure { name: "one", finds: "uses of `one`", is_rate: true, standard: 880 },
    Measure { name: "told", finds: "uses of `told`", is_rate: true, standard: 22 },
    Measure { name: "anew", finds: "uses of `anew`", is_rate: true, standard: 6 },
];

const OPENINGS: usize = 0;
const SAFETY: usize = 1;
const REPLACED: usize = 2;

/// First words that make an item's documentation depend on the lines around it.
const DEPENDENT: &[&str] = &[
    "what", "who", "whom", "whoever", "which", "how", "so", "where", "of", "as", "it", "its", "he",
    "she", "they", "their", "this", "these", "that", "those",
];

const SAFETY_WORDS_MIN: usize = 4;

/// Private words with the words to use instead. An entry in lower case is found in comments and as
/// a part of identifiers, in snake case and in camel case. A capital entry is the name of a type,
/// found where a type is declared.
const PRIVATE: &[(&str, &str)] = &[
    ("are told", "are notified, or the outcome is acknowledged"),
    ("bell", "waker"),
    ("break off", "abort, or recover"),
    ("broke off", "aborted, or recovering"),
    ("broken off", "aborted, or recovering"),
    ("crowd", "many, or waiters"),
    ("door", "the name of the file or the type"),
    ("gathering", "group delay"),
    ("held back", "deferred"),
    ("hold back", "defer"),
    ("holds back", "defers"),
    ("in vain", "spurious, or without effect"),
    ("is told", "is notified, or the outcome is acknowledged"),
    ("laid down", "planned"),
    ("lay down", "plan"),
    ("lobbies", "bounded queues"),
    ("lobby", "bounded queue"),
    ("nurseries", "spawns"),
    ("nursery", "spawn"),
    ("rendezvous", "reply slot"),
    ("warm process", "process in the LIFO slot"),
    ("warm slot", "LIFO slot"),
    ("who is told", "the receiver of the notice"),
    ("Awaited", "PendingReply"),
    ("Branch", "ProcessTree"),
    ("By", "SortBy"),
    ("Called", "CallEnvelope"),
    ("Doing", "CurrentTurn"),
    ("Exposition", "PrometheusText"),
    ("Gate", "Recovery, or ExchangeGuard"),
    ("Hold", "NodeGuard"),
    ("Inside", "CurrentProcess"),
    ("List", "ProcessList"),
    ("Look", "a verb of its own: inspect, poll, check or search"),
    ("Owed", "Responder"),
    ("Pause", "Backoff"),
    ("Place", "a noun for this kind of place"),
    ("Rung", "AlarmOutcome"),
    ("Terms", "JournalConfig"),
    ("Vain", "StopWaiting"),
    ("Warm", "LifoSlot"),
    ("Whom", "AlarmTarget"),
    ("Why", "BoxedReason"),
    ("Writing", "ChangePlanner"),
];

const DECLARES_TYPE: &[&str] = &["struct", "enum", "union", "trait", "type"];

/// The entries of [`PRIVATE`] in lower case, split into words.
static PHRASES: LazyLock<Vec<(Vec<&str>, &str)>> = LazyLock::new(|| {
    let phrases = PRIVATE.iter().filter(|(private, _)| is_phrase(private));
    phrases.map(|&(private, standard)| (private.split(' ').collect(), standard)).collect()
});

fn is_phrase(private: &str) -> bool {
    !private.starts_with(char::is_uppercase)
}

/// A use of a word, or an item, that counts against a limit.
#[derive(Clone, Debug)]
struct Hit {
    path: String,
    line: usize,
    /// The replaced word and its replacement; empty for the other measures.
    note: String,
}

/// Everything in a folder that has a limit.
#[derive(Default)]
struct Tally {
    comment_words: u64,
    /// By measure.
    hits: [Vec<Hit>; MEASURES.len()],
}

/// The limits of a folder by measure; `None` for a limit that is not set.
type Row = [Option<u64>; MEASURES.len()];

/// The prose of each folder stays within its limits, and the limits stay close to the prose.
pub(super) fn check_limits(tree: &Tree) -> Vec<Violation> {
    let text = tree.text(LIMITS).unwrap_or_default();
    let rows = match rows(text) {
        Ok(rows) => rows,
        Err(message) => return vec![Violation::new(LIMITS, 1, message)],
    };
    let tallies = tallies(tree);
    let mut violations = Vec::new();
    for (folder, tally) in &tallies {
        let row = rows.get(folder).copied().unwrap_or_default();
        let line = line_of(text, folder);
        for (index, measure) in MEASURES.iter().enumerate() {
            if let Some(complaint) = complaint(measure, row[index], tally, index) {
                violations.push(Violation::new(LIMITS, line, format!("{folder}: {complaint}")));
            }
        }
    }
    for folder in rows.keys().filter(|folder| !tallies.contains_key(*folder)) {
        let message = format!("{folder} holds no Rust: delete its limits");
        violations.push(Violation::new(LIMITS, line_of(text, folder), message));
    }
    violations
}

fn complaint(measure: &Measure, limit: Option<u64>, tally: &Tally, index: usize) -> Option<String> {
    let Measure { name, finds, .. } = measure;
    let Some(limit) = limit else {
        return Some(format!("there is no limit `{name}`: run `cargo xtask tidy --tighten`"));
    };
    let hits = &tally.hits[index];
    let count = hits.len() as u64;
    let allowed = measure.allowed(limit, tally.comment_words);
    if count > allowed {
        let places = worst(hits).join(", ");
        return Some(format!("{finds}: {count}, the limit `{name}` allows {allowed}: {places}"));
    }
    let lower = measure.today(count, tally.comment_words);
    let is_loose = lower < limit && count + 5 <= allowed && count * 10 <= allowed * 9;
    is_loose.then(|| {
        let lower = measure.written(lower);
        format!(
            "{finds}: {count}; lower the limit `{name}` to {lower} (`cargo xtask tidy --tighten`)"
        )
    })
}

/// The lines with the most hits, as `path:line`.
fn worst(hits: &[Hit]) -> Vec<String> {
    let mut lines: BTreeMap<(&str, usize), (usize, &str)> = BTreeMap::new();
    for hit in hits {
        let (count, _) = lines.entry((&hit.path, hit.line)).or_insert((0, &hit.note));
        *count += 1;
    }
    let mut lines: Vec<_> = lines.into_iter().collect();
    lines.sort_by_key(|(_, (count, _))| std::cmp::Reverse(*count));
    let more = lines.len().saturating_sub(PLACES_MAX);
    let place = |((path, line), (_, note)): ((&str, usize), (usize, &str))| match note {
        "" => format!("{path}:{line}"),
        note => format!("{path}:{line} ({note})"),
    };
    let mut places: Vec<_> = lines.into_iter().take(PLACES_MAX).map(place).collect();
    if more > 0 {
        places.push(format!("and {more} more lines"));
    }
    places
}

/// The file of the limits, each lowered to today's figure and none raised. Folders without Rust are
/// left out.
///
/// # Errors
/// If the file is not in its format.
pub(super) fn tightened(tree: &Tree) -> Result<String, String> {
    let rows = rows(tree.text(LIMITS).unwrap_or_default())?;
    let mut text = HEAD.to_owned();
    for (folder, tally) in tallies(tree) {
        let row = rows.get(&folder).copied().unwrap_or_default();
        let entries = MEASURES.iter().enumerate().map(|(index, measure)| {
            let today = measure.today(tally.hits[index].len() as u64, tally.comment_words);
            let limit = today.min(row[index].unwrap_or(measure.standard));
            format!("{} = {}", measure.name, measure.written(limit))
        });
        let entries: Vec<_> = entries.collect();
        // Writing to a string does not fail.
        let _ = writeln!(text, "\"{folder}\" = {{ {} }}", entries.join(", "));
    }
    Ok(text)
}

impl Measure {
    /// The count that `limit` allows among so many words of comments.
    fn allowed(&self, limit: u64, comment_words: u64) -> u64 {
        if self.is_rate { (limit * comment_words).div_ceil(100_000) } else { limit }
    }

    /// The lowest limit that allows `count`, but not below the standard.
    fn today(&self, count: u64, comment_words: u64) -> u64 {
        let exact =
            if self.is_rate { (count * 100_000).div_ceil(comment_words.max(1)) } else { count };
        exact.max(self.standard)
    }

    /// A limit as the table has it.
    fn written(&self, limit: u64) -> String {
        if self.is_rate { format!("{}.{:02}", limit / 100, limit % 100) } else { limit.to_string() }
    }

    fn read(&self, value: &toml::Value) -> Option<u64> {
        match value {
            toml::Value::Integer(count) if !self.is_rate => u64::try_from(*count).ok(),
            toml::Value::Float(rate) if self.is_rate && (0.0..=1000.0).contains(rate) => {
                Some((rate * 100.0).round() as u64)
            }
            _ => None,
        }
    }
}

fn rows(text: &str) -> Result<BTreeMap<String, Row>, String> {
    let table: toml::Table = text.parse().map_err(|error| format!("not TOML: {error}"))?;
    let Some(limits) = table.get("limits").and_then(toml::Value::as_table) else {
        return Err("there is no section [limits]".to_owned());
    };
    let mut rows = BTreeMap::new();
    for (folder, entries) in limits {
        let entries = entries.as_table().ok_or_else(|| format!("{folder} is no table"))?;
        let mut row = Row::default();
        for (name, value) in entries {
            let index = MEASURES.iter().position(|measure| measure.name == name);
            let index = index.ok_or_else(|| format!("{folder}: `{name}` is no measure"))?;
            let limit = MEASURES[index].read(value);
            row[index] = Some(limit.ok_or_else(|| format!("{folder}: `{name}` is no limit"))?);
        }
        rows.insert(folder.clone(), row);
    }
    Ok(rows)
}

fn line_of(text: &str, folder: &str) -> usize {
    let start = format!("\"{folder}\"");
    text.lines().position(|line| line.starts_with(&start)).map_or(1, |index| index + 1)
}

/// The folder of a Rust file: its path up to the first `src` or `examples`; `None` for tests.
fn folder(path: &str) -> Option<&str> {
    let is_test = path.split('/').any(|part| ["tests", "benches"].contains(&part));
    let mut end = 0;
    let mut folders = path.split('/').map(|part| {
        end += part.len() + 1;
        (part, end - 1)
    });
    let (_, end) = folders.find(|(part, _)| ["src", "examples"].contains(part))?;
    (!is_test).then(|| &path[..end])
}

fn tallies(tree: &Tree) -> BTreeMap<String, Tally> {
    let mut tallies: BTreeMap<String, Tally> = BTreeMap::new();
    for (path, text) in tree.rust() {
        let Some(folder) = folder(path) else { continue };
        let tally = tallies.entry(folder.to_owned()).or_default();
        tally.count_comments(path, text);
        let mut previous = "";
        for (line, word) in tree.source(path).into_iter().flat_map(|source| source.words()) {
            tally.count_phrases(path, &[(line, word)]);
            if DECLARES_TYPE.contains(&previous) {
                tally.count_type(path, line, word);
            }
            previous = word;
        }
    }
    tallies
}

impl Tally {
    fn hit(&mut self, measure: usize, path: &str, line: usize, note: &str) {
        self.hits[measure].push(Hit { path: path.to_owned(), line, note: note.to_owned() });
    }

    fn count_comments(&mut self, path: &str, text: &str) {
        // Comments on lines that follow each other, for phrases across a line's end.
        let mut block = Vec::new();
        let mut follows_doc = false;
        let lines: Vec<&str> = text.lines().map(str::trim_start).collect();
        for (index, line) in lines.iter().enumerate() {
            let number = index + 1;
            let Some(comment) = line.strip_prefix("//") else {
                self.count_phrases(path, &std::mem::take(&mut block));
                follows_doc = false;
                continue;
            };
            let words: Vec<&str> = words(comment).collect();
            self.comment_words += words.len() as u64;
            for word in &words {
                let is =
                    |measure: &Measure| measure.is_rate && measure.name.eq_ignore_ascii_case(word);
                if let Some(measure) = MEASURES.iter().position(is) {
                    self.hit(measure, path, number, "");
                }
            }
            let is_doc = comment.starts_with('/') && !comment.starts_with("//");
            let dependent = |word: &&str| DEPENDENT.contains(&word.to_lowercase().as_str());
            if is_doc && !follows_doc && words.first().is_some_and(dependent) {
                self.hit(OPENINGS, path, number, "");
            }
            if let Some(start) = comment.trim_start().strip_prefix("SAFETY:") {
                let rest = lines[number..].iter().map_while(|line| line.strip_prefix("//"));
                let words = [start].into_iter().chain(rest).flat_map(str::split_whitespace);
                if words.take(SAFETY_WORDS_MIN).count() < SAFETY_WORDS_MIN {
                    self.hit(SAFETY, path, number, "");
                }
            }
            block.extend(comment.split(|c: char| !is_in_identifier(c)).map(|word| (number, word)));
            follows_doc = is_doc;
        }
        self.count_phrases(path, &block);
    }

    fn count_type(&mut self, path: &str, line: usize, name: &str) {
        let is_private = |(private, _): &&(&str, &str)| !is_phrase(private) && *private == name;
        if let Some((private, standard)) = PRIVATE.iter().find(is_private) {
            self.hit(REPLACED, path, line, &format!("{private}: say {standard}"));
        }
    }

    /// Counts the private phrases in `text`, a comment or an identifier.
    fn count_phrases(&mut self, path: &str, text: &[(usize, &str)]) {
        let parts: Vec<(usize, String)> = text
            .iter()
            .flat_map(|(line, word)| parts(word).into_iter().map(move |part| (*line, part)))
            .collect();
        for (phrase, standard) in &*PHRASES {
            for found in parts.windows(phrase.len()) {
                if found.iter().zip(phrase).all(|((_, part), word)| is_form_of(part, word)) {
                    let note = format!("{}: say {standard}", phrase.join(" "));
                    self.hit(REPLACED, path, found[0].0, &note);
                }
            }
        }
    }
}

/// Runs of letters and apostrophes.
fn words(text: &str) -> impl Iterator<Item = &str> {
    text.split(|c: char| !c.is_ascii_alphabetic() && c != '\'').filter(|word| !word.is_empty())
}

fn is_in_identifier(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

/// The words in an identifier, in lower case: `MailboxBound` and `mailbox_bound` have two.
fn parts(identifier: &str) -> Vec<String> {
    let mut parts: Vec<String> = Vec::new();
    let mut follows_lower = false;
    for c in identifier.chars() {
        let begins = parts.is_empty() || c.is_uppercase() && follows_lower;
        if c == '_' || begins {
            parts.push(String::new());
        }
        if let Some(last) = parts.last_mut().filter(|_| c != '_') {
            last.extend(c.to_lowercase());
        }
        follows_lower = c.is_lowercase();
    }
    parts.retain(|part| !part.is_empty());
    parts
}

/// Whether `part` is `word` or its plural.
fn is_form_of(part: &str, word: &str) -> bool {
    part.strip_prefix(word).is_some_and(|rest| rest.is_empty() || rest == "s")
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROW: &str = "openings = 1, safety = 1, replaced = 1, what = 500.0, who = 0.0, \
                       whoever = 0.0, those = 0.0, one = 0.0, told = 0.0, anew = 0.0";

    fn tree(row: &str, text: &str) -> Tree {
        let limits = format!("[limits]\n\"crates/a/src\" = {{ {row} }}\n");
        Tree::of(&[(LIMITS, &limits), ("crates/a/src/lib.rs", text)])
    }

    /// The complaints under [`ROW`] about a measure of `text`.
    fn said(measure: &str, text: &str) -> Vec<String> {
        let named = |message: &String| message.contains(&format!("`{measure}`"));
        let found = check_limits(&tree(ROW, text)).into_iter();
        found.map(|violation| violation.to_string()).filter(named).collect()
    }

    /// The lines of `text` that count as `measure`.
    fn hit_lines(measure: &str, text: &str) -> Vec<usize> {
        let index = MEASURES.iter().position(|known| known.name == measure).expect("a measure");
        let tallies = tallies(&tree(ROW, text));
        tallies["crates/a/src"].hits[index].iter().map(|hit| hit.line).collect()
    }

    #[test]
    fn item_docs_that_open_with_a_pronoun_are_counted() {
        let text = "//! What it is.\n/// Of the last.\n/// Those that\n///\n/// How.\nfn a() {}\n// It \
                    is.\n    /// `this` is code.\nfn b() {}\n/// Returns what it is.\n//// What\n";
        assert_eq!(hit_lines("openings", text), [2, 8]);
        assert_eq!(
            said("openings", text),
            ["xtask/prose.toml:2: crates/a/src: item docs that open with a pronoun or a question \
              word: 2, the limit `openings` allows 1: crates/a/src/lib.rs:2, crates/a/src/lib.rs:8"]
        );
        assert!(said("openings", "/// Returns the head.\n/// It is.\nfn a() {}").is_empty());
    }

    #[test]
    fn words_are_counted_per_thousand_words_of_comments() {
        let text = "// What it is, and what\n//! what's\n/// WHAT\nfn what() {} // what\n\"what\";";
        assert_eq!(hit_lines("what", text), [1, 1, 3]);
        assert_eq!(said("what", text), [""; 0]);
        let more = said("what", &format!("{text}\n// what what what"));
        assert_eq!(more.len(), 1);
        assert!(more[0].contains("uses of `what`: 6, the limit `what` allows 5"), "{more:?}");
        assert!(more[0].ends_with("lib.rs:6, crates/a/src/lib.rs:1, crates/a/src/lib.rs:3"));
        for word in ["who", "whoever", "those", "one", "told", "anew"] {
            assert_eq!(said(word, &format!("// A {word}.")).len(), 1, "{word}");
        }
    }

    #[test]
    fn replaced_words_are_found_in_comments_and_identifiers() {
        let text = "// In the lobby, or it is held\n// back.\nstruct HeldBack;\nfn door() {}\n//! \
                    Vain and vain\n\"lobby\";\n// Lobbying, doorway, `Doors`\nlet Warm = warm;\n\
                    struct Warm;\nenum Warmth { Vain }\n";
        assert_eq!(hit_lines("replaced", text), [1, 1, 7, 3, 4, 9]);
        assert_eq!(hit_lines("replaced", "a();\n// A lobby."), [2], "at the end of a file");
        let said = said("replaced", text);
        assert_eq!(said.len(), 1);
        assert!(said[0].contains("lib.rs:1 (held back: say deferred)"), "{said:?}");
    }

    #[test]
    fn safety_notes_of_three_words_are_found() {
        let text = "// SAFETY: as above.\na();\n// SAFETY: the token's.\n// By invariant 2.\nb();\n\
                    // SAFETY: the token is ours.\nc(); // SAFETY: no.\n// SAFETY:\nd();";
        assert_eq!(hit_lines("safety", text), [1, 8]);
        assert_eq!(said("safety", text).len(), 1);
    }

    #[test]
    fn a_limit_well_above_the_prose_must_fall() {
        let row = |openings: u64, what: &str| {
            ROW.replace("openings = 1", &format!("openings = {openings}"))
                .replace("what = 500.0", &format!("what = {what}"))
        };
        let said = |row: &str, text: &str| -> Vec<String> {
            check_limits(&tree(row, text)).into_iter().map(|found| found.message).collect()
        };
        assert_eq!(said(&row(4, "0.0"), "// A."), [""; 0]);
        assert_eq!(
            said(&row(5, "0.0"), "// A."),
            [
                "crates/a/src: item docs that open with a pronoun or a question word: 0; lower the limit \
              `openings` to 0 (`cargo xtask tidy --tighten`)"
            ]
        );
        let hundred = "/// What.\nfn a() {}\n".repeat(100);
        assert_eq!(said(&row(111, "1000.0"), &hundred), [""; 0]);
        assert_eq!(said(&row(112, "1000.0"), &hundred).len(), 1);
        let rate = said(&row(100, "1000.0"), &"/// What is\nfn a() {}\n".repeat(100));
        assert!(rate[0].contains("lower the limit `what` to 500.00"), "{rate:?}");
    }

    #[test]
    fn tightening_lowers_limits_and_raises_none() {
        let text = "/// What.\nfn a() {}\n/// What a lobby.\nfn b() {}\n";
        let row = ROW.replace("replaced = 1", "replaced = 9");
        let lowered = tightened(&tree(&row, text)).expect("a table");
        let expected = "\"crates/a/src\" = { openings = 1, safety = 0, replaced = 1, what = 500.00, \
                        who = 0.00, whoever = 0.00, those = 0.00, one = 0.00, told = 0.00, anew = 0.00 }\n";
        assert_eq!(lowered, format!("{HEAD}{expected}"));
        let again = Tree::of(&[(LIMITS, &lowered), ("crates/a/src/lib.rs", text)]);
        assert_eq!(tightened(&again).as_deref(), Ok(lowered.as_str()));
    }

    #[test]
    fn no_limit_falls_below_the_standard() {
        let text = "// A limit.\n".repeat(1_000);
        let tighten = |limit: &str| {
            let tree = tree(&ROW.replace("one = 0.0", &format!("one = {limit}")), &text);
            let lowered = tightened(&tree).expect("a table");
            let said =
                check_limits(&tree).into_iter().filter(|found| found.message.contains("`one`"));
            (lowered.contains("one = 8.80"), said.count())
        };
        assert_eq!(tighten("50.0"), (true, 1));
        assert_eq!(tighten("8.8"), (true, 0));
        assert_eq!(tighten("1.0"), (false, 0), "a lower limit is not raised");
    }

    #[test]
    fn a_new_folder_starts_at_the_standard() {
        let tree = Tree::of(&[
            (LIMITS, "[limits]\n\"gone/src\" = {}\n"),
            ("crates/a/src/lib.rs", "/// What is one?\nfn a() {}"),
            ("crates/a/tests/all.rs", "/// What?\nfn a() {}"),
            ("crates/a/examples/b/main.rs", "// A."),
        ]);
        let found = check_limits(&tree);
        assert_eq!(found.len(), 2 * MEASURES.len() + 1);
        assert!(found.iter().any(|found| found.message.starts_with("gone/src holds no Rust")));
        let lowered = tightened(&tree).expect("a table");
        let folders: Vec<_> = lowered.lines().filter(|line| line.starts_with('"')).collect();
        assert_eq!(folders.len(), 2);
        assert!(folders[1].starts_with(
            "\"crates/a/src\" = { openings = 0, safety = 0, replaced = 0, what = 1.10,"
        ));
    }

    #[test]
    fn a_folder_ends_at_its_sources_and_tests_have_none() {
        assert_eq!(folder("crates/a/src/b/c.rs"), Some("crates/a/src"));
        assert_eq!(folder("crates/a/examples/b/src/c.rs"), Some("crates/a/examples"));
        assert_eq!(folder("examples/b.rs"), Some("examples"));
        for path in
            ["crates/a/tests/b.rs", "examples/tests/b.rs", "bench/build.rs", "a/source/b.rs"]
        {
            assert_eq!(folder(path), None, "{path}");
        }
    }

    #[test]
    fn a_table_in_another_format_is_reported() {
        for limits in
            ["", "x", "[limits]\na = 1", "[limits]\na = { x = 1 }", "[limits]\na = { what = 1 }"]
        {
            assert_eq!(check_limits(&Tree::of(&[(LIMITS, limits)])).len(), 1, "{limits}");
        }
    }

    #[test]
    fn a_violation_names_some_lines_and_counts_the_others() {
        let found = said("who", &"// A who.\n".repeat(20));
        assert!(found[0].ends_with("crates/a/src/lib.rs:8, and 12 more lines"), "{found:?}");
    }

    #[test]
    fn identifiers_fall_into_words() {
        assert_eq!(parts("HeldBack_to9IO"), ["held", "back", "to9io"]);
        assert_eq!(parts("BELL_MAX"), ["bell", "max"]);
        assert_eq!(parts("__"), [""; 0]);
    }
}
