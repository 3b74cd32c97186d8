//! Two messages, or two clients, of one name.

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
