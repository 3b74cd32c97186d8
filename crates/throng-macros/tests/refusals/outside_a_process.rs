//! `#[message]` and `#[hook]` where nobody takes them.

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
