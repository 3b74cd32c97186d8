//! A call from a thread that is no worker runs an idle process on that thread; see
//! `RuntimeBuilder::guests`. Each test is a crossing of that with another feature.

use crate::{Add, Counter, scaled};
use std::future::Future;
use std::pin::pin;
use std::sync::{Arc, mpsc};
use std::task::{Context as Task, Poll, Waker};
use std::thread::{self, ThreadId};
use std::time::Duration;
use throng::prelude::*;
use throng::{MailboxBound, Overflow};

const PATIENCE: Duration = Duration::from_secs(120);

fn start() -> Runtime {
    Runtime::builder().workers(1).start().unwrap()
}

/// A process that runs a closure in each turn.
#[derive(Default)]
struct Actor;
impl Process for Actor {}

/// A closure to run; the reply names the thread that has run it.
struct Do<F>(F);
impl<F: FnOnce(&mut Context<Actor>) + Send + 'static> Message for Do<F> {
    type Reply = ThreadId;
}
impl<F: FnOnce(&mut Context<Actor>) + Send + 'static> Handle<Do<F>> for Actor {
    async fn handle(&mut self, Do(run): Do<F>, cx: &mut Context<Self>) -> ThreadId {
        run(cx);
        thread::current().id()
    }
}

fn here() -> ThreadId {
    thread::current().id()
}

/// The thread that runs a turn of this process which is called from here.
async fn thread_of(actor: Address<Actor>) -> ThreadId {
    actor.call(Do(|_: &mut Context<Actor>| ())).await.unwrap()
}

#[test]
fn a_call_from_outside_runs_an_idle_process_on_its_own_thread() {
    let runtime = start();
    runtime.block_on(async |runtime| {
        let actor = runtime.spawn(Actor).unwrap();
        assert_eq!(thread_of(actor).await, here());
        // The turn is counted where it ran.
        let metrics = runtime.metrics();
        let by_guests: u64 =
            metrics.workers.iter().filter(|worker| worker.guest).map(|worker| worker.turns).sum();
        assert_eq!(by_guests, 1);
        // On a loaded machine a turn may be held up, and then workers run the next turns.
        let is_here = || async move { thread_of(actor).await == here() };
        while !tokio::spawn(is_here()).await.unwrap() {}
    });
}

#[test]
fn a_message_that_is_only_sent_never_runs_on_the_senders_thread() {
    let runtime = start();
    let actor = runtime.spawn(Actor).unwrap();
    let (sender, receiver) = mpsc::channel();
    actor.send(Do(move |_: &mut Context<Actor>| sender.send(here()).unwrap())).unwrap();
    assert_ne!(receiver.recv_timeout(PATIENCE).unwrap(), here());
}

#[test]
fn without_seats_and_from_another_runtime_workers_run_the_process() {
    let runtime = Runtime::builder().workers(1).guests(0).start().unwrap();
    let actor = runtime.spawn(Actor).unwrap();
    assert_ne!(runtime.block_on(async |_| thread_of(actor).await), here());

    struct Caller(Address<Actor>);
    impl Process for Caller {}
    struct Forward;
    impl Message for Forward {
        type Reply = (ThreadId, ThreadId);
    }
    impl Handle<Forward> for Caller {
        async fn handle(&mut self, _: Forward, _: &mut Context<Self>) -> (ThreadId, ThreadId) {
            let before = here();
            (before, thread_of(self.0).await)
        }
    }
    let (first, second) = (start(), start());
    let caller = first.spawn(Caller(second.spawn(Actor).unwrap())).unwrap();
    let (caller, callee) = first.block_on(async |_| caller.call(Forward).await.unwrap());
    assert_ne!(caller, callee);
}

