//! Async processes: by themselves they receive only commands, and other messages only by the command
//! `receive`.

use crate::actor::{Do, Text, until_waiting};
use crate::world::{World, millis};
use std::sync::Arc;
use throng::prelude::*;
use throng::{AsyncProcess, Inbox};

/// Message to an async process.
pub(crate) enum Mail {
    Do(Do),
    Text(Text),
}
impl Message for Mail {
    type Reply = ();
}

/// Spawns an async process.
pub(crate) fn spawn(world: &Arc<World>) -> Address<AsyncProcess<Mail>> {
    let own = world.clone();
    world.runtime.spawner().spawn_async(|inbox| live(inbox, own)).expect("there is room")
}

async fn live(mut inbox: Inbox<Mail>, world: Arc<World>) {
    let me = inbox.address().pid();
    loop {
        let Mail::Do(order) = inbox.recv_match(|mail| matches!(mail, Mail::Do(_))).await else {
            continue;
        };
        let turn = async {
            for command in &order.commands {
                let words: Vec<&str> = command.iter().map(String::as_str).collect();
                match words[..] {
                    ["receive", what] => {
                        let mail = inbox.recv_match(|mail| is_text(mail, what)).await;
                        log_received(&world, me, Some(mail));
                    }
                    ["receive", what, "after", time] => {
                        let wanted = |mail: &Mail| is_text(mail, what);
                        let mail = inbox.recv_match_timeout(wanted, millis(time)).await;
                        log_received(&world, me, mail);
                    }
                    ref other => {
                        assert!(world.command(Some(me), other), "no command: {other:?}");
                    }
                }
            }
        };
        until_waiting(turn, order.busy).await;
    }
}

fn is_text(mail: &Mail, what: &str) -> bool {
    matches!(mail, Mail::Text(Text(text)) if what == "any" || text == what)
}

fn log_received(world: &World, me: throng::Pid, mail: Option<Mail>) {
    let text = match mail {
        Some(Mail::Text(Text(text))) => text,
        _ => "nothing".to_owned(),
    };
    world.event(Some(me), format_args!("received {text}"));
}
