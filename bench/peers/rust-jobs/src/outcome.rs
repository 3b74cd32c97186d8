//! The result of a run: the line of JSON that bench/src/outcome.rs describes.

use std::collections::BTreeMap;

use hdrhistogram::Histogram;
use serde_json::{Value, json};

use crate::Error;

/// The probabilities of the quantiles that a run reports of each distribution.
const PROBABILITIES: [f64; 10] = [0.0, 0.25, 0.5, 0.75, 0.9, 0.95, 0.99, 0.999, 0.9999, 1.0];

/// Upper end of the range of latencies, in nanoseconds.
const LATENCY_MAX: u64 = 3_600_000_000_000;

/// Metrics and failed checks.
#[derive(Default)]
pub(crate) struct Outcome {
    metrics: BTreeMap<&'static str, f64>,
    failures: Vec<String>,
    quantiles: BTreeMap<&'static str, Vec<f64>>,
}

impl Outcome {
    pub(crate) fn metric(&mut self, name: &'static str, value: f64) {
        self.metrics.insert(name, value);
    }

    /// Adds the rate of so many things in a time.
    pub(crate) fn rate(&mut self, name: &'static str, count: u64, time: std::time::Duration) {
        self.metric(name, count as f64 / time.as_secs_f64().max(1e-9));
    }

    /// Records a failure unless the found number is the expected one.
    pub(crate) fn check(&mut self, name: &str, found: u64, expected: u64) {
        if found != expected {
            self.failures.push(format!("{name}: {found} instead of {expected}"));
        }
    }

    /// Adds the quantiles of all probabilities.
    pub(crate) fn latencies(&mut self, latencies: &Histogram<u64>) {
        let at = |probability| latencies.value_at_quantile(probability) as f64;
        self.quantiles.insert("latency", PROBABILITIES.map(at).to_vec());
    }

    pub(crate) fn line(&self, version: &str, workers: usize) -> String {
        let Outcome { metrics, failures, quantiles } = self;
        let line: Value = json!({
            "version": version,
            "workers": workers,
            "metrics": metrics,
            "failures": failures,
            "quantiles": quantiles,
        });
        line.to_string()
    }
}

pub(crate) fn histogram() -> Result<Histogram<u64>, Error> {
    Ok(Histogram::new_with_max(LATENCY_MAX, 3)?)
}

/// Returns the version of a package, from the lock file.
pub(crate) fn version(package: &str) -> Result<String, Error> {
    let lock = include_str!("../Cargo.lock");
    let entry = lock.split_once(&format!("name = \"{package}\"\nversion = \""));
    let version = entry.and_then(|(_, rest)| rest.split_once('"'));
    let (version, _) = version.ok_or_else(|| format!("{package} is not in the lock file"))?;
    Ok(version.to_owned())
}
