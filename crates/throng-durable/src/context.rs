//! [`DurableContext`]: the methods of the context that only entities have.

use serde::Serialize;
use serde::de::DeserializeOwned;
use throng::{Context, Handle};
use throng_store::Codec;

use crate::activation::Activation;
use crate::gate::After;
use crate::users::drop_user_value;
use crate::{Cells, Durable, DurableMessage, Entity, Node, SendError};

/// Extension of [`Context`] for the handlers of an entity.
///
/// An entity names itself by [`entity`](DurableContext::entity) rather than by
/// [`address`](Context::address). The address belongs to a single activation: a message sent to it
/// is a turn with a commit like any other, but once the activation has ended, the message is
/// refused or dropped with it. A call to the address also makes the entity wait for the disk before its
/// next message, and loses its reply if the process is killed meanwhile.
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

    /// Returns a map of this entity's cells: keyed values, written in the same commit as the state.
    ///
    /// The map with a name always exists. `K` is the [`Codec`] of its keys, which must not change, and `V` the type of
    /// its values. A value of another type is read by the names of its fields, as a state is, and is a
    /// [`CellError::Decode`](crate::CellError::Decode) if it does not fit. An invalid name fails the turn, as a
    /// [`put`](Cells::put) with an invalid key does: it has at most [`MAP_NAME_BYTES_MAX`](crate::MAP_NAME_BYTES_MAX)
    /// bytes, and the names of a kind are at most 65,535.
    fn cells<K: Codec, V: Serialize + DeserializeOwned + 'static>(
        &mut self,
        map: &str,
    ) -> Cells<'_, K, V>;

    /// Returns the dependencies with which this kind was [registered](Node::register).
    ///
    /// ```
    /// # use serde::{Deserialize, Serialize};
    /// # use throng::prelude::*;
    /// use throng_durable::{Durable, DurableContext, Node};
    ///
    /// struct Prices {
    ///     cents: u64,
    /// }
    ///
    /// #[derive(Durable, Default, Serialize, Deserialize)]
    /// #[durable(kind = "cart", deps = Prices)]
    /// struct Cart {
    ///     pieces: u64,
    /// }
    ///
    /// #[process]
    /// impl Cart {
    ///     #[message]
    ///     fn add(&mut self, cx: &mut Context<Self>) -> u64 {
    ///         self.pieces += 1;
    ///         self.pieces * cx.deps().cents
    ///     }
    /// }
    ///
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let directory = tempfile::tempdir()?;
    /// # let path = directory.path();
    /// let runtime = Runtime::builder().workers(1).start()?;
    /// let node = Node::options(path).open(&runtime)?;
    /// node.register::<Cart>(Prices { cents: 95 });
    /// let total = runtime.block_on(async |_| node.entity::<Cart>("ada").add().await)?;
    /// assert_eq!(total, 95);
    /// # Ok(())
    /// # }
    /// ```
    fn deps(&mut self) -> &<Self::Process as Durable>::Deps;

    /// Runs `action` when the changes of this turn, and of all turns of the entity before it, are on disk. If
    /// they are not kept, the action is dropped.
    ///
    /// Messages that a handler sends, and its I/O, leave at once. They belong into such an action if others
    /// must not see changes that a crash or a failed commit may take back. A message by `Entity` to another entity
    /// of the same node needs none: if the sender's turns before this one are lost, so are its effects. The action runs once at most: not if
    /// the program ends between the commit and the action. A message that must arrive is
    /// [sent durably](DurableContext::send_durable).
    ///
    /// The action must not block, because the replies of other turns wait behind it. The actions of an entity run
    /// in the order of its turns. If the message came by an [`Entity`](crate::Entity), they run before its reply
    /// leaves: what they send reaches its receivers before all that the caller sends after the reply.
    ///
    /// ```
    /// # use serde::{Deserialize, Serialize};
    /// # use throng::prelude::*;
    /// use throng_durable::{Durable, DurableContext};
    ///
    /// # struct Sold;
    /// # impl Message for Sold { type Reply = (); }
    /// #[derive(Durable, Default, Serialize, Deserialize)]
    /// #[durable(kind = "shelf")]
    /// struct Shelf {
    ///     left: u32,
    ///     #[serde(skip)]
    ///     watchers: Vec<Recipient<Sold>>,
    /// }
    /// # impl Process for Shelf {}
    /// # struct Sell;
    /// # impl Message for Sell { type Reply = (); }
    /// impl Handle<Sell> for Shelf {
    ///     async fn handle(&mut self, _: Sell, cx: &mut Context<Self>) {
    ///         self.left -= 1;
    ///         for watcher in self.watchers.clone() {
    ///             // A watcher that has ended need not know.
    ///             cx.after_commit(move || drop(watcher.send(Sold)));
    ///         }
    ///     }
    /// }
    /// ```
    fn after_commit(&mut self, action: impl FnOnce() + Send + 'static);

    /// Stores a message for an entity in the commit of this turn: both are kept, or neither is. The entity handles the
    /// message exactly once, and is activated for it if need be; see [`DurableMessage`].
    ///
    /// If the message cannot be stored, as because the receiver's inbox is full, the turn fails, and nothing of it is
    /// kept. [`try_send_durable`](DurableContext::try_send_durable) returns the error instead. The messages of
    /// an entity to another are handled in the order of sending.
    ///
    /// Cost: an encoding of the message, and an entry in the turn's batch. The message itself is passed on in memory.
    fn send_durable<R, M>(&mut self, to: &Entity<R>, message: M)
    where
        R: Durable + Handle<M>,
        M: DurableMessage;

    /// Does the same, unless the message cannot be stored: then the turn goes on without it.
    ///
    /// # Errors
    ///
    /// [`SendError`] hands the message back. [`EntityError::Full`](crate::EntityError::Full) tells of an inbox that is
    /// full.
    fn try_send_durable<R, M>(&mut self, to: &Entity<R>, message: M) -> Result<(), SendError<M>>
    where
        R: Durable + Handle<M>,
        M: DurableMessage;

    /// Returns the node of this entity, through which it can reach other entities.
    fn node(&mut self) -> Node;

    /// Returns this entity, for sending itself a message or for giving other processes its name.
    ///
    /// ```
    /// # use serde::{Deserialize, Serialize};
    /// # use throng::prelude::*;
    /// use throng_durable::{Durable, DurableContext};
    ///
    /// # #[derive(Durable, Default, Serialize, Deserialize)]
    /// # #[durable(kind = "import")]
    /// # struct Import {
    /// #     left: u32,
    /// # }
    /// # impl Process for Import {}
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

    fn cells<K: Codec, V: Serialize + DeserializeOwned + 'static>(
        &mut self,
        map: &str,
    ) -> Cells<'_, K, V> {
        activation(self).cells(map)
    }

    fn deps(&mut self) -> &P::Deps {
        &activation(self).home().deps
    }

    fn after_commit(&mut self, action: impl FnOnce() + Send + 'static) {
        activation(self).add_action(After(action));
    }

    fn send_durable<R, M>(&mut self, to: &Entity<R>, message: M)
    where
        R: Durable + Handle<M>,
        M: DurableMessage,
    {
        if let Err(SendError { message, error }) = self.try_send_durable(to, message) {
            drop_user_value(message);
            activation(self).changes().fail(error);
        }
    }

    fn try_send_durable<R, M>(&mut self, to: &Entity<R>, message: M) -> Result<(), SendError<M>>
    where
        R: Durable + Handle<M>,
        M: DurableMessage,
    {
        activation(self).post(to, message)
    }

    fn node(&mut self) -> Node {
        let own = activation(self);
        assert!(own.is_in_turn(), "{} has no turn under way", std::any::type_name::<P>());
        Node::of(own.node().clone())
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
