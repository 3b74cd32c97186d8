//! `monitors` with throng: `Context::monitor`, and the hook `down`.

use std::io;
use std::sync::Arc;

use throng::{Address, Context, Down, ExitReason, Handle, Message, Pid, Process, RuntimeHandle};

use super::{MonitorsSteps, WATCHERS, Watch, Watched, measure};
use crate::outcome::Outcome;
use crate::runtimes;
use crate::settings::Settings;

pub(super) fn run(settings: &Settings) -> io::Result<Outcome> {
    let processes = settings.count + settings.get(WATCHERS);
    runtimes::throng::drive(settings, processes, |runtime, settings| {
        measure(Throng { runtime }, settings)
    })
}

struct Throng {
    runtime: RuntimeHandle,
}

impl Process for Watched {}

struct Ask;

impl Message for Ask {
    type Reply = ();
}

impl Handle<Ask> for Watched {
    async fn handle(&mut self, _: Ask, _: &mut Context<Self>) {
        self.answer();
    }
}

struct End;

impl Message for End {
    type Reply = ();
}

impl Handle<End> for Watched {
    async fn handle(&mut self, _: End, cx: &mut Context<Self>) {
        cx.stop(ExitReason::Normal);
    }
}

impl Process for Watch<Pid> {
    async fn down(&mut self, down: Down, _: &mut Context<Self>) {
        self.notify(down.pid, down.reason == ExitReason::Normal);
    }
}

struct WatchAll(Arc<[Pid]>);

impl Message for WatchAll {
    type Reply = ();
}

impl Handle<WatchAll> for Watch<Pid> {
    async fn handle(&mut self, WatchAll(pids): WatchAll, cx: &mut Context<Self>) {
        for &pid in &*pids {
            cx.monitor(pid);
        }
        self.begin();
    }
}

impl MonitorsSteps for Throng {
    type Process = Address<Watched>;
    type Watcher = Address<Watch<Pid>>;
    type Id = Pid;
    type Targets = Arc<[Pid]>;

    const BY_SIGNAL: bool = true;

    async fn start(&mut self) -> Self::Process {
        runtimes::throng::start(&self.runtime, Watched)
    }

    fn ask(&self, process: &Self::Process) {
        // A message without a receiver is missing in the count.
        let _ = process.send(Ask);
    }

    fn end(&self, process: &Self::Process) {
        // A process that does not end is missing in the reports.
        let _ = process.send(End);
    }

    fn id(&self, _: u64, process: &Self::Process) -> Pid {
        process.pid()
    }

    async fn start_watcher(&self, watch: Watch<Pid>) -> Self::Watcher {
        runtimes::throng::start(&self.runtime, watch)
    }

    fn targets(&mut self, processes: &[Self::Process]) -> Self::Targets {
        processes.iter().map(|process| process.pid()).collect()
    }

    fn watch(&self, watcher: &Self::Watcher, targets: Self::Targets) {
        // A watcher that does not begin is missing in the count.
        let _ = watcher.send(WatchAll(targets));
    }
}
