//! The order in which a process handles the messages of several senders.

use crate::{runtime, scaled};
use std::sync::mpsc;
use std::thread;
use throng::prelude::*;
use tokio::sync::oneshot;

/// Records the messages it receives, after the gate of a [`Wait`] has opened.
struct Scribe(Vec<u64>);
impl Process for Scribe {}

struct Wait(oneshot::Receiver<()>);
impl Message for Wait {
    type Reply = ();
}
impl Handle<Wait> for Scribe {
    async fn handle(&mut self, Wait(gate): Wait, _: &mut Context<Self>) {
        let _ = gate.await;
    }
}

#[derive(Clone)]
struct Note(u64);
impl Message for Note {
    type Reply = ();
}
impl Handle<Note> for Scribe {
    async fn handle(&mut self, Note(number): Note, _: &mut Context<Self>) {
        self.0.push(number);
    }
}

struct Read;
impl Message for Read {
    type Reply = Vec<u64>;
}
impl Handle<Read> for Scribe {
    async fn handle(&mut self, _: Read, _: &mut Context<Self>) -> Vec<u64> {
        std::mem::take(&mut self.0)
    }
}

/// Runs a closure in a turn, without waiting.
struct Speaker;
impl Process for Speaker {}
struct Run(Box<dyn FnOnce() + Send>);
impl Message for Run {
    type Reply = ();
}
impl Handle<Run> for Speaker {
    async fn handle(&mut self, Run(run): Run, _: &mut Context<Self>) {
        run();
    }
}

/// Runs `speak` in a handler, and returns the numbers that a scribe got from it. The scribe handles
/// them only after that handler has returned.
fn heard(speak: impl FnOnce(Address<Scribe>) + Send + 'static) -> Vec<u64> {
    let runtime = runtime();
    runtime.block_on(async |runtime| {
        let (open, gate) = oneshot::channel();
        let scribe = runtime.spawn(Scribe(Vec::new())).unwrap();
        scribe.send(Wait(gate)).unwrap();
        let speaker = runtime.spawn(Speaker).unwrap();
        speaker.call(Run(Box::new(move || speak(scribe)))).await.unwrap();
        open.send(()).unwrap();
        scribe.call(Read).await.unwrap()
    })
}

fn send(scribe: Address<Scribe>, numbers: std::ops::Range<u64>) {
    numbers.for_each(|number| scribe.send(Note(number)).unwrap());
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
        |scribe, number| scribe.recipient::<Note>().send(Note(number)).unwrap(),
        |scribe, number| futures_once(scribe.deliver(Note(number))),
        |scribe, number| [scribe].send_all(Note(number)).unwrap(),
        // The first poll of a call enqueues it.
        |scribe, number| futures_once(scribe.call(Note(number))),
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

/// Polls a future once and drops it.
fn futures_once<F: Future>(future: F) {
    let mut future = Box::pin(future);
    let mut task = std::task::Context::from_waker(std::task::Waker::noop());
    let _ = future.as_mut().poll(&mut task);
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
    let runtime = runtime();
    runtime.block_on(async |runtime| {
        let scribe = runtime.spawn(Scribe(Vec::new())).unwrap();
        let [first, second] = [(); 2].map(|()| runtime.spawn(Speaker).unwrap());
        for _ in 0..scaled(500) {
            let (done, dones) = oneshot::channel();
            first
                .send(Run(Box::new(move || {
                    send(scribe, 0..50);
                    let reply = Run(Box::new(move || {
                        send(scribe, 100..150);
                        let last = Run(Box::new(move || {
                            send(scribe, 200..250);
                            done.send(()).unwrap();
                        }));
                        first.send(last).unwrap();
                    }));
                    second.send(reply).unwrap();
                    send(scribe, 50..100);
                })))
                .unwrap();
            dones.await.unwrap();
            let heard = scribe.call(Read).await.unwrap();
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
    struct Ask(Address<Scribe>, Address<Speaker>);
    impl Message for Ask {
        type Reply = ();
    }
    struct Asker;
    impl Process for Asker {}
    impl Handle<Ask> for Asker {
        async fn handle(&mut self, Ask(scribe, other): Ask, _: &mut Context<Self>) {
            let (sender, receiver) = oneshot::channel();
            let (go_on, waits) = mpsc::channel::<()>();
            let run = move || {
                waits.recv().unwrap();
                send(scribe, 50..60);
                sender.send(()).unwrap();
            };
            other.send(Run(Box::new(run))).unwrap();
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
    }
    let runtime = runtime();
    runtime.block_on(async |runtime| {
        for _ in 0..scaled(200) {
            let (open, gate) = oneshot::channel();
            let scribe = runtime.spawn(Scribe(Vec::new())).unwrap();
            scribe.send(Wait(gate)).unwrap();
            let asker = runtime.spawn(Asker).unwrap();
            let other = runtime.spawn(Speaker).unwrap();
            asker.call(Ask(scribe, other)).await.unwrap();
            open.send(()).unwrap();
            assert_eq!(scribe.call(Read).await.unwrap(), (0..100).collect::<Vec<_>>());
            asker.kill();
            other.kill();
            scribe.kill();
        }
    });
}
