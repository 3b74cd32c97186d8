//! Two messages, or two client methods, with the same name.

use throng::prelude::*;

struct Account;

#[process]
impl Account {
    #[message]
    fn get_all(&self) {}

    #[message]
    fn get__all(&self) {}

    #[message]
    fn deposit(&mut self) {}

    #[message]
    fn send_deposit(&mut self) {}
}

fn main() {}
