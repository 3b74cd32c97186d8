//! The output gate where it meets other features: each held reply reaches its caller, each action runs once or
//! is dropped, and no user code that misbehaves stops the replies of others.
//!
//! | meets                | outcome                                                                     |
//! |----------------------|-----------------------------------------------------------------------------|
//! | kill                 | of the caller: the turn is kept; of the gate's process: replies leave       |
//! | panic                | in the drop of a reply or an action: logged                                 |
//! | blocking action      | turns and replies that need no commit go on; the others follow it           |
//! | shutdown             | of the node or the runtime, while replies are held: they leave              |
//! | bounds               | no room for the gate's process: the store's writer releases                 |
//! | time                 | a caller that has given up: the turn is kept, its reply is dropped          |
//! | calls back           | a caller whose reply is held is called by the entity's next turn: no ring   |
//! | place                | callers on a current-thread tokio, which may drive the runtime as well;     |
//! |                      | turns that tasks of tokio's ran, whose threads then block                   |
//! | life                 | actions of every hook run, except of `stopping`                             |

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, mpsc};
use std::task::Poll;
use std::thread;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use throng::SortBy;
use throng::prelude::*;
use throng_durable::{Bytes, CommitError, Durable, DurableContext, EntityError, Node, Str};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use crate::commit::state_record;
use crate::{
    BlockedWriter, Counter, CounterClient, begin, begin_turn, bounded, on_node, on_runtime,
    on_small_store, reopen, runtime, two_workers, until,
};

/// A deadline for calls whose reply may be forgotten.
const SOON: Duration = Duration::from_secs(60);

#[process(manual, client = CounterHere)]
impl Counter {
    /// Runs a closure as a turn, and returns the count.
    #[message(name = Do)]
    fn perform(&mut self, turn: Box<Action>, cx: &mut Context<Self>) -> u64 {
        turn(self, cx);
        self.count
    }
    /// Adds 1 and replies with a bomb.
    #[message]
    fn arm(&mut self) -> Bomb {
        self.count += 1;
        Bomb
    }
    /// Calls the entity with this key, which adds 1, and adds its count.
    #[message]
    async fn add_from(
        &mut self,
        key: &'static str,
        cx: &mut Context<Self>,
    ) -> Result<u64, EntityError> {
        self.count += cx.node().entity::<Counter>(key).add(1).within(SOON).await?;
        Ok(self.count)
    }
}
type Action = dyn FnOnce(&mut Counter, &mut Context<Counter>) + Send;
impl Do {
    fn new(turn: impl FnOnce(&mut Counter, &mut Context<Counter>) + Send + 'static) -> Do {
        Do { turn: Box::new(turn) }
    }
}

/// A value whose drop panics.
#[derive(Debug)]
struct Bomb;
static BOMBS: AtomicUsize = AtomicUsize::new(0);
impl Drop for Bomb {
    fn drop(&mut self) {
        BOMBS.fetch_add(1, Ordering::SeqCst);
        panic!("on purpose");
    }
}

/// Puts a cell that the store has no room for.
fn flood(cx: &mut Context<Counter>) {
    cx.cells::<Str, String>("flood").put("", &"f".repeat(8 << 20));
}

async fn process_of_the_gate(runtime: &RuntimeHandle) -> Pid {
    loop {
        let processes = runtime.top(100, SortBy::Turns).await;
        let is_gate = |kind: Option<&str>| kind.is_some_and(|kind| kind.contains("gate"));
        match processes.iter().find(|process| is_gate(process.kind)) {
            Some(process) => return process.pid,
            None => tokio::task::yield_now().await,
        }
    }
}

