//! A bank of durable processes: transfers between accounts, of which none is lost or made twice,
//! though the program may stop at any moment.
//!
//! ```text
//!  from.call(Transfer).once(id) ─► one commit: balance, Deposit in the inbox of `to`, the reply to id
//!                                                        └─► one commit: balance, inbox without Deposit
//! ```
//!
//! Run it: `cargo run -p throng-examples --bin durable_bank`. Output: the balances before and after
//! a restart of the node. The data are thrown away at the end.

use serde::{Deserialize, Serialize};
use std::error::Error;
use std::time::Duration;
use throng::prelude::*;
use throng_durable::{Durable, DurableContext, Node};
use tokio::task::JoinSet;

const ACCOUNTS: [&str; 4] = ["ann", "bob", "carl", "dora"];
const OPENING_BALANCE: u64 = 1_000;
const TRANSFERS: usize = 100;

#[derive(Durable, Default, Serialize, Deserialize)]
#[durable(kind = "account")]
struct Account {
    balance: u64,
}

#[derive(Debug, thiserror::Error, Serialize, Deserialize)]
#[error("the balance is {balance}")]
struct TooLittle {
    balance: u64,
}

#[process]
impl Account {
    /// Sends money to another account. The balance and the message are kept together, or neither is.
    #[message]
    fn transfer(
        &mut self,
        cx: &mut Context<Self>,
        to: String,
        amount: u64,
    ) -> Result<(), TooLittle> {
        let rest = self.balance.checked_sub(amount);
        self.balance = rest.ok_or(TooLittle { balance: self.balance })?;
        let to = cx.node().entity::<Account>(to);
        cx.send_durable(&to, Deposit { amount });
        Ok(())
    }

    #[message(durable)]
    fn deposit(&mut self, amount: u64) {
        self.balance += amount;
    }

    #[message]
    fn balance(&self) -> u64 {
        self.balance
    }
}

type Failure = Box<dyn Error + Send + Sync>;

/// Makes a transfer. One that is repeated under the same id changes nothing, and has the same reply.
async fn transfer(
    node: Node,
    id: String,
    from: &str,
    to: &str,
    amount: u64,
) -> Result<(), Failure> {
    let call = node.entity::<Account>(from).call(Transfer { to: to.to_owned(), amount });
    Ok(call.once(id).await??)
}

/// Prints all balances once no money is on its way, and returns their sum.
async fn audit(node: &Node) -> Result<u64, Failure> {
    let mut sum = 0;
    for name in ACCOUNTS {
        while !node.entity::<Account>(name).inbox()?.waiting.is_empty() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }
    for name in ACCOUNTS {
        let balance = node.entity::<Account>(name).call(Balance {}).await?;
        print!("{name} {balance}, ");
        sum += balance;
    }
    println!("in all {sum}");
    Ok(sum)
}

/// Opens the accounts, makes transfers, and stops while one is under way.
async fn first_run(node: &Node) -> Result<(), Failure> {
    for name in ACCOUNTS {
        node.entity::<Account>(name).send_durable(Deposit { amount: OPENING_BALANCE }).await?;
    }
    audit(node).await?;
    // All at once: turns that end at the same time share a flush of the disk.
    let mut transfers = JoinSet::new();
    for number in 0..TRANSFERS {
        let (from, to) = (ACCOUNTS[number % 4], ACCOUNTS[(number + 1 + number / 4 % 3) % 4]);
        let (id, amount) = (number.to_string(), number as u64 % 10 + 1);
        transfers.spawn(transfer(node.clone(), id, from, to, amount));
    }
    while let Some(made) = transfers.join_next().await {
        made??;
    }
    audit(node).await?;

    if let Err(refused) = transfer(node.clone(), "big".into(), "ann", "bob", 5_000).await {
        println!("5000 from ann to bob: {refused}");
    }
    transfer(node.clone(), "last".into(), "ann", "bob", 50).await?;
    println!("50 from ann to bob: sent, and the node stops");
    Ok(())
}

fn main() -> Result<(), Failure> {
    let data = tempfile::tempdir()?;
    let runtime = Runtime::builder().start()?;
    runtime.block_on(async |runtime| {
        let node = Node::options(data.path()).open(runtime)?;
        first_run(&node).await?;
        node.shutdown().await;
        // The directory is free for the next node when the last clone is gone.
        drop(node);

        let node = Node::options(data.path()).open(runtime)?;
        // A caller that has missed the reply repeats the transfer, under the same id.
        transfer(node.clone(), "last".into(), "ann", "bob", 50).await?;
        let sum = audit(&node).await?;
        node.shutdown().await;
        if sum != OPENING_BALANCE * ACCOUNTS.len() as u64 {
            return Err("money was lost or made".into());
        }
        Ok(())
    })
}
