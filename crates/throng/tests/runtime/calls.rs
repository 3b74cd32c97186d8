//! Sending, calling, order, deadlines.

use crate::{Add, AddSlowly, Counter, DropPanics, eventually, in_turn, runtime, scaled};
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
fn a_call_times_out_from_anywhere_and_not_early() {
    runtime().block_on(async |runtime| {
        let counter = runtime.spawn(Counter::default()).unwrap();
        let limit = Duration::from_millis(20);
        let impatient = async move {
            let begun = std::time::Instant::now();
            let slow = AddSlowly(1, Duration::from_millis(1_500));
            let outcome = counter.call(slow).within(limit).await;
            (matches!(outcome, Err(CallError::TimedOut { enqueued: true })), begun.elapsed())
        };
        let (timed_out, waited) = in_turn(runtime, impatient).await;
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
    runtime().block_on(async |runtime| {
        let size = scaled(1_000).min(100);
        let counters: Vec<_> =
            (0..size).map(|count| runtime.spawn(Counter { count }).unwrap()).collect();
        let fan = async move {
            let calls: Vec<_> =
                counters.iter().map(|counter| tokio::spawn(counter.call(Add(1)))).collect();
            let mut sum = 0;
            for call in calls {
                sum += call.await.unwrap().unwrap();
            }
            let (a, b) = tokio::join!(counters[0].call(Add(1)), counters[1].call(Add(1)));
            sum + a.unwrap() + b.unwrap()
        };
        assert_eq!(in_turn(runtime, fan).await, (1..=size).sum::<u64>() + 2 + 3);
    });
}

#[test]
fn a_cancelled_call_is_handled_and_its_reply_dropped() {
    let runtime = runtime();
    let counter = runtime.spawn(Counter::default()).unwrap();
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
    let round_trip = async {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        let (accepted, connected) = tokio::join!(listener.accept(), TcpStream::connect(address));
        tokio::time::sleep(Duration::from_millis(1)).await;
        std::io::Result::Ok(accepted?.1 == connected?.local_addr()?)
    };
    assert!(runtime().block_on(async |runtime| in_turn(runtime, round_trip).await).unwrap());
}

/// Long runs of messages of a kind share a block, which must not change the order.
#[test]
fn floods_calls_and_other_messages_keep_their_order() {
    async fn write(log: Address<Log>, count: u64) {
        let mut number = 0;
        let mut next = || {
            number += 1;
            number
        };
        for round in 0..count {
            // Runs of several lengths: too short for a train, longer, and more than a train holds.
            for _ in 0..(round * 37 % 300) {
                log.small(next()).unwrap();
            }
            for _ in 0..(round * 11 % 40) {
                log.large(Box::new(next())).unwrap();
            }
            if round % 3 == 0 {
                let sent = usize::try_from(next() - 1).unwrap();
                let length = log.length().within(Duration::from_secs(900)).await;
                assert_eq!(length.unwrap(), sent);
                log.small(sent as u64 + 1).unwrap();
            }
        }
    }

    runtime().block_on(async |runtime| {
        let log = runtime.spawn(Log::default()).unwrap();
        in_turn(runtime, write(log, scaled(1_000).max(12))).await;
        let numbers = log.take().await.unwrap();
        assert!(numbers.len() > 1_000);
        assert_eq!(numbers, (1..=numbers.len() as u64).collect::<Vec<_>>());
    });
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
    let runtime = runtime();
    let token = Arc::new(());
    let least = scaled(5_000).max(200);
    runtime.block_on(async |runtime| {
        let fragile = runtime.spawn(Fragile(least)).unwrap();
        let floods = token.clone();
        // Sends until a message is refused: the receiver exits in the middle of a train.
        let flood =
            async move { (0..).take_while(|_| fragile.token(floods.clone()).is_ok()).count() };
        assert!(in_turn(runtime, flood).await as u64 >= least);
        eventually(|| runtime.process_count() == 0).await;
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

    let runtime = Runtime::builder().workers(1).start().unwrap();
    let counter = runtime.spawn(Counter::default()).unwrap();
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

#[repr(align(4096))]
struct Page;
#[repr(align(128))]
struct Line(u8);

#[process(manual)]
impl Counter {
    #[message(send)]
    fn take_page(&mut self, _: Page) {
        self.count += 1;
    }
    #[message(send)]
    fn take_line(&mut self, line: Line) {
        self.count += u64::from(line.0);
    }
    #[message(send)]
    fn take_nothing(&mut self) {
        self.count += 1;
    }
}

#[test]
fn floods_of_messages_of_any_layout() {
    runtime().block_on(async |runtime| {
        let counter = runtime.spawn(Counter::default()).unwrap();
        in_turn(runtime, async move {
            (0..200).for_each(|_| counter.take_page(Page).unwrap());
            (0..200).for_each(|_| counter.take_line(Line(1)).unwrap());
            (0..200).for_each(|_| counter.take_nothing().unwrap());
        })
        .await;
        assert_eq!(counter.call(Add(0)).await.unwrap(), 600);
    });
}
