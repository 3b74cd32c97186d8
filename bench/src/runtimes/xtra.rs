//! xtra on tokio as `#[tokio::main]` starts it, with the number of workers set. Every mailbox is unbounded, and an actor
//! stops when its last address is dropped. A message that awaits no reply is detached, and queued by the first poll.

use std::io;

use futures_util::FutureExt;
use tokio::time::timeout;
use xtra::{Address, Context, Handler, Mailbox};

use super::{AnyWork, Measured, Work};
use crate::host::{Host, Next, Pause, Receiver, Service, Timed};
use crate::settings::Settings;

#[derive(Clone)]
pub(crate) struct Xtra;

pub(crate) fn drive<F: Work>(
    settings: &Settings,
    work: impl FnOnce(Xtra, Settings) -> F,
) -> Measured {
    let work = Drive(Box::pin(work(Xtra, settings.clone())));
    super::tokio::runtime(settings)?.block_on(async { start(Plain(Driver)).send(work).await? })
}

fn start<A: xtra::Actor<Stop = ()>>(actor: A) -> Address<A> {
    xtra::spawn_tokio(actor, Mailbox::unbounded())
}

/// An actor without hooks.
pub(crate) struct Plain<T>(T);

impl<T: Send + 'static> xtra::Actor for Plain<T> {
    type Stop = ();

    async fn stopped(self) {}
}

struct Driver;

struct Drive(AnyWork);

impl Handler<Drive> for Plain<Driver> {
    type Return = Measured;

    async fn handle(&mut self, Drive(work): Drive, _: &mut Context<Self>) -> Measured {
        work.await
    }
}

struct Tell<M>(M);

impl<R: Receiver> Handler<Tell<R::Message>> for Plain<R> {
    type Return = ();

    async fn handle(&mut self, Tell(message): Tell<R::Message>, context: &mut Context<Self>) {
        match self.0.receive(message) {
            Next::Message => {}
            Next::Wait(pause) => pause.wait().await,
            Next::Stop => context.stop_self(),
        }
    }
}

struct Request(u64);

impl<S: Service> Handler<Request> for Plain<S> {
    type Return = u64;

    async fn handle(&mut self, Request(value): Request, _: &mut Context<Self>) -> u64 {
        self.0.reply(value)
    }
}

/// An actor with an event loop of its own, in which the next message has a time-out at last.
pub(crate) struct Waiter<T>(T);

impl<T: Timed> xtra::Actor for Waiter<T> {
    type Stop = ();

    async fn stopped(self) {}
}

impl<T: Timed> Handler<Tell<T::Message>> for Waiter<T> {
    type Return = ();

    async fn handle(&mut self, Tell(message): Tell<T::Message>, _: &mut Context<Self>) {
        self.0.receive(message);
    }
}

async fn run_timed<T: Timed>(mut waiter: Waiter<T>, mailbox: Mailbox<Waiter<T>>) {
    waiter.0.begin();
    loop {
        let message = match waiter.0.waits() {
            None => mailbox.next().await,
            Some(limit) => match timeout(limit, mailbox.next()).await {
                Ok(message) => message,
                Err(_) => return waiter.0.time_out(),
            },
        };
        if message.dispatch_to(&mut waiter).await.is_break() {
            return;
        }
    }
}

impl Host for Xtra {
    type Address<R: Receiver> = Address<Plain<R>>;
    type ServiceAddress<S: Service> = Address<Plain<S>>;
    type TimedAddress<T: Timed> = Address<Waiter<T>>;

    async fn start<R: Receiver>(&self, receiver: R) -> io::Result<Self::Address<R>> {
        Ok(start(Plain(receiver)))
    }

    fn send<R: Receiver>(to: &Self::Address<R>, message: R::Message) {
        let _ = to.send(Tell(message)).detach().now_or_never();
    }

    async fn serve<S: Service>(&self, service: S) -> Self::ServiceAddress<S> {
        start(Plain(service))
    }

    async fn call<S: Service>(&self, service: &Self::ServiceAddress<S>, value: u64) -> Option<u64> {
        service.send(Request(value)).await.ok()
    }

    async fn start_timed<T: Timed>(&self, timed: T) -> Self::TimedAddress<T> {
        let (address, mailbox) = Mailbox::unbounded();
        tokio::spawn(run_timed(Waiter(timed), mailbox));
        address
    }

    fn send_timed<T: Timed>(to: &Self::TimedAddress<T>, message: T::Message) {
        let _ = to.send(Tell(message)).detach().now_or_never();
    }
}
