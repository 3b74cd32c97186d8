//! The search for numbers that nothing explains: figures of speed and memory in a text, without a row or a constant.
//!
//! A number is explained if it lies in a block that `bench claims` writes, or in a part of the text that `claims.toml`
//! has, with the code that holds it. A unit stands at its number or behind it; in a table also in the header of the
//! column, or in a cell of its own.

use std::fs;
use std::path::{Path, PathBuf};

use super::{ClaimError, END, Ledger, Stated, read_text};

/// Units of time, memory, rates and ratios.
const UNITS: &str = "ns us µs μs ms s seconds minutes h hours nanoseconds microseconds milliseconds bytes kB KB KiB MB \
    MiB GB GiB /s k/s M/s % percent times fold x × instructions million millions billion";

/// Numbers that are spelled out, which count as in `ten times as fast` and `tenfold`.
const WORDS: &str = "two three four five six seven eight nine ten twenty fifty hundred thousand";

/// Multiples that count before a word that compares, or as a part of something measured.
const MULTIPLES: &str = "half twice thrice third quarter tenth";
const COMPARING: &str = "as faster slower more less fewer longer smaller larger";
const MEASURED: &str = "memory time times cost bytes";

fn has(words: &str, word: &str) -> bool {
    words.split_whitespace().any(|known| known == word)
}

/// A paragraph in one line. A list's item, a table's row and a line of code are paragraphs.
#[derive(Default)]
struct Paragraph {
    text: String,
    /// The first row of the table, if the paragraph is another row of it.
    header: String,
}

pub(super) fn unexplained(ledger: &Ledger) -> Result<Vec<String>, ClaimError> {
    let (root, stated) = (&ledger.root, &ledger.claims.stated);
    let mut found = Vec::new();
    let mut used = vec![false; stated.len()];
    for file in files(root, &ledger.claims.texts)? {
        for Paragraph { mut text, header } in paragraphs(&read_text(root.join(&file))?) {
            for (Stated { text: part, .. }, used) in
                stated.iter().zip(&mut used).filter(|(stated, _)| stated.file == file)
            {
                *used |= text.contains(part);
                text = text.replace(part, &part.replace(|of: char| of.is_ascii_digit(), "_"));
            }
            let mut figures = figures(&text);
            figures.extend(cells(&text, &header));
            if !figures.is_empty() {
                let figures = figures.join(", ");
                found.push(format!("{file}: nothing explains {figures} in: {text}"));
            }
        }
    }
    for (Stated { file, text, by, code }, used) in stated.iter().zip(used) {
        if !used {
            found.push(format!("{file}: no text has: {text}"));
        }
        if !read_text(root.join(by))?.contains(code) {
            found.push(format!("{by}: it should have `{code}`, because {file} has: {text}"));
        }
    }
    Ok(found)
}

/// The files, in order; a directory stands for its Markdown files.
fn files(root: &Path, texts: &[String]) -> Result<Vec<String>, ClaimError> {
    let mut files = Vec::new();
    for text in texts {
        let path = root.join(text);
        if !path.is_dir() {
            files.push(text.clone());
            continue;
        }
        let failed = |source| ClaimError::Io { path: path.clone(), source };
        let entries = fs::read_dir(&path).map_err(failed)?.flatten().map(|entry| entry.path());
        let mut names: Vec<PathBuf> =
            entries.filter(|path| path.extension().is_some_and(|end| end == "md")).collect();
        names.sort();
        let names = names.iter().filter_map(|path| path.file_name()?.to_str());
        files.extend(names.map(|name| format!("{text}/{name}")));
    }
    Ok(files)
}

fn paragraphs(text: &str) -> Vec<Paragraph> {
    let mut all = vec![Paragraph::default()];
    let (mut in_code, mut in_block, mut header) = (false, false, "");
    for line in text.lines() {
        let line = line.trim();
        if line.starts_with("```") {
            in_code = !in_code;
        }
        in_block = (in_block || line.starts_with("<!-- claims: ")) && line != END;
        if in_block {
            continue;
        }
        let numbered =
            line.split_once(". ").is_some_and(|(number, _)| number.parse::<u32>().is_ok());
        let begins = ["- ", "| ", "```"].iter().any(|begin| line.starts_with(begin));
        if line.is_empty() || begins || numbered || in_code {
            all.push(Paragraph { text: String::new(), header: header.to_owned() });
        }
        if !line.starts_with('|') {
            header = "";
        } else if header.is_empty() {
            header = line;
        }
        if let Some(Paragraph { text, .. }) = all.last_mut() {
            if !text.is_empty() {
                text.push(' ');
            }
            text.push_str(line);
        }
    }
    all
}

/// Splits a word into its number and the rest, without the punctuation around them; `None` if it begins with no digit.
fn number(word: &str) -> Option<(&str, &str)> {
    let word = word.trim_matches(|edge: char| "(`\"~<>≈=+-*_.,;:)|".contains(edge));
    let end = word.find(|part: char| !part.is_ascii_digit() && !",.–-".contains(part));
    word.starts_with(|first: char| first.is_ascii_digit())
        .then(|| word.split_at(end.unwrap_or(word.len())))
}

fn is_unit(word: &str) -> bool {
    has(UNITS, word.trim_matches(|edge: char| "(`*_.,;:)|".contains(edge)))
}

