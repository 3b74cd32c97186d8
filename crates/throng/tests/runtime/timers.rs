//! Message timers, intervals and receive timeouts.

use crate::{
    Add, Await, Counter, Do, Fail, PATIENCE, bounded_by, eventually, poll_once, runtime, scaled,
    until,
};
use std::pin::pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};
use throng::Timeout;
use throng::prelude::*;

/// Delay of a timer that never fires during a test.
const NEVER: Duration = Duration::from_secs(3600);

/// Reports its messages and receive timeouts.
struct Reporter(mpsc::Sender<Notice>);

#[derive(PartialEq, Eq, Debug)]
enum Notice {
    Said(u64),
    TimedOut,
}

#[process]
impl Reporter {
    #[hook]
    fn timeout(&mut self) {
        self.0.send(Notice::TimedOut).unwrap();
    }
    #[message(send, derive(Clone))]
    fn say(&mut self, number: u64) {
        self.0.send(Notice::Said(number)).unwrap();
    }
    /// Arms the receive timeout, in a turn that then suspends.
    #[message(send)]
    async fn expect(&mut self, time: Duration, cx: &mut Context<Self>) {
        cx.receive_timeout(time);
        tokio::task::yield_now().await;
    }
    #[message(send)]
    fn both(&mut self, cx: &mut Context<Self>) {
        cx.address().say(1).unwrap();
        cx.receive_timeout(Duration::ZERO);
    }
}

fn reporter(runtime: &RuntimeHandle) -> (Address<Reporter>, mpsc::Receiver<Notice>) {
    let (sender, receiver) = mpsc::channel();
    (runtime.spawn(Reporter(sender)).unwrap(), receiver)
}

/// Counts its drops.
#[derive(Clone)]
struct Counted(Arc<AtomicU64>);
impl Drop for Counted {
    fn drop(&mut self) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}
impl Message for Counted {
    type Reply = ();
}
impl Handle<Counted> for Counter {
    async fn handle(&mut self, _: Counted, _: &mut Context<Self>) {
        self.count += 1;
    }
}

#[test]
fn messages_come_in_the_order_of_their_times_and_never_early() {
    let runtime = runtime();
    let (reporter, notices) = reporter(&runtime);
    let begun = Instant::now();
    // Late enough that all are set before the first is due, also under Miri.
    let unit = if cfg!(miri) { 100 } else { 1 };
    let timers: Vec<_> = [90, 10, 50, 170]
        .map(|delay| {
            runtime.send_after(reporter, Duration::from_millis(delay * unit), Say { number: delay })
        })
        .into();
    for delay in [10, 50, 90, 170] {
        assert_eq!(notices.recv_timeout(PATIENCE), Ok(Notice::Said(delay)));
        assert!(begun.elapsed() >= Duration::from_millis(delay * unit), "too early");
    }
    assert!(timers.iter().all(|timer| !timer.cancel()), "a timer that has fired can be cancelled");
}

#[test]
fn a_cancelled_timer_drops_its_message_at_once_and_sends_nothing() {
    let runtime = runtime();
    let counter = runtime.spawn(Counter::default()).unwrap();
    let dropped = Arc::new(AtomicU64::new(0));
    let count = scaled(10_000);
    let timers: Vec<_> = (0..count)
        .map(|_| runtime.send_after(counter, Duration::from_secs(3600), Counted(dropped.clone())))
        .collect();
    for (index, timer) in (1..).zip(timers) {
        assert!(timer.cancel());
        assert_eq!(dropped.load(Ordering::SeqCst), index);
        assert!(!timer.cancel(), "a timer can be cancelled twice");
    }
}

