//! `GET /metrics`: everything that a node counts, in the Prometheus format.
//!
//! | names | source |
//! |---|---|
//! | `throng_build_info` | this crate |
//! | `process_…` | the system, see `process.rs` |
//! | `throng_processes…`, `throng_worker_…`, `throng_kind_…` | the runtime |
//! | `throng_entities_…`, `throng_store_…` | the node and its store |
//! | `throng_http_…` | answers by route and class of status, and their times |
//! | `throng_connections_…`, `throng_sockets_…`, `throng_socket_…` | the server of the service |
//! | others | the program, by [`Host::with_metrics`](crate::Host::with_metrics) |
//!
//! Invariant: no client makes the text longer than the routes and kinds of the program make it.

use std::fmt::Write as _;

use crate::http::{Answers, Connections, Sockets};
use axum::Router;
use axum::http::header;
use axum::routing::get;
use throng::PrometheusText;
use throng::{Metrics, RuntimeHandle};
use throng_durable::Node;

use crate::dashboard::latency::Latency;
use crate::process;
use crate::serve::Further;

/// Counts of a node.
#[derive(Clone)]
pub(crate) struct Counts {
    pub(crate) runtime: RuntimeHandle,
    pub(crate) node: Option<Node>,
    pub(crate) latency: Latency,
    pub(crate) answers: Answers,
    pub(crate) connections: Connections,
    pub(crate) connections_max: usize,
    pub(crate) sockets: Sockets,
    pub(crate) sockets_max: usize,
    pub(crate) further: Vec<Further>,
}

/// Builds the route.
pub(crate) fn route(counts: Counts) -> Router {
    let media_type = [(header::CONTENT_TYPE, Metrics::PROMETHEUS_MEDIA_TYPE)];
    let metrics = move || {
        let counts = counts.clone();
        async move {
            let tokio = counts.runtime.tokio().clone();
            // The statistics of the store are possibly read from the disk.
            let text = tokio.spawn_blocking(move || counts.to_prometheus()).await;
            // The task fails only while the runtime shuts down.
            (media_type, text.unwrap_or_default())
        }
    };
    Router::new().route("/metrics", get(metrics))
}

impl Counts {
    fn to_prometheus(&self) -> String {
        let mut text = self.runtime.metrics().to_prometheus();
        write_build(&mut text);
        let mut figures = PrometheusText::default();
        process::write_prometheus(&mut figures);
        self.write_server(&mut figures);
        text.push_str(&figures.into_text());
        self.latency.write_prometheus(&mut text);
        self.write_answers(&mut text);
        self.further.iter().for_each(|write| write(&mut text));
        match self.node.as_ref().map(Node::stat) {
            None => {}
            Some(Ok(stat)) => text.push_str(&stat.to_prometheus()),
            Some(Err(error)) => {
                tracing::warn!(%error, "cannot read the store's statistics; /metrics is without them");
            }
        }
        text
    }

    fn write_server(&self, text: &mut PrometheusText) {
        let Counts { connections, sockets, .. } = self;
        text.gauge(
            "throng_connections_open",
            "Connections, sockets among them.",
            connections.open(),
        );
        let help = "Maximum number of connections, after the limit of open files.";
        text.gauge("throng_connections_limit", help, self.connections_max);
        text.counter(
            "throng_connections_refused_total",
            "Connections beyond the maximum of the server.",
            connections.refused(),
        );
        text.counter(
            "throng_connections_refused_of_network_total",
            "Connections beyond the maximum of their client network.",
            connections.refused_of_network(),
        );
        text.gauge("throng_sockets_open", "Open sockets.", sockets.open());
        text.gauge("throng_sockets_limit", "Maximum number of sockets.", self.sockets_max);
        text.counter(
            "throng_sockets_refused_total",
            "Sockets beyond the maximum of the server.",
            sockets.refused(),
        );
        text.counter(
            "throng_socket_frames_dropped_total",
            "Frames for clients that read too slowly.",
            sockets.frames_dropped(),
        );
    }

    fn write_answers(&self, text: &mut String) {
        const NAME: &str = "throng_http_answers_total";
        // Writing to a `String` never fails.
        let _ = writeln!(
            text,
            "# HELP {NAME} Answers by route and class of status; requests without a route have an empty one.\n\
             # TYPE {NAME} counter"
        );
        for (route, classes) in self.answers.counts() {
            for (class, count) in (1..).zip(classes).filter(|(_, count)| *count > 0) {
                let _ = writeln!(text, "{NAME}{{route=\"{route}\",status=\"{class}xx\"}} {count}");
            }
        }
    }
}

fn write_build(text: &mut String) {
    const NAME: &str = "throng_build_info";
    let version = env!("CARGO_PKG_VERSION");
    let profile = if cfg!(debug_assertions) { "debug" } else { "release" };
    // Writing to a `String` never fails.
    let _ = writeln!(
        text,
        "# HELP {NAME} Version of throng.\n# TYPE {NAME} gauge\n\
         {NAME}{{version=\"{version}\",profile=\"{profile}\"}} 1"
    );
}
