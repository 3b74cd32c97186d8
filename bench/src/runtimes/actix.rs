//! actix with a single arbiter: an actor stays on the thread of the arbiter that started it, and `System` has a single
//! arbiter. In the row `actix-arbiters` there are as many arbiters as workers, and each process is on the next.
//!
//! - `do_send` ignores the mailbox's capacity. An actor stops when its last address is dropped. While a receiver pauses,
//!   its context waits, so that the actor takes no message.
//! - An [`Actor`] of a workload keeps the addresses of the actors that it has started, because an actix actor exits when
//!   nobody has its address: one on another arbiter perhaps before it has run.

use std::any::Any;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use actix::{
    ActorContext as _, Addr, Arbiter, ArbiterHandle, AsyncContext, Context, Handler, Message,
    ResponseFuture, SpawnHandle, System, WrapFuture,
};

use super::{AnyWork, Measured, Work};
use crate::host::{Actor, ActorContext, ActorHost, Host, Next, Pause, Receiver, Service, Timed};
use crate::outcome::Outcome;
use crate::settings::Settings;
use crate::workloads::timers::{Owner, SLICE_MESSAGE, Timers, fire};

// Numbers of actors started, by sort.
static RECEIVERS: AtomicUsize = AtomicUsize::new(0);
static SERVICES: AtomicUsize = AtomicUsize::new(0);
static CLIENTS: AtomicUsize = AtomicUsize::new(0);
static ACTORS: AtomicUsize = AtomicUsize::new(0);

/// actix, with the arbiters among which it spreads actors; none if they stay on the thread of the caller.
#[derive(Clone)]
pub(crate) struct Actix(Arc<[ArbiterHandle]>);

impl Actix {
    /// Starts an actor on the next arbiter after that of the last of its sort, so that a service and its client share
    /// a thread.
    fn start_next<A: actix::Actor<Context = Context<A>> + Send>(
        &self,
        started: &AtomicUsize,
        actor: A,
    ) -> Addr<A> {
        if self.0.is_empty() {
            return actor.start();
        }
        let next = started.fetch_add(1, Ordering::Relaxed) % self.0.len();
        A::start_in_arbiter(&self.0[next], |_| actor)
    }
}

/// Starts the system, with so many arbiters, and runs the workload as the handler of an actor, or as the future of
/// `block_on` if it is `outside`.
pub(crate) fn drive<F: Work>(
    settings: &Settings,
    arbiters: usize,
    outside: bool,
    work: impl FnOnce(Actix, Settings) -> F,
) -> Measured {
    let settings = settings.clone();
    System::new().block_on(async {
        let mut handles = Vec::new();
        if arbiters > 1 {
            handles.push(Arbiter::current());
        }
        for _ in 1..arbiters {
            handles.push(Arbiter::try_new()?.handle());
        }
        let work: AnyWork = Box::pin(work(Actix(handles.into()), settings));
        if outside {
            return work.await;
        }
        actix::Actor::start(Driver).send(Drive(work)).await?
    })
}

struct Driver;

impl actix::Actor for Driver {
    type Context = Context<Self>;
}

#[derive(Message)]
#[rtype(result = "Measured")]
struct Drive(AnyWork);

impl Handler<Drive> for Driver {
    type Result = ResponseFuture<Measured>;

    fn handle(&mut self, Drive(workload): Drive, _: &mut Context<Self>) -> Self::Result {
        workload
    }
}

#[derive(Message)]
#[rtype(result = "()")]
pub(crate) struct Tell<M>(M);

pub(crate) struct Inbox<R>(R);

impl<R: Receiver> actix::Actor for Inbox<R> {
    type Context = Context<Self>;
}

impl<R: Receiver> Handler<Tell<R::Message>> for Inbox<R> {
    type Result = ();

    fn handle(&mut self, Tell(message): Tell<R::Message>, context: &mut Context<Self>) {
        match self.0.receive(message) {
            Next::Message => {}
            Next::Wait(pause) => context.wait(pause.wait().into_actor(self)),
            Next::Stop => context.stop(),
        }
    }
}

pub(crate) struct Server<S>(S);

impl<S: Service> actix::Actor for Server<S> {
    type Context = Context<Self>;
}

#[derive(Message)]
#[rtype(result = "u64")]
struct Request(u64);

impl<S: Service> Handler<Request> for Server<S> {
    type Result = u64;

    fn handle(&mut self, Request(value): Request, _: &mut Context<Self>) -> u64 {
        self.0.reply(value)
    }
}

/// An actor that stops when its `run_later` timer fires, the nearest equivalent of a receive with a time-out.
pub(crate) struct Waiter<T>(T);

impl<T: Timed> Waiter<T> {
    fn wait(&mut self, context: &mut Context<Self>) {
        if let Some(timeout) = self.0.waits() {
            context.run_later(timeout, |waiter, context| {
                waiter.0.time_out();
                context.stop();
            });
        }
    }
}

impl<T: Timed> actix::Actor for Waiter<T> {
    type Context = Context<Self>;

    fn started(&mut self, context: &mut Context<Self>) {
        self.0.begin();
        self.wait(context);
    }
}

impl<T: Timed> Handler<Tell<T::Message>> for Waiter<T> {
    type Result = ();

