//! Operations of the service across users, called by the HTTP routes, tests or a program.
//!
//! ```text
//! timeline(alice)    names = alice.ListFollowing
//!                    for each name, at most FETCHES_MAX at once:
//!                        name.ListPosts{before, floor, limit} ──► Newest(limit)
//!                                                     ▲              │ floor
//!                                                     └──────────────┘
//! ```
//!
//! A timeline is merged when it is read. Each author is asked only for posts that could still
//! appear on the page, so the cost beyond the posts of the page is one lookup per author.
//!
//! Invariant: a page has no gaps. An author's page that was cut, because it had too much text,
//! carries no information about posts below its last post. So the merged page ends at that post at
//! the latest, and the next page begins there.

use std::error::Error;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use futures_util::stream::{self, StreamExt};
use serde::Serialize;
use throng::prelude::*;
use throng_durable::{CellError, CommitError, Entity, EntityError, Node, ReadError, SubmitError};
use tokio::sync::Semaphore;

use crate::ids::{IdError, IdGenerator, PostId, since_1970};
use crate::keys::{IdempotencyKey, KeysFull};
use crate::name::Name;
use crate::newest::Newest;
use crate::password::{Client, HashError, Password, Passwords};
use crate::user::{
    Account, Describe, Follow, ListFollowing, ListPosts, PageBudget, PostPage, Profile, Publish,
    ReadPasswordHash, Register, Text, Unfollow, User, UserError,
};

/// Handle of the message service on a node; cheap to clone.
#[derive(Clone, Debug)]
pub struct Social {
    node: Node,
    runtime: RuntimeHandle,
    ids: Arc<IdGenerator>,
    passwords: Passwords,
    /// Client on whose behalf passwords are hashed.
    client: IpAddr,
    /// Permits for concurrent merges of timelines, each of which takes megabytes.
    timelines: Arc<Semaphore>,
}

/// Public view of a post.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Post {
    /// Id of the post; newer posts have higher ids.
    pub id: PostId,
    /// Name of the author.
    pub author: Name,
    /// Text of the post.
    pub text: Text,
}

/// Outcome of posting.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Posted {
    /// The post.
    pub post: Post,
    /// Whether the post existed already, under the same idempotency key.
    pub repeated: bool,
}

/// Page of posts, newest first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listing {
    /// Posts of the page.
    pub posts: Vec<Post>,
    /// Id to pass as `before` for the next page, or `None` on the last page.
    pub next: Option<PostId>,
}

/// Health status of the service.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Status {
    /// The service reads and writes.
    Ok,
    /// The store recovers from a failed commit, or is closed: the service cannot write, and may not
    /// be able to read.
    ReadOnly,
}

/// Result of a health check.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Health {
    /// Whether the service reads and writes.
    pub status: Status,
    /// Number of live processes in the runtime.
    pub processes: u64,
    /// Maximum number of processes.
    pub process_limit: u64,
    /// Number of durable processes in memory; processes at rest are not counted.
    pub live_entities: usize,
    /// Number of records on disk: users, follows, posts, and a few of the node's own. `None` if the
    /// store is unreadable.
    pub records: Option<u64>,
    /// Size of the store's file in bytes. `None` if the store is unreadable.
    pub file_bytes: Option<u64>,
}

/// Error of an operation of the service.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SocialError {
    /// The name is already taken; choose another.
    #[error("the name {0} is already taken; choose another")]
    NameTaken(Name),
    /// There is no user with this name.
    #[error("there is no user named {0}")]
    NoSuchUser(Name),
    /// The name or the password is wrong; the error does not reveal which.
    #[error("the name or the password is wrong")]
    WrongCredentials,
    /// Users cannot follow or unfollow themselves.
    #[error("you cannot follow or unfollow yourself")]
    SelfFollow,
    /// The user follows the maximum number of users; unfollow a user first.
    #[error("you follow the maximum number of users; unfollow a user first")]
    FollowingFull,
    /// The idempotency key was used for a different text; use a new key.
    #[error("the idempotency key was used for a different text; use a new key")]
    KeyReused,
    /// The user has the maximum number of unexpired idempotency keys; post without a key, or wait
    /// until the oldest expires.
    #[error(
        "you have used {} idempotency keys in the last 24 hours; \
         post without a key, or try again later",
        IdempotencyKey::COUNT_MAX
    )]
    KeysFull {
        /// Time until the oldest key expires.
        retry_after: Duration,
    },
    /// The queue for hashing passwords is full, and this client has its share of it. Nothing was
    /// done; try again in a few seconds.
    #[error("too many logins and registrations at once; try again in a few seconds")]
    TooManyLogins,
    /// The machine cannot carry out the operation at present, and nothing was done; try again
    /// later.
    #[error("the service is temporarily unavailable and did nothing; try again later")]
    Unavailable(#[source] Box<dyn Error + Send + Sync>),
    /// The answer was lost; the operation may or may not have taken effect. Repeat it with the same
    /// idempotency key, or check.
    #[error(
        "the answer was lost; the operation may or may not have taken effect; \
         check, or repeat it with the same idempotency key"
    )]
    Uncertain(#[source] EntityError),
    /// The operation failed because of damage or a bug, and nothing was done; a retry will not
    /// help.
    #[error(
        "the service failed and did nothing; trying again will not help; its log has the reason"
    )]
    Broken(#[source] Box<dyn Error + Send + Sync>),
}

