//! What one run found: the line of JSON that every peer prints, in whatever language it is written.
//!
//! ```json
//! {"version":"1.54.1","workers":2,"metrics":{"send_ns":31.5,"delivered_ns":50.2},"failures":[]}
//! ```
//!
//! `workers` is what the runtime really used; `failures` says in words what the workload's check
//! of its own answer found wrong, so an empty list means verified.

use serde::{Deserialize, Serialize};
use serde_json::Map;

/// A run's line of output.
#[derive(Serialize, Deserialize, Debug)]
#[serde(deny_unknown_fields)]
pub(crate) struct Line {
    pub(crate) version: String,
    pub(crate) workers: usize,
    pub(crate) metrics: Map<String, serde_json::Value>,
    pub(crate) failures: Vec<String>,
}

/// What a workload measured and what it found wrong, while it runs.
#[derive(Default)]
pub(crate) struct Outcome {
    metrics: Map<String, serde_json::Value>,
    failures: Vec<String>,
}

impl Outcome {
    /// Notes a measured value, in the unit the workload declared for it.
    pub(crate) fn metric(&mut self, name: &str, value: f64) {
        self.metrics.insert(name.to_owned(), value.into());
    }

    /// Notes a failure unless what was found is what was due.
    pub(crate) fn check(&mut self, what: &str, found: u64, due: u64) {
        if found != due {
            self.failures.push(format!("{what}: {found} instead of {due}"));
        }
    }

    /// The line to print for a runtime of this version that used this many workers.
    pub(crate) fn into_line(self, version: &str, workers: usize) -> Line {
        Line {
            version: version.to_owned(),
            workers,
            metrics: self.metrics,
            failures: self.failures,
        }
    }
}
