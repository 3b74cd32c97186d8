//! [`ClusterEntity`]: the name of an entity, on whichever node it lives. [`ClusterCall`]: a call to it.
//!
//! ```text
//! call ─▶ encode ─▶ is its shard here? ─yes─▶ the shard's Node
//!           ▲            │ no
//!           │            └─▶ the owner by the plan ─▶ peers ─▶ the shard's Node there
//!           └── not here, not reached: again after a pause, until the deadline
//! ```
//!
//! 1. A call is made again only if nothing can have happened.
//! 2. A call out of a handler leaves its shard when the handler's entity has published all that it did before: shards
//!    commit independently of each other.

use std::fmt;
use std::future::poll_fn;
use std::marker::PhantomData;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use throng::client::Client;
use throng::{Handle, Message};
use throng_durable::{Durable, Node, SendError, Sender};
use throng_store::Submission;
use tokio::time::{Instant, sleep, timeout};

use super::error::{Class, ClusterError, Fault};
use super::kinds::Codec;
use super::wire::{EntityCall, Request};
use super::{Cluster, Route};
use crate::log::BoxFuture;
use crate::placement::Shard;

/// Default deadline of a call.
const DEADLINE: Duration = Duration::from_secs(5);
/// Pause before the second attempt to reach the owner of a shard; it doubles up to the longest.
const PAUSE: Duration = Duration::from_millis(5);
const PAUSE_MAX: Duration = Duration::from_millis(200);

/// A durable process of kind `P` on one of the nodes of a cluster, from [`Cluster::entity`]. Cheap to clone.
///
/// If `P` is written with [`#[process]`](macro@throng::process), it has a method for each of the messages, as an
/// [`Entity`](throng_durable::Entity) has.
pub struct ClusterEntity<P> {
    cluster: Cluster,
    key: Arc<str>,
    kind: PhantomData<fn(P)>,
}

impl<P: Durable> ClusterEntity<P> {
    pub(super) fn new(cluster: Cluster, key: &str) -> ClusterEntity<P> {
        ClusterEntity { cluster, key: key.into(), kind: PhantomData }
    }

    /// Returns the entity's key.
    pub fn key(&self) -> &str {
        &self.key
    }

    /// Returns the shard on which the entity lives.
    pub fn shard(&self) -> Shard {
        self.cluster.shard_of(P::slot_key(&self.key))
    }

    /// Sends a message and waits for the reply, which comes only after all changes of the handler are on the shared log,
    /// and so on several machines.
    ///
    /// Nothing is sent until the future is polled. The deadline is five seconds, see [`ClusterCall::within`].
    ///
    /// # Errors
    ///
    /// [`ClusterError`], sorted by what the caller can do next.
    pub fn call<M: Message>(&self, message: M) -> ClusterCall<P, M>
    where
        P: Handle<M>,
    {
        let (entity, once) = (self.clone(), None);
        ClusterCall { stage: Stage::Unsent(entity, message, once), within: DEADLINE }
    }

    /// Sends a message without waiting for its handling: at most once, and not if the entity's node cannot be reached
    /// within five seconds, which the log tells.
    ///
    /// Messages that a task sends one after another to an entity may change their order if they leave the node.
    ///
    /// # Errors
    ///
    /// [`SendError`] hands the message back if this program does not [accept](crate::Kind::accepts) it, or if 10,000
    /// others are on their way.
    pub fn send<M: Message>(&self, message: M) -> Result<(), SendError<M>>
    where
        P: Handle<M>,
    {
        if let Err(error) = self.cluster.kinds().codec::<P, M>() {
            let error = throng_durable::EntityError::Message(error.to_string());
            return Err(SendError { message, error });
        }
        let Ok(permit) = self.cluster.0.sends.clone().try_acquire_owned() else {
            return Err(SendError { message, error: throng_durable::EntityError::Overloaded });
        };
        let (sender, key) = (Sender::current(), self.key.clone());
        let call = run(self.clone(), message, None, DEADLINE, sender);
        self.cluster.tokio().spawn(async move {
            let _permit = permit;
            if let Err(error) = call.await {
                tracing::warn!(kind = P::KIND, %key, %error, "a message was not delivered");
            }
        });
        Ok(())
    }
}

