//! Operations of the service across users, called by the HTTP routes, tests or a program.
//!
//! ```text
//! timeline(alice) ──► Live: the newest posts, in memory
//!        └──────────► Merge: older pages, from the authors
//! ```

use std::net::{IpAddr, Ipv4Addr};
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Bytes;
use serde::Serialize;
use throng::prelude::*;
use throng_durable::{CellError, Durable, InstrumentedEntity, Node};
use throng_node::http::Signer;
use tokio::sync::Mutex;

use crate::clock::Now;
use crate::error::{SocialError, unavailable};
use crate::for_you::collector::Collectors;
use crate::for_you::score::Scoring;
use crate::for_you::visits::Visits;
use crate::idempotency::{IdempotencyKey, make};
use crate::ids::{IdGenerator, PostId};
use crate::listing::{Listing, ListingName, PostPage, wanted};
use crate::live::{Live, News, Position, Watching};
use crate::merge::Merge;
use crate::name::Name;
use crate::password::{Client, HashedPassword, Password, Passwords};
use crate::post::{LikedPost, Posted, Text};
use crate::revocations::Revocations;
use crate::revoked::Issued;
use crate::room::live::LiveRooms;
use crate::room::{self, Room};
use crate::user::{Account, Deps, Profile, User, UserClient};

/// Handle of the message service on a node; cheap to clone.
#[derive(Clone, Debug)]
pub struct Social {
    pub(crate) node: Node,
    runtime: RuntimeHandle,
    passwords: Passwords,
    /// Client on whose behalf passwords are hashed.
    client: IpAddr,
    pub(crate) live: Live,
    pub(crate) collectors: Collectors,
    revocations: Revocations,
    pub(crate) visits: Visits,
    pub(crate) scoring: Scoring,
    pub(crate) rooms: LiveRooms,
    pub(crate) merge: Merge,
    /// Held while the state of a room that has ended is removed.
    pub(crate) removal: Arc<Mutex<()>>,
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

/// Outcome of a registration.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Registration {
    /// The user is new.
    New {
        /// See [`since`](Registration::since).
        since: u64,
    },
    /// An earlier request has registered the user with the same password.
    Repeated {
        /// See [`since`](Registration::since).
        since: u64,
    },
}

impl Registration {
    /// Returns the time of the registration, or of the check of the password, in milliseconds since 1970. A token for
    /// the user must be issued as of this time: a password that is changed later revokes it.
    pub fn since(self) -> u64 {
        let (Registration::New { since } | Registration::Repeated { since }) = self;
        since
    }
}

impl Social {
    /// Creates the service on `node`, which runs on `runtime`. No other node of the service may
    /// have this `node_number` (0 to 1023).
    ///
    /// Hashes one password, which takes tens of milliseconds.
    ///
    /// # Errors
    /// [`Unavailable`](SocialError::Unavailable) if the operating system provides no randomness, if there is too
    /// little memory, or within a process of the runtime.
    ///
    /// # Panics
    /// If `node` has a service already; clone that one.
    pub fn new(
        node: Node,
        runtime: RuntimeHandle,
        node_number: u16,
    ) -> Result<Social, SocialError> {
        let passwords = Passwords::new()?;
        let live = Live::start(&runtime)?;
        let rooms = LiveRooms::start(&runtime)?;
        let collectors = Collectors::start(&runtime, &node)?;
        let revocations = Revocations::default();
        node.register::<User>(Deps {
            ids: Arc::new(IdGenerator::new(node_number)),
            live: live.clone(),
            collectors: collectors.clone(),
            revocations: revocations.clone(),
        });
        node.register::<Room>(room::Deps { live: rooms.clone() });
        let merge = Merge::new(node.clone());
        let client = IpAddr::V4(Ipv4Addr::LOCALHOST);
        let (visits, scoring) = (Visits::new(&runtime), Scoring::default());
        Ok(Social {
            node,
            runtime,
            passwords,
            client,
            live,
            collectors,
            revocations,
            visits,
            scoring,
            rooms,
            merge,
            removal: Arc::default(),
        })
    }

