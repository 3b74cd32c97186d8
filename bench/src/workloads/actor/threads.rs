//! Actors in threads: a thread that owns the receiver of an unbounded channel of the actor's messages, and a
//! sender of its own, which it passes on.

use std::sync::mpsc::{Sender, channel};
use std::thread;

use super::super::service::threads::Threads;
use super::{Actor, ActorContext, ActorHost};

struct Turn<M> {
    mailbox: Sender<M>,
    is_last: bool,
}

impl<A: Actor<Threads>> ActorContext<Threads, A> for Turn<A::Message> {
    fn address(&self) -> Sender<A::Message> {
        self.mailbox.clone()
    }

    fn tell_self(&mut self, message: A::Message) {
        let _ = self.mailbox.send(message);
    }

    fn start<B: Actor<Threads>>(&mut self, actor: B) -> Sender<B::Message> {
        start(actor)
    }

    fn stop(&mut self) {
        self.is_last = true;
    }
}

fn start<A: Actor<Threads>>(mut actor: A) -> Sender<A::Message> {
    let (mailbox, inbox) = channel();
    let mut turn = Turn { mailbox: mailbox.clone(), is_last: false };
    thread::spawn(move || {
        actor.started(&mut turn);
        while !turn.is_last
            && let Ok(message) = inbox.recv()
        {
            actor.handle(message, &mut turn);
        }
    });
    mailbox
}

impl ActorHost for Threads {
    type ActorAddress<A: Actor<Self>> = Sender<A::Message>;

    fn start_actor<A: Actor<Self>>(&self, actor: A) -> Sender<A::Message> {
        start(actor)
    }

    fn tell<A: Actor<Self>>(to: &Sender<A::Message>, message: A::Message) {
        let _ = to.send(message);
    }
}
