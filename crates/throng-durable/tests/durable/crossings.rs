//! Ends of a process at any moment of a turn: the turn is all or nothing, and the next activation
//! sees its outcome.

use std::sync::{Mutex, mpsc};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use throng::prelude::*;
use throng::{ProcessState, SortBy};
use throng_durable::{CellError, Durable, DurableContext, Entity, EntityError, Node, Str, U64};
use tokio::sync::oneshot;

use crate::{
    BlockedWriter, HANGS_AFTER, begin, bounded, on_runtime, program, runtime, stored, two_workers,
    until,
};

/// A log: its state is the number of its lines, its cells are the lines.
#[derive(Durable, Default, Serialize, Deserialize)]
#[durable(kind = "ledger")]
struct Ledger {
    lines: u64,
}
#[process]
impl Ledger {
    /// Adds a line, signals this, and ends when the test lets it.
    #[message]
    async fn append(
        &mut self,
        begun: oneshot::Sender<()>,
        gate: oneshot::Receiver<Finish>,
        ended: oneshot::Sender<()>,
        cx: &mut Context<Self>,
    ) -> u64 {
        self.lines += 1;
        cx.cells::<U64, u64>("lines").put(&self.lines, &self.lines);
        let _ = begun.send(());
        if let Ok(Finish::Panicking) = gate.await {
            panic!("boom");
        }
        let _ = ended.send(());
        self.lines
    }
    /// Adds a line at once.
    #[message]
    fn line(&mut self, cx: &mut Context<Self>) -> u64 {
        self.lines += 1;
        cx.cells::<U64, u64>("lines").put(&self.lines, &self.lines);
        self.lines
    }
    /// Returns the number of lines, if state and cells are of the same turn.
    #[message]
    fn audit(&mut self, cx: &mut Context<Self>) -> Result<u64, CellError> {
        let mut lines = 0;
        for line in cx.cells::<U64, u64>("lines").range(..) {
            lines += 1;
            assert_eq!(line?, (lines, lines));
        }
        assert_eq!(lines, self.lines, "state and cells are of different turns");
        Ok(lines)
    }
    /// Links the activation to a process, if there is one, and returns its address.
    #[message]
    fn reveal(&mut self, peer: Option<Pid>, cx: &mut Context<Self>) -> Address<Ledger> {
        if let Some(peer) = peer {
            cx.link(peer);
        }
        cx.address()
    }
    /// Changes state and cells and panics.
    #[message(send)]
    fn explode(&mut self, cx: &mut Context<Self>) {
        self.lines += 1_000;
        cx.cells::<Str, String>("steps").put("half", "done");
        panic!("boom");
    }
}
enum Finish {
    Well,
    Panicking,
}

struct Peer;
impl Process for Peer {}

#[derive(Clone, Copy, PartialEq, Debug)]
enum Ending {
    Kill,
    Exit,
    Link,
    Panic,
    Stop,
    Passivate,
}

#[derive(Clone, Copy, PartialEq, Debug)]
enum Phase {
    Before,
    Handling,
    Committing,
    After,
}

/// Ways in which the turn's message reaches the entity.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Way {
    Entity,
    Address,
}

/// Waits until the process has nothing to do: its turns are over, or are suspended.
async fn at_rest(runtime: &RuntimeHandle, pid: Pid) {
    until(async || {
        let info = runtime.info(pid).await.expect("it is alive");
        let is_idle = info.state == ProcessState::Idle && info.mailbox_len == 0;
        is_idle || matches!(info.state, ProcessState::Suspended { .. })
    })
    .await;
}

/// Waits until the process is suspended in a turn.
async fn suspended(runtime: &RuntimeHandle, pid: Pid) {
    until(async || {
        let info = runtime.info(pid).await.expect("it is alive");
        matches!(info.state, ProcessState::Suspended { .. })
    })
    .await;
}

async fn end(
    ending: Ending,
    node: &Node,
    ledger: &Entity<Ledger>,
    address: Address<Ledger>,
    peer: Address<Peer>,
) {
    match ending {
        Ending::Kill => address.kill(),
        Ending::Exit => address.exit(ExitReason::other("enough")),
        Ending::Link => peer.exit(ExitReason::other("enough")),
        Ending::Panic => ledger.explode().unwrap(),
        Ending::Stop => drop(address.stop()),
        // `live_max` is 1, so another entity evicts this entity.
        Ending::Passivate => {
            node.entity::<Ledger>("other").audit().await.unwrap().unwrap();
        }
    }
}