/// The numbers with a unit, and those that compare.
fn figures(paragraph: &str) -> Vec<String> {
    let words: Vec<&str> = paragraph.split_whitespace().collect();
    let word = |at: usize| words.get(at).copied().unwrap_or_default();
    let bare = |at: usize| word(at).trim_matches(|edge: char| !edge.is_alphanumeric());
    let compares = |at| has(COMPARING, bare(at));
    let is_figure = |at: &usize| {
        let Some((_, own)) = number(word(*at)) else {
            let first = bare(*at).to_lowercase();
            let is_part = bare(at + 1) == "of" && (2..5).any(|on| has(MEASURED, bare(at + on)));
            return has(MULTIPLES, &first) && (compares(at + 1) || is_part)
                || has(WORDS, &first) && bare(at + 1) == "times" && compares(at + 2)
                || first.strip_suffix("fold").is_some_and(|number| has(WORDS, number));
        };
        let is_rate = (1..4).any(|on| bare(at + on) == "per" && bare(at + on + 1) == "second");
        is_unit(if own.is_empty() { word(at + 1) } else { own }) || own.is_empty() && is_rate
    };
    (0..words.len()).filter(is_figure).map(|at| format!("{} {}", words[at], word(at + 1))).collect()
}

/// The cells of a table's row.
fn split(line: &str) -> impl Iterator<Item = &str> {
    line.trim_matches('|').split('|').map(str::trim)
}

/// The cells with a number of a table's row whose unit is in the header of the column, or which have nothing else
/// beside a cell with their unit.
fn cells(row: &str, header: &str) -> Vec<String> {
    let has_unit = split(row).any(is_unit);
    let cells = split(row).zip(split(header)).filter(|(cell, column)| {
        let mut numbers = cell.split_whitespace().filter_map(number);
        let is_alone = has_unit && !cell.contains(char::is_whitespace);
        (is_alone || column.split_whitespace().any(is_unit)) && numbers.next().is_some()
    });
    cells.map(|(cell, _)| cell.to_owned()).collect()
}

#[cfg(test)]
mod tests {
    use super::super::Claims;
    use super::*;

    /// Finds the faults of a text, of which some parts are constants of a file of code.
    fn found(text: &str, stated: &[(&str, &str)]) -> Vec<String> {
        let root = tempfile::tempdir().expect("there is room for a directory");
        for (name, text) in [("A.md", text), ("a.rs", "const SIZE: u32 = 38;")] {
            fs::write(root.path().join(name), text).expect("it can be written");
        }
        let own = |(text, code): &(&str, &str)| Stated {
            file: "A.md".to_owned(),
            text: (*text).to_owned(),
            by: "a.rs".to_owned(),
            code: (*code).to_owned(),
        };
        let claims = Claims {
            texts: vec!["A.md".to_owned()],
            stated: stated.iter().map(own).collect(),
            ..Claims::default()
        };
        let mut ledger = Ledger { root: root.path().to_owned(), claims, rows: Vec::new() };
        let found = unexplained(&ledger).expect("the text is there");
        // The directory stands for its files, which are named with it.
        ledger.claims.texts = vec![".".to_owned()];
        assert!(unexplained(&ledger).is_ok());
        found
    }

    #[test]
    fn a_number_with_a_unit_needs_a_block_or_an_entry() {
        for (text, wanted) in [
            ("A call takes 97 ns.", 1),
            ("A call takes 97ns, or (1.5 µs).", 1),
            ("A call takes 97 nanometres.", 0),
            ("It waits for 5 seconds, and ends in 3s.", 1),
            ("It is a tenfold gain, or 10-fold.", 1),
            ("It takes a third of the memory; a third of us do.", 1),
            ("It ran 400 millions.", 1),
            ("It starts in 0.5 seconds.", 1),
            ("- 4 GB\n- 5 KiB\n| 6 % | and |", 3),
            ("It is 3x faster, 2.5× or 3–5 times as fast.", 1),
            ("It is ten times as fast.", 1),
            ("It is twice as fast.", 1),
            ("It comes twice, or ten times.", 0),
            ("It handles 40,000 messages per second.", 1),
            ("It handles 40k/s.", 1),
            ("It saves 50%.", 1),
            ("A call takes 97 ns (`run call`), or (`calls::are_fast`).", 1),
            ("```\nlet a = 1; // 97 ns\n```\nand then 98 ns", 2),
            ("<!-- claims: a -->\n97 ns\n<!-- /claims -->\n98 ns", 1),
        ] {
            let found = found(text, &[]);
            assert_eq!(found.len(), wanted, "{text}: {found:?}");
        }
    }

    #[test]
    fn a_number_in_a_table_needs_no_unit_beside_it() {
        for (table, wanted) in [
            ("| work | ns |\n|---|---|\n| a call | 97 |\n| a send | 17, or less |", 2),
            ("| work | nanoseconds each |\n|---|---|\n| 9 calls | 97 |", 1),
            (
                "| work | figure | unit |\n|---|---|---|\n| a call | 97 | ns |\n| a name | 97 | – |",
                1,
            ),
            ("| work | figure |\n|---|---|\n| a call | 97 |", 0),
            (
                "| work | ns |\n|---|---|\n| a call | – |\n\n| work | count |\n|---|---|\n| a call | 97 |",
                0,
            ),
        ] {
            let found = found(table, &[]);
            assert_eq!(found.len(), wanted, "{table}: {found:?}");
        }
        let table = "| work | ns |\n|---|---|\n| a call | 97 |";
        assert!(found(table, &[("| a call | 97 |", "SIZE")]).is_empty());
    }

    #[test]
    fn an_entry_explains_its_part_of_a_text_and_must_be_used_and_be_in_the_code() {
        let text = "A call took\n38 µs once, and 2 µs.";
        let (own, other) = (("took 38 µs", "SIZE: u32 = 38"), ("2 µs", "38"));
        assert_eq!(found(text, &[own]).len(), 1);
        assert!(found(text, &[own, other]).is_empty());
        assert_eq!(found(text, &[own, other, ("7 µs", "38")]).len(), 1);
        assert_eq!(found(text, &[("took 38 µs", "SIZE: u32 = 39"), other]).len(), 1);
    }
}
