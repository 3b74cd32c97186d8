//! A message needs a receiver.

use throng::prelude::*;

struct Account;

#[process]
impl Account {
    #[message]
    fn open(amount: u64) -> u64 {
        amount
    }

    #[hook]
    fn started() {}
}

fn main() {}
