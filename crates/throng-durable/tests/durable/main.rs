//! Durable processes through their public API, on real files.

// Clippy allows this in tests by itself, but not in their shared functions.
#![allow(clippy::unwrap_used)]

mod bank;
mod cells;
mod client;
mod commit;
mod crash;
mod crossings;
mod derive;
mod faults;
mod feeds;
mod gate;
mod inbox;
mod indexes;
mod layouts;
mod model;
mod once;
mod operate;
mod passivation;
mod persistence;
mod pins;
mod queues;
mod reads;
mod reminders;
mod replays;
mod shapes;
mod sim;
mod stored;
mod ties;
mod unreadable;
mod wakes;
mod workflows;

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::mpsc;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use throng::RuntimeBuilder;
use throng::prelude::*;
use throng_durable::sim::Sim;
use throng_durable::{Durable, DurableContext, EntityError, Node, OpenError, Options, Str};
use throng_store::{ReadError, Store};
use tokio::sync::oneshot;

/// A deadline far beyond the duration of any test.
const HANGS_AFTER: Duration = Duration::from_secs(300);

/// A counter, whose messages cover the other actions of a handler.
#[derive(Durable, Debug, Default, Serialize, Deserialize)]
#[durable(kind = "counter")]
struct Counter {
    count: u64,
    /// Number of turns that this activation has handled; not stored.
    #[serde(skip)]
    turns: u64,
}

#[process]
impl Counter {
    #[message]
    fn add(&mut self, number: u64) -> u64 {
        self.turns += 1;
        self.count += number;
        self.count
    }
    #[message]
    fn get(&mut self) -> u64 {
        self.turns += 1;
        self.count
    }
    /// Returns the number of turns that the activation has handled, the running turn included.
    #[message]
    fn turns(&mut self) -> u64 {
        self.turns += 1;
        self.turns
    }
    /// Changes the state, writes a cell, waits a moment and panics.
    #[message]
    async fn explode(&mut self, cx: &mut Context<Self>) {
        self.count += 1_000_000;
        cx.cells::<Str, String>("steps").put("half", "done");
        tokio::time::sleep(Duration::from_millis(5)).await;
        panic!("boom");
    }
    /// Adds to the entity with another key and returns its own key and the other's count.
    #[message]
    async fn add_to(
        &mut self,
        key: String,
        number: u64,
        cx: &mut Context<Self>,
    ) -> Result<(String, u64), EntityError> {
        let other = cx.node().entity::<Counter>(&key);
        let count = other.add(number).await?;
        Ok((cx.key().to_owned(), count))
    }
}

/// The number in an environment variable, such as a count of repetitions, or `otherwise`.
fn number_or(variable: &str, otherwise: u64) -> u64 {
    std::env::var(variable).map_or(otherwise, |number| number.parse().unwrap())
}

/// Number of entities of a kind on disk.
fn stored(node: &Node, kind: &str) -> u64 {
    node.stat().unwrap().stored.get(kind).copied().unwrap_or(0)
}

fn two_workers() -> RuntimeBuilder {
    Runtime::builder().workers(2)
}

fn runtime() -> Runtime {
    two_workers().start().unwrap()
}

/// Starts a node as soon as the directory is free, which it may not be for a moment after the end of another.
async fn reopen(options: Options, runtime: &RuntimeHandle) -> Node {
    loop {
        match options.clone().open(runtime) {
            Err(OpenError::InUse { .. }) => tokio::time::sleep(Duration::from_millis(1)).await,
            node => return node.unwrap(),
        }
    }
}

/// Options with a checkpoint every few groups, and a step of the sweeper each millisecond.
fn busy_options() -> Options {
    busy_options_at("")
}

fn busy_options_at(path: impl AsRef<Path>) -> Options {
    let store = Store::options().map_bytes(32 << 20).checkpoint_bytes(4 << 10);
    Node::options(path).store(store).idle_after(Duration::from_millis(100)).live_max(2)
}

/// Draws the faults of a simulated program: of the disk, of its processes, or of the power within so many operations.
fn draw_faults<P: Process>(sim: &Sim, operations: u64) {
    match sim.random(6) {
        0 | 1 => sim.disk().fail_randomly(10 + sim.random(60) as u32),
        2 => sim.disk().set_room(Some(sim.random(400_000))),
        3 => _ = sim.faults().crash::<P>(5).delay(Duration::from_millis(2), 5),
        4 => _ = sim.faults().crash_anywhere(2),
        _ => {}
    }
    if sim.random(2) == 0 {
        sim.disk().cut_at(1 + sim.random(operations));
    }
}

/// Ends the faults of a simulated disk.
fn mend(sim: &Sim) {
    sim.disk().heal();
    sim.disk().set_room(None);
}

/// Ends a simulated program and its faults, in order or not.
async fn end(sim: &Sim, node: Node) {
    sim.faults().stop();
    if sim.random(3) == 0 && !sim.disk().is_down() {
        node.shutdown().await;
    }
    sim.crash();
    mend(sim);
}