#[test]
fn a_timer_outlives_its_handle_but_not_its_process_nor_the_runtime() {
    let runtime = runtime();
    let dropped = Arc::new(AtomicU64::new(0));
    let counter = runtime.spawn(Counter::default()).unwrap();
    drop(runtime.send_after(counter, Duration::from_millis(1), Counted(dropped.clone())));
    until(|| dropped.load(Ordering::SeqCst) == 1);
    assert_eq!(runtime.block_on(async |_| counter.call(Add(0)).await).unwrap(), 1);
    // A timer whose process exits before it is due.
    let short = runtime.spawn(Counter::default()).unwrap();
    let timer = runtime.send_after(short, Duration::from_millis(20), Counted(dropped.clone()));
    short.stop();
    until(|| dropped.load(Ordering::SeqCst) == 2);
    assert!(!timer.cancel());
    // A timer that waits when the runtime ends, and another that is set after that.
    let waiting = runtime.send_after(counter, NEVER, Counted(dropped.clone()));
    let handle = runtime.handle().clone();
    runtime.shutdown(PATIENCE);
    assert_eq!(dropped.load(Ordering::SeqCst), 3);
    assert!(!waiting.cancel());
    assert!(!handle.send_after(counter, NEVER, Counted(dropped.clone())).cancel());
    assert_eq!(dropped.load(Ordering::SeqCst), 4);
}

#[test]
fn the_timers_of_a_process_end_with_it() {
    let runtime = runtime();
    for end in 0..4 {
        let dropped = Arc::new(AtomicU64::new(0));
        let bound = throng::MailboxBound::new(3, throng::Overflow::Reject);
        let setter = bounded_by(&runtime, (end == 3).then_some(bound));
        let setter = setter.spawn(Counter::default()).unwrap();
        let own = Counted(dropped.clone());
        let set = Do(move |_: &mut Counter, cx: &mut Context<Counter>| {
            vec![cx.send_after(NEVER, own.clone()), cx.send_every(NEVER, own)]
        });
        let mut timers = runtime.block_on(async |_| setter.call(set).await).unwrap();
        timers.push(runtime.send_after(setter, NEVER, Counted(dropped.clone())));
        timers.push(runtime.send_every(setter, NEVER, Counted(dropped.clone())));
        // A timer of another process, which stays alive.
        let other = runtime.spawn(Counter::default()).unwrap();
        let stays = Counted(Arc::default());
        let others = runtime.send_after(other, NEVER, stays.clone());
        assert_eq!(dropped.load(Ordering::SeqCst), 0);
        match end {
            0 => drop(setter.stop()),
            1 => setter.kill(),
            _ => setter.send(Fail("on purpose")).unwrap(),
        }
        // `exited` resolves only after the messages are dropped.
        let _ = runtime.block_on(async |_| setter.pid().exited().await);
        until(|| dropped.load(Ordering::SeqCst) == 4);
        assert!(
            !timers.iter().any(throng::Timer::cancel),
            "a timer of an exited process can be cancelled"
        );
        assert_eq!(stays.0.load(Ordering::SeqCst), 0);
        assert!(others.cancel());
    }
}

#[test]
fn a_timer_for_a_process_that_has_exited_drops_its_message_at_once() {
    let runtime = runtime();
    let counter = runtime.spawn(Counter::default()).unwrap();
    counter.kill();
    let _ = runtime.block_on(async |_| counter.pid().exited().await);
    let dropped = Arc::new(AtomicU64::new(0));
    let once = runtime.send_after(counter, NEVER, Counted(dropped.clone()));
    let again = runtime.send_every(counter, NEVER, Counted(dropped.clone()));
    assert_eq!(dropped.load(Ordering::SeqCst), 2);
    assert!(!once.cancel() && !again.cancel());
}

#[test]
fn a_message_dropped_with_its_process_may_use_timers_and_panic() {
    /// Sets and cancels timers as it is dropped, and then panics.
    struct Restless(RuntimeHandle, Address<Counter>, Address<Counter>, Arc<AtomicU64>);
    impl Drop for Restless {
        fn drop(&mut self) {
            for to in [self.1, self.2] {
                let timer = self.0.send_after(to, NEVER, Counted(self.3.clone()));
                timer.cancel();
            }
            self.3.fetch_add(1, Ordering::SeqCst);
            panic!("on purpose");
        }
    }
    impl Message for Restless {
        type Reply = ();
    }
    impl Handle<Restless> for Counter {
        async fn handle(&mut self, _: Restless, _: &mut Context<Self>) {}
    }
    let runtime = runtime();
    let dropped = Arc::new(AtomicU64::new(0));
    let lives = runtime.spawn(Counter::default()).unwrap();
    let dies = runtime.spawn(Counter::default()).unwrap();
    let count = scaled(1_000);
    for _ in 0..count {
        let message = Restless(runtime.handle().clone(), dies, lives, dropped.clone());
        drop(runtime.send_after(dies, NEVER, message));
    }
    dies.stop();
    // Each message, and the messages of its two timers.
    until(|| dropped.load(Ordering::SeqCst) == 3 * count);
    assert_eq!(runtime.block_on(async |_| lives.call(Add(1)).await).unwrap(), 1);
}

