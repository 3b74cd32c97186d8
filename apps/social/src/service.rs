//! What the service does, across users: the operations that HTTP, tests or a program call.
//!
//! ```text
//! timeline(alice)    names = alice.ListFollowing
//!                    for each name, at most FETCHES_MAX at once:
//!                        name.ListPosts{before, floor, limit} ──► Newest(limit)
//!                                                     ▲              │ floor
//!                                                     └──────────────┘
//! ```
//!
//! A timeline is merged when it is read: each author is asked for no more than could still make it
//! onto the page, so the work beyond the first page's worth is a look at each author's latest.
//!
//! Invariant: a page is whole. An author's page that was cut, because it had too much text, says
//! nothing of what lies below its last post; so the merged page ends there at the latest, and the
//! next one begins there.

use std::error::Error;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use futures_util::stream::{self, StreamExt};
use serde::Serialize;
use throng::prelude::*;
use throng_durable::{CellError, CommitError, Entity, EntityError, Node, ReadError, WriteError};
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

/// The message service on a node; cheap to clone.
#[derive(Clone, Debug)]
pub struct Social {
    node: Node,
    runtime: RuntimeHandle,
    ids: Arc<IdGenerator>,
    passwords: Passwords,
    /// The client on whose behalf passwords are hashed.
    client: IpAddr,
    /// One for each timeline that may be merged now; each takes megabytes meanwhile.
    timelines: Arc<Semaphore>,
}

/// A post, as everybody sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Post {
    /// Its id; higher is newer.
    pub id: PostId,
    /// Who posted it.
    pub author: Name,
    /// What it says.
    pub text: Text,
}

/// What posting came to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Posted {
    /// The post.
    pub post: Post,
    /// It was there before, under the same idempotency key.
    pub repeated: bool,
}

/// A page of posts, newest first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listing {
    /// The posts.
    pub posts: Vec<Post>,
    /// There are older ones: they come `before` this id.
    pub next: Option<PostId>,
}

/// Whether the service can do all that it is for.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Status {
    /// It reads and writes.
    Ok,
    /// A commit broke off: it writes nothing, may not even read, and must be started anew.
    ReadOnly,
}

/// What a health check tells.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Health {
    /// Whether it can do all that it is for.
    pub status: Status,
    /// Processes alive in the runtime.
    pub processes: u64,
    /// How many there may be.
    pub process_limit: u64,
    /// Durable processes in memory; those at rest are not counted.
    pub live_entities: usize,
    /// Records on disk: users, follows, posts, and a few of the node's own. None if the store can
    /// no longer be read.
    pub records: Option<u64>,
    /// The size of the store's file. None if the store can no longer be read.
    pub file_bytes: Option<u64>,
}

/// Why an operation was not done.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SocialError {
    /// Somebody has this name already; choose another.
    #[error("the name {0} is already taken; choose another")]
    NameTaken(Name),
    /// Nobody has this name.
    #[error("there is no user named {0}")]
    NoSuchUser(Name),
    /// The name or the password is wrong; it is not said which.
    #[error("the name or the password is wrong")]
    WrongCredentials,
    /// One cannot follow oneself.
    #[error("you cannot follow or unfollow yourself")]
    SelfFollow,
    /// As many are followed as may be; unfollow somebody first.
    #[error("you follow the maximum number of users; unfollow a user first")]
    FollowingFull,
    /// The idempotency key was used for another text; use a new one.
    #[error("the idempotency key was used for a different text; use a new key")]
    KeyReused,
    /// The user has made as many posts with idempotency keys as are remembered; post without a
    /// key, or wait until the oldest is forgotten.
    #[error(
        "you have used {} idempotency keys in the last 24 hours; \
         post without a key, or try again later",
        IdempotencyKey::COUNT_MAX
    )]
    KeysFull {
        /// The time until the oldest key is forgotten.
        retry_after: Duration,
    },
    /// The queue for hashing passwords is full, and other clients have a better claim to a place.
    /// Nothing was done; try again in a few seconds.
    #[error("too many logins and registrations at once; try again in a few seconds")]
    TooManyLogins,
    /// It was not done, because the machine cannot do it now; try again later.
    #[error("the service is temporarily unavailable and did nothing; try again later")]
    Unavailable(#[source] Box<dyn Error + Send + Sync>),
    /// The answer was lost; it may have been done or not. Try again with the same idempotency key,
    /// or look.
    #[error(
        "the answer was lost; the operation may or may not have taken effect; \
         check, or repeat it with the same idempotency key"
    )]
    Uncertain(#[source] EntityError),
    /// It was not done, because something is broken that trying again will not mend.
    #[error(
        "the service failed and did nothing; trying again will not help; its log has the reason"
    )]
    Broken(#[source] Box<dyn Error + Send + Sync>),
}