#[test]
fn an_action_that_blocks_delays_replies_and_nothing_else() {
    on_node(async |node| {
        let (counter, other) = (node.entity::<Counter>("it"), node.entity::<Counter>("other"));
        other.add(1).await.unwrap();
        let (begun, mut begins) = unbounded_channel();
        let (release, released) = mpsc::channel::<()>();
        let block = Do::new(move |counter, cx| {
            counter.count += 1;
            cx.after_commit(move || {
                begun.send(()).unwrap();
                let _ = released.recv();
            });
        });
        let blocked = begin(counter.call(block).within(SOON)).await;
        begins.recv().await.unwrap();
        // Replies that wait for no commit.
        assert_eq!(other.get().within(SOON).await.unwrap(), 1);
        assert_eq!(counter.get().within(SOON).await.unwrap(), 1);
        let mut adds = Vec::new();
        for _ in 0..20 {
            adds.push(begin(counter.add(1).within(SOON)).await);
            adds.push(begin(other.add(1).within(SOON)).await);
        }
        // The commits go on as well.
        until(async || {
            node.store().outcomes().settled_through() >= node.store().submitted_through()
        })
        .await;
        // The actions of a turn precede its reply.
        assert!(!blocked.is_finished());
        drop(release);
        assert_eq!(blocked.await.unwrap().unwrap(), 1);
        for (number, add) in adds.into_iter().enumerate() {
            assert_eq!(add.await.unwrap().unwrap(), 2 + number as u64 / 2);
        }
    });
}

#[test]
fn the_actions_of_a_turn_run_before_its_reply() {
    on_node(async |node| {
        let counters = [0, 1, 2, 3].map(|number| node.entity::<Counter>(&number.to_string()));
        let tasks = counters.map(|counter| {
            tokio::spawn(async move {
                for round in 0..500_u64 {
                    let (has_run, runs) = (Arc::new(AtomicBool::new(false)), round % 3 != 0);
                    let act = has_run.clone();
                    // Also in turns that change nothing, whose replies may leave at once.
                    let turn = Do::new(move |counter: &mut Counter, cx| {
                        counter.count += round % 2;
                        if runs {
                            cx.after_commit(move || act.store(true, Ordering::Relaxed));
                        }
                    });
                    counter.call(turn).await.unwrap();
                    assert_eq!(has_run.load(Ordering::Relaxed), runs);
                }
            })
        });
        for task in tasks {
            task.await.unwrap();
        }
    });
}

#[test]
fn an_action_may_send_to_its_own_entity() {
    on_node(async |node| {
        let counter = node.entity::<Counter>("it");
        let (tell, mut told) = unbounded_channel();
        let send = Do::new(move |counter, cx| {
            counter.count += 1;
            let entity = cx.entity();
            cx.after_commit(move || tell.send(entity.send_add(10).is_ok()).unwrap());
        });
        assert_eq!(counter.call(send).await.unwrap(), 1);
        assert!(told.recv().await.unwrap());
        assert_eq!(counter.get().await.unwrap(), 11);
    });
}

/// Ends of a turn whose actions panic as they are dropped.
#[derive(Clone, Copy, Debug, PartialEq)]
enum End {
    Kept,
    Panicked,
    Refused,
    Lost,
    Killed,
}

#[test]
fn a_panic_in_the_drop_of_an_action_harms_nobody() {
    on_small_store(async |node| {
        let (counter, other) = (node.entity::<Counter>("it"), node.entity::<Counter>("other"));
        let mut count = 0;
        for end in [End::Kept, End::Panicked, End::Refused, End::Lost, End::Killed] {
            let turn = Do::new(move |counter, cx| {
                counter.count += 1;
                let bomb = Bomb;
                cx.after_commit(move || drop(bomb));
                match end {
                    End::Kept => {}
                    End::Panicked => panic!("on purpose"),
                    End::Refused => cx.cells::<Bytes, ()>("far").put(&[0; 1000], &()),
                    End::Lost => flood(cx),
                    End::Killed => cx.address().kill(),
                }
            });
            let before = BOMBS.load(Ordering::SeqCst);
            let outcome = counter.call(turn).within(SOON).await;
            let is_expected = match end {
                End::Kept => outcome.is_ok(),
                End::Panicked => matches!(outcome, Err(EntityError::Panicked(_))),
                End::Refused => {
                    matches!(outcome, Err(EntityError::NotCommitted(CommitError::Cell(_))))
                }
                End::Lost => {
                    matches!(outcome, Err(EntityError::NotCommitted(CommitError::Lost(_))))
                }
                // The turn ends before the process does.
                End::Killed => outcome.is_ok(),
            };
            assert!(is_expected, "{end:?}: {outcome:?}");
            count += u64::from(outcome.is_ok());
            until(async || BOMBS.load(Ordering::SeqCst) != before).await;
            let get = loop {
                match counter.get().within(SOON).await {
                    Err(EntityError::Died) => tokio::task::yield_now().await,
                    get => break get.unwrap(),
                }
            };
            assert_eq!(get, count, "{end:?}");
            other.add(1).within(SOON).await.unwrap();
        }
    });
}

