//! [`Entity`]: the name of a durable process. [`EntityCall`]: a call to it. [`InstrumentedEntity`]: an entity whose
//! messages carry a `tracing` span.

use std::fmt;
use std::future::Future;
use std::mem;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use throng::client::Client;
use throng::layer::Instant;
use throng::{Ask, CallError, Handle, Message, Turn};
use throng_store::Batch;
use tracing::Span;
use tracing::instrument::{Instrument, Instrumented};

use crate::directory::Directory;
use crate::inbox::{self, Posting};
use crate::name::Name;
use crate::node::Node;
use crate::turn::{Forget, Request};
use crate::users::sender;
use crate::view::View;
use crate::{
    Durable, DurableMessage, EntityError, EntityMonitor, Inbox, KeyError, Reminder, SendError,
    layout, reminder,
};

/// Default deadline of a call, activation included.
const DEADLINE: Duration = Duration::from_secs(5);

/// A durable process of kind `P`, in memory or not; from [`Node::entity`]. Cheap to clone. An
/// `Entity` keeps only the name in memory, not the process.
///
/// If `P` is written with [`#[process]`](macro@throng::process), an entity has a method for each of
/// its messages. The attribute refuses a message with the name of a method below.
///
/// ```
/// # use serde::{Deserialize, Serialize};
/// use throng::prelude::*;
/// use throng_durable::{Durable, Entity, EntityError};
///
/// # #[derive(Durable, Default, Serialize, Deserialize)]
/// # #[durable(kind = "account")]
/// # struct Account { balance: u64 }
/// #[process]
/// impl Account {
///     #[message]
///     fn deposit(&mut self, amount: u64) -> u64 {
///         self.balance += amount;
///         self.balance
///     }
/// }
///
/// async fn pay_in(account: Entity<Account>) -> Result<u64, EntityError> {
///     account.send_deposit(5).map_err(|unsent| unsent.error)?;
///     account.deposit(5).await
/// }
/// ```
pub struct Entity<P: Durable> {
    node: Node,
    name: Result<Name<P>, InvalidKey>,
}

/// A key that no entity can have.
#[derive(Clone)]
pub(crate) struct InvalidKey {
    pub(crate) key: Arc<str>,
    pub(crate) error: KeyError,
}

// An entity names a process and holds none of its state: a panic of the holder leaves nothing
// half-changed.
impl<P: Durable> std::panic::UnwindSafe for Entity<P> {}
impl<P: Durable> std::panic::RefUnwindSafe for Entity<P> {}

impl<P: Durable> Entity<P> {
    pub(crate) fn from_parts(node: Node, name: Result<Name<P>, InvalidKey>) -> Self {
        Entity { node, name }
    }

    /// Returns the entity's key.
    pub fn key(&self) -> &str {
        match &self.name {
            Ok(name) => name.key(),
            Err(invalid) => &invalid.key,
        }
    }

    /// Removes the entity's state, its cells and its place in the count from the store, in one commit, and
    /// ends its activation. Messages sent before are handled before, and a later message finds the entity as
    /// if it had never been stored.
    ///
    /// The hook [`stopping`](throng::Process::stopping) runs on the state as it was.
    ///
    /// Cost: an activation, if the entity is not in memory, and a change for each cell. All changes together
    /// must fit the queue of the store, 64 MiB by default.
    ///
    /// ```
    /// # use serde::{Deserialize, Serialize};
    /// # use throng::prelude::*;
    /// # use throng_durable::{Durable, EntityError, Node};
    /// # #[derive(Durable, Default, Serialize, Deserialize)]
    /// # #[durable(kind = "account")]
    /// # struct Account { cents: u64 }
    /// # impl Process for Account {}
    /// async fn close(node: &Node, name: &str) -> Result<(), EntityError> {
    ///     node.entity::<Account>(name).forget().await
    /// }
    /// ```
    ///
    /// # Errors
    ///
    /// See [`EntityError`]. An entity that cannot be loaded is not removed: for that there is
    /// [`Node::forget_unreadable`].
    pub async fn forget(&self) -> Result<(), EntityError> {
        loop {
            let after = sender();
            let asked = self.activate()?.ask(|to| Forget { after, to }).await;
            match asked {
                Ok(outcome) => return outcome,
                // The entity was just passivated.
                Err(CallError::NoProcess(_)) => {}
                Err(error) => return Err(EntityError::of_call(error)),
            }
        }
    }

