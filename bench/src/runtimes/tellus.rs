//! tellus on tokio as `#[tokio::main]` starts it, with the number of workers set.
//!
//! - A handler in tellus is a plain function, and only the handler has the context that can spawn children. To share the
//!   workload's order, clocks and checks with the other runtimes, the driver is an actor that polls the workload's future
//!   in its handler: on the first message, on each wake and on each reply, all of which are messages to the driver. An
//!   operation that needs the context is a [`ContextTask`], which the future leaves with the handler. The handler runs
//!   the task and polls the future again, without another message.
//! - A request carries the caller's address, and the reply is a message to that address; `ask` is meant for code outside
//!   of actors and also starts a timer. An actor stops itself on a request.
//! - A process of a workload is part of its actor's value, because each start creates the state, in tellus's sense, again.

use std::convert::Infallible;
use std::future::poll_fn;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Wake, Waker};

use tellus::{Actor, ActorContext, ActorId, ActorRef, ActorSystem, Control, Incoming, Untimed};
use tokio::runtime::Handle;
use tokio::sync::oneshot;
use tokio::task::block_in_place;

use super::{AnyWork, Measured, Work};
use crate::host::{Host, Next, Pause, Receiver, Service, Timed};
use crate::settings::Settings;
use crate::workloads::monitors::{MonitorHost, Watch, Watched};

pub(crate) fn drive<F: Work>(
    settings: &Settings,
    workload: impl FnOnce(Tellus, Settings) -> F + Send + 'static,
) -> Measured {
    let settings_inside = settings.clone();
    super::tokio::runtime(settings)?.block_on(async {
        let (done, outcome) = oneshot::channel();
        let begin: StartWork = Box::new(|tellus| Box::pin(workload(tellus, settings_inside)));
        let _system = ActorSystem::new(Driver(Mutex::new(Some((begin, done)))));
        outcome.await?
    })
}

/// The host: the driver, and the slots for what it does for the workload's future.
#[derive(Clone)]
pub(crate) struct Tellus {
    driver: ActorRef<DriverMessage>,
    task: Arc<Mutex<Option<ContextTask>>>,
    reply: Arc<Mutex<Option<u64>>>,
}

impl Tellus {
    async fn spawn<A>(&self, actor: A) -> ActorRef<A::Message>
    where
        A: Actor + Send + 'static,
        A::Message: Send + 'static,
        A::State: Send + 'static,
    {
        let spawned = Arc::new(Mutex::new(None));
        let slot = spawned.clone();
        *lock(&self.task) =
            Some(Box::new(move |context| *lock(&slot) = Some(context.spawn(actor))));
        take(&spawned).await
    }
}

pub(crate) enum DriverMessage {
    Wake,
    Reply(u64),
}

/// An operation that needs the driver's context.
type ContextTask = Box<dyn FnOnce(&ActorContext<DriverMessage>) + Send>;
type StartWork = Box<dyn FnOnce(Tellus) -> AnyWork + Send>;
type Done = oneshot::Sender<Measured>;

struct Driver(Mutex<Option<(StartWork, Done)>>);

struct DriverState {
    work: AnyWork,
    tellus: Tellus,
    waker: Waker,
    done: Done,
}

impl Actor for Driver {
    type Message = DriverMessage;
    type Timers = Untimed;
    type State = DriverState;
    type Error = io::Error;

    fn init(&self, context: &ActorContext<DriverMessage>) -> io::Result<DriverState> {
        let (begin, done) =
            lock(&self.0).take().ok_or_else(|| io::Error::other("the driver was started twice"))?;
        let driver = context.self_ref().clone();
        let waker = Waker::from(Arc::new(DriverWaker(driver.clone())));
        driver.tell(DriverMessage::Wake);
        let tellus = Tellus { driver, task: Arc::default(), reply: Arc::default() };
        Ok(DriverState { work: begin(tellus.clone()), tellus, waker, done })
    }

