//! A microblog in memory: users register, follow each other, send messages, and read timelines and profiles.
//!
//! The module is the smallest form of the service: nothing is stored, and there are no passwords. A process holds
//! the users of one *shard*, from a single user to all of them ([`Network::start`]).
//!
//! ```text
//!  register_user, log_in ──► Directory        name → user; starts shards
//!  send_message ───────────► Shard of author ── one message per shard of followers ──► Shard of followers
//!  follow ─────────────────► Shard of target ── its profile, as back-fill ───────────► Shard of follower ──► reply
//!  get_timeline, get_profile ► Shard of user     a shared snapshot, no post is copied
//! ```
//!
//! ```
//! use social::Text;
//! use social::in_memory::Network;
//! use throng::prelude::*;
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let runtime = Runtime::builder().start()?;
//! runtime.block_on(async |runtime| {
//!     let network = Network::start(runtime, 100)?;
//!     let alice = network.register_user("alice".parse()?).await?;
//!     let bob = network.register_user("bob".parse()?).await?;
//!
//!     bob.send_message(Text::new("before")?, 1).await?;
//!     alice.follow(&bob).await?;
//!     let reached = bob.send_message_to_all(Text::new("after")?, 2).await?;
//!     assert_eq!(reached, 1);
//!
//!     let timeline = alice.get_timeline().await?;
//!     let texts: Vec<&str> = timeline.iter().map(|post| post.text.as_str()).collect();
//!     assert_eq!(texts, ["after", "before"]);
//!     Ok(())
//! })
//! # }
//! ```
//!
//! Invariants:
//! * No shard waits for another, so no two wait for each other. A request that needs two shards is passed on with
//!   its [`ReplyTo`].
//! * A follower has each post of an author exactly once. The author's shard decides in one turn whether a post is
//!   back-filled or pushed, and its messages to a shard arrive in order.
//! * Timelines and profiles are sorted by time, then author, then the author's count of posts.
//!
//! Timelines and profiles have no bound. A follower's copy of a post is its time and a pointer, 16 bytes.

mod posts;

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use indexmap::IndexMap;
use throng::prelude::*;
use throng::{CallError, SpawnError};

use self::posts::Timeline;
pub use self::posts::{Post, Posts};
use crate::name::Name;
use crate::post::Text;

/// Error of a request to a [`Network`] or a [`User`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RequestError {
    /// The name is already taken; choose another.
    #[error("the name is already taken; choose another")]
    NameTaken,
    /// There is no user with this name.
    #[error("there is no user with this name")]
    NoSuchUser,
    /// The request was not carried out, for want of room or of processes; try again later.
    #[error("there is no room for the request; try again later")]
    Overloaded,
    /// The process of the user has ended; the user's data are lost.
    #[error("the process of the user has ended")]
    Ended,
    /// The answer was lost; the request may or may not have been carried out.
    #[error("the answer was lost; the request may or may not have been carried out")]
    Uncertain,
}

impl<T> From<CallError<T>> for RequestError {
    fn from(error: CallError<T>) -> RequestError {
        match error {
            CallError::NoProcess(_) => RequestError::Ended,
            CallError::Overloaded(_) | CallError::TimedOut { enqueued: false } => {
                RequestError::Overloaded
            }
            // The turn may have run before the process ended or the time was up.
            _ => RequestError::Uncertain,
        }
    }
}

/// A microblog: its users, and the processes that hold them.
///
/// A clone names the same microblog.
#[derive(Debug, Clone, Copy)]
pub struct Network {
    directory: Address<Directory>,
}

impl Network {
    /// Starts a microblog without users, whose processes hold up to `users_per_process` users each (at least 1).
    ///
    /// # Errors
    /// [`RequestError::Overloaded`] if the runtime has no room for the process.
    pub fn start(
        runtime: &RuntimeHandle,
        users_per_process: usize,
    ) -> Result<Network, RequestError> {
        let users_per_process = users_per_process.max(1);
        let directory = Directory { users_per_process, users: HashMap::new(), newest: None };
        let directory = runtime.spawn(directory).map_err(no_room)?;
        Ok(Network { directory })
    }

    /// Registers a user, and returns the address to use for the user's requests.
    ///
    /// # Errors
    /// [`RequestError::NameTaken`] if there is a user with this name.
    pub async fn register_user(&self, name: Name) -> Result<User, RequestError> {
        self.directory.register_user(name).await?
    }

    /// Returns the address to use for the requests of a registered user.
    ///
    /// # Errors
    /// [`RequestError::NoSuchUser`] if the name is not registered.
    pub async fn log_in(&self, name: Name) -> Result<User, RequestError> {
        self.directory.log_in(name).await?
    }

    /// Returns the posts of a registered user, newest first. The request is passed on to the user's process, so a
    /// caller that reads often asks [`User::get_profile`] instead.
    ///
    /// # Errors
    /// [`RequestError::NoSuchUser`] if the name is not registered.
    pub async fn get_profile(&self, name: Name) -> Result<Posts, RequestError> {
        self.directory.pass_to_profile(name).await?
    }
}

