//! Formats the rows: a table, or a line of JSON per runtime.

use serde::Serialize;
use serde_json::{Map, Value, json};

use crate::harness::{CountedRun, Request, Row, Summary};
use crate::origin::Origin;
use crate::usage::Usage;

/// The runtime that the table's ratios refer to.
const SUBJECT: &str = "throng";

#[derive(Serialize)]
struct JsonRow<'a> {
    workload: &'a str,
    runtime: &'a str,
    class: &'a str,
    version: Option<&'a str>,
    commit: Option<&'a str>,
    machine: &'a str,
    params: Map<String, Value>,
    metrics: Map<String, Value>,
    /// Medians over the runs, as `metrics` has them of each metric.
    cpu_s: Option<f64>,
    cores_used: Option<f64>,
    steal: Option<f64>,
    max_rss_bytes: Option<f64>,
    instructions_per_op: Option<f64>,
    /// The counted runs, in order: each run's metrics and its use of the machine.
    runs: Vec<Map<String, Value>>,
    verified: bool,
}

/// Formats a row as a line of JSON.
pub(crate) fn json_line(request: &Request, origin: &Origin, row: &Row) -> String {
    let metrics = row.metrics.iter().map(|summary| {
        let Summary { name, unit, median, min, max } = summary;
        let summary = json!({"median": median, "min": min, "max": max, "unit": unit});
        ((*name).to_owned(), summary)
    });
    let row = JsonRow {
        workload: request.workload.name,
        runtime: row.peer.runtime,
        class: row.peer.class.name(),
        version: row.version.as_deref(),
        commit: origin.commit.as_deref(),
        machine: &origin.machine,
        params: params(request, row),
        metrics: metrics.collect(),
        cpu_s: row.median_usage(|usage| usage.cpu_s),
        cores_used: row.median_usage(|usage| usage.cores_used),
        steal: row.median_usage(|usage| usage.steal),
        max_rss_bytes: row.median_usage(|usage| usage.max_rss_bytes),
        instructions_per_op: row.instructions_per_op,
        runs: row.runs.iter().map(run).collect(),
        verified: row.failures.is_empty(),
    };
    json!(row).to_string()
}

/// Formats a run: its metrics and its use of the machine.
fn run(run: &CountedRun) -> Map<String, Value> {
    let mut fields = run.metrics.clone();
    let Usage { cpu_s, cores_used, steal, max_rss_bytes, instructions } = run.usage;
    for (name, value) in [
        ("cpu_s", cpu_s),
        ("cores_used", cores_used),
        ("steal", steal),
        ("max_rss_bytes", max_rss_bytes),
        ("instructions", instructions),
    ] {
        fields.insert(name.to_owned(), value.into());
    }
    fields
}

/// All parameters of a row: everything its figures depend on besides the runtime and the machine.
fn params(request: &Request, row: &Row) -> Map<String, Value> {
    let mut params = Map::new();
    params.insert("count".to_owned(), request.settings.count.into());
    params.insert("workers".to_owned(), row.workers.into());
    params.insert("runs".to_owned(), request.runs.into());
    let keys = row.peer.keys(&request.settings);
    params.extend(keys.map(|(key, value)| (key.to_owned(), value.into())));
    params
}

/// Formats all rows as a table: per metric, each runtime's median, minimum, maximum, and ratio to
/// throng; and the instructions per operation where they were counted.
pub(crate) fn table(request: &Request, rows: &[Row]) -> String {
    let mut lines = vec![vec![
        "metric".to_owned(),
        "runtime".to_owned(),
        "median".to_owned(),
        "min".to_owned(),
        "max".to_owned(),
        format!("÷ {SUBJECT}"),
    ]];
    let subject = rows.iter().find(|row| row.peer.runtime == SUBJECT);
    for metric in request.workload.metrics() {
        let subject = subject.and_then(|row| find(row, metric.name)).map(|found| found.median);
        let mut label = format!("{} ({})", metric.name, metric.unit());
        for row in rows {
            let Some(summary) = find(row, metric.name) else { continue };
            lines.push(vec![
                std::mem::take(&mut label),
                row.peer.runtime.to_owned(),
                number(summary.median),
                number(summary.min),
                number(summary.max),
                ratio(summary.median, subject),
            ]);
        }
    }
    let subject = subject.and_then(|row| row.instructions_per_op);
    let mut label = format!("instructions_per_op ({})", request.workload.counts);
    for row in rows {
        let Some(instructions) = row.instructions_per_op else { continue };
        let cells = [std::mem::take(&mut label), row.peer.runtime.to_owned(), number(instructions)];
        let dashes = ["–", "–"].map(str::to_owned);
        let ratio = ratio(instructions, subject);
        lines.push(cells.into_iter().chain(dashes).chain([ratio]).collect());
    }
    heading(request, rows) + &aligned(&lines)
}