    /// Does the same as [`forget`](Entity::forget), also if the entity cannot be loaded.
    pub(crate) async fn forget_unreadable(&self) -> Result<(), EntityError> {
        let _wish = self.directory().forget_if_unreadable(self.name()?);
        self.forget().await
    }

    /// Pins the entity: the node brings it into memory and keeps it there, until it is [unpinned](Entity::unpin) or
    /// [forgotten](Entity::forget). Returns when the pin is on disk.
    ///
    /// - The entity is never passivated while the node is open.
    /// - If it fails (it cannot be loaded, a turn is not kept, or its process ends), the node activates it again: first
    ///   after 100 ms at most, and after each further failure in a row twice as late, up to a minute. A message
    ///   activates it earlier. [`NodeStat::pinned_failures`](crate::NodeStat::pinned_failures) counts the failures,
    ///   and a [monitor](Entity::monitor) tells of each.
    /// - A node that starts activates its pinned entities, 1,000 a second at most, as soon as the program names their
    ///   kind, by [`Node::register`] or `Node::entity`. So the hook [`started`](throng::Process::started) runs
    ///   without a message, and can set timers.
    ///
    /// Pinned entities count against [`live_max`](crate::Options::live_max), and the others make room for
    /// them. Each takes some 150 bytes of memory besides its own.
    ///
    /// ```
    /// # use serde::{Deserialize, Serialize};
    /// # use throng::prelude::*;
    /// # use throng_durable::{Durable, EntityError, Node};
    /// # #[derive(Durable, Default, Serialize, Deserialize)]
    /// # #[durable(kind = "poller")]
    /// # struct Poller { url: String }
    /// # impl Process for Poller {}
    /// async fn poll_for_ever(node: &Node, site: &str) -> Result<(), EntityError> {
    ///     node.entity::<Poller>(site).pin().await
    /// }
    /// ```
    ///
    /// # Errors
    ///
    /// See [`EntityError`]. After `NotCommitted` or `Unknown` the node may keep the entity in memory until its end,
    /// and the pin is perhaps not on disk: try again.
    pub async fn pin(&self) -> Result<(), EntityError> {
        let (name, node) = (self.name()?, self.node.inner());
        let directory = self.directory();
        let pin = layout::pin(name.state_key());
        let batch = Batch::new().put(node.tables.at(&pin), &pin, &[]);
        let batch = directory.kind().add_to(batch, &node.tables, node.gate.outcomes());
        let submit =
            |batch: &mut Batch| directory.pin(node, name, || node.store.submit(batch, sender()));
        let submission = node.submit(batch, submit).await?;
        directory.kind().submitted(submission);
        node.gate.settled(submission).await.map_err(EntityError::from)
    }

    /// Lets the entity be passivated again. Returns when the pin is off the disk.
    ///
    /// # Errors
    ///
    /// See [`EntityError`]. After an error the entity is still pinned, or will be after the next start of the node:
    /// try again.
    pub async fn unpin(&self) -> Result<(), EntityError> {
        let (name, node) = (self.name()?, self.node.inner());
        let pin = layout::pin(name.state_key());
        let batch = Batch::new().delete(node.tables.at(&pin), &pin);
        let submit = |batch: &mut Batch| node.store.submit(batch, sender());
        let submission = node.submit(batch, submit).await?;
        node.gate.settled(submission).await?;
        self.directory().unpin(node, name, submission);
        Ok(())
    }

