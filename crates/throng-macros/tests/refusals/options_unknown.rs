//! Options that do not exist.

use throng::prelude::*;

struct Account;

#[process(name = Bank)]
impl Account {
    #[message(cast)]
    fn deposit(&mut self) {}

    #[message(priority = 3)]
    fn withdraw(&mut self) {}

    #[message(send)]
    fn balance(&self) -> u64 {
        0
    }
}

fn main() {}
