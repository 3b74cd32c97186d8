//! [`EntityMonitor`]: tells of the failures of an entity. [`Kept`]: keeps one in memory.

use std::fmt;
use std::sync::Arc;

use tokio::sync::watch;

use crate::{Durable, Entity};

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

/// Keeps an entity in memory until it is dropped, from [`Entity::keep`]. The node stays open meanwhile.
#[must_use = "the entity is kept only as long as this exists"]
#[derive(Debug)]
pub struct Kept<P: Durable>(Entity<P>);

impl<P: Durable> Kept<P> {
    pub(crate) fn new(entity: Entity<P>) -> Kept<P> {
        Kept(entity)
    }

    /// Returns the entity.
    pub fn entity(&self) -> &Entity<P> {
        &self.0
    }
}

impl<P: Durable> Drop for Kept<P> {
    fn drop(&mut self) {
        self.0.release();
    }
}
