//! How each runtime is started, and how the workload's driver becomes one of its processes.

pub(crate) mod actix;
pub(crate) mod erlang;
pub(crate) mod kameo;
pub(crate) mod ractor;
pub(crate) mod tellus;
pub(crate) mod throng;
pub(crate) mod tokio;

use std::io;

use crate::outcome::Outcome;

/// The outcome of a workload, or the reason there is none.
pub(crate) type Measured = io::Result<Outcome>;

/// A workload's driver, once it has its settings.
pub(crate) trait Work: Future<Output = Measured> + Send + 'static {}

impl<F: Future<Output = Measured> + Send + 'static> Work for F {}
