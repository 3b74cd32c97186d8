//! throng as its builder starts it by default, with the number of workers and the process limit set.

pub(crate) mod feature;

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use throng::{
    Address, CallError, Context, Down, ExitReason, Handle, Message, Pid, Process, Runtime,
    RuntimeBuilder, RuntimeHandle, Timer,
};

use super::{AnyWork, Measured, Work};
use crate::host::{Actor, ActorContext, ActorHost, Host, Next, Pause, Receiver, Service, Timed};
use crate::settings::Settings;
use crate::workloads::monitors::{MonitorHost, Watch, Watched};
use crate::workloads::timers::{Owner, SLICE_MESSAGE, Timers, fire};
use crate::workloads::traffic::{self, Desk, DeskHost};

/// Deadline of the call that runs the workload; no workload reaches it.
const DEADLINE: Duration = Duration::from_secs(3600);

/// Number of places below a large process limit that 256 threads may keep: each worker, each spare
/// worker for a blocked one, and each thread outside that calls keeps up to 128.
const RESERVED: u64 = 256 * 128;

/// Limits below this are exact: no thread keeps a place for itself.
const RESERVING: u64 = 65_536;

#[derive(Clone)]
pub(crate) struct Throng {
    pub(crate) runtime: RuntimeHandle,
}

/// Starts the runtime, with room for the workload's processes besides the driver, and runs the workload as the handler of
/// a process. If it is `outside`, the workload is the future of `block_on` on a tokio runtime with as many threads as
/// the settings have workers, to which the runtime is attached.
pub(crate) fn drive<F: Work>(
    settings: &Settings,
    outside: bool,
    workload: impl FnOnce(Throng, Settings) -> F,
) -> Measured {
    drive_with(settings, settings.processes(), outside, |runtime, settings| {
        workload(Throng { runtime }, settings)
    })
}

/// The same with room for so many processes.
pub(crate) fn drive_with<F: Work>(
    settings: &Settings,
    processes: u64,
    outside: bool,
    workload: impl FnOnce(RuntimeHandle, Settings) -> F,
) -> Measured {
    if !outside {
        return drive_on(builder(settings, processes + 1), settings, workload);
    }
    let tokio = super::tokio::runtime(settings)?;
    let runtime = {
        let _entered = tokio.enter();
        builder(settings, processes).attach()?
    };
    let work: AnyWork = Box::pin(workload(runtime.handle().clone(), settings.clone()));
    tokio.block_on(async {
        let mut outcome = work.await?;
        let shutdown = runtime.shutdown_async(DEADLINE).await;
        outcome.check("processes that did not end", shutdown.abandoned, 0);
        Ok(outcome)
    })
}

/// The same with a limit of processes that is to be reached: beside the driver, at most `limit` processes can live, or a
/// few more if the limit is large.
pub(crate) fn drive_limited<F: Work>(
    settings: &Settings,
    limit: u64,
    workload: impl FnOnce(Throng, Settings) -> F,
) -> Measured {
    let limited = if limit < RESERVING {
        Runtime::builder().workers(settings.workers).process_limit(limit + 1)
    } else {
        builder(settings, limit + 1)
    };
    drive_on(limited, settings, |runtime, settings| workload(Throng { runtime }, settings))
}

fn drive_on<F: Work>(
    builder: RuntimeBuilder,
    settings: &Settings,
    workload: impl FnOnce(RuntimeHandle, Settings) -> F,
) -> Measured {
    let runtime = builder.start()?;
    let work: AnyWork = Box::pin(workload(runtime.handle().clone(), settings.clone()));
    drive_alone(runtime, work)
}

fn drive_alone(runtime: Runtime, work: AnyWork) -> Measured {
    let work = Drive(work);
    runtime.block_on(async |handle| match start(handle, Driver).call(work).within(DEADLINE).await {
        Ok(outcome) => outcome,
        Err(CallError::Died(reason)) => Err(format!("the driver died: {reason:?}").into()),
        Err(error) => Err(error.to_string().into()),
    })
}

/// Runs a future in a process of its own, which the process limit must include.
pub(crate) fn run(runtime: &RuntimeHandle, work: impl Future<Output = ()> + Send + 'static) {
    // A future that does not run is missing in the counts that the workload checks.
    let work: Pin<Box<dyn Future<Output = ()> + Send>> = Box::pin(work);
    let _ = start(runtime, Driver).send(Drive(work));
}

fn builder(settings: &Settings, processes: u64) -> RuntimeBuilder {
    Runtime::builder().workers(settings.workers).process_limit(processes + RESERVED)
}

/// Starts a process, which the process limit must include.
pub(crate) fn start<P: Process>(runtime: &RuntimeHandle, process: P) -> Address<P> {
    match runtime.spawn(process) {
        Ok(address) => address,
        Err(error) => panic!("the process limit leaves room for every process: {error}"),
    }
}

/// A process that does a work on a call; the process limit must include it.
pub(crate) struct Worker(Address<Driver>);

