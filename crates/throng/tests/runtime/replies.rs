//! Answers that are deferred, passed on, or dropped.

use crate::{Counter, Fail, in_turn, runtime, scaled, spawn_async};
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::{Arc, Mutex, mpsc};
use std::task::Poll;
use std::time::Duration;
use throng::prelude::*;

/// Keeps questions until it is told to answer or to drop them.
#[derive(Default)]
struct Oracle(Vec<(u64, ReplyTo<u64>)>);
#[process]
impl Oracle {
    #[message(send, derive(Debug))]
    fn double(&mut self, number: u64, reply: ReplyTo<u64>) {
        self.0.push((number, reply));
    }
    /// Answers all questions, and returns the number of answers that are awaited.
    #[message]
    fn answer_all(&mut self) -> usize {
        self.0.drain(..).filter_map(|(number, reply)| reply.send(2 * number).ok()).count()
    }
    #[message]
    fn drop_all(&mut self) -> usize {
        self.0.drain(..).count()
    }
    #[message]
    fn panic(&mut self) {
        panic!("on purpose");
    }
    #[message]
    fn count_awaited(&mut self) -> usize {
        self.0.iter().filter(|(_, reply)| reply.is_awaited()).count()
    }
}

/// Forwards questions without waiting.
struct Front(Recipient<Double>);
impl Process for Front {}
impl Handle<Double> for Front {
    async fn handle(&mut self, question: Double, _: &mut Context<Self>) {
        let _ = self.0.send(question);
    }
}

/// Asks `count` questions, and returns when the oracle has all of them.
async fn ask(oracle: Address<Oracle>, count: u64) -> Vec<tokio::task::JoinHandle<Answer>> {
    let asked = (0..count)
        .map(|number| tokio::spawn(oracle.ask(move |reply| Double { number, reply })))
        .collect();
    while oracle.count_awaited().await.unwrap() < usize::try_from(count).unwrap() {
        tokio::task::yield_now().await;
    }
    asked
}
type Answer = Result<u64, CallError<Double>>;

#[test]
fn questions_are_answered_later_and_other_messages_come_between() {
    let runtime = runtime();
    let count = scaled(500);
    runtime.block_on(async |runtime| {
        let oracle = runtime.spawn(Oracle::default()).unwrap();
        let asked = ask(oracle, count).await;
        assert_eq!(oracle.answer_all().await.unwrap() as u64, count);
        for (number, answer) in (0..).zip(asked) {
            assert_eq!(answer.await.unwrap().unwrap(), 2 * number);
        }
    });
}

#[test]
fn a_question_that_is_dropped_is_an_error_at_once() {
    runtime().block_on(async |runtime| {
        let oracle = runtime.spawn(Oracle::default()).unwrap();
        let asked = ask(oracle, 3).await;
        assert_eq!(oracle.drop_all().await.unwrap(), 3);
        for answer in asked {
            assert!(matches!(answer.await.unwrap(), Err(CallError::Unanswered)));
        }
        // The same error if the process dies with the questions in its state or in its mailbox.
        let asked = ask(oracle, 3).await;
        let late = oracle.ask(|reply| Double { number: 1, reply });
        let (died, late) = tokio::join!(oracle.panic(), late);
        assert!(matches!(died, Err(CallError::Died(ExitReason::Panicked(_)))));
        // If the caller has run the panicking turn itself, the question comes too late.
        assert!(matches!(late, Err(CallError::Unanswered | CallError::NoProcess(_))));
        for answer in asked {
            assert!(matches!(answer.await.unwrap(), Err(CallError::Unanswered)));
        }
        // A question to a dead process comes back.
        let refused = oracle.ask(|reply| Double { number: 7, reply }).await;
        let Err(CallError::NoProcess(Double { number: 7, reply })) = refused else {
            panic!("not handed back: {refused:?}");
        };
        assert!(!reply.is_awaited());
        assert_eq!(reply.send(14), Err(14));
    });
}

#[test]
fn a_question_that_is_passed_on_is_answered_to_the_asker() {
    runtime().block_on(async |runtime| {
        let oracle = runtime.spawn(Oracle::default()).unwrap();
        let middle = runtime.spawn(Front(oracle.recipient())).unwrap();
        let front = runtime.spawn(Front(middle.into())).unwrap();
        let asked = tokio::spawn(front.ask(|reply| Double { number: 4, reply }));
        while oracle.answer_all().await.unwrap() == 0 {
            tokio::task::yield_now().await;
        }
        assert_eq!(asked.await.unwrap().unwrap(), 8);
    });
}

#[test]
fn an_asker_that_gives_up_gets_no_answer_and_the_answer_comes_back() {
    runtime().block_on(async |runtime| {
        let oracle = runtime.spawn(Oracle::default()).unwrap();
        let late = oracle.ask(|reply| Double { number: 1, reply });
        let late = late.within(Duration::from_millis(5)).await;
        assert!(matches!(late, Err(CallError::TimedOut { enqueued: true })));
        // A question whose future is never polled is not sent.
        drop(oracle.ask(|reply| Double { number: 2, reply }));
        assert_eq!(oracle.count_awaited().await.unwrap(), 0);
        assert_eq!(oracle.answer_all().await.unwrap(), 0, "no asker was left for the answer");
        assert_eq!(oracle.drop_all().await.unwrap(), 0);
    });
}

