//! Accounts in throng: a process type that promises `NEVER_BLOCKS`, so that the threads of the calling tokio runtime
//! run its turns, or one without the promise, which is the default and runs on throng's workers only.

use throng::{Address, Context, Handle, Message, Process, Registry, RuntimeHandle};

use super::AccountHost;
use crate::runtimes;

pub(super) struct Throng<const NEVER_BLOCKS: bool> {
    runtime: RuntimeHandle,
    accounts: Registry<u64, Account<NEVER_BLOCKS>>,
}

impl<const NEVER_BLOCKS: bool> Throng<NEVER_BLOCKS> {
    pub(super) fn on(runtime: RuntimeHandle) -> Self {
        Throng { accounts: Registry::new(&runtime), runtime }
    }
}

pub(super) struct Account<const NEVER_BLOCKS: bool> {
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