impl Social {
    /// Creates the service on `node`, which runs on `runtime`. No other node of the service may
    /// have this `node_number` (0 to 1023).
    ///
    /// Hashes one password, which takes tens of milliseconds.
    ///
    /// # Errors
    /// The operating system provides no randomness, or there is too little memory.
    pub fn new(node: Node, runtime: RuntimeHandle, node_number: u16) -> Result<Social, HashError> {
        let ids = Arc::new(IdGenerator::new(&node, node_number));
        let timelines = Arc::new(Semaphore::new(TIMELINES_MAX));
        let client = IpAddr::V4(Ipv4Addr::LOCALHOST);
        Ok(Social { node, runtime, ids, passwords: Passwords::new()?, client, timelines })
    }

    /// Returns the same service on behalf of the client at `address`. When there are more logins
    /// and registrations than can be hashed at once, clients take turns, and so do the names that a
    /// client uses. A whole IPv6 network of 64 bits counts as one client. The default client is
    /// this machine.
    ///
    /// `address` should be the client's own. Behind a reverse proxy, every connection has the
    /// proxy's address: all clients count as one, only names take turns, and a flood with as many
    /// different names as there are places blocks other logins.
    #[must_use]
    pub fn on_behalf_of(&self, address: IpAddr) -> Social {
        Social { client: address, ..self.clone() }
    }

    /// Registers the user `name` with `password`.
    ///
    /// # Errors
    /// [`NameTaken`](SocialError::NameTaken), [`TooManyLogins`](SocialError::TooManyLogins).
    pub async fn register(&self, name: &Name, password: Password) -> Result<(), SocialError> {
        // This check only saves useless hashing; the turn that registers decides.
        if self.describe(name).await?.is_some() {
            return Err(SocialError::NameTaken(name.clone()));
        }
        let password_hash = self.passwords.hash(self.client(Some(name)), password).await?;
        let created_ms = u64::try_from(since_1970().as_millis()).unwrap_or(u64::MAX);
        let account = Account { password_hash, created_ms };
        self.ask(name, Register(account)).await?.map_err(|refused| refused.for_user(name))
    }

    /// Checks a login. A wrong name and a wrong password cost the same.
    ///
    /// # Errors
    /// [`WrongCredentials`](SocialError::WrongCredentials),
    /// [`TooManyLogins`](SocialError::TooManyLogins).
    pub async fn log_in(&self, name: &Name, password: String) -> Result<(), SocialError> {
        let stored = self.ask(name, ReadPasswordHash).await?;
        self.check(Some(name), password, stored).await
    }

    /// Rejects a login under an invalid name, at the same cost as any other login.
    ///
    /// # Errors
    /// [`WrongCredentials`](SocialError::WrongCredentials), unless hashing itself fails.
    pub async fn log_in_invalid_name(&self, password: String) -> Result<(), SocialError> {
        self.check(None, password, None).await
    }

    /// Returns the public profile of `name`.
    ///
    /// # Errors
    /// [`SocialError::NoSuchUser`].
    pub async fn profile(&self, name: &Name) -> Result<Profile, SocialError> {
        self.describe(name).await?.ok_or_else(|| SocialError::NoSuchUser(name.clone()))
    }