    /// Returns the same service on behalf of the client at `address`. When there are more logins
    /// and registrations than can be hashed at once, clients take turns, and so do the names that a
    /// client uses. A whole IPv6 network of 64 bits counts as one client. The default client is
    /// this machine.
    ///
    /// `address` should be the client's own. Behind a reverse proxy that is not in
    /// [`Limits::trusted_proxies`](throng_node::http::Limits::trusted_proxies), every request has the
    /// proxy's address: all clients count as one, only names take turns, and a flood with as many
    /// different names as there are places blocks other logins.
    #[must_use]
    pub fn on_behalf_of(&self, address: IpAddr) -> Social {
        Social { client: address, ..self.clone() }
    }

    /// Registers the user `name` with `password`. A registration that is repeated with the same password within
    /// 24 hours succeeds as well, so that a client whose answer was lost can repeat it. It reveals no more than a
    /// login does.
    ///
    /// # Errors
    /// [`NameTaken`](SocialError::NameTaken), [`TooManyLogins`](SocialError::TooManyLogins).
    pub async fn register(
        &self,
        name: &Name,
        password: Password,
    ) -> Result<Registration, SocialError> {
        // This check only saves useless hashing; the turn that registers decides.
        if let Some(account) = self.user(name).account_of().await? {
            return self.registered_before(name, password, account).await;
        }
        if self.is_deleted(name).await? {
            return Err(SocialError::NameTaken(name.clone()));
        }
        let hash = self.passwords.hash(self.client(Some(name)), password.clone()).await?;
        let since = Now::by_the_clock().ms();
        let account = Account { password_hash: hash, created_ms: since };
        match self.user(name).register(account).await? {
            // Another request has registered the name meanwhile, perhaps the same one.
            Err(SocialError::NameTaken(_)) => match self.user(name).account_of().await? {
                Some(account) => self.registered_before(name, password, account).await,
                None => Err(SocialError::NameTaken(name.clone())),
            },
            outcome => outcome.map(|()| Registration::New { since }),
        }
    }

    /// Hashes a password for [`register_hashed`](Social::register_hashed).
    ///
    /// # Errors
    /// [`TooManyLogins`](SocialError::TooManyLogins).
    pub async fn hash(&self, password: Password) -> Result<HashedPassword, SocialError> {
        Ok(HashedPassword::new(self.passwords.hash(self.client(None), password).await?))
    }

    /// Registers the user `name` with a password that was hashed before: for a program that registers many users of
    /// its own, such as a demonstration, because a hash takes tens of milliseconds.
    ///
    /// # Errors
    /// [`NameTaken`](SocialError::NameTaken).
    pub async fn register_hashed(
        &self,
        name: &Name,
        password: HashedPassword,
    ) -> Result<(), SocialError> {
        if self.is_deleted(name).await? {
            return Err(SocialError::NameTaken(name.clone()));
        }
        let password_hash = password.into_text();
        let account = Account { password_hash, created_ms: Now::by_the_clock().ms() };
        self.user(name).register(account).await?
    }

    /// Accepts a registration that repeats the recent registration of an account.
    async fn registered_before(
        &self,
        name: &Name,
        password: Password,
        account: Account,
    ) -> Result<Registration, SocialError> {
        let age = Now::by_the_clock().ms().abs_diff(account.created_ms);
        let is_recent = u128::from(age) < REPEATED_WITHIN.as_millis();
        let taken = Err(SocialError::NameTaken(name.clone()));
        if !is_recent {
            return taken;
        }
        match self.admit(name, password.into_text(), Some(account.password_hash)).await {
            Err(SocialError::WrongCredentials) => taken,
            outcome => outcome.map(|since| Registration::Repeated { since }),
        }
    }