#[test]
fn timers_set_and_cancelled_by_many_threads_race_with_the_end_of_their_process() {
    let runtime = runtime();
    for _ in 0..scaled(100) {
        let dropped = Arc::new(AtomicU64::new(0));
        let counter = runtime.spawn(Counter::default()).unwrap();
        let each = scaled(200);
        std::thread::scope(|scope| {
            for thread in 0..3 {
                let (runtime, dropped) = (runtime.handle(), &dropped);
                scope.spawn(move || {
                    for number in 0..each {
                        let due = if number % 3 == 0 { Duration::ZERO } else { NEVER };
                        let timer = runtime.send_after(counter, due, Counted(dropped.clone()));
                        if number % 2 == thread % 2 {
                            timer.cancel();
                        }
                    }
                });
            }
            std::thread::yield_now();
            counter.kill();
        });
        until(|| dropped.load(Ordering::SeqCst) == 3 * each);
        until(|| runtime.process_count() == 0);
    }
}

#[test]
fn a_message_may_hold_a_handle_of_the_runtime_it_waits_in() {
    let runtime = runtime();
    let dropped = Arc::new(AtomicU64::new(0));
    let counter = runtime.spawn(Counter::default()).unwrap();
    let message = Holding { _0: runtime.handle().clone(), _1: Counted(dropped.clone()) };
    drop(runtime.send_after(counter, NEVER, message));
    drop(runtime);
    assert_eq!(dropped.load(Ordering::SeqCst), 1);
}

#[test]
fn an_interval_beats_until_it_is_cancelled() {
    let runtime = runtime();
    let (reporter, notices) = reporter(&runtime);
    let timer = runtime.send_every(reporter, Duration::from_millis(2), Say { number: 1 });
    for _ in 0..scaled(1_000).min(20) {
        assert_eq!(notices.recv_timeout(PATIENCE), Ok(Notice::Said(1)));
    }
    assert!(timer.cancel());
    assert!(!timer.cancel());
    // A beat may be in a turn. After that turn there is none.
    reporter.say(2).unwrap();
    until(|| notices.recv_timeout(PATIENCE) == Ok(Notice::Said(2)));
    reporter.expect(Duration::from_millis(30)).unwrap();
    assert_eq!(
        notices.recv_timeout(PATIENCE),
        Ok(Notice::TimedOut),
        "a beat came after the cancellation"
    );
}

#[test]
fn an_interval_ends_with_its_process() {
    let runtime = runtime();
    let dropped = Arc::new(AtomicU64::new(0));
    for panics in [false, true] {
        let before = dropped.load(Ordering::SeqCst);
        let counter = runtime.spawn(Counter::default()).unwrap();
        let timer = runtime.send_every(counter, Duration::from_millis(1), Counted(dropped.clone()));
        until(|| dropped.load(Ordering::SeqCst) > before + 3);
        if panics {
            counter.send(Fail("on purpose")).unwrap();
        } else {
            counter.stop();
        }
        until(|| !counter.is_alive());
        until(|| !timer.cancel());
    }
}

