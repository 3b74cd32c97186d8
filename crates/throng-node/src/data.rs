//! The opening of a node's data: private, off the runtime's threads, and ended in order by a signal.

use std::io;
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use throng::RuntimeHandle;
use throng_durable::{Node, Options};

use crate::private::DataDirectory;
use crate::serve::{Interrupted, shut_down};
use crate::signals::Signals;

/// Error in opening the data of a node.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// The directory cannot be created or read: choose another one.
    #[error("cannot use the data directory {path}")]
    Directory {
        /// Path of the directory.
        path: PathBuf,
        /// Error of the operating system.
        source: io::Error,
    },
    /// Another node has the directory: stop it, or choose another one.
    #[error(
        "another node uses the data in {path}; stop it, or choose another directory with --data"
    )]
    InUse {
        /// Path of the directory.
        path: PathBuf,
    },
    /// The data cannot be read.
    #[error(transparent)]
    Data(throng_durable::OpenError),
    /// A second signal came before the data was open.
    #[error(transparent)]
    Interrupted(#[from] Interrupted),
}

/// Makes a data directory private and opens it, which takes long if there is a long log to replay.
///
/// ```no_run
/// # use throng::prelude::*;
/// use throng_durable::Node;
/// use throng_node::{Options, Signals};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let runtime = Runtime::builder().start()?;
/// runtime.block_on(async |runtime| {
///     let mut signals = Signals::listen()?;
///     if let Some(node) = throng_node::open(runtime, Node::options("./data"), &mut signals).await? {
///         throng_node::serve(runtime, node, Options::default(), axum::Router::new()).await?;
///     }
///     Ok(())
/// })
/// # }
/// ```
///
/// Returns `None` if a signal came meanwhile: the data is closed again then. The log tells of the progress each second,
/// in place of a function that the options have for it.
///
/// # Errors
/// The data cannot be opened, or a second signal came.
pub async fn open(
    runtime: &RuntimeHandle,
    options: Options,
    signals: &mut Signals,
) -> Result<Option<Node>, OpenError> {
    let path = options.path().to_owned();
    let directory =
        DataDirectory::make(&path).map_err(|source| OpenError::Directory { path, source })?;
    let began = Instant::now();
    let told = Mutex::new(began);
    let opening = options.on_recovery(move |recovery| {
        let mut told = told.lock().unwrap_or_else(PoisonError::into_inner);
        if told.elapsed() >= PROGRESS {
            *told = Instant::now();
            tracing::info!(changes = recovery.changes, total = recovery.total, "replaying the log");
        }
    });
    let handle = runtime.clone();
    let mut opening = runtime.tokio().spawn_blocking(move || opening.open(&handle));
    let (node, is_stopped) = tokio::select! {
        node = &mut opening => (node, false),
        () = signals.stop() => {
            tracing::info!("stopping once the data is open; a second signal stops at once");
            tokio::select! {
                node = &mut opening => (node, true),
                () = signals.stop() => return Err(Interrupted.into()),
            }
        }
    };
    let node = match node {
        Ok(Ok(node)) => node,
        Ok(Err(throng_durable::OpenError::InUse { path })) => {
            return Err(OpenError::InUse { path });
        }
        Ok(Err(error)) => return Err(OpenError::Data(error)),
        // Nothing else ends the task: nobody aborts it, and the runtime is not shut down.
        Err(panicked) => std::panic::resume_unwind(panicked.into_panic()),
    };
    if began.elapsed() >= PROGRESS {
        tracing::info!(elapsed = ?began.elapsed(), "opened the data");
    }
    if let Some(bytes) = node.store().reduced_map_bytes() {
        tracing::warn!(
            bytes,
            "the address space of the process is limited (`ulimit -v`), so the data file can grow up to this size only"
        );
    }
    directory.make_private_after_open();
    if is_stopped {
        shut_down(&node, signals).await?;
        return Ok(None);
    }
    Ok(Some(node))
}

/// Time after which an opening tells of its progress, and between two such lines.
const PROGRESS: Duration = Duration::from_secs(1);