#[test]
fn the_turn_of_a_caller_that_gave_up_is_kept_and_the_drop_of_its_reply_harms_nobody() {
    on_node(async |node| {
        let counter = node.entity::<Counter>("it");
        for round in 0..10 {
            let blocked = BlockedWriter::new(node).await;
            let in_time = counter.arm().within(Duration::from_millis(1));
            let in_time = begin(in_time).await;
            let aborted = begin(counter.arm().within(SOON)).await;
            let patient = begin(counter.add(1).within(SOON)).await;
            let late = in_time.await.unwrap();
            assert!(matches!(late, Err(EntityError::TimedOut { enqueued: true })), "{late:?}");
            aborted.abort();
            assert!(aborted.await.unwrap_err().is_cancelled());
            assert!(!patient.is_finished());
            drop(blocked);
            assert_eq!(patient.await.unwrap().unwrap(), 3 * (round + 1));
        }
    });
}

#[test]
fn the_drop_of_a_reply_that_is_lost_harms_nobody() {
    on_small_store(async |node| {
        let (counter, other) = (node.entity::<Counter>("it"), node.entity::<Counter>("other"));
        for round in 0..5 {
            let blocked = BlockedWriter::new(node).await;
            let flood = Do::new(|_, cx| flood(cx));
            let flood = begin(counter.call(flood).within(SOON)).await;
            let lost = begin(counter.arm().within(SOON)).await;
            drop(blocked);
            flood.await.unwrap().unwrap_err();
            match lost.await.unwrap() {
                Err(EntityError::NotCommitted(CommitError::Lost(_))) => {}
                // The turn ran behind the loss. Nobody unwraps the bomb.
                lost => {
                    assert!(lost.is_ok(), "{lost:?}");
                    std::mem::forget(lost);
                }
            }
            assert_eq!(other.add(1).within(SOON).await.unwrap(), round + 1);
        }
    });
}

#[test]
fn a_reply_that_waits_for_the_disk_closes_no_ring() {
    on_node(async |node| {
        let (alice, bob) = (node.entity::<Counter>("alice"), node.entity::<Counter>("bob"));
        // Both are active: neither loads while the writer is blocked.
        alice.add(1).await.unwrap();
        bob.add(1).await.unwrap();
        let blocked = BlockedWriter::new(node).await;
        let submitted = node.store().submitted_through();
        let of_alice = begin(alice.add_from("bob").within(SOON)).await;
        until(async || node.store().submitted_through() != submitted).await;
        // The turn of bob is over, and the gate holds its reply, for which alice waits. Now bob
        // waits for alice.
        let of_bob = begin(bob.add_from("alice").within(SOON)).await;
        // Time for several searches for a ring.
        tokio::time::sleep(Duration::from_millis(200)).await;
        drop(blocked);
        assert_eq!(of_alice.await.unwrap().unwrap().unwrap(), 3);
        assert_eq!(of_bob.await.unwrap().unwrap().unwrap(), 6);
    });
}

