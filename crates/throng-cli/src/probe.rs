//! Probes for load balancers and supervisors of processes: `GET /livez` and `GET /readyz`.
//!
//! ```text
//! GET /livez     200 while the process answers; reads nothing
//! GET /readyz    200 while the node takes requests and its store writes, else 503 with the reason
//! ```
//!
//! Invariants: `/livez` does not depend on the store, so that a failed disk does not make a
//! supervisor restart a node that still reads. `/readyz` is 503 from the first stop signal on, before
//! the listener closes. Neither probe waits for a process or for the disk.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use axum::Router;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use throng_durable::Node;
use throng_server::Problem;

/// Announcement that a node stops, shared by the stop and the probes. A clone is the same
/// announcement.
#[derive(Clone, Debug, Default)]
pub(crate) struct Stop(Arc<AtomicBool>);

impl Stop {
    /// Makes the node unready, for good.
    pub(crate) fn announce(&self) {
        // Relaxed: the flag guards no other data.
        self.0.store(true, Ordering::Relaxed);
    }

    fn is_announced(&self) -> bool {
        self.0.load(Ordering::Relaxed) // Relaxed: as in `announce`
    }
}

/// Builds the routes of both probes.
pub(crate) fn routes(node: Node, stop: Stop) -> Router {
    let ready = move || {
        let answer = ready(stop.is_announced(), node.store().is_writable());
        async move { answer }
    };
    Router::new().route("/livez", get(|| async { ok() })).route("/readyz", get(ready))
}

fn ready(stops: bool, writable: bool) -> Response {
    let problem = if stops {
        unready("draining", "the node is shutting down")
    } else if !writable {
        unready(
            "read-only",
            "the store accepts no writes, because a commit failed; it tries to recover",
        )
    } else {
        return ok();
    };
    problem.into_response()
}

fn unready(name: &'static str, detail: &'static str) -> Problem {
    Problem::new(StatusCode::SERVICE_UNAVAILABLE, name, detail)
}

fn ok() -> Response {
    // No cache may answer a probe in the node's place.
    ([(header::CACHE_CONTROL, HeaderValue::from_static("no-store"))], "ok\n").into_response()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_is_ready_only_while_it_writes_and_does_not_stop() {
        for (stops, writable, status) in
            [(false, true, 200), (false, false, 503), (true, true, 503), (true, false, 503)]
        {
            assert_eq!(ready(stops, writable).status(), status, "{stops} {writable}");
        }
    }
}
