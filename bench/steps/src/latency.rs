//! Histograms of latencies, and the quantiles reported from them.

use std::io;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use hdrhistogram::Histogram;

use crate::outcome::{Outcome, Quantiles};

/// The probabilities of the quantiles that a run reports of each distribution, for the figures.
pub const PROBABILITIES: [f64; 10] = [0.0, 0.25, 0.5, 0.75, 0.9, 0.95, 0.99, 0.999, 0.9999, 1.0];

/// Name of a distribution whose metrics have no prefix.
pub const UNNAMED: &str = "latency";

/// Upper end of the range: longer than the time limit of any call in the workloads.
const LATENCY_MAX: Duration = Duration::from_secs(3600);

/// Creates an empty histogram of nanoseconds with three significant digits. Its range is fixed from
/// the start, since a saturating record does not extend the range.
///
/// # Errors
/// If the range is invalid, which it is not.
pub fn histogram() -> io::Result<Histogram<u64>> {
    Histogram::new_with_max(LATENCY_MAX.as_nanos() as u64, 3).map_err(io::Error::other)
}

/// Creates a histogram of nanoseconds that were measured before.
///
/// # Errors
/// The error of [`histogram`].
pub fn of(times: impl IntoIterator<Item = u64>) -> io::Result<Histogram<u64>> {
    let mut latencies = histogram()?;
    times.into_iter().for_each(|nanoseconds| latencies.saturating_record(nanoseconds));
    Ok(latencies)
}

/// Adds the distribution to an outcome: its quantiles at all [`PROBABILITIES`], as `put` for the prefix `put_` of
/// metrics, and as `latency` if there is no prefix.
pub fn report(outcome: &mut Outcome, prefix: &str, latencies: &Histogram<u64>) {
    let at = |probability| latencies.value_at_quantile(probability) as f64;
    let name = prefix.strip_suffix('_').unwrap_or(UNNAMED);
    outcome.quantiles(name, PROBABILITIES.map(at).to_vec());
}

/// The distribution of a percentile and its probability, by the name of the metric: `put` and 0.99 of `put_p99_ns`;
/// `None` for any other metric.
#[must_use]
pub fn distribution(metric: &str) -> Option<(&str, f64)> {
    let name = metric.strip_suffix("_ns")?;
    let (distribution, percentile) = name.rsplit_once('_').unwrap_or((UNNAMED, name));
    let probability = match percentile {
        "p50" => 0.5,
        "p99" => 0.99,
        "p999" => 0.999,
        "max" => 1.0,
        _ => return None,
    };
    Some((distribution, probability))
}

/// The value of a metric that is a percentile; `None` for any other metric, and if the run has no such distribution.
pub fn percentile(metric: &str, quantiles: &Quantiles) -> Option<f64> {
    let (distribution, probability) = distribution(metric)?;
    let at = PROBABILITIES.iter().position(|known| *known == probability)?;
    quantiles.get(distribution)?.get(at).copied()
}

/// Latencies that several tasks record.
pub struct Latencies(Mutex<Histogram<u64>>);

impl Latencies {
    /// Creates an empty histogram, as [`histogram`] does.
    ///
    /// # Errors
    /// The error of [`histogram`].
    pub fn new() -> io::Result<Latencies> {
        Ok(Latencies(Mutex::new(histogram()?)))
    }

    /// Returns the histogram, which no task records in meanwhile.
    pub fn lock(&self) -> MutexGuard<'_, Histogram<u64>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Records nanoseconds.
    #[inline]
    pub fn record(&self, nanoseconds: u64) {
        self.lock().saturating_record(nanoseconds);
    }

    /// Adds the distribution to an outcome, as `latency`.
    pub fn report(&self, outcome: &mut Outcome) {
        report(outcome, "", &self.lock());
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

    #[test]
    fn percentiles_are_read_from_the_distribution_of_their_name() {
        let values: Vec<f64> = (0..PROBABILITIES.len()).map(|at| at as f64).collect();
        let quantiles = Quantiles::from([("put".to_owned(), values)]);
        let of = |metric| percentile(metric, &quantiles);
        assert_eq!(
            [of("put_p50_ns"), of("put_p999_ns"), of("put_max_ns")],
            [2.0, 7.0, 9.0].map(Some)
        );
        assert_eq!([of("p50_ns"), of("get_p50_ns"), of("put_ns"), of("put_p75_ns")], [None; 4]);
    }
}
