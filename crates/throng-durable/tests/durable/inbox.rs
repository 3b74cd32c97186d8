//! Durable messages: each is handled exactly once, in the order of each sender, whatever fails.
//!
//! `THRONG_INBOX_SEEDS` is the number of seeds of the simulated payments, `THRONG_SIM_SEED` the only one;
//! `THRONG_INBOX_KILLS` is the number of times that a program of payments is killed.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use throng::prelude::*;
use throng_durable::sim::{self, Sim};
use throng_durable::{
    Durable, DurableContext, Entity, EntityError, Inbox, Node, OnFailure, Options,
};
use tokio::time::sleep;

use crate::crash::{DIRECTORY, acknowledge, child, run_and_kill};
use crate::{
    busy_options, busy_options_at, draw_faults, end, mend, number_or, program, runtime,
    start_again, until,
};

const WALLETS: u64 = 4;
const CLIENTS: u64 = 3;
const PAYMENTS: u64 = 6;
const LIVES: u64 = 3;

/// An entity that keeps a list of all that was paid and credited.
#[derive(Durable, Clone, Debug, Default, Serialize, Deserialize)]
#[durable(kind = "wallet")]
struct Wallet {
    balance: i64,
    /// Payments, with the key of the payee.
    paid: Vec<(u64, String)>,
    /// Credits, with the key of the payer.
    credited: Vec<(u64, String)>,
}

#[process]
impl Wallet {
    #[message(durable)]
    fn pay(&mut self, id: u64, to: String, amount: i64, cx: &mut Context<Self>) {
        self.balance -= amount;
        self.paid.push((id, to.clone()));
        let from = cx.key().to_owned();
        let to = cx.node().entity::<Wallet>(to);
        cx.send_durable(&to, Credit { id, from, amount });
    }

    #[message(durable = "credit")]
    async fn credit(&mut self, id: u64, from: String, amount: i64) {
        // The payment may be lost, or the wallet killed, before this turn is submitted.
        sleep(Duration::from_millis(id % 3)).await;
        self.balance += amount;
        self.credited.push((id, from));
    }

    #[message]
    fn read(&self) -> Wallet {
        self.clone()
    }

    #[message]
    fn die(&self, cx: &mut Context<Self>) {
        cx.pid().kill();
    }

    #[message]
    fn fail(&mut self) {
        panic!("asked for");
    }
}

fn options() -> Options {
    busy_options().live_max(3)
}

/// Answers that the clients of all lives have got.
#[derive(Debug, Default)]
struct Told {
    next: AtomicU64,
    /// Payments that are stored, by the client and the payer.
    stored: Mutex<BTreeMap<(u64, String), Vec<u64>>>,
}

async fn pay(sim: Sim, node: Node, client: u64, told: Arc<Told>) {
    for _ in 0..PAYMENTS {
        let [from, to] = [(); 2].map(|()| sim.random(WALLETS).to_string());
        let id = told.next.fetch_add(1, Ordering::Relaxed);
        let mut pay = Pay { id, to, amount: 1 + sim.random(9) as i64 };
        loop {
            match node.entity::<Wallet>(&from).send_durable(pay).await {
                Ok(()) => {
                    let key = (client, from);
                    told.stored.lock().unwrap().entry(key).or_default().push(id);
                    break;
                }
                // It may be stored, so that a second attempt might be a second payment.
                Err(refused) if matches!(refused.error, EntityError::Unknown(_)) => break,
                Err(_) if sim.disk().is_down() => return,
                Err(refused) if matches!(refused.error, EntityError::ShutDown) => return,
                Err(refused) => pay = refused.message,
            }
            sleep(Duration::from_millis(3)).await;
        }
    }
}

/// Has wallets killed, panic and called, at random.
async fn disturb(sim: Sim, node: Node) {
    for _ in 0..2 * PAYMENTS {
        sleep(Duration::from_micros(sim.random(4_000))).await;
        let wallet = node.entity::<Wallet>(sim.random(WALLETS).to_string());
        match sim.random(3) {
            0 => drop(wallet.die().await),
            1 => drop(wallet.fail().await),
            _ => drop(wallet.read().await),
        }
    }
}

