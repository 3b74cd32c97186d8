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

    #[message]
    fn forget(&mut self) {}

    #[message(send)]
    fn pin(&mut self) {}

    #[message(name = Kept)]
    fn key(&self) {}

    #[message(name = Measured)]
    fn span(&self) {}

    #[message(name = Tuned)]
    fn instrument(&self) {}

    #[message(name = Called)]
    fn call(&self) {}
}

fn main() {}