#[test]
fn replies_leave_when_the_node_is_shut_down_or_dropped_meanwhile() {
    let directory = tempfile::tempdir().unwrap();
    let runtime = runtime();
    bounded(&runtime, async {
        let mut count = 0;
        for is_dropped in [false, true] {
            for is_killed in [false, true] {
                let node = reopen(Node::options(directory.path()), &runtime).await;
                let counter = node.entity::<Counter>("it");
                let gate = process_of_the_gate(&runtime).await;
                let blocked = BlockedWriter::new(&node).await;
                let mut adds = Vec::new();
                for _ in 0..10 {
                    adds.push(begin(counter.add(1).within(SOON)).await);
                }
                if is_killed {
                    gate.kill();
                }
                let (tell, mut told) = unbounded_channel();
                let entity = counter.clone();
                // The action has the last handle of the node, unless the node is shut down.
                let act = Do::new(move |counter, cx| {
                    counter.count += 1;
                    cx.after_commit(move || {
                        drop(entity);
                        tell.send(()).unwrap();
                    });
                });
                counter.send(act).unwrap();
                let shutdown = if is_dropped {
                    drop((node, counter));
                    None
                } else {
                    drop(counter);
                    Some(tokio::spawn(async move { node.shutdown().await }))
                };
                drop(blocked);
                for add in adds {
                    count += 1;
                    assert_eq!(add.await.unwrap().unwrap(), count);
                }
                told.recv().await.unwrap();
                count += 1;
                if let Some(shutdown) = shutdown {
                    shutdown.await.unwrap();
                }
            }
        }
        let node = reopen(Node::options(directory.path()), &runtime).await;
        assert_eq!(node.entity::<Counter>("it").get().await.unwrap(), count);
        node.shutdown().await;
    });
}

/// A counter whose turns run in tasks of tokio's when tasks call it.
#[derive(Durable, Default, Serialize, Deserialize)]
#[durable(kind = "light")]
struct Light {
    count: u64,
}

#[process(never_blocks)]
impl Light {
    /// Adds 1, sends the name of the thread, and sends that of its action's.
    #[message]
    fn add(&mut self, names: UnboundedSender<String>, cx: &mut Context<Self>) -> u64 {
        let tell = move || names.send(thread::current().name().unwrap_or_default().to_owned());
        tell().unwrap();
        cx.after_commit(move || tell().unwrap());
        self.count += 1;
        self.count
    }
}

#[test]
fn replies_leave_and_actions_run_though_the_threads_of_tokio_block_after_turns_in_tasks() {
    on_runtime(two_workers().io_threads(2), async |node, runtime| {
        let (names, mut named) = unbounded_channel();
        let (counter, light) = (node.entity::<Counter>("it"), node.entity::<Light>("it"));
        let first = light.clone().add(names.clone()).within(SOON);
        tokio::spawn(first).await.unwrap().unwrap();
        assert!(named.recv().await.is_some() && named.recv().await.is_some());

        let blocked = BlockedWriter::new(node).await;
        let mut add = std::pin::pin!(counter.add(1).within(SOON));
        let begun = node.store().submitted_through();
        assert!(std::future::poll_fn(|cx| Poll::Ready(add.as_mut().poll(cx).is_pending())).await);
        until(async || node.store().submitted_through() > begun).await;
        begin_turn(node, async move { light.add(names).within(SOON).await }).await;
        assert_eq!(named.recv().await.unwrap(), "throng-io", "no task ran the turn");

        let (begun, mut begins) = unbounded_channel();
        let releases = [(); 2].map(|()| {
            let (begun, (release, released)) = (begun.clone(), mpsc::channel::<()>());
            runtime.tokio().spawn(async move {
                begun.send(()).unwrap();
                let _ = released.recv();
            });
            release
        });
        for _ in &releases {
            begins.recv().await.unwrap();
        }
        drop(blocked);
        assert_eq!(add.await.unwrap(), 1);
        let action = named.recv().await.unwrap();
        assert!(action.starts_with("throng-") && action != "throng-io", "{action}");
        drop(releases);
    });
}

#[test]
fn the_process_of_the_gate_hears_of_a_commit_once_whatever_was_held_when_it_was_settled() {
    on_runtime(two_workers().kind_metrics(true), async |node, runtime| {
        let counter = node.entity::<Counter>("it");
        counter.add(1).await.unwrap();
        // Turns that change nothing, whose actions find their submission settled.
        for _ in 0..200 {
            let (tell, mut told) = unbounded_channel();
            let act = Do::new(move |_, cx| cx.after_commit(move || tell.send(()).unwrap()));
            counter.call(act).await.unwrap();
            told.recv().await.unwrap();
        }
        let turns = || {
            let kinds = runtime.metrics().kinds;
            let mut gate = kinds.iter().filter(|kind| kind.process.contains("::gate::Releaser"));
            gate.next().unwrap().turns
        };
        let before = turns();
        for _ in 0..20 {
            counter.add(1).await.unwrap();
        }
        let turns = turns() - before;
        assert!(turns <= 40, "{turns} turns for 20 commits");
    });
}