/// Adds a line by the current activation; an activation that is ending returns an error, and the
/// line is sent again.
async fn next_line(ledger: &Entity<Ledger>) -> u64 {
    loop {
        match ledger.call(Line).within(HANGS_AFTER).await {
            Err(EntityError::Died) => tokio::task::yield_now().await,
            line => return line.unwrap(),
        }
    }
}

async fn cross(runtime: &RuntimeHandle, ending: Ending, phase: Phase, way: Way) {
    let what = format!("{ending:?} {phase:?} {way:?}");
    let directory = tempfile::tempdir().unwrap();
    let live_max = if ending == Ending::Passivate { 1 } else { 100 };
    let node = Node::options(directory.path()).live_max(live_max).open(runtime).unwrap();
    assert_eq!(node.entity::<Ledger>("other").call(Line).await.unwrap(), 1, "{what}");
    let ledger = node.entity::<Ledger>("it");
    assert_eq!(ledger.call(Line).await.unwrap(), 1, "{what}");
    let peer = runtime.spawn(Peer).unwrap();
    let address = ledger.reveal(Some(peer.pid())).await.unwrap();

    let cut_off = matches!(ending, Ending::Kill | Ending::Exit | Ending::Link);
    if phase == Phase::Before {
        end(ending, &node, &ledger, address, peer).await;
        until(async || !cut_off || !address.is_alive()).await;
    }
    let blocked =
        if phase == Phase::Committing { Some(BlockedWriter::new(&node).await) } else { None };
    let (begun, begins) = oneshot::channel();
    let (gate, may_end) = oneshot::channel();
    let (ended, ends) = oneshot::channel();
    let append = Append { begun, gate: may_end, ended };
    let turn = tokio::spawn({
        let ledger = ledger.clone();
        async move {
            match way {
                Way::Entity => ledger.call(append).within(HANGS_AFTER).await.map_err(drop),
                Way::Address => address.call(append).within(HANGS_AFTER).await.map_err(drop),
            }
        }
    });
    let mut gate = Some(gate);
    let mut finish = |how| gate.take().map(|gate| gate.send(how));
    // The turn may not begin at all if the process has ended before.
    let has_begun = begins.await.is_ok();
    match phase {
        Phase::Before => {
            finish(Finish::Well);
        }
        Phase::Handling if ending == Ending::Panic => {
            finish(Finish::Panicking);
        }
        Phase::Handling => {
            end(ending, &node, &ledger, address, peer).await;
            if matches!(ending, Ending::Stop | Ending::Passivate) {
                finish(Finish::Well);
            }
        }
        Phase::Committing => {
            assert!(has_begun, "{what}");
            finish(Finish::Well);
            ends.await.unwrap();
            at_rest(runtime, address.pid()).await;
            assert!(!turn.is_finished(), "{what}: the reply is there before the commit");
            end(ending, &node, &ledger, address, peer).await;
        }
        Phase::After => {
            finish(Finish::Well);
        }
    }
    let (kept, next) = if phase == Phase::Committing && cut_off {
        // The next activation begins while the outcome is still unknown. The gate still has the reply.
        let next = tokio::spawn({
            let ledger = ledger.clone();
            async move { next_line(&ledger).await }
        });
        until(async || !address.is_alive()).await;
        drop(blocked);
        assert_eq!(turn.await.unwrap().ok(), Some(2), "{what}");
        (1, next.await.unwrap())
    } else {
        drop(blocked);
        let reply = turn.await.unwrap();
        if phase == Phase::After {
            end(ending, &node, &ledger, address, peer).await;
            until(async || !cut_off || !address.is_alive()).await;
        }
        let kept = match (phase, ending) {
            (Phase::Before, _) => u64::from(reply.is_ok()),
            (Phase::Handling, Ending::Stop | Ending::Passivate) => 1,
            (Phase::Handling, _) => 0,
            (Phase::Committing | Phase::After, _) => 1,
        };
        assert_eq!(reply.is_ok(), kept == 1, "{what}");
        (kept, next_line(&ledger).await)
    };
    assert_eq!(next, 1 + kept + 1, "{what}");
    let audit = ledger.audit().await.unwrap().unwrap();
    assert_eq!((audit, stored(&node, "ledger")), (next, 2), "{what}");
    node.shutdown().await;
    drop((ledger, node));

    let node = Node::options(directory.path()).open(runtime).unwrap();
    let audit = node.entity::<Ledger>("it").audit().await.unwrap().unwrap();
    assert_eq!((audit, stored(&node, "ledger")), (next, 2), "{what}, opened again");
    node.shutdown().await;
}

