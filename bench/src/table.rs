//! Formats the rows of a request as a table.

use crate::harness::{Request, Row};
use crate::row::{SUBJECT, params};

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
    for metric in request.settings.workload.metrics() {
        let subject = subject.and_then(|row| row.median(metric.name));
        let mut label = format!("{} ({})", metric.name, metric.unit());
        for row in rows {
            let Some(summary) = row.summary(metric.name) else { continue };
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
    let mut label = format!("instructions_per_op ({})", request.settings.workload.counts);
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
    let mut heading =
        format!("{}: {}\n", request.settings.workload.name, request.settings.workload.about);
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

pub(crate) fn ratio(value: f64, subject: Option<f64>) -> String {
    match subject {
        Some(subject) if subject > 0.0 => format!("{:.2}", value / subject),
        _ => "–".to_owned(),
    }
}

/// Times, sizes and rates, each with the unit in which it is easy to read.
const TIMES: &[(f64, &str)] = &[(1.0, "ns"), (1e3, "µs"), (1e6, "ms"), (1e9, "s")];
const SIZES: &[(f64, &str)] = &[(1.0, "bytes"), (1e3, "kB"), (1e6, "MB"), (1e9, "GB")];
const RATES: &[(f64, &str)] = &[(1.0, "/s"), (1e3, "k/s"), (1e6, "M/s")];

/// Formats a value of a metric with three digits, in the unit that suits it: 1,234 ns are `1.23 µs`.
pub(crate) fn human(value: f64, unit: &str) -> String {
    let (scale, value) = match unit {
        "ns" => (TIMES, value),
        "µs" => (TIMES, value * 1e3),
        "s" => (TIMES, value * 1e9),
        "bytes" => (SIZES, value),
        "1/s" => (RATES, value),
        _ => return number(value),
    };
    // A value that would be rounded to 1,000 of a unit is one of the next.
    let fits = |(size, _): &&(f64, &str)| *size == 1.0 || value.abs() >= size * 0.9995;
    let (size, name) = scale.iter().rfind(fits).copied().unwrap_or((1.0, unit));
    let value = value / size;
    let decimals = match value.abs() {
        below if below > 0.0 && below < 0.9995 => return format!("{} {name}", number(value)),
        below if below < 9.995 => 2,
        below if below < 99.95 => 1,
        _ => return format!("{} {name}", number(value.round())),
    };
    format!("{value:.decimals$} {name}")
}

/// Formats a number with three digits below 1, a decimal below 100, and grouped thousands above.
pub(crate) fn number(value: f64) -> String {
    if value > 0.0 && value < 1.0 {
        let decimals = (2.0 - value.log10().floor()).min(9.0);
        return format!("{value:.*}", decimals as usize);
    }
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
        assert_eq!(number(0.20815), "0.208");
        assert_eq!(number(0.001_234_5), "0.00123");
        assert_eq!(number(31.46), "31.5");
        assert_eq!(number(505.4), "505");
        assert_eq!(number(1_545_000_000.0), "1,545,000,000");
    }

    #[test]
    fn a_value_has_a_unit_that_suits_it_and_three_digits() {
        for (value, unit, shown) in [
            (15.678, "ns", "15.7 ns"),
            (999.7, "ns", "1.00 µs"),
            (555_519.0, "ns", "556 µs"),
            (1.3, "µs", "1.30 µs"),
            (0.000_344, "s", "344 µs"),
            (65.6, "bytes", "65.6 bytes"),
            (-1_130.0, "bytes", "-1.13 kB"),
            (0.0, "bytes", "0.00 bytes"),
            (2_500_000.0, "1/s", "2.50 M/s"),
            (0.25, "1/s", "0.250 /s"),
            (7_200e9, "ns", "7,200 s"),
            (3.0, "1", "3.0"),
        ] {
            assert_eq!(human(value, unit), shown);
        }
    }

    #[test]
    fn counted_instructions_are_in_the_table() {
        let workload = crate::workloads::find("spawn").expect("the workload exists");
        let peers: Vec<_> = crate::runtimes::peers("spawn").take(2).collect();
        let settings = crate::settings::Settings::new(workload, 10, 1);
        let rows = [250.0, 750.0].iter().zip(&peers).map(|(instructions, peer)| Row {
            instructions_per_op: Some(*instructions),
            ..Row::without_runs(*peer)
        });
        let rows: Vec<Row> = rows.collect();
        let request = Request::once(peers, settings);
        let table = table(&request, &rows);
        let of = |name| table.lines().rfind(|line| line.contains(name)).map(str::trim_end);
        assert!(of(" throng ").is_some_and(|line| line.ends_with("1.00")), "{table}");
        assert!(of(" tokio ").is_some_and(|line| line.ends_with("3.00")), "{table}");
    }

    #[test]
    fn columns_line_up() {
        let lines =
            [["a", "b", "1"], ["", "bbb", "100"]].map(|line| line.map(str::to_owned).to_vec());
        assert_eq!(aligned(&lines), "a  b      1\n   bbb  100\n");
    }
}
