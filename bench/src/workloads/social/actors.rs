//! `social` with the other runtimes in Rust: the design that throng's microblog has, as plain actors.
//!
//! ```text
//! Directory   name → user; starts shards; passes requests on
//! Shard       accounts: a timeline, a profile, the followers in each shard
//! ```
//!
//! A request carries the sender of a oneshot channel for its answer, and a read answers with a snapshot, a counted
//! pointer. A post is shared by all timelines, and has one message for each shard of followers; the drop of the last
//! answers the author.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tokio::sync::oneshot;

use super::{Microblog, measure, name, text};
use crate::host::{Actor, ActorContext, ActorHost, OnActors};
use crate::workloads::prelude::*;

pub(crate) struct Social;

impl OnActors for Social {
    async fn measure<H: ActorHost>(host: H, settings: Settings) -> Measured {
        let each = settings.get("users_per_process") as u32;
        let directory = Directory::<H> { each, users: HashMap::new(), newest: None };
        let blog = Blog::<H>(host.start_actor(directory));
        measure(host, blog, &settings).await
    }
}

/// A post, as all timelines share it.
#[expect(dead_code, reason = "a client would show the author")]
struct Post {
    author: u32,
    text: String,
}

/// Posts with their times, oldest first.
type Posts = Arc<Vec<(u64, Arc<Post>)>>;

impl super::Posts for Posts {
    fn newest_first(&self) -> impl Iterator<Item = (u64, &str)> {
        self.iter().rev().map(|(time, post)| (*time, post.text.as_str()))
    }
}

/// Adds a post at its place; most posts are newer than all others. The list is copied if a reader has it.
fn insert(posts: &mut Posts, time: u64, post: Arc<Post>) {
    let posts = Arc::make_mut(posts);
    let newer = posts.iter().rev().take_while(|(other, _)| *other > time).count();
    posts.insert(posts.len() - newer, (time, post));
}

/// A user's place: its shard, the shard's number, and the account there.
#[derive(Clone)]
struct User<H: ActorHost> {
    shard: H::ActorAddress<Shard<H>>,
    number: u32,
    slot: u32,
}

impl<H: ActorHost> User<H> {
    /// Sends a request with the account's place, and awaits the answer.
    async fn ask<T>(
        &self,
        request: impl FnOnce(u32, oneshot::Sender<T>) -> ToShard<H>,
    ) -> Option<T> {
        let (reply, answer) = oneshot::channel();
        H::tell::<Shard<H>>(&self.shard, request(self.slot, reply));
        answer.await.ok()
    }
}

/// The address of the directory.
struct Blog<H: ActorHost>(H::ActorAddress<Directory<H>>);

impl<H: ActorHost> Microblog for Blog<H> {
    type User = User<H>;
    type Posts = Posts;

    async fn register(&self, number: u64) -> Option<User<H>> {
        let (reply, answer) = oneshot::channel();
        let name = name(number);
        H::tell::<Directory<H>>(&self.0, ToDirectory::Register { name, reply });
        answer.await.ok()
    }

    async fn follow(&self, user: &User<H>, target: &User<H>) -> Option<()> {
        let follower = user.clone();
        target.ask(|slot, reply| ToShard::Follow { slot, follower, reply }).await
    }

    async fn post(&self, user: &User<H>, time: u64) -> Option<u64> {
        let text = text(time);
        user.ask(|slot, reply| ToShard::Post { slot, text, time, reply }).await
    }

    async fn timeline(&self, user: &User<H>) -> Option<Posts> {
        user.ask(|slot, reply| ToShard::Timeline { slot, reply }).await
    }

    async fn profile(&self, user: &User<H>) -> Option<Posts> {
        user.ask(|slot, reply| ToShard::Profile { slot, reply }).await
    }

    async fn redirect(&self, number: u64) -> Option<Posts> {
        let (reply, answer) = oneshot::channel();
        let name = name(number);
        H::tell::<Directory<H>>(&self.0, ToDirectory::Profile { name, reply });
        answer.await.ok()
    }
}

/// The process that knows all users and starts their shards.
struct Directory<H: ActorHost> {
    each: u32,
    users: HashMap<String, User<H>>,
    newest: Option<User<H>>,
}

enum ToDirectory<H: ActorHost> {
    Register { name: String, reply: oneshot::Sender<User<H>> },
    Profile { name: String, reply: oneshot::Sender<Posts> },
}

impl<H: ActorHost> Actor<H> for Directory<H> {
    type Message = ToDirectory<H>;

    fn handle(&mut self, message: ToDirectory<H>, context: &mut impl ActorContext<H, Self>) {
        match message {
            ToDirectory::Register { name, reply } => {
                let user = match self.newest.take() {
                    Some(user) if user.slot + 1 < self.each => User { slot: user.slot + 1, ..user },
                    full => User {
                        shard: context.start(Shard { accounts: Vec::new() }),
                        number: full.map_or(0, |user| user.number + 1),
                        slot: 0,
                    },
                };
                self.newest = Some(user.clone());
                self.users.insert(name, user.clone());
                let _ = reply.send(user);
            }
            ToDirectory::Profile { name, reply } => {
                if let Some(User { shard, slot, .. }) = self.users.get(&name) {
                    H::tell::<Shard<H>>(shard, ToShard::Profile { slot: *slot, reply });
                }
            }
        }
    }
}

