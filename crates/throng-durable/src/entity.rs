//! [`Entity`]: the name of a durable process, and [`EntityCall`], a call to it.

use std::fmt;
use std::future::Future;
use std::mem;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use throng::{Call, CallError, ExitReason, Handle, Message};

use crate::directory::Directory;
use crate::node::Node;
use crate::turn::{DurableCall, DurableCast, TurnError};
use crate::{Durable, EntityError, SendError};

/// How long a call waits unless told otherwise, activation included.
const DEADLINE: Duration = Duration::from_secs(5);

/// A durable process of kind `P`, whether it is in memory or not. From
/// [`Node::entity`]. Cheap to clone, and keeps nothing in memory but its name.
pub struct Entity<P: Durable> {
    node: Node,
    directory: Arc<Directory<P>>,
    key: Arc<str>,
}

// It names a process and holds no state of it: a panic of its holder leaves nothing half-changed.
impl<P: Durable> std::panic::UnwindSafe for Entity<P> {}
impl<P: Durable> std::panic::RefUnwindSafe for Entity<P> {}

impl<P: Durable> Entity<P> {
    pub(crate) fn from_parts(node: Node, directory: Arc<Directory<P>>, key: Arc<str>) -> Self {
        Entity { node, directory, key }
    }

    /// The key it was made with.
    pub fn key(&self) -> &str {
        &self.key
    }

    /// Sends a message and waits for the reply, which comes only after everything the handler
    /// changed is on disk.
    ///
    /// Nothing is sent until the future is polled. The deadline is five seconds, see
    /// [`EntityCall::within`]. Dropping the future gives the reply up, not the message, unless that
    /// is queued behind a turn that fails.
    ///
    /// Cost: a turn that changes nothing costs one encoding of the state more than a plain call. One
    /// that does takes as long as a disk flush or two, which it shares with all turns of the node
    /// that end meanwhile. Activation reads the state from the store.
    ///
    /// Of two entities that call each other one gets [`EntityError::Cycle`]: an entity handles one
    /// message at a time, and that includes the wait for its own calls.
    ///
    /// # Errors
    ///
    /// See [`EntityError`].
    ///
    /// # Panics
    ///
    /// The future panics if it is awaited neither in a process nor in a tokio runtime.
    pub fn call<M: Message>(&self, message: M) -> EntityCall<P, M>
    where
        P: Handle<M>,
    {
        EntityCall {
            entity: self.clone(),
            stage: Stage::Unsent(message),
            within: DEADLINE,
            begun: None,
        }
    }

    /// Sends a message without waiting for its handling or its commit.
    ///
    /// Messages from one sender to one entity are handled in the order of their sending, except
    /// around a turn that fails. A crash of the node, or a kill of the process, loses those that were
    /// not yet handled.
    ///
    /// # Errors
    ///
    /// [`SendError`] hands the message back if the key is invalid, the runtime has no room, the
    /// node is shut down, or `Default` panics. A state that cannot be loaded is found out later: the
    /// message is dropped, and the log says why.
    pub fn send<M: Message>(&self, message: M) -> Result<(), SendError<M>>
    where
        P: Handle<M>,
    {
        let mut message = message;
        loop {
            let address = match self.activate() {
                Ok(address) => address,
                Err(error) => return Err(SendError { message, error }),
            };
            // If it was passivated this instant, the next round activates it again.
            match address.send(DurableCast(message, self.node.clone().guard())) {
                Ok(()) => return Ok(()),
                Err(error) => DurableCast(message, _) = error.into_message(),
            }
        }
    }

    fn activate(&self) -> Result<throng::Address<P>, EntityError> {
        self.directory.activate(self.node.inner(), &self.key)
    }
}

impl<P: Durable> Clone for Entity<P> {
    fn clone(&self) -> Self {
        Entity { node: self.node.clone(), directory: self.directory.clone(), key: self.key.clone() }
    }
}

impl<P: Durable> fmt::Debug for Entity<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", P::KIND, self.key)
    }
}

/// A call under way, from [`Entity::call`].
#[must_use = "a call is not sent until it is awaited"]
pub struct EntityCall<P: Durable + Handle<M>, M: Message> {
    entity: Entity<P>,
    stage: Stage<M>,
    within: Duration,
    /// When it was first polled.
    begun: Option<Instant>,
}

enum Stage<M: Message> {
    Unsent(M),
    Waiting(Call<DurableCall<M>, Result<M::Reply, TurnError<M>>>),
    Over,
}

// Nothing in here is pinned in place.
impl<P: Durable + Handle<M>, M: Message> Unpin for EntityCall<P, M> {}

impl<P: Durable + Handle<M>, M: Message> EntityCall<P, M> {
    /// Waits so long and no longer, instead of five seconds. Counts from the first poll.
    pub fn within(mut self, deadline: Duration) -> Self {
        self.within = deadline;
        self
    }
}

impl<P: Durable + Handle<M>, M: Message> Future for EntityCall<P, M> {
    type Output = Result<M::Reply, EntityError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = &mut *self;
        loop {
            // What comes back unhandled goes into the next round.
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
                        Ok(Ok(reply)) => return Poll::Ready(Ok(reply)),
                        Ok(Err(TurnError::Discarded(error))) => return Poll::Ready(Err(error)),
                        Ok(Err(TurnError::Retired(message, _)))
                        | Err(CallError::NoProcess(DurableCall(message, _))) => message,
                        Err(CallError::Died(reason)) => return Poll::Ready(Err(died(reason))),
                        Err(CallError::Cycle(message)) => {
                            let enqueued = message.is_none();
                            return Poll::Ready(Err(EntityError::Cycle { enqueued }));
                        }
                        Err(CallError::TimedOut { enqueued }) => {
                            return Poll::Ready(Err(EntityError::TimedOut { enqueued }));
                        }
                        Err(error) => {
                            let reason = ExitReason::other(error.to_string());
                            return Poll::Ready(Err(died(reason)));
                        }
                    }
                }
                Stage::Over => panic!("a call was polled after it was over"),
            };
            let elapsed = this.begun.get_or_insert_with(Instant::now).elapsed();
            let left = match this.within.checked_sub(elapsed) {
                Some(left) => left,
                None => return Poll::Ready(Err(EntityError::TimedOut { enqueued: false })),
            };
            match this.entity.activate() {
                Ok(address) => {
                    let turn = DurableCall(message, this.entity.node.clone().guard());
                    this.stage = Stage::Waiting(address.call(turn).within(left));
                }
                Err(error) => return Poll::Ready(Err(error)),
            }
        }
    }
}

/// What it means for an entity's caller that its process, or its turn, ended like this.
pub(crate) fn died(reason: ExitReason) -> EntityError {
    match reason {
        ExitReason::Panicked(text) => EntityError::Panicked(text),
        reason => EntityError::Died(reason),
    }
}
