//! A private message cannot be sent from another module.

use bank::{Account, AccountClient as _};
use throng::prelude::*;

mod bank {
    use throng::prelude::*;

    pub struct Account;

    #[process]
    impl Account {
        #[message]
        pub fn deposit(&mut self) {}

        #[message]
        fn reset(&mut self) {}
    }
}

fn use_it(account: Address<Account>) {
    let _ = account.deposit();
    let _ = account.reset();
    let _ = account.send(bank::Reset);
}

fn main() {}
