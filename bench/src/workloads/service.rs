//! A service: a process that is called with a number and replies with another. `call` and `churn`
//! call services.
//!
//! A [`Service`] is what the workload has in the process; a [`Host`] is how a runtime starts such
//! processes, calls and stops them, written once for each runtime in the files below.

pub(super) mod actix;
pub(super) mod kameo;
pub(super) mod ractor;
pub(super) mod tellus;
pub(super) mod throng;
pub(super) mod tokio;

/// What a process has that can be called.
pub(super) trait Service: Send + Unpin + 'static {
    /// What it replies.
    fn reply(&self, value: u64) -> u64;
}

/// How a runtime runs services; used in one of its processes.
pub(super) trait Host {
    /// What reaches one process.
    type Address<S: Service>;

    /// Starts a process that has this service.
    async fn start<S: Service>(&self, service: S) -> Self::Address<S>;

    /// Calls a process and awaits its reply; `None` if none came.
    async fn call<S: Service>(&self, process: &Self::Address<S>, value: u64) -> Option<u64>;

    /// Makes a process exit, and does not wait for it.
    fn stop<S: Service>(&self, process: Self::Address<S>);
}
