//! tokio as `#[tokio::main]` starts it, with the number of workers set; a process is a task that owns the receiver of an
//! unbounded channel, and ends when its last sender is dropped. The reply to a call comes by a oneshot. The row
//! `tokio-current-thread` runs all tasks on the thread that started it, as `#[tokio::main(flavor = "current_thread")]`
//! does, and in `tokio-recv-many` a task takes several messages at once.

use std::io;
use std::marker::PhantomData;
use std::time::Duration;

use tokio::runtime::{Builder, Runtime};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};

use super::{AnyWork, Measured, Work};
use crate::host::{Actor, ActorContext, ActorHost, Host, Next, Pause, Receiver, Service, Timed};
use crate::settings::Settings;
use crate::workloads::timers::{Owner, SLICE_MESSAGE, Timers, fire};

/// Starts the runtime and runs the workload in a task, which spawns and wakes other tasks more cheaply than the future of
/// `block_on`, whose thread is not a worker; or as that future if it is `outside`.
pub(crate) fn drive<F: Work>(
    settings: &Settings,
    outside: bool,
    work: impl FnOnce(Settings) -> F,
) -> Measured {
    drive_on(&runtime(settings)?, outside, Box::pin(work(settings.clone())))
}

/// The same for a row that may be `tokio-current-thread`.
pub(crate) fn drive_row<F: Work>(
    row: &str,
    settings: &Settings,
    outside: bool,
    work: impl FnOnce(Settings) -> F,
) -> Measured {
    if row != "tokio-current-thread" {
        return drive(settings, outside, work);
    }
    let runtime = Builder::new_current_thread().enable_all().build()?;
    drive_on(&runtime, outside, Box::pin(work(settings.clone())))
}

fn drive_on(runtime: &Runtime, outside: bool, work: AnyWork) -> Measured {
    if outside {
        return runtime.block_on(work);
    }
    runtime.block_on(async { tokio::spawn(work).await.map_err(io::Error::other)? })
}

/// Starts a tokio runtime; also for the runtimes built on tokio.
pub(super) fn runtime(settings: &Settings) -> io::Result<Runtime> {
    Builder::new_multi_thread().worker_threads(settings.workers).enable_all().build()
}

/// tokio, with the way in which each task takes messages out of its channel.
#[derive(Clone)]
pub(crate) struct Tokio<T>(pub(crate) T);

/// A way to take messages out of a channel.
pub(crate) trait Take: Clone + Send + Sync + 'static {
    /// Passes each message to `handle`, until no sender is left or `handle` ends the task.
    fn take_all<M: Send + 'static, P: Pause>(
        inbox: UnboundedReceiver<M>,
        handle: impl FnMut(M) -> Next<P> + Send,
    ) -> impl Future<Output = ()> + Send;
}

/// `recv`: a message at a time.
#[derive(Clone)]
pub(crate) struct Recv;

impl Take for Recv {
    async fn take_all<M: Send + 'static, P: Pause>(
        mut inbox: UnboundedReceiver<M>,
        mut handle: impl FnMut(M) -> Next<P> + Send,
    ) {
        while let Some(message) = inbox.recv().await {
            match handle(message) {
                Next::Message => {}
                Next::Wait(pause) => pause.wait().await,
                Next::Stop => return,
            }
        }
    }
}

/// `recv_many`: as many messages as there are, up to [`RecvMany::LIMIT`].
#[derive(Clone)]
pub(crate) struct RecvMany;

impl RecvMany {
    /// Number of messages taken at once, at most: half of tokio's budget of operations per poll.
    const LIMIT: usize = 64;
}

impl Take for RecvMany {
    async fn take_all<M: Send + 'static, P: Pause>(
        mut inbox: UnboundedReceiver<M>,
        mut handle: impl FnMut(M) -> Next<P> + Send,
    ) {
        let mut messages = Vec::new();
        while inbox.recv_many(&mut messages, Self::LIMIT).await > 0 {
            for message in messages.drain(..) {
                match handle(message) {
                    Next::Message => {}
                    Next::Wait(pause) => pause.wait().await,
                    Next::Stop => return,
                }
            }
        }
    }
}

