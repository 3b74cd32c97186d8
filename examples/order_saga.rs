//! Orders as workflows: an order reserves a book, pays, and ships; without money the book is given
//! back. Kill the program at any moment, and start it again: each order comes to one of its ends.
//!
//! ```text
//!  reserve ──► pay ──► ship                       shipped
//!                └─(the purse is empty)─► undo: give back      failed
//! ```
//!
//! Run it: `cargo run -p throng-examples --bin order_saga -- DIRECTORY ORDERS`. Output: a line for
//! each order that has ended, and the books and payments in the end.

use serde::{Deserialize, Serialize};
use std::error::Error;
use throng::prelude::*;
use throng_durable::{
    Durable, EntityError, Failure, Node, Retry, Steps, WorkflowError, Workflows, workflow,
};

/// Money in the purse.
const BOOKS_PAID: u64 = 20;

#[derive(Durable, Default, Serialize, Deserialize)]
#[durable(kind = "stock")]
struct Stock {
    reserved: u64,
}

#[process]
impl Stock {
    #[message]
    fn reserve(&mut self) {
        self.reserved += 1;
    }
    #[message]
    fn give_back(&mut self) {
        self.reserved -= 1;
    }
    #[message]
    fn reserved(&self) -> u64 {
        self.reserved
    }
}

#[derive(Durable, Default, Serialize, Deserialize)]
#[durable(kind = "purse")]
struct Purse {
    paid: u64,
}

#[process]
impl Purse {
    /// Pays for a book; returns false if there is too little money.
    #[message]
    fn pay(&mut self) -> bool {
        let is_enough = self.paid < BOOKS_PAID;
        self.paid += u64::from(is_enough);
        is_enough
    }
    #[message]
    fn paid(&self) -> u64 {
        self.paid
    }
}

#[workflow]
async fn place_order(cx: &Steps) -> Result<(), Failure> {
    let (stock, purse) = (cx.node().entity::<Stock>("book"), cx.node().entity::<Purse>("ann"));
    let (to, id) = (stock.clone(), format!("give back {}", cx.id()));
    cx.compensate("give back", Retry::forever(), move || {
        let (to, id) = (to.clone(), id.clone());
        async move { to.call(GiveBack {}).once(id).await }
    });
    // A call of a workflow acts once, however often the step is tried.
    cx.call("reserve", Retry::forever(), &stock, || Reserve {}).await?;
    if !cx.call("pay", Retry::forever(), &purse, || Pay {}).await? {
        return Err(Failure::new("the purse is empty"));
    }
    cx.step("ship", Retry::times(5), async || Ok::<_, EntityError>(())).await?;
    Ok(())
}

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let (Some(directory), Some(orders)) = (arguments.next(), arguments.next()) else {
        return Err("order_saga DIRECTORY ORDERS".into());
    };
    let runtime = Runtime::builder().start()?;
    runtime.block_on(async |runtime| {
        let node = Node::options(directory).open(runtime)?;
        node.run_workflows(Workflows::new().with(PlaceOrder));
        let orders = 0..orders.parse::<u64>()?;
        for order in orders.clone() {
            // The second start of an order does nothing.
            node.workflow::<PlaceOrder>(order).start(&()).await?;
        }
        for order in orders {
            match node.workflow::<PlaceOrder>(order).result().await {
                Ok(()) => println!("order {order}: shipped"),
                Err(WorkflowError::Failed(reason)) => println!("order {order}: {reason}"),
                Err(error) => return Err(error.into()),
            }
        }
        let reserved = node.entity::<Stock>("book").call(Reserved {}).await?;
        let paid = node.entity::<Purse>("ann").call(Paid {}).await?;
        println!("{reserved} books reserved, {paid} paid");
        node.shutdown().await;
        Ok(())
    })
}