impl<P> Clone for ClusterEntity<P> {
    fn clone(&self) -> Self {
        ClusterEntity { cluster: self.cluster.clone(), key: self.key.clone(), kind: PhantomData }
    }
}

impl<P: Durable> fmt::Debug for ClusterEntity<P> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}/{}", P::KIND, self.key)
    }
}

// By reference, so that a client's method leaves the entity where it is.
impl<P: Durable> Client for &ClusterEntity<P> {
    type Process = P;
    type CallError<M: Message> = ClusterError;
    type SendError<M: Message> = SendError<M>;
    type Call<M: Message>
        = ClusterCall<P, M>
    where
        P: Handle<M>;

    fn call<M: Message>(self, message: M) -> ClusterCall<P, M>
    where
        P: Handle<M>,
    {
        ClusterEntity::call(self, message)
    }

    fn send<M: Message>(self, message: M) -> Result<(), SendError<M>>
    where
        P: Handle<M>,
    {
        ClusterEntity::send(self, message)
    }
}

/// A call under way, from [`ClusterEntity::call`].
#[must_use = "a call is not sent until it is awaited"]
pub struct ClusterCall<P: Durable, M: Message> {
    stage: Stage<P, M>,
    within: Duration,
}

enum Stage<P: Durable, M: Message> {
    Unsent(ClusterEntity<P>, M, Option<Box<str>>),
    Sent(BoxFuture<Result<M::Reply, ClusterError>>),
    Over,
}

// No field is structurally pinned.
impl<P: Durable, M: Message> Unpin for ClusterCall<P, M> {}

impl<P: Durable, M: Message> ClusterCall<P, M> {
    /// Sets the deadline, five seconds by default. The time counts from the first poll, and travels with the call.
    pub fn within(mut self, deadline: Duration) -> Self {
        self.within = deadline;
        self
    }

    /// Makes the call one that takes effect once, however often it is repeated with this id, also after its entity has
    /// moved to another node; see [`EntityCall::once`](throng_durable::EntityCall::once).
    ///
    /// # Panics
    ///
    /// Panics if the call was polled.
    pub fn once(mut self, id: impl Into<Box<str>>) -> Self {
        match &mut self.stage {
            Stage::Unsent(.., once) => *once = Some(id.into()),
            Stage::Sent(_) | Stage::Over => panic!("a call is changed after it was polled"),
        }
        self
    }
}

impl<P, M> Future for ClusterCall<P, M>
where
    P: Durable + Handle<M>,
    M: Message,
{
    type Output = Result<M::Reply, ClusterError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = &mut *self;
        if matches!(this.stage, Stage::Unsent(..))
            && let Stage::Unsent(entity, message, once) =
                std::mem::replace(&mut this.stage, Stage::Over)
        {
            let call = run(entity, message, once, this.within, Sender::current());
            this.stage = Stage::Sent(Box::pin(call));
        }
        let Stage::Sent(call) = &mut this.stage else {
            panic!("a call was polled after it had completed")
        };
        let polled = call.as_mut().poll(cx);
        if polled.is_ready() {
            this.stage = Stage::Over;
        }
        polled
    }
}

