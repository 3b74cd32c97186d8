//! The future of an async method holds its `&self`.

use std::cell::Cell;
use throng::prelude::*;

struct Account {
    balance: Cell<u64>,
}

#[process]
impl Account {
    #[message]
    fn fine(&self) -> u64 {
        self.balance.get()
    }

    #[message]
    async fn balance(&self) -> u64 {
        self.balance.get()
    }
}

fn main() {}
