//! Handlers that block their thread delay their own process, not the node.

use crate::{Actor, Add, Await, Counter, Do, Held, Hold, PATIENCE, hold, in_turn, scaled, until};
use std::fmt::Debug;
use std::sync::{Mutex, mpsc};
use std::time::{Duration, Instant};
use throng::prelude::*;
use throng::{MailboxBound, Overflow, Spawner};
use tracing::field::{Field, Visit};
use tracing_subscriber::filter::LevelFilter;
use tracing_subscriber::layer::{Context as Of, SubscriberExt};

/// Collects the events about processes of a type.
struct Reports;

static REPORTED: Mutex<Vec<String>> = Mutex::new(Vec::new());

impl<S: tracing::Subscriber> tracing_subscriber::Layer<S> for Reports {
    fn on_event(&self, event: &tracing::Event<'_>, _: Of<'_, S>) {
        struct Text(String);
        impl Visit for Text {
            fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
                self.0 += &format!("{field}={value:?} ");
            }
        }
        let mut text = Text(String::new());
        event.record(&mut text);
        if text.0.contains("Reported") {
            REPORTED.lock().unwrap().push(text.0);
        }
    }
}

#[test]
fn a_turn_that_blocks_is_reported_once_by_name_and_again_when_it_is_over() {
    struct Reported;
    #[process]
    impl Reported {
        #[message(send)]
        fn block(&mut self, hold: Hold) {
            hold.wait();
        }
    }
    let reports = tracing_subscriber::registry().with(LevelFilter::WARN).with(Reports);
    tracing::subscriber::set_global_default(reports).unwrap();
    let runtime = Runtime::builder().workers(1).start().unwrap();
    let (hold, held) = hold();
    runtime.spawn(Reported).unwrap().block(hold).unwrap();
    held.has_begun();
    let wait_for = |count| until(|| REPORTED.lock().unwrap().len() >= count);
    wait_for(1);
    // The watchdog checks the turn many times more before it is over.
    std::thread::sleep(Duration::from_millis(50));
    held.let_go();
    wait_for(2);
    let reported = REPORTED.lock().unwrap().clone();
    assert_eq!(reported.len(), 2, "{reported:?}");
    assert!(reported[0].contains("a turn blocks its worker"), "{}", reported[0]);
    assert!(reported[1].contains("that blocked its worker is over"), "{}", reported[1]);
    for report in reported {
        assert!(report.contains("Reported\"") && report.contains("Block\""), "{report}");
    }
}

/// Spawns a process that blocks its thread from the return of this function until it is let go.
fn block(spawner: Spawner<'_>) -> (Address<Actor>, Held) {
    let blocker = spawner.spawn(Actor).unwrap();
    (blocker, block_again(blocker))
}

fn block_again(blocker: Address<Actor>) -> Held {
    let (hold, held) = hold();
    blocker.send(Await(async { hold.wait() })).unwrap();
    held.has_begun();
    held
}

async fn count(counter: Address<Counter>) -> u64 {
    counter.call(Add(1)).within(PATIENCE).await.unwrap()
}

#[test]
fn other_processes_run_while_the_only_worker_is_blocked() {
    let runtime = Runtime::builder().workers(1).start().unwrap();
    let counter = runtime.spawn(Counter::default()).unwrap();
    for round in 1..=3 {
        let (blocker, held) = block(runtime.spawner());
        for call in 1..=scaled(1_000) {
            let counted = runtime.block_on(async |_| count(counter).await);
            assert_eq!(counted, (round - 1) * scaled(1_000) + call);
        }
        held.let_go();
        // The formerly blocked process handles its next message.
        block_again(blocker).let_go();
    }
}

#[test]
fn a_bounded_process_that_blocks_is_noticed_like_any_other() {
    let runtime = Runtime::builder().workers(1).start().unwrap();
    let bound = MailboxBound::new(1, Overflow::Reject);
    let (_, held) = block(runtime.spawner().mailbox(bound));
    let counter = runtime.spawn(Counter::default()).unwrap();
    assert_eq!(runtime.block_on(async |_| count(counter).await), 1);
    held.let_go();
}

#[test]
fn as_many_may_block_as_there_are_spare_workers() {
    let runtime = Runtime::builder().workers(1).spare_workers(4).start().unwrap();
    let blockers: Vec<_> = (0..4).map(|_| block(runtime.spawner())).collect();
    let counter = runtime.spawn(Counter::default()).unwrap();
    assert_eq!(runtime.block_on(async |_| count(counter).await), 1);
    for (blocker, held) in blockers {
        held.let_go();
        blocker.stop();
    }
    until(|| runtime.process_count() <= 1);
}

