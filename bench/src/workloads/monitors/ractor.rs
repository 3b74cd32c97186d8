//! `monitors` with ractor and its feature `monitors`: the supervision events of processes that have no
//! supervisor.

use std::io;
use std::sync::Arc;

use ractor::{Actor, ActorCell, ActorId, ActorProcessingErr, ActorRef, SupervisionEvent};

use super::{MonitorsSteps, Watch, Watched, measure};
use crate::outcome::Outcome;
use crate::runtimes;
use crate::settings::Settings;

pub(super) fn run(settings: &Settings) -> io::Result<Outcome> {
    runtimes::ractor::drive(settings, |settings| measure(Ractor, settings))
}

struct Ractor;

pub(super) enum Request {
    Ask,
    End,
}

impl Actor for Watched {
    type Msg = Request;
    type State = ();
    type Arguments = ();

    async fn pre_start(&self, _: ActorRef<Request>, (): ()) -> Result<(), ActorProcessingErr> {
        Ok(())
    }

    async fn handle(
        &self,
        myself: ActorRef<Request>,
        request: Request,
        (): &mut (),
    ) -> Result<(), ActorProcessingErr> {
        match request {
            Request::Ask => self.answer(),
            Request::End => myself.stop(None),
        }
        Ok(())
    }
}

struct Watcher;

pub(super) struct WatchAll(Arc<[ActorCell]>);

impl Actor for Watcher {
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
    ) -> Result<(), ActorProcessingErr> {
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
    ) -> Result<(), ActorProcessingErr> {
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

impl MonitorsSteps for Ractor {
    type Process = ActorRef<Request>;
    type Watcher = ActorRef<WatchAll>;
    type Id = ActorId;
    type Targets = Arc<[ActorCell]>;

    const BY_SIGNAL: bool = false;

    async fn start(&mut self) -> Self::Process {
        runtimes::ractor::start(Watched, ()).await
    }

    fn ask(&self, process: &Self::Process) {
        // A message without a receiver is missing in the count.
        let _ = process.send_message(Request::Ask);
    }

    fn end(&self, process: &Self::Process) {
        // A process that does not end is missing in the reports.
        let _ = process.send_message(Request::End);
    }

    fn id(&self, _: u64, process: &Self::Process) -> ActorId {
        process.get_id()
    }

    async fn start_watcher(&self, watch: Watch<ActorId>) -> Self::Watcher {
        runtimes::ractor::start(Watcher, watch).await
    }

    fn targets(&mut self, processes: &[Self::Process]) -> Self::Targets {
        processes.iter().map(|process| process.get_cell()).collect()
    }

    fn watch(&self, watcher: &Self::Watcher, targets: Self::Targets) {
        // A watcher that does not begin is missing in the count.
        let _ = watcher.send_message(WatchAll(targets));
    }
}
