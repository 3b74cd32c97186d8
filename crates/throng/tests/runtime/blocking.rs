//! Handlers that block their thread delay their own process, not the node.

use crate::{Add, Counter, scaled, until};
use std::fmt::Debug;
use std::sync::{Mutex, mpsc};
use std::time::{Duration, Instant};
use throng::prelude::*;
use throng::{MailboxBound, Overflow};

const PATIENCE: Duration = Duration::from_secs(120);

/// Collects the events about processes of a type.
struct Reports;

static REPORTED: Mutex<Vec<String>> = Mutex::new(Vec::new());

impl tracing::Subscriber for Reports {
    fn enabled(&self, metadata: &tracing::Metadata<'_>) -> bool {
        *metadata.level() <= tracing::Level::WARN
    }

    fn new_span(&self, _: &tracing::span::Attributes<'_>) -> tracing::span::Id {
        tracing::span::Id::from_u64(1)
    }

    fn record(&self, _: &tracing::span::Id, _: &tracing::span::Record<'_>) {}

    fn record_follows_from(&self, _: &tracing::span::Id, _: &tracing::span::Id) {}

    fn event(&self, event: &tracing::Event<'_>) {
        struct Text(String);
        impl tracing::field::Visit for Text {
            fn record_debug(&mut self, field: &tracing::field::Field, value: &dyn Debug) {
                self.0 += &format!("{field}={value:?} ");
            }
        }
        let mut text = Text(String::new());
        event.record(&mut text);
        if text.0.contains("Reported") {
            REPORTED.lock().unwrap().push(text.0);
        }
    }

    fn enter(&self, _: &tracing::span::Id) {}

    fn exit(&self, _: &tracing::span::Id) {}
}

#[test]
fn a_turn_that_blocks_is_reported_once_by_name_and_again_when_it_is_over() {
    struct Reported;
    impl Process for Reported {}
    impl Handle<Block> for Reported {
        async fn handle(&mut self, block: Block, _: &mut Context<Self>) {
            block.begun.send(()).unwrap();
            block.until.recv_timeout(PATIENCE).unwrap();
        }
    }
    tracing::subscriber::set_global_default(Reports).unwrap();
    let runtime = Runtime::builder().workers(1).start().unwrap();
    let (begun, has_begun) = mpsc::channel();
    let (let_go, until) = mpsc::channel();
    runtime.spawn(Reported).unwrap().send(Block { begun, until }).unwrap();
    has_begun.recv_timeout(PATIENCE).unwrap();
    let wait_for = |count| {
        let begun = Instant::now();
        while REPORTED.lock().unwrap().len() < count {
            assert!(begun.elapsed() < PATIENCE, "no event reports the turn");
            std::thread::sleep(Duration::from_millis(1));
        }
    };
    wait_for(1);
    // The watchdog checks the turn many times more before it is over.
    std::thread::sleep(Duration::from_millis(50));
    let_go.send(()).unwrap();
    wait_for(2);
    let reported = REPORTED.lock().unwrap().clone();
    assert_eq!(reported.len(), 2, "{reported:?}");
    assert!(reported[0].contains("a turn blocks its worker"), "{}", reported[0]);
    assert!(reported[1].contains("that blocked its worker is over"), "{}", reported[1]);
    for report in reported {
        assert!(report.contains("Reported\"") && report.contains("Block\""), "{report}");
    }
}

/// Blocks its thread until its receiver gets a message.
struct Blocker;
impl Process for Blocker {}

struct Block {
    begun: mpsc::Sender<()>,
    until: mpsc::Receiver<()>,
}
impl Message for Block {
    type Reply = ();
}
impl Handle<Block> for Blocker {
    async fn handle(&mut self, block: Block, _: &mut Context<Self>) {
        block.begun.send(()).unwrap();
        block.until.recv_timeout(PATIENCE).unwrap();
    }
}

/// Spawns a process that blocks its thread, from the return of this function until the returned
/// sender sends.
fn block(runtime: &RuntimeHandle) -> (Address<Blocker>, mpsc::Sender<()>) {
    let (begun, has_begun) = mpsc::channel();
    let (let_go, until) = mpsc::channel();
    let blocker = runtime.spawn(Blocker).unwrap();
    blocker.send(Block { begun, until }).unwrap();
    has_begun.recv_timeout(PATIENCE).unwrap();
    (blocker, let_go)
}

async fn count(counter: Address<Counter>) -> u64 {
    counter.call(Add(1)).within(PATIENCE).await.unwrap()
}

#[test]
fn other_processes_run_while_the_only_worker_is_blocked() {
    let runtime = Runtime::builder().workers(1).start().unwrap();
    let counter = runtime.spawn(Counter { count: 0 }).unwrap();
    for round in 1..=3 {
        let (blocker, let_go) = block(&runtime);
        for call in 1..=scaled(1_000) {
            let counted = runtime.block_on(async |_| count(counter).await);
            assert_eq!(counted, (round - 1) * scaled(1_000) + call);
        }
        let_go.send(()).unwrap();
        // The formerly blocked process handles its next message.
        let (begun, has_begun) = mpsc::channel();
        let (let_go, until) = mpsc::channel();
        blocker.send(Block { begun, until }).unwrap();
        has_begun.recv_timeout(PATIENCE).unwrap();
        let_go.send(()).unwrap();
    }
}

#[test]
fn a_bounded_process_that_blocks_is_noticed_like_any_other() {
    let runtime = Runtime::builder().workers(1).start().unwrap();
    let bound = MailboxBound::new(1, Overflow::Reject);
    let blocker = runtime.spawner().mailbox(bound).spawn(Blocker).unwrap();
    let (begun, has_begun) = mpsc::channel();
    let (let_go, until) = mpsc::channel();
    blocker.send(Block { begun, until }).unwrap();
    has_begun.recv_timeout(PATIENCE).unwrap();
    let counter = runtime.spawn(Counter { count: 0 }).unwrap();
    assert_eq!(runtime.block_on(async |_| count(counter).await), 1);
    let_go.send(()).unwrap();
}

#[test]
fn as_many_may_block_as_there_are_spare_workers() {
    let runtime = Runtime::builder().workers(1).spare_workers(4).start().unwrap();
    let blockers: Vec<_> = (0..4).map(|_| block(&runtime)).collect();
    let counter = runtime.spawn(Counter { count: 0 }).unwrap();
    assert_eq!(runtime.block_on(async |_| count(counter).await), 1);
    for (_, let_go) in &blockers {
        let_go.send(()).unwrap();
    }
    for (blocker, _) in blockers {
        blocker.stop();
    }
    until(|| runtime.process_count() <= 1);
}

#[test]
fn queued_processes_and_the_process_woken_last_run_beside_a_blocked_worker() {
    /// Sends to other processes, then blocks until they have answered.
    struct Waker {
        others: Vec<Address<Echo>>,
    }
    #[process]
    impl Waker {
        #[message]
        fn wake(&mut self) -> usize {
            let (sender, receiver) = mpsc::channel();
            for &other in &self.others {
                other.answer(sender.clone()).unwrap();
            }
            self.others.iter().filter(|_| receiver.recv_timeout(PATIENCE).is_ok()).count()
        }
    }
    struct Echo;
    #[process]
    impl Echo {
        #[message(send)]
        fn answer(&mut self, to: mpsc::Sender<()>) {
            to.send(()).unwrap();
        }
    }
    let runtime = Runtime::builder().workers(1).start().unwrap();
    for others in [1, 2, 40] {
        let others = (0..others).map(|_| runtime.spawn(Echo).unwrap()).collect::<Vec<_>>();
        let waker = runtime.spawn(Waker { others: others.clone() }).unwrap();
        let answered = runtime.block_on(async |_| waker.wake().within(PATIENCE).await);
        assert_eq!(answered.unwrap(), others.len());
    }
}

#[test]
fn timers_fire_while_their_worker_is_blocked() {
    struct Sleeper(mpsc::Sender<&'static str>);
    #[process]
    impl Sleeper {
        #[hook]
        fn timeout(&mut self) {
            self.0.send("timed out").unwrap();
        }

        #[message(send)]
        fn sleep(&mut self, cx: &mut Context<Self>) {
            cx.receive_timeout(Duration::from_millis(100));
            drop(cx.send_after(Duration::from_millis(50), Say { text: "sent" }));
        }
        #[message]
        fn say(&mut self, text: &'static str, cx: &mut Context<Self>) {
            self.0.send(text).unwrap();
            cx.receive_timeout(Duration::from_millis(5));
        }
    }
    let runtime = Runtime::builder().workers(1).start().unwrap();
    let (sender, receiver) = mpsc::channel();
    let sleeper = runtime.spawn(Sleeper(sender)).unwrap();
    let counter = runtime.spawn(Counter { count: 0 }).unwrap();
    sleeper.sleep().unwrap();
    // Queued in the injector behind the message above.
    let (_, let_go) = block(&runtime);
    drop(runtime.send_after(counter, Duration::from_millis(1), Add(5)));
    assert_eq!(receiver.recv_timeout(PATIENCE), Ok("sent"));
    assert_eq!(receiver.recv_timeout(PATIENCE), Ok("timed out"));
    let begun = Instant::now();
    while runtime.block_on(async |_| counter.call(Add(0)).within(PATIENCE).await).unwrap() != 5 {
        assert!(begun.elapsed() < PATIENCE, "the timer never fired");
    }
    let_go.send(()).unwrap();
}

#[test]
fn without_spare_workers_a_blocked_worker_continues_when_it_can() {
    let runtime = Runtime::builder()
        .workers(1)
        .spare_workers(0)
        .stuck_after(Duration::from_millis(1))
        .start()
        .unwrap();
    let counter = runtime.spawn(Counter { count: 0 }).unwrap();
    let (_, let_go) = block(&runtime);
    let call = runtime.tokio().spawn(counter.call(Add(1)).within(PATIENCE));
    let_go.send(()).unwrap();
    assert_eq!(runtime.block_on(async |_| call.await.unwrap()).unwrap(), 1);
}

#[test]
fn a_process_that_is_never_done_shares_its_worker() {
    /// Sends itself a message for each it handles, and works for a while.
    struct Endless;
    #[process]
    impl Endless {
        #[message(send)]
        fn more(&mut self, cx: &mut Context<Self>) {
            let begun = Instant::now();
            while begun.elapsed() < Duration::from_micros(500) {
                std::hint::spin_loop();
            }
            cx.address().more().unwrap();
        }
    }
    let runtime = Runtime::builder().workers(1).spare_workers(0).start().unwrap();
    let endless = runtime.spawn(Endless).unwrap();
    endless.more().unwrap();
    let counter = runtime.spawn(Counter { count: 0 }).unwrap();
    for call in 1..=scaled(1_000).min(50) {
        assert_eq!(runtime.block_on(async |_| count(counter).await), call);
    }
    endless.stop();
    until(|| !endless.is_alive());
}

/// Blocks the thread that drops it, until its receiver gets a message.
struct BlocksInDrop {
    begun: mpsc::Sender<()>,
    until: mpsc::Receiver<()>,
}
impl Drop for BlocksInDrop {
    fn drop(&mut self) {
        let _ = self.begun.send(());
        let _ = self.until.recv_timeout(PATIENCE);
    }
}

/// Holds a [`BlocksInDrop`] in its state, or in a suspended turn.
#[derive(Default)]
struct Holder(#[expect(dead_code, reason = "held to be dropped")] Option<BlocksInDrop>);
#[process]
impl Holder {
    #[message]
    fn link_to(&mut self, pid: throng::Pid, cx: &mut Context<Self>) {
        cx.link(pid);
    }
}
/// A turn holds the message, and is suspended for ever.
impl Message for BlocksInDrop {
    type Reply = ();
}
impl Handle<BlocksInDrop> for Holder {
    async fn handle(&mut self, held: BlocksInDrop, _: &mut Context<Self>) {
        std::future::pending::<()>().await;
        drop(held);
    }
}

/// Ways in which a worker drops user code outside of every turn.
#[derive(Clone, Copy, Debug)]
enum Dropped {
    StateByStop,
    StateByKill,
    StateByExit,
    StateByLink,
    SuspendedTurn,
    QueuedMessage,
    TimersMessage,
}

/// Has a worker drop `blocks`, as part of a process.
async fn have_it_dropped(runtime: &RuntimeHandle, how: Dropped, blocks: BlocksInDrop) {
    let in_state = |blocks| runtime.spawn(Holder(Some(blocks))).unwrap();
    match how {
        Dropped::StateByStop => drop(in_state(blocks).stop()),
        Dropped::StateByKill => in_state(blocks).kill(),
        Dropped::StateByExit => in_state(blocks).exit(ExitReason::other("it is over")),
        Dropped::StateByLink => {
            let (holder, peer) = (in_state(blocks), runtime.spawn(Holder(None)).unwrap());
            holder.link_to(peer.pid()).await.unwrap();
            peer.exit(ExitReason::other("it is over"));
        }
        Dropped::SuspendedTurn => {
            let holder = runtime.spawn(Holder(None)).unwrap();
            holder.send(blocks).unwrap();
            holder.kill();
        }
        Dropped::QueuedMessage => {
            let (begun, _) = mpsc::channel();
            let (_, until) = mpsc::channel();
            let holder = runtime.spawn(Holder(None)).unwrap();
            holder.send(BlocksInDrop { begun, until }).unwrap();
            holder.send(blocks).unwrap();
            holder.kill();
        }
        Dropped::TimersMessage => {
            let holder = runtime.spawn(Holder(None)).unwrap();
            drop(runtime.send_after(holder, Duration::from_secs(3600), blocks));
            holder.kill();
        }
    }
}

#[test]
fn other_processes_run_while_a_drop_blocks_the_only_worker() {
    let all = [
        Dropped::StateByStop,
        Dropped::StateByKill,
        Dropped::StateByExit,
        Dropped::StateByLink,
        Dropped::SuspendedTurn,
        Dropped::QueuedMessage,
        Dropped::TimersMessage,
    ];
    for how in all {
        let runtime = Runtime::builder().workers(1).start().unwrap();
        let stuck =
            || runtime.metrics().workers.iter().map(|worker| worker.stuck_turns).sum::<u64>();
        runtime.block_on(async |runtime| {
            let counter = runtime.spawn(Counter { count: 0 }).unwrap();
            let (begun, has_begun) = mpsc::channel();
            let (let_go, until) = mpsc::channel();
            have_it_dropped(runtime, how, BlocksInDrop { begun, until }).await;
            has_begun.recv_timeout(PATIENCE).unwrap_or_else(|_| panic!("{how:?}: not dropped"));
            let answer = counter.call(Add(1)).within(Duration::from_secs(30)).await;
            assert_eq!(answer.ok(), Some(1), "{how:?}: the worker blocks all other processes");
            // A deadline inside a process is an alarm in the wheel of the blocked worker.
            let asks = runtime.spawn(Asks).unwrap();
            let late = asks.ask_mute(Duration::from_millis(5)).within(PATIENCE).await;
            assert!(late.unwrap(), "{how:?}: no alarm fires");
            assert!(stuck() > 0, "{how:?}: not counted as blocked");
            let_go.send(()).unwrap();
        });
        assert_eq!(runtime.shutdown(PATIENCE).abandoned, 0, "{how:?}");
    }
}

/// Calls a process that never answers.
struct Asks;
#[process]
impl Asks {
    #[message]
    async fn ask_mute(&mut self, time: Duration, cx: &mut Context<Self>) -> bool {
        let mute = cx.runtime().spawn(Mute).unwrap();
        let late = mute.never().within(time).await;
        mute.kill();
        matches!(late, Err(CallError::TimedOut { .. }))
    }
}
struct Mute;
#[process]
impl Mute {
    #[message]
    async fn never(&mut self) {
        std::future::pending().await
    }
}

/// Sends a message when it is dropped.
struct Dropping(mpsc::Sender<()>);
impl Drop for Dropping {
    fn drop(&mut self) {
        let _ = self.0.send(());
    }
}
impl Message for Dropping {
    type Reply = ();
}
impl Handle<Dropping> for Holder {
    async fn handle(&mut self, _: Dropping, _: &mut Context<Self>) {}
}

#[test]
fn a_timer_that_fires_while_its_process_is_dropped_drops_its_message_soon_after() {
    let runtime = Runtime::builder().workers(1).spare_workers(0).start().unwrap();
    let (begun, has_begun) = mpsc::channel();
    let (let_go, until) = mpsc::channel();
    let (sender, dropped) = mpsc::channel();
    let holder = runtime.spawn(Holder(Some(BlocksInDrop { begun, until }))).unwrap();
    let time = Duration::from_millis(30);
    drop(runtime.send_after(holder, time, Dropping(sender)));
    let set = Instant::now();
    holder.kill();
    has_begun.recv_timeout(PATIENCE).unwrap();
    // Meanwhile the clock thread fires the alarm for the worker, and finds the process gone.
    crate::until(|| set.elapsed() >= 3 * time);
    let_go.send(()).unwrap();
    dropped.recv_timeout(PATIENCE).expect("the message is dropped before the end of the runtime");
}