    fn handle(&mut self, Tell(message): Tell<T::Message>, context: &mut Context<Self>) {
        self.0.receive(message);
        self.wait(context);
    }
}

impl Host for Actix {
    type Address<R: Receiver> = Addr<Inbox<R>>;
    type ServiceAddress<S: Service> = Addr<Server<S>>;
    type TimedAddress<T: Timed> = Addr<Waiter<T>>;

    async fn start<R: Receiver>(&self, receiver: R) -> io::Result<Self::Address<R>> {
        Ok(self.start_next(&RECEIVERS, Inbox(receiver)))
    }

    async fn start_part<R: Receiver>(
        &self,
        index: u64,
        of: u64,
        receiver: R,
    ) -> io::Result<Self::Address<R>> {
        let arbiter = self.0.get((index * self.0.len() as u64 / of) as usize);
        Ok(match arbiter {
            Some(arbiter) => actix::Actor::start_in_arbiter(arbiter, |_| Inbox(receiver)),
            None => actix::Actor::start(Inbox(receiver)),
        })
    }

    fn send<R: Receiver>(to: &Self::Address<R>, message: R::Message) {
        to.do_send(Tell(message));
    }

    async fn serve<S: Service>(&self, service: S) -> Self::ServiceAddress<S> {
        self.start_next(&SERVICES, Server(service))
    }

    async fn call<S: Service>(&self, service: &Self::ServiceAddress<S>, value: u64) -> Option<u64> {
        service.send(Request(value)).await.ok()
    }

    async fn start_timed<T: Timed>(&self, timed: T) -> Self::TimedAddress<T> {
        self.start_next(&RECEIVERS, Waiter(timed))
    }

    fn send_timed<T: Timed>(to: &Self::TimedAddress<T>, message: T::Message) {
        to.do_send(Tell(message));
    }
}

pub(crate) struct ActorInbox<A> {
    actor: A,
    host: Actix,
    started: Vec<Box<dyn Any + Send>>,
}

impl<A: Actor<Actix>> actix::Actor for ActorInbox<A> {
    type Context = Context<Self>;

    fn started(&mut self, context: &mut Context<Self>) {
        let ActorInbox { actor, host, started } = self;
        actor.started(&mut Turn { context, host, started });
    }
}

impl<A: Actor<Actix>> Handler<Tell<A::Message>> for ActorInbox<A> {
    type Result = ();

    fn handle(&mut self, Tell(message): Tell<A::Message>, context: &mut Context<Self>) {
        let ActorInbox { actor, host, started } = self;
        actor.handle(message, &mut Turn { context, host, started });
    }
}

struct Turn<'a, A: Actor<Actix>> {
    context: &'a mut Context<ActorInbox<A>>,
    host: &'a Actix,
    started: &'a mut Vec<Box<dyn Any + Send>>,
}

impl<A: Actor<Actix>> ActorContext<Actix, A> for Turn<'_, A> {
    fn address(&self) -> Addr<ActorInbox<A>> {
        self.context.address()
    }

    fn tell_self(&mut self, message: A::Message) {
        self.context.address().do_send(Tell(message));
    }

    fn start<B: Actor<Actix>>(&mut self, actor: B) -> Addr<ActorInbox<B>> {
        let address = self.host.start_actor(actor);
        self.started.push(Box::new(address.clone()));
        address
    }

    fn stop(&mut self) {
        self.context.stop();
    }
}

impl ActorHost for Actix {
    type ActorAddress<A: Actor<Self>> = Addr<ActorInbox<A>>;

    fn start_actor<A: Actor<Self>>(&self, actor: A) -> Addr<ActorInbox<A>> {
        self.start_next(&ACTORS, ActorInbox { actor, host: self.clone(), started: Vec::new() })
    }

    fn tell<A: Actor<Self>>(to: &Addr<ActorInbox<A>>, message: A::Message) {
        to.do_send(Tell(message));
    }

    async fn run(&self, client: impl Future<Output = ()> + Send + 'static) {
        self.start_next(&CLIENTS, Driver).do_send(Drive(Box::pin(async {
            client.await;
            Ok(Outcome::default())
        })));
    }
}

impl actix::Actor for Owner<SpawnHandle> {
    type Context = Context<Self>;
}

impl Handler<Tell<u64>> for Owner<SpawnHandle> {
    type Result = ();

    fn handle(&mut self, Tell(message): Tell<u64>, context: &mut Context<Self>) {
        if message != SLICE_MESSAGE {
            fire(message);
        } else if self.slice(&mut OwnTimers(context)) {
            context.address().do_send(Tell(SLICE_MESSAGE));
        }
    }
}

struct OwnTimers<'a>(&'a mut Context<Owner<SpawnHandle>>);

impl Timers for OwnTimers<'_> {
    type Timer = SpawnHandle;

    fn start(&mut self, delay: Duration, number: u64) -> SpawnHandle {
        self.0.run_later(delay, move |_, _| fire(number))
    }

    fn cancel(&mut self, timer: SpawnHandle) -> bool {
        self.0.cancel_future(timer)
    }
}

pub(crate) fn start_owner() {
    actix::Actor::start(Owner::new()).do_send(Tell(SLICE_MESSAGE));
}
