//! Durable counters in throng: entities of a node.

use std::path::{Path, PathBuf};
use std::str;
use std::time::{Duration, Instant};

use bench_steps::Error;
use serde::{Deserialize, Serialize};
use throng::prelude::*;
use throng_durable::{Durable, Entity, Node, OpenError};
use throng_store::Store;

use super::{Acknowledged, Calls, Counters, Home, PREPARING, REOPENING, Tasks, call_all, key};
use crate::runtimes::{self, Measured, Work};
use crate::stores::Directory;
use crate::workloads::prelude::*;

/// Limit of each call, and idle time after which an entity leaves memory; far longer than any run.
pub(in super::super) const TIMEOUT: Duration = Duration::from_secs(3600);

/// Time for which a workload waits until all entities have left memory.
const RESTING: Duration = Duration::from_secs(120);

/// Number of entities that may be live while counters are stored.
const LIVE_MAX_LOADING: u64 = 100_000;

#[derive(Clone)]
pub(in super::super) struct ThrongHome {
    runtime: RuntimeHandle,
    directory: PathBuf,
    store: throng_store::Options,
    idle_after: Duration,
}

#[derive(Clone)]
pub(in super::super) struct ThrongCounters {
    node: Node,
    runtime: RuntimeHandle,
}

#[derive(Durable, Default, Serialize, Deserialize)]
#[durable(kind = "counter")]
struct Counter {
    value: u64,
}

// In `durable-http` tasks of tokio call the counters, and the tokio runtime's threads run the turns themselves.
#[process(never_blocks)]
impl Counter {
    #[message]
    fn add(&mut self, number: u64) -> u64 {
        self.value += number;
        self.value
    }

    #[message]
    fn read(&self) -> u64 {
        self.value
    }
}

impl ThrongHome {
    pub(in super::super) fn new(runtime: &RuntimeHandle, directory: &Path) -> ThrongHome {
        let (runtime, directory) = (runtime.clone(), directory.to_owned());
        ThrongHome { runtime, directory, store: Store::options(), idle_after: TIMEOUT }
    }

    pub(in super::super) fn directory(&self) -> &Path {
        &self.directory
    }

    /// The same place in a directory within this one.
    pub(in super::super) fn within(&self, name: &str) -> ThrongHome {
        ThrongHome { directory: self.directory.join(name), ..self.clone() }
    }

    /// Sets the bytes of changes that are kept in memory before they are written to the data file.
    pub(in super::super) fn checkpoint_bytes(mut self, bytes: u64) -> ThrongHome {
        self.store = self.store.checkpoint_bytes(usize::try_from(bytes).unwrap_or(usize::MAX));
        self
    }

    /// Sets the idle time after which an entity leaves memory.
    pub(in super::super) fn idle_after(self, idle_after: Duration) -> ThrongHome {
        ThrongHome { idle_after, ..self }
    }
}

impl Home for ThrongHome {
    type Counters = ThrongCounters;

    /// Starts the node. If the processes of a node before it still end, tries again for some seconds.
    async fn open(&self, live_max: u64) -> Result<ThrongCounters, Error> {
        let live_max = usize::try_from(live_max).unwrap_or(usize::MAX);
        let options = Node::options(&self.directory).live_max(live_max).idle_after(self.idle_after);
        let options = options.store(self.store.clone());
        let begun = Instant::now();
        let node = loop {
            match options.clone().open(&self.runtime) {
                Err(OpenError::InUse { .. }) if begun.elapsed() < REOPENING => {
                    tokio::time::sleep(Duration::from_millis(1)).await;
                }
                node => break node?,
            }
        };
        Ok(ThrongCounters { node, runtime: self.runtime.clone() })
    }
}

impl ThrongCounters {
    pub(in super::super) fn node(&self) -> &Node {
        &self.node
    }

    pub(in super::super) fn live(&self) -> u64 {
        self.node.live() as u64
    }

    /// Waits until no entity is in memory.
    pub(in super::super) async fn rest(&self) -> Result<(), Error> {
        let begun = Instant::now();
        while self.live() > 0 {
            if begun.elapsed() > RESTING {
                return Err(format!("{} entities do not leave memory", self.live()).into());
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        Ok(())
    }

    /// Number of times that a counter was brought into memory since the node was started.
    pub(in super::super) fn activations(&self) -> Result<u64, Error> {
        Ok(self.node.stat()?.activations)
    }

    /// Adds 1 to a counter unless an addition with this id was made before; returns the value after that addition.
    pub(in super::super) async fn add_once(&self, number: u64, id: &str) -> Result<u64, Error> {
        Ok(self.entity(number)?.add(1).once(id).within(TIMEOUT).await?)
    }

    fn entity(&self, number: u64) -> Result<Entity<Counter>, Error> {
        Ok(self.node.entity(str::from_utf8(&key(number))?))
    }
}

impl Tasks for ThrongCounters {
    fn start(&self, task: impl Future<Output = ()> + Send + 'static) {
        runtimes::throng::run(&self.runtime, task);
    }
}

impl Counters for ThrongCounters {
    async fn add(&self, number: u64) -> Result<u64, Error> {
        Ok(self.entity(number)?.add(1).within(TIMEOUT).await?)
    }

    async fn read(&self, number: u64) -> Result<u64, Error> {
        Ok(self.entity(number)?.read().within(TIMEOUT).await?)
    }

    async fn close(self) -> Result<(), Error> {
        self.node.shutdown().await;
        Ok(())
    }
}

/// Number of processes that a workload with so many live counters and calls in flight starts, at most.
pub(in super::super) fn processes(live: u64, inflight: u64) -> u64 {
    // Callers that are done and processes that leave may be there for a moment longer.
    live.saturating_add(live / 4).saturating_add(4 * (inflight + PREPARING))
}

/// Runs a workload on throng with a node in a new directory, and with room for so many processes.
pub(in super::super) fn on_node<F: Work>(
    settings: &Settings,
    processes: u64,
    work: impl FnOnce(ThrongHome, Settings) -> F,
) -> Measured {
    let directory = Directory::make(settings)?;
    on_node_at(directory.path(), settings, processes, work)
}

/// The same with a node in a directory that is there.
pub(in super::super) fn on_node_at<F: Work>(
    directory: &Path,
    settings: &Settings,
    processes: u64,
    work: impl FnOnce(ThrongHome, Settings) -> F,
) -> Measured {
    runtimes::throng::drive_with(settings, processes, false, |runtime, settings| {
        work(ThrongHome::new(&runtime, directory), settings)
    })
}

/// Stores counters, each with the value 1, in the order of their numbers, in which their keys are at random.
/// The node has no call that stores many entities at once, so each counter has a turn, with many calls in flight.
pub(in super::super) fn load(settings: &Settings, directory: &Path, counters: u64) -> Measured {
    let limit = processes(LIVE_MAX_LOADING, 0);
    on_node_at(directory, settings, limit, move |home, _| async move {
        let open = home.open(LIVE_MAX_LOADING).await?;
        let acknowledged = Acknowledged::all(counters, 0).into();
        let replies = call_all(&open, Calls::creating(counters), &acknowledged).await?;
        open.close().await?;
        let wrong = replies.count.abs_diff(counters) + replies.wrong;
        match wrong {
            0 => Ok(Outcome::default()),
            _ => Err(format!("{wrong} counters were not stored").into()),
        }
    })
}
