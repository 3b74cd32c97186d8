//! The order in which a process handles the messages of several senders.

use crate::{Actor, Await, in_turn, poll_once, runtime, scaled};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;
use throng::prelude::*;
use tokio::sync::oneshot;

/// Records the messages it receives, after a gate has opened that an [`Await`] has it wait for.
struct Scribe(Vec<u64>);
#[process]
impl Scribe {
    #[message(derive(Clone))]
    fn note(&mut self, number: u64) {
        self.0.push(number);
    }
    #[message]
    fn read(&mut self) -> Vec<u64> {
        std::mem::take(&mut self.0)
    }
    /// Another type of message with a number.
    #[message(send)]
    fn remark(&mut self, number: u64) {
        self.0.push(number);
    }
    /// A message that no train takes.
    #[message(send)]
    fn tome(&mut self, pages: [u64; 40]) {
        self.0.push(pages[0]);
    }
}

/// Runs `speak` in a handler, and returns the numbers that a scribe got from it. The scribe handles
/// them only after that handler has returned.
fn heard(speak: impl FnOnce(Address<Scribe>) + Send + 'static) -> Vec<u64> {
    runtime().block_on(async |runtime| {
        let (open, gate) = oneshot::channel();
        let scribe = runtime.spawn(Scribe(Vec::new())).unwrap();
        scribe.send(Await(gate)).unwrap();
        in_turn(runtime, async move { speak(scribe) }).await;
        open.send(()).unwrap();
        scribe.read().await.unwrap()
    })
}

fn send(scribe: Address<Scribe>, numbers: std::ops::Range<u64>) {
    numbers.for_each(|number| scribe.send_note(number).unwrap());
}

#[test]
fn messages_from_a_handlers_scoped_thread_keep_their_place() {
    for before in [0, 1, 7, 8, 9, 12, 200] {
        let heard = heard(move |scribe| {
            let mut next = 0;
            for _ in 0..3 {
                send(scribe, next..next + before);
                next += before;
                thread::scope(|scope| scope.spawn(|| send(scribe, next..next + 1)).join().unwrap());
                next += 1;
            }
            send(scribe, next..next + before);
        });
        assert_eq!(heard, (0..4 * before + 3).collect::<Vec<_>>(), "{before} before");
    }
}

#[test]
fn messages_from_a_handlers_thread_keep_their_place_for_every_way_to_send() {
    type Way = fn(Address<Scribe>, u64);
    let ways: [Way; 4] = [
        |scribe, number| scribe.recipient().send(Note { number }).unwrap(),
        |scribe, number| drop(poll_once(&mut Box::pin(scribe.deliver(Note { number })))),
        |scribe, number| [scribe].send_all(Note { number }).unwrap(),
        // The first poll of a call enqueues it.
        |scribe, number| drop(poll_once(&mut Box::pin(scribe.note(number)))),
    ];
    for way in ways {
        let heard = heard(move |scribe| {
            send(scribe, 0..12);
            let tokio = tokio::runtime::Handle::current();
            let run = move || {
                let _inside = tokio.enter();
                way(scribe, 12);
            };
            thread::scope(|scope| scope.spawn(run).join().unwrap());
            send(scribe, 13..16);
        });
        assert_eq!(heard, (0..16).collect::<Vec<_>>());
    }
}

#[test]
fn messages_from_a_running_thread_keep_their_place() {
    let heard = heard(|scribe| {
        let (say, orders) = mpsc::channel::<u64>();
        let (done, dones) = mpsc::channel();
        thread::scope(|scope| {
            scope.spawn(move || {
                for number in orders {
                    send(scribe, number..number + 1);
                    done.send(()).unwrap();
                }
            });
            for round in 0..scaled(50) {
                let first = round * 20;
                send(scribe, first..first + 19);
                say.send(first + 19).unwrap();
                dones.recv().unwrap();
            }
            drop(say);
        });
    });
    assert_eq!(heard, (0..scaled(50) * 20).collect::<Vec<_>>());
}

/// A process sends to another process, in the midst of a flood to a third.
#[test]
fn messages_keep_the_causal_order_of_messages_between_their_senders() {
    runtime().block_on(async |runtime| {
        let scribe = runtime.spawn(Scribe(Vec::new())).unwrap();
        let [first, second] = [(); 2].map(|()| runtime.spawn(Actor).unwrap());
        for _ in 0..scaled(500) {
            let (done, dones) = oneshot::channel();
            let last = async move {
                send(scribe, 200..250);
                done.send(()).unwrap();
            };
            let reply = async move {
                send(scribe, 100..150);
                first.send(Await(last)).unwrap();
            };
            let begin = async move {
                send(scribe, 0..50);
                second.send(Await(reply)).unwrap();
                send(scribe, 50..100);
            };
            first.send(Await(begin)).unwrap();
            dones.await.unwrap();
            let heard = scribe.read().await.unwrap();
            assert_eq!(heard.len(), 200);
            let place = |number| heard.iter().position(|&heard| heard == number).unwrap();
            assert!(
                place(49) < place(100),
                "messages that the second process knew of were overtaken"
            );
            assert!(place(99) < place(200) && place(149) < place(200));
            for range in [0..100, 100..150, 200..250] {
                assert!(heard.iter().filter(|number| range.contains(*number)).is_sorted());
            }
        }
    });
}

