//! Addresses without the type of the process.

use crate::{Add, Counter, Fail, eventually, runtime};
use std::collections::HashSet;
use throng::prelude::*;

/// Another kind of process that takes the same message.
struct Doubler(u64);
impl Process for Doubler {}
impl Handle<Add> for Doubler {
    async fn handle(&mut self, Add(number): Add, _: &mut Context<Self>) -> u64 {
        self.0 += 2 * number;
        self.0
    }
}

#[test]
fn recipients_send_to_and_call_any_process_that_handles_the_message() {
    runtime().block_on(async |runtime| {
        let counter = runtime.spawn(Counter::default()).unwrap();
        let doubler = runtime.spawn(Doubler(0)).unwrap();
        let all: Vec<Recipient<Add>> = vec![counter.into(), doubler.into(), counter.recipient()];
        for recipient in &all {
            recipient.send(Add(1)).unwrap();
        }
        let mut sums = Vec::new();
        for recipient in all {
            sums.push(recipient.call(Add(1)).await.unwrap());
        }
        assert_eq!(sums, [3, 4, 4]);
    });
}

#[test]
fn the_recipients_of_one_process_are_equal() {
    let runtime = runtime();
    let counter = runtime.spawn(Counter::default()).unwrap();
    let other = runtime.spawn(Counter::default()).unwrap();
    let set: HashSet<Recipient<Add>> =
        [counter.recipient(), counter.into(), other.recipient()].into();
    assert_eq!(set.len(), 2);
    assert_ne!(counter.recipient::<Add>(), other.recipient());
    assert!(format!("{:?}", counter.recipient::<Add>()).starts_with("Recipient@"));
}

#[test]
fn a_recipient_that_has_exited_hands_the_message_back() {
    let runtime = runtime();
    let counter = runtime.spawn(Counter::default()).unwrap();
    let recipient: Recipient<Add> = counter.into();
    runtime.block_on(async |_| {
        assert!(counter.call(Fail("on purpose")).await.is_err());
        eventually(|| !recipient.is_alive()).await;
        let SendError::NoProcess(Add(number)) = recipient.send(Add(3)).unwrap_err() else {
            panic!("refused for another reason");
        };
        assert_eq!(number, 3);
        assert!(matches!(recipient.call(Add(4)).await, Err(CallError::NoProcess(Add(4)))));
    });
}
