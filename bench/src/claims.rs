//! `bench claims`: the numbers of speed and memory that the project's texts state, written from measured rows.
//!
//! ```text
//! claims.toml ─┬─ tables, sentences, figures ─┐
//!              │                              ├─→ the blocks of README.md and other texts; figures/NAME.svg
//! results ─────┴─ rows.jsonl ─────────────────┘
//! texts ─→ coverage ─→ numbers that neither a block nor `claims.toml` explains
//! ```
//!
//! - A block is the text between the lines `<!-- claims: NAME -->` and `<!-- /claims -->`. Nobody edits it.
//! - A block of a row that is missing or not verified cannot be written.
//! - A block names the metrics, the machine and the commits of its rows, and whether the code has changed since. That
//!   is stated in `claims.toml`, so that a text does not depend on the history that git has of a copy; a test compares.
//! - A test writes all blocks into memory, compares them with the texts, and looks for numbers outside.

mod coverage;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::iter;
use std::path::{Path, PathBuf};

use serde::Deserialize;

use crate::origin;
use crate::report;
use crate::results::{self, ResultsError};
use crate::row::{Row, SUBJECT, find};
use crate::suite::{Entry, suite};
use crate::table::{human, number};
use crate::workloads::unit;

/// Name of the file with all claims, in the directory of bench.
const CLAIMS: &str = "claims.toml";

/// The line after a block.
const END: &str = "<!-- /claims -->";

