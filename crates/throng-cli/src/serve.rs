//! `throng serve`: starts runtime, node, service and server, and stops them in reverse order.
//!
//! ```text
//! start   signals ► data directory (locked) ► key ► service ► admin socket ► socket ► dashboard ► "serving" printed
//! stop    /readyz is 503 ► drain delay ► listener closed, requests in flight finish ► node: every
//! again                    └── skipped                     └── cut
//! stop    process at rest, flushed ► runtime
//! again   └── not waited for
//! ```
//!
//! Invariants: requests are served only after the data is open, and the data is closed after the
//! last answer is sent. No handler can keep a node from stopping after a second signal.

use std::ffi::OsString;
use std::io::{self, Write as _};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crate::admin::{AdminSocket, SOCKET_FILE};
use crate::certificate::{Certificate, CertificateError, TlsFiles};
use crate::config::ConfigArgs;
use crate::dashboard::latency::Latency;
use crate::dashboard::{self, Dashboard, DashboardError, Subject};
use crate::files::{self, TooFewFiles};
use crate::metrics::{self, Counts};
use crate::notify::Notice;
use crate::private::DataDirectory;
use crate::probe;
use crate::settings::{
    AccessLog, Bounds, ClientLimits, Logins, Network, Proxies, Stopping, Storage,
};
use crate::signals::{Recipient, Signals, Stops};
use crate::store;
use clap::builder::Resettable;
use clap::{Args, Command, FromArgMatches};
use social::{RateLimits, Settings, Social};
use throng::{Runtime, RuntimeHandle, StartError};
use throng_durable::{Node, OpenError};
use throng_server::{KeyError, Limits, Server, Signer, SocketLimits, Sockets};
use throng_store::Store;

/// Arguments of `throng serve`.
#[derive(Debug, Args)]
pub(crate) struct ServeArgs {
    #[command(flatten)]
    pub(crate) config: ConfigArgs,
    #[command(flatten)]
    pub(crate) access: AccessLog,
    #[command(flatten)]
    network: Network,
    #[command(flatten)]
    proxies: Proxies,
    #[command(flatten)]
    pub(crate) tls: TlsFiles,
    #[command(flatten)]
    dashboard: dashboard::ListenArgs,
    #[command(flatten)]
    storage: Storage,
    #[command(flatten)]
    logins: Logins,
    #[command(flatten)]
    bounds: Bounds,
    #[command(flatten)]
    client_limits: ClientLimits,
    #[command(flatten)]
    stopping: Stopping,
}