#[test]
#[cfg_attr(miri, ignore = "each turn takes longer than a guest goes on for")]
fn a_process_that_calls_others_is_answered_without_a_worker() {
    struct Chain(Option<Address<Chain>>);
    impl Process for Chain {}
    struct Depth;
    impl Message for Depth {
        type Reply = Vec<ThreadId>;
    }
    impl Handle<Depth> for Chain {
        async fn handle(&mut self, _: Depth, _: &mut Context<Self>) -> Vec<ThreadId> {
            let mut threads = vec![here()];
            if let Some(next) = self.0 {
                threads.extend(next.call(Depth).await.unwrap());
                threads.push(here());
            }
            threads
        }
    }
    let runtime = start();
    runtime.block_on(async |runtime| {
        let mut first: Option<Address<Chain>> = None;
        for _ in 0..5 {
            first = Some(runtime.spawn(Chain(first)).unwrap());
        }
        // On a loaded machine the turns may take so long that workers run some of them.
        while first.unwrap().call(Depth).await.unwrap() != vec![here(); 9] {}
    });
}

#[test]
fn a_turn_that_waits_continues_on_a_worker_and_the_caller_gets_its_reply() {
    struct Waits;
    impl Process for Waits {}
    struct Wait(tokio::sync::oneshot::Receiver<()>);
    impl Message for Wait {
        type Reply = (ThreadId, ThreadId);
    }
    impl Handle<Wait> for Waits {
        async fn handle(
            &mut self,
            Wait(until): Wait,
            _: &mut Context<Self>,
        ) -> (ThreadId, ThreadId) {
            let before = here();
            until.await.unwrap();
            (before, here())
        }
    }
    let runtime = start();
    runtime.block_on(async |runtime| {
        let waits = runtime.spawn(Waits).unwrap();
        let (let_go, until) = tokio::sync::oneshot::channel();
        let mut call = pin!(waits.call(Wait(until)));
        assert!(call.as_mut().poll(&mut Task::from_waker(Waker::noop())).is_pending());
        let_go.send(()).unwrap();
        let (before, after) = call.await.unwrap();
        assert_eq!(before, here());
        assert_ne!(after, here());
    });
}

#[test]
fn a_panic_and_an_exit_end_the_process_and_leave_the_caller_alone() {
    let runtime = start();
    runtime.block_on(async |runtime| {
        let actor = runtime.spawn(Actor).unwrap();
        let died = actor.call(Do(|_: &mut Context<Actor>| panic!("on purpose"))).await;
        assert!(matches!(died, Err(CallError::Died(ExitReason::Panicked(_)))));
        assert!(matches!(
            actor.call(Do(|_: &mut Context<Actor>| ())).await,
            Err(CallError::NoProcess(_))
        ));

        let actor = runtime.spawn(Actor).unwrap();
        let mut exited = pin!(actor.pid().exited());
        let pending = std::future::poll_fn(|cx| Poll::Ready(exited.as_mut().poll(cx).is_pending()));
        assert!(pending.await);
        let stopped = actor.call(Do(|cx: &mut Context<Actor>| cx.stop(ExitReason::other("done"))));
        stopped.await.unwrap();
        assert_eq!(exited.await, ExitReason::other("done"));
        // The last step of an exit comes after the wake-up of `exited`.
        while runtime.process_count() > 0 {
            tokio::task::yield_now().await;
        }
    });
}

#[test]
fn processes_that_the_turn_spawns_and_wakes_run_too() {
    let runtime = start();
    runtime.block_on(async |runtime| {
        let actor = runtime.spawn(Actor).unwrap();
        let (sender, receiver) = mpsc::channel();
        let spawn = move |cx: &mut Context<Actor>| {
            for number in 0..100 {
                let child = cx.runtime().spawn(Counter { count: number }).unwrap();
                child.send(Add(1)).unwrap();
                sender.send(child).unwrap();
            }
        };
        assert_eq!(actor.call(Do(spawn)).await.unwrap(), here());
        assert_eq!(runtime.process_count(), 101);
        for (number, child) in (0..).zip(receiver) {
            assert_eq!(child.call(Add(1)).await.unwrap(), number + 2);
        }
    });
}

