//! A field needs a type with a name.

use throng::prelude::*;

struct Account;

#[process]
impl Account {
    #[message]
    fn rename(&mut self, _name: impl Into<String>) {}
}

fn main() {}
