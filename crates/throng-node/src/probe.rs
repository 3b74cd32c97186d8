//! Probes for load balancers and supervisors of processes: `GET /livez` and `GET /readyz`.
//!
//! ```text
//! GET /livez     200 while the process answers; reads nothing
//! GET /readyz    200 while the node takes requests and its store writes, else 503 with the reason
//! ```
//!
//! A node that is not ready gets no requests, so nothing would show that its disk writes again. While writes fail, the
//! node therefore tries a small write of its own each second.
//!
//! Invariants: `/livez` does not depend on the store, so that a failed disk does not make a
//! supervisor restart a node that still reads. `/readyz` is 503 from the first stop signal on, before
//! the listener closes. Neither probe waits for a process or for the disk.

use std::mem;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::http::Problem;
use crate::log::error_chain;
use axum::Router;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use serde::{Deserialize, Serialize};
use throng::prelude::*;
use throng_durable::{Durable, Node};
use tokio::time::{sleep, timeout};

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
pub(crate) fn routes(node: Option<Node>, stop: Stop) -> Router {
    let ready = move || {
        let answer = ready(stop.is_announced(), node.as_ref().is_none_or(writes));
        async move { answer }
    };
    Router::new().route("/livez", get(|| async { ok() })).route("/readyz", get(ready))
}

/// Whether the store accepts writes, and the last of them did not fail.
fn writes(node: &Node) -> bool {
    node.store().is_writable() && !node.store().is_failing()
}

fn ready(stops: bool, writable: bool) -> Response {
    let problem = if stops {
        unready("draining", "the node is shutting down")
    } else if !writable {
        unready(
            "read-only",
            "writes to the store fail, as the log says; the node tries again each second, and is ready once a write succeeds",
        )
    } else {
        return ok();
    };
    problem.into_response()
}

/// Entity whose only purpose is a write.
#[derive(Debug, Default, Durable, Serialize, Deserialize)]
#[durable(kind = "throng-probe")]
struct Probe {
    writes: u64,
}

#[process]
impl Probe {
    #[message]
    fn write(&mut self) {
        self.writes += 1;
    }
}

/// Tries to write while writes fail, and logs when that begins and when it ends. Never ends.
pub(crate) async fn keep_writable(node: Option<&Node>) {
    let Some(node) = node else { return std::future::pending().await };
    let mut was_writable = true;
    loop {
        if !writes(node) {
            let written = timeout(INTERVAL, node.entity::<Probe>("write").write()).await;
            if mem::replace(&mut was_writable, false) {
                let reason = match written {
                    Ok(Err(error)) => error_chain(&error),
                    Ok(Ok(())) | Err(_) => "see the log".to_owned(),
                };
                tracing::error!(
                    reason,
                    "writes to the store fail, so /readyz is 503; trying again each second"
                );
            }
        }
        if !was_writable && writes(node) {
            was_writable = true;
            tracing::info!("writes to the store succeed again");
        }
        sleep(INTERVAL).await;
    }
}

/// Time between two attempts to write while writes fail.
const INTERVAL: Duration = Duration::from_secs(1);

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