/// A claim that no row supports, or a text that cannot hold it.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ClaimError {
    #[error("{}", path.display())]
    Io { path: PathBuf, source: io::Error },
    #[error("{CLAIMS}")]
    Garbled(#[from] toml::de::Error),
    #[error(transparent)]
    Results(#[from] ResultsError),
    #[error("{0} has no verified row with {1} of {2}")]
    NoRow(String, String, String),
    #[error("{file} has no block `{block}`: the lines `<!-- claims: {block} -->` and `{END}`")]
    NoBlock { file: String, block: String },
    #[error("the sentence `{text}` has no value for `{{{index}}}`")]
    NoValue { text: String, index: usize },
}

#[derive(Deserialize, Default, Debug)]
#[serde(deny_unknown_fields)]
struct Claims {
    /// The directory in `results` with the rows that the texts state.
    results: String,
    /// Whether the texts say that the code has changed since those rows.
    #[serde(default)]
    has_changed: bool,
    /// Texts whose numbers must be explained, as paths in the repository; a directory stands for its Markdown
    /// files.
    texts: Vec<String>,
    #[serde(default)]
    table: Vec<Table>,
    #[serde(default)]
    sentence: Vec<Sentence>,
    #[serde(default)]
    figure: Vec<Figure>,
    #[serde(default)]
    stated: Vec<Stated>,
}

/// A table with a column per runtime, and a line with the origin of its rows.
#[derive(Deserialize, Debug)]
#[serde(deny_unknown_fields)]
struct Table {
    file: String,
    block: String,
    /// Names of runtimes; `NAME*` is the best row of the runtime, also with one worker or another allocator.
    runtimes: Vec<String>,
    /// The metrics; those of the suite's headline if there are none.
    #[serde(default)]
    row: Vec<Entry>,
}

/// A text with values in place of `{0}`, `{1}` and so on. `{metrics}` is the number of metrics that throng shares
/// with other runtimes, and `{lost}` the number in which it is not first; `{metrics beside tokio}` and
/// `{lost beside tokio}` are the same beside tokio's rows alone.
#[derive(Deserialize, Debug)]
#[serde(deny_unknown_fields)]
struct Sentence {
    file: String,
    block: String,
    text: String,
    value: Vec<Value>,
}

/// A median, the ratio of two, or a parameter of a row.
#[derive(Deserialize, Debug)]
#[serde(deny_unknown_fields)]
struct Value {
    measurement: String,
    /// Name of the metric, or of a parameter.
    metric: String,
    /// Name of a runtime, as in a table.
    #[serde(default = "subject")]
    runtime: String,
    /// The runtime whose median the value is divided by.
    over: Option<String>,
    /// The parameter that the value is multiplied by.
    times: Option<String>,
}

fn subject() -> String {
    SUBJECT.to_owned()
}

#[derive(Deserialize, Debug)]
#[serde(deny_unknown_fields)]
struct Figure {
    file: String,
    block: String,
    /// Name of the figure in the report.
    figure: String,
    alt: String,
}

/// A number that no row of the suite has.
#[derive(Deserialize, Debug)]
#[serde(deny_unknown_fields)]
struct Stated {
    file: String,
    /// A part of the text that holds the number.
    text: String,
    /// The file that has it as a constant or an assertion, and the piece of its code.
    by: String,
    code: String,
}

/// All claims with the rows that they are about.
pub(crate) struct Ledger {
    root: PathBuf,
    claims: Claims,
    rows: Vec<Row>,
}

/// Number of commits after which the texts have to say that the code has changed since its rows.
const OLD: u64 = 50;

pub(crate) type Texts = BTreeMap<String, String>;

impl Ledger {
    pub(crate) fn read(root: &Path) -> Result<Ledger, ClaimError> {
        let bench = root.join("bench");
        let claims: Claims = toml::from_str(&read_text(bench.join(CLAIMS))?)?;
        let rows = results::read(&bench.join("results").join(&claims.results))?;
        Ok(Ledger { root: root.to_owned(), claims, rows })
    }

    /// The files that have blocks, with the blocks filled from the rows, and the figures that they show.
    pub(crate) fn texts(&self) -> Result<Texts, ClaimError> {
        let mut texts = Texts::new();
        let Claims { table, sentence, figure, .. } = &self.claims;
        for of in table {
            self.put(&mut texts, &of.file, &of.block, &self.table(of)?)?;
        }
        for of in sentence {
            self.put(&mut texts, &of.file, &of.block, &self.sentence(of)?)?;
        }
        for of in figure {
            let drawn = report::figure(&self.rows, &of.figure);
            let drawn = drawn.ok_or_else(|| no_row(&of.figure, "a figure", "any"))?;
            let path = format!("bench/figures/{}.svg", of.figure);
            let up = "../".repeat(of.file.matches('/').count());
            self.put(&mut texts, &of.file, &of.block, &format!("![{}]({up}{path})\n", of.alt))?;
            texts.insert(path, drawn);
        }
        Ok(texts)
    }

    /// Writes all texts whose blocks differ, and returns their paths.
    pub(crate) fn write(&self) -> Result<Vec<String>, ClaimError> {
        let mut written = Vec::new();
        for (file, text) in self.texts()? {
            let path = self.root.join(&file);
            if fs::read_to_string(&path).is_ok_and(|before| before == text) {
                continue;
            }
            fs::write(&path, text).map_err(|source| ClaimError::Io { path, source })?;
            written.push(file);
        }
        Ok(written)
    }

    /// The numbers that nothing explains, each with its file and paragraph; the entries of `claims.toml` that explain
    /// none; and commits of rows that are older than the texts say.
    pub(crate) fn unexplained(&self) -> Result<Vec<String>, ClaimError> {
        let mut found = coverage::unexplained(self)?;
        let old = self.outdated().into_iter();
        found.extend(old.map(|commit| {
            format!("{CLAIMS}: {commit} is over {OLD} commits old, and `has_changed` is not set")
        }));
        Ok(found)
    }

    /// The commits of rows that are older than the texts say. A commit that git does not know has no age.
    fn outdated(&self) -> BTreeSet<&str> {
        let is_old = |commit: &&str| origin::age(&self.root, commit).is_some_and(|age| age > OLD);
        let commits: BTreeSet<&str> =
            self.rows.iter().filter_map(|row| row.commit.as_deref()).collect();
        commits.into_iter().filter(|commit| !self.claims.has_changed && is_old(commit)).collect()
    }

    fn table(&self, of: &Table) -> Result<String, ClaimError> {
        let entries = if of.row.is_empty() { &suite().headline } else { &of.row };
        let Some(first) = entries.first() else { return Ok(String::new()) };
        let mut text = "|".to_owned();
        for runtime in &of.runtimes {
            let row = self.row(&first.measurement, &first.metric, runtime)?;
            let version = row.version.as_deref().unwrap_or_default();
            text += &match runtime.strip_suffix('*') {
                Some(family) => format!(" | {family}'s best row"),
                None if runtime == SUBJECT => format!(" | {runtime}"),
                None => format!(" | {runtime} {}", short(version, runtime)),
            };
        }
        text += &format!(" |\n|{}\n", "---|".repeat(of.runtimes.len() + 1));
        let mut stated = Vec::new();
        for entry in entries {
            let Entry { measurement, metric, tails, .. } = entry;
            let subject = self.row(measurement, metric, SUBJECT)?;
            let tail_names: String = tails.iter().map(|tail| format!(", `{tail}`")).collect();
            text += &format!("| {} (`{measurement}`: `{metric}`{tail_names})", entry.text(subject));
            for runtime in &of.runtimes {
                // A runtime may lack a workload.
                let Ok(row) = self.row(measurement, metric, runtime) else {
                    text += " | –";
                    continue;
                };
                stated.push(row);
                let medians = iter::once(metric).chain(tails);
                let shown = |name: &String| Some(human(row.median(name)?, unit(name)));
                text +=
                    &format!(" | {}", medians.filter_map(shown).collect::<Vec<_>>().join(" / "));
                let Some(family) = runtime.strip_suffix('*') else { continue };
                if row.runtime != family {
                    text += &format!(" `{}`", row.runtime);
                }
                if let Some(other) = row.measurement.as_ref().filter(|other| *other != measurement)
                {
                    text += &format!(" `{other}`");
                }
            }
            text += " |\n";
        }
        Ok(format!("{text}\nMedians of {}\n", self.origin(&stated)))
    }

    /// The directory, the machines and the commits of rows.
    fn origin(&self, rows: &[&Row]) -> String {
        let machines: BTreeSet<&str> = rows.iter().map(|row| row.machine.as_str()).collect();
        let commits: BTreeSet<&str> = rows.iter().filter_map(|row| row.commit.as_deref()).collect();
        let since = if self.claims.has_changed { "; the code has changed since" } else { "" };
        let (results, machines) = (&self.claims.results, joined(machines));
        format!("`bench/results/{results}`, on {machines}, at {}{since}.", joined(commits))
    }

    fn sentence(&self, of: &Sentence) -> Result<String, ClaimError> {
        let mut text = of.text.clone();
        let mut stated = Vec::new();
        for (index, value) in of.value.iter().enumerate() {
            let place = format!("{{{index}}}");
            if !text.contains(&place) {
                return Err(ClaimError::NoValue { text: of.text.clone(), index });
            }
            text = text.replace(&place, &self.value(value, &mut stated)?);
        }
        for rivals in ["", "tokio"] {
            // The microblog has more measurements than anything else, and few rivals.
            let mut shared = report::standings(&self.rows, rivals);
            shared.retain(|standing| standing.group != "social");
            let lost = shared.iter().filter(|standing| standing.is_lost()).count();
            let beside =
                if rivals.is_empty() { String::new() } else { format!(" beside {rivals}") };
            text = text.replace(&format!("{{metrics{beside}}}"), &shared.len().to_string());
            text = text.replace(&format!("{{lost{beside}}}"), &lost.to_string());
        }
        let mut runtimes: BTreeMap<_, BTreeSet<&str>> = BTreeMap::new();
        for (row, metric) in &stated {
            runtimes.entry((&row.measurement, metric)).or_default().insert(&row.runtime);
        }
        let names = runtimes.into_iter().map(|((measurement, metric), runtimes)| {
            let measurement = measurement.as_deref().unwrap_or_default();
            format!("`{measurement}`: `{metric}` of {}", joined(runtimes))
        });
        let names = names.collect::<Vec<_>>().join("; ");
        let rows: Vec<&Row> = stated.into_iter().map(|(row, _)| row).collect();
        Ok(format!("{text}\n\n({names}; medians of {})\n", self.origin(&rows)))
    }

    /// A value with its unit, if it is no ratio; adds its rows to others, each with the metric.
    fn value<'a>(
        &'a self,
        of: &'a Value,
        stated: &mut Vec<(&'a Row, &'a str)>,
    ) -> Result<String, ClaimError> {
        let Value { measurement, metric, runtime, over, times } = of;
        let param = |row: &Row, name: &str| row.params.get(name).and_then(|value| value.as_f64());
        let missing = || no_row(measurement, metric, runtime);
        let row = self.row(measurement, metric, runtime)?;
        let Some(mut value) = row.median(metric) else {
            let value = param(row, metric).ok_or_else(missing)?;
            return Ok(number(value).trim_end_matches(".0").to_owned());
        };
        stated.push((row, metric));
        if let Some(name) = times {
            value *= param(row, name).ok_or_else(missing)?;
        }
        let Some(over) = over else { return Ok(human(value, unit(metric))) };
        let other = self.row(measurement, metric, over)?;
        stated.push((other, metric));
        Ok(number(value / other.median(metric).ok_or_else(missing)?))
    }

    /// The verified row of a runtime that has a metric or a parameter, or of `NAME*` the best.
    fn row(&self, measurement: &str, metric: &str, runtime: &str) -> Result<&Row, ClaimError> {
        let found = match runtime.strip_suffix('*') {
            Some(family) => report::best(&self.rows, measurement, metric, family),
            None => find(&self.rows, measurement, runtime),
        };
        let has = |row: &&Row| row.median(metric).is_some() || row.params.contains_key(metric);
        let found = found.filter(has);
        found.ok_or_else(|| no_row(measurement, metric, runtime))
    }

    /// Puts a block into a file, whose text is read when the first of its blocks is written.
    fn put(
        &self,
        texts: &mut Texts,
        file: &str,
        block: &str,
        contents: &str,
    ) -> Result<(), ClaimError> {
        if !texts.contains_key(file) {
            texts.insert(file.to_owned(), read_text(self.root.join(file))?);
        }
        let text = texts.get_mut(file).and_then(|text| {
            let start = format!("<!-- claims: {block} -->\n");
            let from = text.find(&start)? + start.len();
            let to = from + text[from..].find(END)?;
            text.replace_range(from..to, contents);
            Some(())
        });
        text.ok_or_else(|| ClaimError::NoBlock { file: file.to_owned(), block: block.to_owned() })
    }
}

