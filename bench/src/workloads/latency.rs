//! Histograms of latencies, and the quantiles reported from them.

use std::io;
use std::time::Duration;

use hdrhistogram::Histogram;

use crate::outcome::Outcome;

/// The probabilities of the quantiles that a run reports of each distribution, for the figures.
pub(crate) const PROBABILITIES: [f64; 10] =
    [0.0, 0.25, 0.5, 0.75, 0.9, 0.95, 0.99, 0.999, 0.9999, 1.0];

/// Name of a distribution whose metrics have no prefix.
const UNNAMED: &str = "latency";

/// Upper end of the range: longer than the time limit of any call in the workloads.
const LATENCY_MAX: Duration = Duration::from_secs(3600);

/// Creates an empty histogram of nanoseconds with three significant digits. Its range is fixed from
/// the start, since a saturating record does not extend the range.
pub(crate) fn histogram() -> io::Result<Histogram<u64>> {
    Histogram::new_with_max(LATENCY_MAX.as_nanos() as u64, 3).map_err(io::Error::other)
}

/// Adds the distribution to an outcome: the named percentiles, separated by white space, as metrics like
/// `put_p99_ns`, and the quantiles at all [`PROBABILITIES`] as `put`, or `latency` if there is no prefix.
pub(crate) fn report(
    outcome: &mut Outcome,
    prefix: &str,
    percentiles: &str,
    latencies: &Histogram<u64>,
) {
    let at = |probability| latencies.value_at_quantile(probability) as f64;
    for name in percentiles.split_whitespace() {
        let probability = match name {
            "p50" => 0.5,
            "p99" => 0.99,
            "p999" => 0.999,
            "max" => 1.0,
            _ => panic!("`{name}` is no percentile"),
        };
        outcome.metric(&format!("{prefix}{name}_ns"), at(probability));
    }
    let name = prefix.strip_suffix('_').unwrap_or(UNNAMED);
    outcome.quantiles(name, PROBABILITIES.map(at).to_vec());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slow_value_is_recorded_in_full() {
        let mut latencies = histogram().expect("the range is valid");
        for nanoseconds in [100, 5_000, 7_000_000_000] {
            latencies.saturating_record(nanoseconds);
        }
        let at = |quantile| latencies.value_at_quantile(quantile) as f64;
        assert!((at(0.5) / 5e3 - 1.0).abs() < 0.001, "{}", at(0.5));
        assert!((at(1.0) / 7e9 - 1.0).abs() < 0.001, "{}", at(1.0));
    }
}
