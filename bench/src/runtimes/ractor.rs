//! ractor on tokio as `#[tokio::main]` starts it, with the number of workers set. A call has no timeout, and an actor is
//! stopped by a request. The state in ractor's sense is the workload's process.

use std::io;
use std::marker::PhantomData;
use std::sync::Arc;
use std::time::Duration;

use ractor::concurrency::JoinHandle;
use ractor::rpc::CallResult;
use ractor::{
    ActorCell, ActorId, ActorProcessingErr, ActorRef, ActorRuntime, MessagingErr, RpcReplyPort,
    SupervisionEvent,
};

use super::{AnyWork, Measured, Work};
use crate::host::{Actor, ActorContext, ActorHost, Host, Next, Pause, Receiver, Service, Timed};
use crate::outcome::Outcome;
use crate::settings::Settings;
use crate::workloads::monitors::{MonitorHost, Watch, Watched};
use crate::workloads::timers::{Owner, SLICE_MESSAGE, Timers, fire};

type Done = Result<(), ActorProcessingErr>;

#[derive(Clone)]
pub(crate) struct Ractor;

pub(crate) fn drive<F: Work>(
    settings: &Settings,
    work: impl FnOnce(Ractor, Settings) -> F,
) -> Measured {
    let workload = Box::pin(work(Ractor, settings.clone()));
    super::tokio::runtime(settings)?.block_on(async {
        let driver = start(Driver, ()).await;
        match driver.call(|done| Drive { workload, done }, None).await {
            Ok(CallResult::Success(outcome)) => outcome,
            Ok(_) => Err("the driver died".into()),
            Err(error) => Err(error.to_string().into()),
        }
    })
}

/// Starts an actor without a name or a supervisor.
async fn start<A: ractor::Actor>(actor: A, arguments: A::Arguments) -> ActorRef<A::Msg> {
    match ractor::Actor::spawn(None, actor, arguments).await {
        Ok((address, _)) => address,
        Err(error) => panic!("an actor without a name does not fail to start: {error}"),
    }
}

struct Driver;

struct Drive {
    workload: AnyWork,
    done: RpcReplyPort<Measured>,
}

impl ractor::Actor for Driver {
    type Msg = Drive;
    type State = ();
    type Arguments = ();

    async fn pre_start(&self, _: ActorRef<Drive>, (): ()) -> Done {
        Ok(())
    }

    async fn handle(&self, _: ActorRef<Drive>, drive: Drive, (): &mut ()) -> Done {
        // The send fails only if `drive` no longer waits, at the end of the program.
        let _ = drive.done.send(drive.workload.await);
        Ok(())
    }
}

struct Inbox<R>(PhantomData<fn() -> R>);

impl<R: Receiver> ractor::Actor for Inbox<R> {
    type Msg = R::Message;
    type State = R;
    type Arguments = R;

    async fn pre_start(
        &self,
        _: ActorRef<R::Message>,
        receiver: R,
    ) -> Result<R, ActorProcessingErr> {
        Ok(receiver)
    }

    async fn handle(
        &self,
        myself: ActorRef<R::Message>,
        message: R::Message,
        receiver: &mut R,
    ) -> Done {
        match receiver.receive(message) {
            Next::Message => {}
            Next::Wait(pause) => pause.wait().await,
            Next::Stop => (*myself).stop(None),
        }
        Ok(())
    }
}

struct Server<S>(PhantomData<fn() -> S>);

pub(crate) struct Request {
    value: u64,
    reply: RpcReplyPort<u64>,
}

impl<S: Service> ractor::Actor for Server<S> {
    type Msg = Request;
    type State = S;
    type Arguments = S;

    async fn pre_start(&self, _: ActorRef<Request>, service: S) -> Result<S, ActorProcessingErr> {
        Ok(service)
    }

    async fn handle(&self, _: ActorRef<Request>, request: Request, service: &mut S) -> Done {
        // If the caller has given up, it counts the reply as missing.
        let _ = request.reply.send(service.reply(request.value));
        Ok(())
    }
}

/// An actor that sends itself a delayed message, the nearest equivalent of a receive with a time-out; the delayed message
/// takes a second task per actor.
struct Waiter<T>(PhantomData<fn() -> T>);