    /// Checks a login. A wrong name and a wrong password cost the same. Returns the time of the check, in milliseconds
    /// since 1970. A token for the user must be issued as of this time: a password that is changed later revokes it.
    ///
    /// # Errors
    /// [`WrongCredentials`](SocialError::WrongCredentials),
    /// [`TooManyLogins`](SocialError::TooManyLogins).
    pub async fn log_in(&self, name: &Name, password: String) -> Result<u64, SocialError> {
        let stored = self.user(name).password_hash().await?;
        self.admit(name, password, stored).await
    }

    /// Checks a password by the hash that was `stored` when the check began, and returns the time of the check.
    ///
    /// Hashing waits for its turn and takes a while. If the password is changed meanwhile, the old one is refused. If it
    /// is changed after the returned time, the change revokes the tokens that are as old.
    async fn admit(
        &self,
        name: &Name,
        password: String,
        stored: Option<String>,
    ) -> Result<u64, SocialError> {
        self.check(Some(name), password, stored.clone()).await?;
        let since = Now::by_the_clock().ms();
        let is_same = self.user(name).password_hash().await? == stored;
        if is_same { Ok(since) } else { Err(SocialError::WrongCredentials) }
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
        self.user(name).describe().await?
    }

    /// Makes `follower` follow `target`; idempotent.
    ///
    /// # Errors
    /// [`SelfFollow`](SocialError::SelfFollow), [`NoSuchUser`](SocialError::NoSuchUser) for either,
    /// [`FollowingFull`](SocialError::FollowingFull), [`Blocking`](SocialError::Blocking),
    /// [`Blocked`](SocialError::Blocked).
    pub async fn follow(&self, follower: &Name, target: &Name) -> Result<(), SocialError> {
        if follower == target {
            return Err(SocialError::SelfFollow);
        }
        // If the target blocks the follower after this check, or deletes the account, the follower still gets no posts,
        // because an author checks both at each read.
        if self.user(target).blocks(follower.clone()).await?? {
            return Err(SocialError::Blocked(target.clone()));
        }
        self.user(follower).follow(target.clone()).await?
    }

    /// Makes `follower` stop following `target`; idempotent.
    ///
    /// # Errors
    /// [`SelfFollow`](SocialError::SelfFollow), [`NoSuchUser`](SocialError::NoSuchUser) for either.
    pub async fn unfollow(&self, follower: &Name, target: &Name) -> Result<(), SocialError> {
        if follower == target {
            return Err(SocialError::SelfFollow);
        }
        // Also a user who is gone can be unfollowed.
        self.user(follower).unfollow(target.clone()).await??;
        self.profile(target).await.map(drop)
    }

    /// Returns the users that `follower` follows, in alphabetical order.
    ///
    /// # Errors
    /// [`SocialError::NoSuchUser`].
    pub async fn following(&self, follower: &Name) -> Result<Vec<Name>, SocialError> {
        self.user(follower).following().await?
    }

    /// Makes `name` block `target`; idempotent. Follows between the two users end in both directions. From then on,
    /// `target` cannot follow `name`, and the timeline of `target` has no posts of `name`. The posts of `name` stay
    /// readable without a login.
    ///
    /// # Errors
    /// [`SelfBlock`](SocialError::SelfBlock), [`NoSuchUser`](SocialError::NoSuchUser) for either,
    /// [`BlocksFull`](SocialError::BlocksFull). If `target` cannot be reached, the block is in effect, but `target`
    /// still follows `name` until the call is repeated.
    pub async fn block(&self, name: &Name, target: &Name) -> Result<(), SocialError> {
        if name == target {
            return Err(SocialError::SelfBlock);
        }
        self.profile(target).await?;
        self.user(name).block(target.clone()).await??;
        self.user(target).unfollow(name.clone()).await?
    }

    /// Makes `name` stop blocking `target`; idempotent. Follows are not restored.
    ///
    /// # Errors
    /// [`SelfBlock`](SocialError::SelfBlock), [`NoSuchUser`](SocialError::NoSuchUser) for either.
    pub async fn unblock(&self, name: &Name, target: &Name) -> Result<(), SocialError> {
        if name == target {
            return Err(SocialError::SelfBlock);
        }
        // Also a user who is gone can be unblocked.
        self.user(name).unblock(target.clone()).await??;
        self.profile(target).await.map(drop)
    }

