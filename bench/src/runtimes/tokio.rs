//! tokio as `#[tokio::main]` starts it, with the number of workers set; a process is a task that owns the receiver of an
//! unbounded channel, and ends when its last sender is dropped. The reply to a call comes by a oneshot.
//!
//! | row | channel | reply |
//! |---|---|---|
//! | `tokio` | tokio's, a message at a time | tokio's oneshot |
//! | `tokio-recv-many` | tokio's, several messages at once | tokio's oneshot |
//! | `tokio-kanal` | kanal's | the crate oneshot |
//! | `tokio-futures` | that of `futures` | the crate oneshot |
//! | `tokio-cores` | tokio's, between runtimes of one thread each | tokio's oneshot |
//!
//! The rows that end with `current-thread` run all tasks on the thread that started them, as
//! `#[tokio::main(flavor = "current_thread")]` does.

use std::io;
use std::pin::pin;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use futures_channel::mpsc;
use futures_util::StreamExt;
use tokio::runtime::{Builder, Handle, Runtime};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, timeout};

use super::{AnyWork, Measured, Work};
use crate::host::{Actor, ActorContext, ActorHost, Host, Next, Pause, Receiver, Service, Timed};
use crate::settings::Settings;
use crate::workloads::timers::{Owner, SLICE_MESSAGE, Timers, fire};
use crate::workloads::traffic::{self, Desk, DeskHost};

/// Starts the runtime and runs the workload in a task, which spawns and wakes other tasks more cheaply than the future of
/// `block_on`, whose thread is not a worker; or as that future if it is `outside`.
pub(crate) fn drive<F: Work>(
    settings: &Settings,
    outside: bool,
    work: impl FnOnce(Settings) -> F,
) -> Measured {
    drive_on(&runtime(settings)?, outside, Box::pin(work(settings.clone())))
}

/// The same for a row that may be on the current thread.
pub(crate) fn drive_row<F: Work>(
    row: &str,
    settings: &Settings,
    outside: bool,
    work: impl FnOnce(Settings) -> F,
) -> Measured {
    if !row.ends_with("-current-thread") {
        return drive(settings, outside, work);
    }
    let runtime = Builder::new_current_thread().enable_all().build()?;
    drive_on(&runtime, outside, Box::pin(work(settings.clone())))
}

/// The same for a workload that is written for hosts, with the channel of the row.
pub(crate) fn drive_host<C: Channel, F: Work>(
    row: &str,
    channel: C,
    settings: &Settings,
    outside: bool,
    work: impl FnOnce(Tokio<C>, Settings) -> F,
) -> Measured {
    drive_row(row, settings, outside, |settings| work(Tokio(channel), settings))
}

fn drive_on(runtime: &Runtime, outside: bool, work: AnyWork) -> Measured {
    if outside {
        return runtime.block_on(work);
    }
    runtime.block_on(async { tokio::spawn(work).await? })
}

/// Starts a tokio runtime; also for the runtimes built on tokio.
pub(super) fn runtime(settings: &Settings) -> io::Result<Runtime> {
    Builder::new_multi_thread().worker_threads(settings.workers).enable_all().build()
}

/// tokio, with the channel through which each task receives its messages.
#[derive(Clone)]
pub(crate) struct Tokio<C>(C);

/// A channel from which a task receives its messages, and by which it replies.
pub(crate) trait Channel: Clone + Send + Sync + 'static {
    type Sender<M: Send + 'static>: Clone + Send + Sync + Unpin + 'static;
    type Inbox<M: Send + 'static>: Send;
    type Reply: Send + 'static;

    fn open<M: Send + 'static>() -> (Self::Sender<M>, Self::Inbox<M>);

    /// Sends a message; `None` if the task has ended.
    fn send<M: Send + 'static>(to: &Self::Sender<M>, message: M) -> Option<()>;

    /// Receives a message; `None` if no sender is left.
    fn receive<M: Send + 'static>(
        inbox: &mut Self::Inbox<M>,
    ) -> impl Future<Output = Option<M>> + Send;

    /// Passes each message to `handle`, until no sender is left or `handle` ends the task.
    fn receive_all<M: Send + 'static, P: Pause>(
        inbox: Self::Inbox<M>,
        handle: impl FnMut(M) -> Next<P> + Send,
    ) -> impl Future<Output = ()> + Send {
        receive_each::<Self, M, P>(inbox, handle)
    }

    fn open_reply() -> (Self::Reply, impl Future<Output = Option<u64>> + Send);

    /// Replies. If the caller has given up, it counts the reply as missing.
    fn reply(to: Self::Reply, value: u64);

    fn spawn(_: Place, task: impl Future<Output = ()> + Send + 'static) {
        tokio::spawn(task);
    }
}

