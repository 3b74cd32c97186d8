//! `first-call` and `send-then-call`: new processes and their first messages. A tokio task opens N accounts, one
//! after the other, as the handlers of a web server do for users whom they have not seen before.
//!
//! ```text
//! task    (open, call) × N                 │ (clock, open, call, clock) × samples
//!         ├─ round_trip_ns, sleeps_per_call┤ p50_ns, p99_ns
//! ```
//!
//! - An account is a process with a balance, at first its key. A deposit adds to the balance, and its reply is the sum.
//! - Every account is kept until the end. The runtime's own count of its processes must be that of the keys, and each
//!   reply shows the key of its account and all deposits.
//! - `sleeps_per_call` counts the times that a thread of the program gave up its core to wait, divided by N: a call
//!   whose turn runs on another thread makes the caller's thread sleep until the reply.
use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use throng::{Address, Context, Handle, Message, Process, Registry, RuntimeHandle};
use tokio::runtime::Handle as TokioHandle;
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};
use tokio::sync::oneshot;

use super::prelude::*;
use crate::usage;

pub(crate) fn first_call(row: &str, settings: &Settings) -> Measured {
    run::<false>(row, settings)
}

pub(crate) fn send_then_call(row: &str, settings: &Settings) -> Measured {
    run::<true>(row, settings)
}

/// A runtime's means to open accounts, with the accounts that are open; used in a tokio task.
trait AccountHost: Send + 'static {
    type Address: Send + Sync + 'static;

    /// Returns the account of a key, which is opened unless it is in the host's table.
    fn get_or_open(&self, key: u64) -> Self::Address;

    fn open(&self, key: u64) -> Self::Address;

    /// Sends a deposit without waiting for its reply. A deposit that does not arrive is missing in the balance.
    fn send(account: &Self::Address, amount: u64);

    /// Makes a deposit and awaits its reply, the balance; returns `None` if no reply came.
    fn call(account: &Self::Address, amount: u64) -> impl Future<Output = Option<u64>> + Send;

    fn processes(&self) -> u64;
}

fn run<const SENDS: bool>(row: &str, settings: &Settings) -> Measured {
    let on_tokio = |settings| measure::<SENDS, _>(Tokio::default(), settings);
    match row {
        "throng" => on_throng::<SENDS, true>(settings),
        "throng-default" => on_throng::<SENDS, false>(settings),
        _ => runtimes::tokio::drive_row(row, settings, true, on_tokio),
    }
}

fn on_throng<const SENDS: bool, const NEVER_BLOCKS: bool>(settings: &Settings) -> Measured {
    runtimes::throng::drive(settings, true, |host, settings| {
        measure::<SENDS, _>(Throng::<NEVER_BLOCKS>::on(host.runtime), settings)
    })
}

/// Drives the workload in a task: the thread of `block_on` is none of tokio's workers, and would sleep until each
/// reply.
async fn measure<const SENDS: bool, H: AccountHost>(host: H, settings: Settings) -> Measured {
    let accounts = Vec::with_capacity((settings.count + settings.get("samples")) as usize);
    let task = Task::<SENDS, H> { host, accounts };
    tokio::spawn(task.measure(settings)).await?
}

/// The task that contacts the accounts, with those of them that are in no table.
struct Task<const SENDS: bool, H: AccountHost> {
    host: H,
    accounts: Vec<H::Address>,
}

impl<const SENDS: bool, H: AccountHost> Task<SENDS, H> {
    async fn measure(mut self, settings: Settings) -> Measured {
        let all = settings.count + settings.get("samples");
        let mut latencies = latency::histogram()?;
        let mut replies = 0;

        let (sleeps, clock) = (usage::own_sleeps()?, Instant::now());
        for key in 0..settings.count {
            replies += u64::from(self.contact(key).await);
        }
        let (elapsed, sleeps) = (clock.elapsed(), usage::own_sleeps()? - sleeps);
        for key in settings.count..all {
            let clock = Instant::now();
            replies += u64::from(self.contact(key).await);
            latencies.saturating_record(clock.elapsed().as_nanos() as u64);
        }

        let mut outcome = Outcome::default();
        outcome.metric("round_trip_ns", elapsed.as_nanos() as f64 / settings.count as f64);
        latency::report(&mut outcome, "", &latencies);
        outcome.metric("sleeps_per_call", sleeps as f64 / settings.count as f64);
        outcome.check("correct replies", replies, all);
        outcome.check("living processes", self.host.processes(), all);
        Ok(outcome)
    }

