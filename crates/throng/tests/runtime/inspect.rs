//! Inspection of processes from outside, in all their states.

use crate::{
    Actor, Add, AddSlowly, Await, Counter, Do, Hold, hold, in_turn, quiet, runtime, scaled,
};
use std::collections::HashSet;
use std::time::Duration;
use throng::prelude::*;
use throng::{MailboxBound, Overflow, ProcessState, SortBy};
use tokio::sync::oneshot;

/// A process with a state of `BYTES` bytes, which never finishes stopping.
struct Worker<const BYTES: usize> {
    _state: [u8; BYTES],
}

impl<const BYTES: usize> Worker<BYTES> {
    fn new() -> Worker<BYTES> {
        Worker { _state: [0; BYTES] }
    }
}

impl<const BYTES: usize> Process for Worker<BYTES> {
    async fn stopping(&mut self, _: &ExitReason, _: &mut Context<Self>) {
        std::future::pending().await
    }
}

/// Suspends its turn until its receiver gets a message.
struct Wait(oneshot::Sender<()>, oneshot::Receiver<()>);
impl Message for Wait {
    type Reply = ();
}
impl<const BYTES: usize> Handle<Wait> for Worker<BYTES> {
    async fn handle(&mut self, Wait(begun, go_on): Wait, _: &mut Context<Self>) {
        let _ = begun.send(());
        let _ = go_on.await;
    }
}

/// Sends a worker a `Wait`, and returns when its turn has begun.
async fn suspend(worker: Address<Worker<8>>) -> oneshot::Sender<()> {
    let (begun, begins) = oneshot::channel();
    let (go_on, receiver) = oneshot::channel();
    worker.send(Wait(begun, receiver)).unwrap();
    begins.await.unwrap();
    go_on
}

struct Family;
#[process]
impl Family {
    /// Spawns linked children, and returns their addresses.
    #[message]
    fn breed(&mut self, count: u32, cx: &mut Context<Self>) -> Vec<Address<Family>> {
        (0..count).map(|_| cx.linked().spawn(Family).unwrap()).collect()
    }
    /// Sets its label.
    #[message]
    fn relabel(&mut self, label: &'static str, cx: &mut Context<Self>) {
        cx.set_label(label);
    }
    #[message]
    fn watch(&mut self, whom: Pid, cx: &mut Context<Self>) {
        cx.trap_exits(true);
        cx.monitor(whom);
        cx.monitor(whom);
    }
}
#[test]
#[cfg_attr(miri, ignore = "turns take so long that they are noted, in a block of their own")]
fn a_suspended_process_is_inspected_and_continues_undisturbed() {
    runtime().block_on(async |runtime| {
        let worker = runtime.spawn(Worker::<8>::new()).unwrap();
        let idle = runtime.info(worker).await.unwrap();
        assert_eq!((idle.pid, idle.state, idle.mailbox_len), (worker.pid(), ProcessState::Idle, 0));
        assert!(idle.kind.unwrap().contains("Worker<8>"));

        let go_on = suspend(worker).await;
        for _ in 0..3 {
            let (unheard, unsaid) = (oneshot::channel().0, oneshot::channel().1);
            worker.send(Wait(unheard, unsaid)).unwrap();
        }
        // The turn has begun, but may not have suspended yet.
        let waiting = loop {
            let info = runtime.info(worker).await.unwrap();
            if matches!(info.state, ProcessState::Suspended { .. }) {
                break info;
            }
        };
        let ProcessState::Suspended { handler } = waiting.state else { unreachable!() };
        assert!(handler.contains("Wait"), "{handler}");
        assert_eq!((waiting.mailbox_len, waiting.mailbox_bytes), (3, 3 * 64));
        assert!(
            waiting.memory_bytes > idle.memory_bytes,
            "the memory of the suspended turn is not counted"
        );
        // The receivers of the other messages are closed, so their turns end at once.
        go_on.send(()).unwrap();
        while runtime.info(worker).await.unwrap().state != ProcessState::Idle {}
        assert_eq!(runtime.info(worker).await.unwrap(), idle);
        worker.kill();
        worker.pid().exited().await;
        assert_eq!(runtime.info(worker).await, None);
    });
}

