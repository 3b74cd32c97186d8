//! Compares two runs of the suite: the regression check, and the check that results repeat.
//!
//! Times of two hours, or of two machines, say little about each other; ratios to throng, taken within
//! one measurement, say more. So both are compared. A difference counts if the intervals of the medians
//! do not overlap and the medians differ by more than [`TOLERANCE`].

use std::fmt::Write;

use serde_json::Value;

use crate::row::{RUNS, Row, SUBJECT};

/// Part by which two medians may differ.
const TOLERANCE: f64 = 0.15;

pub(crate) struct Comparison {
    pub(crate) text: String,
    /// Number of throng's metrics that are worse in the second run.
    pub(crate) regressions: usize,
}

pub(crate) fn compare(before: &[Row], after: &[Row]) -> Comparison {
    let mut compared = 0;
    let (mut changes, mut ratios) = (Vec::new(), Vec::new());
    let mut regressions = 0;
    for old in before {
        let Some(new) = same(after, old) else { continue };
        for (metric, _) in &old.metrics {
            let Some(factor) = factor(old.median(metric), new.median(metric)) else { continue };
            compared += 1;
            let name = format!("{} {metric}", old.measurement.as_deref().unwrap_or(&old.workload));
            if !is_close(factor) && !old.overlaps(new, metric) {
                let is_worse = (factor > 1.0) != metric.ends_with("_per_s");
                let runtime = &old.runtime;
                regressions += usize::from(is_worse && runtime == SUBJECT);
                let word = if is_worse { "worse" } else { "better" };
                changes.push(format!("  {name}: {runtime} {factor:.2} times ({word})"));
            }
            if let Some(Repeated { was, is, differs: true }) = repeated(before, old, after, metric)
            {
                ratios
                    .push(format!("  {name}: {} ÷ {SUBJECT} {was:.2}, then {is:.2}", old.runtime));
            }
        }
    }
    let mut text = format!("{compared} medians in both\n");
    let percent = TOLERANCE * 100.0;
    list(&mut text, &format!("medians that differ by more than {percent:.0} %"), &changes);
    list(&mut text, &format!("ratios that differ by more than {percent:.0} %"), &ratios);
    Comparison { text, regressions }
}

/// A ratio to throng in two runs of the suite.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Repeated {
    pub(crate) was: f64,
    pub(crate) is: f64,
    /// Whether they differ by more than [`TOLERANCE`].
    pub(crate) differs: bool,
}

/// Finds the ratio of a row's metric to throng's in both runs; `None` if one of them lacks it.
pub(crate) fn repeated(before: &[Row], row: &Row, after: &[Row], metric: &str) -> Option<Repeated> {
    let ratio = |rows: &[Row], row: &Row| {
        let subject = rows.iter().find(|other| is_beside(other, row))?;
        factor_of(subject.median(metric)?, row.median(metric)?)
    };
    let (was, is) = (ratio(before, row)?, ratio(after, same(after, row)?)?);
    Some(Repeated { was, is, differs: !is_close(is / was) })
}

fn list(text: &mut String, title: &str, lines: &[String]) {
    // Writing into a string does not fail.
    let _ = writeln!(text, "{title}: {}", lines.len());
    for line in lines {
        let _ = writeln!(text, "{line}");
    }
}

/// Finds the row of the same runtime, measurement and parameters.
fn same<'a>(rows: &'a [Row], row: &Row) -> Option<&'a Row> {
    rows.iter().find(|other| {
        other.verified
            && row.verified
            && (&other.measurement, &other.workload) == (&row.measurement, &row.workload)
            && other.runtime == row.runtime
            && own_params(other).eq(own_params(row))
    })
}

/// The parameters, without the number of runs.
fn own_params(row: &Row) -> impl Iterator<Item = (&String, &Value)> {
    row.params.iter().filter(|(name, _)| *name != RUNS)
}

fn is_beside(subject: &Row, row: &Row) -> bool {
    (&subject.measurement, &subject.workload) == (&row.measurement, &row.workload)
        && subject.runtime == SUBJECT
        && row.runtime != SUBJECT
        && subject.verified
}

fn factor(before: Option<f64>, after: Option<f64>) -> Option<f64> {
    factor_of(before?, after?)
}

fn factor_of(before: f64, after: f64) -> Option<f64> {
    (before > 0.0 && after > 0.0).then(|| after / before)
}

fn is_close(factor: f64) -> bool {
    (1.0 / (1.0 + TOLERANCE)..=1.0 + TOLERANCE).contains(&factor)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn row(runtime: &str, values: &[f64]) -> Row {
        let runs: Vec<_> = values.iter().map(|value| json!({"send_ns": value})).collect();
        let median = values[values.len() / 2];
        Row::with(json!({
            "runtime": runtime, "params": {"count": 1}, "runs": runs,
            "metrics": {"send_ns": {"median": median}}
        }))
    }

    #[test]
    fn a_median_outside_of_the_other_interval_is_a_change() {
        let before = [row("throng", &[10.0, 11.0, 12.0]), row("tokio", &[20.0, 21.0, 22.0])];
        let noisy = [row("throng", &[11.5, 13.0, 16.0]), row("tokio", &[20.0, 21.0, 22.0])];
        assert_eq!(compare(&before, &noisy).regressions, 0);
        let slower = [row("throng", &[13.0, 14.0, 15.0]), row("tokio", &[20.0, 21.0, 22.0])];
        let found = compare(&before, &slower);
        assert_eq!(found.regressions, 1, "{}", found.text);
        assert!(found.text.contains("tokio ÷ throng 1.91, then 1.50"), "{}", found.text);
        assert_eq!(compare(&slower, &before).regressions, 0);
    }

    #[test]
    fn a_row_that_is_not_verified_or_has_other_parameters_is_not_compared() {
        let before = [row("throng", &[10.0])];
        let mut after = [row("throng", &[30.0])];
        after[0].params["count"] = json!(2);
        assert!(compare(&before, &after).text.starts_with("0 medians"));
        let mut after = [row("throng", &[30.0])];
        after[0].verified = false;
        assert!(compare(&before, &after).text.starts_with("0 medians"));
    }
}
