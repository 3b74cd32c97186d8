//! The figures in which throng is not first.

use crate::row::{Row, SUBJECT};
use crate::suite::SUITE;

/// A metric in which another runtime is better than throng.
pub(crate) struct Loss<'a> {
    pub(crate) measurement: &'static str,
    pub(crate) metric: &'static str,
    /// The best of the other runtimes.
    pub(crate) winner: &'a Row,
    pub(crate) throng: f64,
    pub(crate) best: f64,
    /// Number of times by which throng's figure is worse, more than 1.
    pub(crate) factor: f64,
    /// Whether the runs of both overlap, so that another run may have another winner.
    pub(crate) overlaps: bool,
}

/// Finds the metrics in which throng is not first among verified rows, the largest factor first.
pub(crate) fn losses(rows: &[Row]) -> Vec<Loss<'_>> {
    let mut losses = Vec::new();
    for measurement in SUITE {
        let own: Vec<&Row> = rows
            .iter()
            .filter(|row| row.verified && row.measurement.as_deref() == Some(measurement.name))
            .collect();
        let Some(throng) = own.iter().find(|row| row.runtime == SUBJECT) else { continue };
        for metric in measurement.workload.metrics() {
            let better = |row: &&&Row| {
                let (ours, theirs) = (throng.median(metric.name)?, row.median(metric.name)?);
                let factor = if metric.is_rate() { theirs / ours } else { ours / theirs };
                (factor.is_finite() && factor > 1.0).then_some(factor)
            };
            let others = own.iter().filter(|row| !row.runtime.starts_with(SUBJECT));
            let best = others
                .filter_map(|row| Some((better(&row)?, *row)))
                .max_by(|a, b| a.0.total_cmp(&b.0));
            if let Some((factor, winner)) = best
                && let (Some(ours), Some(theirs)) =
                    (throng.median(metric.name), winner.median(metric.name))
            {
                losses.push(Loss {
                    measurement: measurement.name,
                    metric: metric.name,
                    winner,
                    throng: ours,
                    best: theirs,
                    factor,
                    overlaps: throng.overlaps(winner, metric.name),
                });
            }
        }
    }
    losses.sort_by(|a, b| b.factor.total_cmp(&a.factor));
    losses
}
