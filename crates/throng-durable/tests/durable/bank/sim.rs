//! The bank in the simulator: the power fails at a write, a flush or any other operation of the disk, again and
//! again, beside crashes of accounts, operations that fail, and a full disk.
//!
//! ```text
//!  life 1 ──✗ at an operation ──▶ life 2 ──✗──▶ life 3 ──✗──▶ the books are closed: every transfer is finished
//!            the books are read, and compared with what every client has heard
//! ```
//!
//! A run without a power cut counts the operations of the first life, so that each of them is cut equally often.
//!
//! `THRONG_BANK_SEEDS` is the number of seeds, `THRONG_SIM_SEED` the only one.

use std::cell::Cell;
use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64};
use std::task::Poll;

use throng_durable::Options;
use throng_durable::sim::{self, Sim};

use super::*;
use crate::start_again;

thread_local! {
    /// Whether the bank of this thread is simulated.
    pub(super) static IS_SIMULATED: Cell<bool> = const { Cell::new(false) };
}

const ACCOUNTS: u64 = 6;
const CLIENTS: u64 = 3;
const READERS: u64 = 2;
const TRANSFERS: u64 = 3;
const LIVES: u64 = 3;
/// Pause of a client after an error.
const PAUSE: Duration = Duration::from_millis(3);
/// Time after which a life ends, whatever its clients do.
const LIFE: Duration = Duration::from_secs(20);

/// Numbers over all seeds, which show that something was tested.
#[derive(Debug, Default)]
struct Tested {
    cuts: AtomicU64,
    ended: AtomicU64,
    read: AtomicU64,
}

fn options() -> Options {
    // A checkpoint every few groups.
    let store = Store::options().map_bytes(32 << 20).checkpoint_bytes(4 << 10);
    Node::options("").store(store).idle_after(Duration::from_millis(200)).live_max(10)
}

/// The clients of a life.
struct Clients {
    sim: Sim,
    /// Number of clients at work.
    busy: Arc<AtomicU32>,
}

impl Clients {
    fn start(sim: &Sim, node: &Node, life: u64) -> Clients {
        let busy = Arc::new(AtomicU32::new(0));
        let clients = Clients { sim: sim.clone(), busy };
        for client in 0..CLIENTS {
            let (sim, node) = (sim.clone(), node.clone());
            clients.spawn("client", transfer(sim, node, format!("{life}-{client}")));
        }
        for _ in 0..READERS {
            clients.spawn("reader", read(sim.clone(), node.clone()));
        }
        clients.spawn("disturber", disturb(sim.clone(), node.clone()));
        clients
    }

    fn spawn(&self, name: &'static str, client: impl Future<Output = ()> + Send + 'static) {
        self.busy.fetch_add(1, Ordering::Relaxed);
        let busy = self.busy.clone();
        self.sim.spawn(name, async move {
            client.await;
            busy.fetch_sub(1, Ordering::Relaxed);
        });
    }

    async fn done(&self) {
        while self.busy.load(Ordering::Relaxed) > 0 {
            tokio::time::sleep(PAUSE).await;
        }
    }
}

/// Waits for a while after an error; returns whether there is no sense in another attempt.
async fn is_over(sim: &Sim, error: &EntityError) -> bool {
    if matches!(error, EntityError::ShutDown) || sim.disk().is_down() {
        return true;
    }
    tokio::time::sleep(PAUSE).await;
    false
}

async fn transfer(sim: Sim, node: Node, name: String) {
    for number in 0..TRANSFERS {
        let id = format!("{name}-{number}");
        let (from, to) = (sim.random(ACCOUNTS) as u32, sim.random(ACCOUNTS) as u32);
        let amount = 1 + sim.random(300) as i64;
        while let Err(error) = node.entity::<Transfer>(&id).call(Open { from, to, amount }).await {
            if is_over(&sim, &error).await {
                return;
            }
        }
        say(&format!("opened {id} {from} {to} {amount}"));
        let Some(stage) = finish(&sim, &node, &id).await else { return };
        say(&format!("ended {id} {stage:?}"));
    }
}

/// Takes steps until the transfer is at its end; `None` if the node ends first. Some steps are sent before the
/// step before is on the disk.
async fn finish(sim: &Sim, node: &Node, id: &str) -> Option<Stage> {
    let transfer = node.entity::<Transfer>(id);
    let mut reached = None;
    loop {
        if sim.random(3) == 0 {
            let _ = transfer.send(Step);
        }
        match transfer.call(Step).await {
            Ok(stage) if stage.is_final() => return Some(stage),
            // A step that gets nowhere, because the store refuses writes: it recovers only as time passes.
            Ok(stage) if reached == Some(stage) => tokio::time::sleep(PAUSE).await,
            Ok(stage) => reached = Some(stage),
            Err(error) if is_over(sim, &error).await => return None,
            Err(_) => {}
        }
    }
}

async fn read(sim: Sim, node: Node) {
    for _ in 0..3 * TRANSFERS {
        let account = sim.random(ACCOUNTS) as u32;
        match node.entity::<Account>(account.to_string()).call(Read).await {
            Ok(state) => say_read(account, &state),
            Err(error) if is_over(&sim, &error).await => return,
            Err(_) => {}
        }
    }
}

