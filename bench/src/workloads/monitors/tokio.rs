//! `monitors` with tokio: a task that awaits the join handles of all others, in a `FuturesUnordered`. A join
//! handle has a single owner, so several watchers have clones of it as a `Shared` future. A watcher runs without
//! tokio's budget of polls, after which a `FuturesUnordered` polls on without effect.

use std::io;
use std::sync::{Arc, Mutex, PoisonError};

use futures_util::future::{FutureExt, Map, Shared};
use futures_util::stream::{FuturesUnordered, StreamExt};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::sync::oneshot;
use tokio::task::{JoinError, JoinHandle, unconstrained};

use super::{MonitorsSteps, WATCHERS, Watch, Watched, measure};
use crate::outcome::Outcome;
use crate::runtimes;
use crate::settings::Settings;

pub(super) fn run(settings: &Settings) -> io::Result<Outcome> {
    runtimes::tokio::drive(settings, |settings| {
        let is_shared = settings.get(WATCHERS) > 1;
        measure(Tokio { is_shared, handles: Vec::new() }, settings)
    })
}

struct Tokio {
    /// Whether there are several watchers.
    is_shared: bool,
    /// The handles of all tasks, until the watchers have them.
    handles: Vec<JoinHandle<()>>,
}

enum Request {
    Ask,
    End,
}

/// The end of a task, and whether it was normal.
type Ended = Map<JoinHandle<()>, fn(Result<(), JoinError>) -> bool>;

#[derive(Clone)]
enum Targets {
    Own(Arc<Mutex<Vec<Ended>>>),
    Shared(Arc<[Shared<Ended>]>),
}

async fn live(watched: Watched, mut mailbox: UnboundedReceiver<Request>) {
    while let Some(Request::Ask) = mailbox.recv().await {
        watched.answer();
    }
}

async fn watch_all(mut watch: Watch<u64>, targets: impl IntoIterator<Item: Future<Output = bool>>) {
    let ends =
        (0..).zip(targets).map(|(number, end)| end.map(move |is_normal| (number, is_normal)));
    let mut ends: FuturesUnordered<_> = ends.collect();
    watch.begin();
    while let Some((number, is_normal)) = ends.next().await {
        watch.notify(number, is_normal);
    }
}

impl MonitorsSteps for Tokio {
    type Process = UnboundedSender<Request>;
    type Watcher = Mutex<Option<oneshot::Sender<Targets>>>;
    type Id = u64;
    type Targets = Targets;

    const BY_SIGNAL: bool = false;

    async fn start(&mut self) -> Self::Process {
        let (sender, mailbox) = unbounded_channel();
        self.handles.push(tokio::spawn(live(Watched, mailbox)));
        sender
    }

    fn ask(&self, process: &Self::Process) {
        // A message without a receiver is missing in the count.
        let _ = process.send(Request::Ask);
    }

    fn end(&self, process: &Self::Process) {
        // A process that does not end is missing in the reports.
        let _ = process.send(Request::End);
    }

    fn id(&self, number: u64, _: &Self::Process) -> u64 {
        number
    }

    async fn start_watcher(&self, watch: Watch<u64>) -> Self::Watcher {
        let (sender, targets) = oneshot::channel();
        tokio::spawn(unconstrained(async {
            match targets.await {
                Ok(Targets::Own(ends)) => {
                    let ends =
                        std::mem::take(&mut *ends.lock().unwrap_or_else(PoisonError::into_inner));
                    watch_all(watch, ends).await;
                }
                Ok(Targets::Shared(ends)) => watch_all(watch, ends.iter().cloned()).await,
                // The driver has gone.
                Err(_) => {}
            }
        }));
        Mutex::new(Some(sender))
    }

    fn targets(&mut self, _: &[Self::Process]) -> Targets {
        let is_normal: fn(Result<(), JoinError>) -> bool = |ended| ended.is_ok();
        let ends = self.handles.drain(..).map(|handle| handle.map(is_normal));
        if self.is_shared {
            Targets::Shared(ends.map(FutureExt::shared).collect())
        } else {
            Targets::Own(Arc::new(Mutex::new(ends.collect())))
        }
    }

    fn watch(&self, watcher: &Self::Watcher, targets: Targets) {
        if let Some(sender) = watcher.lock().unwrap_or_else(PoisonError::into_inner).take() {
            // A watcher that does not begin is missing in the count.
            let _ = sender.send(targets);
        }
    }
}
