//! The simulator, through its public API.

// Tests may unwrap.
#![allow(clippy::unwrap_used)]

use std::collections::HashSet;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use throng::prelude::*;
use throng::sim::{self, Sim};
use throng::{ChildSpec, Supervisor, SupervisorError};

/// Under Miri a run takes a thousand times as long.
const SEEDS: u64 = if cfg!(miri) { 2 } else { 200 };

#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<String>>>);

impl Log {
    fn note(&self, what: String) {
        self.0.lock().unwrap().push(what);
    }
    fn take(&self) -> Vec<String> {
        std::mem::take(&mut self.0.lock().unwrap())
    }
}

struct Worker {
    name: char,
    log: Log,
}
#[process]
impl Worker {
    #[message]
    async fn job(&mut self, number: u32) {
        self.log.note(format!("{}{number}", self.name));
        tokio::time::sleep(Duration::from_millis(u64::from(number) % 3)).await;
        self.log.note(format!("{}{number} done", self.name));
    }
}

async fn three_workers(sim: Sim, log: Log) {
    let workers =
        ['a', 'b', 'c'].map(|name| sim.runtime().spawn(Worker { name, log: log.clone() }).unwrap());
    for number in 0..4 {
        for worker in workers {
            worker.send_job(number).unwrap();
        }
    }
    for worker in workers {
        worker.job(9).await.unwrap();
    }
}

#[test]
fn a_seed_repeats_exactly_and_other_seeds_differ() {
    let log = Log::default();
    let run = |seed| (sim::replay(seed, |sim| three_workers(sim, log.clone())), log.take());
    let mut ways = HashSet::new();
    for seed in 0..SEEDS.min(50) {
        let (trace, events) = run(seed);
        assert_eq!((trace, &events), (run(seed).0, &run(seed).1), "seed {seed} does not repeat");
        for name in ['a', 'b', 'c'] {
            let own: Vec<_> = events.iter().filter(|event| event.starts_with(name)).collect();
            let expected =
                [0, 1, 2, 3, 9].map(|n| [format!("{name}{n}"), format!("{name}{n} done")]);
            assert_eq!(own, expected.as_flattened().iter().collect::<Vec<_>>());
        }
        ways.insert(events);
    }
    assert!(ways.len() as u64 > SEEDS.min(50) / 2, "only {} ways", ways.len());
}

#[test]
fn virtual_time_skips_idle_periods() {
    let begun = std::time::Instant::now();
    sim::check(3, |sim| async move {
        let worker = sim.runtime().spawn(Worker { name: 'a', log: Log::default() }).unwrap();
        tokio::time::sleep(Duration::from_secs(3600 * 24 * 60)).await;
        let late = worker.job(2).within(Duration::from_millis(1)).await;
        assert!(matches!(late, Err(CallError::TimedOut { .. })));
        worker.job(1).await.unwrap();
        assert!(sim.elapsed() > Duration::from_secs(3600 * 24 * 60));
    });
    assert!(begun.elapsed() < Duration::from_secs(3600));
}

/// A process with a race: it reads the balance, suspends, and writes the balance plus one.
struct Bank(Arc<AtomicU64>);
#[process]
impl Bank {
    #[message]
    async fn deposit(&mut self) {
        let balance = self.0.load(Ordering::Relaxed);
        tokio::task::yield_now().await;
        self.0.store(balance + 1, Ordering::Relaxed);
    }
}

async fn deposit_twice(sim: Sim) {
    // Two processes share a balance that a single process should own.
    let balance = Arc::new(AtomicU64::new(0));
    let banks = [(); 2].map(|()| sim.runtime().spawn(Bank(balance.clone())).unwrap());
    let (first, second) = tokio::join!(banks[0].deposit(), banks[1].deposit());
    first.unwrap();
    second.unwrap();
    assert_eq!(balance.load(Ordering::Relaxed), 2, "a deposit was lost");
}

#[test]
fn a_race_is_found_and_its_seed_finds_it_again() {
    let found = std::panic::catch_unwind(|| sim::check(1000, deposit_twice)).unwrap_err();
    let message = found.downcast_ref::<String>().unwrap();
    assert!(message.contains("a deposit was lost"), "{message}");
    let seed = message.strip_prefix("seed ").unwrap().split(':').next().unwrap();
    let seed = seed.parse().unwrap();
    assert!(std::panic::catch_unwind(|| sim::replay(seed, deposit_twice)).is_err());
}

