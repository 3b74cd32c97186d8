//! The search for numbers that nothing explains: figures of speed and memory in a text, without a row, a
//! command or a test.
//!
//! A paragraph is explained if
//!
//! - it lies in a block that `bench claims` writes, or in a block of code,
//! - it cites a metric of a measurement (`` `send`: `send_ns` ``), and each of its numbers is the metric's median,
//! - it cites a test (`` `module::name` ``) or a command (`` `run W` ``, `` `stress S` ``, `` `costs C` ``), or
//! - `claims.toml` has a part of it, with the command or the test.
//!
//! A unit stands behind its number; in a table also in the header of the column, or in a cell of its own. Without any,
//! a number that fills a cell beside a cited metric has the metric's own unit.

use std::fs;
use std::path::{Path, PathBuf};

use super::{ClaimError, END, Ledger, Stated, read_text};
use crate::row::SUBJECT;
use crate::table::number;

/// Units of speed and memory, each with the number of nanoseconds or bytes that it stands for.
const UNITS: &[(&str, f64)] = &[
    ("ns", 1.0),
    ("µs", 1e3),
    ("ms", 1e6),
    ("bytes", 1.0),
    ("MB", 1e6),
    ("GB", 1e9),
    ("%", 1.0),
    ("times", 1.0),
    ("instructions", 1.0),
];

/// Units that are spelled out in the header of a table.
const SPELLED: &[(&str, f64)] =
    &[("nanoseconds", 1.0), ("microseconds", 1e3), ("milliseconds", 1e6)];

/// The first words of commands that measure.
const COMMANDS: &[&str] = &["run ", "stress ", "costs "];

/// A paragraph in one line. A list's item and a table's row are paragraphs.
#[derive(Default)]
struct Paragraph {
    text: String,
    /// The first row of the table, if the paragraph is another row of it.
    header: String,
}

/// A number with its unit.
struct Cell<'a> {
    number: &'a str,
    unit: f64,
    /// The header of its column, in a table.
    column: &'a str,
}