#[test]
fn a_slow_process_finds_one_beat_of_an_interval_in_its_mailbox() {
    runtime().block_on(async |runtime| {
        let slow = runtime.spawn(Counter::default()).unwrap();
        let (go_on, wait) = tokio::sync::oneshot::channel::<()>();
        slow.send(Await(wait)).unwrap();
        let timer = runtime.send_every(slow, Duration::from_millis(1), Add(1));
        tokio::time::sleep(Duration::from_millis(30)).await;
        // Queued behind the single beat.
        let mut seen = pin!(slow.call(Add(0)));
        assert!(poll_once(&mut seen).is_pending());
        go_on.send(()).unwrap();
        let seen = seen.await.unwrap();
        assert!(seen <= 1, "{seen} beats were waiting");
        while slow.call(Add(0)).await.unwrap() <= 3 {}
        assert!(timer.cancel());
    });
}

#[test]
fn a_receive_timeout_comes_unless_a_message_does() {
    let runtime = runtime();
    let (reporter, notices) = reporter(&runtime);
    for _ in 0..3 {
        reporter.expect(Duration::from_millis(5)).unwrap();
        assert_eq!(notices.recv_timeout(PATIENCE), Ok(Notice::TimedOut));
    }
    // A message ends the timeout. The next two set it again, the second for a later time.
    reporter.expect(Duration::from_secs(1)).unwrap();
    reporter.say(1).unwrap();
    reporter.expect(Duration::from_millis(5)).unwrap();
    reporter.expect(Duration::from_millis(40)).unwrap();
    assert_eq!(notices.recv_timeout(PATIENCE), Ok(Notice::Said(1)));
    assert_eq!(notices.recv_timeout(PATIENCE), Ok(Notice::TimedOut));
    reporter.expect(Duration::from_millis(20)).unwrap();
    reporter.say(2).unwrap();
    assert_eq!(notices.recv_timeout(PATIENCE), Ok(Notice::Said(2)));
    assert_eq!(
        notices.recv_timeout(Duration::from_millis(100)),
        Err(mpsc::RecvTimeoutError::Timeout)
    );
}

#[test]
fn a_receive_timeout_of_zero_comes_when_the_mailbox_is_empty() {
    let runtime = runtime();
    let (reporter, notices) = reporter(&runtime);
    reporter.both().unwrap();
    assert_eq!(notices.recv_timeout(PATIENCE), Ok(Notice::Said(1)));
    reporter.expect(Duration::ZERO).unwrap();
    assert_eq!(notices.recv_timeout(PATIENCE), Ok(Notice::TimedOut));
    assert_eq!(
        notices.try_recv(),
        Err(mpsc::TryRecvError::Empty),
        "the message did not end the first timeout"
    );
}

