//! A bank that is killed at any moment: no money is made or lost, no acknowledged transfer is undone, and no
//! reader has seen a balance that a crash took back.
//!
//! ```text
//!  Open ──▶ opened ──debit──▶ debited ──credit──▶ done
//!              └──(too little money)──▶ declined
//! ```
//!
//! A transfer is a saga: an entity that records what is to be done before it does anything, and posts to each
//! account in a turn of its own. A posting is idempotent, because the account keeps a cell for each. A transfer
//! that was cut off goes on from its recorded stage, when it is started again or called.
//!
//! A child runs the bank and prints every reply that it gets. Meanwhile accounts are killed, linked to processes
//! that die, and made to write more than the store accepts. The parent kills the child at random moments, opens
//! the store and compares.
//!
//! The same bank runs in the simulator: `bank/sim.rs`.
//!
//! `THRONG_BANK_KILLS` is the number of kills, `THRONG_DURABLE_SEED` the seed of the moments.

mod sim;

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::Path;
use std::process::Stdio;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use throng::prelude::*;
use throng_durable::{Durable, DurableContext, EntityError, Node, Str, U64};
use throng_store::{Store, VALUE_BYTES_MAX};

use crate::layouts::Layout;
use crate::{HANGS_AFTER, begin, crash, number_or, runtime};

const ACCOUNTS: u32 = 10_000;
/// Number of accounts of which every second posting is.
const BUSY_ACCOUNTS: u32 = 12;
/// Balance of an account before its first posting.
const BALANCE: i64 = 1_000;
const CLIENTS: u64 = 24;
const READERS: u64 = 8;

const MAP_BYTES: &str = "THRONG_DURABLE_TEST_MAP_BYTES";
const CHILD: &str = "THRONG_DURABLE_TEST_CHILD";

/// An account. Each posting is a cell: `d` or `c` for debit or credit, then the transfer; its value is the
/// amount.
#[derive(Durable, Clone, Debug, Serialize, Deserialize)]
#[durable(kind = "account")]
struct Account {
    balance: i64,
    /// Number of postings.
    turns: u64,
}
impl Default for Account {
    fn default() -> Self {
        Account { balance: BALANCE, turns: 0 }
    }
}
#[process]
impl Account {
    /// Debits or credits an account, if this was not done before; `None` if there is too little money.
    #[message]
    fn post(&mut self, transfer: String, amount: i64, cx: &mut Context<Self>) -> Option<Account> {
        let cell = posting(&transfer, amount);
        let mut postings = cx.cells::<Str, i64>("postings");
        if !postings.contains(&cell).unwrap() {
            if self.balance + amount < 0 {
                return None;
            }
            self.balance += amount;
            self.turns += 1;
            postings.put(&cell, &amount);
        }
        Some(self.clone())
    }
    #[message]
    fn read(&mut self) -> Account {
        self.clone()
    }
    /// Links the account's process to another, if there is one, and returns its address.
    #[message]
    fn reveal(&mut self, peer: Option<Pid>, cx: &mut Context<Self>) -> Address<Account> {
        if let Some(peer) = peer {
            cx.link(peer);
        }
        cx.address()
    }
    /// Makes money out of nothing, with more cells than the store accepts.
    #[message]
    fn forge(&mut self, cells: usize, bytes: usize, cx: &mut Context<Self>) {
        self.balance += 1_000_000;
        self.turns += 1;
        let value = "f".repeat(bytes);
        for cell in 0..cells {
            cx.cells::<U64, String>("forged").put(&(cell as u64), &value);
        }
    }
}

/// The cell of a posting.
fn posting(transfer: &str, amount: i64) -> String {
    format!("{}{transfer}", if amount < 0 { 'd' } else { 'c' })
}

struct Peer;
impl Process for Peer {}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
enum Stage {
    #[default]
    New,
    Opened,
    Debited,
    Done,
    Declined,
}

