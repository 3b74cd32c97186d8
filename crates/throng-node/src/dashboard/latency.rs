//! Histogram of the times that requests took, from their head to the head of their answer.
//!
//! ```text
//! bucket    0          1 … 88                                      89
//! time      < 16 µs    four to each power of two, so 25 % wide      ≥ 69 s
//! ```
//!
//! Cost: two reads of the clock and two additions to shared counts for each request. Sockets are not counted,
//! because their answer is the beginning of a conversation.

use std::fmt::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use axum::Router;
use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::middleware::{Next, from_fn_with_state};
use axum::response::Response;

/// Power of two, in nanoseconds, at which the second bucket begins.
const FIRST: u32 = 14;
/// Power of two, in nanoseconds, at which the last bucket begins.
const LAST: u32 = 36;
/// Number of buckets to a power of two.
const STEPS: u32 = 4;
const BUCKETS: usize = ((LAST - FIRST) * STEPS) as usize + 2;

/// Counts of requests by the time that they took. Clones share the counts.
#[derive(Clone, Debug)]
pub(crate) struct Latency(Arc<Counts>);

#[derive(Debug)]
struct Counts {
    buckets: [AtomicU64; BUCKETS],
    nanoseconds: AtomicU64,
}

impl Default for Latency {
    fn default() -> Latency {
        let buckets = std::array::from_fn(|_| AtomicU64::new(0));
        Latency(Arc::new(Counts { buckets, nanoseconds: AtomicU64::new(0) }))
    }
}

impl Latency {
    /// Returns the routes, with each of their requests counted.
    pub(crate) fn observe(&self, routes: Router) -> Router {
        routes.layer(from_fn_with_state(self.clone(), observe))
    }

    fn count(&self, time: Duration) {
        let nanoseconds = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        // Relaxed, here and below: the counts guard no other data.
        self.0.buckets[bucket(nanoseconds)].fetch_add(1, Ordering::Relaxed);
        self.0.nanoseconds.fetch_add(nanoseconds, Ordering::Relaxed);
    }

    /// Returns the number of requests in each bucket.
    pub(super) fn counts(&self) -> Vec<u64> {
        self.0.buckets.iter().map(|count| count.load(Ordering::Relaxed)).collect()
    }

    /// Returns the end of each bucket but the last, in seconds.
    pub(super) fn bounds() -> Vec<f64> {
        (0..BUCKETS - 1).map(bound).collect()
    }

    /// Appends the histogram to a text in the Prometheus format, with a bucket for each power of two.
    pub(crate) fn write_prometheus(&self, text: &mut String) {
        const NAME: &str = "throng_http_request_seconds";
        // The sum first: a request that is counted meanwhile is missing in it.
        let sum = Duration::from_nanos(self.0.nanoseconds.load(Ordering::Relaxed)).as_secs_f64();
        let counts = self.counts();
        // Writing to a `String` never fails.
        let _ = writeln!(text, "# HELP {NAME} Time from a request's head to its answer's.");
        let _ = writeln!(text, "# TYPE {NAME} histogram");
        let mut below = 0;
        for (at, count) in counts.iter().enumerate() {
            below += count;
            if (at as u32).is_multiple_of(STEPS) && at + 1 < BUCKETS {
                let _ = writeln!(text, "{NAME}_bucket{{le=\"{}\"}} {below}", bound(at));
            }
        }
        let _ = writeln!(text, "{NAME}_bucket{{le=\"+Inf\"}} {below}");
        let _ = writeln!(text, "{NAME}_sum {sum}");
        let _ = writeln!(text, "{NAME}_count {below}");
    }
}

async fn observe(State(latency): State<Latency>, request: Request, next: Next) -> Response {
    let mut timed = Timed { latency, began: Instant::now(), is_socket: false };
    let response = next.run(request).await;
    timed.is_socket = response.status() == StatusCode::SWITCHING_PROTOCOLS;
    response
}

