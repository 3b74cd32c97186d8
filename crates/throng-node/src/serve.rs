//! The life of a node that serves: from the listener to the last answer, and to rest.
//!
//! ```text
//! start   open files divided ► admin socket ► listener ► dashboard ► "serving" printed
//! stop    /readyz is 503 ► drain delay ► listener closed, requests in flight finish ► node: every
//! again                    └── skipped                     └── cut
//! stop    process at rest, flushed
//! again   └── not waited for
//! ```
//!
//! Invariants: the handlers of signals are installed before anything is served, and a signal stops the node in order at
//! any time. The admin socket is there before the first request, and goes with the node.

use std::fmt;
use std::io::{self, Write as _};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use throng::RuntimeHandle;
use throng_durable::Node;

use crate::admin::{AdminSocket, Inspected, SOCKET_FILE};
use crate::dashboard::latency::Latency;
use crate::dashboard::{Dashboard, DashboardError, Subject};
use crate::files::{self, TooFewFiles};
use crate::http::{Limits, Server, Serving, SocketLimits, Sockets};
use crate::metrics::{self, Counts};
use crate::notify::Notice;
use crate::options::Options;
use crate::probe;
use crate::signals::Signals;

/// Error in serving.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ServeError {
    /// The node has no durable processes, and so no data directory: set [`Options::directory`].
    #[error(
        "the node has no directory for its admin socket and its token; set `Options::directory`"
    )]
    NoDirectory,
    /// The admin socket cannot be opened: choose another path.
    #[error("cannot open the admin socket {path}; choose another path with --admin-socket")]
    Admin {
        /// Path of the socket.
        path: PathBuf,
        /// Error of the operating system.
        source: io::Error,
    },
    /// The dashboard cannot be opened.
    #[error("cannot open the dashboard")]
    Dashboard(#[source] DashboardError),
    /// The limit of open files leaves no room for connections: raise it.
    #[error(transparent)]
    Files(#[from] TooFewFiles),
    /// The address cannot be used: choose another one.
    #[error("cannot listen on {address}")]
    Listen {
        /// Address of the service.
        address: SocketAddr,
        /// Error of the operating system.
        source: io::Error,
    },
    /// The system refuses handlers of signals.
    #[error("cannot install the handlers of signals")]
    Signals(#[source] io::Error),
    /// A second signal came before the node was at rest.
    #[error(transparent)]
    Interrupted(#[from] Interrupted),
}

/// A second signal stopped the node before it was at rest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "stopped before all processes had finished, because a second signal came; \
     all acknowledged data is on disk"
)]
pub struct Interrupted;

/// Serves a program's router, with all that this crate adds, until a signal stops the node; then shuts the node down.
///
/// A program without durable processes passes `None` in place of the node, and sets [`Options::directory`].
///
/// The routes `/metrics`, `/livez` and `/readyz` are added to the router. The addresses are printed on standard output.
///
/// # Errors
/// The node could not start and served nothing, or it did not stop in order. See [`ServeError`].
///
/// # Panics
/// If the router has one of the routes that are added.
pub async fn serve(
    runtime: &RuntimeHandle,
    node: impl Into<Option<Node>>,
    options: Options,
    router: Router,
) -> Result<(), ServeError> {
    let node = node.into();
    let mut signals = Signals::listen().map_err(ServeError::Signals)?;
    let outcome = match Host::open(runtime, node.clone(), options).await {
        Ok(host) => host.serve(router, &mut signals).await,
        Err(error) => Err(error),
    };
    let stopped = match &node {
        Some(node) => shut_down(node, &mut signals).await,
        None => Ok(()),
    };
    outcome.and(stopped.map_err(ServeError::from))
}

/// Shuts a node down, unless a signal comes first.
///
/// # Errors
/// A signal came first; unfinished work of the processes is lost.
pub async fn shut_down(node: &Node, signals: &mut Signals) -> Result<(), Interrupted> {
    shut_down_unless(node, signals.stop()).await
}

async fn shut_down_unless(
    node: &Node,
    second_signal: impl Future<Output = ()>,
) -> Result<(), Interrupted> {
    tokio::select! {
        biased;
        () = node.shutdown() => Ok(()),
        () = second_signal => Err(Interrupted),
    }
}

/// A node whose admin socket and listener are open, and which serves nothing yet.
///
/// For programs that need more than [`serve`]: WebSockets, metrics of their own, a task beside the server.
pub struct Host {
    runtime: RuntimeHandle,
    node: Option<Node>,
    options: Options,
    directory: PathBuf,
    server: Server,
    connections: files::Connections,
    sockets: Sockets,
    further: Vec<Further>,
    _admin: AdminSocket,
}

/// A function that appends metrics in the Prometheus format.
pub(crate) type Further = Arc<dyn Fn(&mut String) + Send + Sync>;

/// A node that serves, for the companion of [`Host::serve_beside`].
#[derive(Clone, Copy, Debug)]
pub struct Started<'n> {
    scheme: &'static str,
    address: SocketAddr,
    directory: &'n Path,
    dashboard: Option<&'n Dashboard>,
}