impl Stage {
    fn is_final(self) -> bool {
        matches!(self, Stage::Done | Stage::Declined)
    }
}

#[derive(Durable, Clone, Debug, Default, Serialize, Deserialize)]
#[durable(kind = "transfer")]
struct Transfer {
    stage: Stage,
    from: u32,
    to: u32,
    amount: i64,
}
#[process]
impl Transfer {
    #[hook]
    fn started(&mut self, cx: &mut Context<Self>) {
        if matches!(self.stage, Stage::Opened | Stage::Debited) {
            // If the node ends first, the next activation goes on. Not at once: while the disk refuses everything,
            // each step gives up its activation, and the next one sends another step.
            drop(cx.send_after(Duration::from_millis(1), Step));
        }
    }
    /// Records the transfer. Its first step must come after the reply: a posting of a transfer that is not on disk
    /// would never be completed.
    #[message]
    fn open(&mut self, from: u32, to: u32, amount: i64) {
        if self.stage == Stage::New {
            *self = Transfer { stage: Stage::Opened, from, to, amount };
        }
    }
    /// Takes the transfer's next step, and returns the stage that was reached.
    #[message]
    async fn step(&mut self, cx: &mut Context<Self>) -> Stage {
        let (account, amount) = match self.stage {
            Stage::Opened => (self.from, -self.amount),
            Stage::Debited => (self.to, self.amount),
            _ => return self.stage,
        };
        let post = Post { transfer: cx.key().to_owned(), amount };
        match cx.node().entity::<Account>(account.to_string()).call(post).await {
            Ok(Some(state)) => {
                say_read(account, &state);
                self.stage = if amount < 0 { Stage::Debited } else { Stage::Done };
            }
            Ok(None) => self.stage = Stage::Declined,
            // The posting may have been made or not. The next step finds out.
            Err(_) => {}
        }
        self.stage
    }
}

/// Whether this is a child, which prints its replies.
static IS_CHILD: AtomicBool = AtomicBool::new(false);

thread_local! {
    /// The lines of a bank in the simulator, which has a thread for itself.
    static SAID: RefCell<Vec<String>> = const { RefCell::new(Vec::new()) };
}

/// Tells the parent a line, or the simulator.
fn say(line: &str) {
    if sim::IS_SIMULATED.get() {
        SAID.with_borrow_mut(|said| said.push(line.to_owned()));
    }
    if IS_CHILD.load(Ordering::Relaxed) {
        crash::acknowledge(format_args!("{line}"));
    }
}

fn say_read(account: u32, state: &Account) {
    say(&format!("read {account} {} {}", state.turns, state.balance));
}

fn any_account(random: &mut fastrand::Rng) -> u32 {
    let accounts = if random.bool() { BUSY_ACCOUNTS } else { ACCOUNTS };
    random.u32(..accounts)
}

/// Takes steps until the transfer is at its end. The second step is sent before the first one is on disk.
async fn finish(node: &Node, id: &str) -> Stage {
    let transfer = node.entity::<Transfer>(id);
    loop {
        let steps = [begin(transfer.step()).await, begin(transfer.step()).await];
        for step in steps {
            let Ok(stage) = step.await.unwrap() else { continue };
            if stage.is_final() {
                return stage;
            }
        }
        tokio::task::yield_now().await;
    }
}

async fn transfer_on_and_on(node: Node, mut random: fastrand::Rng, name: String) {
    for number in 0u64.. {
        let id = format!("{name}-{number}");
        let (from, to) = (any_account(&mut random), any_account(&mut random));
        let amount = random.i64(1..300);
        while node.entity::<Transfer>(&id).open(from, to, amount).await.is_err() {
            tokio::task::yield_now().await;
        }
        say(&format!("opened {id} {from} {to} {amount}"));
        let stage = finish(&node, &id).await;
        say(&format!("ended {id} {stage:?}"));
    }
}