#[test]
fn queued_processes_and_the_process_woken_last_run_beside_a_blocked_worker() {
    let runtime = Runtime::builder().workers(1).start().unwrap();
    for count in [1, 2, 40] {
        let others: Vec<_> = (0..count).map(|_| runtime.spawn(Actor).unwrap()).collect();
        // Sends to the others, then blocks until they have answered.
        let wake = async move {
            let (sender, receiver) = mpsc::channel();
            for other in &others {
                let sender = sender.clone();
                other.send(Await(async move { sender.send(()).unwrap() })).unwrap();
            }
            others.iter().filter(|_| receiver.recv_timeout(PATIENCE).is_ok()).count()
        };
        assert_eq!(runtime.block_on(async |runtime| in_turn(runtime, wake).await), count);
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
    let counter = runtime.spawn(Counter::default()).unwrap();
    sleeper.sleep().unwrap();
    // Queued in the injector behind the message above.
    let (_, held) = block(runtime.spawner());
    drop(runtime.send_after(counter, Duration::from_millis(1), Add(5)));
    assert_eq!(receiver.recv_timeout(PATIENCE), Ok("sent"));
    assert_eq!(receiver.recv_timeout(PATIENCE), Ok("timed out"));
    until(|| runtime.block_on(async |_| counter.call(Add(0)).within(PATIENCE).await).unwrap() == 5);
    held.let_go();
}

#[test]
fn without_spare_workers_a_blocked_worker_continues_when_it_can() {
    let runtime = Runtime::builder()
        .workers(1)
        .spare_workers(0)
        .stuck_after(Duration::from_millis(1))
        .start()
        .unwrap();
    let counter = runtime.spawn(Counter::default()).unwrap();
    let (_, held) = block(runtime.spawner());
    let call = runtime.tokio().spawn(counter.call(Add(1)).within(PATIENCE));
    held.let_go();
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
    let counter = runtime.spawn(Counter::default()).unwrap();
    for call in 1..=scaled(1_000).min(50) {
        assert_eq!(runtime.block_on(async |_| count(counter).await), call);
    }
    endless.stop();
    until(|| !endless.is_alive());
}

/// Blocks the thread that drops it.
struct BlocksInDrop(Option<Hold>);
impl Drop for BlocksInDrop {
    fn drop(&mut self) {
        self.0.take().into_iter().for_each(Hold::wait);
    }
}

/// Holds a [`BlocksInDrop`] in its state, or in a suspended turn.
#[derive(Default)]
struct Holder(#[expect(dead_code, reason = "held to be dropped")] Option<BlocksInDrop>);
#[process]
impl Holder {
    /// Keeps the value in a turn that is suspended for ever.
    #[message]
    async fn keep(&mut self, _kept: BlocksInDrop) {
        std::future::pending().await
    }
    #[message]
    fn drop_at_once(&mut self, _: mpsc::Sender<()>) {}
}

/// A way in which a worker drops user code outside of every turn, as part of a process.
type Drops = fn(&RuntimeHandle, BlocksInDrop);

const DROPS: [(&str, Drops); 7] = [
    ("a state, by a stop", |runtime, blocks| assert!(holder(runtime, Some(blocks)).stop())),
    ("a state, by a kill", |runtime, blocks| holder(runtime, Some(blocks)).kill()),
    ("a state, by an exit signal", |runtime, blocks| {
        holder(runtime, Some(blocks)).exit(ExitReason::other("it is over"));
    }),
    ("a state, by a link", |runtime, blocks| {
        let peer = holder(runtime, None);
        let link = Do(move |_: &mut Holder, cx: &mut Context<Holder>| {
            cx.link(peer);
            peer.exit(ExitReason::other("it is over"));
        });
        holder(runtime, Some(blocks)).send(link).unwrap();
    }),
    ("a suspended turn", |runtime, blocks| {
        let holder = holder(runtime, None);
        holder.send_keep(blocks).unwrap();
        holder.kill();
    }),
    ("a queued message", |runtime, blocks| {
        let holder = holder(runtime, None);
        holder.send_keep(BlocksInDrop(None)).unwrap();
        holder.send_keep(blocks).unwrap();
        holder.kill();
    }),
    ("the message of a timer", |runtime, blocks| {
        let holder = holder(runtime, None);
        drop(runtime.send_after(holder, Duration::from_secs(3600), Keep { _kept: blocks }));
        holder.kill();
    }),
];

fn holder(runtime: &RuntimeHandle, blocks: Option<BlocksInDrop>) -> Address<Holder> {
    runtime.spawn(Holder(blocks)).unwrap()
}

#[test]
fn other_processes_run_while_a_drop_blocks_the_only_worker() {
    for (name, drops) in DROPS {
        let runtime = Runtime::builder().workers(1).start().unwrap();
        let stuck =
            || runtime.metrics().workers.iter().map(|worker| worker.stuck_turns).sum::<u64>();
        runtime.block_on(async |runtime| {
            let counter = runtime.spawn(Counter::default()).unwrap();
            let (hold, held) = hold();
            drops(runtime, BlocksInDrop(Some(hold)));
            held.0.recv_timeout(PATIENCE).unwrap_or_else(|_| panic!("{name}: not dropped"));
            let answer = counter.call(Add(1)).within(Duration::from_secs(30)).await;
            assert_eq!(answer.ok(), Some(1), "{name}: the worker blocks all other processes");
            // A deadline inside a process is an alarm in the wheel of the blocked worker.
            let mute = runtime.spawn(Actor).unwrap();
            let never = mute.call(Await(std::future::pending::<()>()));
            let late = in_turn(runtime, never.within(Duration::from_millis(5)).into_future()).await;
            mute.kill();
            assert!(matches!(late, Err(CallError::TimedOut { .. })), "{name}: no alarm fires");
            assert!(stuck() > 0, "{name}: not counted as blocked");
            held.let_go();
        });
        assert_eq!(runtime.shutdown(PATIENCE).abandoned, 0, "{name}");
    }
}

#[test]
fn a_timer_that_fires_while_its_process_is_dropped_drops_its_message_soon_after() {
    let runtime = Runtime::builder().workers(1).spare_workers(0).start().unwrap();
    let (hold, held) = hold();
    let (sender, dropped) = mpsc::channel();
    let holder = runtime.spawn(Holder(Some(BlocksInDrop(Some(hold))))).unwrap();
    let time = Duration::from_millis(30);
    drop(runtime.send_after(holder, time, DropAtOnce { _0: sender }));
    let set = Instant::now();
    holder.kill();
    held.has_begun();
    // Meanwhile the clock thread fires the alarm for the worker, and finds the process gone.
    until(|| set.elapsed() >= 3 * time);
    held.let_go();
    // The message is dropped before the end of the runtime.
    assert_eq!(dropped.recv_timeout(PATIENCE), Err(mpsc::RecvTimeoutError::Disconnected));
}
