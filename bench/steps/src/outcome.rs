//! The result of a run: the line of JSON that every peer prints, in any language.
//!
//! ```json
//! {"version":"1.54.1","workers":2,"metrics":{"send_ns":31.5,"delivered_ns":50.2},"failures":[]}
//! ```
//!
//! `workers` is the number of threads that the runtime actually used. `failures` describes each
//! failed check of the workload's result; an empty list means verified. A line can have `quantiles` too: for
//! each distribution its values at the [`PROBABILITIES`](crate::latency::PROBABILITIES).

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Map;

/// The line that a run prints.
#[derive(Serialize, Deserialize, Debug)]
#[serde(deny_unknown_fields)]
pub struct Line {
    /// Version of the runtime.
    pub version: String,
    /// Number of threads that the runtime used.
    pub workers: usize,
    /// The values of the metrics.
    pub metrics: Map<String, serde_json::Value>,
    /// Descriptions of the failed checks.
    pub failures: Vec<String>,
    /// The quantiles of each distribution.
    #[serde(default, skip_serializing_if = "Quantiles::is_empty")]
    pub quantiles: Quantiles,
}

/// Values of distributions at fixed probabilities, by the distribution's name.
pub type Quantiles = BTreeMap<String, Vec<f64>>;

/// Metrics and failed checks, collected while a workload runs.
#[derive(Default)]
pub struct Outcome {
    metrics: Map<String, serde_json::Value>,
    failures: Vec<String>,
    quantiles: Quantiles,
}

impl Outcome {
    /// Records a measured value, in the metric's unit.
    pub fn metric(&mut self, name: &str, value: f64) {
        self.metrics.insert(name.to_owned(), value.into());
    }

    /// Records the values of a distribution, in nanoseconds, at the probabilities that all have in common.
    pub fn quantiles(&mut self, name: &str, values: Vec<f64>) {
        self.quantiles.insert(name.to_owned(), values);
    }

    /// Records a failure unless the found number is the expected one.
    pub fn check(&mut self, name: &str, found: u64, expected: u64) {
        if found != expected {
            self.failures.push(format!("{name}: {found} instead of {expected}"));
        }
    }

    /// Takes over the result of another process of the run.
    pub fn of_line(line: Line) -> Outcome {
        let Line { metrics, failures, quantiles, .. } = line;
        Outcome { metrics, failures, quantiles }
    }

    /// Converts the outcome into the line of a runtime of this version that used `workers` threads.
    pub fn into_line(self, version: &str, workers: usize) -> Line {
        Line {
            version: version.to_owned(),
            workers,
            metrics: self.metrics,
            failures: self.failures,
            quantiles: self.quantiles,
        }
    }
}