async fn read_on_and_on(node: Node, mut random: fastrand::Rng) {
    loop {
        let account = any_account(&mut random);
        let entity = node.entity::<Account>(account.to_string());
        // Two at a time, so that the second read meets the turns that came between.
        let reads = [begin(entity.read()).await, begin(entity.read()).await];
        for read in reads {
            if let Ok(state) = read.await.unwrap() {
                say_read(account, &state);
            }
        }
        tokio::task::yield_now().await;
    }
}

async fn disturb_on_and_on(node: Node, runtime: RuntimeHandle, mut random: fastrand::Rng) {
    loop {
        tokio::time::sleep(Duration::from_micros(random.u64(..3_000))).await;
        let account = node.entity::<Account>(any_account(&mut random).to_string());
        if random.bool() {
            if let Ok(address) = account.reveal(None).await {
                address.kill();
            }
        } else {
            let peer = runtime.spawn(Peer).unwrap();
            let _ = account.reveal(Some(peer.pid())).await;
            peer.exit(ExitReason::other("on purpose"));
        }
    }
}

async fn forge_on_and_on(node: Node, mut random: fastrand::Rng, map_bytes: usize) {
    loop {
        tokio::time::sleep(Duration::from_micros(random.u64(..30_000))).await;
        let account = random.u32(..BUSY_ACCOUNTS);
        // The store rejects the value, or has too little room for all of them and loses the turns behind.
        let forge = match random.u8(..4) {
            0 => Forge { cells: 1, bytes: VALUE_BYTES_MAX },
            _ => Forge { cells: map_bytes / FORGED_BYTES + 1, bytes: FORGED_BYTES },
        };
        match node.entity::<Account>(account.to_string()).call(forge).within(HANGS_AFTER).await {
            Ok(()) => say(&format!("forged {account}")),
            Err(EntityError::NotCommitted(_) | EntityError::Died) => {}
            Err(error) => say(&format!("surprised {error}")),
        }
    }
}

const FORGED_BYTES: usize = 8 << 20;

fn options(map_bytes: usize) -> throng_store::Options {
    Store::options().map_bytes(map_bytes).queue_bytes_max(2 * map_bytes + (32 << 20))
}

#[test]
#[ignore = "the child of killed_banks_neither_make_nor_lose_money"]
fn banking_child() {
    IS_CHILD.store(true, Ordering::Relaxed);
    let map_bytes = number_or(MAP_BYTES, 0) as usize;
    let child = number_or(CHILD, 0);
    let mut random = fastrand::Rng::with_seed(number_or("THRONG_DURABLE_SEED", 0) ^ child);
    let runtime = runtime();
    let path = std::env::var(crash::DIRECTORY).unwrap();
    let options = Node::options(path).store(options(map_bytes));
    let node =
        options.idle_after(Duration::from_millis(50)).live_max(2_000).open(&runtime).unwrap();
    runtime.block_on(async |runtime| {
        say("ready");
        for (id, _) in Books::read(node.store()).open_transfers() {
            let node = node.clone();
            tokio::spawn(async move {
                let stage = finish(&node, &id).await;
                say(&format!("ended {id} {stage:?}"));
            });
        }
        for client in 0..CLIENTS {
            let name = format!("{child}-{client}");
            tokio::spawn(transfer_on_and_on(node.clone(), random.fork(), name));
        }
        for _ in 0..READERS {
            tokio::spawn(read_on_and_on(node.clone(), random.fork()));
        }
        tokio::spawn(disturb_on_and_on(node.clone(), runtime.clone(), random.fork()));
        tokio::spawn(forge_on_and_on(node.clone(), random.fork(), map_bytes));
        // Runs until the process is killed.
        std::future::pending::<()>().await;
    });
}

/// The records of the bank as they lie in the store.
#[derive(Default)]
struct Books {
    accounts: BTreeMap<u32, Account>,
    /// Amount of each posting, by account and cell.
    postings: BTreeMap<(u32, String), i64>,
    transfers: BTreeMap<String, Transfer>,
}