#[test]
fn processes_ask_each_other_and_async_processes_answer() {
    struct Get(ReplyTo<String>);
    impl Message for Get {
        type Reply = ();
    }
    runtime().block_on(async |runtime| {
        let (numbers, _) = spawn_async(runtime, |mut inbox| async move {
            for number in 1_u64.. {
                let Get(reply) = inbox.recv().await;
                if number % 3 == 0 {
                    tokio::task::yield_now().await;
                }
                let _ = reply.send(number.to_string());
            }
        });
        let times = scaled(2_000);
        let last = in_turn(runtime, async move {
            for _ in 1..times {
                numbers.ask(Get).await.unwrap();
            }
            numbers.ask(Get).await.unwrap()
        });
        assert_eq!(last.await, times.to_string());
    });
}

#[test]
fn calls_and_questions_to_oneself_fail_at_once_with_the_message() {
    #[derive(Default)]
    struct Narcissus;
    #[process]
    impl Narcissus {
        #[message(name = Call)]
        async fn call_oneself(&mut self, cx: &mut Context<Self>) -> bool {
            let own = cx.address();
            matches!(own.call_oneself().await, Err(CallError::Cycle(Some(Call))))
                && matches!(own.recipient().call(Call).await, Err(CallError::Cycle(Some(Call))))
                && matches!(
                    own.ask(|reply| Double { number: 1, reply }).await,
                    Err(CallError::Cycle(Some(Double { number: 1, .. })))
                )
        }
    }
    impl Handle<Double> for Narcissus {
        async fn handle(&mut self, Double { number, reply }: Double, _: &mut Context<Self>) {
            let _ = reply.send(2 * number);
        }
    }
    let runtime = runtime();
    let process = runtime.spawn(Narcissus).unwrap();
    let (called, asked) = runtime.block_on(async |_| {
        let called = process.call_oneself().within(Duration::from_secs(60)).await;
        (called, process.ask(|reply| Double { number: 2, reply }).await)
    });
    assert!(called.unwrap());
    assert_eq!(asked.unwrap(), 4, "a failed call was left in the mailbox");
}

/// A reply whose drop would panic is dropped only by its owner, whether it is awaited or not.
#[test]
fn answers_of_any_kind_are_dropped_once() {
    struct Vicious;
    impl Drop for Vicious {
        fn drop(&mut self) {
            panic!("in drop");
        }
    }
    struct Get(ReplyTo<Vicious>);
    impl Message for Get {
        type Reply = ();
    }
    impl Handle<Get> for Counter {
        async fn handle(&mut self, Get(reply): Get, _: &mut Context<Self>) {
            if let Err(unwanted) = reply.send(Vicious) {
                std::mem::forget(unwanted);
            }
        }
    }
    let runtime = runtime();
    let counter = runtime.spawn(Counter::default()).unwrap();
    runtime.block_on(async |_| {
        let answer = counter.ask(Get).await;
        assert!(answer.map(std::mem::forget).is_ok());
        assert!(counter.call(Fail("on purpose")).await.is_err());
    });
}

/// Two threads detach and answer, while askers wait, change to another task, or give up.
#[test]
fn detached_questions_are_answered_while_their_askers_move_or_give_up() {
    type Kept = (u64, ReplyTo<u64>);
    struct Post(mpsc::Sender<Kept>);
    impl Process for Post {}
    impl Handle<Double> for Post {
        async fn handle(&mut self, Double { number, reply }: Double, _: &mut Context<Self>) {
            self.0.send((number, reply)).unwrap();
        }
    }
    let count = scaled(30_000);
    let (post, posted) = mpsc::channel::<Kept>();
    let posted = Arc::new(Mutex::new(posted));
    let answering = [(); 2].map(|()| {
        let posted = posted.clone();
        std::thread::spawn(move || {
            let mut awaited = 0;
            loop {
                let next = posted.lock().unwrap().recv();
                let Ok((number, reply)) = next else { return awaited };
                reply.detach();
                awaited += u64::from(reply.send(2 * number).is_ok());
            }
        })
    });
    let runtime = runtime();
    let answered = runtime.block_on(async |runtime| {
        let post = runtime.spawn(Post(post)).unwrap();
        let askers: Vec<_> = (0..count)
            .map(|number| {
                tokio::spawn(async move {
                    let mut ask = post.ask(move |reply| Double { number, reply });
                    let first = poll_fn(|cx| Poll::Ready(Pin::new(&mut ask).poll(cx))).await;
                    let answer = match (first, number % 3) {
                        (Poll::Ready(answer), _) => answer,
                        (Poll::Pending, 0) => return false,
                        (Poll::Pending, 1) => tokio::spawn(ask).await.unwrap(),
                        (Poll::Pending, _) => ask.await,
                    };
                    assert!(matches!(answer, Ok(answer) if answer == 2 * number));
                    true
                })
            })
            .collect();
        let mut answered = 0;
        for asker in askers {
            answered += u64::from(asker.await.unwrap());
        }
        post.stop();
        answered
    });
    drop(runtime);
    let awaited: u64 = answering.map(|thread| thread.join().unwrap()).into_iter().sum();
    // An asker may give up after its answer was sent.
    assert!(awaited >= answered && answered >= count / 3 * 2, "{awaited} {answered}");
}
