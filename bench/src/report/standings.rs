//! The figures that throng has in common with other runtimes, and whether it is first in them.

use crate::row::{Row, SUBJECT, find};
use crate::runtimes;
use crate::suite::{grouped, measurements};
use crate::workloads::Metric;

/// A metric that throng and another runtime have.
pub(crate) struct Standing<'a> {
    pub(crate) measurement: &'static str,
    pub(crate) group: &'static str,
    pub(crate) metric: Metric,
    pub(crate) rival: &'a Row,
    pub(crate) throng: f64,
    pub(crate) best: f64,
    /// Number of times by which throng's figure is worse; at most 1 if throng is first.
    pub(crate) factor: f64,
    /// Whether the runs of both overlap, so that another run may have another winner.
    pub(crate) overlaps: bool,
}

impl Standing<'_> {
    pub(crate) fn is_lost(&self) -> bool {
        self.factor > 1.0
    }
}

/// Finds the metrics that verified rows of throng and of runtimes whose names begin with `rivals` have in
/// common, the largest factor first.
pub(crate) fn standings<'a>(rows: &'a [Row], rivals: &str) -> Vec<Standing<'a>> {
    let mut standings = Vec::new();
    for (group, measurement) in grouped() {
        let own: Vec<&Row> = rows
            .iter()
            .filter(|row| row.verified && row.measurement.as_deref() == Some(measurement.name))
            .collect();
        let Some(throng) = find(rows, measurement.name, SUBJECT) else { continue };
        let is_rival =
            |row: &Row| row.runtime.starts_with(rivals) && !row.runtime.starts_with(SUBJECT);
        for metric in measurement.workload().metrics() {
            let Some(ours) = throng.median(metric.name) else { continue };
            let factor = |theirs: f64| {
                if ours == theirs {
                    return 1.0;
                }
                if metric.is_rate() { theirs / ours } else { ours / theirs }
            };
            let rivals = own.iter().filter(|row| is_rival(row)).filter_map(|row| {
                let theirs = row.median(metric.name)?;
                Some((factor(theirs), theirs, *row))
            });
            let Some((factor, best, rival)) = rivals.max_by(|a, b| a.0.total_cmp(&b.0)) else {
                continue;
            };
            standings.push(Standing {
                measurement: measurement.name,
                group: group.name,
                metric,
                rival,
                throng: ours,
                best,
                factor,
                overlaps: throng.overlaps(rival, metric.name),
            });
        }
    }
    standings.sort_by(|a, b| b.factor.total_cmp(&a.factor));
    standings
}

/// The best verified row of a family of runtimes, in a measurement or one that varies it.
pub(crate) fn best<'a>(
    rows: &'a [Row],
    measurement: &str,
    metric: &str,
    family: &str,
) -> Option<&'a Row> {
    let mut varied = measurements().filter(|of| of.varies(measurement)).peekable();
    let metric = varied.peek()?.workload().metrics().find(|of| of.name == metric)?;
    let names: Vec<&str> = varied.map(|of| of.name).collect();
    let own = rows.iter().filter(|row| row.verified && runtimes::family(&row.runtime) == family);
    let own =
        own.filter(|row| row.measurement.as_deref().is_some_and(|name| names.contains(&name)));
    let medians = own.filter_map(|row| Some((row.median(metric.name)?, row)));
    medians.min_by(|(a, _), (b, _)| metric.order(*a, *b)).map(|(_, row)| row)
}
