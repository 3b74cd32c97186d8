//! Pools: work shared by supervised processes, routed by load or by a key, with bounded room.

use crate::{eventually, poll_once, runtime, scaled};
use std::sync::Arc;
use std::time::Duration;
use throng::prelude::*;
use throng::{KeyedWorker, MailboxBound, Overflow, Pool, SupervisorSpec};
use tokio::sync::Semaphore;

/// Notes the numbers that come. Each takes a permit of `gate` to handle.
struct Clerk {
    gate: Arc<Semaphore>,
    numbers: Vec<u64>,
}
#[process]
impl Clerk {
    #[message]
    fn numbers(&mut self) -> Vec<u64> {
        self.numbers.clone()
    }
    /// Waits until a gate of its own opens, then panics if it is to.
    #[message(send)]
    async fn hold(&mut self, gate: Arc<Semaphore>, fails: bool) {
        gate.acquire().await.unwrap().forget();
        assert!(!fails, "on purpose");
    }
}

#[derive(PartialEq, Eq, Debug)]
struct Note(u64);
impl Message for Note {
    type Reply = Address<Clerk>;
}
impl Handle<Note> for Clerk {
    async fn handle(&mut self, Note(number): Note, cx: &mut Context<Self>) -> Address<Clerk> {
        self.gate.acquire().await.unwrap().forget();
        assert_ne!(number, BAD, "on purpose");
        self.numbers.push(number);
        cx.address()
    }
}

/// A number whose handler panics.
const BAD: u64 = u64::MAX;

fn pool(size: usize, room: usize, permits: usize) -> (Pool<Clerk>, SupervisorSpec, Arc<Semaphore>) {
    let gate = Arc::new(Semaphore::new(permits));
    let (pool, supervisor) = Pool::new(size, room, || {
        let gate = gate.clone();
        ChildSpec::new(move || Clerk { gate: gate.clone(), numbers: Vec::new() })
    });
    (pool, supervisor.intensity(1_000, Duration::from_secs(1)), gate)
}

/// Starts a pool, whose workers wait for permits of the gate.
async fn start(
    runtime: &RuntimeHandle,
    size: usize,
    room: usize,
    permits: usize,
) -> (Pool<Clerk>, Arc<Semaphore>) {
    let (pool, supervisor, gate) = pool(size, room, permits);
    supervisor.start_async(runtime).await.unwrap();
    (pool, gate)
}

/// A way to send a message to a pool.
type Send = fn(&Pool<Clerk>, Note) -> Result<(), SendError<Note>>;

fn key(pool: &Pool<Clerk>) -> KeyedWorker<'_, Clerk> {
    pool.keyed(&7_u64)
}