    /// Returns a monitor that tells of each failure of the entity from here on.
    ///
    /// ```
    /// # use serde::{Deserialize, Serialize};
    /// # use throng::prelude::*;
    /// # use throng_durable::{Durable, KeyError, Node};
    /// # #[derive(Durable, Default, Serialize, Deserialize)]
    /// # #[durable(kind = "poller")]
    /// # struct Poller { url: String }
    /// # impl Process for Poller {}
    /// async fn watch(node: &Node, site: &str) -> Result<(), KeyError> {
    ///     let mut monitor = node.entity::<Poller>(site).monitor()?;
    ///     while let Some(failure) = monitor.failed().await {
    ///         eprintln!("{site} has failed {} times: {}", failure.count, failure.reason);
    ///     }
    ///     Ok(())
    /// }
    /// ```
    ///
    /// # Errors
    ///
    /// [`KeyError`] if the entity's key is invalid.
    pub fn monitor(&self) -> Result<EntityMonitor<P>, KeyError> {
        let failures = self.directory().monitor(self.node.inner(), self.name()?);
        Ok(EntityMonitor::new(self.clone(), failures))
    }

    pub(crate) fn forget_monitor(&self) {
        if let Ok(name) = self.name() {
            self.directory().forget_monitor(name);
        }
    }

    pub(crate) fn directory(&self) -> &Arc<Directory<P>> {
        self.node.inner().directory()
    }

    pub(crate) fn node(&self) -> &Node {
        &self.node
    }

    pub(crate) fn name(&self) -> Result<&Name<P>, KeyError> {
        self.name.as_ref().map_err(|invalid| invalid.error.clone())
    }

    /// Sends a message, or another [`Turn`] of the process, and waits for the reply, which comes only after all changes
    /// of the handler
    /// are on disk, and all earlier changes of the entity.
    ///
    /// Nothing is sent until the future is polled. The deadline is five seconds, see
    /// [`EntityCall::within`]. Dropping the future gives up the reply, but not a message that is sent.
    ///
    /// Cost: for the entity, a plain call, an encoding of the state, unless its handler is
    /// [`READ_ONLY`](Handle::READ_ONLY), and a copy of the changes into
    /// the store's queue; it does not wait for the disk. For the caller of a turn with changes, one
    /// or two disk flushes, shared with all turns of the node that end in the same time. A turn
    /// without changes replies at once if the entity's last changes are on disk. Activation reads
    /// the state from the store.
    ///
    /// If two entities call each other, one of the two calls gets [`EntityError::Cycle`]: an entity
    /// handles one message at a time, and waits for its own calls meanwhile. A reply that waits for
    /// its commit is no such wait.
    ///
    /// # Errors
    ///
    /// See [`EntityError`].
    ///
    /// # Panics
    ///
    /// The future panics if it is awaited neither in a process nor in a tokio runtime.
    pub fn call<T: Turn<P>>(&self, message: T) -> EntityCall<P, T> {
        EntityCall {
            entity: self.clone(),
            stage: Stage::Unsent(message),
            within: DEADLINE,
            begun: None,
        }
    }

    /// Sends a message without waiting for its handling or its commit.
    ///
    /// The message leaves at once, also if the sender is an entity whose changes are not on disk yet;
    /// see [`after_commit`](crate::DurableContext::after_commit). Messages from the same sender to the
    /// same entity are handled in the order of sending, except around a turn that fails or is lost. A
    /// crash of the node, or a kill of the process, loses the messages that are not handled yet.
    ///
    /// # Errors
    ///
    /// [`SendError`] hands the message back if the key is invalid, the runtime has no room, the
    /// node is shut down, the kind is not registered, or `initial` panics. A state that cannot be loaded is detected later: the
    /// message is dropped, and the error is logged.
    pub fn send<T: Turn<P>>(&self, message: T) -> Result<(), SendError<T>> {
        let request: Request<T, T::Reply> = Request { message, after: sender(), to: None };
        self.deliver(request).map_err(|SendError { message: request, error }| SendError {
            message: request.message,
            error,
        })
    }