/// The place of a task where runtimes share the work.
pub(crate) enum Place {
    /// The runtime after that of the last of its sort, so that a service and its client share a thread.
    Next(&'static AtomicUsize),
    /// That of a part of several, of which those that follow each other talk the most.
    Part(u64, u64),
}

// Numbers of tasks started, by sort.
static RECEIVERS: AtomicUsize = AtomicUsize::new(0);
static SERVICES: AtomicUsize = AtomicUsize::new(0);
static CLIENTS: AtomicUsize = AtomicUsize::new(0);

async fn receive_each<C: Channel, M: Send + 'static, P: Pause>(
    mut inbox: C::Inbox<M>,
    mut handle: impl FnMut(M) -> Next<P> + Send,
) {
    while let Some(message) = C::receive(&mut inbox).await {
        match handle(message) {
            Next::Message => {}
            Next::Wait(pause) => pause.wait().await,
            Next::Stop => return,
        }
    }
}

/// tokio's channel and its oneshot, in one of the following ways.
#[derive(Clone)]
pub(crate) struct OfTokio<const WAY: u8>;

/// A task takes one message at a time out of its channel.
pub(crate) const EACH: u8 = 0;
/// A task takes several messages at once.
pub(crate) const MANY: u8 = 1;
/// A task belongs to one of several runtimes that have a thread each.
pub(crate) const BY_CORE: u8 = 2;

impl<const WAY: u8> OfTokio<WAY> {
    /// Number of messages taken at once, at most: half of tokio's budget of operations per poll.
    const LIMIT: usize = 64;
}

impl<const WAY: u8> Channel for OfTokio<WAY> {
    type Sender<M: Send + 'static> = UnboundedSender<M>;
    type Inbox<M: Send + 'static> = UnboundedReceiver<M>;
    type Reply = oneshot::Sender<u64>;

    fn open<M: Send + 'static>() -> (Self::Sender<M>, Self::Inbox<M>) {
        unbounded_channel()
    }

    fn send<M: Send + 'static>(to: &Self::Sender<M>, message: M) -> Option<()> {
        to.send(message).ok()
    }

    async fn receive<M: Send + 'static>(inbox: &mut Self::Inbox<M>) -> Option<M> {
        inbox.recv().await
    }

    async fn receive_all<M: Send + 'static, P: Pause>(
        mut inbox: Self::Inbox<M>,
        mut handle: impl FnMut(M) -> Next<P> + Send,
    ) {
        if WAY != MANY {
            return receive_each::<Self, M, P>(inbox, handle).await;
        }
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

    fn open_reply() -> (Self::Reply, impl Future<Output = Option<u64>> + Send) {
        let (reply, answer) = oneshot::channel();
        (reply, async { answer.await.ok() })
    }

    fn reply(to: Self::Reply, value: u64) {
        let _ = to.send(value);
    }

    fn spawn(place: Place, task: impl Future<Output = ()> + Send + 'static) {
        if WAY != BY_CORE {
            tokio::spawn(task);
            return;
        }
        let cores = CORES.get().map_or(&[][..], Vec::as_slice);
        let core = match place {
            Place::Next(started) => started.fetch_add(1, Ordering::Relaxed) % cores.len(),
            Place::Part(index, of) => (index * cores.len() as u64 / of) as usize,
        };
        cores[core].spawn(task);
    }
}

/// The runtimes of [`BY_CORE`].
static CORES: OnceLock<Vec<Handle>> = OnceLock::new();

/// Starts a runtime on a thread for each worker, and runs the workload in a task of the first.
pub(crate) fn drive_cores<F: Work>(
    settings: &Settings,
    work: impl FnOnce(Tokio<OfTokio<BY_CORE>>, Settings) -> F,
) -> Measured {
    let work: AnyWork = Box::pin(work(Tokio(OfTokio), settings.clone()));
    thread::scope(|scope| {
        let (mut handles, mut stops) = (Vec::new(), Vec::new());
        for _ in 0..settings.workers {
            let runtime = Builder::new_current_thread().enable_all().build()?;
            // The thread ends when the sender is dropped.
            let (stop, stopped) = oneshot::channel::<()>();
            handles.push(runtime.handle().clone());
            stops.push(stop);
            thread::Builder::new().spawn_scoped(scope, move || runtime.block_on(stopped))?;
        }
        let first = CORES.get_or_init(|| handles)[0].clone();
        first.block_on(first.spawn(work))?
    })
}

