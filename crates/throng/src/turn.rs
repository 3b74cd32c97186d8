//! One message handled: the handler's future, where it is kept while it waits, and what it can do.

pub(crate) mod async_process;
pub(crate) mod context;
pub(crate) mod frame;
pub(crate) mod layer;
pub(crate) mod pipe;
pub(crate) mod turn_state;
pub(crate) mod waker;