impl Worker {
    pub(crate) fn start(runtime: &RuntimeHandle) -> Worker {
        Worker(start(runtime, Driver))
    }

    pub(crate) async fn run<T: Send + 'static>(
        self,
        work: impl Future<Output = io::Result<T>> + Send + 'static,
    ) -> io::Result<T> {
        let called = self.0.call(Drive(work)).within(DEADLINE).await;
        called.map_err(|error| io::Error::other(error.to_string()))?
    }
}

struct Driver;

impl Process for Driver {}

struct Drive<F>(F);

impl<F: Future<Output: Send> + Send + 'static> Message for Drive<F> {
    type Reply = F::Output;
}

impl<F: Future<Output: Send> + Send + 'static> Handle<Drive<F>> for Driver {
    async fn handle(&mut self, Drive(work): Drive<F>, _: &mut Context<Self>) -> F::Output {
        work.await
    }
}

pub(crate) struct Inbox<R>(pub(crate) R);

impl<R: Receiver> Process for Inbox<R> {}

pub(crate) struct Tell<M>(pub(crate) M);

impl<M: Send + 'static> Message for Tell<M> {
    type Reply = ();
}

impl<R: Receiver> Handle<Tell<R::Message>> for Inbox<R> {
    async fn handle(&mut self, Tell(message): Tell<R::Message>, cx: &mut Context<Self>) {
        match self.0.receive(message) {
            Next::Message => {}
            Next::Wait(pause) => pause.wait().await,
            Next::Stop => cx.stop(ExitReason::Normal),
        }
    }
}

#[derive(Clone)]
pub(crate) struct Server<S>(pub(crate) S);

impl<S: Service> Process for Server<S> {
    // As tokio expects of the rivals' tasks; the service only computes.
    const NEVER_BLOCKS: bool = true;
}

pub(crate) struct Request(pub(crate) u64);

impl Message for Request {
    type Reply = u64;
}

impl<S: Service> Handle<Request> for Server<S> {
    async fn handle(&mut self, Request(value): Request, _: &mut Context<Self>) -> u64 {
        self.0.reply(value)
    }
}

/// A process whose last receive times out.
pub(crate) struct Waiter<T>(T);

impl<T: Timed> Waiter<T> {
    fn wait(&mut self, cx: &mut Context<Self>) {
        if let Some(limit) = self.0.waits() {
            cx.receive_timeout(limit);
        }
    }
}

impl<T: Timed> Process for Waiter<T> {
    async fn started(&mut self, cx: &mut Context<Self>) {
        self.0.begin();
        self.wait(cx);
    }

    async fn timeout(&mut self, cx: &mut Context<Self>) {
        self.0.time_out();
        cx.stop(ExitReason::Normal);
    }
}

impl<T: Timed> Handle<Tell<T::Message>> for Waiter<T> {
    async fn handle(&mut self, Tell(message): Tell<T::Message>, cx: &mut Context<Self>) {
        self.0.receive(message);
        self.wait(cx);
    }
}

impl Host for Throng {
    type Address<R: Receiver> = Address<Inbox<R>>;
    type ServiceAddress<S: Service> = Address<Server<S>>;
    type TimedAddress<T: Timed> = Address<Waiter<T>>;

    const LIMITS_PROCESSES: bool = true;

    async fn start<R: Receiver>(&self, receiver: R) -> io::Result<Self::Address<R>> {
        let spawned = self.runtime.spawn(Inbox(receiver));
        spawned.map_err(|error| io::Error::other(error.to_string()))
    }

    fn send<R: Receiver>(to: &Self::Address<R>, message: R::Message) {
        let _ = to.send(Tell(message));
    }

    fn stop<R: Receiver>(address: Self::Address<R>) {
        address.stop();
    }

    async fn serve<S: Service>(&self, service: S) -> Self::ServiceAddress<S> {
        start(&self.runtime, Server(service))
    }

    /// Has the default deadline.
    async fn call<S: Service>(&self, service: &Self::ServiceAddress<S>, value: u64) -> Option<u64> {
        service.call(Request(value)).await.ok()
    }

    fn dismiss<S: Service>(&self, service: Self::ServiceAddress<S>) {
        service.stop();
    }

    async fn start_timed<T: Timed>(&self, timed: T) -> Self::TimedAddress<T> {
        start(&self.runtime, Waiter(timed))
    }

    fn send_timed<T: Timed>(to: &Self::TimedAddress<T>, message: T::Message) {
        let _ = to.send(Tell(message));
    }
}

pub(crate) struct ActorInbox<A>(A);

impl<A: Actor<Throng>> Process for ActorInbox<A> {
    async fn started(&mut self, mut cx: &mut Context<Self>) {
        self.0.started(&mut cx);
    }
}

impl<A: Actor<Throng>> Handle<Tell<A::Message>> for ActorInbox<A> {
    async fn handle(&mut self, Tell(message): Tell<A::Message>, mut cx: &mut Context<Self>) {
        self.0.handle(message, &mut cx);
    }
}

