//! The state of a process moves between threads.

use std::rc::Rc;
use throng::prelude::*;

struct Account {
    log: Rc<String>,
}

#[process]
impl Account {
    #[message]
    fn log(&self) -> String {
        self.log.to_string()
    }
}

fn main() {}
