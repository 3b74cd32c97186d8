//! Sending, calling, order, deadlines.

use crate::{Add, AddSlowly, Counter, eventually, runtime, scaled};
use std::future::Future;
use std::task::Poll;
use std::time::Duration;
use throng::prelude::*;

/// Records the numbers it receives.
#[derive(Default)]
struct Log(Vec<u64>);
#[process]
impl Log {
    #[message(send)]
    async fn small(&mut self, number: u64) {
        if number.is_multiple_of(97) {
            tokio::task::yield_now().await;
        }
        self.0.push(number);
    }
    #[message]
    fn take(&mut self) -> Vec<u64> {
        std::mem::take(&mut self.0)
    }
    /// Owns memory, so that a lost or doubled message is noticed. Dropped if it is not handled.
    #[allow(clippy::boxed_local, reason = "it owns memory")]
    #[message(send)]
    fn large(&mut self, number: Box<u64>) {
        self.0.push(*number);
    }
    #[message]
    fn length(&mut self) -> usize {
        self.0.len()
    }
}

#[test]
fn a_turn_that_suspends_is_not_interleaved_with_others() {
    let runtime = runtime();
    let counter = runtime.spawn(Counter { count: 0 }).unwrap();
    runtime.block_on(async |_| {
        let slow = counter.call(AddSlowly(1, Duration::from_millis(30)));
        let quick = async {
            tokio::time::sleep(Duration::from_millis(5)).await;
            counter.call(Add(10)).await
        };
        let (slow, quick) = tokio::join!(slow, quick);
        assert_eq!((slow.unwrap(), quick.unwrap()), (1, 11));
    });
}

#[test]
fn a_call_times_out_from_anywhere_and_not_early() {
    struct Impatient(Address<Counter>);
    #[process]
    impl Impatient {
        #[message]
        async fn attempt(&mut self, time: Duration) -> (bool, Duration) {
            let begun = std::time::Instant::now();
            let slow = AddSlowly(1, Duration::from_millis(1_500));
            let outcome = self.0.call(slow).within(time).await;
            (matches!(outcome, Err(CallError::TimedOut { enqueued: true })), begun.elapsed())
        }
    }

    let runtime = runtime();
    let counter = runtime.spawn(Counter { count: 0 }).unwrap();
    let impatient = runtime.spawn(Impatient(counter)).unwrap();
    let limit = Duration::from_millis(20);
    runtime.block_on(async |_| {
        let (timed_out, waited) = impatient.attempt(limit).await.unwrap();
        assert!(timed_out && waited >= limit, "{waited:?}");
        let begun = std::time::Instant::now();
        let outcome = counter.call(Add(1)).within(limit).await;
        assert!(matches!(outcome, Err(CallError::TimedOut { enqueued: true })));
        assert!(begun.elapsed() >= limit);
        // The calls that timed out are handled all the same: the slow call, the second, then this.
        assert_eq!(counter.call(Add(1)).await.unwrap(), 3);
    });
}

#[test]
fn many_calls_at_once_in_one_turn() {
    struct Fan(Vec<Address<Counter>>);
    #[process]
    impl Fan {
        #[message]
        async fn question(&mut self) -> u64 {
            let calls: Vec<_> =
                self.0.iter().map(|counter| tokio::spawn(counter.call(Add(1)))).collect();
            let mut sum = 0;
            for call in calls {
                sum += call.await.unwrap().unwrap();
            }
            let (a, b) = tokio::join!(self.0[0].call(Add(1)), self.0[1].call(Add(1)));
            sum + a.unwrap() + b.unwrap()
        }
    }

    let runtime = runtime();
    let size = scaled(1_000).min(100);
    let counters: Vec<_> =
        (0..size).map(|count| runtime.spawn(Counter { count }).unwrap()).collect();
    let fan = runtime.spawn(Fan(counters)).unwrap();
    let sum = runtime.block_on(async |_| fan.question().await).unwrap();
    assert_eq!(sum, (1..=size).sum::<u64>() + 2 + 3);
}