/// A runtime of tokio's with a single thread, as an application may have it.
fn current_thread() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap()
}

#[test]
fn replies_leave_when_the_runtime_is_shut_down_meanwhile() {
    let directory = tempfile::tempdir().unwrap();
    let mut count = 0;
    for deadline in [Duration::ZERO, SOON] {
        let runtime = runtime();
        let node = Node::options(directory.path()).open(&runtime).unwrap();
        let counter = node.entity::<Counter>("it");
        let (begun, begins) = mpsc::channel();
        // Blocks on a thread of its own, because the runtime's tokio ends with the runtime.
        let blocked = runtime.block_on(async |_| {
            assert_eq!(counter.get().await.unwrap(), count);
            BlockedWriter::new(&node).await
        });
        let caller = std::thread::spawn({
            let counter = counter.clone();
            move || {
                current_thread().block_on(async {
                    let add = begin(counter.add(1).within(SOON));
                    // Spawned tasks run on this thread, so the call is sent before the next line.
                    let add = tokio::task::LocalSet::new().run_until(add).await;
                    begun.send(()).unwrap();
                    add.await.unwrap()
                })
            }
        });
        begins.recv().unwrap();
        // The turn is over when this one is.
        let (reached, reaches) = mpsc::channel();
        let reach = Do::new(move |_, _| reached.send(()).unwrap());
        counter.send(reach).unwrap();
        reaches.recv().unwrap();
        runtime.shutdown(deadline);
        assert!(!caller.is_finished());
        drop(blocked);
        count += 1;
        assert_eq!(caller.join().unwrap().unwrap(), count, "{deadline:?}");
        drop((counter, node));
    }
    let runtime = runtime();
    bounded(&runtime, async {
        let node = reopen(Node::options(directory.path()), &runtime).await;
        assert_eq!(node.entity::<Counter>("it").get().await.unwrap(), count);
        node.shutdown().await;
    });
}

#[test]
fn callers_on_a_current_thread_tokio_get_their_replies() {
    let directory = tempfile::tempdir().unwrap();
    let runtime = runtime();
    let node = Node::options(directory.path()).open(&runtime).unwrap();
    current_thread().block_on(async {
        let mut adds = Vec::new();
        for _ in 0..50 {
            adds.push(begin(node.entity::<Counter>("it").add(1).within(SOON)).await);
        }
        for (number, add) in adds.into_iter().enumerate() {
            assert_eq!(add.await.unwrap().unwrap(), number as u64 + 1);
        }
    });
    bounded(&runtime, node.shutdown());
    drop((node, runtime));

    // The same thread drives the runtime's timers and the node's tasks.
    current_thread().block_on(async {
        let runtime = Runtime::builder().workers(1).attach().unwrap();
        let node = Node::options(directory.path()).open(&runtime).unwrap();
        for count in 51..60 {
            let add = node.entity::<Counter>("it").add(1).within(SOON);
            assert_eq!(add.await.unwrap(), count);
        }
        node.shutdown().await;
        drop(node);
        runtime.shutdown_async(SOON).await;
    });
}

#[test]
fn a_caller_that_is_killed_leaves_a_turn_that_is_kept() {
    struct Asker(Node);
    #[process]
    impl Asker {
        #[message(name = Ask)]
        async fn question(&mut self) -> u64 {
            self.0.entity::<Counter>("it").add(1).within(SOON).await.unwrap()
        }
    }
    on_runtime(two_workers(), async |node, runtime| {
        let counter = node.entity::<Counter>("it");
        for round in 0..10 {
            let asker = runtime.spawn(Asker(node.clone())).unwrap();
            let blocked = BlockedWriter::new(node).await;
            let before = node.store().submitted_through();
            asker.send_question().unwrap();
            until(async || node.store().submitted_through() != before).await;
            asker.kill();
            until(async || !asker.is_alive()).await;
            let next = begin(counter.add(1).within(SOON)).await;
            drop(blocked);
            assert_eq!(next.await.unwrap().unwrap(), 2 * (round + 1));
        }
    });
}