fn heading(request: &Request, rows: &[Row]) -> String {
    let mut heading = format!("{}: {}\n", request.workload.name, request.workload.about);
    for row in rows {
        let version = row.version.as_deref().unwrap_or("(unknown version)");
        let params: Vec<String> =
            params(request, row).iter().map(|(key, value)| format!("{key}={value}")).collect();
        let verified = if row.failures.is_empty() { "verified" } else { "NOT VERIFIED" };
        heading += &format!(
            "  {} {version} {verified} {}\n",
            row.peer.runtime,
            params.join(" ").replace('"', "")
        );
    }
    heading + "\n"
}

/// Formats a value divided by the subject's.
fn ratio(value: f64, subject: Option<f64>) -> String {
    match subject {
        Some(subject) if subject > 0.0 => format!("{:.2}", value / subject),
        _ => "–".to_owned(),
    }
}

fn find<'a>(row: &'a Row, metric: &str) -> Option<&'a Summary> {
    row.metrics.iter().find(|summary| summary.name == metric)
}

/// Formats a number with a decimal below 100 and with grouped thousands above.
fn number(value: f64) -> String {
    if value < 100.0 {
        return format!("{value:.1}");
    }
    let digits = format!("{value:.0}");
    let mut grouped = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    grouped
}

/// Aligns columns two spaces apart: the first two flush left, the numbers flush right.
fn aligned(lines: &[Vec<String>]) -> String {
    let width = |column: usize| {
        lines.iter().map(|line| line[column].chars().count()).max().unwrap_or_default()
    };
    let widths: Vec<usize> = (0..lines[0].len()).map(width).collect();
    let mut table = String::new();
    for line in lines {
        for (column, (cell, width)) in line.iter().zip(&widths).enumerate() {
            table += &match column {
                0 | 1 => format!("{cell:<width$}  "),
                _ => format!("{cell:>width$}  "),
            };
        }
        table.truncate(table.trim_end().len());
        table.push('\n');
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_readable() {
        assert_eq!(number(0.0), "0.0");
        assert_eq!(number(31.46), "31.5");
        assert_eq!(number(505.4), "505");
        assert_eq!(number(1_545_000_000.0), "1,545,000,000");
    }

    #[test]
    fn counted_instructions_are_in_the_table_and_the_line() {
        let workload = crate::workloads::find("send").expect("the workload exists");
        let peers: Vec<_> = workload.peers.iter().copied().take(2).collect();
        let settings = crate::settings::Settings::new(10, 1, workload.keys);
        let rows = [250.0, 750.0].iter().zip(&peers).map(|(instructions, peer)| Row {
            peer: *peer,
            version: None,
            workers: 1,
            metrics: Vec::new(),
            instructions_per_op: Some(*instructions),
            runs: Vec::new(),
            failures: Vec::new(),
        });
        let rows: Vec<Row> = rows.collect();
        let request = Request { workload, peers: peers.clone(), settings, runs: 1 };
        let table = table(&request, &rows);
        let of = |name| table.lines().rfind(|line| line.contains(name)).map(str::trim_end);
        assert!(of(" throng ").is_some_and(|line| line.ends_with("1.00")), "{table}");
        assert!(of(" tokio ").is_some_and(|line| line.ends_with("3.00")), "{table}");
        let line = json_line(&request, &Origin::here(), &rows[0]);
        assert!(line.contains(r#""class":"actor""#), "{line}");
        assert!(line.contains(r#""instructions_per_op":250.0"#), "{line}");
    }

    #[test]
    fn columns_line_up() {
        let lines =
            [["a", "b", "1"], ["", "bbb", "100"]].map(|line| line.map(str::to_owned).to_vec());
        assert_eq!(aligned(&lines), "a  b      1\n   bbb  100\n");
    }
}
