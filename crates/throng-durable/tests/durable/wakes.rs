//! Wakes: every event that wakes an entity is a turn with a commit, cells included.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use throng::prelude::*;
use throng_durable::{CellError, Durable, DurableContext, Node, Str, U64};
use tokio_stream::StreamExt;

use crate::layouts::Layout;
use crate::{HANGS_AFTER, runtime};

/// Records every event that wakes it: the number of events in its state, the events in its cells.
#[derive(Durable, Default, Serialize, Deserialize)]
#[durable(kind = "sleeper")]
struct Sleeper {
    wakes: u64,
}

impl Sleeper {
    fn note(&mut self, what: &str, cx: &mut Context<Self>) {
        self.wakes += 1;
        cx.cells::<U64, String>("notes").put(&self.wakes, what);
    }
}

impl Process for Sleeper {
    async fn started(&mut self, cx: &mut Context<Self>) {
        self.note("started", cx);
    }
    async fn down(&mut self, _: Down, cx: &mut Context<Self>) {
        self.note("down", cx);
    }
    async fn exit(&mut self, _: Exit, cx: &mut Context<Self>) {
        self.note("exit", cx);
    }
    async fn timeout(&mut self, cx: &mut Context<Self>) {
        self.note("timeout", cx);
    }
}
#[derive(Clone)]
struct Note(&'static str);
impl Message for Note {
    type Reply = u64;
}
impl Handle<Note> for Sleeper {
    async fn handle(&mut self, Note(what): Note, cx: &mut Context<Self>) -> u64 {
        self.note(what, cx);
        self.wakes
    }
}

type Way = fn(&mut Context<Sleeper>);

/// Causes a wake of some kind, and changes nothing itself.
struct Sleep(Way);
impl Message for Sleep {
    type Reply = ();
}
impl Handle<Sleep> for Sleeper {
    async fn handle(&mut self, Sleep(how): Sleep, cx: &mut Context<Self>) {
        how(cx);
    }
}

/// Records the result of a blocking closure.
struct Block;
impl Message for Block {
    type Reply = ();
}
impl Handle<Block> for Sleeper {
    async fn handle(&mut self, _: Block, cx: &mut Context<Self>) {
        let what = cx.blocking(|| "blocking").await.unwrap();
        self.note(what, cx);
    }
}

struct WhoAmI;
impl Message for WhoAmI {
    type Reply = Address<Sleeper>;
}
impl Handle<WhoAmI> for Sleeper {
    async fn handle(&mut self, _: WhoAmI, cx: &mut Context<Self>) -> Address<Sleeper> {
        cx.address()
    }
}

struct Audit;
impl Message for Audit {
    type Reply = Result<Vec<String>, CellError>;
}
impl Handle<Audit> for Sleeper {
    async fn handle(&mut self, _: Audit, cx: &mut Context<Self>) -> Result<Vec<String>, CellError> {
        let mut notes = cx.cells::<U64, String>("notes");
        let notes = notes.range(..).map(|entry| Ok(entry?.1));
        let notes = notes.collect::<Result<Vec<_>, CellError>>()?;
        assert_eq!(notes.len() as u64, self.wakes, "state and cells are of different turns");
        Ok(notes)
    }
}

/// Waits until the entity's last cell on disk is this one. No turn of the entity commits
/// changes that another turn has left.
async fn on_disk(node: &Node, what: &str) {
    let search = async {
        loop {
            if last_note(node).is_some_and(|last| last == note(what)) {
                return;
            }
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
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
    let directory = tempfile::tempdir().unwrap();
    let runtime = runtime();
    let node = Node::open(directory.path()).start(&runtime).unwrap();
    let test = async {
        let sleeper = node.entity::<Sleeper>("it");
        let address = sleeper.call(WhoAmI).await.unwrap();
        on_disk(&node, "started").await;
        let ways: [(&str, Way); 9] = [
            ("send_after", |cx| drop(cx.send_after(Duration::ZERO, Note("send_after")))),
            ("runtime", |cx| {
                let runtime = cx.runtime().clone();
                runtime.send_after(cx.address(), Duration::ZERO, Note("runtime"));
            }),
            ("pipe", |cx| {
                cx.pipe(async { Note("pipe") }).unwrap();
            }),
            ("item", |cx| {
                let items = tokio_stream::iter([Note("item")]).chain(tokio_stream::pending());
                cx.attach(items, |_| Note("never")).unwrap();
            }),
            ("end", |cx| {
                cx.attach(tokio_stream::empty::<Note>(), |_| Note("end")).unwrap();
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
            ("address", |cx| cx.address().send(Note("address")).unwrap()),
        ];
        for (what, how) in ways {
            sleeper.call(Sleep(how)).await.unwrap();
            on_disk(&node, what).await;
        }
        sleeper.call(Block).await.unwrap();
        on_disk(&node, "blocking").await;

        // From outside. The reply of a call comes after its commit.
        let before = sleeper.call(Audit).await.unwrap().unwrap().len() as u64;
        assert_eq!(address.call(Note("called")).await.unwrap(), before + 1);
        assert_eq!(last_note(&node), Some(note("called")));
        let recipient: Recipient<Note> = address.into();
        recipient.send(Note("recipient")).unwrap();
        on_disk(&node, "recipient").await;
        for _ in 0..100 {
            address.send(Note("flood")).unwrap();
        }
        let every = runtime.send_every(address, Duration::from_millis(1), Note("every"));
        on_disk(&node, "every").await;
        every.cancel();

        let notes = sleeper.call(Audit).await.unwrap().unwrap();
        assert_eq!(notes.iter().filter(|what| *what == "flood").count(), 100);
        address.kill();
        while address.is_alive() {
            tokio::task::yield_now().await;
        }
        let mut after = sleeper.call(Audit).await.unwrap().unwrap();
        assert_eq!(after.pop().as_deref(), Some("started"));
        assert_eq!(after[..notes.len()], notes);
        node.shutdown().await;
    };
    let done = runtime.block_on(async |_| tokio::time::timeout(HANGS_AFTER, test).await);
    assert!(done.is_ok(), "the test hangs");
}

/// Returns the value of the entity's last cell on disk.
fn last_note(node: &Node) -> Option<Vec<u8>> {
    let snapshot = node.store().snapshot().unwrap();
    let notes = Layout(&snapshot).cells("sleeper", "notes");
    notes.last().map(|(_, _, note)| note.to_vec())
}

/// Changes the state and panics, woken by a timer.
#[derive(Clone)]
struct Spoil;
impl Message for Spoil {
    type Reply = ();
}
impl Handle<Spoil> for Sleeper {
    async fn handle(&mut self, _: Spoil, cx: &mut Context<Self>) {
        self.wakes += 1_000;
        cx.cells::<Str, String>("steps").put("half", "done");
        panic!("boom");
    }
}

#[test]
fn a_panic_in_a_turn_that_no_entity_sent_discards_it_and_hands_on_later_messages() {
    let directory = tempfile::tempdir().unwrap();
    let runtime = runtime();
    let node = Node::open(directory.path()).start(&runtime).unwrap();
    let test = async {
        let sleeper = node.entity::<Sleeper>("it");
        for round in 0..20 {
            let address = sleeper.call(WhoAmI).await.unwrap();
            let notes = sleeper.call(Audit).await.unwrap().unwrap().len() as u64;
            address.send(Spoil).unwrap();
            // Queued behind the panic, and handled once, by the next activation, after `started`.
            assert_eq!(sleeper.call(Note("behind")).await.unwrap(), notes + 2, "round {round}");
            assert_ne!(sleeper.call(WhoAmI).await.unwrap(), address);
        }
        sleeper.call(Audit).await.unwrap().unwrap();
        node.shutdown().await;
    };
    let done = runtime.block_on(async |_| tokio::time::timeout(HANGS_AFTER, test).await);
    assert!(done.is_ok(), "the test hangs");
}

/// A process whose messages a macro generates.
#[derive(Durable, Default, Serialize, Deserialize)]
#[durable(kind = "made")]
struct Made {
    count: u64,
}
#[process]
impl Made {
    #[message]
    fn count(&mut self) -> u64 {
        self.count += 1;
        self.count
    }
    #[message]
    fn reveal(&mut self, cx: &mut Context<Self>) -> Address<Made> {
        cx.address()
    }
}
#[test]
fn messages_of_the_macro_sent_to_the_address_are_committed() {
    let directory = tempfile::tempdir().unwrap();
    let runtime = runtime();
    let node = Node::open(directory.path()).start(&runtime).unwrap();
    runtime.block_on(async |_| {
        let made = node.entity::<Made>("it");
        assert_eq!(made.call(Count).await.unwrap(), 1);
        let address = made.call(Reveal).await.unwrap();
        assert_eq!(address.count().await.unwrap(), 2);
        address.kill();
        while address.is_alive() {
            tokio::task::yield_now().await;
        }
        assert_eq!(made.call(Count).await.unwrap(), 3);
        node.shutdown().await;
    });
}