/// Waits until no message waits, and returns the wallets by their keys.
async fn settle(node: &Node) -> BTreeMap<String, Wallet> {
    let mut wallets = BTreeMap::new();
    for key in (0..WALLETS).map(|key| key.to_string()) {
        wallets.insert(key.clone(), node.entity::<Wallet>(key));
    }
    for _ in 0..100_000 {
        let waits = |wallet: &Entity<Wallet>| match wallet.inbox() {
            Ok(inbox) => {
                assert_eq!(inbox.parked, [], "no handler fails by itself");
                !inbox.waiting.is_empty()
            }
            // The store recovers.
            Err(_) => true,
        };
        if !wallets.values().any(waits) {
            let mut states = BTreeMap::new();
            for (key, wallet) in &wallets {
                if let Ok(state) = wallet.read().await {
                    states.insert(key.clone(), state);
                }
            }
            if states.len() == wallets.len() {
                return states;
            }
        }
        sleep(Duration::from_millis(10)).await;
    }
    let inboxes = wallets.values().map(|wallet| wallet.inbox());
    panic!("messages wait for ever: {:?}", inboxes.collect::<Vec<_>>());
}

fn check(told: &Told, wallets: &BTreeMap<String, Wallet>) {
    let paid: Vec<u64> =
        wallets.values().flat_map(|wallet| wallet.paid.iter().map(|(id, _)| *id)).collect();
    let once: BTreeSet<u64> = paid.iter().copied().collect();
    assert_eq!(once.len(), paid.len(), "a payment was made twice: {paid:?}");
    let stored = told.stored.lock().unwrap();
    for ((client, payer), stored) in &*stored {
        let own: Vec<u64> = wallets[payer]
            .paid
            .iter()
            .map(|(id, _)| *id)
            .filter(|id| stored.contains(id))
            .collect();
        assert_eq!(&own, stored, "payments of client {client} by {payer}, in their order");
    }
    for (payer, wallet) in wallets {
        for (payee, other) in wallets {
            let pair = |list: &[(u64, String)], key: &str| -> Vec<u64> {
                list.iter().filter(|(_, own)| own == key).map(|(id, _)| *id).collect()
            };
            assert_eq!(
                pair(&wallet.paid, payee),
                pair(&other.credited, payer),
                "each payment of {payer} to {payee} is credited once, in order"
            );
        }
    }
    let sum: i64 = wallets.values().map(|wallet| wallet.balance).sum();
    assert_eq!(sum, 0, "money was made or lost");
}

#[test]
fn simulated_payments_take_place_exactly_once_and_in_order() {
    let seeds = number_or("THRONG_INBOX_SEEDS", 60);
    let handled = AtomicU64::new(0);
    sim::check(seeds, |sim: Sim| {
        let handled = &handled;
        async move {
            let told = Arc::new(Told::default());
            for life in 0..LIVES {
                let node = start_again(&sim, options);
                draw_faults::<Wallet>(&sim, 150);
                for client in 0..CLIENTS {
                    let client = life * CLIENTS + client;
                    sim.spawn("client", pay(sim.clone(), node.clone(), client, told.clone()));
                }
                sim.spawn("disturber", disturb(sim.clone(), node.clone()));
                sleep(Duration::from_millis(sim.random(150))).await;
                sim.faults().stop();
                if sim.random(2) == 0 && !sim.disk().is_down() {
                    // What waits is handled without a restart.
                    mend(&sim);
                    settle(&node).await;
                }
                end(&sim, node).await;
            }
            let node = start_again(&sim, options);
            let wallets = settle(&node).await;
            check(&told, &wallets);
            let count = wallets.values().map(|wallet| wallet.credited.len() as u64).sum();
            handled.fetch_add(count, Ordering::Relaxed);
        }
    });
    let handled = handled.into_inner();
    assert!(handled > seeds * LIVES, "{handled} payments in {seeds} runs show little");
}