impl Books {
    fn read(store: &Store) -> Books {
        let (mut books, snapshot) = (Books::default(), store.snapshot().unwrap());
        let layout = Layout::of(store, &snapshot);
        for (account, state) in layout.states("account") {
            books.accounts.insert(account.parse().unwrap(), state_of(state));
        }
        for (account, cell, amount) in layout.cells("account", "postings") {
            let amount = postcard::from_bytes(amount).unwrap();
            books
                .postings
                .insert((account.parse().unwrap(), String::from_utf8(cell).unwrap()), amount);
        }
        for (transfer, state) in layout.states("transfer") {
            books.transfers.insert(transfer, state_of(state));
        }
        books
    }

    fn open_transfers(self) -> impl Iterator<Item = (String, Transfer)> {
        self.transfers.into_iter().filter(|(_, transfer)| !transfer.stage.is_final())
    }

    /// Checks that each turn is there as a whole, and that stages and postings agree.
    fn check(&self) {
        let mut sums: BTreeMap<u32, (i64, u64)> = BTreeMap::new();
        for ((account, _), amount) in &self.postings {
            let (balance, turns) = sums.entry(*account).or_insert((BALANCE, 0));
            *balance += amount;
            *turns += 1;
        }
        let found: BTreeMap<_, _> = self
            .accounts
            .iter()
            .map(|(account, state)| (*account, (state.balance, state.turns)))
            .collect();
        assert_eq!(found, sums, "states and cells are of different turns");
        let mut expected = 0;
        for (id, transfer) in &self.transfers {
            let made = |account, amount| {
                let found = self.postings.get(&(account, posting(id, amount)));
                assert!(found.is_none_or(|found| *found == amount), "{id} {transfer:?}: {found:?}");
                found.is_some()
            };
            let debit = made(transfer.from, -transfer.amount);
            let credit = made(transfer.to, transfer.amount);
            let is_sound = match transfer.stage {
                Stage::New => false,
                Stage::Opened => debit || !credit,
                Stage::Debited => debit,
                Stage::Done => debit && credit,
                Stage::Declined => !debit && !credit,
            };
            assert!(is_sound, "{id} {transfer:?}: debit {debit}, credit {credit}");
            expected += usize::from(debit) + usize::from(credit);
        }
        assert_eq!(self.postings.len(), expected, "postings without a transfer");
    }
}

/// Decodes the record of a state: the number of its shape, then its fields.
fn state_of<T: DeserializeOwned>(record: &[u8]) -> T {
    let (shape, state) = record.split_at(1);
    assert_eq!(shape, [1]);
    postcard::from_bytes(state).unwrap()
}

/// Everything that the children printed.
#[derive(Default)]
struct Heard {
    opened: BTreeMap<String, (u32, u32, i64)>,
    ended: BTreeMap<String, String>,
    /// Balance of an account after a number of postings.
    balances: HashMap<(u32, u64), i64>,
    /// Most postings of an account that a reply told of.
    turns: BTreeMap<u32, u64>,
}

impl Heard {
    fn note(&mut self, line: &str) {
        let words: Vec<&str> = line.split(' ').collect();
        let number = |index: usize| words[index].parse::<i64>().unwrap();
        match words[0] {
            "ready" => {}
            "opened" => {
                let terms = (number(2) as u32, number(3) as u32, number(4));
                self.opened.insert(words[1].into(), terms);
            }
            "ended" => {
                let before = self.ended.insert(words[1].into(), words[2].into());
                assert!(before.is_none_or(|before| before == words[2]), "{line}");
            }
            "read" => {
                let (account, turns, balance) = (number(1) as u32, number(2) as u64, number(3));
                let before = *self.balances.entry((account, turns)).or_insert(balance);
                assert_eq!(before, balance, "turn {turns} of account {account} was taken back");
                let most = self.turns.entry(account).or_default();
                *most = turns.max(*most);
            }
            _ => panic!("the child says {line:?}"),
        }
    }

