//! [`DurableContext`]: the methods of the context that only entities have.

use throng::Context;

use crate::activation::Activation;
use crate::{Cells, Durable, Entity, Node};

/// Extension of [`Context`] for the handlers of an entity.
///
/// An entity names itself by [`entity`](DurableContext::entity) rather than by
/// [`address`](Context::address). The address belongs to a single activation: a message sent to it
/// is a turn with a commit like any other, but once the activation has ended, the message is
/// refused or dropped with it.
///
/// # Panics
///
/// All methods panic in a process that was not spawned by a [`Node`], because it has no identity.
/// [`node`](DurableContext::node) and [`entity`](DurableContext::entity) also panic in the hook
/// [`stopping`](throng::Process::stopping), which runs after the last turn.
pub trait DurableContext {
    /// Type of the entity's process.
    type Process: Durable;

    /// Returns the key of this entity.
    fn key(&mut self) -> &str;

    /// Returns the cells of this entity: keyed values, written in the same commit as the state.
    fn cells(&mut self) -> Cells<'_>;

    /// Returns the node of this entity, through which it can reach other entities.
    fn node(&mut self) -> Node;

    /// Returns this entity, for sending itself a message or for giving other processes its name.
    ///
    /// ```
    /// # use serde::{Deserialize, Serialize};
    /// # use throng::prelude::*;
    /// use throng_durable::{Durable, DurableContext};
    ///
    /// # #[derive(Default, Serialize, Deserialize)]
    /// # struct Import {
    /// #     left: u32,
    /// # }
    /// # impl Process for Import {}
    /// # impl Durable for Import { const KIND: &'static str = "import"; }
    /// # struct Step;
    /// # impl Message for Step { type Reply = (); }
    /// impl Handle<Step> for Import {
    ///     async fn handle(&mut self, _: Step, cx: &mut Context<Self>) {
    ///         self.left = self.left.saturating_sub(1);
    ///         if self.left > 0 {
    ///             // If the node shuts down, the rest is left for the next time.
    ///             let _ = cx.entity().send(Step);
    ///         }
    ///     }
    /// }
    /// ```
    fn entity(&mut self) -> Entity<Self::Process>;
}

impl<P: Durable> DurableContext for Context<P> {
    type Process = P;

    fn key(&mut self) -> &str {
        activation(self).key()
    }

    fn cells(&mut self) -> Cells<'_> {
        activation(self).cells()
    }

    fn node(&mut self) -> Node {
        match activation(self).node() {
            Some(node) => node.clone(),
            None => panic!("{} has no turn under way", std::any::type_name::<P>()),
        }
    }

    fn entity(&mut self) -> Entity<P> {
        let node = self.node();
        activation(self).entity(node)
    }
}

fn activation<P: Durable>(cx: &mut Context<P>) -> &mut Activation<P> {
    match Activation::of(cx) {
        Some(activation) => activation,
        None => panic!("{} was not spawned by a node", std::any::type_name::<P>()),
    }
}