#[test]
fn a_blocked_process_is_reported_as_running() {
    runtime().block_on(async |runtime| {
        let stuck = runtime.spawn(Worker::<8>::new()).unwrap();
        let (hold, held) = hold();
        stuck.send(Await(async { hold.wait() })).unwrap();
        held.has_begun();
        let info = runtime.info(stuck).await.unwrap();
        assert_eq!((info.state, info.kind), (ProcessState::Running, None));
        let top = runtime.top(1, SortBy::LongestTurn).await;
        assert_eq!((top.len(), top[0].pid), (1, stuck.pid()));
        held.let_go();
        // The process answers the earlier inspections now, without an inspector that waits.
        while runtime.info(stuck).await.unwrap().state != ProcessState::Idle {}
        // Two inspections have waited half a second each, so the turn was long.
        let longest = runtime.top(1, SortBy::LongestTurn).await.remove(0);
        assert_eq!((longest.pid, longest.longest_turn.is_some()), (stuck.pid(), true));
    });
}

#[test]
fn an_exiting_process_is_reported_as_exiting() {
    runtime().block_on(async |runtime| {
        let worker = runtime.spawn(Worker::<8>::new()).unwrap();
        worker.stop();
        while runtime.info(worker).await.unwrap().state != ProcessState::Exiting {}
        worker.kill();
        worker.pid().exited().await;
        assert_eq!(runtime.info(worker).await, None);
    });
}

#[test]
#[cfg_attr(miri, ignore = "turns take so long that they are noted, in a block of their own")]
fn a_process_that_only_receives_with_a_time_out_takes_a_small_block() {
    struct Event;
    impl Message for Event {
        type Reply = ();
    }
    runtime().block_on(async |runtime| {
        let number = 7_u64;
        let process = runtime.spawner().spawn_async(async move |mut inbox: Inbox<Event>| {
            let received = inbox.recv_timeout(Duration::from_secs(3600)).await;
            assert!(received.is_none() || number == 7);
        });
        let process = process.unwrap();
        let waiting = loop {
            let info = runtime.info(process).await.unwrap();
            if matches!(info.state, ProcessState::Suspended { .. }) {
                break info;
            }
        };
        assert!(waiting.memory_bytes <= 64 + 256, "takes {} bytes", waiting.memory_bytes);
    });
}

#[test]
fn memory_counts_slots_and_states_too_large_for_a_slot() {
    runtime().block_on(async |runtime| {
        let small = runtime.spawn(Worker::<8>::new()).unwrap();
        let medium = runtime.spawn(Worker::<300>::new()).unwrap();
        let large = runtime.spawn(Worker::<10_000>::new()).unwrap();
        let bytes = async |pid: Pid| runtime.info(pid).await.unwrap().memory_bytes;
        assert_eq!(bytes(small.pid()).await, 64);
        assert_eq!(bytes(medium.pid()).await, 384);
        assert_eq!(bytes(large.pid()).await, 10_064);
        let top: Vec<_> =
            runtime.top(2, SortBy::Memory).await.into_iter().map(|info| info.pid).collect();
        assert_eq!(top, [large.pid(), medium.pid()]);
        for process in [small.pid(), medium.pid(), large.pid()] {
            process.kill();
        }
    });
}

#[test]
fn relations_are_shown_from_both_ends() {
    runtime().block_on(async |runtime| {
        let parent = runtime.spawn(Family).unwrap();
        let children = parent.breed(2).await.unwrap();
        let (first, second) = (children[0].pid(), children[1].pid());
        children[0].watch(second).await.unwrap();
        let info = runtime.info(parent).await.unwrap();
        assert_eq!(info.turns, Some(1), "turns are not counted from the first child on");
        let sorted = |mut pids: Vec<Pid>| {
            pids.sort_unstable();
            pids
        };
        assert_eq!(sorted(info.links), sorted(vec![first, second]));
        assert_eq!((info.parent, info.traps_exits), (None, false));
        let info = runtime.info(first).await.unwrap();
        assert_eq!((info.parent, info.links), (Some(parent.pid()), vec![parent.pid()]));
        assert_eq!((info.monitors, info.traps_exits), (vec![second, second], true));
        // A monitor is a signal, which may be in flight.
        while runtime.info(second).await.unwrap().monitored_by != [first, first] {}
    });
}

