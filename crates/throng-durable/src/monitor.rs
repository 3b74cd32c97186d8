//! [`EntityMonitor`]: tells of the failures of an entity. [`Kept`]: keeps one in memory.

use std::fmt;
use std::sync::Arc;

use tokio::sync::watch;

use crate::{Durable, Entity, KeyError, Node};

/// Tells of each failure of an entity, from [`Entity::monitor`].
///
/// An entity fails when it cannot be loaded, when a turn is not kept, and when its process ends in any other way than
/// by passivation: by a kill, an exit signal, or because it stops itself. The node stays open while the monitor exists.
pub struct EntityMonitor<P: Durable> {
    entity: Entity<P>,
    failures: watch::Receiver<EntityFailure>,
}

/// A failure of an entity, from [`EntityMonitor::failed`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct EntityFailure {
    /// Number of failures since the entity has had a monitor. If it has grown by more than one, the monitor has
    /// missed failures in between.
    pub count: u64,
    /// Reason of the last failure, in the words of the error that a caller gets.
    pub reason: Arc<str>,
}

impl<P: Durable> EntityMonitor<P> {
    pub(crate) fn new(entity: Entity<P>, failures: watch::Receiver<EntityFailure>) -> Self {
        EntityMonitor { entity, failures }
    }

    /// Waits for the next failure; returns `None` once the node is shut down. A reader that is slow misses failures,
    /// and the last one is not missed.
    ///
    /// A process hears of the failures by a [piped](throng::Context::pipe) future that calls this.
    pub async fn failed(&mut self) -> Option<EntityFailure> {
        self.failures.changed().await.ok()?;
        Some(self.failures.borrow_and_update().clone())
    }

    /// Returns the entity.
    pub fn entity(&self) -> &Entity<P> {
        &self.entity
    }
}

impl<P: Durable> Drop for EntityMonitor<P> {
    fn drop(&mut self) {
        self.entity.forget_monitor();
    }
}

impl<P: Durable> fmt::Debug for EntityMonitor<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EntityMonitor").field("entity", &self.entity).finish_non_exhaustive()
    }
}

impl Node {
    /// Brings an entity into memory and keeps it there, also after a failure, until the value is dropped, as a
    /// [pin](Entity::pin) does. Nothing is stored, so it ends with the program.
    ///
    /// ```
    /// # use serde::{Deserialize, Serialize};
    /// # use throng::prelude::*;
    /// # use throng_durable::{Durable, KeyError, Node};
    /// # #[derive(Durable, Default, Serialize, Deserialize)]
    /// # #[durable(kind = "room")]
    /// # struct Room { seats: u64 }
    /// # impl Process for Room {}
    /// async fn while_a_socket_is_open(node: &Node, room: &str) -> Result<(), KeyError> {
    ///     let _kept = node.keep(&node.entity::<Room>(room))?;
    ///     // The room stays in memory until here, however long nobody calls it.
    ///     # std::future::ready(()).await;
    ///     Ok(())
    /// }
    /// ```
    ///
    /// # Errors
    ///
    /// [`KeyError`] if the key of the entity is not valid.
    pub fn keep<P: Durable>(&self, entity: &Entity<P>) -> Result<Kept<P>, KeyError> {
        entity.directory().keep(self.inner(), entity.name()?);
        Ok(Kept(entity.clone()))
    }
}

/// Keeps an entity in memory until it is dropped, from [`Node::keep`]. The node stays open meanwhile.
#[must_use = "the entity is kept only as long as this exists"]
#[derive(Debug)]
pub struct Kept<P: Durable>(Entity<P>);

impl<P: Durable> Kept<P> {
    /// Returns the entity.
    pub fn entity(&self) -> &Entity<P> {
        &self.0
    }
}

impl<P: Durable> Drop for Kept<P> {
    fn drop(&mut self) {
        // The name was valid.
        if let Ok(name) = self.0.name() {
            self.0.directory().release(self.0.node().inner(), name);
        }
    }
}
