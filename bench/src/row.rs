//! A row as a line of JSON: a runtime's results in a workload, with everything that they depend on.
//!
//! `bench run --json` prints rows, `bench run all` stores them, and `bench compare` reads them.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use crate::harness::{self, CountedRun, Request, Summary};
use crate::origin::Origin;
use crate::outcome::Quantiles;
use crate::usage::Usage;
use crate::workloads::latency;

/// The runtime that ratios refer to.
pub(crate) const SUBJECT: &str = "throng";

#[derive(Serialize, Deserialize, Clone, Debug)]
#[serde(deny_unknown_fields)]
pub(crate) struct Row {
    /// Name of the measurement in the suite; `None` if the row is not part of the suite.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) measurement: Option<String>,
    pub(crate) workload: String,
    pub(crate) runtime: String,
    pub(crate) class: String,
    pub(crate) version: Option<String>,
    pub(crate) commit: Option<String>,
    pub(crate) machine: String,
    pub(crate) params: Map<String, Value>,
    /// Median, minimum, maximum and unit of each metric.
    pub(crate) metrics: Map<String, Value>,
    /// Medians over the runs, as `metrics` has them of each metric.
    pub(crate) cpu_s: Option<f64>,
    pub(crate) cores_used: Option<f64>,
    pub(crate) steal: Option<f64>,
    pub(crate) max_rss_bytes: Option<f64>,
    pub(crate) instructions_per_op: Option<f64>,
    /// Medians over the runs of the quantiles of each distribution.
    #[serde(default, skip_serializing_if = "Quantiles::is_empty")]
    pub(crate) quantiles: Quantiles,
    pub(crate) runs: Vec<Map<String, Value>>,
    pub(crate) verified: bool,
    /// Descriptions of the failed checks; empty in a verified row.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) failures: Vec<String>,
}

/// An interval that contains the median of all possible runs with a probability.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct Interval {
    pub(crate) low: f64,
    pub(crate) high: f64,
    /// The probability, at least [`CONFIDENCE`] if there are enough runs.
    pub(crate) confidence: f64,
}

/// The parameter with the number of counted runs, on which the figures do not depend otherwise.
pub(crate) const RUNS: &str = "runs";

/// The field of a run with the time in which a value went from one core to another, before the run.
const CORE_TO_CORE: &str = "core_to_core_ns";

/// The field of a run with the quantiles of its distributions.
const QUANTILES: &str = "quantiles";

/// Number of times by which the cores must have been farther apart in one run of a row than in another for its
/// figures to be those of two machines: a value takes 20 to 60 ns where cores share a cache, and some 100 to 200
/// where they do not.
const MOVED: f64 = 2.0;

const CONFIDENCE: f64 = 0.95;

/// The verified row of a runtime in a measurement.
pub(crate) fn find<'a>(rows: &'a [Row], measurement: &str, runtime: &str) -> Option<&'a Row> {
    let is_own = |row: &&Row| {
        row.verified && row.runtime == runtime && row.measurement.as_deref() == Some(measurement)
    };
    rows.iter().find(is_own)
}

impl Row {
    /// A verified row of `send`, but for some fields.
    #[cfg(test)]
    pub(crate) fn with(fields: Value) -> Row {
        let mut row = json!({
            "measurement": "send", "workload": "send", "runtime": "throng", "class": "actor",
            "version": "1.2.3", "commit": null, "machine": "m", "params": {},
            "metrics": {"send_ns": {"median": 1.5}}, "cpu_s": null, "cores_used": null,
            "steal": null, "max_rss_bytes": null, "instructions_per_op": null, "runs": [],
            "verified": true
        });
        for (name, value) in fields.as_object().into_iter().flatten() {
            row[name] = value.clone();
        }
        serde_json::from_value(row).expect("it is a row")
    }

    pub(crate) fn of(request: &Request, origin: &Origin, row: &harness::Row) -> Row {
        let metrics = row.metrics.iter().map(|summary| {
            let Summary { name, unit, median, min, max } = summary;
            let summary = json!({"median": median, "min": min, "max": max, "unit": unit});
            ((*name).to_owned(), summary)
        });
        Row {
            measurement: request.measurement.map(str::to_owned),
            workload: request.settings.workload.name.to_owned(),
            runtime: row.peer.runtime.to_owned(),
            class: row.peer.class.to_owned(),
            version: row.version.clone(),
            commit: origin.commit.clone(),
            machine: origin.machine.clone(),
            params: params(request, row),
            metrics: metrics.collect(),
            cpu_s: row.median_usage(|usage| usage.cpu_s),
            cores_used: row.median_usage(|usage| usage.cores_used),
            steal: row.median_usage(|usage| usage.steal),
            max_rss_bytes: row.median_usage(|usage| usage.max_rss_bytes),
            instructions_per_op: row.instructions_per_op,
            quantiles: row.quantiles.clone(),
            runs: row.runs.iter().map(run).collect(),
            verified: row.failures.is_empty(),
            failures: row.failures.clone(),
        }
    }

    pub(crate) fn line(&self) -> String {
        json!(self).to_string()
    }

    pub(crate) fn median(&self, metric: &str) -> Option<f64> {
        let median = self.metrics.get(metric).and_then(|summary| summary.get("median")?.as_f64());
        median.or_else(|| latency::percentile(metric, &self.quantiles))
    }