    /// Stores a message for this entity, and returns once it is on disk. The entity handles it exactly once, whatever
    /// happens to the program; it is activated for the message if need be.
    ///
    /// Messages that a task sends one after another are handled in this order. If the handler panics or its turn
    /// cannot be committed, the attempt is repeated, as [`Durable::ON_FAILURE`] says. A reply is dropped.
    ///
    /// If the future is dropped before it is ready, the message may or may not be stored.
    ///
    /// Cost: a flush of the disk, shared with all that is written at the same time.
    ///
    /// # Errors
    ///
    /// [`SendError`] hands the message back, which is not stored; after [`EntityError::Unknown`], it may be stored. A
    /// full inbox is [`EntityError::Full`].
    pub async fn send_durable<M>(&self, message: M) -> Result<(), SendError<M>>
    where
        P: Handle<M>,
        M: DurableMessage,
    {
        let node = self.node.inner();
        let posting = Posting::prepare(node, self, message)?;
        let batch = posting.add_to(Batch::new(), node);
        let submit = |batch: &mut Batch| node.store.submit(batch, sender());
        let submission = match node.submit(batch, submit).await {
            Ok(submission) => submission,
            Err(error) => return Err(SendError { message: posting.into_message(), error }),
        };
        let submitted = posting.submitted(node, submission);
        match node.gate.settled(submission).await {
            Ok(()) => {
                submitted.leave();
                Ok(())
            }
            Err(failure) => {
                Err(SendError { message: submitted.into_message(), error: failure.into() })
            }
        }
    }

    /// Returns the durable messages that wait for this entity, and those that were parked.
    ///
    /// # Errors
    ///
    /// [`EntityError::Key`] for an invalid key, or [`EntityError::Load`] if the store cannot be read.
    pub fn inbox(&self) -> Result<Inbox, EntityError> {
        let (name, node) = (self.name()?, self.node.inner());
        let view = View::of(&node.tables)?;
        Ok(inbox::list::read(&view, &node.catalogue, P::KIND, name.state_key())?)
    }

    /// Returns the [reminders](crate::DurableContext::remind) of this entity, as the store has them.
    ///
    /// # Errors
    ///
    /// [`EntityError::Key`] for an invalid key, [`EntityError::Load`] if the store cannot be read, and
    /// [`EntityError::Reminder`] if this program cannot read one of them.
    pub fn reminders(&self) -> Result<Vec<Reminder>, EntityError> {
        let (name, node) = (self.name()?, self.node.inner());
        reminder::read(&View::of(&node.tables)?, &node.catalogue, P::KIND, name.state_key())
    }

    /// Has a durable message handled that was parked or waits for its next attempt; returns false if there is none with
    /// this [sequence number](crate::StoredMessage::sequence). A message that was parked comes before those that wait.
    ///
    /// # Errors
    ///
    /// [`EntityError::Key`] for an invalid key, or the error of the store.
    pub async fn retry_message(&self, sequence: u64) -> Result<bool, EntityError> {
        self.node.inner().change_inbox(self.name()?.state_key(), sequence, inbox::list::retry).await
    }

    /// Removes a durable message that was parked, or waits; returns false if there is none with this
    /// [sequence number](crate::StoredMessage::sequence). A message whose handler runs is removed and may have its effect.
    ///
    /// # Errors
    ///
    /// [`EntityError::Key`] for an invalid key, or the error of the store.
    pub async fn skip_message(&self, sequence: u64) -> Result<bool, EntityError> {
        self.node.inner().change_inbox(self.name()?.state_key(), sequence, inbox::list::skip).await
    }

    /// Returns the dependencies of the kind.
    pub(crate) fn deps(&self) -> Result<Arc<P::Deps>, EntityError> {
        let home = self.directory().home(self.node.inner());
        home.map(|home| home.deps.clone()).ok_or(EntityError::NotRegistered { kind: P::KIND })
    }

    /// Delivers a request to the live process, which is activated first if there is none.
    pub(crate) fn deliver<T: Turn<P>>(&self, mut request: T) -> Result<(), SendError<T>> {
        loop {
            let address = match self.activate() {
                Ok(address) => address,
                Err(error) => return Err(SendError { message: request, error }),
            };
            // If the entity was just passivated, the next round activates it again.
            match address.send(request) {
                Ok(()) => return Ok(()),
                Err(throng::SendError::NoProcess(refused)) => request = refused,
                Err(refused) => {
                    let (message, error) = (refused.into_message(), EntityError::Overloaded);
                    return Err(SendError { message, error });
                }
            }
        }
    }