impl Host {
    /// Opens the admin socket and the listener, and raises the limit of open files to its maximum. The node is the
    /// program's to shut down, by [`shut_down`].
    ///
    /// # Errors
    /// A socket or the directory cannot be used, or there are too few open files.
    pub async fn open(
        runtime: &RuntimeHandle,
        node: impl Into<Option<Node>>,
        options: Options,
    ) -> Result<Host, ServeError> {
        let node = node.into();
        let data = node.as_ref().map(|node| node.path().to_owned());
        let directory = options.directory.clone().or(data).ok_or(ServeError::NoDirectory)?;
        let path = options.admin_socket.clone().unwrap_or_else(|| directory.join(SOCKET_FILE));
        let weak = node.as_ref().map(Node::downgrade);
        let inspected = Inspected { runtime: runtime.clone(), node: weak };
        let admin = AdminSocket::open(path.clone(), inspected)
            .map_err(|source| ServeError::Admin { path, source })?;
        // The files of the store and the admin socket are open.
        let connections = files::divide(options.limits.connections_max)?;
        let limits = Limits { connections_max: connections.service, ..options.limits.clone() };
        let address = options.listen;
        let server = Server::bind(address, limits).await;
        let mut server = server.map_err(|source| ServeError::Listen { address, source })?;
        if let Some(tls) = &options.tls {
            server = server.with_tls(tls.clone());
        }
        let sockets_max = options.sockets_max(connections.service);
        let socket_limits = SocketLimits { sockets_max, ..SocketLimits::default() };
        Ok(Host {
            runtime: runtime.clone(),
            sockets: Sockets::new(socket_limits, &options.origins),
            further: Vec::new(),
            _admin: admin,
            node,
            options,
            directory,
            server,
            connections,
        })
    }

    /// Returns the WebSockets of the service, for the state of a router that opens some.
    pub fn sockets(&self) -> Sockets {
        self.sockets.clone()
    }

    /// Adds metrics to `/metrics`: a function that appends families in the Prometheus format.
    #[must_use]
    pub fn with_metrics(mut self, write: impl Fn(&mut String) + Send + Sync + 'static) -> Host {
        self.further.push(Arc::new(write));
        self
    }

    /// Serves until a signal stops the node, and prints its addresses.
    ///
    /// # Errors
    /// The dashboard cannot be opened; nothing was served then.
    ///
    /// # Panics
    /// If the router has one of the routes that are added.
    pub async fn serve(self, router: Router, signals: &mut Signals) -> Result<(), ServeError> {
        self.serve_beside(router, signals, async |started| {
            started.announce("");
            std::future::pending().await
        })
        .await
    }