#[test]
fn a_cancelled_call_is_handled_and_its_reply_dropped() {
    let runtime = runtime();
    let counter = runtime.spawn(Counter { count: 0 }).unwrap();
    runtime.block_on(async |_| {
        for round in 0..100 {
            let mut call = Box::pin(counter.call(Add(1)));
            // The first poll sends the call. The drop is before its turn, during it, or after.
            std::future::poll_fn(|cx| Poll::Ready(call.as_mut().poll(cx).is_ready())).await;
            if round % 2 == 0 {
                tokio::task::yield_now().await;
            }
        }
        assert_eq!(counter.call(Add(0)).await.unwrap(), 100);
    });
}

#[test]
#[cfg_attr(miri, ignore = "Miri has no sockets")]
fn sockets_and_timers_of_tokio_work_in_handlers() {
    use tokio::net::{TcpListener, TcpStream};
    struct Probe;
    #[process]
    impl Probe {
        #[message]
        async fn round_trip(&mut self) -> std::io::Result<bool> {
            let listener = TcpListener::bind("127.0.0.1:0").await?;
            let address = listener.local_addr()?;
            let (accepted, connected) =
                tokio::join!(listener.accept(), TcpStream::connect(address));
            tokio::time::sleep(Duration::from_millis(1)).await;
            Ok(accepted?.1 == connected?.local_addr()?)
        }
    }
    let runtime = runtime();
    let probe = runtime.spawn(Probe).unwrap();
    assert!(runtime.block_on(async |_| probe.round_trip().await).unwrap().unwrap());
}

#[test]
fn a_runtime_attaches_to_a_running_tokio_runtime() {
    assert!(Runtime::builder().attach().is_err());
    let tokio = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    tokio.block_on(async {
        let runtime = Runtime::builder().workers(1).attach().unwrap();
        let counter = runtime.spawn(Counter { count: 1 }).unwrap();
        assert_eq!(counter.call(Add(1)).await.unwrap(), 2);
        assert_eq!(counter.call(AddSlowly(1, Duration::from_millis(2))).await.unwrap(), 3);
    });
}

/// Long runs of messages of a kind share a block, which must not change the order.
#[test]
fn floods_calls_and_other_messages_keep_their_order() {
    struct Writer(Address<Log>);
    #[process]
    impl Writer {
        #[message]
        async fn write(&mut self, count: u64) {
            let mut number = 0;
            let mut next = || {
                number += 1;
                number
            };
            for round in 0..count {
                // Runs of several lengths: too short for a train, longer, and more than a train holds.
                for _ in 0..(round * 37 % 300) {
                    self.0.small(next()).unwrap();
                }
                for _ in 0..(round * 11 % 40) {
                    self.0.large(Box::new(next())).unwrap();
                }
                if round % 3 == 0 {
                    let sent = usize::try_from(next() - 1).unwrap();
                    let length = self.0.length().within(Duration::from_secs(900)).await;
                    assert_eq!(length.unwrap(), sent);
                    self.0.small(sent as u64 + 1).unwrap();
                }
            }
        }
    }

    let runtime = runtime();
    let log = runtime.spawn(Log::default()).unwrap();
    let writer = runtime.spawn(Writer(log)).unwrap();
    let numbers = runtime.block_on(async |_| {
        writer.write(scaled(1_000).max(12)).within(Duration::from_secs(900)).await.unwrap();
        log.take().await.unwrap()
    });
    assert!(numbers.len() > 1_000);
    assert_eq!(numbers, (1..=numbers.len() as u64).collect::<Vec<_>>());
}

#[test]
fn a_flood_to_a_process_that_exits_is_handled_handed_back_or_dropped() {
    use std::sync::Arc;
    struct Fragile(u64);
    #[process]
    impl Fragile {
        #[message(send)]
        fn token(&mut self, _: Arc<()>, cx: &mut Context<Self>) {
            self.0 -= 1;
            if self.0 == 0 {
                cx.stop(ExitReason::Normal);
            }
        }
    }
    struct Flooder;
    #[process]
    impl Flooder {
        #[message]
        fn flood(&mut self, to: Address<Fragile>, token: Arc<()>) -> u64 {
            // Sends until a message is refused: the receiver exits in the middle of a train.
            (0..).take_while(|_| to.token(token.clone()).is_ok()).count() as u64
        }
    }

    let runtime = runtime();
    let token = Arc::new(());
    let least = scaled(5_000).max(200);
    runtime.block_on(async |runtime| {
        let fragile = runtime.spawn(Fragile(least)).unwrap();
        let flooder = runtime.spawn(Flooder).unwrap();
        let flood = flooder.flood(fragile, token.clone());
        let sent = flood.within(Duration::from_secs(60)).await.unwrap();
        assert!(sent >= least);
        eventually(|| runtime.process_count() <= 1).await;
    });
    drop(runtime);
    assert_eq!(Arc::strong_count(&token), 1, "a message was not dropped");
}