    /// Returns the entity as a [`Client`] that attaches a `tracing` span to each message: the handler then runs in the
    /// span, also if the entity has to be activated first. The wait for the disk is outside of the span.
    ///
    /// ```
    /// # use serde::{Deserialize, Serialize};
    /// # use throng::prelude::*;
    /// # use throng_durable::{Durable, EntityError, Node};
    /// # #[derive(Durable, Default, Serialize, Deserialize)]
    /// # #[durable(kind = "account")]
    /// # struct Account { balance: u64 }
    /// #[process]
    /// impl Account {
    ///     #[message]
    ///     fn deposit(&mut self, amount: u64) -> u64 {
    ///         tracing::info!(amount, "deposited"); // in the span `request`
    ///         self.balance += amount;
    ///         self.balance
    ///     }
    /// }
    ///
    /// async fn request(node: &Node, id: u64) -> Result<u64, EntityError> {
    ///     let span = tracing::info_span!("request", id);
    ///     node.entity::<Account>("alice").instrument(span).deposit(5).await
    /// }
    /// ```
    ///
    /// A single message can be instrumented, too: `account.call(Deposit { amount: 5 }.in_current_span())`.
    ///
    /// Cost: each message is larger by a span, 40 bytes, and the subscriber is called at each step of the span.
    pub fn instrument(self, span: Span) -> InstrumentedEntity<P> {
        InstrumentedEntity { entity: self, span }
    }

    /// Does the same as [`instrument`](Entity::instrument) with the span that is current where this is called.
    pub fn in_current_span(self) -> InstrumentedEntity<P> {
        self.instrument(Span::current())
    }

    fn activate(&self) -> Result<throng::Address<P>, EntityError> {
        self.directory().activate(self.node.inner(), self.name()?)
    }
}

// By reference, so that a client's method leaves the entity where it is.
impl<P: Durable> Client for &Entity<P> {
    type Process = P;
    type CallError<M: Message> = EntityError;
    type SendError<M: Message> = SendError<M>;
    type Call<M: Message>
        = EntityCall<P, M>
    where
        P: Handle<M>;

    fn call<M: Message>(self, message: M) -> EntityCall<P, M>
    where
        P: Handle<M>,
    {
        Entity::call(self, message)
    }

    fn send<M: Message>(self, message: M) -> Result<(), SendError<M>>
    where
        P: Handle<M>,
    {
        Entity::send(self, message)
    }
}

/// An entity that attaches a `tracing` span to each message; from [`Entity::instrument`].
///
/// If `P` is written with [`#[process]`](macro@throng::process), it has a method for each of the messages, as an
/// [`Entity`] has.
pub struct InstrumentedEntity<P: Durable> {
    entity: Entity<P>,
    span: Span,
}

impl<P: Durable> InstrumentedEntity<P> {
    /// Sends a message and waits for the reply; see [`Entity::call`].
    ///
    /// # Errors
    ///
    /// See [`EntityError`].
    pub fn call<T: Turn<P>>(&self, message: T) -> EntityCall<P, Instrumented<T>> {
        self.entity.call(message.instrument(self.span.clone()))
    }

    /// Sends a message without waiting; see [`Entity::send`].
    ///
    /// # Errors
    ///
    /// [`SendError`] hands the instrumented message back.
    pub fn send<T: Turn<P>>(&self, message: T) -> Result<(), SendError<Instrumented<T>>> {
        self.entity.send(message.instrument(self.span.clone()))
    }
}

impl<P: Durable> Client for &InstrumentedEntity<P> {
    type Process = P;
    type CallError<M: Message> = EntityError;
    type SendError<M: Message> = SendError<Instrumented<M>>;
    type Call<M: Message>
        = EntityCall<P, Instrumented<M>>
    where
        P: Handle<M>;

