//! [`DurableContext`]: what a handler of an entity knows beyond what every handler knows.

use throng::Context;

use crate::activation::Activation;
use crate::{Cells, Durable, Node};

/// What [`Context`] offers the handlers of an entity in addition.
///
/// # Panics
///
/// All of it panics in a process that was spawned as such and not by a [`Node`]: it has no
/// identity. So does [`node`](DurableContext::node) in the hook
/// [`stopping`](throng::Process::stopping), which runs after the last turn.
pub trait DurableContext {
    /// The key of this entity.
    fn key(&mut self) -> &str;

    /// The cells of this entity: its keyed values, written in the same commit as its state.
    fn cells(&mut self) -> Cells<'_>;

    /// The node of this entity, to reach other entities through.
    fn node(&mut self) -> Node;
}

impl<P: Durable> DurableContext for Context<P> {
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
}

fn activation<P: Durable>(cx: &mut Context<P>) -> &mut Activation<P> {
    match Activation::of(cx) {
        Some(activation) => activation,
        None => panic!("{} was not spawned by a node", std::any::type_name::<P>()),
    }
}
