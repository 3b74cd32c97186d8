//! An actor: a process with a message type of its own, whose handler sends messages to other actors and
//! starts actors. The workloads of the Savina suite consist of actors.
//!
//! An [`Actor`] is the workload's part of the process. An [`ActorHost`] starts such processes and sends to
//! them on a runtime; each file below has the host of a runtime. Every call between the two is dispatched
//! statically.

pub(super) mod actix;
pub(super) mod kameo;
pub(super) mod ractor;
pub(super) mod smol;
pub(super) mod threads;
pub(super) mod throng;
pub(super) mod tokio;

/// The state and the handlers of a process on a host.
pub(super) trait Actor<H: ActorHost>: Sized + Send + Unpin + 'static {
    /// The messages that the actor takes.
    type Message: Send + 'static;

    /// Runs before the first message.
    fn started(&mut self, _: &mut impl ActorContext<H, Self>) {}

    /// Handles a message.
    fn handle(&mut self, message: Self::Message, context: &mut impl ActorContext<H, Self>);
}

/// A runtime's means to run actors.
pub(super) trait ActorHost: Send + Sync + Sized + 'static {
    /// The address of an actor.
    type ActorAddress<A: Actor<Self>>: Clone + Send + Sync + Unpin + 'static;

    /// Starts an actor; used by the driver.
    fn start_actor<A: Actor<Self>>(&self, actor: A) -> Self::ActorAddress<A>;

    /// Sends a message to an actor, without waiting. A message that is not accepted is missing in the
    /// counts that the workload checks.
    fn tell<A: Actor<Self>>(to: &Self::ActorAddress<A>, message: A::Message);
}

/// A handler's view of its own process.
pub(super) trait ActorContext<H: ActorHost, A: Actor<H>> {
    /// Returns the address of this actor.
    fn address(&self) -> H::ActorAddress<A>;

    /// Sends a message to this actor.
    fn tell_self(&mut self, message: A::Message);

    /// Starts another actor.
    fn start<B: Actor<H>>(&mut self, actor: B) -> H::ActorAddress<B>;

    /// Makes this actor exit after this handler.
    fn stop(&mut self);
}