#[test]
fn replies_leave_without_the_gates_process() {
    on_runtime(two_workers(), async |node, runtime| {
        let counter = node.entity::<Counter>("it");
        assert_eq!(counter.add(1).await.unwrap(), 1);
        let gate = process_of_the_gate(runtime).await;
        let blocked = BlockedWriter::new(node).await;
        let held = begin(counter.add(1).within(SOON)).await;
        gate.kill();
        drop(blocked);
        assert_eq!(held.await.unwrap().unwrap(), 2);
        for count in 3..50 {
            assert_eq!(counter.add(1).within(SOON).await.unwrap(), count);
        }
    });
}

/// The message that tells the gate's process of a commit is dropped with the process.
#[test]
fn replies_leave_although_the_gates_process_is_killed_before_it_hears_of_the_commit() {
    struct Worker;
    impl Process for Worker {}
    /// Occupies the only worker.
    struct Occupy(UnboundedSender<()>, mpsc::Receiver<()>, Pid);
    impl Message for Occupy {
        type Reply = ();
    }
    impl Handle<Occupy> for Worker {
        async fn handle(&mut self, occupy: Occupy, _: &mut Context<Self>) {
            let Occupy(begun, go_on, gate) = occupy;
            begun.send(()).unwrap();
            go_on.recv().unwrap();
            gate.kill();
        }
    }
    on_runtime(Runtime::builder().workers(1).spare_workers(0), async |node, runtime| {
        let counter = node.entity::<Counter>("it");
        assert_eq!(counter.add(1).await.unwrap(), 1);
        let gate = process_of_the_gate(runtime).await;
        let blocked = BlockedWriter::new(node).await;
        let held = begin(counter.add(1).within(SOON)).await;
        counter.get().within(Duration::from_millis(1)).await.unwrap_err();
        let worker = runtime.spawn(Worker).unwrap();
        let (begun, mut begins) = unbounded_channel();
        let (go_on, goes_on) = mpsc::channel();
        worker.send(Occupy(begun, goes_on, gate)).unwrap();
        begins.recv().await.unwrap();
        let settled = node.store().settled(node.store().submitted_through());
        // The gate waits longer, so it is woken first.
        let settled = tokio::spawn(settled);
        tokio::task::yield_now().await;
        drop(blocked);
        settled.await.unwrap().unwrap();
        go_on.send(()).unwrap();
        assert_eq!(held.await.unwrap().unwrap(), 2);
        assert_eq!(counter.add(1).within(SOON).await.unwrap(), 3);
    });
}

#[test]
fn replies_leave_if_there_was_no_room_for_the_gates_process() {
    struct Peer;
    impl Process for Peer {}
    let directory = tempfile::tempdir().unwrap();
    let runtime = Runtime::builder().workers(1).process_limit(1).start().unwrap();
    let peer = runtime.spawn(Peer).unwrap();
    let node = Node::options(directory.path()).open(&runtime).unwrap();
    bounded(&runtime, async {
        let counter = node.entity::<Counter>("it");
        let refused = counter.add(1).await;
        assert!(matches!(refused, Err(EntityError::NoRoom { limit: 1 })), "{refused:?}");
        peer.kill();
        let (tell, mut told) = unbounded_channel();
        let act = || {
            let tell = tell.clone();
            Do::new(move |counter, cx| {
                counter.count += 1;
                cx.after_commit(move || tell.send(()).unwrap());
            })
        };
        while let Err(error) = counter.call(act()).within(SOON).await {
            assert!(matches!(error, EntityError::NoRoom { .. }), "{error}");
            tokio::task::yield_now().await;
        }
        told.recv().await.unwrap();
        let mut calls = Vec::new();
        for _ in 0..20 {
            calls.push(begin(counter.call(act()).within(SOON)).await);
        }
        for (number, call) in calls.into_iter().enumerate() {
            assert_eq!(call.await.unwrap().unwrap(), number as u64 + 2);
            told.recv().await.unwrap();
        }
        for count in 22..=100u8 {
            assert_eq!(counter.add(1).await.unwrap(), u64::from(count));
            assert_eq!(state_record(&node, "counter", "it").unwrap(), [1, count]);
        }
        assert_eq!(runtime.process_count(), 1);
        node.shutdown().await;
    });
}

