//! Runs the peers in turn and sums up what they said.
//!
//! - Each run is a fresh process, one at a time, so nothing is inherited from the run before.
//! - Runs are interleaved: every peer has its n-th run before any has its (n+1)-th, so that a noisy
//!   minute of the machine falls on all of them. The first round warms up and is not counted.
//! - Nothing that went wrong is dropped: a failed check, a crash or garbled output in any run, the
//!   warm-up included, makes the row unverified.

use indicatif::{ProgressBar, ProgressStyle};

use crate::outcome::Line;
use crate::peer::{Peer, RunError};
use crate::settings::Settings;
use crate::workloads::Workload;

/// What is to be measured.
pub(crate) struct Request {
    pub(crate) workload: &'static Workload,
    pub(crate) peers: Vec<&'static Peer>,
    pub(crate) settings: Settings,
    /// Counted runs per peer, at least 1.
    pub(crate) runs: u64,
}

/// What the runs of one runtime came to.
pub(crate) struct Row {
    pub(crate) peer: &'static Peer,
    /// As the runtime says itself; `None` if no run came to its end.
    pub(crate) version: Option<String>,
    pub(crate) workers: usize,
    /// One per metric of the workload, in its order; empty if no counted run came to its end.
    pub(crate) metrics: Vec<Summary>,
    /// In words; empty means verified.
    pub(crate) failures: Vec<String>,
}

/// One metric over the counted runs.
pub(crate) struct Summary {
    pub(crate) name: &'static str,
    pub(crate) unit: &'static str,
    pub(crate) median: f64,
    pub(crate) min: f64,
    pub(crate) max: f64,
}

/// Measures everything that was requested; the runtimes that are not on this machine, or do not
/// know what a setting asks for, have no row, and are named on standard error.
pub(crate) fn measure(request: &Request) -> Vec<Row> {
    let progress = progress_bar((request.runs + 1) * request.peers.len() as u64);
    let mut runs: Vec<PeerRuns> = request.peers.iter().map(|peer| PeerRuns::new(peer)).collect();
    for round in 0..=request.runs {
        for peer_runs in &mut runs {
            let runtime = peer_runs.peer.runtime;
            progress.set_message(format!("{} {runtime}", request.workload.name));
            if !peer_runs.left_out {
                match peer_runs.peer.run(request.workload, &request.settings) {
                    Ok(line) => peer_runs.note(line, round > 0),
                    Err(error @ (RunError::Absent { .. } | RunError::Unsupported { .. })) => {
                        progress.suspend(|| eprintln!("{runtime}: {error}"));
                        peer_runs.left_out = true;
                    }
                    Err(error) => peer_runs.failures.push(in_full(&error)),
                }
            }
            progress.inc(1);
        }
    }
    progress.finish_and_clear();
    runs.into_iter().filter(|peer_runs| !peer_runs.left_out).map(|r| r.into_row(request)).collect()
}

/// The runs of one peer so far.
struct PeerRuns {
    peer: &'static Peer,
    /// Nothing of this peer can run here.
    left_out: bool,
    /// The line of the latest run, for its version and workers.
    latest: Option<Line>,
    /// The counted lines.
    counted: Vec<serde_json::Map<String, serde_json::Value>>,
    failures: Vec<String>,
}

impl PeerRuns {
    fn new(peer: &'static Peer) -> Self {
        Self { peer, left_out: false, latest: None, counted: Vec::new(), failures: Vec::new() }
    }

    fn note(&mut self, mut line: Line, counts: bool) {
        self.failures.append(&mut line.failures);
        if counts {
            self.counted.push(line.metrics.clone());
        }
        self.latest = Some(line);
    }

    fn into_row(self, request: &Request) -> Row {
        let values = |name| {
            let mut values: Vec<f64> =
                self.counted.iter().filter_map(|metrics| metrics.get(name)?.as_f64()).collect();
            values.sort_by(f64::total_cmp);
            values
        };
        let metrics = request
            .workload
            .metrics()
            .filter_map(|metric| Summary::of(metric.name, metric.unit(), &values(metric.name)))
            .collect();
        let (version, workers) = match self.latest {
            Some(line) => (Some(line.version), line.workers),
            None => (None, request.settings.workers),
        };
        Row { peer: self.peer, version, workers, metrics, failures: self.failures }
    }
}

impl Summary {
    /// `None` if there are no values; they must be sorted.
    fn of(name: &'static str, unit: &'static str, sorted: &[f64]) -> Option<Self> {
        let (min, max) = (*sorted.first()?, *sorted.last()?);
        let middle = sorted.len() / 2;
        let median = if sorted.len() % 2 == 1 {
            sorted[middle]
        } else {
            f64::midpoint(sorted[middle - 1], sorted[middle])
        };
        Some(Self { name, unit, median, min, max })
    }
}

/// Shown only when standard error is a terminal.
fn progress_bar(runs: u64) -> ProgressBar {
    let progress = ProgressBar::new(runs);
    // A template that does not parse would cost the looks, not the run.
    if let Ok(style) = ProgressStyle::with_template("{bar:30} {pos}/{len} {msg} ({elapsed})") {
        progress.set_style(style);
    }
    progress
}

/// An error with the errors that caused it.
fn in_full(error: &dyn std::error::Error) -> String {
    match error.source() {
        Some(source) => format!("{error}: {}", in_full(source)),
        None => error.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_of_an_even_number_is_between_the_middle_two() {
        let median = |values: &[f64]| Summary::of("m", "ns", values).map(|summary| summary.median);
        assert_eq!(median(&[]), None);
        assert_eq!(median(&[7.0]), Some(7.0));
        assert_eq!(median(&[1.0, 3.0]), Some(2.0));
        assert_eq!(median(&[1.0, 2.0, 100.0]), Some(2.0));
    }
}
