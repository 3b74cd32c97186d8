//! smol's `Executor`, run by as many threads as there are workers, as its documentation shows; a process is a task that
//! owns the receiver of an unbounded channel, and ends when its last sender is dropped.
//!
//! - The thread that waits for the driver also runs tokio's timers, which limit the driver's waits. The executor's
//!   threads enter that tokio runtime, as the package `async-compat` does it; no process uses it.
//! - The reply to a call comes by a oneshot of `futures-channel`, because smol has none.

use std::convert::Infallible;
use std::io;
use std::thread;

use futures_channel::oneshot;
use smol::channel::{Sender, unbounded};
use smol::future::or;
use smol::{Executor, Task, Timer, block_on};
use tokio::runtime::Builder;

use super::{AnyWork, Measured, Work};
use crate::host::{Actor, ActorContext, ActorHost, Host, Next, Pause, Receiver, Service, Timed};
use crate::settings::Settings;

static EXECUTOR: Executor<'static> = Executor::new();

#[derive(Clone)]
pub(crate) struct Smol;

pub(crate) fn spawn<T: Send + 'static>(
    future: impl Future<Output = T> + Send + 'static,
) -> Task<T> {
    EXECUTOR.spawn(future)
}

pub(crate) fn drive<F: Work>(
    settings: &Settings,
    work: impl FnOnce(Smol, Settings) -> F,
) -> Measured {
    let timers = Builder::new_current_thread().enable_time().build()?;
    let (stop, stopped) = unbounded::<Infallible>();
    thread::scope(|scope| {
        for _ in 0..settings.workers {
            thread::Builder::new().spawn_scoped(scope, || {
                let _entered = timers.enter();
                // The threads end when `stop` is dropped.
                block_on(EXECUTOR.run(stopped.recv()))
            })?;
        }
        let work: AnyWork = Box::pin(work(Smol, settings.clone()));
        let measured = timers.block_on(spawn(work));
        drop(stop);
        measured
    })
}

pub(crate) struct Request {
    value: u64,
    reply: oneshot::Sender<u64>,
}

impl Host for Smol {
    type Address<R: Receiver> = Sender<R::Message>;
    type ServiceAddress<S: Service> = Sender<Request>;
    type TimedAddress<T: Timed> = Sender<T::Message>;

    async fn start<R: Receiver>(&self, mut receiver: R) -> io::Result<Sender<R::Message>> {
        let (mailbox, inbox) = unbounded();
        let process = spawn(async move {
            while let Ok(message) = inbox.recv().await {
                match receiver.receive(message) {
                    Next::Message => {}
                    Next::Wait(pause) => pause.wait().await,
                    Next::Stop => return,
                }
            }
        });
        process.detach();
        Ok(mailbox)
    }

    fn send<R: Receiver>(to: &Sender<R::Message>, message: R::Message) {
        let _ = to.try_send(message);
    }

    async fn serve<S: Service>(&self, service: S) -> Sender<Request> {
        let (mailbox, requests) = unbounded::<Request>();
        let process = spawn(async move {
            while let Ok(request) = requests.recv().await {
                // If the caller has given up, it counts the reply as missing.
                let _ = request.reply.send(service.reply(request.value));
            }
        });
        process.detach();
        mailbox
    }

    async fn call<S: Service>(&self, service: &Sender<Request>, value: u64) -> Option<u64> {
        let (reply, answer) = oneshot::channel();
        service.try_send(Request { value, reply }).ok()?;
        answer.await.ok()
    }

    async fn start_timed<T: Timed>(&self, mut timed: T) -> Sender<T::Message> {
        let (mailbox, inbox) = unbounded();
        let process = spawn(async move {
            timed.begin();
            let limit = loop {
                if let Some(limit) = timed.waits() {
                    break limit;
                }
                match inbox.recv().await {
                    Ok(message) => timed.receive(message),
                    Err(_) => return,
                }
            };
            let message = async { inbox.recv().await.ok() };
            let timeout = async {
                Timer::after(limit).await;
                None
            };
            if or(message, timeout).await.is_none() {
                timed.time_out();
            }
        });
        process.detach();
        mailbox
    }

    fn send_timed<T: Timed>(to: &Sender<T::Message>, message: T::Message) {
        let _ = to.try_send(message);
    }
}

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
        Smol.start_actor(actor)
    }

    fn stop(&mut self) {
        self.is_last = true;
    }
}

impl ActorHost for Smol {
    type ActorAddress<A: Actor<Self>> = Sender<A::Message>;

    fn start_actor<A: Actor<Self>>(&self, mut actor: A) -> Sender<A::Message> {
        let (mailbox, inbox) = unbounded();
        let mut turn = Turn { mailbox: mailbox.clone(), is_last: false };
        let process = spawn(async move {
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

    fn tell<A: Actor<Self>>(to: &Sender<A::Message>, message: A::Message) {
        let _ = to.try_send(message);
    }

    async fn run(&self, client: impl Future<Output = ()> + Send + 'static) {
        spawn(client).detach();
    }
}
