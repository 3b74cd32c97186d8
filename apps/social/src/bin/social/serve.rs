//! `social serve`: the message service on a node.
//!
//! ```text
//! start   signals ► certificate ► data directory (locked) ► key ► service ► node serves
//! stop    node drains ► every process at rest, flushed ► runtime
//! ```

use std::ffi::OsString;
use std::io;
use std::time::Duration;

use crate::config::ConfigArgs;
use crate::settings::{Accounts, Storage};
use clap::builder::Resettable;
use clap::{Args, Command, FromArgMatches};
use social::{RateLimits, Settings, Social};
use throng::{Runtime, RuntimeHandle, StartError};
use throng_durable::Node;
use throng_node::args::{CertificateError, NodeArgs};
use throng_node::http::{KEY_FILE, KeyError, Signer};
use throng_node::{
    Host, Interrupted, OpenError, Options, ServeError as NodeError, Signals, Started,
};
use throng_store::Store;

/// Arguments of `social serve`.
#[derive(Debug, Args)]
pub(crate) struct ServeArgs {
    #[command(flatten)]
    pub(crate) config: ConfigArgs,
    #[command(flatten)]
    pub(crate) node: NodeArgs,
    #[command(flatten)]
    storage: Storage,
    #[command(flatten)]
    accounts: Accounts,
}

#[derive(Debug, thiserror::Error)]
pub(crate) enum ServeError {
    #[error("cannot start the runtime")]
    Runtime(#[source] StartError),
    #[error("cannot install the handlers of signals")]
    Signals(#[source] io::Error),
    #[error(transparent)]
    Certificate(#[from] CertificateError),
    #[error(transparent)]
    Open(#[from] OpenError),
    #[error("cannot load the key that signs logins")]
    Key(#[source] KeyError),
    #[error("cannot start the service")]
    Service(#[source] social::SocialError),
    #[error(transparent)]
    Node(#[from] NodeError),
    #[error(transparent)]
    Interrupted(#[from] Interrupted),
}

/// Runtime for a node whose signal handlers are installed, so that a signal at any later time stops the node in order.
pub(crate) struct Machine {
    runtime: Runtime,
    signals: Signals,
}

impl Machine {
    /// Starts a runtime, which counts by kind of process if `kind_metrics` is set, and installs the handlers by `listen`.
    pub(crate) fn start(
        listen: impl FnOnce() -> io::Result<Signals>,
        kind_metrics: bool,
    ) -> Result<Machine, ServeError> {
        let runtime = Runtime::builder().kind_metrics(kind_metrics).start();
        let runtime = runtime.map_err(ServeError::Runtime)?;
        let signals = runtime.block_on(async |_| listen());
        Ok(Machine { signals: signals.map_err(ServeError::Signals)?, runtime })
    }
}

impl ServeArgs {
    /// Parses settings from flags alone; the environment is not read.
    pub(crate) fn from_flags(
        flags: impl IntoIterator<Item = OsString>,
    ) -> Result<ServeArgs, clap::Error> {
        let command = ServeArgs::augment_args(Command::new("serve").no_binary_name(true));
        let command = command.mut_args(|arg| arg.env(Resettable::Reset));
        ServeArgs::from_arg_matches(&command.try_get_matches_from(flags)?)
    }

    /// Serves until a signal stops the node.
    pub(crate) fn run(self) -> Result<(), ServeError> {
        // The dashboard shows them; they cost a run some 35 instructions, little beside those of a request.
        let machine = Machine::start(Signals::listen, self.node.has_dashboard())?;
        self.run_beside(machine, async |node| {
            node.announce("");
            std::future::pending().await
        })
    }

    /// Serves until a signal stops the node or `companion` ends, which runs beside the node and announces it. A
    /// signal drops the companion before the node drains.
    pub(crate) fn run_beside(
        self,
        machine: Machine,
        companion: impl AsyncFnOnce(Started<'_>),
    ) -> Result<(), ServeError> {
        let Machine { runtime, mut signals } = machine;
        let outcome =
            runtime.block_on(async |runtime| self.serve(runtime, &mut signals, companion).await);
        let stopped = runtime.shutdown(SHUTDOWN);
        if stopped.abandoned > 0 {
            tracing::warn!(outcome = %stopped, "processes did not stop in time");
        }
        outcome
    }

    async fn serve(
        &self,
        runtime: &RuntimeHandle,
        signals: &mut Signals,
        companion: impl AsyncFnOnce(Started<'_>),
    ) -> Result<(), ServeError> {
        let options = self.accounts.bound(self.node.options()?);
        let store = Store::options().keep_log(self.storage.keep_log);
        let data = Node::options(&self.storage.data).store(store);
        let Some(node) = throng_node::open(runtime, data, signals).await? else { return Ok(()) };
        let outcome = self.serve_node(&node, runtime, options, signals, companion).await;
        let stopped = throng_node::shut_down(&node, signals).await;
        outcome.and(stopped.map_err(ServeError::from))
    }

    async fn serve_node(
        &self,
        node: &Node,
        runtime: &RuntimeHandle,
        options: Options,
        signals: &mut Signals,
        companion: impl AsyncFnOnce(Started<'_>),
    ) -> Result<(), ServeError> {
        let key = node.path().join(KEY_FILE);
        let signer = Signer::load_or_create(&key).map_err(ServeError::Key)?;
        let social =
            Social::new(node.clone(), runtime.clone(), NODE_NUMBER).map_err(ServeError::Service)?;
        let limits = RateLimits::new(&self.accounts.rates());
        let counts = limits.clone();
        let host = Host::open(runtime, node.clone(), options)
            .await?
            .with_metrics(move |text| counts.write_prometheus(text));
        let (sockets, token_ttl) = (host.sockets(), self.accounts.token_ttl);
        let routes = social::routes(social, Settings { signer, token_ttl, sockets, limits });
        Ok(host.serve_beside(routes, signals, companion).await?)
    }
}

/// Node number in post ids; a service has a single node so far.
pub(crate) const NODE_NUMBER: u16 = 0;

/// Time for which the runtime waits for processes to stop, after the node is at rest.
const SHUTDOWN: Duration = Duration::from_secs(5);