/// Address of a user of a [`Network`].
///
/// Each method fails with an error that says whether the request may have been carried out. The process of a user
/// exits only with its runtime.
#[derive(Debug, Clone)]
pub struct User {
    name: Arc<Name>,
    shard: Address<Shard>,
    slot: u32,
}

impl User {
    /// Returns the user's name.
    pub fn name(&self) -> &Name {
        &self.name
    }

    /// Makes this user a follower of `target`. When the call returns, the timeline contains the target's posts.
    ///
    /// Following a user again has no effect. Users can follow themselves.
    pub async fn follow(&self, target: &User) -> Result<(), RequestError> {
        Ok(target.shard.follow(target.slot, self.shard, self.slot).await?)
    }

    /// Sends a message, and returns when it is in the profile and on its way to all followers.
    ///
    /// The time decides the order in timelines; its unit is the caller's choice.
    pub async fn send_message(&self, text: Text, time: u64) -> Result<(), RequestError> {
        let draft = Draft { author: Arc::clone(&self.name), text, time };
        Ok(self.shard.send_message(self.slot, draft).await?)
    }

    /// Sends a message, and returns when the last follower has received it. Returns the number of timelines that
    /// have received the message, as counted by the followers' processes.
    ///
    /// The number is less than the number of followers only if a follower's process had no room or has ended.
    pub async fn send_message_to_all(&self, text: Text, time: u64) -> Result<u64, RequestError> {
        let draft = Draft { author: Arc::clone(&self.name), text, time };
        Ok(self.shard.send_message_to_all(self.slot, draft).await?)
    }

    /// Returns the posts of all users that this user follows, newest first.
    pub async fn get_timeline(&self) -> Result<Posts, RequestError> {
        Ok(self.shard.get_timeline(self.slot).await?)
    }

    /// Returns the posts of this user, newest first.
    pub async fn get_profile(&self) -> Result<Posts, RequestError> {
        Ok(self.shard.get_profile(self.slot).await?)
    }
}

fn no_room<P>(_: SpawnError<P>) -> RequestError {
    RequestError::Overloaded
}

/// The process that knows all users and starts their shards.
#[derive(Debug)]
struct Directory {
    users_per_process: usize,
    users: HashMap<Name, User>,
    /// The shard that gets the next user, and the number of its users; `None` before the first.
    newest: Option<(Address<Shard>, u32)>,
}

#[process]
impl Directory {
    #[message]
    fn register_user(&mut self, cx: &mut Context<Self>, name: Name) -> Result<User, RequestError> {
        if self.users.contains_key(&name) {
            return Err(RequestError::NameTaken);
        }
        let (shard, slot) = match self.newest {
            Some((shard, users)) if (users as usize) < self.users_per_process => (shard, users),
            _ => (cx.runtime().spawn(Shard::default()).map_err(no_room)?, 0),
        };
        self.newest = Some((shard, slot + 1));
        let user = User { name: Arc::new(name.clone()), shard, slot };
        self.users.insert(name, user.clone());
        Ok(user)
    }

    #[message]
    fn log_in(&self, name: Name) -> Result<User, RequestError> {
        self.users.get(&name).cloned().ok_or(RequestError::NoSuchUser)
    }

    #[message]
    fn pass_to_profile(&self, name: Name, reply: ReplyTo<Result<Posts, RequestError>>) {
        // An error means that the caller has given up; a request that the shard does not take drops the `ReplyTo`.
        match self.users.get(&name) {
            Some(user) => drop(user.shard.pass_profile(user.slot, reply)),
            None => drop(reply.send(Err(RequestError::NoSuchUser))),
        }
    }
}

/// A message before its author's shard has numbered it.
#[derive(Debug)]
struct Draft {
    author: Arc<Name>,
    text: Text,
    time: u64,
}

#[derive(Debug, Default)]
struct Account {
    timeline: Timeline,
    profile: Timeline,
    followers: IndexMap<Address<Shard>, Slots>,
}

/// The slots of followers in a shard, sorted. A post copies a few slots into its message, and shares many.
#[derive(Debug, Clone)]
enum Slots {
    Few { len: u8, slots: [u32; Slots::FEW] },
    Many(Arc<Vec<u32>>),
}

// A message has the slots beside a pointer, in a block of 64 bytes.
const _: () = assert!(size_of::<Slots>() <= 24, "the slots of a few followers are in the message");

impl Default for Slots {
    fn default() -> Slots {
        Slots::Few { len: 0, slots: [0; Slots::FEW] }
    }
}

impl Slots {
    /// Number of slots in a message without an allocation.
    const FEW: usize = 5;

    fn as_slice(&self) -> &[u32] {
        match self {
            Slots::Few { len, slots } => &slots[..usize::from(*len)],
            Slots::Many(slots) => slots,
        }
    }