    /// The interval that contains a metric's median over all possible runs; `None` if no run has it.
    pub(crate) fn interval(&self, metric: &str) -> Option<Interval> {
        interval(self.values(metric).collect())
    }

    /// A metric of each run.
    pub(crate) fn values(&self, metric: &str) -> impl Iterator<Item = f64> {
        self.runs.iter().filter_map(move |run| {
            let quantiles = || Quantiles::deserialize(run.get(QUANTILES)?).ok();
            let value = run.get(metric).and_then(Value::as_f64);
            value.or_else(|| latency::percentile(metric, &quantiles()?))
        })
    }

    /// The least and the greatest distance of the cores among the runs; `None` if no run has it.
    pub(crate) fn core_distances(&self) -> Option<(f64, f64)> {
        self.values(CORE_TO_CORE).fold(None, |range, ns| {
            let (least, greatest) = range.unwrap_or((ns, ns));
            Some((least.min(ns), greatest.max(ns)))
        })
    }

    /// Whether the cores were near each other in some runs and far in others.
    pub(crate) fn cores_moved(&self) -> bool {
        self.core_distances().is_some_and(|(least, greatest)| greatest > MOVED * least)
    }

    /// Whether the intervals of a metric's medians overlap in two rows.
    pub(crate) fn overlaps(&self, other: &Row, metric: &str) -> bool {
        match (self.interval(metric), other.interval(metric)) {
            (Some(own), Some(other)) => own.low <= other.high && other.low <= own.high,
            _ => true,
        }
    }
}

/// Formats a run: its metrics and its use of the machine.
fn run(run: &CountedRun) -> Map<String, Value> {
    let mut fields = run.metrics.clone();
    let Usage { elapsed_s, cpu_s, cores_used, steal, max_rss_bytes, instructions, core_to_core_ns } =
        run.usage;
    for (name, value) in [
        ("elapsed_s", Some(elapsed_s)),
        ("cpu_s", cpu_s),
        ("cores_used", cores_used),
        ("steal", steal),
        ("max_rss_bytes", max_rss_bytes),
        ("instructions", instructions),
        (CORE_TO_CORE, core_to_core_ns),
    ] {
        fields.insert(name.to_owned(), value.into());
    }
    if !run.quantiles.is_empty() {
        fields.insert(QUANTILES.to_owned(), json!(run.quantiles));
    }
    fields
}

/// All parameters of a row: everything its figures depend on besides the runtime and the machine.
pub(crate) fn params(request: &Request, row: &harness::Row) -> Map<String, Value> {
    let mut params = Map::new();
    params.insert("count".to_owned(), request.settings.count.into());
    params.insert("workers".to_owned(), row.workers.into());
    params.insert(RUNS.to_owned(), row.runs.len().into());
    let keys = row.peer.keys(&request.settings);
    params.extend(keys.map(|(key, value)| (key.to_owned(), value.into())));
    params
}

/// The shortest interval between two of the values, equally far from both ends, that contains the median
/// with the wanted probability; all of them if there are too few values for that.
///
/// Each run is below the median with probability 1/2, so the number of runs below it has a binomial
/// distribution, whatever the distribution of the runs.
fn interval(mut values: Vec<f64>) -> Option<Interval> {
    values.sort_by(f64::total_cmp);
    let (runs, mut below, mut binomial) = (values.len(), 0.0, 1.0);
    let mut found = None;
    for cut in 0..runs.div_ceil(2) {
        // The chance that at most `cut` runs are below the median.
        below += binomial / 2_f64.powi(runs as i32);
        binomial *= (runs - cut) as f64 / (cut + 1) as f64;
        let confidence = (1.0 - 2.0 * below).max(0.0);
        if cut > 0 && confidence < CONFIDENCE {
            break;
        }
        found = Some(Interval { low: values[cut], high: values[runs - 1 - cut], confidence });
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bounds(values: impl IntoIterator<Item = u32>) -> Option<(f64, f64, f64)> {
        let found = interval(values.into_iter().map(f64::from).collect())?;
        Some((found.low, found.high, (found.confidence * 1e4).round() / 1e4))
    }

    #[test]
    fn percentiles_of_runs_have_an_interval() {
        let run = |ns: f64| json!({"quantiles": {"latency": vec![ns; 10]}});
        let row = Row::with(json!({"runs": [run(7.0), run(5.0)]}));
        let found = row.interval("p99_ns").expect("the runs have it");
        assert_eq!((found.low, found.high, row.interval("p98_ns")), (5.0, 7.0, None));
    }

    #[test]
    fn an_interval_has_the_confidence_of_the_binomial_distribution() {
        assert_eq!(bounds([]), None);
        assert_eq!(bounds([7]), Some((7.0, 7.0, 0.0)));
        assert_eq!(bounds(1..=5), Some((1.0, 5.0, 0.9375)));
        assert_eq!(bounds(1..=6), Some((1.0, 6.0, 0.9688)));
        assert_eq!(bounds((1..=9).rev()), Some((2.0, 8.0, 0.9609)));
        assert_eq!(bounds(1..=20), Some((6.0, 15.0, 0.9586)));
    }
}
