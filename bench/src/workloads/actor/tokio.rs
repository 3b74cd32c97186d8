//! Actors in tokio: a task that owns the receiver of an unbounded channel of the actor's messages, and a
//! sender of its own, which it passes on.

use std::marker::PhantomData;

use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};

use super::super::service::tokio::{Next, Take, Tokio};
use super::{Actor, ActorContext, ActorHost};

struct Turn<T, M> {
    mailbox: UnboundedSender<M>,
    next: Next,
    take: PhantomData<T>,
}

impl<T: Take, A: Actor<Tokio<T>>> ActorContext<Tokio<T>, A> for Turn<T, A::Message> {
    fn address(&self) -> UnboundedSender<A::Message> {
        self.mailbox.clone()
    }

    fn tell_self(&mut self, message: A::Message) {
        let _ = self.mailbox.send(message);
    }

    fn start<B: Actor<Tokio<T>>>(&mut self, actor: B) -> UnboundedSender<B::Message> {
        start(actor)
    }

    fn stop(&mut self) {
        self.next = Next::Stop;
    }
}

fn start<T: Take, A: Actor<Tokio<T>>>(mut actor: A) -> UnboundedSender<A::Message> {
    let (mailbox, inbox) = unbounded_channel();
    let mut turn = Turn { mailbox: mailbox.clone(), next: Next::Message, take: PhantomData };
    tokio::spawn(async move {
        actor.started(&mut turn);
        if let Next::Message = turn.next {
            let handle = |message| {
                actor.handle(message, &mut turn);
                turn.next
            };
            T::take_all(inbox, handle).await;
        }
    });
    mailbox
}

impl<T: Take> ActorHost for Tokio<T> {
    type ActorAddress<A: Actor<Self>> = UnboundedSender<A::Message>;

    fn start_actor<A: Actor<Self>>(&self, actor: A) -> UnboundedSender<A::Message> {
        start(actor)
    }

    fn tell<A: Actor<Self>>(to: &UnboundedSender<A::Message>, message: A::Message) {
        let _ = to.send(message);
    }
}