#[test]
fn a_turn_is_all_or_nothing_no_matter_how_its_process_ends() {
    use Ending::*;
    use Phase::*;
    let runtime = runtime();
    bounded(&runtime, async {
        for ending in [Kill, Exit, Link, Panic, Stop, Passivate] {
            for phase in [Before, Handling, Committing, After] {
                for way in [Way::Entity, Way::Address] {
                    cross(&runtime, ending, phase, way).await;
                }
            }
        }
    });
}

#[test]
fn no_caller_suspends_the_process_until_the_commit() {
    on_runtime(two_workers(), async |node, runtime| {
        let ledger = node.entity::<Ledger>("it");
        assert_eq!(ledger.call(Line).await.unwrap(), 1);
        let address = ledger.reveal(None).await.unwrap();
        let blocked = BlockedWriter::new(node).await;
        for _ in 0..10 {
            address.send(Line).unwrap();
        }
        let by_entity = begin(ledger.call(Line).within(HANGS_AFTER)).await;
        let by_address = begin(address.call(Line).within(HANGS_AFTER)).await;
        at_rest(runtime, address.pid()).await;
        let info = runtime.info(address.pid()).await.unwrap();
        assert_eq!(info.state, ProcessState::Idle, "no turn waits for the commit");
        assert!(!by_entity.is_finished() && !by_address.is_finished());
        drop(blocked);
        assert_eq!(by_entity.await.unwrap().unwrap(), 12);
        assert_eq!(by_address.await.unwrap().unwrap(), 13);
        assert_eq!(ledger.audit().await.unwrap().unwrap(), 13);
    });
}

/// The process that waits for the outcome is ended as well.
#[test]
fn a_successor_that_is_killed_hands_the_open_outcome_on() {
    on_runtime(two_workers(), async |node, runtime| {
        let ledger = node.entity::<Ledger>("it");
        let peer = runtime.spawn(Peer).unwrap();
        ledger.call(Line).await.unwrap();
        let address = ledger.reveal(None).await.unwrap();
        let blocked = BlockedWriter::new(node).await;
        let turn = begin(address.call(Line).within(HANGS_AFTER)).await;
        at_rest(runtime, address.pid()).await;
        address.kill();
        for _ in 0..3 {
            until(async || runtime.process_count() <= 2).await;
            let next = tokio::spawn(ledger.call(Line).within(HANGS_AFTER));
            let successor = another_process(runtime, &[peer.pid()]).await;
            suspended(runtime, successor).await;
            // A caller that comes after the kill activates the entity again, and waits with it.
            while runtime.info(successor).await.is_some_and(|info| info.mailbox_len == 0) {
                tokio::task::yield_now().await;
            }
            successor.kill();
            assert!(next.await.unwrap().is_err());
        }
        drop(blocked);
        assert_eq!(turn.await.unwrap().unwrap(), 2);
        assert_eq!(next_line(&ledger).await, 3);
        assert_eq!(ledger.audit().await.unwrap().unwrap(), 3);
        assert_eq!(stored(node, "ledger"), 1);
    });
}