pub(crate) enum Entry<M> {
    Tell(M),
    TimeOut,
}

impl<T: Timed> Waiter<T> {
    fn wait(myself: &ActorRef<Entry<T::Message>>, timed: &mut T) {
        if let Some(timeout) = timed.waits() {
            myself.send_after(timeout, || Entry::TimeOut);
        }
    }
}

impl<T: Timed> ractor::Actor for Waiter<T> {
    type Msg = Entry<T::Message>;
    type State = T;
    type Arguments = T;

    async fn pre_start(
        &self,
        myself: ActorRef<Self::Msg>,
        mut timed: T,
    ) -> Result<T, ActorProcessingErr> {
        timed.begin();
        Self::wait(&myself, &mut timed);
        Ok(timed)
    }

    async fn handle(&self, myself: ActorRef<Self::Msg>, entry: Self::Msg, timed: &mut T) -> Done {
        match entry {
            Entry::Tell(message) => {
                timed.receive(message);
                Self::wait(&myself, timed);
            }
            Entry::TimeOut => {
                timed.time_out();
                (*myself).stop(None);
            }
        }
        Ok(())
    }
}

impl Host for Ractor {
    type Address<R: Receiver> = ActorRef<R::Message>;
    type ServiceAddress<S: Service> = ActorRef<Request>;
    type TimedAddress<T: Timed> = ActorRef<Entry<T::Message>>;

    async fn start<R: Receiver>(&self, receiver: R) -> io::Result<Self::Address<R>> {
        Ok(start(Inbox(PhantomData), receiver).await)
    }

    fn send<R: Receiver>(to: &Self::Address<R>, message: R::Message) {
        let _ = to.send_message(message);
    }

    fn stop<R: Receiver>(address: Self::Address<R>) {
        (*address).stop(None);
    }

    async fn serve<S: Service>(&self, service: S) -> ActorRef<Request> {
        start(Server(PhantomData), service).await
    }

    async fn call<S: Service>(&self, service: &ActorRef<Request>, value: u64) -> Option<u64> {
        let called = service.call(|reply| Request { value, reply }, None).await;
        called.ok()?.success_or(()).ok()
    }

    fn dismiss<S: Service>(&self, service: ActorRef<Request>) {
        (*service).stop(None);
    }

    async fn start_timed<T: Timed>(&self, timed: T) -> Self::TimedAddress<T> {
        start(Waiter(PhantomData), timed).await
    }

    fn send_timed<T: Timed>(to: &Self::TimedAddress<T>, message: T::Message) {
        let _ = to.send_message(Entry::Tell(message));
    }
}

struct ActorInbox<A>(PhantomData<fn() -> A>);

impl<A: Actor<Ractor>> ractor::Actor for ActorInbox<A> {
    type Msg = A::Message;
    type State = A;
    type Arguments = A;

    async fn pre_start(&self, _: ActorRef<A::Message>, actor: A) -> Result<A, ActorProcessingErr> {
        Ok(actor)
    }

    async fn post_start(&self, mut address: ActorRef<A::Message>, actor: &mut A) -> Done {
        actor.started(&mut address);
        Ok(())
    }

    async fn handle(
        &self,
        mut address: ActorRef<A::Message>,
        message: A::Message,
        actor: &mut A,
    ) -> Done {
        actor.handle(message, &mut address);
        Ok(())
    }
}

impl<A: Actor<Ractor>> ActorContext<Ractor, A> for ActorRef<A::Message> {
    fn address(&self) -> ActorRef<A::Message> {
        self.clone()
    }

    fn tell_self(&mut self, message: A::Message) {
        let _ = self.send_message(message);
    }

    fn start<B: Actor<Ractor>>(&mut self, actor: B) -> ActorRef<B::Message> {
        Ractor.start_actor(actor)
    }

    fn stop(&mut self) {
        self.get_cell().stop(None);
    }
}

impl ActorHost for Ractor {
    type ActorAddress<A: Actor<Self>> = ActorRef<A::Message>;

    /// Does not wait for the actor's start.
    fn start_actor<A: Actor<Self>>(&self, actor: A) -> ActorRef<A::Message> {
        match ActorRuntime::spawn_instant(None, ActorInbox(PhantomData), actor) {
            Ok((address, _)) => address,
            Err(error) => panic!("an actor without a name does not fail to start: {error}"),
        }
    }

