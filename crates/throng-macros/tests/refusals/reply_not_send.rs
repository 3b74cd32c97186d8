//! A reply moves between threads.

use throng::prelude::*;

struct Account;

#[process]
impl Account {
    #[message]
    fn audit(&self) -> Result<(), Box<dyn std::error::Error>> {
        Ok(())
    }
}

fn main() {}