#[test]
fn faults_crash_and_delay_until_they_are_stopped() {
    let crashes = AtomicU64::new(0);
    let trace = sim::replay(7, async |sim| {
        sim.faults().crash::<Worker>(100).delay(Duration::from_secs(5), 50);
        for _ in 0..200 {
            let log = Log::default();
            let worker = sim.runtime().spawn(Worker { name: 'a', log }).unwrap();
            match worker.job(1).within(Duration::from_secs(60)).await {
                Ok(()) => {}
                Err(CallError::Died(ExitReason::Panicked(_))) => {
                    crashes.fetch_add(1, Ordering::Relaxed);
                }
                Err(error) => panic!("{error}"),
            }
        }
        sim.faults().stop();
        let worker = sim.runtime().spawn(Worker { name: 'b', log: Log::default() }).unwrap();
        worker.job(1).await.unwrap();
    });
    let crashes = crashes.into_inner();
    assert!((5..=80).contains(&crashes), "{crashes} crashes");
    assert!(trace.faults >= crashes);
}

#[test]
fn a_test_that_waits_for_ever_panics() {
    let stuck = std::panic::catch_unwind(|| sim::replay(1, |_| std::future::pending::<()>()));
    assert!(stuck.is_err());
}

#[test]
fn a_test_that_runs_for_ever_without_a_pause_panics() {
    struct Restless;
    #[process]
    impl Restless {
        #[message(send)]
        fn again(&mut self, cx: &mut Context<Self>) {
            cx.address().again().unwrap();
        }
    }
    if cfg!(miri) {
        return;
    }
    let endless = std::panic::catch_unwind(|| {
        sim::replay(1, |sim| async move {
            sim.runtime().spawn(Restless).unwrap().again().unwrap();
            tokio::time::sleep(Duration::from_secs(1)).await;
        })
    });
    let text = *endless.unwrap_err().downcast::<&str>().unwrap();
    assert!(text.contains("no time passes"), "{text}");
}

#[test]
fn links_and_monitors_hold_in_every_schedule() {
    struct Parent {
        downs: Arc<AtomicU64>,
    }
    impl Process for Parent {
        async fn started(&mut self, cx: &mut Context<Self>) {
            cx.trap_exits(true);
            for _ in 0..3 {
                let worker = Worker { name: 'w', log: Log::default() };
                let child = cx.linked().spawn(worker).unwrap();
                cx.monitor(child);
                child.send_job(1).unwrap();
                child.stop();
            }
        }
        async fn down(&mut self, _: Down, _: &mut Context<Self>) {
            self.downs.fetch_add(1, Ordering::Relaxed);
        }
        async fn exit(&mut self, _: Exit, _: &mut Context<Self>) {
            self.downs.fetch_add(100, Ordering::Relaxed);
        }
    }
    sim::check(SEEDS, async |sim| {
        sim.faults().crash::<Worker>(200).delay(Duration::from_millis(10), 200);
        let downs = Arc::new(AtomicU64::new(0));
        let parent = sim.runtime().spawn(Parent { downs: downs.clone() }).unwrap();
        while sim.runtime().process_count() > 1 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        // An exit and a down for each child, however it ended.
        tokio::time::sleep(Duration::from_millis(100)).await;
        assert_eq!(downs.load(Ordering::Relaxed), 303);
        parent.stop();
    });
}

#[test]
fn a_process_that_crashes_before_its_start_handles_signals_while_it_stops() {
    struct Lingers;
    impl Process for Lingers {
        async fn started(&mut self, _: &mut Context<Self>) {}
        async fn stopping(&mut self, _: &ExitReason, _: &mut Context<Self>) {
            std::future::pending().await
        }
    }
    sim::check(2, async |sim| {
        sim.faults().crash::<Lingers>(1000);
        let lingers = sim.runtime().spawn(Lingers).unwrap();
        tokio::time::sleep(Duration::from_millis(1)).await;
        lingers.kill();
        lingers.pid().exited().await;
        assert!(!lingers.is_alive());
    });
}

