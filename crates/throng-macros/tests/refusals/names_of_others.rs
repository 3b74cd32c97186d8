//! Messages with the name of an item that the macro does not see: a type, or another process's message.

use throng::prelude::*;

struct Withdraw {
    amount: u64,
}

struct Account;

#[process]
impl Account {
    #[message]
    async fn deposit(&mut self, cents: u64) -> u64 {
        cents
    }

    #[message]
    pub fn withdraw(&mut self, amount: u64) -> u64 {
        amount
    }
}

struct Bank<K>(K);

#[process]
impl<K: Send + 'static> Bank<K> {
    #[message]
    fn deposit(&mut self, cents: u64) -> u64 {
        cents
    }
}

fn main() {
    let _ = Withdraw { amount: 1 }.amount;
}
