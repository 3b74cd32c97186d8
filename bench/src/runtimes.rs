//! The runtimes: each file starts a runtime and runs the workload's driver as a process of it.

pub(crate) mod actix;
pub(crate) mod erlang;
pub(crate) mod kameo;
pub(crate) mod ractor;
pub(crate) mod tellus;
pub(crate) mod throng;
pub(crate) mod tokio;

use std::io;

use crate::outcome::Outcome;

/// The outcome of a workload, or the error that prevented it.
pub(crate) type Measured = io::Result<Outcome>;

/// A workload's driver, as a future.
pub(crate) trait Work: Future<Output = Measured> + Send + 'static {}

impl<F: Future<Output = Measured> + Send + 'static> Work for F {}
