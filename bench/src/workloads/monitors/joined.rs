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

use super::{MonitorHost, Watch, Watched};
use crate::host::{Next, Receiver};

pub(super) struct Joined {
    is_shared: bool,
    /// The handles of all tasks, until the watchers have them.
    handles: Vec<JoinHandle<()>>,
}

impl Joined {
    pub(super) fn new(is_shared: bool) -> Joined {
        Joined { is_shared, handles: Vec::new() }
    }
}

/// The end of a task, and whether it was normal.
pub(super) type Ended = Map<JoinHandle<()>, fn(Result<(), JoinError>) -> bool>;

#[derive(Clone)]
pub(super) enum Targets {
    Own(Arc<Mutex<Vec<Ended>>>),
    Shared(Arc<[Shared<Ended>]>),
}

async fn live(mut mailbox: UnboundedReceiver<bool>) {
    while let Some(ends) = mailbox.recv().await {
        if let Next::Stop = Watched.receive(ends) {
            return;
        }
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

impl MonitorHost for Joined {
    type Process = UnboundedSender<bool>;
    type Watcher = Mutex<Option<oneshot::Sender<Targets>>>;
    type Id = u64;
    type Targets = Targets;

    async fn start_watched(&mut self) -> io::Result<Self::Process> {
        let (sender, mailbox) = unbounded_channel();
        self.handles.push(tokio::spawn(live(mailbox)));
        Ok(sender)
    }

    fn request(process: &Self::Process, ends: bool) {
        let _ = process.send(ends);
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

    fn watch(watcher: &Self::Watcher, targets: Targets) {
        if let Some(sender) = watcher.lock().unwrap_or_else(PoisonError::into_inner).take() {
            // A watcher that does not begin is missing in the count.
            let _ = sender.send(targets);
        }
    }
}
