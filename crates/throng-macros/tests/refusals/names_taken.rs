//! Names that have another meaning already.

use throng::prelude::*;

struct Account;

#[process]
impl Account {
    #[message]
    fn account(&self) {}

    #[message]
    fn option(&self) {}

    #[message]
    fn stop(&mut self) {}

    #[message(name = Copied)]
    fn clone(&self) {}

    #[message(name = Located)]
    fn address(&self) {}
}

fn main() {}
