//! [`DurableContext`]: what a handler of an entity knows beyond what every handler knows.

use throng::Context;

use crate::activation::Activation;
use crate::{Cells, Durable, Entity, Node};

/// What [`Context`] offers the handlers of an entity in addition.
///
/// An entity names itself by [`entity`](DurableContext::entity) rather than by
/// [`address`](Context::address). The address is that of one activation: a message sent there is a
/// turn with a commit as any other, but it is refused, or dropped with the activation, once that
/// has ended.
///
/// # Panics
///
/// All of it panics in a process that was spawned as such and not by a [`Node`]: it has no
/// identity. So do [`node`](DurableContext::node) and [`entity`](DurableContext::entity) in the
/// hook [`stopping`](throng::Process::stopping), which runs after the last turn.
pub trait DurableContext {
    /// What the handlers belong to.
    type Process: Durable;

    /// The key of this entity.
    fn key(&mut self) -> &str;

    /// The cells of this entity: its keyed values, written in the same commit as its state.
    fn cells(&mut self) -> Cells<'_>;

    /// The node of this entity, to reach other entities through.
    fn node(&mut self) -> Node;

    /// This entity, to send itself a message or to tell others who it is.
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
