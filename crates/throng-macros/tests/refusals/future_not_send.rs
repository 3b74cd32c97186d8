//! The future of an async method moves between threads.

use std::rc::Rc;
use throng::prelude::*;

struct Account;

async fn audit() {}

#[process]
impl Account {
    #[message]
    async fn close(&mut self) -> usize {
        let log = Rc::new(());
        audit().await;
        Rc::strong_count(&log)
    }
}

fn main() {}