/// kanal's channel, and the oneshot of the crate of that name.
#[derive(Clone)]
pub(crate) struct Kanal;

impl Channel for Kanal {
    type Sender<M: Send + 'static> = kanal::AsyncSender<M>;
    type Inbox<M: Send + 'static> = kanal::AsyncReceiver<M>;
    type Reply = ::oneshot::Sender<u64>;

    fn open<M: Send + 'static>() -> (Self::Sender<M>, Self::Inbox<M>) {
        kanal::unbounded_async()
    }

    fn send<M: Send + 'static>(to: &Self::Sender<M>, message: M) -> Option<()> {
        // An unbounded channel takes it at once.
        to.as_sync().send(message).ok()
    }

    async fn receive<M: Send + 'static>(inbox: &mut Self::Inbox<M>) -> Option<M> {
        inbox.recv().await.ok()
    }

    fn open_reply() -> (Self::Reply, impl Future<Output = Option<u64>> + Send) {
        reply_by_oneshot()
    }

    fn reply(to: Self::Reply, value: u64) {
        let _ = to.send(value);
    }
}

/// The channel of `futures`, and the oneshot of the crate of that name.
#[derive(Clone)]
pub(crate) struct Futures;

impl Channel for Futures {
    type Sender<M: Send + 'static> = mpsc::UnboundedSender<M>;
    type Inbox<M: Send + 'static> = mpsc::UnboundedReceiver<M>;
    type Reply = ::oneshot::Sender<u64>;

    fn open<M: Send + 'static>() -> (Self::Sender<M>, Self::Inbox<M>) {
        mpsc::unbounded()
    }

    fn send<M: Send + 'static>(to: &Self::Sender<M>, message: M) -> Option<()> {
        to.unbounded_send(message).ok()
    }

    async fn receive<M: Send + 'static>(inbox: &mut Self::Inbox<M>) -> Option<M> {
        inbox.next().await
    }

    fn open_reply() -> (Self::Reply, impl Future<Output = Option<u64>> + Send) {
        reply_by_oneshot()
    }

    fn reply(to: Self::Reply, value: u64) {
        let _ = to.send(value);
    }
}

fn reply_by_oneshot() -> (::oneshot::Sender<u64>, impl Future<Output = Option<u64>> + Send) {
    let (reply, answer) = ::oneshot::channel();
    (reply, async { answer.await.ok() })
}

pub(crate) struct Request<R> {
    value: u64,
    reply: R,
}

impl<C: Channel> Host for Tokio<C> {
    type Address<R: Receiver> = C::Sender<R::Message>;
    type ServiceAddress<S: Service> = C::Sender<Request<C::Reply>>;
    type TimedAddress<W: Timed> = C::Sender<W::Message>;

    async fn start<R: Receiver>(&self, mut receiver: R) -> io::Result<Self::Address<R>> {
        let (mailbox, inbox) = C::open();
        C::spawn(
            Place::Next(&RECEIVERS),
            C::receive_all(inbox, move |message| receiver.receive(message)),
        );
        Ok(mailbox)
    }

    async fn start_part<R: Receiver>(
        &self,
        index: u64,
        of: u64,
        mut receiver: R,
    ) -> io::Result<Self::Address<R>> {
        let (mailbox, inbox) = C::open();
        let task = C::receive_all(inbox, move |message| receiver.receive(message));
        C::spawn(Place::Part(index, of), task);
        Ok(mailbox)
    }

    fn send<R: Receiver>(to: &Self::Address<R>, message: R::Message) {
        C::send(to, message);
    }

    async fn serve<S: Service>(&self, service: S) -> Self::ServiceAddress<S> {
        let (mailbox, requests) = C::open::<Request<C::Reply>>();
        let task = C::receive_all(requests, move |request| {
            C::reply(request.reply, service.reply(request.value));
            Next::<std::convert::Infallible>::Message
        });
        C::spawn(Place::Next(&SERVICES), task);
        mailbox
    }

    async fn call<S: Service>(&self, service: &Self::ServiceAddress<S>, value: u64) -> Option<u64> {
        let (reply, answer) = C::open_reply();
        C::send(service, Request { value, reply })?;
        answer.await
    }

