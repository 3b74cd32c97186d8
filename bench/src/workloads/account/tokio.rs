//! Accounts in tokio: a task that owns the receiver of an unbounded channel. The table is a map of senders behind a
//! lock. A deposit carries a oneshot if its reply is awaited.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use ::tokio::runtime::Handle;
use ::tokio::sync::mpsc::{UnboundedSender, unbounded_channel};
use ::tokio::sync::oneshot;

use super::AccountHost;

#[derive(Default)]
pub(super) struct Tokio {
    accounts: Mutex<HashMap<u64, UnboundedSender<Deposit>>>,
}

pub(super) struct Deposit {
    amount: u64,
    reply: Option<oneshot::Sender<u64>>,
}

fn spawn(mut balance: u64) -> UnboundedSender<Deposit> {
    let (account, mut deposits) = unbounded_channel::<Deposit>();
    ::tokio::spawn(async move {
        while let Some(Deposit { amount, reply }) = deposits.recv().await {
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
    type Address = UnboundedSender<Deposit>;

    fn get_or_open(&self, key: u64) -> Self::Address {
        let mut accounts = self.accounts.lock().unwrap_or_else(PoisonError::into_inner);
        accounts.entry(key).or_insert_with(|| spawn(key)).clone()
    }

    fn open(&self, key: u64) -> Self::Address {
        spawn(key)
    }

    fn send(account: &Self::Address, amount: u64) {
        let _ = account.send(Deposit { amount, reply: None });
    }

    async fn call(account: &Self::Address, amount: u64) -> Option<u64> {
        let (reply, balance) = oneshot::channel();
        account.send(Deposit { amount, reply: Some(reply) }).ok()?;
        balance.await.ok()
    }

    fn processes(&self) -> u64 {
        // Beside the task that measures.
        Handle::current().metrics().num_alive_tasks() as u64 - 1
    }
}
