//! [`DurableContext`]: the methods of the context that only entities have.

use std::time::SystemTime;

use serde::Serialize;
use serde::de::DeserializeOwned;
use throng::{Context, Handle};
use throng_store::Codec;

use crate::activation::Activation;
use crate::gate::After;
use crate::users::drop_user_value;
use crate::{
    CellError, Cells, Durable, DurableMessage, Entity, EntityError, Job, Node, Queue, Reminder,
    Schedule, SendError, TakenCells, Worker,
};

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

    /// Takes the cells of this entity out of the context, as an owned value that can be moved into an engine. They must
    /// be [put back](DurableContext::put_back) before the turn ends: otherwise the turn fails with
    /// [`CellError::Taken`], and nothing of it is kept. Until then, [`cells`](DurableContext::cells) fails the turn.
    ///
    /// ```
    /// # use serde::{Deserialize, Serialize};
    /// # use throng::prelude::*;
    /// use throng_durable::{CellError, Durable, DurableContext, Str, TakenCells};
    ///
    /// /// An engine, which owns the data of its host while it runs.
    /// struct Engine(TakenCells);
    ///
    /// #[derive(Durable, Default, Serialize, Deserialize)]
    /// #[durable(kind = "script")]
    /// struct Script {
    ///     runs: u64,
    /// }
    ///
    /// #[process]
    /// impl Script {
    ///     #[message]
    ///     fn run(&mut self, cx: &mut Context<Self>) -> Result<(), CellError> {
    ///         let mut engine = Engine(cx.take_cells()?);
    ///         engine.0.cells::<Str, u64>("globals").put("x", &1);
    ///         self.runs += 1;
    ///         // Cells of another turn are handed back, and then this one fails.
    ///         cx.put_back(engine.0).map_err(|_| CellError::Taken)
    ///     }
    /// }
    /// ```
    ///
    /// # Errors
    ///
    /// [`CellError::Taken`] if they were taken already, and [`CellError::Inactive`] outside of a turn.
    fn take_cells(&mut self) -> Result<TakenCells, CellError>;

    /// Puts back the cells that this turn has taken, with what was written to them.
    ///
    /// # Errors
    ///
    /// Hands back cells that were taken by another turn, of this entity or of another one.
    fn put_back(&mut self, taken: TakenCells) -> Result<(), TakenCells>;

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

    /// Stores a job for a queue in the commit of this turn, by a [durable message](DurableContext::send_durable). A job
    /// that cannot be stored fails the turn.
    fn push<W: Worker>(&mut self, queue: &Queue<W>, job: impl Into<Job<W::Job>>);

    /// Sets a reminder: the entity sends itself the message when the schedule is due, in this activation or a later one,
    /// also after the program was started again. A reminder with the same key is replaced.
    ///
    /// Each occurrence takes effect once: the commit of its turn removes it, or sets it for the next time. If the
    /// handler fails, the message goes on as a [durable message](crate::DurableMessage) that has failed, and the
    /// schedule goes on meanwhile. What happens to occurrences that were missed is a part of the [`Schedule`].
    ///
    /// A key that is empty or has more than [`REMINDER_KEY_BYTES_MAX`](crate::REMINDER_KEY_BYTES_MAX) bytes, and a
    /// message that cannot be stored, fail the turn.
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// use serde::{Deserialize, Serialize};
    /// use throng::prelude::*;
    /// use throng_durable::{Durable, DurableContext, Node, Schedule};
    ///
    /// #[derive(Durable, Default, Serialize, Deserialize)]
    /// #[durable(kind = "trial")]
    /// struct Trial {
    ///     has_ended: bool,
    /// }
    ///
    /// #[process]
    /// impl Trial {
    ///     #[message]
    ///     fn begin(&mut self, time: Duration, cx: &mut Context<Self>) {
    ///         cx.remind("end", Schedule::after(time), End {});
    ///     }
    ///
    ///     #[message(durable)]
    ///     fn end(&mut self) {
    ///         self.has_ended = true;
    ///     }
    ///
    ///     #[message]
    ///     fn has_ended(&self) -> bool {
    ///         self.has_ended
    ///     }
    /// }
    ///
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let directory = tempfile::tempdir()?;
    /// # let path = directory.path();
    /// let runtime = Runtime::builder().workers(1).start()?;
    /// let node = Node::options(path).open(&runtime)?;
    /// runtime.block_on(async |_| {
    ///     let trial = node.entity::<Trial>("ada");
    ///     trial.begin(Duration::from_millis(20)).await?;
    ///     // Nobody need ask for the entity, but the test would like to know.
    ///     while !trial.has_ended().await? {}
    ///     Ok::<(), throng_durable::EntityError>(())
    /// })?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// Cost: an encoding of the message and two records in the turn's batch; the turn that handles it removes them.
    /// The first use in an activation reads all reminders of the entity. While it waits, a reminder takes no memory
    /// unless it is due within a minute.
    fn remind<M>(&mut self, key: &str, schedule: Schedule, message: M)
    where
        Self::Process: Handle<M>,
        M: DurableMessage;

    /// Removes the reminder with this key; returns false if there is none. A message of it that waits in the mailbox is
    /// not handled any more.
    ///
    /// A store that cannot be read fails the turn.
    fn cancel_reminder(&mut self, key: &str) -> bool;

    /// Returns the reminders of this entity in the order of their keys, those that this turn has set included.
    ///
    /// # Errors
    ///
    /// [`EntityError::Load`] if the store cannot be read, and [`EntityError::Reminder`] if this program cannot read one
    /// of them.
    fn reminders(&mut self) -> Result<Vec<Reminder>, EntityError>;

    /// Returns the time for which the reminder was set whose message this turn handles; `None` in other turns.
    fn reminded_at(&mut self) -> Option<SystemTime>;

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

    fn take_cells(&mut self) -> Result<TakenCells, CellError> {
        activation(self).take_cells()
    }

    fn put_back(&mut self, taken: TakenCells) -> Result<(), TakenCells> {
        activation(self).put_back(taken)
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

    fn push<W: Worker>(&mut self, queue: &Queue<W>, job: impl Into<Job<W::Job>>) {
        let job = job.into();
        queue.push_from(self, &job);
        drop_user_value(job);
    }

    fn remind<M>(&mut self, key: &str, schedule: Schedule, message: M)
    where
        P: Handle<M>,
        M: DurableMessage,
    {
        let own = activation(self);
        if let Err(error) = own.remind(key, schedule, &message) {
            own.changes().fail(error);
        }
        drop_user_value(message);
    }

    fn cancel_reminder(&mut self, key: &str) -> bool {
        let own = activation(self);
        own.cancel_reminder(key).unwrap_or_else(|error| {
            own.changes().fail(error);
            false
        })
    }

    fn reminders(&mut self) -> Result<Vec<Reminder>, EntityError> {
        activation(self).list_reminders()
    }

    fn reminded_at(&mut self) -> Option<SystemTime> {
        activation(self).reminded_at()
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