#[test]
fn a_receive_timeout_and_the_deadlines_of_calls_share_one_alarm() {
    struct Caller(Address<Counter>, mpsc::Sender<&'static str>);
    #[process]
    impl Caller {
        #[hook]
        async fn timeout(&mut self, cx: &mut Context<Self>) {
            // A call times out in this hook, and then the receive timeout is set again.
            let late = self.0.call(crate::AddSlowly(1, NEVER)).within(Duration::from_millis(5));
            assert!(matches!(late.await, Err(CallError::TimedOut { .. })));
            self.1.send("timed out").unwrap();
            cx.receive_timeout(Duration::from_millis(3));
        }

        #[message(send)]
        async fn begin(&mut self, cx: &mut Context<Self>) {
            cx.receive_timeout(Duration::from_millis(20));
            let late = self.0.call(crate::AddSlowly(1, NEVER)).within(Duration::from_millis(3));
            assert!(late.await.is_err());
            self.1.send("begun").unwrap();
        }
    }
    let runtime = runtime();
    let counter = runtime.spawn(Counter::default()).unwrap();
    let (sender, notices) = mpsc::channel();
    let caller = runtime.spawn(Caller(counter, sender)).unwrap();
    caller.begin().unwrap();
    for expected in ["begun", "timed out", "timed out", "timed out"] {
        assert_eq!(notices.recv_timeout(PATIENCE), Ok(expected));
    }
}

#[test]
fn a_million_timers_and_timeouts_at_once() {
    struct Sleeper(Arc<AtomicU64>);
    impl Process for Sleeper {
        async fn started(&mut self, cx: &mut Context<Self>) {
            cx.receive_timeout(Duration::from_millis(200));
        }
        async fn timeout(&mut self, cx: &mut Context<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
            cx.stop(ExitReason::Normal);
        }
    }
    let runtime = runtime();
    let woken = Arc::new(AtomicU64::new(0));
    let count = scaled(if cfg!(debug_assertions) { 200_000 } else { 1_000_000 });
    for _ in 0..count {
        runtime.spawn(Sleeper(woken.clone())).unwrap();
    }
    let counter = runtime.spawn(Counter::default()).unwrap();
    for _ in 0..count {
        drop(runtime.send_after(counter, Duration::from_millis(200), Add(1)));
    }
    until(|| woken.load(Ordering::Relaxed) == count && runtime.process_count() == 1);
    until(|| runtime.block_on(async |_| counter.call(Add(0)).await).unwrap() == count);
}

#[test]
fn timers_set_and_cancelled_within_processes() {
    let runtime = runtime();
    let dropped = Arc::new(AtomicU64::new(0));
    let count = scaled(50_000);
    let busy = runtime.spawn(Counter::default()).unwrap();
    let own = dropped.clone();
    let work = Do(move |_: &mut Counter, cx: &mut Context<Counter>| {
        let timers: Vec<_> =
            (0..count).map(|_| cx.send_after(NEVER, Counted(own.clone()))).collect();
        drop(cx.send_after(Duration::from_millis(1), Counted(own)));
        timers.into_iter().filter(|timer| timer.cancel()).count() as u64
    });
    let cancelled = runtime.block_on(async |_| busy.call(work).within(PATIENCE).await).unwrap();
    assert_eq!(cancelled, count);
    until(|| dropped.load(Ordering::SeqCst) == count + 1);
    assert_eq!(runtime.block_on(async |_| busy.call(Add(0)).await).unwrap(), 1, "one has fired");
}

#[process(manual)]
impl Counter {
    #[message]
    fn holding(&mut self, _: RuntimeHandle, _: Counted) {}
}

#[test]
fn timers_are_set_and_cancelled_beside_a_thread_that_uses_the_context() {
    runtime().block_on(async |runtime| {
        let counter = runtime.spawn(Counter::default()).unwrap();
        let set_beside = Do(|_: &mut Counter, cx: &mut Context<Counter>| {
            let (runtime, address, rounds) = (cx.runtime().clone(), cx.address(), scaled(1000));
            let other = runtime.spawn(Counter::default()).unwrap();
            std::thread::scope(|scope| {
                scope.spawn(move || {
                    for _ in 0..rounds {
                        let monitor = cx.monitor(other);
                        cx.demonitor(monitor);
                    }
                });
                for _ in 0..rounds {
                    assert!(runtime.send_after(address, NEVER, Add(1)).cancel());
                }
            });
        });
        counter.call(set_beside).within(PATIENCE).await.unwrap();
        assert_eq!(counter.call(Add(1)).await.unwrap(), 1);
    });
}

/// Keeps a timeout, and carries out the closures that it is sent.
#[derive(Default)]
struct Patient {
    timeout: Timeout,
    rung: Vec<u64>,
}
#[process]
impl Patient {
    #[message]
    fn ring(&mut self, number: u64) {
        assert!(!self.timeout.is_set(), "its turn has begun");
        self.rung.push(number);
    }
    /// Sets a timeout whose message is in the mailbox when the turn goes on, and acts.
    #[message]
    async fn late(
        &mut self,
        act: fn(&mut Patient, &mut Context<Patient>) -> bool,
        cx: &mut Context<Self>,
    ) -> bool {
        self.timeout.set(cx, Duration::ZERO, Ring { number: 1 });
        let me = cx.address();
        while cx.runtime().info(me).await.is_none_or(|info| info.mailbox_len == 0) {
            tokio::task::yield_now().await;
        }
        act(self, cx)
    }
    #[message]
    fn rung(&mut self) -> (Vec<u64>, bool) {
        (self.rung.clone(), self.timeout.is_set())
    }
    #[message]
    fn set(&mut self, drops: Arc<AtomicU64>, cx: &mut Context<Self>) {
        self.timeout.set(cx, NEVER, Counted(drops));
    }
    #[message]
    fn set_often(&mut self, often: u64, cx: &mut Context<Self>) -> (u64, bool) {
        for number in 0..often {
            self.timeout.set(cx, NEVER - Duration::from_secs(number % 7), Ring { number });
        }
        // Signals to a process count as bytes in its mailbox, and are read after the turn.
        (cx.runtime().mailbox_bytes(), self.timeout.cancel())
    }
    #[message]
    fn take(&mut self, cx: &mut Context<Self>) -> Timeout {
        self.timeout.set(cx, Duration::ZERO, Ring { number: 1 });
        std::mem::take(&mut self.timeout)
    }
    #[message]
    fn give(&mut self, timeout: Timeout, cx: &mut Context<Self>) {
        self.timeout = timeout;
        self.timeout.set(cx, Duration::ZERO, Ring { number: 2 });
    }
}

#[test]
fn the_message_of_a_timeout_is_never_handled_late() {
    /// The name, what is done to a timeout whose message waits in the mailbox, whether it cancels a
    /// message, and the messages that are handled.
    type Row =
        (&'static str, fn(&mut Patient, &mut Context<Patient>) -> bool, bool, &'static [u64]);
    let table: [Row; 5] = [
        ("left alone", |_, _| false, false, &[1]),
        ("cancelled", |patient, _| patient.timeout.cancel(), true, &[]),
        (
            "dropped",
            |patient, _| {
                patient.timeout = Timeout::default();
                true
            },
            true,
            &[],
        ),
        (
            "set again",
            |patient, cx| {
                patient.timeout.set(cx, Duration::ZERO, Ring { number: 2 });
                true
            },
            true,
            &[2],
        ),
        (
            "cancelled twice",
            |patient, _| patient.timeout.cancel() && !patient.timeout.cancel(),
            true,
            &[],
        ),
    ];
    let runtime = runtime();
    for (name, act, cancels, rung) in table {
        runtime.block_on(async |runtime| {
            let patient = runtime.spawn(Patient::default()).unwrap();
            assert_eq!(patient.late(act).await.unwrap(), cancels, "{name}");
            while patient.rung().await.unwrap().1 {
                tokio::task::yield_now().await;
            }
            assert_eq!(patient.rung().await.unwrap(), (rung.to_vec(), false), "{name}");
            assert_eq!(runtime.info(patient).await.unwrap().mailbox_len, 0, "{name}");
            patient.kill();
        });
    }
}

impl Handle<Counted> for Patient {
    async fn handle(&mut self, _: Counted, _: &mut Context<Self>) {}
}

#[test]
fn a_timeout_drops_its_message_when_it_is_cancelled_or_its_process_exits() {
    runtime().block_on(async |runtime| {
        let drops = Arc::new(AtomicU64::new(0));
        let patient = runtime.spawn(Patient::default()).unwrap();
        for round in 0..3 {
            patient.set(drops.clone()).await.unwrap();
            assert_eq!(drops.load(Ordering::Relaxed), round);
        }
        assert_eq!(patient.rung().await.unwrap(), (vec![], true));
        patient.kill();
        patient.pid().exited().await;
        eventually(|| drops.load(Ordering::Relaxed) == 3).await;
    });
}

#[test]
fn a_timeout_that_a_turn_sets_again_and_again_leaves_nothing_behind() {
    runtime().block_on(async |runtime| {
        let patient = runtime.spawn(Patient::default()).unwrap();
        assert_eq!(patient.set_often(scaled(10_000)).await.unwrap(), (0, true));
        assert_eq!(patient.set_often(1).await.unwrap(), (0, true));
        assert_eq!(patient.rung().await.unwrap(), (vec![], false));
    });
}

#[test]
fn a_timeout_that_has_moved_to_another_process_is_cancelled_in_its_own() {
    runtime().block_on(async |runtime| {
        let [from, to] = [(); 2].map(|()| runtime.spawn(Patient::default()).unwrap());
        let timeout = from.take().await.unwrap();
        to.give(timeout).await.unwrap();
        while to.rung().await.unwrap().1 {
            tokio::task::yield_now().await;
        }
        assert_eq!(to.rung().await.unwrap().0, [2]);
    });
}