#[test]
fn the_turn_is_in_the_runtimes_tokio_and_outside_of_the_callers_budget() {
    struct Busy;
    impl Process for Busy {}
    struct Poll1000;
    impl Message for Poll1000 {
        type Reply = (ThreadId, tokio::runtime::Id);
    }
    impl Handle<Poll1000> for Busy {
        async fn handle(
            &mut self,
            _: Poll1000,
            _: &mut Context<Self>,
        ) -> (ThreadId, tokio::runtime::Id) {
            for _ in 0..1000 {
                tokio::task::consume_budget().await;
            }
            (here(), tokio::runtime::Handle::current().id())
        }
    }
    let runtime = start();
    let busy = runtime.spawn(Busy).unwrap();
    let other = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let (thread, id) = other.block_on(async { busy.call(Poll1000).await.unwrap() });
    assert_eq!(thread, here());
    assert_eq!(id, runtime.tokio().id());
}

#[test]
fn a_task_that_only_calls_lets_other_tasks_run() {
    let runtime = start();
    let counter = runtime.spawn(Counter { count: 0 }).unwrap();
    let tokio = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    tokio.block_on(async {
        let (sender, mut receiver) = tokio::sync::oneshot::channel();
        tokio::spawn(async move { sender.send(()).unwrap() });
        // Ends only if the other task runs between two calls that are ready at once.
        while receiver.try_recv().is_err() {
            counter.call(Add(1)).await.unwrap();
        }
    });
}

#[test]
fn a_call_comes_after_the_messages_that_its_caller_has_sent() {
    let runtime = start();
    runtime.block_on(async |runtime| {
        for _ in 0..scaled(200) {
            let counter = runtime.spawn(Counter { count: 0 }).unwrap();
            for _ in 0..3 {
                counter.send(Add(1)).unwrap();
            }
            assert_eq!(counter.call(Add(1)).await.unwrap(), 4);
        }
    });
}

#[test]
fn bounded_mailboxes_and_async_processes_answer_calls_from_outside() {
    let runtime = start();
    runtime.block_on(async |runtime| {
        for overflow in [Overflow::Wait, Overflow::Reject, Overflow::DropOldest] {
            let bound = MailboxBound::new(2, overflow);
            let counter = runtime.spawner().mailbox(bound).spawn(Counter { count: 0 }).unwrap();
            for number in 1..=10 {
                assert_eq!(counter.call(Add(1)).await.unwrap(), number);
            }
        }
        struct Twice(u64, ReplyTo<u64>);
        impl Message for Twice {
            type Reply = ();
        }
        let twice = runtime
            .spawn_async(|mut inbox: Inbox<Twice>| async move {
                loop {
                    let Twice(number, reply) = inbox.recv().await;
                    let _ = reply.send(2 * number);
                }
            })
            .unwrap();
        for number in 0..10 {
            let asked = twice.ask(|reply| Twice(number, reply));
            assert_eq!(asked.await.unwrap(), 2 * number);
        }
    });
}

#[test]
fn callers_on_many_threads_lose_no_call() {
    let runtime = Runtime::builder().workers(2).guests(3).start().unwrap();
    let counter = runtime.spawn(Counter { count: 0 }).unwrap();
    let calls = scaled(5000);
    thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                let tokio = tokio::runtime::Builder::new_current_thread().enable_all().build();
                tokio.unwrap().block_on(async {
                    for _ in 0..calls {
                        counter.call(Add(1)).await.unwrap();
                    }
                });
            });
        }
    });
    assert_eq!(runtime.block_on(async |_| counter.call(Add(0)).await.unwrap()), 8 * calls);
}