pub(super) fn unexplained(ledger: &Ledger) -> Result<Vec<String>, ClaimError> {
    let (root, stated) = (&ledger.root, &ledger.claims.stated);
    let mut found = Vec::new();
    let mut used = vec![false; stated.len()];
    for file in files(root, &ledger.claims.texts)? {
        let text = read_text(root.join(&file))?;
        for paragraph in paragraphs(&text) {
            let text = &paragraph.text;
            let own = |(at, stated): (usize, &Stated)| {
                (stated.file == file && text.contains(&stated.text)).then_some(at)
            };
            let explained: Vec<usize> = stated.iter().enumerate().filter_map(own).collect();
            explained.iter().for_each(|at| used[*at] = true);
            let cited = cited_metric(text);
            let cells = match paragraph.header.is_empty() {
                true => figures(text),
                false => cells_with_unit(&paragraph, cited),
            };
            if let Some((measurement, metric)) = cited
                && !cells.is_empty()
            {
                let faults =
                    cells.iter().filter_map(|cell| fault(ledger, measurement, metric, cell));
                found.extend(faults.map(|fault| format!("{file}: {fault}: {text}")));
            } else if (!figures(text).is_empty() || !cells.is_empty())
                && explained.is_empty()
                && !cites(text)
            {
                found.push(format!("{file}: nothing explains a number in: {text}"));
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

fn paragraphs(text: &str) -> Vec<Paragraph> {
    let mut all = vec![Paragraph::default()];
    let (mut in_code, mut in_block, mut header) = (false, false, "");
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

/// The unit that a word is.
fn unit(word: &str) -> Option<f64> {
    let word = word.trim_start_matches('(').trim_end_matches(|end: char| ".,;:)|".contains(end));
    UNITS.iter().find(|(name, _)| *name == word).map(|(_, unit)| *unit)
}

/// The numbers before a unit.
fn figures(paragraph: &str) -> Vec<Cell<'_>> {
    let words: Vec<&str> = paragraph.split_whitespace().collect();
    let pairs = words.windows(2).filter(|pair| is_number(pair[0]));
    pairs
        .filter_map(|pair| Some(Cell { number: bare(pair[0]), unit: unit(pair[1])?, column: "" }))
        .collect()
}

fn bare(word: &str) -> &str {
    word.trim_matches(|edge: char| "(`.,;:)".contains(edge))
}

fn is_number(word: &str) -> bool {
    word.trim_start_matches(['(', '`']).starts_with(|first: char| first.is_ascii_digit())
}

/// The cells of a table's row.
fn split(line: &str) -> impl Iterator<Item = &str> {
    line.trim_matches('|').split('|').map(str::trim)
}

/// The numbers of a table's row whose unit is in the header of the column, which fill a cell beside a cell with their
/// unit, or which fill a cell beside a cited metric.
fn cells_with_unit<'a>(row: &'a Paragraph, cited: Option<(&str, &str)>) -> Vec<Cell<'a>> {
    let spelled =
        |word: &str| SPELLED.iter().find(|(name, _)| *name == word).map(|(_, unit)| *unit);
    let alone = split(&row.text).find_map(unit);
    let mut found = Vec::new();
    for (cell, column) in split(&row.text).zip(split(&row.header)) {
        let of_column =
            column.split_whitespace().find_map(|word| unit(word).or_else(|| spelled(word)));
        let own = alone.or(cited.map(|(_, metric)| own_unit(metric)));
        let own = own.filter(|_| !cell.contains(char::is_whitespace));
        let Some(unit) = of_column.or(own) else { continue };
        let numbers = cell.split_whitespace().filter(|word| is_number(word)).map(bare);
        found.extend(numbers.map(|number| Cell { number, unit, column }));
    }
    found
}

/// The measurement and the metric that a paragraph cites, as in `` `send`: `send_ns` ``.
fn cited_metric(paragraph: &str) -> Option<(&str, &str)> {
    let spans: Vec<&str> = paragraph.split('`').collect();
    let cited = spans.windows(4).skip(1).step_by(2).find(|window| window[1] == ": ")?;
    Some((cited[0], cited[2]))
}

/// The unit in which a metric is stored.
fn own_unit(metric: &str) -> f64 {
    if metric.ends_with("_us_per_turn") {
        return 1e3;
    }
    let is_seconds = metric.ends_with("_s") && !metric.ends_with("_per_s");
    if is_seconds { 1e9 } else { 1.0 }
}

/// The contradiction between a number and the row that has its metric: of the runtime that the column
/// names, or of throng.
fn fault(ledger: &Ledger, measurement: &str, metric: &str, cell: &Cell<'_>) -> Option<String> {
    let named = cell.column.split_whitespace().next().unwrap_or_default();
    let is_runtime = ledger.rows.iter().any(|row| row.runtime == named);
    let runtime = if is_runtime { named } else { SUBJECT };
    let median = match ledger.median(measurement, metric, runtime) {
        Ok(median) => median,
        Err(error) => return Some(error.to_string()),
    };
    let measured = number(median * own_unit(metric) / cell.unit);
    let Cell { number: stated, .. } = cell;
    (measured != *stated).then(|| format!("{runtime} has {measured} instead of {stated} in"))
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
    use super::super::Claims;
    use super::super::tests::row;
    use super::*;

    /// Finds the faults of a text, beside a row of throng and one of tokio.
    fn found(text: &str, stated: &[(&str, &str)]) -> Vec<String> {
        let root = tempfile::tempdir().expect("there is room for a directory");
        fs::write(root.path().join("A.md"), text).expect("it can be written");
        let own = |(text, by): &(&str, &str)| Stated {
            file: "A.md".to_owned(),
            text: (*text).to_owned(),
            by: (*by).to_owned(),
        };
        let rows = [row("throng", 1234.0), row("tokio", 25.0)];
        let rows = rows.iter().map(|row| serde_json::from_str(row).expect("it is a row"));
        let claims = Claims {
            texts: vec!["A.md".to_owned()],
            stated: stated.iter().map(own).collect(),
            ..Claims::default()
        };
        let root_path = root.path().to_owned();
        let mut ledger = Ledger { root: root_path, claims, rows: rows.collect() };
        let found = unexplained(&ledger).expect("the text is there");
        // The directory stands for its files, which are named with it.
        ledger.claims.texts = vec![".".to_owned()];
        assert!(unexplained(&ledger).is_ok());
        found
    }

    fn number_of_unexplained(text: &str, stated: &[(&str, &str)]) -> usize {
        found(text, stated).len()
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
    fn a_number_in_a_table_needs_no_unit_beside_it() {
        for (table, found) in [
            ("| work | ns |\n|---|---|\n| a call | 97 |\n| a send | 17, or less |", 2),
            ("| work | nanoseconds each |\n|---|---|\n| 9 calls | 97 |", 1),
            (
                "| work | figure | unit |\n|---|---|---|\n| a call | 97 | ns |\n| a name | 97 | – |",
                1,
            ),
            ("| work | figure |\n|---|---|\n| a call | 97 |", 0),
            ("| work | ns | by |\n|---|---|---|\n| a call | 97 | costs `call` |", 0),
            (
                "| work | ns |\n|---|---|\n| a call | – |\n\n| work | count |\n|---|---|\n| a call | 97 |",
                0,
            ),
        ] {
            assert_eq!(number_of_unexplained(table, &[]), found, "{table}");
        }
        let table = "| work | ns |\n|---|---|\n| a call | 97 |";
        assert_eq!(number_of_unexplained(table, &[("| a call | 97 |", "run call")]), 0);
    }

    #[test]
    fn a_table_states_the_medians_of_the_metrics_that_it_cites() {
        let changed = |table: &str, from: &str, to: &str, fault: &str| {
            assert_eq!(found(table, &[]), Vec::<String>::new());
            let found = found(&table.replace(from, to), &[]);
            assert!(matches!(found.as_slice(), [one] if one.contains(fault)), "{found:?}");
        };
        let header =
            "| work | nanoseconds | by |\n|---|---|---|\n| to send | 1,234 | `send`: `send_ns` |";
        changed(header, "1,234", "1,235", "throng has 1,234 instead of 1,235");
        changed(header, "`send_ns`", "`call_ns`", "no verified row with call_ns of send");
        let cell = "| what | figure | unit |\n|---|---|---|\n| `send`: `send_ns` | 1.2 | µs |";
        changed(cell, "1.2", "1.3", "throng has 1.2 instead of 1.3");
        let runtimes =
            "| | throng ns | tokio ns |\n|---|---|---|\n| `send`: `send_ns` | 1,234 | 25.0 |";
        changed(runtimes, "25.0", "24.0", "tokio has 25.0 instead of 24.0");
        let bare = "| | throng | tokio |\n|---|---|---|\n| `send`: `send_ns` | 1,234 | 25.0 |";
        changed(bare, "1,234", "1,233", "throng has 1,234 instead of 1,233");
        changed(bare, "25.0", "24.0", "tokio has 25.0 instead of 24.0");
        let prose = "A send takes 1.2 µs (`send`: `send_ns`), as counted.";
        changed(prose, "1.2 µs", "1.3 µs", "throng has 1.2 instead of 1.3");
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
