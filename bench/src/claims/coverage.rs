//! The search for numbers that nothing explains: figures of speed and memory in a text, without a row, a
//! command or a test.
//!
//! A paragraph is explained if
//!
//! - it lies in a block that `bench claims` writes, or in a block of code,
//! - it cites a test (`` `module::name` ``) or a command (`` `run W` ``, `` `stress S` ``, `` `costs C` ``), or
//! - `claims.toml` has a part of it, with the command or the test.

use std::fs;
use std::path::{Path, PathBuf};

use super::{ClaimError, END, Stated, read_text};

/// Units of speed and memory.
const UNITS: &[&str] = &["ns", "µs", "ms", "bytes", "MB", "GB", "%", "times", "instructions"];

/// The first words of commands that measure.
const COMMANDS: &[&str] = &["run ", "stress ", "costs "];

pub(super) fn unexplained(
    root: &Path,
    texts: &[String],
    stated: &[Stated],
) -> Result<Vec<String>, ClaimError> {
    let mut found = Vec::new();
    let mut used = vec![false; stated.len()];
    for file in files(root, texts)? {
        let text = read_text(root.join(&file))?;
        for paragraph in paragraphs(&text) {
            let own = |(at, stated): (usize, &Stated)| {
                (stated.file == file && paragraph.contains(&stated.text)).then_some(at)
            };
            let explained: Vec<usize> = stated.iter().enumerate().filter_map(own).collect();
            explained.iter().for_each(|at| used[*at] = true);
            if has_figure(&paragraph) && explained.is_empty() && !cites(&paragraph) {
                found.push(format!("{file}: nothing explains a number in: {paragraph}"));
            }
        }
    }
    for (Stated { file, text, by }, used) in stated.iter().zip(used) {
        if !used {
            found.push(format!("{file}: no text has: {text} ({by})"));
        }
        if by.split_whitespace().any(|word| word.ends_with(".rs") && !root.join(word).is_file()) {
            found.push(format!("{file}: a file is not there: {by}"));
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

/// The paragraphs outside of blocks, each in one line. A list's item and a table's row are paragraphs.
fn paragraphs(text: &str) -> Vec<String> {
    let mut all = vec![String::new()];
    let (mut in_code, mut in_block) = (false, false);
    for line in text.lines() {
        let line = line.trim();
        if line.starts_with("```") {
            in_code = !in_code;
        }
        in_block = (in_block || line.starts_with("<!-- claims: ")) && line != END;
        if in_code || in_block {
            continue;
        }
        let numbered =
            line.split_once(". ").is_some_and(|(number, _)| number.parse::<u32>().is_ok());
        if line.is_empty() || line.starts_with("- ") || line.starts_with("| ") || numbered {
            all.push(String::new());
        }
        if let Some(paragraph) = all.last_mut() {
            if !paragraph.is_empty() {
                paragraph.push(' ');
            }
            paragraph.push_str(line);
        }
    }
    all
}

/// Whether a number stands before a unit.
fn has_figure(paragraph: &str) -> bool {
    let words: Vec<&str> = paragraph.split_whitespace().collect();
    words.windows(2).any(|pair| {
        let unit = pair[1].trim_end_matches(|end: char| ".,;:)|".contains(end));
        let number = pair[0].trim_start_matches(['(', '`']);
        number.starts_with(|first: char| first.is_ascii_digit()) && UNITS.contains(&unit)
    })
}

/// Whether a span of code names a test or a command.
fn cites(paragraph: &str) -> bool {
    let spans: Vec<&str> = paragraph.split('`').collect();
    let is_cited = |(at, span): (usize, &&str)| {
        let is_test = span.contains("::") && !span.contains(char::is_uppercase);
        let is_named = spans[at - 1].ends_with("costs ");
        is_test || is_named || COMMANDS.iter().any(|command| span.starts_with(command))
    };
    spans.iter().enumerate().skip(1).step_by(2).any(is_cited)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn number_of_unexplained(text: &str, stated: &[(&str, &str)]) -> usize {
        let root = tempfile::tempdir().expect("there is room for a directory");
        fs::write(root.path().join("A.md"), text).expect("it can be written");
        let stated: Vec<Stated> = stated
            .iter()
            .map(|(text, by)| Stated {
                file: "A.md".to_owned(),
                text: (*text).to_owned(),
                by: (*by).to_owned(),
            })
            .collect();
        let found = unexplained(root.path(), &[".".to_owned()], &stated);
        // The directory stands for its files, which are named with it.
        let files =
            unexplained(root.path(), &["A.md".to_owned()], &stated).map(|found| found.len());
        assert!(found.is_ok());
        files.expect("the text is there")
    }

    #[test]
    fn a_number_with_a_unit_needs_a_row_a_citation_or_an_entry() {
        for (text, found) in [
            ("A call takes 97 ns.", 1),
            ("A call takes 97 nanometres.", 0),
            ("It was (86 ns) and is 17 ns, which is one paragraph.", 1),
            ("- 4 GB\n- 5 GB\n| 6 % | and |", 3),
            ("A call takes 97 ns\n(`run call`).", 0),
            ("A call takes 97 ns (`calls::are_fast`).", 0),
            ("A `throng::Address` has 8 bytes.", 1),
            ("97 ns (costs `call`)", 0),
            ("```\n97 ns\n```\nand then 98 ns", 1),
            ("<!-- claims: a -->\n97 ns\n<!-- /claims -->\n98 ns", 1),
        ] {
            assert_eq!(number_of_unexplained(text, &[]), found, "{text}");
        }
    }

    #[test]
    fn an_entry_explains_a_paragraph_and_must_be_used() {
        let text = "A call took\n38 µs once.\n\nAnother takes 2 µs.";
        assert_eq!(number_of_unexplained(text, &[("took 38 µs", "run call")]), 1);
        assert_eq!(number_of_unexplained(text, &[("38 µs", "a"), ("2 µs", "a")]), 0);
        assert_eq!(number_of_unexplained(text, &[("38 µs", "a"), ("2 µs", "a"), ("7 µs", "a")]), 1);
        let by = [("38 µs", "a constant in gone.rs"), ("2 µs", "a constant")];
        assert_eq!(number_of_unexplained(text, &by), 1);
    }
}