/// Leaves an action behind in each hook.
#[derive(Durable, Default, Serialize, Deserialize)]
#[durable(kind = "hooks")]
struct Hooks {
    hooks: u64,
    #[serde(skip)]
    will_act: bool,
}

static ACTED: std::sync::Mutex<Option<UnboundedSender<(String, &'static str)>>> =
    std::sync::Mutex::new(None);

impl Hooks {
    fn act(&mut self, hook: &'static str, cx: &mut Context<Self>) {
        self.hooks += 1;
        let key = cx.key().to_owned();
        cx.after_commit(move || {
            if let Some(acted) = &*ACTED.lock().unwrap() {
                let _ = acted.send((key, hook));
            }
        });
    }
}

#[process]
impl Hooks {
    #[hook]
    fn started(&mut self, cx: &mut Context<Self>) {
        self.act("started", cx);
    }
    #[hook]
    fn down(&mut self, cx: &mut Context<Self>) {
        self.act("down", cx);
    }
    #[hook]
    fn timeout(&mut self, cx: &mut Context<Self>) {
        self.act("timeout", cx);
    }
    #[hook]
    fn stopping(&mut self, cx: &mut Context<Self>) {
        if self.will_act {
            let bomb = Bomb;
            cx.after_commit(move || drop(bomb));
            self.act("stopping", cx);
        }
    }
    #[message]
    fn run(&mut self, turn: fn(&mut Hooks, &mut Context<Hooks>), cx: &mut Context<Self>) -> u64 {
        turn(self, cx);
        self.hooks
    }
}

async fn next_action(
    actions: &mut UnboundedReceiver<(String, &'static str)>,
) -> (String, &'static str) {
    match tokio::time::timeout(SOON, actions.recv()).await {
        Ok(action) => action.unwrap(),
        Err(_) => panic!("an action is missing"),
    }
}

#[test]
fn the_actions_of_hooks_run_no_matter_how_the_next_turn_ends() {
    let (tell, mut told) = unbounded_channel();
    *ACTED.lock().unwrap() = Some(tell);
    on_node(async |node| {
        let acted = |key: &str, hook| (key.to_owned(), hook);
        let calm = node.entity::<Hooks>("calm");
        assert_eq!(calm.run(|_, _| {}).await.unwrap(), 1);
        assert_eq!(next_action(&mut told).await, acted("calm", "started"));
        calm.run(|_, cx| cx.receive_timeout(Duration::ZERO)).await.unwrap();
        assert_eq!(next_action(&mut told).await, acted("calm", "timeout"));
        calm.run(|_, cx| {
            struct Brief;
            impl Process for Brief {}
            let brief = cx.runtime().spawn(Brief).unwrap();
            cx.monitor(brief);
            brief.kill();
        })
        .await
        .unwrap();
        assert_eq!(next_action(&mut told).await, acted("calm", "down"));
        assert_eq!(calm.run(|_, _| {}).await.unwrap(), 3);
        calm.run(|hooks, cx| {
            hooks.will_act = true;
            cx.stop(ExitReason::Normal);
        })
        .await
        .unwrap();

        // The changes of `started` are kept, although those of the next turn are not.
        let wild = node.entity::<Hooks>("wild");
        let panicked = wild.run(|_, _| panic!("on purpose")).await;
        assert!(matches!(panicked, Err(EntityError::Panicked(_))), "{panicked:?}");
        assert_eq!(next_action(&mut told).await, acted("wild", "started"));
        assert_eq!(wild.run(|_, _| {}).await.unwrap(), 2);
        assert_eq!(next_action(&mut told).await, acted("wild", "started"));

        until(async || node.live() <= 1).await;
        assert!(told.try_recv().is_err(), "`stopping` is not committed");
    });
    *ACTED.lock().unwrap() = None;
}