async fn disturb(sim: Sim, node: Node) {
    for _ in 0..TRANSFERS {
        tokio::time::sleep(Duration::from_micros(sim.random(3_000))).await;
        let account = node.entity::<Account>(sim.random(ACCOUNTS).to_string());
        match account.reveal(None).await {
            Ok(address) => address.kill(),
            Err(error) if is_over(&sim, &error).await => return,
            Err(_) => {}
        }
    }
}

/// Runs a life until the power fails, or until its clients are done.
async fn live(sim: &Sim, node: &Node, life: u64) {
    let clients = Clients::start(sim, node, life);
    let mut crashed = pin!(sim.crashed());
    let mut done = pin!(tokio::time::timeout(LIFE, clients.done()));
    poll_fn(|cx| match crashed.as_mut().poll(cx) {
        Poll::Pending => done.as_mut().poll(cx).map(drop),
        crashed => crashed,
    })
    .await;
}

/// Draws the faults of a life besides the power cut.
fn disturb_life(sim: &Sim) {
    match sim.random(4) {
        0 => sim.disk().fail_randomly(20),
        1 => sim.disk().set_room(Some(sim.random(400_000))),
        2 => _ = sim.faults().crash::<Account>(3).delay(Duration::from_millis(2), 5),
        _ => {}
    }
}

fn books(node: &Node) -> Books {
    let books = Books::read(node.store());
    books.check();
    books
}

fn note_said(heard: &mut Heard) {
    SAID.take().iter().for_each(|line| heard.note(line));
}

/// Number of operations of the disk in a first life without a power cut.
fn operations_of_the_first_life(seed: u64) -> u64 {
    let operations = Arc::new(AtomicU64::new(0));
    let counted = operations.clone();
    // The simulator has this thread for itself.
    let run = move || {
        sim::replay(seed, |sim| {
            let counted = counted.clone();
            async move {
                let node = start_again(&sim, options);
                live(&sim, &node, 0).await;
                counted.store(sim.disk().operations(), Ordering::Relaxed);
            }
        })
    };
    std::thread::spawn(run).join().unwrap();
    operations.load(Ordering::Relaxed)
}

async fn bank(sim: Sim, tested: &Tested) {
    IS_SIMULATED.set(true);
    SAID.take();
    let mut heard = Heard::default();
    let operations = operations_of_the_first_life(sim.seed());
    for life in 0..LIVES {
        if life == 0 {
            // Drawing it from the run would make another course than that which was counted.
            let drawn = sim.seed().wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
            sim.disk().cut_at(1 + drawn % operations);
        } else {
            // A later life does not make the store.
            sim.disk().cut_at(1 + sim.random(operations / 2));
            disturb_life(&sim);
        }
        let node = start_again(&sim, options);
        heard.check(&books(&node));
        live(&sim, &node, life).await;
        tested.cuts.fetch_add(sim.disk().is_down().into(), Ordering::Relaxed);
        sim.crash();
        sim.disk().heal();
        sim.faults().stop();
        note_said(&mut heard);
    }

    let node = start_again(&sim, options);
    let found = books(&node);
    heard.check(&found);
    for (id, _) in found.open_transfers() {
        let stage = finish(&sim, &node, &id).await.unwrap();
        say(&format!("ended {id} {stage:?}"));
    }
    note_said(&mut heard);
    let closed = books(&node);
    heard.check(&closed);
    let sum: i64 = closed.accounts.values().map(|account| account.balance).sum();
    assert_eq!(sum, closed.accounts.len() as i64 * BALANCE, "money was made or lost");
    assert_eq!(closed.open_transfers().count(), 0);
    node.shutdown().await;
    tested.ended.fetch_add(heard.ended.len() as u64, Ordering::Relaxed);
    tested.read.fetch_add(heard.balances.len() as u64, Ordering::Relaxed);
}

#[test]
fn a_simulated_bank_keeps_its_books_through_power_cuts_at_any_operation() {
    let seeds = number_or("THRONG_BANK_SEEDS", 40);
    let tested = Tested::default();
    sim::check(seeds, |sim| bank(sim, &tested));
    println!("{seeds} seeds, {tested:?}");
    let number = |count: &AtomicU64| count.load(Ordering::Relaxed);
    // Otherwise little was tested.
    assert!(number(&tested.cuts) >= seeds && number(&tested.ended) >= seeds, "{tested:?}");
    assert!(number(&tested.read) >= seeds, "{tested:?}");
}

#[test]
fn a_seed_of_the_simulated_bank_repeats_exactly_and_other_seeds_differ() {
    let seeds = number_or("THRONG_BANK_SEEDS", 40) / 10;
    let run = |seed| sim::replay(seed, |sim| async move { bank(sim, &Tested::default()).await });
    let traces: Vec<_> = (0..seeds).map(run).collect();
    for (seed, trace) in traces.iter().enumerate() {
        assert_eq!(*trace, run(seed as u64), "seed {seed} does not repeat");
    }
    let digests: BTreeSet<_> = traces.iter().map(|trace| trace.digest).collect();
    assert_eq!(digests.len(), traces.len(), "two seeds took the same course");
}