    /// Returns the users that `name` blocks, in alphabetical order.
    ///
    /// # Errors
    /// [`SocialError::NoSuchUser`].
    pub async fn blocked(&self, name: &Name) -> Result<Vec<Name>, SocialError> {
        self.user(name).blocked().await?
    }

    /// Returns the first `limit` names (at least one) that begin with `prefix` and come after `after`, in
    /// alphabetical order, and whether there are more. A user is found as soon as the registration is acknowledged.
    ///
    /// # Errors
    /// [`Unavailable`](SocialError::Unavailable), [`Broken`](SocialError::Broken).
    ///
    /// Cost: a scan of the names that are returned.
    pub fn search(
        &self,
        prefix: &str,
        after: Option<&Name>,
        limit: usize,
    ) -> Result<(Vec<Name>, bool), SocialError> {
        stored_names::<User, Name>(&self.node, prefix, after.map_or("", Name::as_str), limit)
    }

    /// Checks that a token of `name` is not revoked. `issued` is its time of issue, in milliseconds since 1970.
    ///
    /// # Errors
    /// [`SocialError::TokenRevoked`], also if there is no such user.
    pub async fn check_token(&self, name: &Name, issued: u64) -> Result<(), SocialError> {
        let accepts = match self.revocations.accepts(name, issued) {
            Some(accepts) => accepts,
            None => {
                let generation = self.revocations.generation(name);
                match self.user(name).revoked_tokens().await? {
                    Some(revoked) => {
                        let accepts = revoked.accepts(issued);
                        self.revocations.keep(name, revoked, generation);
                        accepts
                    }
                    None => false,
                }
            }
        };
        if accepts { Ok(()) } else { Err(SocialError::TokenRevoked) }
    }

    /// Revokes a token of `name`, which logs a single session out. Without a token, revokes all tokens that were
    /// issued until now.
    ///
    /// # Errors
    /// [`SocialError::NoSuchUser`].
    pub async fn log_out(&self, name: &Name, token: Option<Issued>) -> Result<(), SocialError> {
        self.user(name).revoke(token).await?
    }

    /// Changes the password of `name`, and revokes all tokens.
    ///
    /// # Errors
    /// [`WrongCredentials`](SocialError::WrongCredentials),
    /// [`TooManyLogins`](SocialError::TooManyLogins).
    pub async fn change_password(
        &self,
        name: &Name,
        old: String,
        new: Password,
    ) -> Result<(), SocialError> {
        let stored = self.user(name).password_hash().await?;
        self.check(Some(name), old, stored.clone()).await?;
        let hash = self.passwords.hash(self.client(Some(name)), new).await?;
        self.user(name).change_password(stored.unwrap_or_default(), hash).await?
    }

    /// Deletes a post of `author`. An idempotency key of the post stays used.
    ///
    /// # Errors
    /// [`NoSuchUser`](SocialError::NoSuchUser), [`NoSuchPost`](SocialError::NoSuchPost): the post is of another author,
    /// or was deleted before.
    pub async fn delete_post(&self, author: &Name, id: PostId) -> Result<(), SocialError> {
        self.user(author).delete_post(id).await??;
        self.live.settle().await;
        Ok(())
    }

