//! Actors in smol: a task that owns the receiver of an unbounded channel of the actor's messages, and a
//! sender of its own, which it passes on.

use smol::channel::{Sender, unbounded};

use super::super::service::smol::Smol;
use super::{Actor, ActorContext, ActorHost};
use crate::runtimes;

struct Turn<M> {
    mailbox: Sender<M>,
    is_last: bool,
}

impl<A: Actor<Smol>> ActorContext<Smol, A> for Turn<A::Message> {
    fn address(&self) -> Sender<A::Message> {
        self.mailbox.clone()
    }

    fn tell_self(&mut self, message: A::Message) {
        let _ = self.mailbox.try_send(message);
    }

    fn start<B: Actor<Smol>>(&mut self, actor: B) -> Sender<B::Message> {
        start(actor)
    }

    fn stop(&mut self) {
        self.is_last = true;
    }
}

fn start<A: Actor<Smol>>(mut actor: A) -> Sender<A::Message> {
    let (mailbox, inbox) = unbounded();
    let mut turn = Turn { mailbox: mailbox.clone(), is_last: false };
    let process = runtimes::smol::spawn(async move {
        actor.started(&mut turn);
        while !turn.is_last
            && let Ok(message) = inbox.recv().await
        {
            actor.handle(message, &mut turn);
        }
    });
    process.detach();
    mailbox
}

impl ActorHost for Smol {
    type ActorAddress<A: Actor<Self>> = Sender<A::Message>;

    fn start_actor<A: Actor<Self>>(&self, actor: A) -> Sender<A::Message> {
        start(actor)
    }

    fn tell<A: Actor<Self>>(to: &Sender<A::Message>, message: A::Message) {
        let _ = to.try_send(message);
    }
}