impl<A: Actor<Throng>> ActorContext<Throng, A> for &mut Context<ActorInbox<A>> {
    fn address(&self) -> Address<ActorInbox<A>> {
        Context::address(self)
    }

    fn tell_self(&mut self, message: A::Message) {
        Throng::tell(&Context::address(self), message);
    }

    fn start<B: Actor<Throng>>(&mut self, actor: B) -> Address<ActorInbox<B>> {
        start(Context::runtime(self), ActorInbox(actor))
    }

    fn stop(&mut self) {
        Context::stop(self, ExitReason::Normal);
    }
}

impl ActorHost for Throng {
    type ActorAddress<A: Actor<Self>> = Address<ActorInbox<A>>;

    fn start_actor<A: Actor<Self>>(&self, actor: A) -> Address<ActorInbox<A>> {
        start(&self.runtime, ActorInbox(actor))
    }

    fn tell<A: Actor<Self>>(to: &Address<ActorInbox<A>>, message: A::Message) {
        let _ = to.send(Tell(message));
    }

    async fn run(&self, client: impl Future<Output = ()> + Send + 'static) {
        run(&self.runtime, client);
    }
}

/// A watcher: `Context::monitor`, and the hook `down`.
impl Process for Watch<Pid> {
    async fn down(&mut self, down: Down, _: &mut Context<Self>) {
        self.notify(down.pid, down.reason == ExitReason::Normal);
    }
}

impl Handle<Tell<Arc<[Pid]>>> for Watch<Pid> {
    async fn handle(&mut self, Tell(pids): Tell<Arc<[Pid]>>, cx: &mut Context<Self>) {
        for &pid in &*pids {
            cx.monitor(pid);
        }
        self.begin();
    }
}

impl MonitorHost for Throng {
    type Process = Address<Inbox<Watched>>;
    type Watcher = Address<Watch<Pid>>;
    type Id = Pid;
    type Targets = Arc<[Pid]>;

    const BY_SIGNAL: bool = true;

    async fn start_watched(&mut self) -> io::Result<Self::Process> {
        self.start(Watched).await
    }

    fn request(process: &Self::Process, ends: bool) {
        Self::send(process, ends);
    }

    fn id(&self, _: u64, process: &Self::Process) -> Pid {
        process.pid()
    }

    async fn start_watcher(&self, watch: Watch<Pid>) -> Self::Watcher {
        start(&self.runtime, watch)
    }

    fn targets(&mut self, processes: &[Self::Process]) -> Self::Targets {
        processes.iter().map(|process| process.pid()).collect()
    }

    fn watch(watcher: &Self::Watcher, targets: Self::Targets) {
        let _ = watcher.send(Tell(targets));
    }
}

/// A process of `traffic`, a message to which is a call or a send as the client likes.
pub(crate) struct OnDesk<D>(D);

impl<D: Desk> Process for OnDesk<D> {
    async fn timeout(&mut self, cx: &mut Context<Self>) {
        self.0.time_out();
        cx.stop(ExitReason::Normal);
    }
}

impl Message for traffic::Request {
    type Reply = u64;
}

impl<D: Desk> Handle<traffic::Request> for OnDesk<D> {
    async fn handle(&mut self, request: traffic::Request, cx: &mut Context<Self>) -> u64 {
        let reply = self.0.handle(request).await;
        if let Some(idle) = D::idle() {
            cx.receive_timeout(idle);
        }
        reply
    }
}

impl DeskHost for Throng {
    type DeskAddress<D: Desk> = Address<OnDesk<D>>;

    async fn open<D: Desk>(&self, desk: D) -> Address<OnDesk<D>> {
        start(&self.runtime, OnDesk(desk))
    }

    fn post<D: Desk>(to: &Address<OnDesk<D>>, request: traffic::Request) {
        let _ = to.send(request);
    }

    async fn ask<D: Desk>(to: &Address<OnDesk<D>>, request: traffic::Request) -> Option<u64> {
        to.call(request).await.ok()
    }
}

/// The process of `timers`: `Context::send_after`, and `Context::cancel_timer`.
impl Process for Owner<Timer> {}

impl Handle<Tell<u64>> for Owner<Timer> {
    async fn handle(&mut self, Tell(message): Tell<u64>, cx: &mut Context<Self>) {
        if message != SLICE_MESSAGE {
            fire(message);
        } else if self.slice(&mut OwnTimers(cx)) {
            let _ = cx.address().send(Tell(SLICE_MESSAGE));
        }
    }
}

struct OwnTimers<'a>(&'a mut Context<Owner<Timer>>);

impl Timers for OwnTimers<'_> {
    type Timer = Timer;

    fn start(&mut self, delay: Duration, number: u64) -> Timer {
        self.0.send_after(delay, Tell(number))
    }

    fn cancel(&mut self, timer: Timer) -> bool {
        self.0.cancel_timer(&timer)
    }
}

pub(crate) fn start_owner(runtime: &RuntimeHandle) {
    let _ = start(runtime, Owner::new()).send(Tell(SLICE_MESSAGE));
}
