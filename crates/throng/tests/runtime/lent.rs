//! Whatever user code is lent by `&mut` may be swapped with another's, by safe code alone. Two turns meet on one
//! stack where a turn drives a simulation, which runs the turns of other processes inside it.

use crate::spawn_async;
use scoped_tls::scoped_thread_local;
use std::cell::Cell;
use std::sync::{Arc, Mutex};
use throng::prelude::*;
use throng::{AsyncProcess, Turn, sim};

struct Word(Box<u64>);
impl Message for Word {
    type Reply = ();
}

scoped_thread_local!(static OTHER: Cell<AsyncProcess<Word>>);

/// In the receive of a process of the simulation: swaps its state with that which is lent.
struct Swap;
impl Turn<AsyncProcess<Word>> for Swap {
    type Reply = ();

    async fn run(self, state: &mut AsyncProcess<Word>, cx: &mut Context<AsyncProcess<Word>>) {
        OTHER.with(|other| other.swap(Cell::from_mut(state)));
        state.handle(Word(Box::new(2)), cx).await;
    }
}

/// In the receive of a real process: lends its state to a simulation, and goes on with what it gets back.
struct Lend;
impl Turn<AsyncProcess<Word>> for Lend {
    type Reply = Vec<u64>;

    async fn run(
        self,
        state: &mut AsyncProcess<Word>,
        cx: &mut Context<AsyncProcess<Word>>,
    ) -> Vec<u64> {
        let heard = Arc::new(Mutex::new(Vec::new()));
        OTHER.set(Cell::from_mut(state), || {
            sim::replay(0, |sim| {
                let hears = heard.clone();
                async move {
                    let (other, _) = spawn_async(sim.runtime(), |mut inbox| async move {
                        loop {
                            let Word(word) = inbox.recv().await;
                            hears.lock().unwrap().push(*word);
                        }
                    });
                    other.call(Swap).await.unwrap();
                    other.call(Word(Box::new(3))).await.unwrap();
                }
            });
        });
        state.handle(Word(Box::new(1)), cx).await;
        heard.lock().unwrap().clone()
    }
}

#[test]
fn each_async_process_gets_its_own_messages_though_two_turns_have_swapped_their_states() {
    let runtime = Runtime::builder().workers(1).start().unwrap();
    let (hear, heard) = std::sync::mpsc::channel();
    let (process, _) = spawn_async(&runtime, |mut inbox| async move {
        loop {
            let Word(word) = inbox.recv().await;
            hear.send(*word).unwrap();
        }
    });
    let in_simulation = runtime.block_on(async |_| process.call(Lend).await.unwrap());
    assert_eq!(in_simulation, [2, 3]);
    process.send(Word(Box::new(4))).unwrap();
    assert_eq!([heard.recv().unwrap(), heard.recv().unwrap()], [1, 4]);
}

/// A turn lends its context and its state to a thread of its own, which hands a message on in its name.
#[test]
fn a_message_handed_on_by_another_thread_is_received() {
    struct HandOn;
    impl Turn<AsyncProcess<Word>> for HandOn {
        type Reply = ();

        async fn run(self, state: &mut AsyncProcess<Word>, cx: &mut Context<AsyncProcess<Word>>) {
            std::thread::scope(|scope| {
                scope.spawn(|| {
                    let mut handed = std::pin::pin!(state.handle(Word(Box::new(5)), cx));
                    let mut task = std::task::Context::from_waker(std::task::Waker::noop());
                    assert!(handed.as_mut().poll(&mut task).is_ready());
                });
            });
        }
    }
    let runtime = Runtime::builder().workers(1).start().unwrap();
    runtime.block_on(async |runtime| {
        let (process, word) =
            spawn_async(runtime, |mut inbox: Inbox<Word>| async move { *inbox.recv().await.0 });
        process.call(HandOn).await.unwrap();
        assert_eq!(word.await.unwrap(), 5);
    });
}