    /// Publishes a post with `text`. If `author` used `key` for it within the last 24 hours,
    /// publishes nothing and returns the existing post.
    ///
    /// # Errors
    /// [`NoSuchUser`](SocialError::NoSuchUser), [`KeyReused`](SocialError::KeyReused),
    /// [`PostDeleted`](SocialError::PostDeleted).
    pub async fn post(
        &self,
        author: &Name,
        text: Text,
        key: Option<IdempotencyKey>,
    ) -> Result<Posted, SocialError> {
        let made = make(self.user(author).publish(text.clone()), key).await?;
        self.live.settle().await;
        if let Some(post) = made.new {
            return Ok(Posted { post, repeated: false });
        }
        match self.find_post(author, PostId::new(made.number)).await {
            Ok(LikedPost { post, .. }) if post.text == text => Ok(Posted { post, repeated: true }),
            Ok(_) => Err(SocialError::KeyReused),
            Err(SocialError::NoSuchPost(_)) => Err(SocialError::PostDeleted),
            Err(error) => Err(error),
        }
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
        let page = self.user(author).posts(None, before, None, wanted(limit)).await??;
        let posts = self.live.posts().find_all(page.posts);
        Ok(PostPage::of(posts, limit, page.reach.is_some()).into())
    }

    /// Returns the page of [`posts`](Social::posts) as the body of an answer.
    pub(crate) async fn posts_body(
        &self,
        author: &Name,
        before: Option<PostId>,
        limit: usize,
        signer: &Signer,
    ) -> Result<Bytes, SocialError> {
        self.user(author).posts_body(before, limit, signer.clone()).await?
    }

    /// Returns the newest `limit` posts (at least one) with ids below `before` of all users that
    /// `reader` follows; fewer, if they, or the posts of one author, have more than 256 KiB of text.
    ///
    /// Paging by [`Listing::next`] returns every post that was acknowledged before the request of
    /// the first page exactly once. Later posts are newer than the first page, and appear when the
    /// timeline is read again.
    ///
    /// Cost: one call while the reader's timeline is in memory: while a socket shows it, and for one or two minutes
    /// after a read. It has the newest 400 posts, with at most 256 KiB of text. The first read, the read after a
    /// change of the follows, and each page of older posts cost one call per followed author, at most 32 calls at a
    /// time. At most 64 such reads run at a time, and further reads wait.
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
        if let Some(page) = self.live.page(&self.merge, reader, before, limit).await? {
            return Ok(page.into());
        }
        Ok(self.merged(reader, before, limit).await?.into())
    }

    /// Returns the page of [`timeline`](Social::timeline) as the body of an answer.
    pub(crate) async fn timeline_body(
        &self,
        reader: &Name,
        before: Option<PostId>,
        limit: usize,
        signer: &Signer,
    ) -> Result<Bytes, SocialError> {
        if let Some(body) = self.live.body(&self.merge, reader, before, limit, signer).await? {
            return Ok(body);
        }
        let page = self.merged(reader, before, limit).await?;
        Ok(page.encode(ListingName::timeline(reader), signer))
    }

    /// Merges a page of a timeline from the authors' posts.
    async fn merged(
        &self,
        reader: &Name,
        before: Option<PostId>,
        limit: usize,
    ) -> Result<PostPage, SocialError> {
        let authors = self.merge.following(reader).await?;
        let merged = self.merge.newest(reader, authors, before, wanted(limit)).await?;
        Ok(PostPage::of(self.live.posts().find_all(merged.posts), limit, merged.is_cut))
    }

    /// Makes a process watch the timeline of `reader`, from its last position on.
    pub(crate) async fn watch(
        &self,
        reader: &Name,
        watcher: Recipient<News>,
        last: Option<Position>,
    ) -> Result<Watching, SocialError> {
        self.live.watch(&self.merge, reader, watcher, last).await
    }

    pub(crate) fn runtime(&self) -> &RuntimeHandle {
        &self.runtime
    }

    /// Returns the state of the node under the service.
    ///
    /// # Errors
    /// [`SocialError::Unavailable`], if the store accepts writes, but cannot be read at present.
    pub fn health(&self) -> Result<Health, SocialError> {
        let store = self.node.store();
        // Checked first, and without reading: a failed commit may have ended all reading.
        let writable = store.is_writable() && !store.is_failing();
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

    pub(crate) fn user(&self, name: &Name) -> InstrumentedEntity<User> {
        self.node.entity(name.as_str()).in_current_span()
    }
}