/// A handler waits for another process by a channel of tokio, unknown to throng.
#[test]
fn messages_keep_the_causal_order_of_a_foreign_channel() {
    async fn question(scribe: Address<Scribe>, other: Address<Actor>) {
        let (sender, receiver) = oneshot::channel();
        let (go_on, waits) = mpsc::channel::<()>();
        let run = async move {
            waits.recv().unwrap();
            send(scribe, 50..60);
            sender.send(()).unwrap();
        };
        other.send(Await(run)).unwrap();
        send(scribe, 0..50);
        // Lets the other process continue as soon as this handler waits, and not before.
        let mut go_on = Some(go_on);
        let mut receiver = std::pin::pin!(receiver);
        std::future::poll_fn(|task| {
            let polled = receiver.as_mut().poll(task);
            if let Some(go_on) = go_on.take() {
                assert!(polled.is_pending());
                go_on.send(()).unwrap();
            }
            polled
        })
        .await
        .unwrap();
        send(scribe, 60..100);
    }
    runtime().block_on(async |runtime| {
        for _ in 0..scaled(200) {
            let (open, gate) = oneshot::channel();
            let scribe = runtime.spawn(Scribe(Vec::new())).unwrap();
            scribe.send(Await(gate)).unwrap();
            let other = runtime.spawn(Actor).unwrap();
            in_turn(runtime, question(scribe, other)).await;
            open.send(()).unwrap();
            assert_eq!(scribe.read().await.unwrap(), (0..100).collect::<Vec<_>>());
            other.kill();
            scribe.kill();
        }
    });
}

/// Tells each of the scribes the numbers of all rounds.
async fn tell(scribes: Vec<Address<Scribe>>, rounds: u64, every: u64, way: Way) {
    for number in 0..rounds {
        let special = number % every == 0;
        for &scribe in &scribes {
            match way {
                Way::OtherType if special => scribe.remark(number).unwrap(),
                Way::NoTrain if special => scribe.tome([number; 40]).unwrap(),
                Way::Recipient if special => scribe.recipient().send(Note { number }).unwrap(),
                Way::Call if special => {
                    scribe.note(number).within(Duration::from_secs(120)).await.unwrap();
                }
                Way::UnawaitedCall if special => {
                    drop(poll_once(&mut Box::pin(scribe.note(number))))
                }
                Way::FromAThread if special => {
                    let send = move || scribe.send_note(number).unwrap();
                    thread::scope(|scope| scope.spawn(send).join().unwrap());
                }
                _ => scribe.send_note(number).unwrap(),
            }
        }
        if special && matches!(way, Way::AfterASuspension) {
            tokio::task::yield_now().await;
        }
    }
}

#[derive(Clone, Copy, Debug)]
enum Way {
    Send,
    OtherType,
    NoTrain,
    Recipient,
    Call,
    UnawaitedCall,
    AfterASuspension,
    FromAThread,
}

/// Crosses the number of receivers of a turn with the ways in which a message can come between the
/// cars of their trains. The receivers that wait get all messages at once; the others take them
/// while they are sent.
#[test]
fn the_messages_of_a_turn_to_many_processes_keep_their_order() {
    use Way::*;
    let ways =
        [Send, OtherType, NoTrain, Recipient, Call, UnawaitedCall, AfterASuspension, FromAThread];
    // From 64 receivers to 131,072 the table of streaks grows.
    let counts: &[usize] = if cfg!(miri) { &[1, 3] } else { &[1, 2, 3, 5, 40, 70, 1025] };
    for &count in counts {
        for way in ways {
            for waits in [false, true] {
                let calls = matches!(way, Call);
                let is_slow = calls || matches!(way, FromAThread);
                if (calls && waits) || (is_slow && count > 40) {
                    continue;
                }
                narrate(count, way, waits);
            }
        }
    }
    let most = if cfg!(miri) { 70 } else { 140_000 };
    narrate(most, OtherType, true);
}

fn narrate(count: usize, way: Way, waits: bool) {
    let rounds = match count {
        _ if cfg!(miri) => 25,
        0..100 => 150,
        100..10_000 => 25,
        _ => 12,
    };
    runtime().block_on(async |runtime| {
        let scribes: Vec<_> =
            (0..count).map(|_| runtime.spawn(Scribe(Vec::new())).unwrap()).collect();
        let mut gates = Vec::new();
        if waits {
            for scribe in &scribes {
                let (open, gate) = oneshot::channel();
                scribe.send(Await(gate)).unwrap();
                gates.push(open);
            }
        }
        in_turn(runtime, tell(scribes.clone(), rounds, 7, way)).await;
        gates.into_iter().for_each(|open| open.send(()).unwrap());
        for scribe in scribes {
            let heard = scribe.read().await.unwrap();
            assert!(heard.iter().copied().eq(0..rounds), "{way:?} to {count}, {waits}: {heard:?}");
        }
    });
}

#[test]
fn a_receiver_that_exits_among_many_hands_its_messages_back() {
    runtime().block_on(async |runtime| {
        let scribes: Vec<_> = (0..3).map(|_| runtime.spawn(Scribe(Vec::new())).unwrap()).collect();
        let told = scribes.clone();
        in_turn(runtime, async move {
            for number in 0..200 {
                for (index, scribe) in told.iter().enumerate() {
                    let sent = scribe.send_note(number);
                    if index != 1 || number <= 100 {
                        sent.unwrap();
                    } else if let Err(refused) = sent {
                        assert_eq!(refused.into_message().number, number);
                    }
                }
                if number == 100 {
                    told[1].kill();
                }
            }
        })
        .await;
        assert!(scribes[1].read().await.is_err());
        for scribe in [scribes[0], scribes[2]] {
            assert!(scribe.read().await.unwrap().into_iter().eq(0..200));
        }
    });
}
