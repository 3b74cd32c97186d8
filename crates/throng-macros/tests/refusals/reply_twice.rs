//! A message has a single way to reply.

use throng::prelude::*;

struct Account;

#[process]
impl Account {
    #[message]
    fn audit(&mut self, _reply: ReplyTo<u64>) -> u64 {
        0
    }

    #[message]
    fn inspect(&mut self, _reply: ReplyTo<u64>, _again: ReplyTo<u64>) {}
}

fn main() {}