/// A state whose drop blocks once, if the test asks for it.
#[derive(Durable, Default, Serialize, Deserialize)]
#[durable(kind = "sticky")]
struct Sticky {
    count: u64,
}
static DROPS: Mutex<Option<BlockedDrop>> = Mutex::new(None);
struct BlockedDrop {
    begun: oneshot::Sender<()>,
    release: mpsc::Receiver<()>,
}
impl Drop for Sticky {
    fn drop(&mut self) {
        let blocked = DROPS.lock().unwrap().take();
        if let Some(BlockedDrop { begun, release }) = blocked {
            let _ = begun.send(());
            let _ = release.recv();
        }
    }
}
#[process]
impl Sticky {
    #[message]
    fn count(&mut self) -> u64 {
        self.count += 1;
        self.count
    }
}

/// Returns the pid of a process that is neither known nor a part of the node.
async fn another_process(runtime: &RuntimeHandle, known: &[Pid]) -> Pid {
    loop {
        let processes = runtime.top(10, SortBy::Turns).await;
        let others = processes
            .iter()
            .filter(|process| process.kind.is_some_and(|kind| !kind.contains("gate")));
        match others.map(|process| process.pid).find(|pid| !known.contains(pid)) {
            Some(pid) => return pid,
            None => tokio::task::yield_now().await,
        }
    }
}

/// An activation that finds no room, and is slow to clean up, does not hide the unknown outcome
/// from the activation that finds room.
#[test]
fn a_process_limit_reached_while_the_predecessors_commit_is_open() {
    on_runtime(Runtime::builder().workers(1).process_limit(3), async |node, runtime| {
        let sticky = node.entity::<Sticky>("it");
        assert_eq!(sticky.count().await.unwrap(), 1);
        let peer = runtime.spawn(Peer).unwrap();
        let entity = another_process(runtime, &[peer.pid()]).await;
        let blocked = BlockedWriter::new(node).await;
        let turn = begin(sticky.count().within(HANGS_AFTER)).await;
        at_rest(runtime, entity).await;
        entity.kill();
        until(async || !entity.is_alive()).await;
        let other = loop {
            match runtime.spawn(Peer) {
                Ok(other) => break other,
                Err(_) => tokio::task::yield_now().await,
            }
        };

        let (begun, begins) = oneshot::channel();
        let (release, released) = mpsc::channel();
        *DROPS.lock().unwrap() = Some(BlockedDrop { begun, release: released });
        let refused = std::thread::spawn({
            let sticky = sticky.clone();
            move || sticky.send_count().map_err(|unsent| unsent.error)
        });
        begins.await.unwrap();
        other.kill();
        let next = tokio::spawn({
            let sticky = sticky.clone();
            async move {
                loop {
                    match sticky.count().within(HANGS_AFTER).await {
                        Err(EntityError::NoRoom { .. }) => tokio::task::yield_now().await,
                        line => return line.unwrap(),
                    }
                }
            }
        });
        let successor = another_process(runtime, &[peer.pid(), other.pid()]).await;
        suspended(runtime, successor).await;
        assert!(!turn.is_finished());
        drop((blocked, release));
        assert_eq!(turn.await.unwrap().unwrap(), 2);
        assert_eq!(next.await.unwrap(), 3);
        assert!(matches!(refused.join().unwrap(), Err(EntityError::NoRoom { .. })));
    });
}

/// The runtime ends while the outcome of a turn is unknown.
#[test]
fn a_turn_is_all_or_nothing_in_a_shutdown_before_its_commit() {
    let directory = tempfile::tempdir().unwrap();
    for first in [true, false] {
        let runtime = runtime();
        let node = Node::options(directory.path()).open(&runtime).unwrap();
        let lines = if first { 0 } else { 2 };
        let blocked = runtime.block_on(async |runtime| {
            let ledger = node.entity::<Ledger>("it");
            assert_eq!(ledger.call(Line).await.unwrap(), lines + 1);
            assert_eq!(ledger.audit().await.unwrap().unwrap(), lines + 1);
            let address = ledger.reveal(None).await.unwrap();
            let blocked = BlockedWriter::new(&node).await;
            begin(address.call(Line)).await;
            at_rest(runtime, address.pid()).await;
            blocked
        });
        runtime.shutdown(Duration::ZERO);
        drop(blocked);
        drop(node);
    }
    program(Node::options(directory.path()), async |node| {
        let audit = node.entity::<Ledger>("it").audit().await.unwrap().unwrap();
        assert_eq!((audit, stored(node, "ledger")), (4, 1));
    });
}
