//! Groups of recipients: messages to all members, which are processes of any type.

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
fn each_member_of_any_type_gets_each_message_once_and_in_order() {
    let runtime = runtime();
    let news = runtime.group::<Recipient<News>>("news");
    let reader = runtime.spawn(Reader::default()).unwrap();
    let sum = runtime.spawn(Sum::default()).unwrap();
    let (to_reader, to_sum) = (reader.recipient(), sum.recipient());
    assert!(news.join(to_reader) && news.join(to_sum) && news.join(to_reader));
    assert_eq!((news.len(), news.members()), (2, vec![to_reader, to_reader, to_sum]));
    let count = scaled(1_000);
    for number in 0..count {
        assert_eq!(runtime.group::<Recipient<News>>("news").broadcast(News(number)), 2);
    }
    assert_eq!(runtime.group::<Recipient<News>>("others").broadcast(News(0)), 0);
    runtime.block_on(async |_| {
        assert_eq!(reader.read().await.unwrap(), (0..count).collect::<Vec<_>>());
        assert_eq!(sum.total().await.unwrap(), (0..count).sum::<u64>());
        assert!(news.leave(to_reader));
        assert_eq!(news.broadcast(News(0)), 2, "it had joined twice");
        assert!(news.leave(to_reader) && !news.leave(to_reader));
        assert_eq!(news.broadcast(News(0)), 1);
        sum.kill();
        sum.pid().exited().await;
        eventually(|| news.is_empty()).await;
        assert!(!news.join(to_sum), "it is dead");
        assert_eq!(news.broadcast(News(0)), 0);
    });
}

#[test]
fn a_mailbox_without_room_refuses_what_a_group_of_recipients_is_sent() {
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
        let news = runtime.group::<Recipient<News>>("news");
        assert!(news.join(held.recipient()));
        let sent: usize = (0..3).map(|number| news.broadcast(News(number))).sum();
        assert_eq!(sent, accepted, "{overflow:?}");
        assert!(news.leave(held.recipient()));
        held.kill();
    }
}