/// Error in starting or running a node.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ServeError {
    #[error("cannot use the data directory {path}")]
    Data { path: PathBuf, source: io::Error },
    #[error("cannot start the runtime")]
    Runtime(#[source] StartError),
    #[error(
        "another node uses the data in {path}; stop it, or choose another directory with --data"
    )]
    InUse { path: PathBuf },
    #[error(transparent)]
    Open(OpenError),
    #[error("cannot load the key that signs logins")]
    Key(#[source] KeyError),
    #[error("cannot start the service")]
    Service(#[source] social::SocialError),
    #[error("cannot open the admin socket {path}; choose another path with --admin-socket")]
    Admin { path: PathBuf, source: io::Error },
    #[error("cannot open the dashboard")]
    Dashboard(#[source] DashboardError),
    #[error(transparent)]
    Files(#[from] TooFewFiles),
    #[error("cannot listen on {address}")]
    Listen { address: SocketAddr, source: io::Error },
    #[error("cannot serve with TLS")]
    Certificate(#[source] CertificateError),
    #[error("cannot install the handlers of signals")]
    Signals(#[source] io::Error),
    #[error(
        "stopped before all processes had finished, because a second signal came; \
         all acknowledged data is on disk"
    )]
    Interrupted,
}

/// Runtime for a node whose signal handlers are installed, so that a signal at any later time stops the node in order.
pub(crate) struct Host {
    runtime: Runtime,
    signals: Signals,
}

impl Host {
    /// Starts a runtime, which counts by kind of process if `kind_metrics` is set.
    ///
    /// # Errors
    /// The runtime cannot start, or the system refuses the handlers.
    pub(crate) fn start(recipient: Recipient, kind_metrics: bool) -> Result<Host, ServeError> {
        let runtime = Runtime::builder().kind_metrics(kind_metrics).start();
        let runtime = runtime.map_err(ServeError::Runtime)?;
        let signals = runtime.block_on(async |_| Signals::listen(recipient));
        Ok(Host { signals: signals.map_err(ServeError::Signals)?, runtime })
    }
}

/// Node that serves.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Started<'n> {
    scheme: &'static str,
    pub(crate) address: SocketAddr,
    data: &'n Path,
    dashboard: Option<&'n Dashboard>,
}

impl ServeArgs {
    /// Parses settings from flags alone; the environment is not read.
    ///
    /// # Errors
    /// The flags are wrong.
    pub(crate) fn from_flags(
        flags: impl IntoIterator<Item = OsString>,
    ) -> Result<ServeArgs, clap::Error> {
        let command = ServeArgs::augment_args(Command::new("serve").no_binary_name(true));
        let command = command.mut_args(|arg| arg.env(Resettable::Reset));
        ServeArgs::from_arg_matches(&command.try_get_matches_from(flags)?)
    }

    /// Serves until a signal stops the node.
    ///
    /// # Errors
    /// The node could not start and served nothing, or it did not stop in order. See
    /// [`ServeError`].
    pub(crate) fn run(self) -> Result<(), ServeError> {
        // The dashboard shows them; they cost a run some 35 instructions, little beside those of a request.
        let host = Host::start(Recipient::Serve, self.dashboard.is_on())?;
        self.run_beside(host, async |node| {
            node.announce("");
            std::future::pending().await
        })
    }

    /// Serves until a signal stops the node or `companion` ends, which runs beside the node and announces it. A
    /// signal drops the companion before the node drains.
    ///
    /// # Errors
    /// The errors of [`run`](ServeArgs::run).
    pub(crate) fn run_beside(
        self,
        host: Host,
        companion: impl AsyncFnOnce(Started<'_>),
    ) -> Result<(), ServeError> {
        let Host { runtime, signals } = host;
        let outcome =
            runtime.block_on(async |runtime| self.serve(runtime, signals, companion).await);
        let stopped = runtime.shutdown(SHUTDOWN);
        if stopped.abandoned > 0 {
            tracing::warn!(outcome = %stopped, "processes did not stop in time");
        }
        outcome
    }

    async fn serve(
        &self,
        runtime: &RuntimeHandle,
        mut signals: Signals,
        companion: impl AsyncFnOnce(Started<'_>),
    ) -> Result<(), ServeError> {
        let certificate = self.tls.load().map_err(ServeError::Certificate)?;
        let unusable = |source| ServeError::Data { path: self.storage.data.clone(), source };
        let data = DataDirectory::make(&self.storage.data).map_err(unusable)?;
        let Some(node) = self.open(data.path(), runtime, &mut signals.stops).await? else {
            return Ok(());
        };
        data.make_private_after_open();
        let outcome = self
            .serve_node(&node, data.path(), runtime, &mut signals, certificate.as_ref(), companion)
            .await;
        let stopped = shut_down_node(&node, signals.stops.next()).await;
        outcome.and(stopped)
    }

    /// Opens the data, which takes long if there is a long log to replay. Returns `None` if a signal came meanwhile:
    /// the data is closed again then.
    ///
    /// # Errors
    /// The data cannot be opened, or a second signal came.
    async fn open(
        &self,
        data: &Path,
        runtime: &RuntimeHandle,
        stops: &mut Stops,
    ) -> Result<Option<Node>, ServeError> {
        let began = Instant::now();
        let bar = store::changes_bar();
        let shown = bar.clone();
        let store = Store::options().keep_log(self.storage.keep_log).on_recovery(move |recovery| {
            if began.elapsed() >= SHOWN_AFTER {
                shown.set_length(recovery.total);
                shown.set_position(recovery.changes);
            }
        });
        let opening = Node::open(data).store(store);
        let handle = runtime.clone();
        let mut opening = runtime.tokio().spawn_blocking(move || opening.start(&handle));
        let (node, is_stopped) = tokio::select! {
            node = &mut opening => (node, false),
            () = stops.next() => {
                tracing::info!("stopping once the data is open; a second signal stops at once");
                tokio::select! {
                    node = &mut opening => (node, true),
                    () = stops.next() => return Err(ServeError::Interrupted),
                }
            }
        };
        bar.finish_and_clear();
        // A length was set only by a recovery that took long.
        if bar.length() > Some(0) {
            tracing::info!(changes = bar.length(), elapsed = ?began.elapsed(), "replayed the log");
        }
        let node = match node {
            Ok(Ok(node)) => node,
            Ok(Err(OpenError::InUse { path })) => return Err(ServeError::InUse { path }),
            Ok(Err(error)) => return Err(ServeError::Open(error)),
            // Nothing else ends the task: nobody aborts it, and the runtime is not shut down.
            Err(panicked) => std::panic::resume_unwind(panicked.into_panic()),
        };
        if let Some(bytes) = node.store().reduced_map_bytes() {
            tracing::warn!(
                bytes,
                "the address space of the process is limited (`ulimit -v`), so the data file can grow up to this size only"
            );
        }
        if is_stopped {
            shut_down_node(&node, stops.next()).await?;
            return Ok(None);
        }
        Ok(Some(node))
    }

    async fn serve_node(
        &self,
        node: &Node,
        data: &Path,
        runtime: &RuntimeHandle,
        signals: &mut Signals,
        certificate: Option<&Certificate>,
        companion: impl AsyncFnOnce(Started<'_>),
    ) -> Result<(), ServeError> {
        let signer = Signer::load_or_create(&data.join(KEY_FILE)).map_err(ServeError::Key)?;
        let social =
            Social::new(node.clone(), runtime.clone(), NODE_NUMBER).map_err(ServeError::Service)?;
        let admin_path = match &self.storage.admin_socket {
            Some(path) => path.clone(),
            None => data.join(SOCKET_FILE),
        };
        let _admin = AdminSocket::open(admin_path.clone(), runtime.clone())
            .map_err(|source| ServeError::Admin { path: admin_path, source })?;
        // The files of the store and the admin socket are open.
        let connections = files::divide(self.bounds.connections_max)?;
        let connections_max = connections.service;
        let limits = Limits {
            connections_max,
            connections_per_network_max: self.client_limits.connections_per_network_max(),
            trusted_proxies: self.proxies.trusted(),
            header_timeout: self.bounds.header_timeout,
            request_timeout: self.bounds.request_timeout,
            drain_timeout: self.stopping.drain_timeout,
            ..Limits::default()
        };
        let mut server = Server::bind(self.network.listen, limits)
            .await
            .map_err(|source| ServeError::Listen { address: self.network.listen, source })?;
        let mut scheme = "http";
        if let Some(certificate) = certificate {
            server = server.with_tls(certificate.tls.clone());
            scheme = "https";
        }
        let sockets_max = self.bounds.sockets_max(connections_max);
        let socket_limits = SocketLimits { sockets_max, ..SocketLimits::default() };
        let sockets = Sockets::new(socket_limits, &self.network.origins);
        let limits = RateLimits::new(&self.client_limits.rates());
        let (latency, answers) = (Latency::default(), server.answers().clone());
        let metrics = metrics::route(Counts {
            runtime: runtime.clone(),
            node: node.clone(),
            latency: latency.clone(),
            answers: answers.clone(),
            connections: server.connections().clone(),
            connections_max,
            sockets: sockets.clone(),
            sockets_max,
            limits: limits.clone(),
        });
        let token_ttl = self.logins.token_ttl;
        let routes = social::routes(social, Settings { signer, token_ttl, sockets, limits });
        let stop = probe::Stop::default();
        let routes = latency
            .observe(routes.merge(metrics.clone()))
            .merge(probe::routes(node.clone(), stop.clone()));
        let subject = Subject { runtime: runtime.clone(), node: node.clone(), latency, answers };
        let dashboard = self
            .dashboard
            .open(data, subject, metrics, connections.dashboard, self.stopping.drain_timeout)
            .await
            .map_err(ServeError::Dashboard)?;
        let serving = server.start(routes, runtime.tokio());
        Notice::Ready.send();
        tracing::info!(
            version = env!("CARGO_PKG_VERSION"),
            pid = std::process::id(),
            address = %serving.address(),
            tls = certificate.is_some(),
            dashboard = dashboard.as_ref().map(|dashboard| display(dashboard.address())),
            data = %data.display(),
            workers = runtime.metrics().workers.iter().filter(|worker| !worker.guest).count(),
            connections_max,
            sockets_max,
            files_max = files::limit_max(),
            "serving"
        );
        let started =
            Started { scheme, address: serving.address(), data, dashboard: dashboard.as_ref() };
        let Signals { stops, others } = signals;
        tokio::select! {
            () = stops.next() => {}
            () = companion(started) => {}
            () = others.act(certificate) => {}
            () = probe::keep_writable(node) => {}
        }
        stop.announce();
        Notice::Stopping.send();
        tracing::info!("stopping; waiting for requests in flight to finish");
        let drained = async {
            tokio::time::sleep(self.stopping.drain_delay).await;
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
            () = stops.next() => tracing::warn!("stopping at once, because a second signal came"),
        }
        Ok(())
    }
}

impl Started<'_> {
    /// Prints the addresses of the node, and further lines. Errors on standard output are ignored.
    pub(crate) fn announce(&self, further: &str) {
        let Started { scheme, address, data, dashboard } = self;
        let mut out = io::stdout().lock();
        let _ = writeln!(out, "serving {scheme}://{address}/").and_then(|()| {
            writeln!(out, "data in {}", data.display())?;
            if let Some(dashboard) = dashboard {
                writeln!(out, "{}", dashboard.announcement())?;
            }
            writeln!(out, "{further}stop with Ctrl-C")?;
            out.flush()
        });
    }
}

/// Shuts the node down, unless `second_signal` completes first.
///
/// # Errors
/// `second_signal` completed first; unfinished work of the processes is lost.
async fn shut_down_node(
    node: &Node,
    second_signal: impl Future<Output = ()>,
) -> Result<(), ServeError> {
    tokio::select! {
        biased;
        () = node.shutdown() => Ok(()),
        () = second_signal => Err(ServeError::Interrupted),
    }
}

/// File of the key for logins and cursors. It is beside the data, because it needs the same
/// protection.
pub(crate) const KEY_FILE: &str = "signing.key";

/// Node number in post ids; a service has a single node so far.
pub(crate) const NODE_NUMBER: u16 = 0;

/// Time after which a recovery shows its progress.
const SHOWN_AFTER: Duration = Duration::from_secs(1);

/// Time for which the runtime waits for processes to stop, after the node is at rest.
const SHUTDOWN: Duration = Duration::from_secs(5);

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

    impl Process for Stuck {}

    struct Begin(oneshot::Sender<()>);

    impl Message for Begin {
        type Reply = ();
    }

    impl Handle<Begin> for Stuck {
        async fn handle(&mut self, Begin(begun): Begin, _: &mut Context<Self>) {
            let _ = begun.send(());
            std::future::pending().await
        }
    }

    #[test]
    fn a_handler_that_never_ends_cannot_keep_a_node_from_stopping() {
        let data = tempfile::tempdir().unwrap();
        let runtime = Runtime::builder().workers(1).start().unwrap();
        runtime.block_on(async |runtime| {
            let node = Node::open(data.path()).start(runtime).unwrap();
            let (begun, begins) = oneshot::channel();
            node.entity::<Stuck>("one").send(Begin(begun)).unwrap();
            begins.await.unwrap();
            let stopped = shut_down_node(&node, std::future::ready(())).await;
            assert!(matches!(stopped, Err(ServeError::Interrupted)));
        });
        assert_eq!(runtime.shutdown(Duration::ZERO).abandoned, 1);
    }

    #[test]
    fn a_node_with_nothing_to_do_comes_to_rest() {
        let data = tempfile::tempdir().unwrap();
        let runtime = Runtime::builder().workers(1).start().unwrap();
        runtime.block_on(async |runtime| {
            let node = Node::open(data.path()).start(runtime).unwrap();
            assert!(shut_down_node(&node, std::future::pending()).await.is_ok());
        });
    }
}