    /// Contacts the account of a new key for the first time; returns whether the reply was correct.
    async fn contact(&mut self, key: u64) -> bool {
        if SENDS {
            let account = self.host.open(key);
            H::send(&account, 2 * key);
            let balance = H::call(&account, 1).await;
            self.accounts.push(account);
            balance == Some(3 * key + 1)
        } else {
            H::call(&self.host.get_or_open(key), 1).await == Some(key + 1)
        }
    }
}

/// A process type that promises `NEVER_BLOCKS`, so that the threads of the calling tokio runtime run its turns, or one
/// without the promise, which is the default and runs on throng's workers only.
struct Throng<const NEVER_BLOCKS: bool> {
    runtime: RuntimeHandle,
    accounts: Registry<u64, Account<NEVER_BLOCKS>>,
}

impl<const NEVER_BLOCKS: bool> Throng<NEVER_BLOCKS> {
    fn on(runtime: RuntimeHandle) -> Self {
        Throng { accounts: Registry::new(&runtime), runtime }
    }
}

struct Account<const NEVER_BLOCKS: bool> {
    balance: u64,
}

impl<const NEVER_BLOCKS: bool> Process for Account<NEVER_BLOCKS> {
    const NEVER_BLOCKS: bool = NEVER_BLOCKS;
}

struct Deposit(u64);

impl Message for Deposit {
    type Reply = u64;
}

impl<const NEVER_BLOCKS: bool> Handle<Deposit> for Account<NEVER_BLOCKS> {
    async fn handle(&mut self, Deposit(amount): Deposit, _: &mut Context<Self>) -> u64 {
        self.balance += amount;
        self.balance
    }
}

impl<const NEVER_BLOCKS: bool> AccountHost for Throng<NEVER_BLOCKS> {
    type Address = Address<Account<NEVER_BLOCKS>>;

    fn get_or_open(&self, key: u64) -> Self::Address {
        match self.accounts.get_or_spawn(key, || Account { balance: key }) {
            Ok(account) => account,
            Err(error) => panic!("the process limit leaves room for every process: {error}"),
        }
    }

    fn open(&self, key: u64) -> Self::Address {
        runtimes::throng::start(&self.runtime, Account { balance: key })
    }

    fn send(account: &Self::Address, amount: u64) {
        let _ = account.send(Deposit(amount));
    }

    async fn call(account: &Self::Address, amount: u64) -> Option<u64> {
        account.call(Deposit(amount)).await.ok()
    }

    fn processes(&self) -> u64 {
        self.runtime.metrics().processes
    }
}

/// Tasks that own the receiver of an unbounded channel, in a map of senders behind a lock. A deposit carries a oneshot if
/// its reply is awaited.
#[derive(Default)]
struct Tokio {
    accounts: Mutex<HashMap<u64, UnboundedSender<Request>>>,
}

struct Request {
    amount: u64,
    reply: Option<oneshot::Sender<u64>>,
}

fn spawn(mut balance: u64) -> UnboundedSender<Request> {
    let (account, mut deposits) = unbounded_channel::<Request>();
    tokio::spawn(async move {
        while let Some(Request { amount, reply }) = deposits.recv().await {
            balance += amount;
            if let Some(reply) = reply {
                // If the caller has given up, it counts the reply as missing.
                let _ = reply.send(balance);
            }
        }
    });
    account
}

impl AccountHost for Tokio {
    type Address = UnboundedSender<Request>;

    fn get_or_open(&self, key: u64) -> Self::Address {
        let mut accounts = self.accounts.lock().unwrap_or_else(PoisonError::into_inner);
        accounts.entry(key).or_insert_with(|| spawn(key)).clone()
    }

    fn open(&self, key: u64) -> Self::Address {
        spawn(key)
    }

    fn send(account: &Self::Address, amount: u64) {
        let _ = account.send(Request { amount, reply: None });
    }

    async fn call(account: &Self::Address, amount: u64) -> Option<u64> {
        let (reply, balance) = oneshot::channel();
        account.send(Request { amount, reply: Some(reply) }).ok()?;
        balance.await.ok()
    }

    fn processes(&self) -> u64 {
        // Beside the task that measures.
        TokioHandle::current().metrics().num_alive_tasks() as u64 - 1
    }
}