    fn call<M: Message>(self, message: M) -> EntityCall<P, Instrumented<M>>
    where
        P: Handle<M>,
    {
        InstrumentedEntity::call(self, message)
    }

    fn send<M: Message>(self, message: M) -> Result<(), SendError<Instrumented<M>>>
    where
        P: Handle<M>,
    {
        InstrumentedEntity::send(self, message)
    }
}

impl<P: Durable> Clone for InstrumentedEntity<P> {
    fn clone(&self) -> Self {
        InstrumentedEntity { entity: self.entity.clone(), span: self.span.clone() }
    }
}

impl<P: Durable> fmt::Debug for InstrumentedEntity<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.entity.fmt(f)
    }
}

impl<P: Durable> Clone for Entity<P> {
    fn clone(&self) -> Self {
        Entity { node: self.node.clone(), name: self.name.clone() }
    }
}

impl<P: Durable> fmt::Debug for Entity<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", P::KIND, self.key())
    }
}

/// A call under way, from [`Entity::call`].
#[must_use = "a call is not sent until it is awaited"]
pub struct EntityCall<P: Durable, T: Turn<P>> {
    entity: Entity<P>,
    stage: Stage<T, T::Reply>,
    within: Duration,
    /// Time of the first poll.
    begun: Option<Instant>,
}

enum Stage<T, R> {
    Unsent(T),
    Waiting(Ask<Request<T, R>, Result<R, EntityError>>),
    Over,
}

// No field is structurally pinned.
impl<P: Durable, T: Turn<P>> Unpin for EntityCall<P, T> {}

impl<P: Durable, T: Turn<P>> EntityCall<P, T> {
    /// Sets the deadline, five seconds by default. The time counts from the first poll.
    pub fn within(mut self, deadline: Duration) -> Self {
        self.within = deadline;
        self
    }
}

impl<P: Durable, T: Turn<P>> EntityCall<P, T> {
    /// Replaces the message, before it is sent.
    ///
    /// # Panics
    ///
    /// If the call was polled.
    pub(crate) fn map<U: Turn<P>>(self, f: impl FnOnce(T) -> U) -> EntityCall<P, U> {
        let EntityCall { entity, stage, within, begun } = self;
        match stage {
            Stage::Unsent(message) => {
                EntityCall { entity, stage: Stage::Unsent(f(message)), within, begun }
            }
            Stage::Waiting(_) | Stage::Over => panic!("a call is changed before it is polled"),
        }
    }
}

impl<P: Durable, T: Turn<P>> Future for EntityCall<P, T> {
    type Output = Result<T::Reply, EntityError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = &mut *self;
        loop {
            // A message handed back unhandled goes into the next round.
            let message = match &mut this.stage {
                Stage::Unsent(_) => match mem::replace(&mut this.stage, Stage::Over) {
                    Stage::Unsent(message) => message,
                    _ => continue,
                },
                Stage::Waiting(call) => {
                    let Poll::Ready(outcome) = Pin::new(call).poll(cx) else {
                        return Poll::Pending;
                    };
                    this.stage = Stage::Over;
                    match outcome {
                        Ok(answer) => return Poll::Ready(answer),
                        Err(CallError::NoProcess(Request { message, .. })) => message,
                        Err(error) => return Poll::Ready(Err(EntityError::of_call(error))),
                    }
                }
                Stage::Over => panic!("a call was polled after it had completed"),
            };
            let elapsed = this.begun.get_or_insert_with(Instant::now).elapsed();
            let left = match this.within.checked_sub(elapsed) {
                Some(left) => left,
                None => return Poll::Ready(Err(EntityError::TimedOut { enqueued: false })),
            };
            match this.entity.activate() {
                Ok(address) => {
                    let after = sender();
                    let ask = address.ask(|to| Request { message, after, to: Some(to) });
                    this.stage = Stage::Waiting(ask.within(left));
                }
                Err(error) => return Poll::Ready(Err(error)),
            }
        }
    }
}
