//! Durable counters in throng: entities of a node.

use std::io;
use std::path::{Path, PathBuf};
use std::str;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use throng::{Context, Handle, Message, Process, RuntimeHandle};
use throng_durable::{Durable, Entity, Node, OpenError};
use throng_store::Store;

use super::{Acknowledged, Calls, Counters, Home, PREPARING, REOPENING, call_all, key};
use crate::outcome::Outcome;
use crate::runtimes;
use crate::settings::Settings;

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

impl Process for Counter {
    // In `durable-http` tasks of tokio call the counters, and the tokio runtime's threads run the turns themselves.
    const NEVER_BLOCKS: bool = true;
}

struct Add(u64);

impl Message for Add {
    type Reply = u64;
}

impl Handle<Add> for Counter {
    async fn handle(&mut self, Add(number): Add, _: &mut Context<Self>) -> u64 {
        self.value += number;
        self.value
    }
}

struct Read;

impl Message for Read {
    type Reply = u64;
}

impl Handle<Read> for Counter {
    async fn handle(&mut self, _: Read, _: &mut Context<Self>) -> u64 {
        self.value
    }
}

impl ThrongHome {
    pub(in super::super) fn new(runtime: &RuntimeHandle, directory: &Path) -> ThrongHome {
        let (runtime, directory) = (runtime.clone(), directory.to_owned());
        ThrongHome { runtime, directory, store: Store::options(), idle_after: TIMEOUT }
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
    async fn open(&self, live_max: u64) -> io::Result<ThrongCounters> {
        let live_max = usize::try_from(live_max).unwrap_or(usize::MAX);
        let options = Node::options(&self.directory).live_max(live_max).idle_after(self.idle_after);
        let options = options.store(self.store.clone());
        let begun = Instant::now();
        let node = loop {
            match options.clone().open(&self.runtime) {
                Err(OpenError::InUse { .. }) if begun.elapsed() < REOPENING => {
                    tokio::time::sleep(Duration::from_millis(1)).await;
                }
                node => break node.map_err(io::Error::other)?,
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
    pub(in super::super) async fn rest(&self) -> io::Result<()> {
        let begun = Instant::now();
        while self.live() > 0 {
            if begun.elapsed() > RESTING {
                let live = self.live();
                return Err(io::Error::other(format!("{live} entities do not leave memory")));
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        Ok(())
    }

    /// Number of times that a counter was brought into memory since the node was started.
    pub(in super::super) fn activations(&self) -> io::Result<u64> {
        Ok(self.node.stat().map_err(io::Error::other)?.activations)
    }

    /// Adds 1 to a counter unless an addition with this id was made before; returns the value after that addition.
    pub(in super::super) async fn add_once(&self, number: u64, id: &str) -> io::Result<u64> {
        let call = self.entity(number)?.call(Add(1)).once(id).within(TIMEOUT);
        call.await.map_err(io::Error::other)
    }

    fn entity(&self, number: u64) -> io::Result<Entity<Counter>> {
        Ok(self.node.entity(str::from_utf8(&key(number)).map_err(io::Error::other)?))
    }
}

impl Counters for ThrongCounters {
    async fn add(&self, number: u64) -> io::Result<u64> {
        let call = self.entity(number)?.call(Add(1)).within(TIMEOUT);
        call.await.map_err(io::Error::other)
    }

    async fn read(&self, number: u64) -> io::Result<u64> {
        let call = self.entity(number)?.call(Read).within(TIMEOUT);
        call.await.map_err(io::Error::other)
    }

    fn start(&self, caller: impl Future<Output = ()> + Send + 'static) {
        runtimes::throng::run(&self.runtime, caller);
    }

    async fn close(self) -> io::Result<()> {
        self.node.shutdown().await;
        Ok(())
    }
}

/// Number of processes that a workload with so many live counters and calls in flight starts, at most.
pub(in super::super) fn processes(live: u64, inflight: u64) -> u64 {
    // Callers that are done and processes that leave may be there for a moment longer.
    live.saturating_add(live / 4).saturating_add(4 * (inflight + PREPARING))
}

/// Stores counters, each with the value 1, in the order of their numbers, in which their keys are at random.
/// The node has no call that stores many entities at once, so each counter has a turn, with many calls in flight.
pub(in super::super) fn load(
    settings: &Settings,
    directory: &Path,
    counters: u64,
) -> io::Result<Outcome> {
    let directory = directory.to_owned();
    let limit = processes(LIVE_MAX_LOADING, 0);
    runtimes::throng::drive_with(settings, limit, false, move |runtime, _| async move {
        let open = ThrongHome::new(&runtime, &directory).open(LIVE_MAX_LOADING).await?;
        let acknowledged = Acknowledged::all(counters, 0).into();
        let replies = call_all(&open, Calls::creating(counters), &acknowledged).await?;
        open.close().await?;
        let wrong = replies.count.abs_diff(counters) + replies.wrong;
        match wrong {
            0 => Ok(Outcome::default()),
            _ => Err(io::Error::other(format!("{wrong} counters were not stored"))),
        }
    })
}
