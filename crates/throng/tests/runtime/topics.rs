//! Topics: messages to all processes, of whatever type, that have subscribed.

use crate::{eventually, runtime, scaled};
use throng::prelude::*;
use throng::{MailboxBound, Overflow};

#[derive(Clone)]
struct News(u64);
impl Message for News {
    type Reply = ();
}

#[derive(Default)]
struct Reader(Vec<u64>);
#[process]
impl Reader {
    #[message]
    fn read(&self) -> Vec<u64> {
        self.0.clone()
    }
}
impl Handle<News> for Reader {
    async fn handle(&mut self, News(number): News, _: &mut Context<Self>) {
        self.0.push(number);
    }
}

#[derive(Default)]
struct Sum(u64);
#[process]
impl Sum {
    #[message]
    fn total(&self) -> u64 {
        self.0
    }
}
impl Handle<News> for Sum {
    async fn handle(&mut self, News(number): News, _: &mut Context<Self>) {
        self.0 += number;
    }
}

#[test]
fn each_subscriber_of_any_type_gets_each_message_once_and_in_order() {
    let runtime = runtime();
    let news = runtime.topic::<News>("news");
    let reader = runtime.spawn(Reader::default()).unwrap();
    let sum = runtime.spawn(Sum::default()).unwrap();
    assert!(news.subscribe(reader) && news.subscribe(sum) && news.subscribe(reader));
    assert_eq!((news.len(), news.subscribers()), (2, vec![reader.into(), sum.into()]));
    let count = scaled(1_000);
    for number in 0..count {
        assert_eq!(runtime.topic::<News>("news").publish(News(number)), 2);
    }
    assert_eq!(runtime.topic::<News>("others").publish(News(0)), 0);
    runtime.block_on(async |_| {
        assert_eq!(reader.read().await.unwrap(), (0..count).collect::<Vec<_>>());
        assert_eq!(sum.total().await.unwrap(), (0..count).sum::<u64>());
        assert!(news.unsubscribe(reader));
        assert_eq!(news.publish(News(0)), 2, "it had subscribed twice");
        assert!(news.unsubscribe(reader) && !news.unsubscribe(reader));
        assert_eq!(news.publish(News(0)), 1);
        sum.kill();
        sum.pid().exited().await;
        eventually(|| news.is_empty()).await;
        assert!(!news.subscribe(sum), "it is dead");
        assert_eq!(news.publish(News(0)), 0);
    });
}

#[test]
fn a_topic_and_a_group_of_one_name_share_nothing() {
    let runtime = runtime();
    let reader = runtime.spawn(Reader::default()).unwrap();
    assert!(runtime.group::<Reader>("news").join(reader));
    assert!(runtime.topic::<News>("news").is_empty());
}

#[test]
fn a_mailbox_without_room_refuses_what_is_published() {
    let runtime = runtime();
    let table = [
        (Overflow::Reject, 2),
        (Overflow::Wait, 2),
        (Overflow::DropNewest, 3),
        (Overflow::DropOldest, 3),
    ];
    for (overflow, accepted) in table {
        struct Held(tokio::sync::oneshot::Receiver<()>);
        impl Process for Held {
            async fn started(&mut self, _: &mut Context<Self>) {
                let _ = (&mut self.0).await;
            }
        }
        impl Handle<News> for Held {
            async fn handle(&mut self, _: News, _: &mut Context<Self>) {}
        }
        let (_open, gate) = tokio::sync::oneshot::channel();
        let bounded = runtime.spawner().mailbox(MailboxBound::new(2, overflow));
        let held = bounded.spawn(Held(gate)).unwrap();
        let news = runtime.topic::<News>("news");
        assert!(news.subscribe(held));
        let sent: usize = (0..3).map(|number| news.publish(News(number))).sum();
        assert_eq!(sent, accepted, "{overflow:?}");
        assert!(news.unsubscribe(held));
        held.kill();
    }
}