#[test]
fn a_message_is_handled_after_processes_were_killed_before_their_first_turns() {
    sim::check(20, |sim: Sim| async move {
        let node = start_again(&sim, options);
        sim.faults().crash::<Wallet>(600);
        for id in 0..4 * WALLETS {
            let to = (id % WALLETS).to_string();
            let pay = Pay { id, to: to.clone(), amount: 1 };
            node.entity::<Wallet>(to).send_durable(pay).await.unwrap();
            sleep(Duration::from_millis(sim.random(5))).await;
        }
        sim.faults().stop();
        // Nobody calls them.
        sleep(Duration::from_secs(10)).await;
        for key in 0..WALLETS {
            let inbox = node.entity::<Wallet>(key.to_string()).inbox().unwrap();
            assert_eq!((inbox.waiting, inbox.parked), (vec![], vec![]), "wallet {key}");
        }
    });
}

#[test]
#[ignore = "the child of a_killed_program_has_made_each_payment_once_and_in_order"]
fn paying_child() {
    let runtime = runtime();
    let path = std::env::var(DIRECTORY).unwrap();
    let node = busy_options_at(&path).live_max(3).open(&runtime).unwrap();
    runtime.block_on(async |_| {
        for client in 0..CLIENTS {
            let node = node.clone();
            tokio::spawn(async move {
                loop {
                    let [from, to] = [(); 2].map(|()| fastrand::u64(..WALLETS).to_string());
                    let (id, amount) = (fastrand::u64(..), fastrand::i64(1..9));
                    let payer = node.entity::<Wallet>(&from);
                    payer.send_durable(Pay { id, to, amount }).await.unwrap();
                    acknowledge(format_args!("{client} {from} {id}"));
                }
            });
        }
        // Runs until the process is killed.
        std::future::pending::<()>().await;
    });
}

#[test]
fn a_killed_program_has_made_each_payment_once_and_in_order() {
    let kills = number_or("THRONG_INBOX_KILLS", 8);
    let directory = tempfile::tempdir().unwrap();
    let told = Told::default();
    let mut credited = 0;
    for kill in 0..kills {
        let replies = fastrand::usize(20..100);
        let mut child = child("inbox::paying_child", directory.path());
        run_and_kill(&mut child, replies, Duration::ZERO, |line| {
            let [client, payer, id] = line.split(' ').collect::<Vec<_>>()[..] else {
                panic!("{line}")
            };
            let key = (kill * CLIENTS + client.parse::<u64>().unwrap(), payer.to_owned());
            told.stored.lock().unwrap().entry(key).or_default().push(id.parse().unwrap());
        });
        program(busy_options_at(directory.path()).live_max(3), async |node| {
            // Wallets go on without a call: only their inboxes are looked into until these are empty.
            let wallets = settle(node).await;
            check(&told, &wallets);
            credited = wallets.values().map(|wallet| wallet.credited.len() as u64).sum();
        });
    }
    println!("{kills} kills, {credited} payments");
    assert!(credited >= 20 * kills, "{credited} payments show little");
}

/// An entity whose handler fails as long as its dependencies say so.
#[derive(Durable, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[durable(kind = "clerk", deps = Fails, on_failure = OnFailure::park_after(3))]
struct Clerk {
    done: Vec<u64>,
}

/// The message whose handling fails.
type Fails = Arc<AtomicU64>;

#[derive(Clone, Serialize, Deserialize)]
struct Work {
    number: u64,
}
impl Message for Work {
    type Reply = ();
}
impl throng_durable::DurableMessage for Work {
    const NAME: &'static str = "work";
}

const HOUR: Duration = Duration::from_secs(3600);

#[process]
impl Clerk {
    #[message(durable)]
    fn file(&mut self, number: u64, cx: &mut Context<Self>) {
        assert!(cx.deps().load(Ordering::Relaxed) != number, "no paper for {number}");
        self.done.push(number);
    }

    /// Sends to a clerk and does nothing else; `false` if the other's inbox is full.
    #[message]
    fn pass_on(&mut self, to: String, number: u64, tries: bool, cx: &mut Context<Self>) -> bool {
        self.done.push(number);
        let to = cx.node().entity::<Clerk>(to);
        match tries {
            true => match cx.try_send_durable(&to, File { number }) {
                Ok(()) => true,
                Err(refused) => {
                    assert!(matches!(refused.error, EntityError::Full { .. }), "{refused}");
                    assert_eq!(refused.message.number, number);
                    false
                }
            },
            false => {
                cx.send_durable(&to, File { number });
                true
            }
        }
    }

