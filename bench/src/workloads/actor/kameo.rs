//! Actors in kameo: `tell` on an unbounded mailbox.

use std::convert::Infallible;

use kameo::actor::ActorRef;
use kameo::message::{Context, Message};

use super::super::service::kameo::Kameo;
use super::{Actor, ActorContext, ActorHost};
use crate::runtimes;

pub(in super::super) struct Inbox<A>(A);

impl<A: Actor<Kameo>> kameo::Actor for Inbox<A> {
    type Args = Self;
    type Error = Infallible;

    async fn on_start(mut inbox: Self, address: ActorRef<Self>) -> Result<Self, Infallible> {
        let mut turn = Turn { address: &address, stopped: false };
        inbox.0.started(&mut turn);
        if turn.stopped {
            // The request fails only if the actor has ended.
            let _ = address.stop_gracefully().await;
        }
        Ok(inbox)
    }
}

struct Tell<M>(M);

impl<A: Actor<Kameo>> Message<Tell<A::Message>> for Inbox<A> {
    type Reply = ();

    async fn handle(
        &mut self,
        Tell(message): Tell<A::Message>,
        context: &mut Context<Self, Self::Reply>,
    ) {
        let mut turn = Turn { address: context.actor_ref(), stopped: false };
        self.0.handle(message, &mut turn);
        if turn.stopped {
            context.stop();
        }
    }
}

struct Turn<'a, A: Actor<Kameo>> {
    address: &'a ActorRef<Inbox<A>>,
    stopped: bool,
}

impl<A: Actor<Kameo>> ActorContext<Kameo, A> for Turn<'_, A> {
    fn address(&self) -> ActorRef<Inbox<A>> {
        self.address.clone()
    }

    fn tell_self(&mut self, message: A::Message) {
        Kameo::tell(self.address, message);
    }

    fn start<B: Actor<Kameo>>(&mut self, actor: B) -> ActorRef<Inbox<B>> {
        runtimes::kameo::start(Inbox(actor))
    }

    fn stop(&mut self) {
        self.stopped = true;
    }
}

impl ActorHost for Kameo {
    type ActorAddress<A: Actor<Self>> = ActorRef<Inbox<A>>;

    fn start_actor<A: Actor<Self>>(&self, actor: A) -> ActorRef<Inbox<A>> {
        runtimes::kameo::start(Inbox(actor))
    }

    fn tell<A: Actor<Self>>(to: &ActorRef<Inbox<A>>, message: A::Message) {
        let _ = to.tell(Tell(message)).try_send();
    }
}
