//! The fields of a message move between threads.

use std::rc::Rc;
use throng::prelude::*;

struct Account;

#[process]
impl Account {
    #[message]
    fn share(&mut self, _log: Rc<String>) {}
}

fn main() {}
