//! `monitors` with tellus: `ActorContext::watch`, whose notification has no reason.

use std::convert::Infallible;
use std::io;
use std::sync::{Arc, Mutex, PoisonError};

use tellus::{Actor, ActorContext, ActorId, ActorRef, Control, Incoming, Untimed};

use super::{MonitorsSteps, Watch, Watched, measure};
use crate::outcome::Outcome;
use crate::runtimes;
use crate::settings::Settings;

pub(super) fn run(settings: &Settings) -> io::Result<Outcome> {
    runtimes::tellus::drive(settings, |driver, settings| measure(Tellus { driver }, settings))
}

struct Tellus {
    driver: runtimes::tellus::DriverHandle,
}

pub(super) enum Request {
    Ask,
    End,
}

impl Actor for Watched {
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
        Ok(match incoming {
            Incoming::Message(Request::Ask) => {
                self.answer();
                Control::Continue(())
            }
            Incoming::Message(Request::End) => Control::Stop,
            Incoming::Terminated(_) => Control::Continue(()),
        })
    }
}

/// The state of a watcher, until it starts.
struct Watcher(Mutex<Option<Watch<ActorId>>>);

pub(super) struct WatchAll(Arc<[ActorRef<Request>]>);

impl Actor for Watcher {
    type Message = WatchAll;
    type Timers = Untimed;
    type State = Watch<ActorId>;
    type Error = io::Error;

    fn init(&self, _: &ActorContext<WatchAll>) -> io::Result<Watch<ActorId>> {
        let watch = self.0.lock().unwrap_or_else(PoisonError::into_inner).take();
        watch.ok_or_else(|| io::Error::other("a watcher was started twice"))
    }

    fn receive(
        &self,
        context: &ActorContext<WatchAll>,
        incoming: Incoming<WatchAll>,
        mut watch: Watch<ActorId>,
    ) -> io::Result<Control<Watch<ActorId>>> {
        match incoming {
            Incoming::Message(WatchAll(targets)) => {
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

impl MonitorsSteps for Tellus {
    type Process = ActorRef<Request>;
    type Watcher = ActorRef<WatchAll>;
    type Id = ActorId;
    type Targets = Arc<[ActorRef<Request>]>;

    const BY_SIGNAL: bool = false;

    async fn start(&mut self) -> Self::Process {
        self.driver.spawn(Watched).await
    }

    fn ask(&self, process: &Self::Process) {
        process.tell(Request::Ask);
    }

    fn end(&self, process: &Self::Process) {
        process.tell(Request::End);
    }

    fn id(&self, _: u64, process: &Self::Process) -> ActorId {
        process.actor_id()
    }

    async fn start_watcher(&self, watch: Watch<ActorId>) -> Self::Watcher {
        self.driver.spawn(Watcher(Mutex::new(Some(watch)))).await
    }

    fn targets(&mut self, processes: &[Self::Process]) -> Self::Targets {
        processes.into()
    }

    fn watch(&self, watcher: &Self::Watcher, targets: Self::Targets) {
        watcher.tell(WatchAll(targets));
    }
}