    fn receive(
        &self,
        context: &ActorContext<DriverMessage>,
        incoming: Incoming<DriverMessage>,
        mut state: DriverState,
    ) -> io::Result<Control<DriverState>> {
        if let Incoming::Message(DriverMessage::Reply(value)) = incoming {
            *lock(&state.tellus.reply) = Some(value);
        }
        loop {
            match state.work.as_mut().poll(&mut Context::from_waker(&state.waker)) {
                Poll::Ready(outcome) => {
                    // The send fails only if `drive` no longer waits, at the end of the program.
                    let _ = state.done.send(outcome);
                    return Ok(Control::Stop);
                }
                Poll::Pending => {
                    let task = lock(&state.tellus.task).take();
                    match task {
                        Some(task) => task(context),
                        None => return Ok(Control::Continue(state)),
                    }
                }
            }
        }
    }
}

struct DriverWaker(ActorRef<DriverMessage>);

impl Wake for DriverWaker {
    fn wake(self: Arc<Self>) {
        self.0.tell(DriverMessage::Wake);
    }
}

/// Waits for a value in a slot and takes it. The driver polls the future after every event that can
/// fill a slot.
async fn take<T>(slot: &Mutex<Option<T>>) -> T {
    poll_fn(|_| lock(slot).take().map_or(Poll::Pending, Poll::Ready)).await
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// An actor whose state, in tellus's sense, is a process that its start takes out of the actor's value.
struct Once<T>(Mutex<Option<T>>);

impl<T> Once<T> {
    fn new(value: T) -> Once<T> {
        Once(Mutex::new(Some(value)))
    }

    fn take(&self) -> io::Result<T> {
        lock(&self.0).take().ok_or_else(|| io::Error::other("an actor was started twice"))
    }
}

pub(crate) enum Entry<M> {
    Tell(M),
    Stop,
}

impl<R: Receiver> Actor for Once<R> {
    type Message = Entry<R::Message>;
    type Timers = Untimed;
    type State = R;
    type Error = io::Error;

    fn init(&self, _: &ActorContext<Self::Message>) -> io::Result<R> {
        self.take()
    }

    fn receive(
        &self,
        _: &ActorContext<Self::Message>,
        incoming: Incoming<Self::Message>,
        mut receiver: R,
    ) -> io::Result<Control<R>> {
        let next = match incoming {
            Incoming::Message(Entry::Tell(message)) => receiver.receive(message),
            Incoming::Message(Entry::Stop) => Next::Stop,
            Incoming::Terminated(_) => Next::Message,
        };
        match next {
            Next::Message => {}
            // A handler is a plain function, so the actor blocks its thread, for which tokio starts another.
            Next::Wait(pause) => block_in_place(|| Handle::current().block_on(pause.wait())),
            Next::Stop => return Ok(Control::Stop),
        }
        Ok(Control::Continue(receiver))
    }
}

struct Server<S>(S);

pub(crate) enum Request {
    Call { value: u64, caller: ActorRef<DriverMessage> },
    Stop,
}

impl<S: Service> Actor for Server<S> {
    type Message = Request;
    type Timers = Untimed;
    type State = ();
    type Error = Infallible;

    fn init(&self, _: &ActorContext<Request>) -> Result<(), Infallible> {
        Ok(())
    }

    fn receive(
        &self,
        _: &ActorContext<Request>,
        incoming: Incoming<Request>,
        (): (),
    ) -> Result<Control<()>, Infallible> {
        match incoming {
            Incoming::Message(Request::Call { value, caller }) => {
                caller.tell(DriverMessage::Reply(self.0.reply(value)));
            }
            Incoming::Message(Request::Stop) => return Ok(Control::Stop),
            Incoming::Terminated(_) => {}
        }
        Ok(Control::Continue(()))
    }
}

/// An actor with a timer, the nearest equivalent of a receive with a time-out.
struct Waiter<T>(Once<T>);

pub(crate) enum TimedEntry<M> {
    Tell(M),
    TimeOut,
}

impl<T: Timed> Waiter<T> {
    fn wait(context: &ActorContext<TimedEntry<T::Message>, tellus::Timed>, mut timed: T) -> T {
        if let Some(timeout) = timed.waits() {
            context.start_timer("timeout", TimedEntry::TimeOut, timeout);
        }
        timed
    }
}

impl<T: Timed> Actor for Waiter<T> {
    type Message = TimedEntry<T::Message>;
    type Timers = tellus::Timed;
    type State = T;
    type Error = io::Error;

    fn init(&self, context: &ActorContext<Self::Message, tellus::Timed>) -> io::Result<T> {
        let timed = self.0.take()?;
        timed.begin();
        Ok(Self::wait(context, timed))
    }

    fn receive(
        &self,
        context: &ActorContext<Self::Message, tellus::Timed>,
        incoming: Incoming<Self::Message>,
        mut timed: T,
    ) -> io::Result<Control<T>> {
        match incoming {
            Incoming::Message(TimedEntry::Tell(message)) => {
                timed.receive(message);
                Ok(Control::Continue(Self::wait(context, timed)))
            }
            Incoming::Message(TimedEntry::TimeOut) => {
                timed.time_out();
                Ok(Control::Stop)
            }
            Incoming::Terminated(_) => Ok(Control::Stop),
        }
    }
}

impl Host for Tellus {
    type Address<R: Receiver> = ActorRef<Entry<R::Message>>;
    type ServiceAddress<S: Service> = ActorRef<Request>;
    type TimedAddress<T: Timed> = ActorRef<TimedEntry<T::Message>>;

    async fn start<R: Receiver>(&self, receiver: R) -> io::Result<Self::Address<R>> {
        Ok(self.spawn(Once::new(receiver)).await)
    }

    fn send<R: Receiver>(to: &Self::Address<R>, message: R::Message) {
        to.tell(Entry::Tell(message));
    }

    fn stop<R: Receiver>(address: Self::Address<R>) {
        address.tell(Entry::Stop);
    }

    async fn serve<S: Service>(&self, service: S) -> ActorRef<Request> {
        self.spawn(Server(service)).await
    }

    async fn call<S: Service>(&self, service: &ActorRef<Request>, value: u64) -> Option<u64> {
        service.tell(Request::Call { value, caller: self.driver.clone() });
        Some(take(&self.reply).await)
    }

    fn dismiss<S: Service>(&self, service: ActorRef<Request>) {
        service.tell(Request::Stop);
    }

    async fn start_timed<T: Timed>(&self, timed: T) -> Self::TimedAddress<T> {
        self.spawn(Waiter(Once::new(timed))).await
    }

    fn send_timed<T: Timed>(to: &Self::TimedAddress<T>, message: T::Message) {
        to.tell(TimedEntry::Tell(message));
    }
}

/// A watcher: `ActorContext::watch`, whose notification has no reason.
struct Watcher(Once<Watch<ActorId>>);

type WatchAll = Arc<[ActorRef<Entry<bool>>]>;

impl Actor for Watcher {
    type Message = WatchAll;
    type Timers = Untimed;
    type State = Watch<ActorId>;
    type Error = io::Error;

    fn init(&self, _: &ActorContext<WatchAll>) -> io::Result<Watch<ActorId>> {
        self.0.take()
    }

    fn receive(
        &self,
        context: &ActorContext<WatchAll>,
        incoming: Incoming<WatchAll>,
        mut watch: Watch<ActorId>,
    ) -> io::Result<Control<Watch<ActorId>>> {
        match incoming {
            Incoming::Message(targets) => {
                for target in &*targets {
                    context.watch(target);
                }
                watch.begin();
            }
            Incoming::Terminated(id) => watch.notify(id, true),
        }
        Ok(Control::Continue(watch))
    }
}

impl MonitorHost for Tellus {
    type Process = ActorRef<Entry<bool>>;
    type Watcher = ActorRef<WatchAll>;
    type Id = ActorId;
    type Targets = WatchAll;

    async fn start_watched(&mut self) -> io::Result<Self::Process> {
        self.start(Watched).await
    }

    fn request(process: &Self::Process, ends: bool) {
        Self::send::<Watched>(process, ends);
    }

    fn id(&self, _: u64, process: &Self::Process) -> ActorId {
        process.actor_id()
    }

    async fn start_watcher(&self, watch: Watch<ActorId>) -> Self::Watcher {
        self.spawn(Watcher(Once::new(watch))).await
    }

    fn targets(&mut self, processes: &[Self::Process]) -> WatchAll {
        processes.into()
    }

    fn watch(watcher: &Self::Watcher, targets: WatchAll) {
        watcher.tell(targets);
    }
}
