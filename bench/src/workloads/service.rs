//! A service: a process that is called with a number and replies with a number. `call` and `churn`
//! call services.
//!
//! A [`Service`] is the workload's part of the process. A [`Host`] starts, calls and stops such
//! processes on a runtime; each file below has the host of a runtime.

pub(super) mod actix;
pub(super) mod kameo;
pub(super) mod ractor;
pub(super) mod tellus;
pub(super) mod throng;
pub(super) mod tokio;

/// The state and the reply function of a process that can be called.
pub(super) trait Service: Send + Unpin + 'static {
    /// Computes the reply to a call.
    fn reply(&self, value: u64) -> u64;
}

/// A runtime's means to run services; used in a process of the runtime.
pub(super) trait Host {
    /// The address of a process.
    type Address<S: Service>;

    /// Starts a process with a service.
    async fn start<S: Service>(&self, service: S) -> Self::Address<S>;

    /// Calls a process and awaits its reply; returns `None` if no reply came.
    async fn call<S: Service>(&self, process: &Self::Address<S>, value: u64) -> Option<u64>;

    /// Makes a process exit, without waiting for the exit.
    fn stop<S: Service>(&self, process: Self::Address<S>);
}