/// Each process waits for the next, but the second waits only for the first turn of the third:
///
/// ```text
/// first ──▶ second ──▶ third, which sleeps and answers
///   ▲                  third, in its next turn ──┐
///   └──────────────────────────────── fourth ◀───┘
/// ```
#[test]
fn a_probe_that_met_a_turn_does_not_continue_with_the_next_turn() {
    #[derive(Default)]
    struct Member;
    #[process]
    impl Member {
        #[message]
        async fn sleep(&mut self, milliseconds: u64) {
            tokio::time::sleep(Duration::from_millis(milliseconds)).await;
        }
        #[message]
        async fn question(&mut self, mut way: Vec<Address<Member>>, sleep: u64) {
            let next = way.remove(0);
            let asked = if way.is_empty() {
                next.sleep(sleep).await.map_err(|_| ())
            } else {
                next.question(way, sleep).await.map_err(|_| ())
            };
            asked.expect("no call closes a cycle");
        }
    }
    sim::check(10 * SEEDS, async |sim| {
        let [first, second, third, fourth] = [(); 4].map(|()| sim.runtime().spawn(Member).unwrap());
        // The first process then finds the second in a turn, and sends probes.
        second.send_sleep(5).unwrap();
        tokio::time::sleep(Duration::from_millis(1)).await;
        let sleep = 10 + sim.random(15);
        let outer = first.question(vec![second, third], sleep);
        let inner = async {
            tokio::time::sleep(Duration::from_millis(8)).await;
            tokio::join!(fourth.question(vec![first], 0), third.question(vec![fourth], 0))
        };
        let (outer, (of_fourth, of_third)) = tokio::join!(outer, inner);
        for outcome in [outer, of_fourth, of_third] {
            outcome.unwrap();
        }
    });
}

/// The first process waits for an answer that the second has detached in an earlier turn:
///
/// ```text
/// first ──▶ (the answer) second, in its next turn ──▶ third
///   ▲                                                   │
///   └───────────────────────────────────────────────────┘
/// ```
#[test]
fn a_detached_answer_closes_no_ring_in_any_schedule() {
    struct Member;
    #[process]
    impl Member {
        #[message]
        async fn sleep(&mut self, milliseconds: u64) {
            tokio::time::sleep(Duration::from_millis(milliseconds)).await;
        }
        #[message]
        async fn question(&mut self, reply: ReplyTo<()>, sleep: u64) {
            tokio::time::sleep(Duration::from_millis(sleep)).await;
            reply.detach();
            tokio::spawn(async move {
                tokio::time::sleep(Duration::from_millis(500)).await;
                reply.send(()).expect("the asker waits");
            });
        }
        #[message]
        async fn inquire(&mut self, of: Address<Member>, sleep: u64) {
            let asked = of.question(sleep).await;
            asked.map_err(|_| ()).expect("the question closes no cycle");
        }
        #[message]
        async fn relay(&mut self, mut way: Vec<Address<Member>>) {
            let next = way.remove(0);
            let called = match way.is_empty() {
                true => next.sleep(0).await.map_err(|_| ()),
                false => next.relay(way).await.map_err(|_| ()),
            };
            called.expect("no call closes a cycle");
        }
    }
    sim::check(10 * SEEDS, async |sim| {
        let [first, second, third] = [(); 3].map(|()| sim.runtime().spawn(Member).unwrap());
        // The first process then finds the second in a turn, and sends probes.
        second.send_sleep(sim.random(30)).unwrap();
        let outer = first.inquire(second, sim.random(30));
        let inner = async {
            tokio::time::sleep(Duration::from_millis(1 + sim.random(30))).await;
            tokio::join!(third.relay(vec![first]), second.relay(vec![third]))
        };
        let (outer, (of_third, of_second)) = tokio::join!(outer, inner);
        for outcome in [outer.map_err(drop), of_third.map_err(drop), of_second.map_err(drop)] {
            outcome.unwrap();
        }
    });
}

