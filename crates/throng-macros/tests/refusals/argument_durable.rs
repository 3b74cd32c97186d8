//! A durable message with a right to reply.

use throng::ReplyTo;
use throng::prelude::*;

struct Account;

#[process]
impl Account {
    #[message(durable)]
    fn audit(&mut self, year: u32, reply: ReplyTo<u64>) {
        let _ = (year, reply);
    }
}

fn main() {}
