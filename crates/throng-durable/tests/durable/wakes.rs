//! Wakes: every event that wakes an entity is a turn with a commit, cells included.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use throng::prelude::*;
use throng_durable::{CellError, Durable, DurableContext, Node, Str, U64};
use tokio_stream::StreamExt;

use crate::layouts::Layout;
use crate::{on_node, on_runtime, two_workers, until};

/// Records every event that wakes it: the number of events in its state, the events in its cells.
#[derive(Durable, Default, Serialize, Deserialize)]
#[durable(kind = "sleeper")]
struct Sleeper {
    wakes: u64,
}

#[process]
impl Sleeper {
    #[hook]
    fn started(&mut self, cx: &mut Context<Self>) {
        self.note("started", cx);
    }
    #[hook]
    fn down(&mut self, cx: &mut Context<Self>) {
        self.note("down", cx);
    }
    #[hook]
    fn exit(&mut self, cx: &mut Context<Self>) {
        self.note("exit", cx);
    }
    #[hook]
    fn timeout(&mut self, cx: &mut Context<Self>) {
        self.note("timeout", cx);
    }
    #[message(derive(Clone))]
    fn note(&mut self, what: &'static str, cx: &mut Context<Self>) -> u64 {
        self.wakes += 1;
        cx.cells::<U64, String>("notes").put(&self.wakes, what);
        self.wakes
    }
    /// Causes a wake of some kind, and changes nothing itself.
    #[message]
    fn sleep(&mut self, how: Way, cx: &mut Context<Self>) {
        how(cx);
    }
    /// Records the result of a blocking closure.
    #[message]
    async fn block(&mut self, cx: &mut Context<Self>) {
        let what = cx.blocking(|| "blocking").await.unwrap();
        self.note(what, cx);
    }
    #[message]
    fn who_am_i(&mut self, cx: &mut Context<Self>) -> Address<Sleeper> {
        cx.address()
    }
    #[message]
    fn audit(&mut self, cx: &mut Context<Self>) -> Result<Vec<String>, CellError> {
        let mut notes = cx.cells::<U64, String>("notes");
        let notes = notes.range(..).map(|entry| Ok(entry?.1));
        let notes = notes.collect::<Result<Vec<_>, CellError>>()?;
        assert_eq!(notes.len() as u64, self.wakes, "state and cells are of different turns");
        Ok(notes)
    }
    /// Changes the state and panics, woken by a timer.
    #[message(send, derive(Clone))]
    fn spoil(&mut self, cx: &mut Context<Self>) {
        self.wakes += 1_000;
        cx.cells::<Str, String>("steps").put("half", "done");
        panic!("boom");
    }
}

type Way = fn(&mut Context<Sleeper>);

/// Waits until the entity's last cell on disk is this one. No turn of the entity commits
/// changes that another turn has left.
async fn on_disk(node: &Node, what: &str) {
    let search = until(async || last_note(node).is_some_and(|last| last == note(what)));
    let found = tokio::time::timeout(Duration::from_secs(30), search).await;
    assert!(found.is_ok(), "{what} was never committed");
}

/// Returns the text as a cell's value.
fn note(what: &str) -> Vec<u8> {
    [&[what.len() as u8], what.as_bytes()].concat()
}

/// A process that has exited.
fn gone(cx: &mut Context<Sleeper>) -> Pid {
    struct Brief;
    impl Process for Brief {}
    let brief = cx.runtime().spawn(Brief).unwrap();
    brief.kill();
    while brief.is_alive() {
        std::thread::yield_now();
    }
    brief.pid()
}

#[test]
fn every_way_to_be_woken_is_a_turn_with_a_commit() {
    on_runtime(two_workers(), async |node, runtime| {
        let sleeper = node.entity::<Sleeper>("it");
        let address = sleeper.who_am_i().await.unwrap();
        on_disk(node, "started").await;
        let ways: [(&str, Way); 9] = [
            ("send_after", |cx| drop(cx.send_after(Duration::ZERO, Note { what: "send_after" }))),
            ("runtime", |cx| {
                let runtime = cx.runtime().clone();
                runtime.send_after(cx.address(), Duration::ZERO, Note { what: "runtime" });
            }),
            ("pipe", |cx| {
                cx.pipe(async { Note { what: "pipe" } }).unwrap();
            }),
            ("item", |cx| {
                let items =
                    tokio_stream::iter([Note { what: "item" }]).chain(tokio_stream::pending());
                cx.attach(items, |_| Note { what: "never" }).unwrap();
            }),
            ("end", |cx| {
                cx.attach(tokio_stream::empty::<Note>(), |_| Note { what: "end" }).unwrap();
            }),
            ("timeout", |cx| cx.receive_timeout(Duration::ZERO)),
            ("down", |cx| {
                let gone = gone(cx);
                cx.monitor(gone);
            }),
            ("exit", |cx| {
                cx.trap_exits(true);
                let gone = gone(cx);
                cx.link(gone);
            }),
            ("address", |cx| cx.address().send_note("address").unwrap()),
        ];
        for (what, how) in ways {
            sleeper.sleep(how).await.unwrap();
            on_disk(node, what).await;
        }
        sleeper.block().await.unwrap();
        on_disk(node, "blocking").await;

        // From outside. The reply of a call comes after its commit.
        let before = sleeper.audit().await.unwrap().unwrap().len() as u64;
        assert_eq!(address.note("called").await.unwrap(), before + 1);
        assert_eq!(last_note(node), Some(note("called")));
        let recipient: Recipient<Note> = address.into();
        recipient.send(Note { what: "recipient" }).unwrap();
        on_disk(node, "recipient").await;
        for _ in 0..100 {
            address.send_note("flood").unwrap();
        }
        let every = runtime.send_every(address, Duration::from_millis(1), Note { what: "every" });
        on_disk(node, "every").await;
        every.cancel();

        let notes = sleeper.audit().await.unwrap().unwrap();
        assert_eq!(notes.iter().filter(|what| *what == "flood").count(), 100);
        address.kill();
        until(async || !address.is_alive()).await;
        let mut after = sleeper.audit().await.unwrap().unwrap();
        assert_eq!(after.pop().as_deref(), Some("started"));
        assert_eq!(after[..notes.len()], notes);
    });
}

/// Returns the value of the entity's last cell on disk.
fn last_note(node: &Node) -> Option<Vec<u8>> {
    let snapshot = node.store().snapshot().unwrap();
    let notes = Layout::of(node.store(), &snapshot).cells("sleeper", "notes");
    notes.last().map(|(_, _, note)| note.to_vec())
}

#[test]
fn a_panic_in_a_turn_that_no_entity_sent_discards_it_and_hands_on_later_messages() {
    on_node(async |node| {
        let sleeper = node.entity::<Sleeper>("it");
        for round in 0..20 {
            let address = sleeper.who_am_i().await.unwrap();
            let notes = sleeper.audit().await.unwrap().unwrap().len() as u64;
            address.spoil().unwrap();
            // Queued behind the panic, and handled once, by the next activation, after `started`.
            assert_eq!(sleeper.note("behind").await.unwrap(), notes + 2, "round {round}");
            assert_ne!(sleeper.who_am_i().await.unwrap(), address);
        }
        sleeper.audit().await.unwrap().unwrap();
    });
}
