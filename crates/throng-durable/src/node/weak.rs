//! [`WeakNode`]: a handle that does not keep its node open.

use std::fmt;
use std::sync::Weak;

use super::{Inner, Node};

/// A handle that does not keep its node open, from [`Node::downgrade`]: for a process that works for the entities of a
/// node, and may outlive it.
///
/// ```
/// # use throng::prelude::*;
/// use throng_durable::Node;
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let directory = tempfile::tempdir()?;
/// # let runtime = Runtime::builder().workers(1).start()?;
/// # runtime.block_on(async |runtime| -> Result<(), throng_durable::OpenError> {
/// let node = Node::options(directory.path()).open(runtime)?;
/// let weak = node.downgrade();
/// assert!(weak.upgrade().is_some());
/// node.shutdown().await;
/// assert!(weak.upgrade().is_none());
/// # Ok(())
/// # })?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct WeakNode(Weak<Inner>);

impl WeakNode {
    pub(crate) fn of(inner: Weak<Inner>) -> WeakNode {
        WeakNode(inner)
    }

    /// Returns the node, or `None` if its shutdown has begun, or if all its handles and entities are gone.
    ///
    /// The node stays open while the caller has the handle that is returned, also beyond a shutdown that begins
    /// meanwhile: drop it before waiting for anything but the node's own entities.
    pub fn upgrade(&self) -> Option<Node> {
        let inner = self.0.upgrade()?;
        (!inner.is_closed()).then(|| Node::of(inner))
    }
}

impl fmt::Debug for WeakNode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WeakNode").finish_non_exhaustive()
    }
}