    async fn start_timed<W: Timed>(&self, mut timed: W) -> Self::TimedAddress<W> {
        let (mailbox, mut inbox) = C::open();
        tokio::spawn(async move {
            timed.begin();
            let limit = loop {
                if let Some(limit) = timed.waits() {
                    break limit;
                }
                match C::receive(&mut inbox).await {
                    Some(message) => timed.receive(message),
                    None => return,
                }
            };
            if timeout(limit, C::receive(&mut inbox)).await.is_err() {
                timed.time_out();
            }
        });
        mailbox
    }

    fn send_timed<W: Timed>(to: &Self::TimedAddress<W>, message: W::Message) {
        C::send(to, message);
    }
}

struct Turn<C: Channel, M: Send + 'static> {
    mailbox: C::Sender<M>,
    is_last: bool,
}

impl<C: Channel, A: Actor<Tokio<C>>> ActorContext<Tokio<C>, A> for Turn<C, A::Message> {
    fn address(&self) -> C::Sender<A::Message> {
        self.mailbox.clone()
    }

    fn tell_self(&mut self, message: A::Message) {
        C::send(&self.mailbox, message);
    }

    fn start<B: Actor<Tokio<C>>>(&mut self, actor: B) -> C::Sender<B::Message> {
        start::<C, B>(actor)
    }

    fn stop(&mut self) {
        self.is_last = true;
    }
}

fn start<C: Channel, A: Actor<Tokio<C>>>(mut actor: A) -> C::Sender<A::Message> {
    let (mailbox, inbox) = C::open();
    let mut turn = Turn::<C, A::Message> { mailbox: mailbox.clone(), is_last: false };
    tokio::spawn(async move {
        actor.started(&mut turn);
        if !turn.is_last {
            let handle = |message| {
                actor.handle(message, &mut turn);
                let next: Next = if turn.is_last { Next::Stop } else { Next::Message };
                next
            };
            C::receive_all(inbox, handle).await;
        }
    });
    mailbox
}

impl<C: Channel> ActorHost for Tokio<C> {
    type ActorAddress<A: Actor<Self>> = C::Sender<A::Message>;

    fn start_actor<A: Actor<Self>>(&self, actor: A) -> C::Sender<A::Message> {
        start::<C, A>(actor)
    }

    fn tell<A: Actor<Self>>(to: &C::Sender<A::Message>, message: A::Message) {
        C::send(to, message);
    }

    async fn run(&self, client: impl Future<Output = ()> + Send + 'static) {
        C::spawn(Place::Next(&CLIENTS), client);
    }
}

/// A message to a process of `traffic`, with the way to its caller if it has one.
type Asked<C> = (traffic::Request, Option<<C as Channel>::Reply>);

async fn answer<C: Channel, D: Desk>(desk: &mut D, (request, reply): Asked<C>) {
    let value = desk.handle(request).await;
    if let Some(reply) = reply {
        C::reply(reply, value);
    }
}

/// Serves with one timer, which each message moves.
async fn serve_until_idle<C: Channel, D: Desk>(
    mut desk: D,
    mut inbox: C::Inbox<Asked<C>>,
    idle: Duration,
) {
    let mut timer = pin!(sleep(idle));
    loop {
        tokio::select! {
            biased;
            asked = C::receive(&mut inbox) => match asked {
                Some(asked) => answer::<C, D>(&mut desk, asked).await,
                None => return,
            },
            () = &mut timer => return desk.time_out(),
        }
        timer.as_mut().reset(Instant::now() + idle);
    }
}

impl<C: Channel> DeskHost for Tokio<C> {
    type DeskAddress<D: Desk> = C::Sender<Asked<C>>;

    async fn open<D: Desk>(&self, mut desk: D) -> C::Sender<Asked<C>> {
        let (mailbox, mut inbox) = C::open();
        if let Some(idle) = D::idle() {
            C::spawn(Place::Next(&SERVICES), serve_until_idle::<C, D>(desk, inbox, idle));
        } else {
            C::spawn(Place::Next(&SERVICES), async move {
                while let Some(asked) = C::receive(&mut inbox).await {
                    answer::<C, D>(&mut desk, asked).await;
                }
            });
        }
        mailbox
    }

    fn post<D: Desk>(to: &C::Sender<Asked<C>>, request: traffic::Request) {
        C::send(to, (request, None));
    }

    async fn ask<D: Desk>(to: &C::Sender<Asked<C>>, request: traffic::Request) -> Option<u64> {
        let (reply, answer) = C::open_reply();
        C::send(to, (request, Some(reply)))?;
        answer.await
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