#[test]
fn the_list_has_every_process_once_and_pids_are_found_by_their_text() {
    let runtime = runtime();
    let other = crate::runtime();
    let stranger = other.spawn(Family).unwrap().pid();
    let spawned: HashSet<Pid> =
        (0..scaled(5_000)).map(|_| runtime.spawn(Family).unwrap().pid()).collect();
    let listed: Vec<Pid> = runtime.list().collect();
    assert_eq!(listed.len(), spawned.len());
    assert_eq!(listed.iter().copied().collect::<HashSet<_>>(), spawned);
    for &pid in listed.iter().take(100) {
        assert_eq!(runtime.find(&pid.to_string()), Some(pid));
    }
    let inside = u64::from_str_radix(&listed[0].to_string(), 16).unwrap() ^ (1 << 7);
    for text in ["", "0", "no pid", "-1", "ffffffffffffffff", &format!("{:x}", inside | 8)] {
        assert_eq!(runtime.find(text), None, "{text}");
    }
    assert_eq!(runtime.find(&stranger.to_string()), None);
    runtime.block_on(async |runtime| {
        listed[0].kill();
        listed[0].exited().await;
        assert_eq!(runtime.find(&listed[0].to_string()), None);
        assert_eq!(runtime.list().count(), spawned.len() - 1);
    });
}

#[test]
fn the_tree_shows_children_below_their_parents() {
    runtime().block_on(async |runtime| {
        for _ in 0..10 {
            runtime.spawn(Family).unwrap();
        }
        let root = runtime.spawn(Family).unwrap();
        let children = root.breed(3).await.unwrap();
        let grandchildren = children[1].breed(2).await.unwrap();
        let tree = runtime.tree(100).await;
        assert_eq!(tree.len(), 6, "processes without parent and children are in the tree");
        assert_eq!((tree[0].pid, tree[0].depth, tree[0].children), (root.pid(), 0, 3));
        let depth = |pid: Pid| tree.iter().find(|branch| branch.pid == pid).unwrap().depth;
        assert!(children.iter().all(|child| depth(child.pid()) == 1));
        assert!(grandchildren.iter().all(|child| depth(child.pid()) == 2));
        let place = |pid: Pid| tree.iter().position(|branch| branch.pid == pid).unwrap();
        let second = place(children[1].pid());
        let mut below: Vec<Pid> = tree[second + 1..second + 3].iter().map(|b| b.pid).collect();
        below.sort_unstable();
        let mut expected: Vec<Pid> = grandchildren.iter().map(|child| child.pid()).collect();
        expected.sort_unstable();
        assert_eq!(below, expected);

        let few = runtime.tree(2).await;
        assert_eq!(few.len(), 2);
        assert_eq!((few[0].pid, few[0].children, few[1].depth), (root.pid(), 3, 1));
        assert_eq!(runtime.tree(0).await, []);
    });
}

#[test]
fn a_child_whose_parent_has_exited_becomes_a_root_of_the_tree() {
    runtime().block_on(async |runtime| {
        let parent = runtime.spawn(Family).unwrap();
        let bear = Do(|_: &mut Family, cx: &mut Context<Family>| cx.monitored().spawn(Actor));
        let orphan = parent.call(bear).await.unwrap().unwrap();
        assert_eq!(runtime.tree(9).await.len(), 2);
        parent.kill();
        parent.pid().exited().await;
        let tree = runtime.tree(9).await;
        assert_eq!(tree.iter().map(|b| (b.pid, b.depth)).collect::<Vec<_>>(), [(orphan.pid(), 0)]);
    });
}

#[test]
#[cfg_attr(miri, ignore = "turns take so long that they are noted, in a block of their own")]
fn the_fullest_mailboxes_come_first_and_inspection_loses_no_message() {
    runtime().block_on(async |runtime| {
        let workers: Vec<_> =
            (0..scaled(2_000)).map(|_| runtime.spawn(Counter::default()).unwrap()).collect();
        let full = workers[workers.len() / 2];
        full.send(AddSlowly(1, Duration::from_millis(50))).unwrap();
        for _ in 0..100 {
            full.send(Add(1)).unwrap();
        }
        let top = runtime.top(3, SortBy::MailboxLen).await;
        assert_eq!((top.len(), top[0].pid), (3, full.pid()), "{top:?}");
        assert!(top[0].mailbox_len >= 100 && top[0].mailbox_bytes >= 100 * 16, "{top:?}");
        assert!(top[1].mailbox_len == 0);
        assert_eq!(full.call(Add(0)).await.unwrap(), 101);
        // Inspects the processes while two senders send to them.
        let rounds = scaled(2_000) / 20;
        for round in 0..rounds {
            for process in &workers {
                process.send(Add(1)).unwrap();
            }
            let by = [SortBy::Memory, SortBy::MailboxLen, SortBy::MailboxBytes, SortBy::Turns];
            assert_eq!(runtime.top(2, by[round as usize % 4]).await.len(), 2);
        }
        for process in workers {
            let extra = if process == full { 101 } else { 0 };
            assert_eq!(process.call(Add(0)).await.unwrap(), rounds + extra);
        }
    });
}

