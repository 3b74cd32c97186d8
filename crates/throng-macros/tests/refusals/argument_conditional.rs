//! A message has the same fields everywhere.

use throng::prelude::*;

struct Account;

#[process]
impl Account {
    #[message]
    fn deposit(&mut self, #[cfg(unix)] _amount: u64) {}
}

fn main() {}