    /// Serves until a signal stops the node or `companion` ends, which runs beside the server and announces it. A
    /// signal drops the companion before the node drains.
    ///
    /// # Errors
    /// The dashboard cannot be opened; nothing was served then.
    ///
    /// # Panics
    /// If the router has one of the routes that are added.
    pub async fn serve_beside(
        self,
        router: Router,
        signals: &mut Signals,
        companion: impl AsyncFnOnce(Started<'_>),
    ) -> Result<(), ServeError> {
        let Host { runtime, node, options, directory, server, .. } = self;
        let Host { connections, sockets, further, _admin, .. } = self;
        let sockets_max = options.sockets_max(connections.service);
        let (latency, answers) = (Latency::default(), server.answers().clone());
        let metrics = metrics::route(Counts {
            runtime: runtime.clone(),
            node: node.clone(),
            latency: latency.clone(),
            answers: answers.clone(),
            connections: server.connections().clone(),
            connections_max: connections.service,
            sockets,
            sockets_max,
            further,
        });
        let stop = probe::Stop::default();
        let router = latency
            .observe(router.merge(metrics.clone()))
            .merge(probe::routes(node.clone(), stop.clone()));
        let subject = Subject { runtime: runtime.clone(), node: node.clone(), latency, answers };
        let drain_timeout = options.limits.drain_timeout;
        let dashboard = Dashboard::open(
            options.dashboard,
            &directory,
            subject,
            metrics,
            connections.dashboard,
            drain_timeout,
        );
        let dashboard = dashboard.await.map_err(ServeError::Dashboard)?;
        let serving = server.start(router, runtime.tokio());
        Notice::Ready.send();
        tracing::info!(
            version = env!("CARGO_PKG_VERSION"),
            pid = std::process::id(),
            address = %serving.address(),
            tls = options.tls.is_some(),
            dashboard = dashboard.as_ref().map(|dashboard| tracing::field::display(dashboard.address())),
            data = %directory.display(),
            workers = runtime.metrics().workers.iter().filter(|worker| !worker.guest).count(),
            connections_max = connections.service,
            sockets_max,
            files_max = files::limit_max(),
            "serving"
        );
        let started = Started {
            scheme: if options.tls.is_some() { "https" } else { "http" },
            address: serving.address(),
            directory: &directory,
            dashboard: dashboard.as_ref(),
        };
        let Signals { stops, others } = signals;
        tokio::select! {
            () = stops.next() => {}
            () = companion(started) => {}
            () = others.act(options.tls.as_ref()) => {}
            () = probe::keep_writable(node.as_ref()) => {}
        }
        stop.announce();
        drain(serving, dashboard, options.drain_delay, signals).await;
        Ok(())
    }
}

/// Lets the requests in flight finish, unless a signal comes meanwhile.
async fn drain(
    serving: Serving,
    dashboard: Option<Dashboard>,
    delay: Duration,
    signals: &mut Signals,
) {
    Notice::Stopping.send();
    tracing::info!("stopping; waiting for requests in flight to finish");
    let drained = async {
        tokio::time::sleep(delay).await;
        let drained = serving.drain().await;
        // Last, so that it shows how the requests finish.
        if let Some(dashboard) = dashboard {
            dashboard.drain().await;
        }
        drained
    };
    tokio::select! {
        drained = drained => if drained.cut > 0 {
            tracing::warn!(connections = drained.cut, "closed busy connections at the drain timeout");
        },
        () = signals.stop() => tracing::warn!("stopping at once, because a second signal came"),
    }
}

impl fmt::Debug for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Host").field("address", &self.server.address()).finish_non_exhaustive()
    }
}

impl Started<'_> {
    /// Returns the address of the service.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Prints the addresses of the node, and further lines. Errors on standard output are ignored.
    pub fn announce(&self, further: &str) {
        let Started { scheme, address, directory, dashboard } = self;
        let mut out = io::stdout().lock();
        let _ = writeln!(out, "serving {scheme}://{address}/").and_then(|()| {
            writeln!(out, "data in {}", directory.display())?;
            if let Some(dashboard) = dashboard {
                writeln!(out, "{}", dashboard.announcement())?;
            }
            writeln!(out, "{further}stop with Ctrl-C")?;
            out.flush()
        });
    }
}

#[cfg(test)]
mod tests {
    use serde::{Deserialize, Serialize};
    use throng::prelude::*;
    use throng_durable::Durable;
    use tokio::sync::oneshot;

    use super::*;

    /// Entity whose handler never completes.
    #[derive(Durable, Default, Serialize, Deserialize)]
    #[durable(kind = "stuck")]
    struct Stuck;

    #[process]
    impl Stuck {
        #[message]
        async fn begin(&mut self, begun: oneshot::Sender<()>) {
            let _ = begun.send(());
            std::future::pending().await
        }
    }

    #[test]
    fn a_handler_that_never_ends_cannot_keep_a_node_from_stopping() {
        let data = tempfile::tempdir().unwrap();
        let runtime = Runtime::builder().workers(1).start().unwrap();
        runtime.block_on(async |runtime| {
            let node = Node::options(data.path()).open(runtime).unwrap();
            let (begun, begins) = oneshot::channel();
            node.entity::<Stuck>("one").send_begin(begun).unwrap();
            begins.await.unwrap();
            let stopped = shut_down_unless(&node, std::future::ready(())).await;
            assert_eq!(stopped, Err(Interrupted));
        });
        assert_eq!(runtime.shutdown(Duration::ZERO).abandoned, 1);
    }

    #[test]
    fn a_node_with_nothing_to_do_comes_to_rest() {
        let data = tempfile::tempdir().unwrap();
        let runtime = Runtime::builder().workers(1).start().unwrap();
        runtime.block_on(async |runtime| {
            let node = Node::options(data.path()).open(runtime).unwrap();
            assert_eq!(shut_down_unless(&node, std::future::pending()).await, Ok(()));
        });
    }
}