#[test]
fn supervisors_count_restarts_in_virtual_time() {
    sim::check(3, async |sim| {
        let worker = ChildSpec::new(|| Worker { name: 'a', log: Log::default() });
        let child = worker.handle();
        let spec = Supervisor::one_for_one().intensity(1, Duration::from_secs(5));
        let supervisor = spec.child("a", worker).start_async(sim.runtime()).await.unwrap();
        for wait in [6, 6, 3, 1] {
            assert!(supervisor.is_alive());
            child.address().unwrap().kill();
            tokio::time::sleep(Duration::from_secs(wait)).await;
        }
        assert!(
            !supervisor.is_alive(),
            "two restarts within five seconds did not exceed the intensity"
        );
    });
}

#[test]
fn a_handle_follows_the_live_supervisor() {
    /// Takes 50 ms to stop.
    struct Slow;
    impl Process for Slow {
        async fn stopping(&mut self, _: &ExitReason, _: &mut Context<Self>) {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }
    sim::check(SEEDS, async |sim| {
        let (first, second) = (ChildSpec::new(|| Slow), ChildSpec::new(|| Slow));
        let handles = [first.handle(), second.handle()];
        let inner = Supervisor::one_for_all().child("first", first).child("second", second);
        let middle = ChildSpec::from(Supervisor::one_for_one().child("inner", inner));
        let middle_handle = middle.handle();
        let root = Supervisor::one_for_one().child("middle", middle);
        root.start_async(sim.runtime()).await.unwrap();
        // The inner supervisor is in the middle of a restart when the middle supervisor is killed.
        handles[0].address().unwrap().kill();
        tokio::time::sleep(Duration::from_millis(10)).await;
        middle_handle.address().unwrap().kill();
        tokio::time::sleep(Duration::from_secs(1)).await;
        for handle in &handles {
            assert!(handle.address().is_some(), "{handle:?}");
        }
    });
}

#[test]
fn a_ring_of_calls_is_broken_at_the_same_place_each_time() {
    struct Round {
        place: usize,
        log: Log,
    }
    #[process]
    impl Round {
        #[message]
        async fn nudge(&mut self, next: Option<Address<Round>>) {
            if let Some(next) = next {
                let answer = next.nudge(None).within(Duration::from_secs(60)).await;
                self.log.note(format!("{} {answer:?}", self.place));
            }
        }
    }
    let log = Log::default();
    let run = |seed| {
        let trace = sim::replay(seed, async |sim| {
            let spawn = |place| sim.runtime().spawn(Round { place, log: log.clone() }).unwrap();
            let ring: Vec<_> = (0..5).map(spawn).collect();
            for (place, round) in ring.iter().enumerate() {
                round.send_nudge(Some(ring[(place + 1) % ring.len()])).unwrap();
            }
            tokio::time::sleep(Duration::from_secs(1)).await;
        });
        (trace, log.take())
    };
    for seed in 0..SEEDS.min(50) {
        let first = run(seed);
        let broken = first.1.iter().filter(|answer| answer.contains("wait for itself")).count();
        assert!(broken > 0, "{first:?}");
        // The second run reuses the slots of the first, but in another order.
        assert_eq!(run(seed), first, "seed {seed} does not repeat");
    }
}

#[test]
fn a_start_that_fails_for_a_taken_name_leaves_nothing_behind() {
    sim::check(SEEDS, async |sim| {
        let runtime = sim.runtime();
        let squatter = runtime.spawn(Worker { name: 's', log: Log::default() }).unwrap();
        runtime.register("desk", squatter).unwrap();
        let clerk = ChildSpec::new(|| Worker { name: 'c', log: Log::default() }).register("desk");
        let office = Supervisor::one_for_one().child("clerk", clerk).start_async(runtime).await;
        assert!(matches!(office, Err(SupervisorError::Child { .. })), "{office:?}");
        assert_eq!(runtime.process_count(), 1, "another process than the squatter is alive");
    });
}

/// A process runs a simulation in its turn, and can then still use its own context.
#[test]
fn a_handler_that_has_run_a_simulation_has_its_own_context_again() {
    #[derive(Debug, PartialEq)]
    struct Number(u64);
    impl Message for Number {
        type Reply = ();
    }
    let runtime = Runtime::builder().workers(2).start().unwrap();
    let (sender, receiver) = tokio::sync::oneshot::channel();
    let (heard, hears) = tokio::sync::oneshot::channel();
    let (go_on, goes_on) = tokio::sync::oneshot::channel();
    // Receives its messages only after the outer process is done.
    let listener = runtime
        .spawner()
        .spawn_async(|mut inbox: Inbox<Number>| async move {
            goes_on.await.unwrap();
            let mut numbers = Vec::new();
            while let Some(Number(number)) = inbox.try_recv() {
                numbers.push(number);
            }
            heard.send(numbers).unwrap();
        })
        .unwrap();
    let outer = runtime
        .spawner()
        .spawn_async(move |mut inbox: Inbox<Number>| async move {
            let first = inbox.recv().await;
            let send = |numbers: std::ops::Range<u64>| {
                numbers.for_each(|number| listener.send(Number(number)).unwrap());
            };
            send(0..12);
            // A simulated test that ends, then a test that panics. Each sends from its main future and
            // from a process.
            for next in [12, 16] {
                let simulated = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
                    sim::replay(7, |sim| async move {
                        listener.send(Number(next)).unwrap();
                        let body = move |mut inner: Inbox<Number>| async move {
                            let number = inner.recv().await;
                            listener.send(number).unwrap();
                        };
                        let inner = sim.runtime().spawner().spawn_async(body).unwrap();
                        inner.send(Number(next + 1)).unwrap();
                        inner.pid().exited().await;
                        listener.send(Number(next + 2)).unwrap();
                        assert_eq!(next, 12, "on purpose");
                    })
                }));
                assert_eq!(simulated.is_err(), next == 16);
                send(next + 3..next + 4);
            }
            send(20..32);
            // All of these operations need the worker of this thread.
            inbox.address().send(Number(2)).unwrap();
            let second = inbox.try_recv();
            let monitored = inbox.context(|cx| cx.monitor(listener)).pid();
            let third = inbox.recv_timeout(Duration::from_millis(1)).await;
            sender.send((first, second, third, monitored)).unwrap();
            go_on.send(()).unwrap();
        })
        .unwrap();
    outer.send(Number(1)).unwrap();
    let (first, second, third, monitored) = runtime.block_on(async |_| receiver.await).unwrap();
    assert_eq!((first, second, third), (Number(1), Some(Number(2)), None));
    assert_eq!(monitored, listener.pid());
    let numbers = runtime.block_on(async |_| hears.await).unwrap();
    assert_eq!(numbers, (0..32).collect::<Vec<_>>());
}

