//! The state stays with the process.

use throng::prelude::*;

struct Account;

#[process]
impl Account {
    #[message]
    fn close(self) {}

    #[message]
    fn seize(self: Box<Self>) {}
}

fn main() {}