#[test]
fn a_process_can_inspect_itself_during_a_turn() {
    runtime().block_on(async |runtime| {
        let (own, actor) = (runtime.clone(), runtime.spawn(Actor).unwrap());
        let info = actor.call(Await(async move { own.info(actor).await })).await.unwrap();
        let state = info.map(|info| info.state);
        assert!(matches!(state, Some(ProcessState::Suspended { .. })), "{state:?}");
    });
}

#[test]
fn supervised_processes_stand_below_their_supervisor_with_their_names() {
    runtime().block_on(async |runtime| {
        let supervisor = Supervisor::one_for_one()
            .child("first", ChildSpec::new(|| Family).register("the first"))
            .child("second", || Family)
            .start(runtime)
            .unwrap();
        let children = loop {
            let tree = runtime.tree(10).await;
            if tree.len() == 3 {
                break tree;
            }
        };
        assert_eq!((children[0].pid, children[0].children), (supervisor.pid(), 2));
        assert!(children[0].kind.unwrap().contains("Supervisor"));
        let mut names: Vec<_> = children[1..].iter().map(|branch| branch.names.clone()).collect();
        names.sort();
        assert_eq!(names, [vec![], vec!["the first".to_owned()]]);
        let first = runtime.whereis::<Family>("the first").unwrap();
        let info = runtime.info(first).await.unwrap();
        assert_eq!(
            (info.names, info.parent),
            (vec!["the first".to_owned()], Some(supervisor.pid()))
        );
    });
}

/// A process whose items queue up.
struct Queue;
#[process]
impl Queue {
    #[message(send)]
    fn item(&mut self, _: u64) {}
}

#[test]
fn a_flood_from_a_turn_shares_blocks() {
    runtime().block_on(async |runtime| {
        let queue = runtime.spawn(Queue).unwrap();
        let (begun, begins) = oneshot::channel();
        let (go_on, receiver) = oneshot::channel();
        let wait = async {
            let _ = begun.send(());
            let _ = receiver.await;
        };
        queue.send(Await(wait)).unwrap();
        begins.await.unwrap();
        let flood = async move { (0..1_000).for_each(|number| queue.item(number).unwrap()) };
        in_turn(runtime, flood).await;
        let info = runtime.info(queue).await.unwrap();
        assert_eq!(info.mailbox_len, 1_000);
        assert!(info.mailbox_bytes < 12 * 1_000, "{} bytes", info.mailbox_bytes);
        go_on.send(()).unwrap();
        while runtime.info(queue).await.unwrap().state != ProcessState::Idle {}
    });
}

#[test]
fn queued_messages_of_a_bounded_process_are_counted_too() {
    runtime().block_on(async |runtime| {
        let bound = MailboxBound::new(5, Overflow::Reject);
        let worker = runtime.spawner().mailbox(bound).spawn(Worker::<8>::new()).unwrap();
        assert_eq!(runtime.info(worker).await.unwrap().state, ProcessState::Idle);
        assert_eq!(runtime.find(&worker.pid().to_string()), Some(worker.pid()));
        let go_on = suspend(worker).await;
        for _ in 0..4 {
            worker.send(Wait(oneshot::channel().0, oneshot::channel().1)).unwrap();
        }
        let info = runtime.info(worker).await.unwrap();
        assert_eq!((info.mailbox_len, info.mailbox_bytes), (4, 4 * 64));
        let metrics = runtime.metrics();
        assert!(metrics.mailbox_bytes >= 4 * 64 && metrics.mailbox_bytes_limit > 1 << 20);
        go_on.send(()).unwrap();
        while runtime.info(worker).await.unwrap().state != ProcessState::Idle {}
        worker.kill();
    });
}

/// Panics when a worker wakes it, but not on the thread of tokio's timers, which would abort.
struct PanickingWaker;
impl std::task::Wake for PanickingWaker {
    fn wake(self: std::sync::Arc<Self>) {
        let is_worker = std::thread::current().name().is_some_and(|name| name == "throng-0");
        assert!(!is_worker, "on purpose");
    }
}

#[process(manual)]
impl Counter {
    #[message(send)]
    fn block_then(&mut self, hold: Hold, stops: bool, cx: &mut Context<Self>) {
        hold.wait();
        if stops {
            cx.stop(ExitReason::Normal);
        }
    }
}