    /// Checks that nothing that was heard is missing in the books.
    fn check(&self, books: &Books) {
        for (account, turns) in &self.turns {
            let state = books.accounts.get(account).cloned().unwrap_or_default();
            let lost = format!("account {account}: turn {turns} was seen and is lost: {state:?}");
            assert!(state.turns >= *turns, "{lost}");
            let seen = self.balances.get(&(*account, state.turns));
            assert!(seen.is_none_or(|seen| *seen == state.balance), "{seen:?}, {state:?}");
        }
        for (id, (from, to, amount)) in &self.opened {
            let Transfer { from: its_from, to: its_to, amount: its_amount, .. } =
                &books.transfers.get(id).unwrap_or_else(|| panic!("transfer {id} is lost"));
            assert_eq!((its_from, its_to, its_amount), (from, to, amount), "transfer {id}");
        }
        for (id, stage) in &self.ended {
            let transfer = &books.transfers[id];
            assert_eq!(format!("{:?}", transfer.stage), *stage, "transfer {id}");
        }
    }
}

/// Runs a child, kills it, and notes everything that it said.
fn bank_and_kill(
    directory: &Path,
    map_bytes: usize,
    child: u64,
    random: &mut fastrand::Rng,
    heard: &mut Heard,
) {
    let mut command = crash::child("bank::banking_child", directory);
    command.env(MAP_BYTES, map_bytes.to_string()).env(CHILD, child.to_string());
    // The turns that fail on purpose fill pages.
    command.env("THRONG_DURABLE_SEED", random.u64(..).to_string()).stderr(Stdio::null());
    // Most kills come while the bank is busy, some while the store is being opened.
    let lines = if random.u8(..5) > 0 { random.usize(1..2_000) } else { 0 };
    let pause = Duration::from_micros(random.u64(..20_000));
    crash::run_and_kill(&mut command, lines, pause, |line| heard.note(line));
}

#[test]
fn killed_banks_neither_make_nor_lose_money() {
    let kills = number_or("THRONG_BANK_KILLS", 10);
    let seed = number_or("THRONG_DURABLE_SEED", fastrand::u64(..));
    println!("{kills} kills, THRONG_DURABLE_SEED={seed}");
    let mut random = fastrand::Rng::with_seed(seed);
    let directory = tempfile::tempdir().unwrap();
    let map_bytes = FORGED_BYTES * (1 + kills as usize / 16);
    let mut heard = Heard::default();
    let read_books = || {
        let store = options(map_bytes).check(true).open(directory.path()).unwrap();
        store.verify().unwrap();
        let books = Books::read(&store);
        books.check();
        books
    };
    for kill in 0..kills {
        bank_and_kill(directory.path(), map_bytes, kill, &mut random, &mut heard);
        heard.check(&read_books());
    }

    let runtime = runtime();
    let node = Node::options(directory.path()).store(options(map_bytes)).open(&runtime).unwrap();
    let unfinished: BTreeSet<_> =
        Books::read(node.store()).open_transfers().map(|(id, _)| id).collect();
    runtime.block_on(async |_| {
        for id in &unfinished {
            finish(&node, id).await;
        }
        node.shutdown().await;
    });
    drop(node);
    let books = read_books();
    heard.check(&books);
    let sum: i64 = books.accounts.values().map(|account| account.balance).sum();
    assert_eq!(sum, books.accounts.len() as i64 * BALANCE, "money was made or lost");
    let done = books.transfers.values().filter(|transfer| transfer.stage == Stage::Done).count();
    assert_eq!(books.postings.len(), 2 * done);
    assert_eq!(books.open_transfers().count(), 0);
    println!(
        "{} transfers acknowledged, {} ended, {} left open by the last kill, {} states read",
        heard.opened.len(),
        heard.ended.len(),
        unfinished.len(),
        heard.balances.len()
    );
    // Otherwise nothing was tested.
    assert!(heard.ended.len() as u64 > kills && heard.balances.len() as u64 > 10 * kills);
}