impl Social {
    /// The service on `node`, which runs on `runtime` and must be the only one with this
    /// `node_number` (0 to 1023).
    ///
    /// Hashes one password, so takes tens of milliseconds.
    ///
    /// # Errors
    /// The system gives no randomness.
    pub fn new(node: Node, runtime: RuntimeHandle, node_number: u16) -> Result<Social, HashError> {
        let ids = Arc::new(IdGenerator::new(&node, node_number));
        let timelines = Arc::new(Semaphore::new(TIMELINES_MAX));
        let client = IpAddr::V4(Ipv4Addr::LOCALHOST);
        Ok(Social { node, runtime, ids, passwords: Passwords::new()?, client, timelines })
    }

    /// The same service, on behalf of the client at `address`: when many log in or register at once,
    /// clients take turns, and so do the names that a client uses. All of an IPv6 network of 64 bits
    /// is one client. Without this, the client is this machine.
    ///
    /// `address` should be the client's own. Behind a reverse proxy, the address of every connection is
    /// the proxy's: all clients are one, only names take turns, and a flood with as many different
    /// names as there are places shuts other logins out.
    #[must_use]
    pub fn on_behalf_of(&self, address: IpAddr) -> Social {
        Social { client: address, ..self.clone() }
    }

    /// Gives `name` to whoever knows `password`.
    ///
    /// # Errors
    /// [`NameTaken`](SocialError::NameTaken), [`TooManyLogins`](SocialError::TooManyLogins).
    pub async fn register(&self, name: &Name, password: Password) -> Result<(), SocialError> {
        // Asked first only to save hashing for nothing; the turn that registers decides.
        if self.describe(name).await?.is_some() {
            return Err(SocialError::NameTaken(name.clone()));
        }
        let password_hash = self.passwords.hash(self.client(Some(name)), password).await?;
        let created_ms = u64::try_from(since_1970().as_millis()).unwrap_or(u64::MAX);
        let account = Account { password_hash, created_ms };
        self.ask(name, Register(account)).await?.map_err(|refused| refused.for_user(name))
    }

    /// Checks a login. Costs the same whether the name or the password is wrong.
    ///
    /// # Errors
    /// [`WrongCredentials`](SocialError::WrongCredentials),
    /// [`TooManyLogins`](SocialError::TooManyLogins).
    pub async fn log_in(&self, name: &Name, password: String) -> Result<(), SocialError> {
        let kept = self.ask(name, ReadPasswordHash).await?;
        self.check(Some(name), password, kept).await
    }

    /// What a login under a name that nobody can have costs, and comes to.
    ///
    /// # Errors
    /// Always [`SocialError::WrongCredentials`], if the machine can say so.
    pub async fn log_in_invalid_name(&self, password: String) -> Result<(), SocialError> {
        self.check(None, password, None).await
    }

    /// What everybody may know of `name`.
    ///
    /// # Errors
    /// [`SocialError::NoSuchUser`].
    pub async fn profile(&self, name: &Name) -> Result<Profile, SocialError> {
        self.describe(name).await?.ok_or_else(|| SocialError::NoSuchUser(name.clone()))
    }

    /// Lets `follower` follow `target`; doing it twice is doing it once.
    ///
    /// # Errors
    /// [`SelfFollow`](SocialError::SelfFollow), [`NoSuchUser`](SocialError::NoSuchUser) for either,
    /// [`FollowingFull`](SocialError::FollowingFull).
    pub async fn follow(&self, follower: &Name, target: &Name) -> Result<(), SocialError> {
        if follower == target {
            return Err(SocialError::SelfFollow);
        }
        self.profile(target).await?; // accounts are never taken back, so this stays true
        let followed = self.ask(follower, Follow(target.clone())).await?;
        followed.map_err(|refused| refused.for_user(follower))
    }

    /// Lets `follower` cease to follow `target`; not following already is fine.
    ///
    /// # Errors
    /// As [`follow`](Social::follow), without `FollowingFull`.
    pub async fn unfollow(&self, follower: &Name, target: &Name) -> Result<(), SocialError> {
        if follower == target {
            return Err(SocialError::SelfFollow);
        }
        self.profile(target).await?;
        let unfollowed = self.ask(follower, Unfollow(target.clone())).await?;
        unfollowed.map_err(|refused| refused.for_user(follower))
    }

    /// Whom `follower` follows, in alphabetic order.
    ///
    /// # Errors
    /// [`SocialError::NoSuchUser`].
    pub async fn following(&self, follower: &Name) -> Result<Vec<Name>, SocialError> {
        let names = self.ask(follower, ListFollowing).await?;
        names.map_err(|refused| refused.for_user(follower))
    }

    /// Posts `text`. With a `key` that `author` used for it within the last 24 hours, posts nothing
    /// and returns the post that is there.
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

    /// The newest `limit` posts (at least one) of `author` with ids below `before`; fewer, if they
    /// would have more than 256 KiB of text.
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

    /// The newest `limit` posts (at least one) with ids below `before` of all whom `reader` follows;
    /// fewer, if they or those of one author would have more than 256 KiB of text.
    ///
    /// Paging by [`Listing::next`] yields everything that was acknowledged before the first page
    /// was asked for exactly once; what is posted meanwhile is newer and comes with a new reading.
    /// Cost: one call for each author followed, at most 32 at a time. Beyond 64 timelines at a time,
    /// one waits for another to be done.
    ///
    /// # Errors
    /// [`SocialError::NoSuchUser`]. One author who cannot be asked fails the whole: a timeline
    /// with holes would look complete.
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
        let mut reach = None; // of the page that was cut highest
        // Read whenever the next author's turn comes, so it prunes more the later that is.
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

