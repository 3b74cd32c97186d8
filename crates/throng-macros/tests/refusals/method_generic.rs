//! A message is a single type.

use throng::prelude::*;

struct Account;

#[process]
impl Account {
    #[message]
    fn log<T: ToString>(&mut self, _what: T) {}
}

fn main() {}