    /// Inserts a slot at a place. Cost: linear in the number of slots behind the place, or in the number of all slots
    /// if a message on its way shares them.
    fn insert(&mut self, place: usize, slot: u32) {
        match self {
            Slots::Few { len, slots } if usize::from(*len) < Slots::FEW => {
                slots.copy_within(place..usize::from(*len), place + 1);
                slots[place] = slot;
                *len += 1;
            }
            Slots::Few { slots, .. } => {
                let mut many = slots.to_vec();
                many.insert(place, slot);
                *self = Slots::Many(Arc::new(many));
            }
            Slots::Many(slots) => Arc::make_mut(slots).insert(place, slot),
        }
    }
}

/// A post on its way to the shards of its author's followers, which share it. Dropping the last reference sends the
/// reply, so the author does not wait for a message that is lost with its process.
#[derive(Debug)]
struct Delivery {
    post: Arc<Post>,
    /// Number of timelines that have received the post.
    received: AtomicU64,
    /// `None` if the author does not wait.
    reply: Option<ReplyTo<u64>>,
}

impl Drop for Delivery {
    fn drop(&mut self) {
        if let Some(reply) = self.reply.take() {
            // An error means that the sender has given up.
            let _ = reply.send(*self.received.get_mut());
        }
    }
}

/// The process that holds the data of some users.
#[derive(Debug, Default)]
struct Shard {
    accounts: Vec<Account>,
}

impl Shard {
    /// Returns the account in a slot, which its first request opens.
    fn account(&mut self, slot: u32) -> &mut Account {
        let slot = slot as usize;
        if slot >= self.accounts.len() {
            self.accounts.resize_with(slot + 1, Account::default);
        }
        &mut self.accounts[slot]
    }

    /// Adds a post to the author's profile, and sends it to the shards of all followers.
    fn post(&mut self, slot: u32, draft: Draft, reply: Option<ReplyTo<u64>>) {
        let account = self.account(slot);
        let Draft { author, text, time } = draft;
        let post = Arc::new(Post { author, text, time, number: account.profile.len() as u64 });
        account.profile.insert(Arc::clone(&post));
        let delivery = Arc::new(Delivery { post, received: AtomicU64::new(0), reply });
        for (shard, slots) in &account.followers {
            // A shard that has ended has no timelines; the delivery counts the timelines that are reached.
            let _ = shard.receive(slots.clone(), Arc::clone(&delivery));
        }
    }
}

#[process]
impl Shard {
    /// Adds a follower to the user in `slot`, and passes the profile on to the follower's shard, which replies.
    #[message]
    fn follow(&mut self, slot: u32, shard: Address<Shard>, follower: u32, reply: ReplyTo<()>) {
        let account = self.account(slot);
        let slots = account.followers.entry(shard).or_default();
        match slots.as_slice().binary_search(&follower) {
            Ok(_) => drop(reply.send(())),
            Err(place) => {
                let posts = account.profile.snapshot();
                // Without a back-fill there is no follower: the shard has ended or is overloaded, and the dropped
                // `ReplyTo` says so to the caller.
                if shard.back_fill(follower, posts, reply).is_ok() {
                    slots.insert(place, follower);
                } else if slots.as_slice().is_empty() {
                    account.followers.swap_remove(&shard);
                }
            }
        }
    }

    #[message(send)]
    fn back_fill(&mut self, slot: u32, posts: Posts, reply: ReplyTo<()>) {
        self.account(slot).timeline.merge(&posts);
        // An error means that the caller has given up.
        let _ = reply.send(());
    }

    #[message]
    fn send_message(&mut self, slot: u32, draft: Draft) {
        self.post(slot, draft, None);
    }

    /// Sends a message. The last shard of followers replies with the number of timelines.
    #[message]
    fn send_message_to_all(&mut self, slot: u32, draft: Draft, reply: ReplyTo<u64>) {
        self.post(slot, draft, Some(reply));
    }

    /// Adds a post to the timelines of these users.
    #[message(send)]
    fn receive(&mut self, slots: Slots, delivery: Arc<Delivery>) {
        let slots = slots.as_slice();
        for &slot in slots {
            self.account(slot).timeline.insert(Arc::clone(&delivery.post));
        }
        if delivery.reply.is_some() {
            // Relaxed: the release and acquire of the `Arc`'s count order the additions before the drop.
            delivery.received.fetch_add(slots.len() as u64, Ordering::Relaxed);
        }
    }

    #[message]
    fn get_timeline(&mut self, slot: u32) -> Posts {
        self.account(slot).timeline.snapshot()
    }

    #[message]
    fn get_profile(&mut self, slot: u32) -> Posts {
        self.account(slot).profile.snapshot()
    }

    /// Answers a request that the directory has passed on.
    #[message(send)]
    fn pass_profile(&mut self, slot: u32, reply: ReplyTo<Result<Posts, RequestError>>) {
        let _ = reply.send(Ok(self.account(slot).profile.snapshot()));
    }
}