    /// How the node under the service is doing.
    ///
    /// # Errors
    /// [`SocialError::Unavailable`], if the store takes writes, but cannot be read just now.
    pub fn health(&self) -> Result<Health, SocialError> {
        let store = self.node.store();
        // Asked first, and without reading: a commit that broke off may have ended all reading.
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
        kept: Option<String>,
    ) -> Result<(), SocialError> {
        let fits = self.passwords.verify(self.client(name), password, kept).await?;
        if fits { Ok(()) } else { Err(SocialError::WrongCredentials) }
    }

    fn client<'c>(&self, name: Option<&'c Name>) -> Client<'c> {
        Client { address: self.client, name }
    }

    /// One message to the process of `name`.
    async fn ask<M>(&self, name: &Name, message: M) -> Result<M::Reply, SocialError>
    where
        M: Message,
        User: Handle<M>,
    {
        let user: Entity<User> = self.node.entity(name.as_str());
        Ok(user.call(message).await?)
    }
}

/// How many posts to ask for to fill a page of `limit`: one more tells whether there is a next
/// page, and a page holds at least one, lest paging stand still.
fn wanted(limit: usize) -> usize {
    limit.max(1).saturating_add(1)
}

/// What an author has for a page.
struct AuthorPage {
    posts: Vec<Post>,
    /// The page was cut: of what was asked for, there is more below this id.
    reach: Option<PostId>,
}

impl Listing {
    /// The page of `limit` that `posts`, of which [`wanted`] were asked for, make; `cut` if there
    /// are older ones in any case.
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
    /// What it means that `user` refused.
    fn for_user(self, user: &Name) -> SocialError {
        match self {
            UserError::NoAccount => SocialError::NoSuchUser(user.clone()),
            UserError::NameTaken => SocialError::NameTaken(user.clone()),
            UserError::FollowingFull => SocialError::FollowingFull,
            UserError::KeyReused => SocialError::KeyReused,
            UserError::KeysFull(KeysFull { retry_after }) => SocialError::KeysFull { retry_after },
            // The post was not written, whatever became of the lease.
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
            // What trying again will not mend: damage, and turns that can never be committed.
            E::Load(ReadError::Corrupt(_))
            | E::NotCommitted(
                CommitError::State(_)
                | CommitError::Cell(_)
                | CommitError::Write(WriteError::Rejected { .. }),
            ) => broken(error),
            E::Load(_)
            | E::NoRoom { .. }
            | E::ShutDown
            | E::NotCommitted(_)
            | E::TimedOut { enqueued: false } => unavailable(error),
            E::Unknown(_) | E::Died(_) | E::TimedOut { enqueued: true } => {
                SocialError::Uncertain(error)
            }
            // A key that is no name, a state that does not decode, a panic.
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

/// Authors asked at once for one timeline.
const FETCHES_MAX: usize = 32;

/// Timelines merged at once; who waits holds nothing but a list of names.
const TIMELINES_MAX: usize = 64;

#[cfg(test)]
mod tests {
    use std::io;

    use throng_store::{Batch, Rejection};

    use super::*;

    #[test]
    fn what_trying_again_will_not_mend_is_called_broken() {
        let name: Name = "alice".parse().unwrap();
        let damage = || ReadError::Corrupt("a page".to_owned());
        let refused = |refused: UserError| refused.for_user(&name);
        let not_committed = |error| SocialError::from(EntityError::NotCommitted(error));
        let rejected = || WriteError::Rejected { batch: Batch::new(), reason: Rejection::KeyEmpty };
        for error in [
            refused(UserError::Cells(CellError::Read(damage()))),
            refused(UserError::Cells(CellError::Decode(String::new()))),
            refused(UserError::NoId(IdError::Exhausted)),
            refused(UserError::NoId(IdError::Lease(EntityError::Load(damage())))),
            SocialError::from(EntityError::Load(damage())),
            not_committed(CommitError::State(String::new())),
            not_committed(CommitError::Cell(CellError::Encode(String::new()))),
            not_committed(CommitError::Write(rejected())),
        ] {
            assert!(matches!(error, SocialError::Broken(_)), "{error:?}");
        }
        for error in [
            refused(UserError::Cells(CellError::Read(ReadError::TooManySnapshots))),
            refused(UserError::NoId(IdError::Lease(EntityError::TimedOut { enqueued: true }))),
            SocialError::from(EntityError::Load(ReadError::Io(io::ErrorKind::Other.into()))),
            not_committed(CommitError::Write(WriteError::Overloaded(Batch::new()))),
        ] {
            assert!(matches!(error, SocialError::Unavailable(_)), "{error:?}");
        }
    }

    #[test]
    fn a_timeline_waits_while_as_many_are_merged_as_may_be() {
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
