//! tellus on tokio as `#[tokio::main]` starts that, with the number of workers set.
//!
//! A handler of tellus is a plain function, and only it has the context by which children are
//! spawned. So that the workload's order, clocks and checks are the same for all runtimes, the
//! driver is an actor that polls the workload's future in its handler: on the first message, on each
//! wake, and on each reply, which come to it as messages. What needs the context is an [`Errand`]
//! that the future leaves with the handler, which does it and polls on, without another message.

use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Wake, Waker};

use tellus::{Actor, ActorContext, ActorRef, ActorSystem, Control, Incoming, Untimed};
use tokio::sync::oneshot;

use super::{Measured, Work};
use crate::peer::{Peer, Threads};
use crate::settings::Settings;

/// The tellus peer that runs like this.
pub(crate) const fn peer(run: fn(&Settings) -> Measured) -> Peer {
    Peer::here("tellus", env!("VERSION_TELLUS"), Threads::Workers, run)
}

/// Starts the runtime and runs the workload as an actor.
///
/// # Errors
/// When the threads cannot be started, or what the workload says.
pub(crate) fn drive<F: Work>(
    settings: &Settings,
    workload: impl FnOnce(Desk, Settings) -> F + Send + 'static,
) -> Measured {
    let settings_inside = settings.clone();
    super::tokio::runtime(settings)?.block_on(async {
        let (done, outcome) = oneshot::channel();
        let begin: Begin = Box::new(|desk| Box::pin(workload(desk, settings_inside)));
        let _system = ActorSystem::new(Driver(Mutex::new(Some((begin, done)))));
        outcome.await.map_err(io::Error::other)?
    })
}

/// The workload's side of the driver.
#[derive(Clone)]
pub(crate) struct Desk {
    driver: ActorRef<Step>,
    errand: Arc<Mutex<Option<Errand>>>,
    reply: Arc<Mutex<Option<u64>>>,
}

impl Desk {
    /// Spawns a child of the driver.
    pub(crate) async fn spawn<A>(&self, actor: A) -> ActorRef<A::Message>
    where
        A: Actor + Send + 'static,
        A::Message: Send + 'static,
        A::State: Send + 'static,
    {
        let spawned = Arc::new(Mutex::new(None));
        let place = spawned.clone();
        *lock(&self.errand) =
            Some(Box::new(move |context| *lock(&place) = Some(context.spawn(actor))));
        take(&spawned).await
    }

    /// Whom a callee tells its reply, as [`Step::Reply`].
    pub(crate) fn driver(&self) -> ActorRef<Step> {
        self.driver.clone()
    }

    /// The next reply.
    pub(crate) async fn reply(&self) -> u64 {
        take(&self.reply).await
    }
}

/// What the driver is told.
pub(crate) enum Step {
    /// The future may go on.
    Wake,
    /// The reply to what the future has asked.
    Reply(u64),
}

/// What has to be done with the driver's context.
type Errand = Box<dyn FnOnce(&ActorContext<Step>) + Send>;
type Begun = Pin<Box<dyn Work>>;
type Begin = Box<dyn FnOnce(Desk) -> Begun + Send>;
type Done = oneshot::Sender<Measured>;

struct Driver(Mutex<Option<(Begin, Done)>>);

/// The workload under way.
struct Driving {
    work: Begun,
    desk: Desk,
    waker: Waker,
    done: Done,
}

impl Actor for Driver {
    type Message = Step;
    type Timers = Untimed;
    type State = Driving;
    type Error = io::Error;

    fn init(&self, context: &ActorContext<Step>) -> io::Result<Driving> {
        let (begin, done) = lock(&self.0)
            .take()
            .ok_or_else(|| io::Error::other("the driver was started once more"))?;
        let driver = context.self_ref().clone();
        let waker = Waker::from(Arc::new(Wakes(driver.clone())));
        driver.tell(Step::Wake);
        let desk = Desk { driver, errand: Arc::default(), reply: Arc::default() };
        Ok(Driving { work: begin(desk.clone()), desk, waker, done })
    }

    fn receive(
        &self,
        context: &ActorContext<Step>,
        incoming: Incoming<Step>,
        mut driving: Driving,
    ) -> io::Result<Control<Driving>> {
        if let Incoming::Message(Step::Reply(value)) = incoming {
            *lock(&driving.desk.reply) = Some(value);
        }
        loop {
            match driving.work.as_mut().poll(&mut Context::from_waker(&driving.waker)) {
                Poll::Ready(outcome) => {
                    // Whoever started the driver waits for it, or the program is over.
                    let _ = driving.done.send(outcome);
                    return Ok(Control::Stop);
                }
                Poll::Pending => {
                    let errand = lock(&driving.desk.errand).take();
                    match errand {
                        Some(errand) => errand(context),
                        None => return Ok(Control::Continue(driving)),
                    }
                }
            }
        }
    }
}

struct Wakes(ActorRef<Step>);

impl Wake for Wakes {
    fn wake(self: Arc<Self>) {
        self.0.tell(Step::Wake);
    }
}

/// Waits until something lies there; the driver polls after everything that could put it there.
async fn take<T>(place: &Mutex<Option<T>>) -> T {
    poll_fn(|_| lock(place).take().map_or(Poll::Pending, Poll::Ready)).await
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