#[test]
fn tasks_run_in_an_order_that_the_seed_decides() {
    let mut orders = HashSet::new();
    for seed in 0..SEEDS.min(20) {
        let run = || {
            let log = Log::default();
            let trace = sim::replay(seed, |sim| {
                let log = log.clone();
                async move {
                    for name in ['a', 'b', 'c'] {
                        let log = log.clone();
                        sim.spawn("task", async move {
                            for number in 0..3 {
                                log.note(format!("{name}{number}"));
                                tokio::time::sleep(Duration::from_millis(1)).await;
                            }
                        });
                    }
                    tokio::time::sleep(Duration::from_secs(1)).await;
                }
            });
            (trace, log.take())
        };
        let (trace, events) = run();
        assert_eq!(events.len(), 9);
        assert_eq!((trace, &events), (run().0, &run().1), "seed {seed} does not repeat");
        orders.insert(events);
    }
    assert!(orders.len() as u64 >= SEEDS.min(20) / 2);
}

#[test]
fn a_failing_seed_is_reported_with_its_last_events() {
    let failing = |sim: Sim| async move {
        let worker = sim.runtime().spawn(Worker { name: 'a', log: Log::default() }).unwrap();
        worker.job(1).await.unwrap();
        sim.note("about to fail");
        sim.spawn("failing task", async { panic!("on purpose") });
        std::future::pending::<()>().await;
    };
    let found = std::panic::catch_unwind(|| sim::check(3, failing)).unwrap_err();
    let message = found.downcast_ref::<String>().unwrap();
    for part in
        ["seed 0", "on purpose", "THRONG_SIM_SEED=0", "Worker", "about to fail", "failing task"]
    {
        assert!(message.contains(part), "{part:?} is missing in {message}");
    }
}