    #[message]
    fn done(&self) -> Vec<u64> {
        self.done.clone()
    }

    /// Waits while messages arrive.
    #[message]
    async fn wait(&self, time: Duration) {
        sleep(time).await;
    }
}

/// The same, which does something else about failures.
macro_rules! clerk {
    ($name:ident, $kind:literal, $on_failure:expr, $done:ident) => {
        #[derive(Durable, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
        #[durable(kind = $kind, deps = Fails, on_failure = $on_failure, messages(Work))]
        struct $name {
            done: Vec<u64>,
        }
        #[process]
        impl $name {
            #[message(name = $done)]
            fn done(&self) -> Vec<u64> {
                self.done.clone()
            }
        }
        impl Handle<Work> for $name {
            async fn handle(&mut self, Work { number }: Work, cx: &mut Context<Self>) {
                assert!(cx.deps().load(Ordering::Relaxed) != number, "no paper for {number}");
                self.done.push(number);
            }
        }
    };
}
clerk!(StrictClerk, "strict", OnFailure::stop_after(2), StrictlyDone);
clerk!(PatientClerk, "patient", OnFailure::park_after(9).pauses(HOUR, HOUR), PatientlyDone);

fn clerks(sim: &Sim, options: Options, fails: &Fails) -> Node {
    let node = sim.start(options).unwrap();
    node.register::<Clerk>(fails.clone());
    node.register::<StrictClerk>(fails.clone());
    node.register::<PatientClerk>(fails.clone());
    node
}

#[test]
fn a_message_that_always_fails_is_parked_and_can_be_retried_or_skipped() {
    sim::check(5, |sim: Sim| async move {
        let fails = Fails::new(2.into());
        let mut node = clerks(&sim, options(), &fails);
        for key in ["ada", "bob"] {
            for number in 1..=3 {
                node.entity::<Clerk>(key).send_durable(File { number }).await.unwrap();
            }
        }
        while node.stat().unwrap().parked < 2 {
            // Calls are answered meanwhile, and a restart forgets no attempt.
            node.entity::<Clerk>("ada").done().await.unwrap();
            if sim.random(20) == 0 {
                sim.crash();
                node = clerks(&sim, options(), &fails);
            }
            sleep(Duration::from_millis(10)).await;
            let parked = |key| node.entity::<Clerk>(key).inbox().unwrap().parked.len();
            if parked("ada") + parked("bob") == 2 {
                break;
            }
        }
        for key in ["ada", "bob"] {
            let clerk = node.entity::<Clerk>(key);
            until(async || clerk.done().await.unwrap() == [1, 3]).await;
            let inbox = clerk.inbox().unwrap();
            assert_eq!(inbox.waiting, []);
            let [parked] = inbox.parked.as_slice() else { panic!("{inbox:?}") };
            let failure = parked.failure.as_ref().unwrap();
            assert_eq!((parked.name.as_str(), failure.attempts), ("file", 3));
            assert!(failure.reason.contains("no paper for 2"), "{failure:?}");
            assert!(failure.place.as_ref().unwrap().contains("inbox.rs"), "{failure:?}");
        }
        fails.store(0, Ordering::Relaxed);
        let sequence =
            |node: &Node, key| node.entity::<Clerk>(key).inbox().unwrap().parked[0].sequence;
        let [ada, bob] = ["ada", "bob"].map(|key| node.entity::<Clerk>(key));
        assert!(ada.retry_message(sequence(&node, "ada")).await.unwrap());
        assert!(bob.skip_message(sequence(&node, "bob")).await.unwrap());
        assert!(!bob.skip_message(77).await.unwrap() && !ada.retry_message(77).await.unwrap());
        until(async || ada.done().await.unwrap() == [1, 3, 2]).await;
        assert_eq!(bob.done().await.unwrap(), [1, 3]);
        for clerk in [ada, bob] {
            assert_eq!(clerk.inbox().unwrap(), Inbox::default());
        }
    });
}

