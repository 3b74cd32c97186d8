//! kameo on tokio as `#[tokio::main]` starts it, with the number of workers set. Every mailbox is unbounded; kameo's
//! default is a bound of 64 messages. A call is an `ask` without a timeout, and an actor stops when its last address is
//! dropped.

use std::convert::Infallible;
use std::io;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

use kameo::actor::{ActorId, ActorRef, Spawn, WeakActorRef};
use kameo::error::ActorStopReason;
use kameo::mailbox::{self, MailboxReceiver, Signal};
use kameo::message::{Context, Message};
use tokio::time::timeout;

use super::{AnyWork, Measured, Work};
use crate::host::{Actor, ActorContext, ActorHost, Host, Next, Pause, Receiver, Service, Timed};
use crate::outcome::Outcome;
use crate::settings::Settings;
use crate::workloads::monitors::{MonitorHost, Watch, Watched};
use crate::workloads::traffic::{self, Desk, DeskHost};

#[derive(Clone)]
pub(crate) struct Kameo;

pub(crate) fn drive<F: Work>(
    settings: &Settings,
    work: impl FnOnce(Kameo, Settings) -> F,
) -> Measured {
    let work = Drive(Box::pin(work(Kameo, settings.clone())));
    super::tokio::runtime(settings)?.block_on(async {
        let driven = start(Plain(Driver)).ask(work).await;
        Ok(driven.map_err(|error| error.to_string())?)
    })
}

/// Starts an actor with an unbounded mailbox.
fn start<A: kameo::Actor<Args = A>>(actor: A) -> ActorRef<A> {
    A::spawn_with_mailbox(actor, mailbox::unbounded())
}

/// An actor without hooks.
pub(crate) struct Plain<T>(T);

impl<T: Send + 'static> kameo::Actor for Plain<T> {
    type Args = Self;
    type Error = Infallible;

    async fn on_start(actor: Self, _: ActorRef<Self>) -> Result<Self, Infallible> {
        Ok(actor)
    }
}

struct Driver;

struct Drive(AnyWork);

impl Message<Drive> for Plain<Driver> {
    type Reply = Measured;

    async fn handle(
        &mut self,
        Drive(workload): Drive,
        _: &mut Context<Self, Self::Reply>,
    ) -> Self::Reply {
        workload.await
    }
}

pub(crate) struct Tell<M>(M);

impl<R: Receiver> Message<Tell<R::Message>> for Plain<R> {
    type Reply = ();

    async fn handle(&mut self, Tell(message): Tell<R::Message>, context: &mut Context<Self, ()>) {
        match self.0.receive(message) {
            Next::Message => {}
            Next::Wait(pause) => pause.wait().await,
            Next::Stop => context.stop(),
        }
    }
}

struct Request(u64);

impl<S: Service> Message<Request> for Plain<S> {
    type Reply = u64;

    async fn handle(&mut self, Request(value): Request, _: &mut Context<Self, u64>) -> u64 {
        self.0.reply(value)
    }
}

/// An actor whose `next` waits for its mailbox, at last with a time-out.
pub(crate) struct Waiter<T>(T, Option<Duration>);

impl<T: Timed> kameo::Actor for Waiter<T> {
    type Args = Self;
    type Error = Infallible;

    async fn on_start(mut waiter: Self, _: ActorRef<Self>) -> Result<Self, Infallible> {
        waiter.0.begin();
        waiter.1 = waiter.0.waits();
        Ok(waiter)
    }

    async fn next(
        &mut self,
        _: WeakActorRef<Self>,
        mailbox: &mut MailboxReceiver<Self>,
    ) -> Result<Option<Signal<Self>>, Infallible> {
        let Some(limit) = self.1 else { return Ok(mailbox.recv().await) };
        Ok(match timeout(limit, mailbox.recv()).await {
            Ok(signal) => signal,
            Err(_) => {
                self.0.time_out();
                // `None` stops the actor.
                None
            }
        })
    }
}

impl<T: Timed> Message<Tell<T::Message>> for Waiter<T> {
    type Reply = ();

    async fn handle(&mut self, Tell(message): Tell<T::Message>, _: &mut Context<Self, ()>) {
        self.0.receive(message);
        self.1 = self.0.waits();
    }
}

impl Host for Kameo {
    type Address<R: Receiver> = ActorRef<Plain<R>>;
    type ServiceAddress<S: Service> = ActorRef<Plain<S>>;
    type TimedAddress<T: Timed> = ActorRef<Waiter<T>>;

    async fn start<R: Receiver>(&self, receiver: R) -> io::Result<Self::Address<R>> {
        Ok(start(Plain(receiver)))
    }

    fn send<R: Receiver>(to: &Self::Address<R>, message: R::Message) {
        let _ = to.tell(Tell(message)).try_send();
    }

    async fn serve<S: Service>(&self, service: S) -> Self::ServiceAddress<S> {
        start(Plain(service))
    }

    async fn call<S: Service>(&self, service: &Self::ServiceAddress<S>, value: u64) -> Option<u64> {
        service.ask(Request(value)).await.ok()
    }

