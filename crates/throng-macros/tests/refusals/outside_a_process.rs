//! `#[message]` and `#[hook]` outside a `#[process]` block.

use throng::prelude::*;

struct Account;

impl Process for Account {}

impl Account {
    #[message]
    fn deposit(&mut self) {}

    #[hook]
    fn started(&mut self) {}
}

fn main() {}