#[test]
fn a_message_that_has_failed_waits_for_its_pause_whatever_wakes_its_entity() {
    sim::check(1, |sim: Sim| async move {
        let fails = Fails::new(2.into());
        let begin = || clerks(&sim, options().idle_after(HOUR / 120), &fails);
        let mut node = begin();
        for number in [2, 3] {
            node.entity::<PatientClerk>("ada").send_durable(Work { number }).await.unwrap();
        }
        let attempts = |node: &Node| {
            let inbox = node.entity::<PatientClerk>("ada").inbox().unwrap();
            inbox.waiting[0].failure.as_ref().unwrap().attempts
        };
        for _ in 0..20 {
            // Half of the pause at least.
            sleep(HOUR / 50).await;
            assert_eq!(attempts(&node), 1);
            if sim.random(8) == 0 {
                sim.crash();
                node = begin();
            }
            assert!(node.entity::<PatientClerk>("ada").done().await.unwrap().is_empty());
        }
        sleep(HOUR).await;
        // Pauses are cut by up to a half.
        assert!((2..=3).contains(&attempts(&node)));
        fails.store(0, Ordering::Relaxed);
        sleep(HOUR).await;
        assert_eq!(node.entity::<PatientClerk>("ada").done().await.unwrap(), [2, 3]);
        // Nothing is left of the failures.
        let export = node.records().export("patient", "ada").unwrap().unwrap();
        let tables: Vec<char> = export.map(|record| record.unwrap().table).collect();
        assert!(!tables.contains(&'A'), "{tables:?}");
    });
}

#[test]
fn an_entity_that_stops_takes_no_stored_message_until_somebody_acts() {
    sim::check(5, |sim: Sim| async move {
        let fails = Fails::new(2.into());
        let mut node = clerks(&sim, options().idle_after(Duration::from_secs(4)), &fails);
        for number in 1..=4 {
            node.entity::<StrictClerk>("eve").send_durable(Work { number }).await.unwrap();
        }
        sleep(Duration::from_secs(10)).await;
        let has_crashed = sim.random(2) == 0;
        if has_crashed {
            sim.crash();
            node = clerks(&sim, options().idle_after(Duration::from_secs(4)), &fails);
        }
        let eve = node.entity::<StrictClerk>("eve");
        eve.send_durable(Work { number: 5 }).await.unwrap();
        sleep(Duration::from_secs(10)).await;
        assert_eq!(eve.done().await.unwrap(), [1]);
        let activations = node.stat().unwrap().activations;
        sleep(Duration::from_secs(100)).await;
        assert!(node.stat().unwrap().activations <= activations + 1, "it is woken in vain");
        let inbox = eve.inbox().unwrap();
        assert_eq!((inbox.waiting.len(), inbox.parked.len()), (4, 0));
        assert_eq!(node.stat().unwrap().stopped, u64::from(!has_crashed), "one entity stops once");
        assert_eq!(inbox.waiting[0].failure.as_ref().unwrap().attempts, 2);
        let sequence = inbox.waiting[0].sequence;
        let expected: &[u64] = match sim.random(2) {
            0 => {
                fails.store(0, Ordering::Relaxed);
                assert!(eve.retry_message(sequence).await.unwrap());
                &[1, 2, 3, 4, 5]
            }
            _ => {
                assert!(eve.skip_message(sequence).await.unwrap());
                &[1, 3, 4, 5]
            }
        };
        sleep(Duration::from_secs(1)).await;
        assert_eq!(eve.done().await.unwrap(), expected);
    });
}