#[test]
fn wakers_that_panic_harm_no_other_process() {
    use std::panic::{AssertUnwindSafe, catch_unwind};
    use std::pin::pin;
    use std::sync::Arc;
    use std::task::{Wake, Waker};

    struct WakePanics;
    impl Wake for WakePanics {
        fn wake(self: Arc<Self>) {
            panic!("in wake");
        }
    }
    struct DropPanics;
    impl Wake for DropPanics {
        fn wake(self: Arc<Self>) {}
    }
    impl Drop for DropPanics {
        fn drop(&mut self) {
            panic!("in drop");
        }
    }

    let runtime = Runtime::builder().workers(1).start().unwrap();
    let counter = runtime.spawn(Counter { count: 0 }).unwrap();
    let _tokio = runtime.tokio().enter();
    // Long deadlines: an expired deadline would call the waker on a thread of tokio, which aborts.
    let never = Duration::from_secs(86_400);
    let slow = AddSlowly(1, Duration::from_millis(5));
    let mut woken = pin!(counter.call(slow).within(never));
    let waker = Waker::from(Arc::new(WakePanics));
    assert!(woken.as_mut().poll(&mut std::task::Context::from_waker(&waker)).is_pending());

    let mut renewed = pin!(counter.call(Add(1)).within(never));
    {
        let waker = Waker::from(Arc::new(DropPanics));
        assert!(renewed.as_mut().poll(&mut std::task::Context::from_waker(&waker)).is_pending());
        // This is not the last clone: the call has another.
    }
    let mut harmless = std::task::Context::from_waker(Waker::noop());
    // Whether the panic unwinds to here depends on which clone of the waker is the last.
    let _ = catch_unwind(AssertUnwindSafe(|| renewed.as_mut().poll(&mut harmless)));

    let sum = runtime.block_on(async |_| counter.call(Add(1)).await).unwrap();
    assert_eq!(sum, 3, "a call was not handled");
}

#[test]
fn floods_of_messages_of_any_layout() {
    #[repr(align(4096))]
    struct Ping;
    #[repr(align(128))]
    struct Pong(u8);
    struct Empty;
    impl Message for Ping {
        type Reply = ();
    }
    impl Message for Pong {
        type Reply = ();
    }
    impl Message for Empty {
        type Reply = ();
    }
    impl Handle<Ping> for Counter {
        async fn handle(&mut self, _: Ping, _: &mut Context<Self>) {
            self.count += 1;
        }
    }
    impl Handle<Pong> for Counter {
        async fn handle(&mut self, pong: Pong, _: &mut Context<Self>) {
            self.count += u64::from(pong.0);
        }
    }
    impl Handle<Empty> for Counter {
        async fn handle(&mut self, _: Empty, _: &mut Context<Self>) {
            self.count += 1;
        }
    }
    struct Flooder;
    #[process]
    impl Flooder {
        #[message]
        fn flood(&mut self, to: Address<Counter>) {
            (0..200).for_each(|_| to.send(Ping).unwrap());
            (0..200).for_each(|_| to.send(Pong(1)).unwrap());
            (0..200).for_each(|_| to.send(Empty).unwrap());
        }
    }
    let runtime = runtime();
    let counter = runtime.spawn(Counter { count: 0 }).unwrap();
    let flooder = runtime.spawn(Flooder).unwrap();
    runtime.block_on(async |_| {
        flooder.flood(counter).await.unwrap();
        assert_eq!(counter.call(Add(0)).await.unwrap(), 600);
    });
}
