//! Actors in actix: `do_send`, which ignores the mailbox's capacity. Where there are several arbiters, each
//! actor is on the next.
//!
//! An actor keeps the addresses of the actors that it has started, because an actix actor exits when nobody has
//! its address: one on another arbiter perhaps before it has run.

use std::any::Any;
use std::sync::atomic::{AtomicUsize, Ordering};

use actix::{Addr, AsyncContext, Context, Handler, Message};

use super::super::service::actix::Actix;
use super::{Actor, ActorContext, ActorHost};
use crate::runtimes::actix::Arbiters;

/// Number of actors started so far.
static STARTED: AtomicUsize = AtomicUsize::new(0);

pub(in super::super) struct Inbox<A> {
    actor: A,
    arbiters: Arbiters,
    started: Vec<Box<dyn Any + Send>>,
}

impl<A: Actor<Actix>> actix::Actor for Inbox<A> {
    type Context = Context<Self>;

    fn started(&mut self, context: &mut Context<Self>) {
        let Inbox { actor, arbiters, started } = self;
        actor.started(&mut Turn { context, arbiters, started });
    }
}

#[derive(Message)]
#[rtype(result = "()")]
struct Tell<M>(M);

impl<A: Actor<Actix>> Handler<Tell<A::Message>> for Inbox<A> {
    type Result = ();

    fn handle(&mut self, Tell(message): Tell<A::Message>, context: &mut Context<Self>) {
        let Inbox { actor, arbiters, started } = self;
        actor.handle(message, &mut Turn { context, arbiters, started });
    }
}

struct Turn<'a, A: Actor<Actix>> {
    context: &'a mut Context<Inbox<A>>,
    arbiters: &'a Arbiters,
    started: &'a mut Vec<Box<dyn Any + Send>>,
}

impl<A: Actor<Actix>> ActorContext<Actix, A> for Turn<'_, A> {
    fn address(&self) -> Addr<Inbox<A>> {
        self.context.address()
    }

    fn tell_self(&mut self, message: A::Message) {
        self.context.address().do_send(Tell(message));
    }

    fn start<B: Actor<Actix>>(&mut self, actor: B) -> Addr<Inbox<B>> {
        let address = start(self.arbiters, actor);
        self.started.push(Box::new(address.clone()));
        address
    }

    fn stop(&mut self) {
        actix::ActorContext::stop(self.context);
    }
}

fn start<A: Actor<Actix>>(arbiters: &Arbiters, actor: A) -> Addr<Inbox<A>> {
    let index = STARTED.fetch_add(1, Ordering::Relaxed);
    arbiters.start(index, Inbox { actor, arbiters: arbiters.clone(), started: Vec::new() })
}

impl ActorHost for Actix {
    type ActorAddress<A: Actor<Self>> = Addr<Inbox<A>>;

    fn start_actor<A: Actor<Self>>(&self, actor: A) -> Addr<Inbox<A>> {
        start(&self.arbiters, actor)
    }

    fn tell<A: Actor<Self>>(to: &Addr<Inbox<A>>, message: A::Message) {
        to.do_send(Tell(message));
    }
}
