//! tellus on tokio as `#[tokio::main]` starts it, with the number of workers set.
//!
//! A handler in tellus is a plain function, and only the handler has the context that can spawn
//! children. To share the workload's order, clocks and checks with the other runtimes, the driver
//! is an actor that polls the workload's future in its handler: on the first message, on each wake
//! and on each reply, all of which are messages to the driver. An operation that needs the context
//! is a [`ContextTask`], which the future leaves with the handler. The handler runs the task and
//! polls the future again, without another message.

use std::future::poll_fn;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Wake, Waker};

use tellus::{Actor, ActorContext, ActorRef, ActorSystem, Control, Incoming, Untimed};
use tokio::sync::oneshot;

use super::{AnyWork, Measured, Work};
use crate::settings::Settings;

/// Starts the runtime and runs the workload as an actor.
///
/// # Errors
/// If the threads cannot be started, the driver dies, or the workload fails.
pub(crate) fn drive<F: Work>(
    settings: &Settings,
    workload: impl FnOnce(DriverHandle, Settings) -> F + Send + 'static,
) -> Measured {
    let settings_inside = settings.clone();
    super::tokio::runtime(settings)?.block_on(async {
        let (done, outcome) = oneshot::channel();
        let begin: StartWork = Box::new(|driver| Box::pin(workload(driver, settings_inside)));
        let _system = ActorSystem::new(Driver(Mutex::new(Some((begin, done)))));
        outcome.await.map_err(io::Error::other)?
    })
}

/// The workload's handle to the driver.
#[derive(Clone)]
pub(crate) struct DriverHandle {
    driver: ActorRef<DriverMessage>,
    task: Arc<Mutex<Option<ContextTask>>>,
    reply: Arc<Mutex<Option<u64>>>,
}

impl DriverHandle {
    /// Spawns a child of the driver.
    pub(crate) async fn spawn<A>(&self, actor: A) -> ActorRef<A::Message>
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

    /// The driver's address, to which a callee sends its reply as [`DriverMessage::Reply`].
    pub(crate) fn address(&self) -> ActorRef<DriverMessage> {
        self.driver.clone()
    }

    /// Waits for the next reply.
    pub(crate) async fn reply(&self) -> u64 {
        take(&self.reply).await
    }
}

/// A message to the driver.
pub(crate) enum DriverMessage {
    /// The workload's future was woken.
    Wake,
    /// The reply to a call of the workload.
    Reply(u64),
}

/// An operation that needs the driver's context.
type ContextTask = Box<dyn FnOnce(&ActorContext<DriverMessage>) + Send>;
type StartWork = Box<dyn FnOnce(DriverHandle) -> AnyWork + Send>;
type Done = oneshot::Sender<Measured>;

struct Driver(Mutex<Option<(StartWork, Done)>>);

/// State of the driver: the running workload.
struct DriverState {
    work: AnyWork,
    driver: DriverHandle,
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
        let driver = DriverHandle { driver, task: Arc::default(), reply: Arc::default() };
        Ok(DriverState { work: begin(driver.clone()), driver, waker, done })
    }

    fn receive(
        &self,
        context: &ActorContext<DriverMessage>,
        incoming: Incoming<DriverMessage>,
        mut state: DriverState,
    ) -> io::Result<Control<DriverState>> {
        if let Incoming::Message(DriverMessage::Reply(value)) = incoming {
            *lock(&state.driver.reply) = Some(value);
        }
        loop {
            match state.work.as_mut().poll(&mut Context::from_waker(&state.waker)) {
                Poll::Ready(outcome) => {
                    // The send fails only if `drive` no longer waits, at the end of the program.
                    let _ = state.done.send(outcome);
                    return Ok(Control::Stop);
                }
                Poll::Pending => {
                    let task = lock(&state.driver.task).take();
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
