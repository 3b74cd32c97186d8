//! Large rooms: each of many present processes gets each message once.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use futures_util::stream::{self, StreamExt};
use throng::prelude::*;

use super::live::{PAUSE_PER_SOCKET, RoomNews};
use super::membership::{AddRoom, ListRooms};
use super::{RoomMessage, SaidMessage};
use crate::error::SocialError;
use crate::name::{Name, RoomName};
use crate::post::Text;
use crate::service::Social;
use crate::testing::{wait_until, with_the_service};
use crate::user::{Account, UserClient};

/// Process that is present in a room and counts what it gets.
struct Listener {
    /// Number of the last message.
    last: u64,
    /// Number of messages that all listeners have got.
    delivered: Arc<AtomicUsize>,
}

impl Process for Listener {}

impl Handle<RoomNews> for Listener {
    async fn handle(&mut self, news: RoomNews, _: &mut Context<Self>) {
        if let RoomNews::Said(said) = news {
            for message in said.messages() {
                assert_eq!(message.sequence, self.last + 1, "a message is missing or came twice");
                self.last += 1;
                self.delivered.fetch_add(1, Ordering::Relaxed);
            }
        }
    }
}

fn user(number: usize) -> Name {
    format!("user_{number}").parse().unwrap()
}

/// Makes `size` users members of a room, each with a process that is not present yet.
async fn join(
    social: &Social,
    room: &RoomName,
    size: usize,
    delivered: &Arc<AtomicUsize>,
) -> Vec<Address<Listener>> {
    let join = async |number: usize| {
        // Without a password, whose hash takes as long as all the rest.
        let account = Account { password_hash: String::new(), created_ms: 0 };
        let name = user(number);
        social.user(&name).register(account).await.unwrap().unwrap();
        // The first one has created the room before the others begin.
        if number > 0 {
            social.join_room(room, &name).await.unwrap();
        } else {
            social.create_room(room, &name).await.unwrap();
        }
        let listener = Listener { last: 0, delivered: delivered.clone() };
        social.runtime().spawn(listener).unwrap()
    };
    let mut listeners = vec![join(0).await];
    let others = stream::iter(1..size).map(join).buffered(256);
    listeners.extend(others.collect::<Vec<_>>().await);
    listeners
}

async fn enter(social: &Social, room: &RoomName, listeners: &[Address<Listener>]) {
    for (number, listener) in listeners.iter().enumerate() {
        social.enter_room(room, &user(number), listener.recipient(), None).await.unwrap();
    }
}

#[test]
fn a_room_that_was_not_created_takes_no_place_after_a_leave() {
    with_the_service(2, async |social| {
        let (alice, rust): (_, RoomName) = (user(0), "rust".parse().unwrap());
        let account = Account { password_hash: String::new(), created_ms: 0 };
        social.user(&alice).register(account).await.unwrap().unwrap();
        // The first step of a creation that ended there.
        social.user(&alice).call(AddRoom(rust.clone())).await.unwrap().unwrap();
        let left = social.leave_room(&rust, &alice).await;
        assert!(matches!(left, Err(SocialError::NoSuchRoom(_))), "{left:?}");
        assert_eq!(social.user(&alice).call(ListRooms).await.unwrap().unwrap(), []);
    });
}

#[test]
fn ten_thousand_present_processes_get_each_message_once() {
    const SIZE: usize = 10_000;
    const SAID: usize = 5;
    with_the_service(2, async |social| {
        let (room, delivered) = ("rust".parse().unwrap(), Arc::<AtomicUsize>::default());
        let listeners = join(social, &room, SIZE, &delivered).await;
        enter(social, &room, &listeners).await;
        let profile = social.room_profile(&room).await.unwrap();
        assert_eq!((profile.members as usize, profile.present), (SIZE, SIZE));
        for number in 0..SAID {
            let text = Text::new(format!("message {number}")).unwrap();
            social.say(&room, &user(number), text, None).await.unwrap();
        }
        wait_until(async || delivered.load(Ordering::Relaxed) >= SIZE * SAID).await;
        for listener in listeners {
            listener.kill();
        }
        // A message that comes later counts once more for each process that was not killed.
        wait_until(async || social.room_profile(&room).await.unwrap().present == 0).await;
        social.say(&room, &user(0), Text::new("nobody hears it").unwrap(), None).await.unwrap();
        assert_eq!(delivered.load(Ordering::Relaxed), SIZE * SAID);
    });
}

/// Prints the cost of a delivery, from the commit to the handler of a present process, and the memory of a present
/// process: `cargo test --release -p social -- --ignored --nocapture cost_of_a_delivery`.
#[test]
#[ignore = "a measurement"]
fn cost_of_a_delivery() {
    let resident = || {
        let status = std::fs::read_to_string("/proc/self/statm").unwrap();
        status.split(' ').nth(1).unwrap().parse::<usize>().unwrap() * 4096
    };
    for size in [10, 1_000, 10_000] {
        with_the_service(2, async |social| {
            let (room, delivered) = ("rust".parse().unwrap(), Arc::<AtomicUsize>::default());
            let listeners = join(social, &room, size, &delivered).await;
            let before = resident();
            enter(social, &room, &listeners).await;
            println!("{size} present: {} bytes each", resident().saturating_sub(before) / size);
            let mut times = Vec::new();
            for number in 1..=(1_000_000 / size as u64).clamp(100, 1_000) {
                // The pause of a large room is not a part of the cost.
                tokio::time::sleep(PAUSE_PER_SOCKET * size as u32).await;
                let text = Text::new("hello").unwrap();
                let message =
                    RoomMessage { sequence: number, author: user(0), text: Some(text), time: 0 };
                let said = Arc::new(SaidMessage::new(room.clone(), message));
                let all = number as usize * size;
                let begun = Instant::now();
                // The action that follows the commit of a message.
                social.rooms.publish(&said);
                while delivered.load(Ordering::Relaxed) < all {
                    std::hint::spin_loop();
                }
                times.push(begun.elapsed());
            }
            times.sort_unstable();
            let median = times[times.len() / 2];
            println!(
                "{size} present: {median:?} until all have it, {:?} each",
                median / size as u32
            );
        });
    }
}
