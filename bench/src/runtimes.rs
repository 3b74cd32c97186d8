//! How each runtime is started, and how the workload's driver becomes one of its processes.

pub(crate) mod actix;
pub(crate) mod erlang;
pub(crate) mod kameo;
pub(crate) mod ractor;
pub(crate) mod tellus;
pub(crate) mod throng;
pub(crate) mod tokio;
