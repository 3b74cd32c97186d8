//! A service: a process that is called with a number and replies with a number. `call`, `calls`,
//! `churn`, `outside` and `fairness` call services.
//!
//! A [`Service`] is the workload's part of the process. A [`Host`] starts, calls and stops such
//! processes on a runtime; each file below has the host of a runtime.

pub(super) mod actix;
pub(super) mod kameo;
pub(super) mod ractor;
pub(super) mod smol;
pub(super) mod tellus;
pub(super) mod threads;
pub(super) mod throng;
pub(super) mod tokio;

/// The state and the reply function of a process that can be called.
pub(super) trait Service: Send + Sync + Unpin + 'static {
    /// Computes the reply to a call.
    fn reply(&self, value: u64) -> u64;
}

/// A service without state, whose reply is the number plus one.
pub(super) struct Successor;

impl Service for Successor {
    fn reply(&self, value: u64) -> u64 {
        value.wrapping_add(1)
    }
}

/// A runtime's means to run services; used in a process of the runtime, or outside where the
/// workload says so.
pub(super) trait Host: Send + Sync + 'static {
    /// The address of a process.
    type Address<S: Service>: Clone + Send + Sync + 'static;

    /// Starts a process with a service.
    fn start<S: Service>(&self, service: S) -> impl Future<Output = Self::Address<S>> + Send;

    /// Calls a process and awaits its reply; returns `None` if no reply came.
    fn call<S: Service>(
        &self,
        process: &Self::Address<S>,
        value: u64,
    ) -> impl Future<Output = Option<u64>> + Send;

    /// Makes a process exit, without waiting for the exit.
    fn stop<S: Service>(&self, process: Self::Address<S>);
}
