//! Actors in ractor, started by `spawn_instant`, which does not wait for the actor's start.

use std::marker::PhantomData;

use ractor::{ActorProcessingErr, ActorRef, ActorRuntime};

use super::super::service::ractor::Ractor;
use super::{Actor, ActorContext, ActorHost};

/// An actor whose state, in ractor's sense, is the workload's actor.
struct Inbox<A>(PhantomData<fn() -> A>);

impl<A: Actor<Ractor>> ractor::Actor for Inbox<A> {
    type Msg = A::Message;
    type State = A;
    type Arguments = A;

    async fn pre_start(&self, _: ActorRef<A::Message>, actor: A) -> Result<A, ActorProcessingErr> {
        Ok(actor)
    }

    async fn post_start(
        &self,
        mut address: ActorRef<A::Message>,
        actor: &mut A,
    ) -> Result<(), ActorProcessingErr> {
        actor.started(&mut address);
        Ok(())
    }

    async fn handle(
        &self,
        mut address: ActorRef<A::Message>,
        message: A::Message,
        actor: &mut A,
    ) -> Result<(), ActorProcessingErr> {
        actor.handle(message, &mut address);
        Ok(())
    }
}

impl<A: Actor<Ractor>> ActorContext<Ractor, A> for ActorRef<A::Message> {
    fn address(&self) -> ActorRef<A::Message> {
        self.clone()
    }

    fn tell_self(&mut self, message: A::Message) {
        let _ = self.send_message(message);
    }

    fn start<B: Actor<Ractor>>(&mut self, actor: B) -> ActorRef<B::Message> {
        start(actor)
    }

    fn stop(&mut self) {
        self.get_cell().stop(None);
    }
}

/// Starts an actor without a name or a supervisor.
///
/// # Panics
/// If ractor refuses to start the actor, which it only does for a name that is taken.
fn start<A: Actor<Ractor>>(actor: A) -> ActorRef<A::Message> {
    match ActorRuntime::spawn_instant(None, Inbox(PhantomData), actor) {
        Ok((address, _)) => address,
        Err(error) => panic!("an actor without a name does not fail to start: {error}"),
    }
}

impl ActorHost for Ractor {
    type ActorAddress<A: Actor<Self>> = ActorRef<A::Message>;

    fn start_actor<A: Actor<Self>>(&self, actor: A) -> ActorRef<A::Message> {
        start(actor)
    }

    fn tell<A: Actor<Self>>(to: &ActorRef<A::Message>, message: A::Message) {
        let _ = to.send_message(message);
    }
}
