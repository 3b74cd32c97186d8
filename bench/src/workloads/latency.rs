//! Histograms of latencies, and the percentiles reported from them.

use std::io;
use std::time::Duration;

use hdrhistogram::Histogram;

use crate::outcome::Outcome;

/// Upper end of the range: longer than the time limit of any call in the workloads.
const LATENCY_MAX: Duration = Duration::from_secs(3600);

/// Creates an empty histogram of nanoseconds with three significant digits. Its range is fixed from
/// the start, since a saturating record does not extend the range.
///
/// # Errors
/// Never: the range and the precision are valid constants.
pub(crate) fn histogram() -> io::Result<Histogram<u64>> {
    Histogram::new_with_max(LATENCY_MAX.as_nanos() as u64, 3).map_err(io::Error::other)
}

/// Adds the percentiles to an outcome as `…p50_ns`, `…p99_ns` and `…p999_ns`.
pub(crate) fn report(outcome: &mut Outcome, prefix: &str, latencies: &Histogram<u64>) {
    for (name, quantile) in [("p50", 0.5), ("p99", 0.99), ("p999", 0.999)] {
        outcome.metric(&format!("{prefix}{name}_ns"), latencies.value_at_quantile(quantile) as f64);
    }
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
