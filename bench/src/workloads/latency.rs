//! Histograms of latencies, and what is told of them.

use std::io;
use std::time::Duration;

use hdrhistogram::Histogram;

use crate::outcome::Outcome;

/// Nothing takes longer than any runtime would wait for it.
const LATENCY_MAX: Duration = Duration::from_secs(3600);

/// An empty histogram of nanoseconds, to three digits. It has its whole range from the start, for
/// recording what saturates it does not make it grow.
///
/// # Errors
/// Never, since the range is one that a histogram can have.
pub(crate) fn histogram() -> io::Result<Histogram<u64>> {
    Histogram::new_with_max(LATENCY_MAX.as_nanos() as u64, 3).map_err(io::Error::other)
}

/// Notes the percentiles as `…p50_ns`, `…p99_ns` and `…p999_ns`.
pub(crate) fn report(outcome: &mut Outcome, prefix: &str, latencies: &Histogram<u64>) {
    for (name, quantile) in [("p50", 0.5), ("p99", 0.99), ("p999", 0.999)] {
        outcome.metric(&format!("{prefix}{name}_ns"), latencies.value_at_quantile(quantile) as f64);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_slow_counts_as_slow() {
        let mut latencies = histogram().expect("the range is one that a histogram can have");
        for nanoseconds in [100, 5_000, 7_000_000_000] {
            latencies.saturating_record(nanoseconds);
        }
        let at = |quantile| latencies.value_at_quantile(quantile) as f64;
        assert!((at(0.5) / 5e3 - 1.0).abs() < 0.001, "{}", at(0.5));
        assert!((at(1.0) / 7e9 - 1.0).abs() < 0.001, "{}", at(1.0));
    }
}