#[test]
fn a_full_inbox_refuses_a_message_and_a_turn_that_sends_one() {
    sim::check(5, |sim: Sim| async move {
        let fails = Fails::default();
        let node = clerks(&sim, options().inbox_max(3), &fails);
        let [ada, bob] = ["ada", "bob"].map(|key| node.entity::<Clerk>(key));
        // Bob handles nothing meanwhile, and later what he has.
        let wait = bob.call(Wait { time: Duration::from_secs(3) });
        let busy = sim.runtime().tokio().spawn(wait.within(Duration::from_secs(9)));
        sleep(Duration::from_millis(10)).await;
        for number in 1..=2 {
            bob.send_durable(File { number }).await.unwrap();
        }
        assert!(ada.pass_on("bob".into(), 3, false).await.unwrap());
        let refused = bob.send_durable(File { number: 4 }).await.unwrap_err();
        assert_eq!(refused.message.number, 4);
        let EntityError::Full { receiver, waiting: 3, inbox_max: 3 } = refused.error else {
            panic!("{refused}")
        };
        assert_eq!(receiver, "clerk/bob");
        let refused = ada.pass_on("bob".into(), 5, false).await;
        assert!(matches!(refused, Err(EntityError::Full { .. })), "{refused:?}");
        assert!(!ada.pass_on("bob".into(), 6, true).await.unwrap());
        assert_eq!(ada.done().await.unwrap(), [3, 6], "nothing is kept of the turn that failed");
        busy.await.unwrap().unwrap();
        until(async || bob.done().await.unwrap() == [1, 2, 3]).await;
        // A long message counts once for each KiB.
        assert!(ada.pass_on("bob".into(), 7, true).await.unwrap());
        until(async || bob.done().await.unwrap() == [1, 2, 3, 7]).await;
    });
}

#[test]
fn an_inbox_stays_full_while_its_entity_is_activated() {
    /// An entity whose activation takes a second.
    #[derive(Durable, Default, Serialize, Deserialize)]
    #[durable(kind = "sluggard")]
    struct Sluggard {
        done: u64,
    }

    #[process]
    impl Sluggard {
        #[hook]
        async fn started(&mut self) {
            sleep(Duration::from_secs(1)).await;
        }
        #[message(durable)]
        fn work(&mut self) {
            self.done += 1;
        }
        #[message]
        fn work_done(&self) -> u64 {
            self.done
        }
    }
    sim::check(1, |sim: Sim| async move {
        let start = || {
            let node = start_again(&sim, || options().inbox_max(3));
            node.register::<Sluggard>(());
            node
        };
        let node = start();
        for _ in 0..2 {
            node.entity::<Sluggard>("it").send_durable(Work {}).await.unwrap();
        }
        sim.crash();
        drop(node);
        let node = start();
        let it = node.entity::<Sluggard>("it");
        let asked = sim.runtime().tokio().spawn(it.work_done().into_future());
        sleep(Duration::from_millis(500)).await;
        it.send_durable(Work {}).await.unwrap();
        // The first reads the store, and the second goes by what the first has found.
        for _ in 0..2 {
            let refused = it.send_durable(Work {}).await.unwrap_err();
            assert!(matches!(refused.error, EntityError::Full { waiting: 3, .. }), "{refused}");
        }
        asked.await.unwrap().unwrap();
        until(async || it.work_done().await.unwrap() >= 2).await;
        it.send_durable(Work {}).await.unwrap();
    });
}

#[test]
fn what_waits_for_an_entity_survives_its_removal_and_what_is_parked_does_not() {
    sim::check(5, |sim: Sim| async move {
        let fails = Fails::new(1.into());
        let node = clerks(&sim, options(), &fails);
        let ada = node.entity::<Clerk>("ada");
        for number in [1, 2] {
            ada.send_durable(File { number }).await.unwrap();
        }
        until(async || !ada.inbox().unwrap().parked.is_empty()).await;
        let busy = sim.runtime().tokio().spawn(ada.call(Wait { time: Duration::from_secs(1) }));
        sleep(Duration::from_millis(10)).await;
        let forgotten = {
            let ada = ada.clone();
            sim.runtime().tokio().spawn(async move { ada.forget().await })
        };
        sleep(Duration::from_millis(10)).await;
        ada.send_durable(File { number: 3 }).await.unwrap();
        busy.await.unwrap().unwrap();
        forgotten.await.unwrap().unwrap();
        until(async || ada.done().await.unwrap() == [3]).await;
        assert_eq!(ada.inbox().unwrap(), Inbox::default());
    });
}