/// A turn that blocks holds up its caller, but neither other processes nor other callers; then
/// workers run the processes of its type for a while.
#[test]
#[cfg_attr(miri, ignore = "blocks its thread")]
fn a_turn_that_blocks_its_caller_is_left_to_the_workers_the_next_time() {
    let runtime = start();
    let (actor, other) = (runtime.spawn(Actor).unwrap(), runtime.spawn(Actor).unwrap());
    let (let_go, until) = mpsc::channel::<()>();
    let (begun, begins) = mpsc::channel();
    thread::scope(|scope| {
        let handle = runtime.handle();
        let blocked = scope.spawn(move || {
            let block = move |_: &mut Context<Actor>| {
                // The queue of this seat: other workers must reach both processes.
                other.send(Do(|_: &mut Context<Actor>| ())).unwrap();
                begun.send(()).unwrap();
                until.recv_timeout(PATIENCE).unwrap();
                // So long that it cannot be taken for a loaded machine's doing.
                thread::sleep(Duration::from_millis(200));
            };
            handle.tokio().block_on(async { actor.call(Do(block)).await.unwrap() }) == here()
        });
        begins.recv_timeout(PATIENCE).unwrap();
        // The other process waits in the slot of the blocked guest until the watchdog passes it on.
        let called = handle.tokio().block_on(async { thread_of(other).await });
        assert_ne!(called, blocked.thread().id());
        let_go.send(()).unwrap();
        assert!(blocked.join().unwrap());
    });
    assert_ne!(runtime.block_on(async |_| thread_of(actor).await), here());
}

#[test]
#[cfg_attr(miri, ignore = "blocks its thread")]
fn a_runtime_that_ends_while_a_guest_runs_does_not_wait_for_it_and_loses_nothing() {
    let runtime = start();
    let actor = runtime.spawn(Actor).unwrap();
    let (let_go, until) = mpsc::channel::<()>();
    let (begun, begins) = mpsc::channel();
    let guest = thread::spawn(move || {
        let tokio = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let block = move |_: &mut Context<Actor>| {
            begun.send(()).unwrap();
            until.recv_timeout(PATIENCE).unwrap();
        };
        tokio.block_on(async { actor.call(Do(block)).await.unwrap() }) == here()
    });
    begins.recv_timeout(PATIENCE).unwrap();
    let outcome = runtime.shutdown(Duration::ZERO);
    assert_eq!((outcome.stopped, outcome.abandoned), (0, 1));
    let_go.send(()).unwrap();
    assert!(guest.join().unwrap());
}

/// A guest leaves its seat at the moment at which the runtime closes the seats, and may have just handed
/// a process to workers that have ended.
#[test]
fn a_runtime_that_ends_among_guests_that_come_and_go_ends_every_process() {
    struct Player(Arc<()>, Option<Address<Player>>);
    impl Process for Player {}
    struct Pass(u32);
    impl Message for Pass {
        type Reply = usize;
    }
    impl Handle<Pass> for Player {
        async fn handle(&mut self, Pass(times): Pass, _: &mut Context<Self>) -> usize {
            if let Some(next) = self.1.filter(|_| times > 0) {
                let _ = next.send(Pass(times - 1));
            }
            Arc::strong_count(&self.0)
        }
    }
    for workers in [1, 2] {
        for _ in 0..scaled(200) {
            let runtime = Runtime::builder().workers(workers).guests(2).start().unwrap();
            let alive = Arc::new(());
            let mut players: Vec<Address<Player>> = Vec::new();
            for _ in 0..3 {
                let next = players.last().copied();
                players.push(runtime.spawn(Player(alive.clone(), next)).unwrap());
            }
            let callers: Vec<_> = (0..3)
                .map(|caller| {
                    let player = players[caller];
                    thread::spawn(move || {
                        let mut tokio = tokio::runtime::Builder::new_current_thread();
                        let tokio = tokio.enable_all().build().unwrap();
                        tokio.block_on(async { while player.call(Pass(9)).await.is_ok() {} });
                    })
                })
                .collect();
            let outcome = runtime.shutdown(PATIENCE);
            assert_eq!(outcome.abandoned, 0);
            for caller in callers {
                caller.join().unwrap();
            }
            assert_eq!(Arc::strong_count(&alive), 1);
        }
    }
}

#[test]
fn a_runtime_may_end_in_a_turn_that_its_caller_runs() {
    let runtime = start();
    let actor = runtime.spawn(Actor).unwrap();
    let tokio = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let ended = tokio.block_on(async {
        actor.call(Do(move |_: &mut Context<Actor>| drop(runtime))).await.unwrap()
    });
    assert_eq!(ended, here());
}