/// Makes a call until it has an outcome, or its time is over.
async fn run<P: Durable + Handle<M>, M: Message>(
    entity: ClusterEntity<P>,
    message: M,
    once: Option<Box<str>>,
    within: Duration,
    sender: Sender,
) -> Result<M::Reply, ClusterError> {
    let deadline = Instant::now() + within;
    let cluster = &entity.cluster;
    let codec = cluster.kinds().codec::<P, M>()?;
    let body = (codec.encode)(&message)
        .map_err(|error| ClusterError::Refused(format!("the message has no encoding: {error}")))?;
    let shard = entity.shard();
    // The first attempt at an entity of this node needs no encoding.
    let (mut message, mut pause, mut has_waited) = (Some(message), PAUSE, false);
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        let fault = match cluster.route(shard) {
            Route::Here(node) => {
                let is_own = node.store().id() == sender.store;
                if !is_own && !std::mem::replace(&mut has_waited, true) {
                    settled(cluster, sender, left).await?;
                }
                let scope = if is_own { sender } else { Sender::NOBODY };
                let outcome = match message.take() {
                    Some(message) => {
                        let call =
                            (codec.call)(&node.entity(entity.key()), message, once.clone(), left);
                        scoped(scope, call).await.map_err(|error| Fault::of(&error))
                    }
                    None => {
                        again(&entity, &codec, &node, (once.as_deref(), &body), (scope, left)).await
                    }
                };
                match outcome {
                    Ok(reply) => return Ok(reply),
                    Err(fault) => fault,
                }
            }
            Route::There(target) => {
                if !std::mem::replace(&mut has_waited, true) {
                    settled(cluster, sender, left).await?;
                }
                let (kind, key, message, once) =
                    (P::KIND, entity.key(), codec.name, once.as_deref());
                let call = EntityCall { shard: shard.0, kind, key, message, once, body: &body };
                match cluster.request(target, &Request::Entity(call), left).await {
                    Ok(reply) => {
                        return (codec.decode_reply)(&reply).map_err(|error| {
                            let text = "the turn was kept, and its reply is of another type";
                            ClusterError::Unknown(format!("{text}: {error}"))
                        });
                    }
                    Err(fault) => fault,
                }
            }
            Route::Nowhere(reason) => Fault::new(Class::NotHere, reason),
        };
        if fault.class != Class::NotHere || Instant::now() + pause >= deadline {
            return Err(fault.into());
        }
        sleep(pause).await;
        pause = (pause * 2).min(PAUSE_MAX);
    }
}

/// Makes a call to an entity of this node whose message is encoded only.
async fn again<P: Durable, M: Message>(
    entity: &ClusterEntity<P>,
    codec: &Codec<P, M>,
    node: &Node,
    (once, body): (Option<&str>, &[u8]),
    (scope, within): (Sender, Duration),
) -> Result<M::Reply, Fault> {
    let incoming = super::kinds::Incoming { key: entity.key(), once, body, within };
    let served = entity.cluster.kinds().serve(node, (P::KIND, codec.name), incoming);
    let reply = scoped(scope, served).await?;
    let unknown = |error| Fault::new(Class::Unknown, format!("the reply has no encoding: {error}"));
    (codec.decode_reply)(&reply).map_err(unknown)
}

/// Polls a future as if the sender's handler did.
async fn scoped<F: Future>(sender: Sender, future: F) -> F::Output {
    let mut future = pin!(future);
    poll_fn(|cx| sender.scope(|| future.as_mut().poll(cx))).await
}

/// Waits until all that a sender did before is published.
async fn settled(cluster: &Cluster, sender: Sender, left: Duration) -> Result<(), ClusterError> {
    if sender.submission == Submission::START {
        return Ok(());
    }
    let lost = || ClusterError::NotKept("an earlier turn of the sender was not kept".into());
    // An entity of a store that is none of the cluster's has nothing to wait for. A store that was closed has lost what
    // was not published by then.
    let Some(outcomes) = cluster.outcomes_of(sender.store) else { return Ok(()) };
    match timeout(left, outcomes.settled(sender.submission)).await {
        Ok(outcome) => outcome.map_err(|_| lost()),
        Err(_) => {
            let late = "the sender's earlier turns were not published in time";
            Err(ClusterError::Unavailable(late.into()))
        }
    }
}
