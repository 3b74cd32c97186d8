//! Actors in throng: a process with a handler of the actor's message type.

use throng::{Address, Context, ExitReason, Handle, Message, Process};

use super::super::service::throng::Throng;
use super::{Actor, ActorContext, ActorHost};
use crate::runtimes;

pub(in super::super) struct Inbox<A>(A);

impl<A: Actor<Throng>> Process for Inbox<A> {
    async fn started(&mut self, mut cx: &mut Context<Self>) {
        self.0.started(&mut cx);
    }
}

struct Tell<M>(M);

impl<M: Send + 'static> Message for Tell<M> {
    type Reply = ();
}

impl<A: Actor<Throng>> Handle<Tell<A::Message>> for Inbox<A> {
    async fn handle(&mut self, Tell(message): Tell<A::Message>, mut cx: &mut Context<Self>) {
        self.0.handle(message, &mut cx);
    }
}

impl<A: Actor<Throng>> ActorContext<Throng, A> for &mut Context<Inbox<A>> {
    fn address(&self) -> Address<Inbox<A>> {
        Context::address(self)
    }

    fn tell_self(&mut self, message: A::Message) {
        Throng::tell(&Context::address(self), message);
    }

    fn start<B: Actor<Throng>>(&mut self, actor: B) -> Address<Inbox<B>> {
        runtimes::throng::start(Context::runtime(self), Inbox(actor))
    }

    fn stop(&mut self) {
        Context::stop(self, ExitReason::Normal);
    }
}

impl ActorHost for Throng {
    type ActorAddress<A: Actor<Self>> = Address<Inbox<A>>;

    fn start_actor<A: Actor<Self>>(&self, actor: A) -> Address<Inbox<A>> {
        runtimes::throng::start(&self.runtime, Inbox(actor))
    }

    fn tell<A: Actor<Self>>(to: &Address<Inbox<A>>, message: A::Message) {
        let _ = to.send(Tell(message));
    }
}