/// The process that holds some users.
struct Shard<H: ActorHost> {
    accounts: Vec<Account<H>>,
}

struct Account<H: ActorHost> {
    timeline: Posts,
    profile: Posts,
    /// By the number of their shard.
    followers: BTreeMap<u32, (H::ActorAddress<Shard<H>>, Slots)>,
}

/// The accounts of followers in a shard. A message shares several, and copies one.
#[derive(Clone)]
enum Slots {
    One(u32),
    Several(Arc<Vec<u32>>),
}

impl Slots {
    fn as_slice(&self) -> &[u32] {
        match self {
            Slots::One(slot) => std::slice::from_ref(slot),
            Slots::Several(slots) => slots,
        }
    }
}

enum ToShard<H: ActorHost> {
    Follow { slot: u32, follower: User<H>, reply: oneshot::Sender<()> },
    BackFill { slot: u32, posts: Posts, reply: oneshot::Sender<()> },
    Post { slot: u32, text: String, time: u64, reply: oneshot::Sender<u64> },
    Receive { slots: Slots, delivery: Arc<Delivery> },
    Timeline { slot: u32, reply: oneshot::Sender<Posts> },
    Profile { slot: u32, reply: oneshot::Sender<Posts> },
}

/// A post on its way; the drop of the last reference sends the number of timelines that have received it.
struct Delivery {
    time: u64,
    post: Arc<Post>,
    received: AtomicU64,
    reply: Option<oneshot::Sender<u64>>,
}

impl Drop for Delivery {
    fn drop(&mut self) {
        if let Some(reply) = self.reply.take() {
            let _ = reply.send(*self.received.get_mut());
        }
    }
}

impl<H: ActorHost> Shard<H> {
    fn account(&mut self, slot: u32) -> &mut Account<H> {
        let slot = slot as usize;
        if slot >= self.accounts.len() {
            self.accounts.resize_with(slot + 1, || Account {
                timeline: Posts::default(),
                profile: Posts::default(),
                followers: BTreeMap::new(),
            });
        }
        &mut self.accounts[slot]
    }

    fn follow(&mut self, slot: u32, follower: User<H>, reply: oneshot::Sender<()>) {
        let account = self.account(slot);
        let posts = Arc::clone(&account.profile);
        let User { shard, number, slot } = follower;
        H::tell::<Shard<H>>(&shard, ToShard::BackFill { slot, posts, reply });
        // A user that follows twice would get a second copy; the plan has no such follow.
        match account.followers.get_mut(&number) {
            None => drop(account.followers.insert(number, (shard, Slots::One(slot)))),
            Some((_, Slots::Several(slots))) => Arc::make_mut(slots).push(slot),
            Some((_, slots)) => {
                *slots = Slots::Several(Arc::new([slots.as_slice(), &[slot]].concat()));
            }
        }
    }

    fn post(&mut self, slot: u32, text: String, time: u64, reply: oneshot::Sender<u64>) {
        let account = self.account(slot);
        let post = Arc::new(Post { author: slot, text });
        insert(&mut account.profile, time, Arc::clone(&post));
        let delivery = Delivery { time, post, received: AtomicU64::new(0), reply: Some(reply) };
        let delivery = Arc::new(delivery);
        for (shard, slots) in account.followers.values() {
            let (slots, delivery) = (slots.clone(), Arc::clone(&delivery));
            H::tell::<Shard<H>>(shard, ToShard::Receive { slots, delivery });
        }
    }
}

impl<H: ActorHost> Actor<H> for Shard<H> {
    type Message = ToShard<H>;

    fn handle(&mut self, message: ToShard<H>, _: &mut impl ActorContext<H, Self>) {
        match message {
            ToShard::Follow { slot, follower, reply } => self.follow(slot, follower, reply),
            ToShard::BackFill { slot, posts, reply } => {
                if !posts.is_empty() {
                    let timeline = Arc::make_mut(&mut self.account(slot).timeline);
                    timeline.extend_from_slice(&posts);
                    // The stable sort merges two sorted runs in linear time.
                    timeline.sort_by_key(|(time, _)| *time);
                }
                let _ = reply.send(());
            }
            ToShard::Post { slot, text, time, reply } => self.post(slot, text, time, reply),
            ToShard::Receive { slots, delivery } => {
                let slots = slots.as_slice();
                for &slot in slots {
                    let post = Arc::clone(&delivery.post);
                    insert(&mut self.account(slot).timeline, delivery.time, post);
                }
                // Relaxed: the count of the `Arc` orders the additions before the drop.
                delivery.received.fetch_add(slots.len() as u64, Ordering::Relaxed);
            }
            ToShard::Timeline { slot, reply } => {
                let _ = reply.send(Arc::clone(&self.account(slot).timeline));
            }
            ToShard::Profile { slot, reply } => {
                let _ = reply.send(Arc::clone(&self.account(slot).profile));
            }
        }
    }
}