#[test]
fn a_waker_that_panics_at_the_end_of_an_inspection_ends_no_worker() {
    quiet();
    let runtime = Runtime::builder().workers(1).spare_workers(0).start().unwrap();
    runtime.block_on(async |runtime| {
        for stops in [false, true] {
            let (hold, held) = hold();
            let counter = runtime.spawn(Counter::default()).unwrap();
            counter.block_then(hold, stops).unwrap();
            held.has_begun();
            let waker = std::task::Waker::from(std::sync::Arc::new(PanickingWaker));
            let mut info = std::pin::pin!(runtime.info(counter));
            let asked = info.as_mut().poll(&mut std::task::Context::from_waker(&waker));
            assert!(asked.is_pending(), "the inspection ended during the turn");
            held.let_go();
            let exited = counter.pid().exited();
            if !stops {
                counter.pid().kill();
            }
            exited.await;
            // A process that stops itself exits before it handles the inspection.
            assert_eq!(info.await.is_none(), stops);
            let next = runtime.spawn(Counter { count: 1 }).unwrap();
            assert_eq!(next.call(Add(1)).await.unwrap(), 2, "the worker has lost a message");
        }
    });
    assert_eq!(runtime.shutdown(Duration::from_secs(60)).abandoned, 0);
}

#[test]
fn a_label_tells_a_process_apart_and_costs_a_process_without_one_nothing() {
    runtime().block_on(async |runtime| {
        let plain = runtime.spawn(Family).unwrap();
        let ada = runtime.spawner().label("session of Ada").spawn(Family).unwrap();
        let many = runtime.spawner().label("one of two").spawn_many([Family, Family]).unwrap();
        let label = async |pid: Pid| runtime.info(pid).await.unwrap().label;
        assert_eq!(label(plain.pid()).await, None);
        assert_eq!(runtime.info(plain).await.unwrap().memory_bytes, 64);
        assert_eq!(label(ada.pid()).await.as_deref(), Some("session of Ada"));
        for one in &many {
            assert_eq!(label(one.pid()).await.as_deref(), Some("one of two"));
        }
        plain.relabel("plain no more").await.unwrap();
        ada.relabel("session of Bea").await.unwrap();
        assert_eq!(label(plain.pid()).await.as_deref(), Some("plain no more"));
        assert_eq!(label(ada.pid()).await.as_deref(), Some("session of Bea"));
        // Beside a tie to the parent, and in the tree.
        let child = ada.breed(1).await.unwrap().remove(0);
        child.relabel("child").await.unwrap();
        let labels = runtime.tree(10).await.into_iter().map(|row| row.label);
        let expected = ["session of Bea", "child"].map(|label| Some(label.to_owned()));
        assert!(labels.eq(expected));
    });
}

#[test]
fn a_search_finds_processes_by_kind_label_and_name_and_sums_add_them_up() {
    runtime().block_on(async |runtime| {
        let named = runtime.spawn(Family).unwrap();
        runtime.register("Ärger", named).unwrap();
        let labelled = runtime.spawner().label("user/ada").spawn(Family).unwrap();
        let workers: Vec<Address<Worker<500>>> =
            (0..3).map(|_| runtime.spawn(Worker::new()).unwrap()).collect();
        let found = async |text: &str| {
            let found = runtime.search(text, 10, SortBy::Memory).await;
            found.into_iter().map(|info| info.pid).collect::<HashSet<_>>()
        };
        assert_eq!(found("ärGER").await, HashSet::from([named.pid()]));
        assert_eq!(found("User/A").await, HashSet::from([labelled.pid()]));
        assert_eq!(found("worker<500>").await, workers.iter().map(|one| one.pid()).collect());
        assert_eq!(found("family").await, HashSet::from([named.pid(), labelled.pid()]));
        // Neither a path nor anything else is part of the text.
        assert_eq!((found("inspect::").await.len(), found("nobody").await.len()), (0, 0));
        assert_eq!(runtime.search("", 4, SortBy::Memory).await.len(), 4);

        let mut sums = runtime.sums_by_kind("").await;
        sums.sort_by_key(|kind| kind.processes);
        let seen = sums.iter().map(|kind| (throng::short_kind(kind.kind.unwrap()), kind.processes));
        assert!(seen.eq([("Family".to_owned(), 2), ("Worker<500>".to_owned(), 3)]));
        let one = runtime.info(workers[0]).await.unwrap();
        assert_eq!(sums[1].memory_bytes, 3 * one.memory_bytes);
        let some = runtime.sums_by_kind("ada").await;
        assert_eq!((some.len(), some[0].processes), (1, 1));
    });
}