#[test]
fn messages_of_another_form_are_read_by_their_fields_or_parked() {
    /// The clerk of another program on the same store.
    mod earlier {
        use super::*;

        #[derive(Durable, Default, Serialize, Deserialize)]
        #[durable(kind = "clerk", deps = Fails)]
        pub(super) struct Clerk {
            done: Vec<u64>,
        }
        #[process]
        impl Clerk {
            #[message(durable, name = FileEarlier)]
            pub(super) fn file(&mut self, priority: u8, number: u32) {
                let _ = (priority, number);
                unreachable!("this program ends before");
            }
            #[message(durable)]
            pub(super) fn shred(&mut self, number: u64) {
                let _ = number;
                unreachable!("this program ends before");
            }
        }
    }
    sim::check(3, |sim: Sim| async move {
        // Dependencies are missing, so that nothing is handled.
        let node = sim.start(options()).unwrap();
        let clerk = node.entity::<earlier::Clerk>("ada");
        clerk.send_durable(earlier::FileEarlier { priority: 1, number: 7 }).await.unwrap();
        clerk.send_durable(earlier::Shred { number: 8 }).await.unwrap();
        clerk.send_durable(earlier::FileEarlier { priority: 1, number: 9 }).await.unwrap();
        sim.crash();
        let node = clerks(&sim, options(), &Fails::default());
        let ada = node.entity::<Clerk>("ada");
        until(async || ada.done().await.unwrap() == [7, 9]).await;
        let inbox = ada.inbox().unwrap();
        let [parked] = inbox.parked.as_slice() else { panic!("{inbox:?}") };
        let reason = &parked.failure.as_ref().unwrap().reason;
        assert!(parked.name == "shred" && reason.contains("no such durable message"), "{parked:?}");
    });
}

#[test]
fn many_entities_with_messages_are_woken_at_a_bounded_rate_oldest_first() {
    sim::check(2, |sim: Sim| async move {
        let entities = 400;
        let node = sim.start(options()).unwrap();
        // Dependencies are missing, so that nothing is handled. The order is not that of the keys.
        for key in (0..entities).rev() {
            let clerk = node.entity::<Clerk>(format!("{key:03}"));
            clerk.send_durable(File { number: key }).await.unwrap();
        }
        sim.crash();
        let options = options().idle_after(Duration::from_secs(400));
        let node = clerks(&sim, options, &Fails::default());
        node.entity::<Clerk>("other").done().await.unwrap();
        let waits =
            |key| !node.entity::<Clerk>(format!("{key:03}")).inbox().unwrap().waiting.is_empty();
        let begun = sim.elapsed();
        let mut seen = Vec::new();
        while seen.len() < 400 {
            let handled: Vec<u64> = (0..entities).filter(|key| !waits(*key)).collect();
            let oldest: Vec<u64> = (entities - handled.len() as u64..entities).collect();
            let newest_of_oldest = oldest.first().copied().unwrap_or(entities);
            assert!(
                handled.iter().all(|key| *key + 60 >= newest_of_oldest),
                "not the oldest first"
            );
            seen = handled;
            sleep(Duration::from_millis(50)).await;
        }
        assert!(sim.elapsed() - begun < Duration::from_secs(10));
    });
}

#[test]
fn messages_wait_quietly_for_a_kind_that_is_registered_late() {
    sim::check(3, |sim: Sim| async move {
        let node = sim.start(options()).unwrap();
        let clerk = node.entity::<Clerk>("ada");
        clerk.send_durable(File { number: 1 }).await.unwrap();
        sim.crash();
        let node = sim.start(options()).unwrap();
        let ada = node.entity::<Clerk>("ada");
        ada.send_durable(File { number: 2 }).await.unwrap();
        // Another kind is not held up meanwhile.
        let wallet = node.entity::<Wallet>("0");
        wallet.send_durable(Credit { id: 0, from: "1".into(), amount: 1 }).await.unwrap();
        sleep(Duration::from_secs(30)).await;
        assert_eq!(wallet.read().await.unwrap().balance, 1);
        assert_eq!((ada.inbox().unwrap().waiting.len(), node.stat().unwrap().redeliveries), (2, 1));
        node.register::<Clerk>(Fails::default());
        sleep(Duration::from_secs(1)).await;
        assert_eq!(ada.done().await.unwrap(), [1, 2]);
        assert_eq!(node.stat().unwrap().redeliveries, 0);
    });
}