pub(crate) struct Request {
    value: u64,
    reply: oneshot::Sender<u64>,
}

impl<T: Take> Host for Tokio<T> {
    type Address<R: Receiver> = UnboundedSender<R::Message>;
    type ServiceAddress<S: Service> = UnboundedSender<Request>;
    type TimedAddress<W: Timed> = UnboundedSender<W::Message>;

    async fn start<R: Receiver>(&self, mut receiver: R) -> io::Result<Self::Address<R>> {
        let (mailbox, inbox) = unbounded_channel();
        tokio::spawn(T::take_all(inbox, move |message| receiver.receive(message)));
        Ok(mailbox)
    }

    fn send<R: Receiver>(to: &Self::Address<R>, message: R::Message) {
        let _ = to.send(message);
    }

    async fn serve<S: Service>(&self, service: S) -> UnboundedSender<Request> {
        let (mailbox, requests) = unbounded_channel::<Request>();
        tokio::spawn(T::take_all(requests, move |request| {
            // If the caller has given up, it counts the reply as missing.
            let _ = request.reply.send(service.reply(request.value));
            Next::<std::convert::Infallible>::Message
        }));
        mailbox
    }

    async fn call<S: Service>(
        &self,
        service: &UnboundedSender<Request>,
        value: u64,
    ) -> Option<u64> {
        let (reply, answer) = oneshot::channel();
        service.send(Request { value, reply }).ok()?;
        answer.await.ok()
    }

    async fn start_timed<W: Timed>(&self, mut timed: W) -> Self::TimedAddress<W> {
        let (mailbox, mut inbox) = unbounded_channel();
        tokio::spawn(async move {
            timed.begin();
            let limit = loop {
                if let Some(limit) = timed.waits() {
                    break limit;
                }
                match inbox.recv().await {
                    Some(message) => timed.receive(message),
                    None => return,
                }
            };
            if timeout(limit, inbox.recv()).await.is_err() {
                timed.time_out();
            }
        });
        mailbox
    }

    fn send_timed<W: Timed>(to: &Self::TimedAddress<W>, message: W::Message) {
        let _ = to.send(message);
    }
}

struct Turn<T, M> {
    mailbox: UnboundedSender<M>,
    is_last: bool,
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
        self.is_last = true;
    }
}

fn start<T: Take, A: Actor<Tokio<T>>>(mut actor: A) -> UnboundedSender<A::Message> {
    let (mailbox, inbox) = unbounded_channel();
    let mut turn = Turn { mailbox: mailbox.clone(), is_last: false, take: PhantomData::<T> };
    tokio::spawn(async move {
        actor.started(&mut turn);
        if !turn.is_last {
            let handle = |message| {
                actor.handle(message, &mut turn);
                let next: Next = if turn.is_last { Next::Stop } else { Next::Message };
                next
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

    async fn run(&self, client: impl Future<Output = ()> + Send + 'static) {
        tokio::spawn(client);
    }
}

/// The timers of the row `tokio-sleep` in `timers`: a task for each, which sleeps and then sends a message.
struct Sleeps(UnboundedSender<u64>);

impl Timers for Sleeps {
    type Timer = JoinHandle<()>;

    fn start(&mut self, delay: Duration, number: u64) -> JoinHandle<()> {
        let myself = self.0.clone();
        tokio::spawn(async move {
            sleep(delay).await;
            let _ = myself.send(number);
        })
    }

    fn cancel(&mut self, timer: JoinHandle<()>) -> bool {
        timer.abort();
        true
    }
}

pub(crate) fn start_owner() {
    let (sender, mut mailbox) = unbounded_channel();
    let _ = sender.send(SLICE_MESSAGE);
    tokio::spawn(async move {
        let (mut owner, mut timers) = (Owner::new(), Sleeps(sender));
        while let Some(message) = mailbox.recv().await {
            if message != SLICE_MESSAGE {
                fire(message);
            } else if owner.slice(&mut timers) {
                let _ = timers.0.send(SLICE_MESSAGE);
            }
        }
    });
}
