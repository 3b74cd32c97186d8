//! A question has an answer that does not wait for the disk, so an entity cannot be asked.

use serde::{Deserialize, Serialize};
use throng::prelude::*;
use throng_durable::{Durable, Entity};

#[derive(Serialize, Deserialize, Default, Durable)]
#[durable(kind = "account")]
struct Account;

#[process]
impl Account {
    #[message]
    fn audit(&mut self, year: u32, reply: ReplyTo<u32>) {
        let _ = reply.send(year);
    }
}

async fn audit(account: Entity<Account>, other: ReplyTo<u32>) {
    let _ = account.send_audit(2000, other);
    let _ = account.audit(2000).await;
}

fn main() {}
