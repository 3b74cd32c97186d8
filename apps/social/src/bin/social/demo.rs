//! `social demo`: a node with a busy population, so that a newcomer sees it at work within a minute.
//!
//! ```text
//! signals ► temporary directory ► node (as `social serve`) ► newcomer and first people ► addresses and login printed
//!                            └── beside it: the population (see `demo/population.rs`), until Ctrl-C or --duration
//! drain ► node at rest ► temporary directory deleted
//! ```
//!
//! Invariants: the node has the default settings of `social serve`, but no limits of clients, and takes none from
//! the environment, which may name the data of a real node. A directory that `--data` names is kept. No signal that
//! a process can handle leaves the temporary directory behind.

mod cast;
mod population;
mod words;

use std::ffi::OsString;
use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use tempfile::TempDir;

use self::population::{NEWCOMER, Population};
use crate::api::{ApiError, Target};
use crate::load::{bar, parse_duration, parse_rate};
use crate::serve::{Machine, ServeArgs, ServeError};
use throng_node::{Signals, Started};

/// Arguments of `social demo`.
#[derive(Debug, Args)]
pub(crate) struct DemoArgs {
    /// People in the population; the node takes some 30 ms of a core to register each
    #[arg(long, value_name = "NUMBER", default_value_t = 60)]
    #[arg(value_parser = clap::value_parser!(u32).range(2..=cast::PEOPLE_MAX as i64))]
    users: u32,

    /// Seed of names, follows, texts, and the times of acts
    #[arg(long, default_value_t = 1)]
    seed: u64,

    /// Acts of the population per second: posts, likes, messages in rooms, follows, and reads
    #[arg(long, value_name = "NUMBER", default_value = "10", value_parser = parse_rate)]
    rate: f64,

    /// Duration of the demo; without it, the demo runs until Ctrl-C
    #[arg(long, value_parser = parse_duration)]
    duration: Option<Duration>,

    /// Directory for the data, which is kept; by default a temporary directory, deleted at the end
    #[arg(long, value_name = "DIRECTORY")]
    data: Option<PathBuf>,

    /// Address to listen on; by default 127.0.0.1:7070, or a free port if that is taken
    #[arg(long, value_name = "ADDRESS")]
    listen: Option<SocketAddr>,

    /// Address of the dashboard; by default 127.0.0.1:7071, or a free port if that is taken
    #[arg(long, value_name = "ADDRESS")]
    admin_listen: Option<SocketAddr>,
}

#[derive(Debug, thiserror::Error)]
pub(crate) enum DemoError {
    #[error("cannot create a temporary directory; choose a directory with --data")]
    Create(#[source] io::Error),
    #[error("cannot delete the temporary directory {path}")]
    Delete { path: PathBuf, source: io::Error },
    #[error(transparent)]
    Settings(clap::Error),
    #[error(transparent)]
    Serve(#[from] ServeError),
    #[error(
        "the population cannot enter; data of another seed or of real users needs another directory"
    )]
    Population(#[source] ApiError),
}

impl DemoArgs {
    /// Runs a node and its population, until a signal or the end of the duration.
    pub(crate) fn run(self) -> Result<(), DemoError> {
        let machine = Machine::start(Signals::listen_at_terminal, true)?;
        let (data, temporary) = match &self.data {
            Some(data) => (data.clone(), None),
            None => {
                let made = tempfile::Builder::new().prefix("throng-demo-").tempdir();
                let made = made.map_err(DemoError::Create)?;
                (made.path().to_owned(), Some(made))
            }
        };
        let outcome = self.run_in(data, machine);
        let deleted = temporary.map_or(Ok(()), delete);
        outcome.and(deleted)
    }

    fn run_in(&self, data: PathBuf, machine: Machine) -> Result<(), DemoError> {
        let listen = self.listen.unwrap_or_else(default_address);
        let mut flags: Vec<OsString> = vec!["--data".into(), data.into()];
        flags.extend(["--listen".into(), listen.to_string().into()]);
        // The whole population has one address.
        flags.push("--unlimited".into());
        if let Some(address) = self.admin_listen {
            flags.extend(["--admin-listen".into(), address.to_string().into()]);
        }
        let serve = ServeArgs::from_flags(flags).map_err(DemoError::Settings)?;
        let mut entered = Ok(());
        serve.run_beside(machine, async |node| entered = self.perform(node).await)?;
        entered.map_err(DemoError::Population)
    }

    /// Runs the population beside the node, for the duration of the demo.
    async fn perform(&self, node: Started<'_>) -> Result<(), ApiError> {
        let target = Target::from(node.address());
        let population =
            Arc::new(Population::new(target, self.seed, self.users as usize, self.rate));
        let newcomer = population.open().await?;
        let password = &newcomer.password;
        node.announce(&format!("log in as {NEWCOMER} with the password {password}\n"));
        let bar = bar("{spinner} {msg}", 0);
        let live = population.live(newcomer, bar);
        match self.duration {
            // The error is that the demo takes no longer.
            Some(duration) => tokio::time::timeout(duration, live).await.unwrap_or(Ok(())),
            None => live.await,
        }
    }
}

/// Returns the default address of `social serve` if it is free, otherwise a free port.
fn default_address() -> SocketAddr {
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, 7070));
    let is_free = TcpListener::bind(address).is_ok();
    if is_free { address } else { (Ipv4Addr::LOCALHOST, 0).into() }
}

fn delete(directory: TempDir) -> Result<(), DemoError> {
    let path = directory.path().to_owned();
    directory.close().map_err(|source| DemoError::Delete { path, source })
}