/// Starts a simulated node, also if operations of the disk fail meanwhile, or the power.
fn start_again(sim: &Sim, options: impl Fn() -> Options) -> Node {
    loop {
        match sim.start(options()) {
            Ok(node) => return node,
            Err(error) => {
                sim.note("the node does not start");
                let is_fault = matches!(&error, OpenError::Io { .. });
                assert!(sim.disk().is_down() || is_fault, "{error}");
                if !sim.disk().is_down() {
                    sim.disk().heal();
                }
            }
        }
    }
}

/// Waits until a condition holds; [`with_node`] bounds the time.
async fn until(mut holds: impl AsyncFnMut() -> bool) {
    while !holds().await {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

/// Runs `f` with a node on a directory of its own.
fn on_node(f: impl AsyncFnOnce(&Node)) {
    with_node(|options| options, f);
}

/// Runs `f` with a node on a directory of its own, with these options.
fn with_node(options: impl FnOnce(Options) -> Options, f: impl AsyncFnOnce(&Node)) {
    let directory = tempfile::tempdir().unwrap();
    program(options(Node::options(directory.path())), f);
}

/// Runs `f` with a node whose store has room for little.
fn on_small_store(f: impl AsyncFnOnce(&Node)) {
    with_node(|options| options.store(Store::options().map_bytes(4 << 20)), f);
}

/// Runs `f` with a node of these options, on a runtime of its own, up to the node's shutdown.
fn program<R>(options: Options, f: impl AsyncFnOnce(&Node) -> R) -> R {
    let runtime = runtime();
    let node = bounded(&runtime, reopen(options, &runtime));
    let outcome = bounded(&runtime, async {
        let outcome = f(&node).await;
        node.shutdown().await;
        outcome
    });
    assert_eq!(node.live(), 0);
    outcome
}

/// Runs `f` with a node on a directory of its own and the node's runtime.
fn on_runtime(runtime: RuntimeBuilder, f: impl AsyncFnOnce(&Node, &RuntimeHandle)) {
    let directory = tempfile::tempdir().unwrap();
    let runtime = runtime.start().unwrap();
    let node = Node::options(directory.path()).open(&runtime).unwrap();
    bounded(&runtime, async {
        f(&node, &runtime).await;
        node.shutdown().await;
    });
}

/// Runs a test, and fails it if it hangs.
fn bounded<R>(runtime: &Runtime, test: impl Future<Output = R>) -> R {
    let done = runtime.block_on(async |_| tokio::time::timeout(HANGS_AFTER, test).await);
    done.expect("the test hangs")
}

/// Blocks the store's writer until it is dropped.
struct BlockedWriter {
    _release: mpsc::Sender<()>,
}

impl BlockedWriter {
    async fn new(node: &Node) -> BlockedWriter {
        BlockedWriter::try_new(node).await.unwrap()
    }

    /// Returns `None` if the store's queue has no room.
    async fn try_new(node: &Node) -> Option<BlockedWriter> {
        let (release, released) = mpsc::channel::<()>();
        let (held, holds) = oneshot::channel();
        let mut held = Some(held);
        let update = node.store().update(move |_| {
            if let Some(held) = held.take() {
                let _ = held.send(());
            }
            let _ = released.recv();
            Ok::<_, ReadError>(())
        });
        tokio::spawn(update);
        holds.await.ok()?;
        Some(BlockedWriter { _release: release })
    }
}

/// Starts a call and lets its message be sent before the next one's.
async fn begin<R: Send + 'static, E: Send + 'static>(
    call: impl Future<Output = Result<R, E>> + Send + 'static,
) -> tokio::task::JoinHandle<Result<R, E>> {
    let (sent, sends) = tokio::sync::oneshot::channel();
    let task = tokio::spawn(async move {
        let mut call = std::pin::pin!(call);
        let first = std::future::poll_fn(|cx| std::task::Poll::Ready(call.as_mut().poll(cx))).await;
        let _ = sent.send(());
        match first {
            std::task::Poll::Ready(outcome) => outcome,
            std::task::Poll::Pending => call.await,
        }
    });
    sends.await.unwrap();
    task
}

/// Starts a call, and waits until the changes of its turn are submitted.
async fn begin_turn<R: Send + 'static, E: Send + 'static>(
    node: &Node,
    call: impl Future<Output = Result<R, E>> + Send + 'static,
) -> tokio::task::JoinHandle<Result<R, E>> {
    let before = node.store().submitted_through();
    let begun = begin(call).await;
    until(async || node.store().submitted_through() > before).await;
    begun
}

/// Time since 1970 at which a simulation begins.
const BEGIN: Duration = Duration::from_secs(1_000_000_000);

/// Has the stores of a simulation show a clock that a test sets: the returned seconds apart from the true one.
fn set_clock(sim: &Sim) -> Arc<AtomicI64> {
    let skew = Arc::new(AtomicI64::new(0));
    let (clock, shown) = (sim.clone(), skew.clone());
    sim.disk().set_clock(move || {
        let skew = Duration::from_secs(shown.load(Ordering::Relaxed).unsigned_abs());
        let now = BEGIN + clock.elapsed();
        if shown.load(Ordering::Relaxed) < 0 { now - skew } else { now + skew }
    });
    skew
}