    /// Makes `follower` follow `target`; idempotent.
    ///
    /// # Errors
    /// [`SelfFollow`](SocialError::SelfFollow), [`NoSuchUser`](SocialError::NoSuchUser) for either,
    /// [`FollowingFull`](SocialError::FollowingFull).
    pub async fn follow(&self, follower: &Name, target: &Name) -> Result<(), SocialError> {
        if follower == target {
            return Err(SocialError::SelfFollow);
        }
        self.profile(target).await?; // accounts are never removed, so this stays true
        let followed = self.ask(follower, Follow(target.clone())).await?;
        followed.map_err(|refused| refused.for_user(follower))
    }

    /// Makes `follower` stop following `target`; idempotent.
    ///
    /// # Errors
    /// Same as [`follow`](Social::follow), without `FollowingFull`.
    pub async fn unfollow(&self, follower: &Name, target: &Name) -> Result<(), SocialError> {
        if follower == target {
            return Err(SocialError::SelfFollow);
        }
        self.profile(target).await?;
        let unfollowed = self.ask(follower, Unfollow(target.clone())).await?;
        unfollowed.map_err(|refused| refused.for_user(follower))
    }

    /// Returns the users that `follower` follows, in alphabetical order.
    ///
    /// # Errors
    /// [`SocialError::NoSuchUser`].
    pub async fn following(&self, follower: &Name) -> Result<Vec<Name>, SocialError> {
        let names = self.ask(follower, ListFollowing).await?;
        names.map_err(|refused| refused.for_user(follower))
    }

    /// Publishes a post with `text`. If `author` used `key` for it within the last 24 hours,
    /// publishes nothing and returns the existing post.
    ///
    /// # Errors
    /// [`NoSuchUser`](SocialError::NoSuchUser), [`KeyReused`](SocialError::KeyReused),
    /// [`KeysFull`](SocialError::KeysFull).
    pub async fn post(
        &self,
        author: &Name,
        text: Text,
        key: Option<IdempotencyKey>,
    ) -> Result<Posted, SocialError> {
        let publish = Publish { text: text.clone(), key, ids: self.ids.clone() };
        let published = self.ask(author, publish).await?;
        let published = published.map_err(|refused| refused.for_user(author))?;
        let post = Post { id: published.id, author: author.clone(), text };
        Ok(Posted { post, repeated: published.repeated })
    }

    /// Returns the newest `limit` posts (at least one) of `author` with ids below `before`; fewer,
    /// if they have more than 256 KiB of text.
    ///
    /// # Errors
    /// [`SocialError::NoSuchUser`].
    pub async fn posts(
        &self,
        author: &Name,
        before: Option<PostId>,
        limit: usize,
    ) -> Result<Listing, SocialError> {
        let AuthorPage { posts, reach } =
            self.page(author.clone(), before, None, wanted(limit)).await?;
        Ok(Listing::of(posts, limit, reach.is_some()))
    }

    /// Returns the newest `limit` posts (at least one) with ids below `before` of all users that
    /// `reader` follows; fewer, if they, or the posts of one author, have more than 256 KiB of text.
    ///
    /// Paging by [`Listing::next`] returns every post that was acknowledged before the request of
    /// the first page exactly once. Later posts are newer than the first page, and appear when the
    /// timeline is read again. Cost: one call per followed author, at most 32 at a time. At most 64
    /// timelines are merged at a time; further requests wait.
    ///
    /// # Errors
    /// [`SocialError::NoSuchUser`]. If one author cannot be asked, the whole request fails: a
    /// timeline with holes would look complete.
    pub async fn timeline(
        &self,
        reader: &Name,
        before: Option<PostId>,
        limit: usize,
    ) -> Result<Listing, SocialError> {
        let authors = self.following(reader).await?;
        let _permit = self.timelines.acquire().await.map_err(unavailable)?;
        let wanted = wanted(limit);
        let mut newest = Newest::new(wanted);
        let mut reach = None; // highest of all cut pages
        // Read when the next author is asked, so later requests are pruned more.
        let floor = AtomicU64::new(0);
        let mut pages = stream::iter(authors)
            .map(|author| {
                let floor = Some(PostId::new(floor.load(Ordering::Relaxed)));
                self.page(author, before, floor, wanted)
            })
            .buffer_unordered(FETCHES_MAX);
        while let Some(page) = pages.next().await {
            let page = page?;
            for post in page.posts {
                newest.offer(post.id, post);
            }
            reach = reach.max(page.reach);
            let lowest = newest.floor().max(reach);
            floor.store(lowest.map_or(0, PostId::get), Ordering::Relaxed);
        }
        drop(pages);
        let mut posts: Vec<Post> = newest.into_newest_first().collect();
        posts.retain(|post| reach.is_none_or(|reach| post.id >= reach));
        Ok(Listing::of(posts, limit, reach.is_some()))
    }