#[test]
fn room_is_bounded_and_comes_back_when_a_turn_is_over() {
    /// The name, a way to send, and the messages for which there is room: all workers', or one's.
    type Row = (&'static str, Send, u64);
    let table: [Row; 2] = [
        ("any", |pool, note| pool.send(note), 12),
        ("keyed", |pool, note| key(pool).send(note), 4),
    ];
    let runtime = runtime();
    for (name, send, most) in table {
        runtime.block_on(async |runtime| {
            let (pool, supervisor, gate) = pool(3, 4, 0);
            assert!(matches!(send(&pool, Note(1)), Err(SendError::NoProcess(Note(1)))), "{name}");
            let supervisor = supervisor.start_async(runtime).await.unwrap();
            for number in 0..most {
                assert!(send(&pool, Note(number)).is_ok(), "{name}: {number}");
            }
            for round in 0..5 {
                let full = send(&pool, Note(99));
                assert!(matches!(full, Err(SendError::Overloaded(Note(99)))), "{name}");
                assert_eq!(pool.len() as u64, most, "{name}");
                gate.add_permits(1);
                eventually(|| (pool.len() as u64) < most).await;
                assert!(send(&pool, Note(round)).is_ok(), "{name}");
            }
            gate.add_permits(most as usize);
            eventually(|| pool.is_empty()).await;
            supervisor.kill();
            supervisor.pid().exited().await;
            // The workers end one after the other. As long as one is there, it gets the messages.
            eventually(|| matches!(pool.send(Note(2)), Err(SendError::NoProcess(Note(2))))).await;
            assert!(matches!(send(&pool, Note(2)), Err(SendError::NoProcess(Note(2)))), "{name}");
            assert!(matches!(pool.deliver(Note(3)).await, Err(SendError::NoProcess(Note(3)))));
            assert!(matches!(pool.call(Note(4)).await, Err(CallError::NoProcess(Note(4)))));
        });
    }
}

#[test]
fn those_who_wait_for_room_get_it_in_any_worker() {
    runtime().block_on(async |runtime| {
        let (pool, gate) = start(runtime, 3, 1, 0).await;
        let count = scaled(300);
        let callers: Vec<_> = (0..count)
            .map(|number| {
                let pool = pool.clone();
                runtime.tokio().spawn(async move {
                    match number % 3 {
                        0 => pool.deliver(Note(number)).await.is_ok(),
                        1 => pool.call(Note(number)).await.is_ok(),
                        _ => pool.keyed(&number).call(Note(number)).await.is_ok(),
                    }
                })
            })
            .collect();
        gate.add_permits(count as usize);
        for caller in callers {
            assert!(caller.await.unwrap());
        }
        eventually(|| pool.is_empty()).await;
        assert_eq!(gate.available_permits(), 0);
    });
}

#[test]
fn a_message_goes_to_the_worker_with_the_most_room() {
    runtime().block_on(async |runtime| {
        let (pool, gate) = start(runtime, 2, 4, 0).await;
        for number in 0..3 {
            key(&pool).send(Note(number)).unwrap();
        }
        // The other worker has more room until both have three messages.
        for number in 3..6 {
            pool.send(Note(number)).unwrap();
        }
        gate.add_permits(6);
        eventually(|| pool.is_empty()).await;
        gate.add_permits(1);
        let of_the_key = key(&pool).call(Note(6)).await.unwrap();
        assert_eq!(of_the_key.numbers().await.unwrap(), [0, 1, 2, 6]);
        // Idle workers take turns.
        gate.add_permits(4);
        let mut workers = Vec::new();
        for number in 7..11 {
            workers.push(pool.call(Note(number)).await.unwrap());
        }
        assert_eq!((workers[0], workers[1]), (workers[2], workers[3]));
        assert_ne!(workers[0], workers[1]);
    });
}

#[test]
fn a_key_leads_to_one_worker_and_keeps_the_order() {
    runtime().block_on(async |runtime| {
        let (pool, _gate) = start(runtime, 4, 3, Semaphore::MAX_PERMITS).await;
        let count = scaled(1_000);
        let mut workers = Vec::new();
        for key in 0..8 {
            for number in 0..count {
                pool.keyed(&key).deliver(Note(key * count + number)).await.unwrap();
            }
            let worker = pool.keyed(&key).call(Note(BAD - 1)).await.unwrap();
            let mut numbers = worker.numbers().await.unwrap();
            numbers.retain(|number| number / count == key);
            assert_eq!(numbers, (key * count..(key + 1) * count).collect::<Vec<_>>());
            workers.push(worker);
        }
        workers.sort_unstable();
        workers.dedup();
        assert!(workers.len() > 1, "all keys lead to one worker");
    });
}

#[test]
fn a_worker_that_fails_gives_its_room_back_and_is_started_again() {
    runtime().block_on(async |runtime| {
        let (pool, gate) = start(runtime, 2, 3, 0).await;
        for round in 0..scaled(20) {
            // One is handled when it fails; the others wait behind it.
            let worker = pool.keyed("k");
            worker.send(Note(BAD)).unwrap();
            worker.send(Note(round)).unwrap();
            let call = pool.keyed("k").call(Note(round));
            let (call, ()) = tokio::join!(call, async {
                eventually(|| pool.len() == 3).await;
                assert!(matches!(pool.keyed("k").send(Note(9)), Err(SendError::Overloaded(_))));
                gate.add_permits(1);
            });
            assert!(matches!(call, Err(CallError::Died(ExitReason::Panicked(_)))), "{call:?}");
            eventually(|| pool.is_empty()).await;
            gate.add_permits(1);
            loop {
                match pool.keyed("k").call(Note(round)).await {
                    Ok(worker) => break assert_eq!(worker.numbers().await.unwrap(), [round]),
                    Err(CallError::NoProcess(Note(back))) => assert_eq!(back, round),
                    // The incarnation that fails has taken it.
                    Err(CallError::Died(_)) => {}
                    Err(error) => panic!("{error}"),
                }
            }
        }
    });
}

#[test]
fn a_call_waits_for_room_until_its_deadline() {
    runtime().block_on(async |runtime| {
        let (pool, _gate) = start(runtime, 1, 1, 0).await;
        pool.send(Note(1)).unwrap();
        if cfg!(miri) {
            return;
        }
        let late = pool.call(Note(2)).await;
        assert!(matches!(late, Err(CallError::TimedOut { enqueued: false })), "{late:?}");
        assert_eq!(pool.len(), 1);
    });
}

#[test]
fn a_worker_that_takes_long_to_stop_holds_up_no_sender() {
    struct Slow(Arc<Semaphore>);
    #[process]
    impl Slow {
        #[hook]
        async fn stopping(&mut self) {
            let _ = self.0.acquire().await;
        }
        #[message]
        fn leave(&mut self, cx: &mut Context<Self>) {
            cx.stop(ExitReason::other("enough"));
        }
    }
    runtime().block_on(async |runtime| {
        let gate = Arc::new(Semaphore::new(0));
        let (pool, supervisor) = Pool::new(1, 2, || {
            let gate = gate.clone();
            ChildSpec::new(move || Slow(gate.clone()))
        });
        supervisor.start_async(runtime).await.unwrap();
        pool.call(Leave).await.unwrap();
        // The worker stops until the gate opens: a message is refused, or waits for nothing.
        for _ in 0..3 {
            let _ = pool.send(Leave);
        }
        let called = tokio::time::timeout(Duration::from_millis(50), pool.call(Leave)).await;
        assert!(!matches!(called, Ok(Ok(()))), "a worker that stops has handled a message");
        gate.add_permits(1_000);
        eventually(|| pool.is_empty()).await;
    });
}

#[test]
fn messages_in_the_line_are_handled_in_order_although_no_sender_is_polled_again() {
    runtime().block_on(async |runtime| {
        for (size, waiting) in [(1, 20), (4, 16)] {
            let (pool, gate) = start(runtime, size, 1, 0).await;
            for number in 0..size as u64 {
                pool.send(Note(number)).unwrap();
            }
            let mut deliveries: Vec<_> =
                (0..waiting).map(|number| Box::pin(pool.deliver(Note(100 + number)))).collect();
            let mut calls: Vec<_> =
                (0..waiting).map(|number| Box::pin(key(&pool).call(Note(200 + number)))).collect();
            assert!(
                deliveries.iter_mut().all(|it| poll_once(it).is_pending())
                    && calls.iter_mut().all(|it| poll_once(it).is_pending())
            );
            assert_eq!(pool.len(), size, "a message in the line has no place");
            assert!(matches!(pool.send(Note(9)), Err(SendError::Overloaded(Note(9)))));
            gate.add_permits(size + 2 * waiting as usize);
            eventually(|| pool.is_empty()).await;
            assert_eq!(gate.available_permits(), 0, "each message was handled once");
            for call in calls {
                let worker = call.await.unwrap();
                let numbers = worker.numbers().await.unwrap();
                assert!(numbers.is_sorted(), "{numbers:?}");
            }
            for delivery in deliveries {
                delivery.await.unwrap();
            }
            gate.add_permits(1);
            pool.call(Note(1)).await.unwrap();
        }
    });
}

#[test]
fn a_sender_that_gives_up_leaves_the_line() {
    runtime().block_on(async |runtime| {
        let (pool, gate) = start(runtime, 1, 1, 0).await;
        pool.send(Note(1)).unwrap();
        let mut delivery = Box::pin(pool.deliver(Note(2)));
        let mut call = Box::pin(pool.call(Note(3)));
        let mut forgotten = Box::pin(pool.deliver(Note(4)));
        assert!(
            poll_once(&mut delivery).is_pending()
                && poll_once(&mut call).is_pending()
                && poll_once(&mut forgotten).is_pending()
        );
        drop((delivery, call));
        std::mem::forget(forgotten);
        gate.add_permits(3);
        let worker = pool.call(Note(5)).await.unwrap();
        assert_eq!(worker.numbers().await.unwrap(), [1, 4, 5]);
        assert!(pool.is_empty());
    });
}

/// A worker's end: the name, and the way to end the worker, whose message waits for the gate.
type End = (&'static str, fn(Address<Clerk>, &Semaphore));

#[test]
fn a_worker_that_is_started_again_takes_messages_of_the_line() {
    let ends: [End; 3] = [
        ("panic", |_, gate| gate.add_permits(1)),
        ("kill", |worker, _| worker.kill()),
        ("exit signal", |worker, _| worker.pid().exit(ExitReason::other("enough"))),
    ];
    runtime().block_on(async |runtime| {
        for (name, end) in ends {
            let (pool, notes) = start(runtime, 2, 2, 100).await;
            // A key for each worker.
            let first = pool.keyed(&0).call(Note(0)).await.unwrap();
            let mut other = 1;
            while pool.keyed(&other).call(Note(0)).await.unwrap() == first {
                other += 1;
            }
            let [gate, shut] = [(); 2].map(|()| Arc::new(Semaphore::new(0)));
            for _ in 0..2 {
                pool.keyed(&0).send(Hold { gate: gate.clone(), fails: true }).unwrap();
                pool.keyed(&other).send(Hold { gate: shut.clone(), fails: false }).unwrap();
            }
            let mut any = Box::pin(pool.call(Note(7)));
            let mut of_the_key = Box::pin(pool.keyed(&0).deliver(Note(8)));
            assert!(poll_once(&mut any).is_pending() && poll_once(&mut of_the_key).is_pending());
            end(first, &gate);
            // The other worker is busy until the end, so only the next incarnation has room.
            let worker = any.await.unwrap();
            assert_ne!(worker, first, "{name}");
            match of_the_key.await {
                Ok(()) => {}
                Err(SendError::NoProcess(Note(back))) => assert_eq!(back, 8, "{name}"),
                Err(error) => panic!("{name}: {error}"),
            }
            shut.add_permits(2);
            eventually(|| pool.is_empty()).await;
            drop(notes);
        }
    });
}

#[test]
fn a_pool_without_a_worker_returns_the_messages_of_its_line() {
    /// The name, and the way to end the supervisor.
    type Row = (&'static str, fn(Address<throng::Supervisor>));
    let ends: [Row; 2] = [
        ("kill", |supervisor| supervisor.kill()),
        ("exit signal", |supervisor| supervisor.pid().exit(ExitReason::Shutdown)),
    ];
    runtime().block_on(async |runtime| {
        for (name, end) in ends {
            let (pool, supervisor, _gate) = pool(2, 1, 0);
            let supervisor = supervisor.start_async(runtime).await.unwrap();
            for number in 0..2 {
                pool.send(Note(number)).unwrap();
            }
            let mut delivery = Box::pin(pool.deliver(Note(2)));
            let mut call = Box::pin(key(&pool).call(Note(3)));
            assert!(poll_once(&mut delivery).is_pending() && poll_once(&mut call).is_pending());
            end(supervisor);
            let delivered = delivery.await;
            assert!(
                matches!(delivered, Err(SendError::NoProcess(Note(2)))),
                "{name}: {delivered:?}"
            );
            let called = call.await;
            assert!(matches!(called, Err(CallError::NoProcess(Note(3)))), "{name}: {called:?}");
        }
    });
}

#[test]
fn the_place_of_a_message_that_its_mailbox_drops_goes_to_the_line() {
    runtime().block_on(async |runtime| {
        let gate = Arc::new(Semaphore::new(0));
        let (pool, supervisor) = Pool::new(1, 1, || {
            let gate = gate.clone();
            ChildSpec::new(move || Clerk { gate: gate.clone(), numbers: Vec::new() })
                .mailbox(MailboxBound::new(1, Overflow::DropOldest))
        });
        supervisor.start_async(runtime).await.unwrap();
        gate.add_permits(1);
        let worker = pool.call(Note(0)).await.unwrap();
        // The worker is busy with a message that is not the pool's, and has taken it out of the mailbox.
        let shut = Arc::new(Semaphore::new(0));
        worker.send(Hold { gate: shut.clone(), fails: false }).unwrap();
        while runtime.info(worker).await.unwrap().mailbox_len > 0 {}
        pool.send(Note(2)).unwrap();
        let mut delivery = Box::pin(pool.deliver(Note(3)));
        assert!(poll_once(&mut delivery).is_pending());
        worker.send(Note(4)).unwrap();
        assert!(pool.is_empty(), "the pool's message has made room");
        shut.add_permits(1);
        gate.add_permits(2);
        delivery.await.unwrap();
        eventually(|| pool.is_empty()).await;
        assert_eq!(worker.numbers().await.unwrap(), [0, 4, 3]);
    });
}