/// A request, which is counted when this is dropped: also if the request times out or its handler panics.
struct Timed {
    latency: Latency,
    began: Instant,
    is_socket: bool,
}

impl Drop for Timed {
    fn drop(&mut self) {
        if !self.is_socket {
            self.latency.count(self.began.elapsed());
        }
    }
}

/// Returns the bucket of a time.
fn bucket(nanoseconds: u64) -> usize {
    let Some(power) = nanoseconds.checked_ilog2().filter(|power| *power >= FIRST) else { return 0 };
    let quarter = (nanoseconds >> (power - 2)) as u32 & (STEPS - 1);
    (((power - FIRST) * STEPS + quarter + 1) as usize).min(BUCKETS - 1)
}

/// Returns the end of a bucket, which is not part of it, in seconds.
fn bound(bucket: usize) -> f64 {
    let (power, quarter) = (FIRST + bucket as u32 / STEPS, bucket as u32 % STEPS);
    let nanoseconds = u64::from(STEPS + quarter) << (power - 2);
    nanoseconds as f64 * 1e-9
}

#[cfg(test)]
mod tests {
    use axum::body::Body;
    use axum::routing::get;
    use tower::ServiceExt;

    use super::*;

    #[tokio::test]
    async fn a_request_that_is_given_up_is_counted() {
        let latency = Latency::default();
        let routes = Router::new()
            .route("/quick", get(async || ()))
            .route("/socket", get(async || StatusCode::SWITCHING_PROTOCOLS))
            .route("/stuck", get(std::future::pending::<()>));
        let routes = latency.observe(routes);
        let ask = |path: &str| {
            let request = Request::builder().uri(path).body(Body::empty()).unwrap();
            tokio::time::timeout(Duration::from_millis(20), routes.clone().oneshot(request))
        };
        assert!(ask("/quick").await.is_ok() && ask("/socket").await.is_ok());
        assert_eq!(latency.counts().iter().sum::<u64>(), 1);
        assert!(ask("/stuck").await.is_err());
        assert_eq!(latency.counts().iter().sum::<u64>(), 2);
    }

    #[test]
    fn every_time_lies_between_the_bounds_of_its_bucket() {
        let bounds = Latency::bounds();
        assert!(bounds.is_sorted_by(|before, after| before < after));
        let mut nanoseconds = 1_u64;
        while nanoseconds < 1 << 40 {
            for nanoseconds in [nanoseconds - 1, nanoseconds] {
                let (at, seconds) = (bucket(nanoseconds), nanoseconds as f64 * 1e-9);
                assert!(bounds.get(at).is_none_or(|end| seconds < *end), "{nanoseconds}");
                assert!(at == 0 || bounds[at - 1] <= seconds, "{nanoseconds}");
            }
            nanoseconds += nanoseconds.div_ceil(7);
        }
        assert_eq!(bucket(u64::MAX), BUCKETS - 1);
    }

    #[test]
    fn the_text_for_prometheus_is_a_histogram() {
        let latency = Latency::default();
        for milliseconds in [0, 1, 1, 20, 200_000] {
            latency.count(Duration::from_millis(milliseconds));
        }
        let mut text = String::new();
        latency.write_prometheus(&mut text);
        let buckets: Vec<(f64, u64)> = text
            .lines()
            .filter_map(|line| line.split_once("_bucket{le=\"")?.1.split_once("\"} "))
            .map(|(bound, count)| (bound.parse().unwrap(), count.parse().unwrap()))
            .collect();
        assert!(buckets.is_sorted_by(|one, next| one.0 < next.0 && one.1 <= next.1), "{text}");
        let at = |bound: f64| buckets.iter().rev().find(|(end, _)| *end <= bound).unwrap().1;
        assert_eq!((at(0.000_1), at(0.01), at(1.0), at(f64::INFINITY)), (1, 3, 4, 5));
        assert!(text.ends_with("_sum 200.022\nthrong_http_request_seconds_count 5\n"), "{text}");
    }
}
