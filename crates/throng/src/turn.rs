//! Handling of a message: the handler's future, its storage while it waits, and its context.

pub(crate) mod after;
pub(crate) mod agent;
pub(crate) mod async_process;
pub(crate) mod attach;
pub(crate) mod context;
pub(crate) mod frame;
pub(crate) mod layer;
pub(crate) mod pipe;
pub(crate) mod process;
pub(crate) mod receive_timeout;
pub(crate) mod sink;
mod span;
pub(crate) mod turn_state;
pub(crate) mod waker;
