//! Methods that cannot be hooks.

use throng::prelude::*;

struct Account;

#[process]
impl Account {
    #[hook]
    fn start(&mut self) {}

    #[hook]
    fn started(&mut self, _reason: &ExitReason) {}

    #[hook]
    #[message]
    fn stopping(&mut self) {}
}

struct Manual;

impl Process for Manual {}

#[process(manual)]
impl Manual {
    #[hook]
    fn started(&mut self) {}
}

fn main() {}