    async fn start_timed<T: Timed>(&self, timed: T) -> Self::TimedAddress<T> {
        start(Waiter(timed, None))
    }

    fn send_timed<T: Timed>(to: &Self::TimedAddress<T>, message: T::Message) {
        let _ = to.tell(Tell(message)).try_send();
    }
}

pub(crate) struct ActorInbox<A>(A);

impl<A: Actor<Kameo>> kameo::Actor for ActorInbox<A> {
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

impl<A: Actor<Kameo>> Message<Tell<A::Message>> for ActorInbox<A> {
    type Reply = ();

    async fn handle(&mut self, Tell(message): Tell<A::Message>, context: &mut Context<Self, ()>) {
        let mut turn = Turn { address: context.actor_ref(), stopped: false };
        self.0.handle(message, &mut turn);
        if turn.stopped {
            context.stop();
        }
    }
}

struct Turn<'a, A: Actor<Kameo>> {
    address: &'a ActorRef<ActorInbox<A>>,
    stopped: bool,
}

impl<A: Actor<Kameo>> ActorContext<Kameo, A> for Turn<'_, A> {
    fn address(&self) -> ActorRef<ActorInbox<A>> {
        self.address.clone()
    }

    fn tell_self(&mut self, message: A::Message) {
        Kameo::tell(self.address, message);
    }

    fn start<B: Actor<Kameo>>(&mut self, actor: B) -> ActorRef<ActorInbox<B>> {
        start(ActorInbox(actor))
    }

    fn stop(&mut self) {
        self.stopped = true;
    }
}

impl ActorHost for Kameo {
    type ActorAddress<A: Actor<Self>> = ActorRef<ActorInbox<A>>;

    fn start_actor<A: Actor<Self>>(&self, actor: A) -> ActorRef<ActorInbox<A>> {
        start(ActorInbox(actor))
    }

    fn tell<A: Actor<Self>>(to: &ActorRef<ActorInbox<A>>, message: A::Message) {
        let _ = to.tell(Tell(message)).try_send();
    }

    async fn run(&self, client: impl Future<Output = ()> + Send + 'static) {
        let work = Drive(Box::pin(async {
            client.await;
            Ok(Outcome::default())
        }));
        let _ = start(Plain(Driver)).tell(work).try_send();
    }
}

impl<D: Desk> Message<traffic::Request> for Plain<D> {
    type Reply = u64;

    async fn handle(&mut self, request: traffic::Request, _: &mut Context<Self, u64>) -> u64 {
        self.0.handle(request).await
    }
}

impl DeskHost for Kameo {
    type DeskAddress<D: Desk> = ActorRef<Plain<D>>;

    async fn open<D: Desk>(&self, desk: D) -> ActorRef<Plain<D>> {
        start(Plain(desk))
    }

    fn post<D: Desk>(to: &ActorRef<Plain<D>>, request: traffic::Request) {
        let _ = to.tell(request).try_send();
    }

    async fn ask<D: Desk>(to: &ActorRef<Plain<D>>, request: traffic::Request) -> Option<u64> {
        to.ask(request).await.ok()
    }
}

/// A watcher: `ActorRef::link`, and the hook `on_link_died`. A link goes both ways; a watcher never ends.
impl kameo::Actor for Watch<ActorId> {
    type Args = Self;
    type Error = Infallible;

    async fn on_start(watch: Self, _: ActorRef<Self>) -> Result<Self, Infallible> {
        Ok(watch)
    }

    async fn on_link_died(
        &mut self,
        _: WeakActorRef<Self>,
        id: ActorId,
        reason: ActorStopReason,
    ) -> Result<ControlFlow<ActorStopReason>, Infallible> {
        self.notify(id, reason.is_normal());
        Ok(ControlFlow::Continue(()))
    }
}

type Targets = Arc<[ActorRef<Plain<Watched>>]>;

impl Message<Tell<Targets>> for Watch<ActorId> {
    type Reply = ();

    async fn handle(&mut self, Tell(targets): Tell<Targets>, context: &mut Context<Self, ()>) {
        for target in &*targets {
            context.actor_ref().link(target).await;
        }
        self.begin();
    }
}

impl MonitorHost for Kameo {
    type Process = ActorRef<Plain<Watched>>;
    type Watcher = ActorRef<Watch<ActorId>>;
    type Id = ActorId;
    type Targets = Targets;

    async fn start_watched(&mut self) -> io::Result<Self::Process> {
        self.start(Watched).await
    }

    fn request(process: &Self::Process, ends: bool) {
        Self::send(process, ends);
    }

    fn id(&self, _: u64, process: &Self::Process) -> ActorId {
        process.id()
    }

    async fn start_watcher(&self, watch: Watch<ActorId>) -> Self::Watcher {
        start(watch)
    }

    fn targets(&mut self, processes: &[Self::Process]) -> Self::Targets {
        processes.into()
    }

    fn watch(watcher: &Self::Watcher, targets: Self::Targets) {
        let _ = watcher.tell(Tell(targets)).try_send();
    }
}
