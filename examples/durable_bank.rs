//! A bank of durable processes: transfers between accounts, of which none is lost or made twice,
//! though the program stops in the middle of a transfer.
//!
//! ```text
//!  transfer:  1. from.call(Withdraw) ─► balance, cells in "sent" and "out" ─► commit ─► reply
//!             2. to.call(Deposit) ────► balance, cell in "received" ──────────► commit ─► reply
//!             3. from.call(Settle) ───► no cell in "out" ─────────────────────► commit ─► reply
//!  recovery:  2 and 3 for each cell in "out"
//! ```
//!
//! Run it: `cargo run -p throng-examples --bin durable_bank`. Output: the balances before and after
//! a restart of the node, which finds a transfer half done. The data are thrown away at the end.

use serde::{Deserialize, Serialize};
use std::error::Error;
use throng::prelude::*;
use throng_durable::{CellError, Durable, DurableContext, Node, Str};
use tokio::task::JoinSet;

const ACCOUNTS: [&str; 4] = ["ann", "bob", "carl", "dora"];
const OPENING_BALANCE: u64 = 1_000;
const TRANSFERS: usize = 100;

/// A durable process for an account: its balance, and cells for its transfers.
#[derive(Durable, Default, Serialize, Deserialize)]
#[durable(kind = "account")]
struct Account {
    balance: u64,
}

/// Money on its way to another account.
#[derive(Clone, Serialize, Deserialize)]
struct Transfer {
    /// Id from the caller, which repeats a transfer under the same id.
    id: String,
    to: String,
    amount: u64,
}

impl Transfer {
    fn new(id: &str, to: &str, amount: u64) -> Transfer {
        Transfer { id: id.to_owned(), to: to.to_owned(), amount }
    }
}

#[derive(Debug, thiserror::Error)]
enum Refused {
    #[error("the balance is {balance}")]
    TooLittle { balance: u64 },
    #[error(transparent)]
    Cell(#[from] CellError),
}

// Each turn can be repeated: its cell is in the same commit as its balance, and a turn that finds
// the cell changes nothing.
#[process]
impl Account {
    #[message]
    fn withdraw(&mut self, cx: &mut Context<Self>, transfer: Transfer) -> Result<(), Refused> {
        if !cx.cells::<Str, ()>("sent").contains(&transfer.id)? {
            let rest = self.balance.checked_sub(transfer.amount);
            self.balance = rest.ok_or(Refused::TooLittle { balance: self.balance })?;
            cx.cells::<Str, ()>("sent").put(&transfer.id, &());
            cx.cells::<Str, Transfer>("out").put(&transfer.id, &transfer);
        }
        Ok(())
    }

    #[message]
    fn deposit(&mut self, cx: &mut Context<Self>, id: String, amount: u64) -> Result<(), Refused> {
        let mut received = cx.cells::<Str, ()>("received");
        if !received.contains(&id)? {
            self.balance += amount;
            received.put(&id, &());
        }
        Ok(())
    }

    /// Notes that a transfer has arrived.
    #[message]
    fn settle(&mut self, cx: &mut Context<Self>, id: String) {
        cx.cells::<Str, Transfer>("out").delete(&id);
    }

    /// Returns the balance, and the transfers that may not have arrived.
    #[message]
    fn statement(&self, cx: &mut Context<Self>) -> Result<(u64, Vec<Transfer>), Refused> {
        let mut out = cx.cells::<Str, Transfer>("out");
        let out: Result<_, CellError> = out.range(..).map(|cell| Ok(cell?.1)).collect();
        Ok((self.balance, out?))
    }
}

type Failure = Box<dyn Error + Send + Sync>;

async fn transfer(node: Node, from: &str, transfer: Transfer) -> Result<(), Failure> {
    let withdraw = Withdraw { transfer: transfer.clone() };
    node.entity::<Account>(from).call(withdraw).await??;
    complete(&node, from, transfer).await
}

/// Completes a transfer after its withdrawal.
async fn complete(node: &Node, from: &str, transfer: Transfer) -> Result<(), Failure> {
    let Transfer { id, to, amount } = transfer;
    node.entity::<Account>(to).call(Deposit { id: id.clone(), amount }).await??;
    Ok(node.entity::<Account>(from).call(Settle { id }).await?)
}

/// Completes the transfers that a stop left half done, and returns their number.
async fn recover(node: &Node) -> Result<usize, Failure> {
    let mut completed = 0;
    for name in ACCOUNTS {
        let (_, out) = node.entity::<Account>(name).call(Statement {}).await??;
        for transfer in out {
            complete(node, name, transfer).await?;
            completed += 1;
        }
    }
    Ok(completed)
}

/// Prints all balances and returns their sum.
async fn audit(node: &Node) -> Result<u64, Failure> {
    let mut sum = 0;
    for name in ACCOUNTS {
        let (balance, _) = node.entity::<Account>(name).call(Statement {}).await??;
        print!("{name} {balance}, ");
        sum += balance;
    }
    println!("in all {sum}");
    Ok(sum)
}

/// Opens the accounts, makes transfers, and stops in the middle of a transfer.
async fn first_run(node: &Node) -> Result<(), Failure> {
    for name in ACCOUNTS {
        let opening = Deposit { id: "opening".to_owned(), amount: OPENING_BALANCE };
        node.entity::<Account>(name).call(opening).await??;
    }
    // All at once: turns that end at the same time share a flush of the disk.
    let mut transfers = JoinSet::new();
    for number in 0..TRANSFERS {
        let (from, to) = (ACCOUNTS[number % 4], ACCOUNTS[(number + 1 + number / 4 % 3) % 4]);
        let order = Transfer::new(&number.to_string(), to, number as u64 % 10 + 1);
        transfers.spawn(transfer(node.clone(), from, order));
    }
    while let Some(made) = transfers.join_next().await {
        made??;
    }
    audit(node).await?;

    if let Err(refused) = transfer(node.clone(), "ann", Transfer::new("big", "bob", 5_000)).await {
        println!("5000 from ann to bob: {refused}");
    }
    let withdraw = Withdraw { transfer: Transfer::new("last", "bob", 50) };
    node.entity::<Account>("ann").call(withdraw).await??;
    println!("50 from ann to bob: withdrawn, then the node stops");
    audit(node).await?;
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
        println!("the node starts: {} transfer completed", recover(&node).await?);
        // A caller that missed the reply repeats the transfer, under the same id.
        transfer(node.clone(), "ann", Transfer::new("last", "bob", 50)).await?;
        let sum = audit(&node).await?;
        node.shutdown().await;
        if sum != OPENING_BALANCE * ACCOUNTS.len() as u64 {
            return Err("money was lost or made".into());
        }
        Ok(())
    })
}