    /// Returns the state of the node under the service.
    ///
    /// # Errors
    /// [`SocialError::Unavailable`], if the store accepts writes, but cannot be read at present.
    pub fn health(&self) -> Result<Health, SocialError> {
        let store = self.node.store();
        // Checked first, and without reading: a failed commit may have ended all reading.
        let writable = store.is_writable();
        let stat = match store.stat() {
            Ok(stat) => Some(stat),
            Err(_) if !writable => None,
            Err(error) => return Err(unavailable(error)),
        };
        Ok(Health {
            status: if writable { Status::Ok } else { Status::ReadOnly },
            processes: self.runtime.process_count(),
            process_limit: self.runtime.process_limit(),
            live_entities: self.node.live(),
            records: stat.as_ref().map(|stat| stat.entries),
            file_bytes: stat.as_ref().map(|stat| stat.file_bytes),
        })
    }

    async fn page(
        &self,
        author: Name,
        before: Option<PostId>,
        floor: Option<PostId>,
        limit: usize,
    ) -> Result<AuthorPage, SocialError> {
        let page = self.ask(&author, ListPosts { before, floor, limit }).await?;
        let PostPage { posts, cut } = page.map_err(|refused| refused.for_user(&author))?;
        let post = |(id, text)| Post { id, author: author.clone(), text };
        let posts: Vec<Post> = posts.into_iter().map(post).collect();
        let reach = if cut { posts.last().map(|post| post.id) } else { None };
        Ok(AuthorPage { posts, reach })
    }

    async fn describe(&self, name: &Name) -> Result<Option<Profile>, SocialError> {
        self.ask(name, Describe(name.clone())).await
    }

    async fn check(
        &self,
        name: Option<&Name>,
        password: String,
        stored: Option<String>,
    ) -> Result<(), SocialError> {
        let fits = self.passwords.verify(self.client(name), password, stored).await?;
        if fits { Ok(()) } else { Err(SocialError::WrongCredentials) }
    }

    fn client<'c>(&self, name: Option<&'c Name>) -> Client<'c> {
        Client { address: self.client, name }
    }

    /// Sends one message to the process of `name`, and returns the reply.
    async fn ask<M>(&self, name: &Name, message: M) -> Result<M::Reply, SocialError>
    where
        M: Message,
        User: Handle<M>,
    {
        let user: Entity<User> = self.node.entity(name.as_str());
        Ok(user.call(message).await?)
    }
}

/// Returns the number of posts to request for a page of `limit`. One post more tells whether there
/// is a next page. A page holds at least one post, so that paging always advances.
fn wanted(limit: usize) -> usize {
    limit.max(1).saturating_add(1)
}

/// Posts of one author for a page.
struct AuthorPage {
    posts: Vec<Post>,
    /// Id of the last post, if the page was cut: the author has further requested posts below it.
    reach: Option<PostId>,
}

impl Listing {
    /// Builds a page of `limit` from `posts`, of which [`wanted`] were requested; `cut` says that
    /// there are older posts in any case.
    fn of(mut posts: Vec<Post>, limit: usize, cut: bool) -> Listing {
        let found = posts.len();
        posts.truncate(limit.max(1));
        let mut room = PageBudget::default();
        let fitting = posts.iter().take_while(|post| room.take(&post.text)).count();
        posts.truncate(fitting);
        let more = cut || posts.len() < found;
        let next = if more { posts.last().map(|post| post.id) } else { None };
        Listing { posts, next }
    }
}

impl UserError {
    /// Converts the refusal of `user` into an error of the service.
    fn for_user(self, user: &Name) -> SocialError {
        match self {
            UserError::NoAccount => SocialError::NoSuchUser(user.clone()),
            UserError::NameTaken => SocialError::NameTaken(user.clone()),
            UserError::FollowingFull => SocialError::FollowingFull,
            UserError::KeyReused => SocialError::KeyReused,
            UserError::KeysFull(KeysFull { retry_after }) => SocialError::KeysFull { retry_after },
            // The post was not written, whatever the state of the lease.
            UserError::NoId(IdError::Lease(error)) => match error.into() {
                SocialError::Uncertain(error) => unavailable(error),
                error => error,
            },
            UserError::NoId(error @ IdError::Exhausted) => broken(error),
            UserError::Cells(
                error @ (CellError::Read(ReadError::Corrupt(_)) | CellError::Decode(_)),
            ) => broken(error),
            UserError::Cells(error) => unavailable(error),
        }
    }
}