fn read_text(path: PathBuf) -> Result<String, ClaimError> {
    fs::read_to_string(&path).map_err(|source| ClaimError::Io { path, source })
}

fn no_row(measurement: &str, metric: &str, runtime: &str) -> ClaimError {
    ClaimError::NoRow(runtime.to_owned(), metric.to_owned(), measurement.to_owned())
}

fn joined(names: BTreeSet<&str>) -> String {
    names.into_iter().collect::<Vec<_>>().join(" and ")
}

/// The first two numbers of a version, without the runtime's name in front of them.
fn short<'v>(version: &'v str, runtime: &str) -> &'v str {
    let named = version.split_once(' ').filter(|(name, _)| name.eq_ignore_ascii_case(runtime));
    let version = named.map_or(version, |(_, number)| number);
    let mut dots = version.match_indices('.').map(|(at, _)| at);
    let end = dots.nth(1).unwrap_or(version.len());
    &version[..end]
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use serde_json::json;

    use super::*;

    const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/..");

    pub(super) fn row(runtime: &str, median: f64) -> String {
        let metrics = json!({"send_ns": {"median": median}});
        Row::with(json!({"runtime": runtime, "metrics": metrics})).line() + "\n"
    }

    const ONE_OF_EACH: &str = r#"
        results = "now"
        has_changed = true
        texts = ["README.md"]
        [[table]]
        file = "README.md"
        block = "costs"
        runtimes = ["throng", "tokio", "tokio*", "go"]
        row = [
            { text = "a send", measurement = "send", metric = "send_ns", tails = ["p99_ns"] },
            { text = "another", measurement = "send-1", metric = "send_ns" },
        ]
        [[sentence]]
        file = "README.md"
        block = "times"
        text = "A send takes {0}, {1} times less than tokio's. {2} sends, {lost} of {metrics}, {lost beside tokio}."
        value = [
            { measurement = "send", metric = "send_ns" },
            { measurement = "send", metric = "send_ns", runtime = "tokio*", over = "throng" },
            { measurement = "send", metric = "count" },
        ]
        [[figure]]
        file = "README.md"
        block = "picture"
        figure = "send-send_ns"
        alt = "Sends"
    "#;

    const BLOCKS: &str = "A\n<!-- claims: costs -->\nold\n<!-- /claims -->\nB\n\
                          <!-- claims: times -->\n<!-- /claims -->\n<!-- claims: picture -->\n<!-- /claims -->\n";

    fn ledger(claims: &str, readme: &str) -> (tempfile::TempDir, Ledger) {
        let root = tempfile::tempdir().expect("there is room for a directory");
        let results = root.path().join("bench/results/now");
        fs::create_dir_all(&results).expect("it can be made");
        let go = row("go", 12.0).replace("1.2.3", "Go 1.2.3");
        let with_tail =
            |row: String| row.replace(r#""metrics":{"#, r#""metrics":{"p99_ns":{"median":99},"#);
        let one = |row: String| row.replace(r#""measurement":"send""#, r#""measurement":"send-1""#);
        let rows = [
            with_tail(row("throng", 10.0)),
            with_tail(row("tokio", 25.0)),
            go,
            one(row("throng", 30.0)),
            one(row("tokio-recv-many", 20.0)),
        ];
        fs::create_dir_all(root.path().join("bench/figures")).expect("it can be made");
        let rows = rows.concat().replace(r#""commit":null"#, r#""commit":"c1""#);
        let rows = rows.replace(r#""params":{}"#, r#""params":{"count":7}"#);
        for (path, text) in [
            (results.join("rows.jsonl"), rows.as_str()),
            (root.path().join("bench").join(CLAIMS), claims),
            (root.path().join("README.md"), readme),
        ] {
            fs::write(path, text).expect("it can be written");
        }
        let ledger = Ledger::read(root.path()).expect("it is complete");
        (root, ledger)
    }

    #[test]
    fn blocks_are_written_from_the_rows() {
        let (root, ledger) = ledger(ONE_OF_EACH, BLOCKS);
        assert_eq!(
            ledger.write().expect("all blocks are there"),
            ["README.md", "bench/figures/send-send_ns.svg"]
        );
        let text = fs::read_to_string(root.path().join("README.md")).expect("it is there");
        assert_eq!(
            text,
            "A\n<!-- claims: costs -->\n\
             | | throng | tokio 1.2 | tokio's best row | go 1.2 |\n|---|---|---|---|---|\n\
             | a send (`send`: `send_ns`, `p99_ns`) | 10.0 ns / 99.0 ns | 25.0 ns / 99.0 ns | 20.0 ns `tokio-recv-many` `send-1` | 12.0 ns |\n\
             | another (`send-1`: `send_ns`) | 30.0 ns | – | 20.0 ns `tokio-recv-many` | – |\n\
             \nMedians of `bench/results/now`, on m, at c1; the code has changed since.\n<!-- /claims -->\nB\n\
             <!-- claims: times -->\nA send takes 10.0 ns, 2.0 times less than tokio's. 7 sends, 1 of 2, 1.\n\n\
             (`send`: `send_ns` of throng; `send-1`: `send_ns` of tokio-recv-many; medians of \
             `bench/results/now`, on m, at c1; the code has changed since.)\n<!-- /claims -->\n\
             <!-- claims: picture -->\n![Sends](bench/figures/send-send_ns.svg)\n<!-- /claims -->\n"
        );
        assert!(ledger.write().expect("all blocks are there").is_empty());
        assert!(ledger.unexplained().expect("the text is there").is_empty());
    }

    #[test]
    fn a_claim_without_a_row_or_a_block_is_an_error() {
        let unknown =
            ONE_OF_EACH.replace("metric = \"send_ns\", tails", "metric = \"lost_ns\", tails");
        let (_root, no_row) = ledger(&unknown, BLOCKS);
        assert!(matches!(no_row.texts(), Err(ClaimError::NoRow(..))));
        let (_root, no_block) = ledger(ONE_OF_EACH, "A text.\n");
        assert!(matches!(no_block.texts(), Err(ClaimError::NoBlock { .. })));
        let (_root, no_value) = ledger(&ONE_OF_EACH.replace("{1} times", "much"), BLOCKS);
        assert!(matches!(no_value.texts(), Err(ClaimError::NoValue { index: 1, .. })));
    }

    #[test]
    fn old_rows_are_found_where_the_texts_say_nothing_of_them() {
        let (root, mut ledger) = ledger(ONE_OF_EACH, BLOCKS);
        let git = |arguments: &str| {
            let mut git = Command::new("git");
            git.args(["-c", "user.name=a", "-c", "user.email=a@example.org"]);
            let output = git.current_dir(root.path()).args(arguments.split(' ')).output();
            String::from_utf8(output.expect("there is git").stdout).expect("it is text")
        };
        let commit = || git("commit --quiet --allow-empty --message a");
        git("init --quiet");
        commit();
        let first = git("rev-parse HEAD").trim().to_owned();
        ledger.rows[0].commit = Some(first.clone());
        (0..OLD).for_each(|_| drop(commit()));
        ledger.claims.has_changed = false;
        assert!(ledger.outdated().is_empty(), "{:?}", ledger.outdated());
        commit();
        assert_eq!(ledger.outdated(), BTreeSet::from([first.as_str()]));
        ledger.claims.has_changed = true;
        assert!(ledger.outdated().is_empty());
    }

    #[test]
    fn the_texts_of_the_repository_state_what_was_measured() {
        let ledger = Ledger::read(Path::new(ROOT)).expect("the claims have results");
        for (file, text) in ledger.texts().expect("each claim has a row") {
            let found = fs::read_to_string(Path::new(ROOT).join(&file));
            assert!(found.is_ok_and(|found| found == text), "{file}: run `bench claims`");
        }
    }

    #[test]
    fn every_number_in_the_texts_of_the_repository_is_explained() {
        let ledger = Ledger::read(Path::new(ROOT)).expect("the claims have results");
        let unexplained = ledger.unexplained().expect("the texts are there");
        assert!(unexplained.is_empty(), "{}", unexplained.join("\n"));
    }
}
