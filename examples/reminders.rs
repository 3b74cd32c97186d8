//! Reminders that survive the end of the program: "in three days", cancelled or not.
//!
//! Run it: `cargo run -p throng-examples --bin reminders -- DIRECTORY set`, kill it, and run it
//! again with `wait` for `set`: the node itself wakes the agenda, which nobody calls.

use serde::{Deserialize, Serialize};
use std::error::Error;
use std::time::Duration;
use throng::prelude::*;
use throng_durable::{Durable, DurableContext, Node, Schedule};

#[derive(Durable, Default, Serialize, Deserialize)]
#[durable(kind = "agenda")]
struct Agenda;

#[process]
impl Agenda {
    #[message]
    fn remind(&mut self, cx: &mut Context<Self>, key: String, after: Duration) {
        cx.remind(&key, Schedule::after(after), Ring { text: format!("it is time for {key}") });
    }

    #[message]
    fn cancel(&mut self, cx: &mut Context<Self>, key: String) -> bool {
        cx.cancel_reminder(&key)
    }

    #[message(durable)]
    fn ring(&mut self, text: String, cx: &mut Context<Self>) {
        // A mail is sent once if its server knows the id of the request; a print is once at most.
        cx.after_commit(move || println!("{text}"));
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let (Some(directory), Some(mode)) = (arguments.next(), arguments.next()) else {
        return Err("reminders DIRECTORY set|wait".into());
    };
    let runtime = Runtime::builder().start()?;
    runtime.block_on(async |runtime| {
        let node = Node::options(directory).open(runtime)?;
        node.register::<Agenda>(());
        if mode == "set" {
            let ann = node.entity::<Agenda>("ann");
            ann.call(Remind { key: "tea".into(), after: Duration::from_secs(1) }).await?;
            ann.call(Remind { key: "coffee".into(), after: Duration::from_secs(1) }).await?;
            ann.call(Remind { key: "a holiday".into(), after: Duration::from_secs(3 * 86_400) })
                .await?;
            assert!(ann.call(Cancel { key: "coffee".into() }).await?);
            println!("set");
        }
        std::future::pending::<Result<(), Box<dyn Error>>>().await
    })
}