impl From<HashError> for SocialError {
    fn from(error: HashError) -> SocialError {
        match error {
            HashError::Busy => SocialError::TooManyLogins,
            HashError::Failed => unavailable(error),
        }
    }
}

impl From<EntityError> for SocialError {
    fn from(error: EntityError) -> SocialError {
        use EntityError as E;
        match error {
            // Permanent errors: damage, and turns that can never be committed.
            E::Load(ReadError::Corrupt(_))
            | E::NotCommitted(
                CommitError::State(_)
                | CommitError::Cell(_)
                | CommitError::Refused(SubmitError::Rejected(_)),
            ) => broken(error),
            E::Load(_)
            | E::NoRoom { .. }
            | E::ShutDown
            | E::Started(_)
            | E::NotCommitted(_)
            | E::Died
            | E::Overloaded
            | E::TimedOut { enqueued: false } => unavailable(error),
            E::Unknown(_) | E::TimedOut { enqueued: true } => SocialError::Uncertain(error),
            // An invalid key, a state that does not decode, a panic.
            _ => broken(error),
        }
    }
}

fn broken(error: impl Error + Send + Sync + 'static) -> SocialError {
    SocialError::Broken(Box::new(error))
}

fn unavailable(error: impl Error + Send + Sync + 'static) -> SocialError {
    SocialError::Unavailable(Box::new(error))
}

/// Maximum number of authors asked at once for one timeline.
const FETCHES_MAX: usize = 32;

/// Maximum number of timelines merged at once; a waiting request holds only a list of names.
const TIMELINES_MAX: usize = 64;

#[cfg(test)]
mod tests {
    use std::io;

    use throng_store::Rejection;

    use super::*;

    #[test]
    fn permanent_errors_are_reported_as_broken() {
        let name: Name = "alice".parse().unwrap();
        let damage = || ReadError::Corrupt("a page".to_owned());
        let refused = |refused: UserError| refused.for_user(&name);
        let not_committed = |error| SocialError::from(EntityError::NotCommitted(error));
        let rejected = || SubmitError::Rejected(Rejection::KeyEmpty);
        for error in [
            refused(UserError::Cells(CellError::Read(damage()))),
            refused(UserError::Cells(CellError::Decode(String::new()))),
            refused(UserError::NoId(IdError::Exhausted)),
            refused(UserError::NoId(IdError::Lease(EntityError::Load(damage())))),
            SocialError::from(EntityError::Load(damage())),
            not_committed(CommitError::State(String::new())),
            not_committed(CommitError::Cell(CellError::Encode(String::new()))),
            not_committed(CommitError::Refused(rejected())),
        ] {
            assert!(matches!(error, SocialError::Broken(_)), "{error:?}");
        }
        for error in [
            refused(UserError::Cells(CellError::Read(ReadError::TooManySnapshots))),
            refused(UserError::NoId(IdError::Lease(EntityError::TimedOut { enqueued: true }))),
            SocialError::from(EntityError::Load(ReadError::Io(io::ErrorKind::Other.into()))),
            not_committed(CommitError::Refused(SubmitError::Overloaded)),
        ] {
            assert!(matches!(error, SocialError::Unavailable(_)), "{error:?}");
        }
    }

    #[test]
    fn a_timeline_waits_while_the_maximum_is_being_merged() {
        let data = tempfile::tempdir().unwrap();
        let runtime = Runtime::builder().workers(1).start().unwrap();
        runtime.block_on(async |runtime| {
            let node = Node::open(data.path()).start(runtime).unwrap();
            let social = Social::new(node.clone(), runtime.clone(), 0).unwrap();
            let alice: Name = "alice".parse().unwrap();
            social.register(&alice, Password::new("correct horse").unwrap()).await.unwrap();

            let merging = social.timelines.acquire_many(TIMELINES_MAX as u32).await.unwrap();
            let mut timeline = std::pin::pin!(social.timeline(&alice, None, 20));
            let waited = tokio::time::timeout(Duration::from_millis(100), &mut timeline).await;
            assert!(waited.is_err());
            drop(merging);
            assert_eq!(timeline.await.unwrap().posts, []);
            node.shutdown().await;
        });
    }
}
