//! `monitors` with kameo: `ActorRef::link`, and the hook `on_link_died`. A link goes both ways; a watcher
//! never ends.

use std::convert::Infallible;
use std::io;
use std::ops::ControlFlow;
use std::sync::Arc;

use kameo::Actor;
use kameo::actor::{ActorId, ActorRef, WeakActorRef};
use kameo::error::ActorStopReason;
use kameo::message::{Context, Message};

use super::{MonitorsSteps, Watch, Watched, measure};
use crate::outcome::Outcome;
use crate::runtimes;
use crate::settings::Settings;

pub(super) fn run(settings: &Settings) -> io::Result<Outcome> {
    runtimes::kameo::drive(settings, |settings| measure(Kameo, settings))
}

struct Kameo;

impl Actor for Watched {
    type Args = Self;
    type Error = Infallible;

    async fn on_start(watched: Self, _: ActorRef<Self>) -> Result<Self, Infallible> {
        Ok(watched)
    }
}

struct Ask;

impl Message<Ask> for Watched {
    type Reply = ();

    async fn handle(&mut self, _: Ask, _: &mut Context<Self, ()>) {
        self.answer();
    }
}

struct End;

impl Message<End> for Watched {
    type Reply = ();

    async fn handle(&mut self, _: End, context: &mut Context<Self, ()>) {
        context.stop();
    }
}

impl Actor for Watch<ActorId> {
    type Args = Self;
    type Error = Infallible;

    async fn on_start(watch: Self, _: ActorRef<Self>) -> Result<Self, Infallible> {
        Ok(watch)
    }

    async fn on_link_died(
        &mut self,
        _: WeakActorRef<Self>,
        id: ActorId,
        reason: ActorStopReason,
    ) -> Result<ControlFlow<ActorStopReason>, Infallible> {
        self.notify(id, reason.is_normal());
        Ok(ControlFlow::Continue(()))
    }
}

struct WatchAll(Arc<[ActorRef<Watched>]>);

impl Message<WatchAll> for Watch<ActorId> {
    type Reply = ();

    async fn handle(&mut self, WatchAll(targets): WatchAll, context: &mut Context<Self, ()>) {
        for target in &*targets {
            context.actor_ref().link(target).await;
        }
        self.begin();
    }
}

impl MonitorsSteps for Kameo {
    type Process = ActorRef<Watched>;
    type Watcher = ActorRef<Watch<ActorId>>;
    type Id = ActorId;
    type Targets = Arc<[ActorRef<Watched>]>;

    const BY_SIGNAL: bool = false;

    async fn start(&mut self) -> Self::Process {
        runtimes::kameo::start(Watched)
    }

    fn ask(&self, process: &Self::Process) {
        // A message without a receiver is missing in the count.
        let _ = process.tell(Ask).try_send();
    }

    fn end(&self, process: &Self::Process) {
        // A process that does not end is missing in the reports.
        let _ = process.tell(End).try_send();
    }

    fn id(&self, _: u64, process: &Self::Process) -> ActorId {
        process.id()
    }

    async fn start_watcher(&self, watch: Watch<ActorId>) -> Self::Watcher {
        runtimes::kameo::start(watch)
    }

    fn targets(&mut self, processes: &[Self::Process]) -> Self::Targets {
        processes.into()
    }

    fn watch(&self, watcher: &Self::Watcher, targets: Self::Targets) {
        // A watcher that does not begin is missing in the count.
        let _ = watcher.tell(WatchAll(targets)).try_send();
    }
}