    fn tell<A: Actor<Self>>(to: &ActorRef<A::Message>, message: A::Message) {
        let _ = to.send_message(message);
    }

    async fn run(&self, client: impl Future<Output = ()> + Send + 'static) {
        let workload = Box::pin(async {
            client.await;
            Ok(Outcome::default())
        });
        let (done, _) = ractor::concurrency::oneshot();
        let _ = start(Driver, ()).await.send_message(Drive { workload, done: done.into() });
    }
}

/// A watcher: the supervision events of processes that have no supervisor, by the feature `monitors`.
struct Watcher;

pub(crate) struct WatchAll(Arc<[ActorCell]>);

impl ractor::Actor for Watcher {
    type Msg = WatchAll;
    type State = Watch<ActorId>;
    type Arguments = Watch<ActorId>;

    async fn pre_start(
        &self,
        _: ActorRef<WatchAll>,
        watch: Watch<ActorId>,
    ) -> Result<Watch<ActorId>, ActorProcessingErr> {
        Ok(watch)
    }

    async fn handle(
        &self,
        myself: ActorRef<WatchAll>,
        WatchAll(targets): WatchAll,
        watch: &mut Watch<ActorId>,
    ) -> Done {
        for target in &*targets {
            myself.monitor(target.clone());
        }
        watch.begin();
        Ok(())
    }

    async fn handle_supervisor_evt(
        &self,
        _: ActorRef<WatchAll>,
        event: SupervisionEvent,
        watch: &mut Watch<ActorId>,
    ) -> Done {
        match event {
            SupervisionEvent::ActorTerminated(actor, _, reason) => {
                watch.notify(actor.get_id(), reason.is_none());
            }
            SupervisionEvent::ActorFailed(actor, _) => watch.notify(actor.get_id(), false),
            _ => {}
        }
        Ok(())
    }
}

impl MonitorHost for Ractor {
    type Process = ActorRef<bool>;
    type Watcher = ActorRef<WatchAll>;
    type Id = ActorId;
    type Targets = Arc<[ActorCell]>;

    async fn start_watched(&mut self) -> io::Result<Self::Process> {
        self.start(Watched).await
    }

    fn request(process: &Self::Process, ends: bool) {
        Self::send::<Watched>(process, ends);
    }

    fn id(&self, _: u64, process: &Self::Process) -> ActorId {
        process.get_id()
    }

    async fn start_watcher(&self, watch: Watch<ActorId>) -> Self::Watcher {
        start(Watcher, watch).await
    }

    fn targets(&mut self, processes: &[Self::Process]) -> Self::Targets {
        processes.iter().map(|process| process.get_cell()).collect()
    }

    fn watch(watcher: &Self::Watcher, targets: Self::Targets) {
        let _ = watcher.send_message(WatchAll(targets));
    }
}

/// The process of `timers`: `ActorRef::send_after`, whose handle is aborted.
struct TimerActor;

type Timer = JoinHandle<Result<(), MessagingErr<u64>>>;

impl ractor::Actor for TimerActor {
    type Msg = u64;
    type State = Owner<Timer>;
    type Arguments = Owner<Timer>;

    async fn pre_start(
        &self,
        _: ActorRef<u64>,
        owner: Owner<Timer>,
    ) -> Result<Owner<Timer>, ActorProcessingErr> {
        Ok(owner)
    }

    async fn handle(
        &self,
        mut myself: ActorRef<u64>,
        message: u64,
        owner: &mut Owner<Timer>,
    ) -> Done {
        if message != SLICE_MESSAGE {
            fire(message);
        } else if owner.slice(&mut myself) {
            let _ = myself.send_message(SLICE_MESSAGE);
        }
        Ok(())
    }
}

impl Timers for ActorRef<u64> {
    type Timer = Timer;

    fn start(&mut self, delay: Duration, number: u64) -> Timer {
        self.send_after(delay, move || number)
    }

    fn cancel(&mut self, timer: Timer) -> bool {
        timer.abort();
        true
    }
}

pub(crate) async fn start_owner() {
    let _ = start(TimerActor, Owner::new()).await.send_message(SLICE_MESSAGE);
}