/// Returns the first `limit` keys (at least one) of stored entities that begin with `prefix` and come after `after`,
/// and whether there are more.
pub(crate) fn stored_names<P: Durable, N: FromStr>(
    node: &Node,
    prefix: &str,
    after: &str,
    limit: usize,
) -> Result<(Vec<N>, bool), SocialError> {
    let stored = node.stored::<P>().map_err(CellError::Read)?;
    let mut found = Vec::new();
    for name in stored.prefix(prefix).after(after).take(wanted(limit)) {
        found.extend(name.map_err(CellError::Read)?.parse::<N>());
    }
    let more = found.len() > limit.max(1);
    found.truncate(limit.max(1));
    Ok((found, more))
}

const REPEATED_WITHIN: Duration = Duration::from_secs(24 * 60 * 60);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::with_the_service;

    #[test]
    fn users_that_share_a_hash_log_in_with_its_password() {
        with_the_service(1, async |social| {
            let hashed = social.hash(Password::new("correct horse").unwrap()).await.unwrap();
            let (alice, bob) = ("alice".parse().unwrap(), "bob".parse().unwrap());
            for name in [&alice, &bob] {
                social.register_hashed(name, hashed.clone()).await.unwrap();
                social.log_in(name, "correct horse".to_owned()).await.unwrap();
                let wrong = social.log_in(name, "battery staple".to_owned()).await;
                assert!(matches!(wrong, Err(SocialError::WrongCredentials)), "{wrong:?}");
            }
            let again = social.register_hashed(&alice, hashed).await;
            assert!(matches!(again, Err(SocialError::NameTaken(_))), "{again:?}");
        });
    }

    #[test]
    fn a_login_counts_from_its_check_and_not_after_a_change_of_the_password() {
        const OLD: &str = "correct horse";
        const NEW: &str = "battery staple";
        with_the_service(1, async |social| {
            let alice: Name = "alice".parse().unwrap();
            let password = || Password::new(OLD).unwrap();
            let registered = social.register(&alice, password()).await.unwrap().since();
            let repeated = social.register(&alice, password()).await.unwrap().since();
            let logged_in = social.log_in(&alice, OLD.to_owned()).await.unwrap();
            // A login and a registration that have read the hash, and wait for the check.
            let stored = social.user(&alice).password_hash().await.unwrap();
            let account = social.user(&alice).account_of().await.unwrap().unwrap();
            social.change_password(&alice, OLD.into(), Password::new(NEW).unwrap()).await.unwrap();
            for since in [registered, repeated, logged_in] {
                let checked = social.check_token(&alice, since).await;
                assert!(matches!(checked, Err(SocialError::TokenRevoked)), "{checked:?}");
            }
            let late = social.admit(&alice, OLD.to_owned(), stored).await;
            assert!(matches!(late, Err(SocialError::WrongCredentials)), "{late:?}");
            let late = social.registered_before(&alice, password(), account).await;
            assert!(matches!(late, Err(SocialError::NameTaken(_))), "{late:?}");
            let since = social.log_in(&alice, NEW.to_owned()).await.unwrap();
            social.check_token(&alice, since).await.unwrap();
        });
    }

    #[test]
    fn a_registration_is_repeated_within_a_day_only() {
        const PASSWORD: &str = "correct horse";
        with_the_service(1, async |social| {
            let kept = u64::try_from(REPEATED_WITHIN.as_millis()).unwrap();
            let now = Now::by_the_clock().ms();
            // Half an hour to both sides of the end, for slow machines.
            for (name, age, is_repeatable) in
                [("young", kept - 1_800_000, true), ("old", kept + 1_800_000, false)]
            {
                let name: Name = name.parse().unwrap();
                let password = || Password::new(PASSWORD).unwrap();
                let hash = social.passwords.hash(social.client(None), password()).await.unwrap();
                let account = Account { password_hash: hash, created_ms: now - age };
                social.user(&name).register(account).await.unwrap().unwrap();
                let again = social.register(&name, password()).await;
                assert_eq!(again.is_ok(), is_repeatable, "{name}: {again:?}");
            }
        });
    }
}
