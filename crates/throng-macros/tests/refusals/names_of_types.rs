//! Messages with the name of an item that the macro sees.

use throng::prelude::*;

struct Account;
struct Deposit;
struct Balance(u64);
struct Entry<T>(T);

#[process]
impl Account {
    #[message]
    fn deposit(&mut self, deposits: Vec<Deposit>) {}

    #[message]
    fn balance(&self) -> Result<Balance, String> {
        Ok(Balance(0))
    }

    #[message]
    fn entry(&self, entry: Entry<u8>) {}

    #[message(name = Account)]
    fn close(&mut self) {}

    #[message]
    fn account_client(&self) {}

    #[message(name = AskBalance)]
    fn ask_balance(&self) -> Balance {
        Balance(0)
    }
}

struct Ledger;

#[process(client = Ledger)]
impl Ledger {}

fn main() {}
