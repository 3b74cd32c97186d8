//! A user: one durable process and its messages.
//!
//! ```text
//! state   account (password hash, created), counts, revoked tokens
//! cells   following       NAME    → ()      followed users, by name
//!         followers       NAME    → ()      users that follow, see `user/followers.rs`
//!         blocked         NAME    → ()      blocked users, by name
//!         posts           POST-ID → time, text     posts, oldest first
//!         likes, like-counts                likes of the posts, see `user/likes.rs`
//!         rooms           ROOM    → ()      rooms of which the user may be a member, see `room/membership.rs`
//!         interests       TAG     → ()      tags that interest the user, see `for_you/interests.rs`
//! ```
//!
//! Invariants: the state is small and of bounded size, because every turn that changes it writes
//! the whole state. Data that grows (posts, follows, blocks) is in cells, each written once. A process
//! without an account stands for an unregistered name, and stores nothing. Post ids rise from cell
//! to cell, because they are assigned within the author's turn.

mod followers;
mod likes;

use std::error::Error;
use std::sync::Arc;

use axum::body::Bytes;
use serde::{Deserialize, Serialize};
use throng::prelude::*;
use throng_durable::{CellError, Durable, DurableContext, OnFailure, Str, U64};
use throng_node::http::Signer;

use crate::clock::Now;
use crate::error::SocialError;
use crate::for_you::collector::{ChangeKind, Collectors, PostChange};
use crate::idempotency::Made;
use crate::ids::{IdGenerator, PostId};
use crate::listing::{CachedBody, ListingName, PostPage, wanted};
use crate::live::{Change, Live};
use crate::name::{Name, RoomName};
use crate::post::{AuthorPage, LikedPost, PageBudget, Post, Text};
use crate::revocations::Revocations;
use crate::revoked::{Issued, Revoked};
use crate::room::membership;
use crate::tags::Tag;

/// State of a registered user, or of an unregistered name.
#[derive(Durable, Debug, Default, Serialize, Deserialize)]
// The attempts at a durable message last for minutes, in which a store that cannot be read may recover.
#[durable(kind = "user", deps = Deps, on_failure = OnFailure::park_after(20))]
pub(crate) struct User {
    account: Option<Account>,
    following: u32,
    posts: u64,
    revoked: Revoked,
    blocks: u32,
    followers: u64,
    /// Whether the account was deleted, and may have left cells.
    is_closed: bool,
    #[serde(skip)]
    newest: CachedBody,
}

/// Post as its cell keeps it: its time in milliseconds since 1970, and its text.
type PostCell = (u64, Text);

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Account {
    /// Hash of the password, with salt and parameters (a PHC string).
    pub(crate) password_hash: String,
    /// Time of registration, in milliseconds since 1970.
    pub(crate) created_ms: u64,
}

/// Parts of the service that users' processes use.
pub(crate) struct Deps {
    pub(crate) ids: Arc<IdGenerator>,
    pub(crate) live: Live,
    pub(crate) collectors: Collectors,
    pub(crate) revocations: Revocations,
}

/// Public data of a user.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Profile {
    /// Name of the user.
    pub name: Name,
    /// Time of registration, in milliseconds since 1970.
    pub created: u64,
    /// Number of the user's posts.
    pub posts: u64,
    /// Number of users that the user follows.
    pub following: u32,
    /// Number of users that follow the user. Follows that were made or ended just now may not be counted yet.
    pub followers: u64,
}

#[process(never_blocks)]
impl User {
    /// Registers the user, unless the name is taken.
    #[message]
    pub(crate) fn register(
        &mut self,
        cx: &mut Context<Self>,
        account: Account,
    ) -> Result<(), SocialError> {
        if self.account.is_some() {
            return Err(SocialError::NameTaken(name(cx)));
        }
        self.account = Some(account);
        tracing::debug!(user = %name(cx), "registers");
        Ok(())
    }

    /// Replaces the password hash, unless it has changed since `old` was read, and revokes all tokens.
    #[message]
    pub(crate) fn change_password(
        &mut self,
        cx: &mut Context<Self>,
        old: String,
        new: String,
    ) -> Result<(), SocialError> {
        let Some(account) = &mut self.account else {
            return Err(SocialError::NoSuchUser(name(cx)));
        };
        if account.password_hash != old {
            return Err(SocialError::WrongCredentials);
        }
        account.password_hash = new;
        tracing::debug!(user = %name(cx), "changes the password");
        self.revoked.revoke_all(Now::by_the_clock());
        recheck_tokens(cx);
        Ok(())
    }

    /// Returns the revoked tokens, or `None` if there is no user with the name.
    #[message]
    pub(crate) fn revoked_tokens(&self) -> Option<Revoked> {
        self.account.as_ref().map(|_| self.revoked.clone())
    }

    /// Revokes a token, or all tokens that were issued until now.
    #[message]
    pub(crate) fn revoke(
        &mut self,
        cx: &mut Context<Self>,
        token: Option<Issued>,
    ) -> Result<(), SocialError> {
        self.account(cx)?;
        let now = Now::by_the_clock();
        match token {
            Some(token) => self.revoked.revoke(token, now),
            None => self.revoked.revoke_all(now),
        }
        recheck_tokens(cx);
        Ok(())
    }

    /// Returns whether the user has an account, or one whose deletion is not complete.
    #[message]
    pub(crate) fn is_known(&self) -> bool {
        self.account.is_some() || self.is_closed
    }

    /// Ends the account; idempotent. All tokens are revoked. Returns the list of the user's rooms.
    #[message]
    pub(crate) fn close(&mut self, cx: &mut Context<Self>) -> Result<Vec<RoomName>, CellError> {
        if self.account.take().is_some() {
            self.is_closed = true;
            self.newest.invalidate();
            let reader = name(cx);
            tracing::info!(user = %reader, "deletes the account");
            recheck_tokens(cx);
            refresh(cx, reader);
        }
        membership::listed(cx)
    }

    /// Removes some posts and follows of a closed account, and tells the other users of those follows. Returns whether
    /// there were any.
    #[message]
    pub(crate) fn clear(&mut self, cx: &mut Context<Self>) -> Result<bool, SocialError> {
        if !self.is_closed {
            return Ok(false);
        }
        let mut posts = cx.cells::<U64, PostCell>(POSTS);
        let ids = posts.range(..).take(CLEARED_AT_ONCE).map(|cell| cell.map(|(id, _)| id));
        let ids: Vec<u64> = ids.collect::<Result<_, _>>()?;
        for id in &ids {
            self.remove_post(cx, PostId::new(*id))?;
        }
        let mut following = names(cx, FOLLOWING, self.following)?;
        following.truncate(CLEARED_AT_ONCE);
        for target in &following {
            remove(cx, FOLLOWING, &mut self.following, target)?;
            User::tell_target(cx, target, false);
        }
        let (followers, _) = self.some_followers(cx, None, CLEARED_AT_ONCE)?;
        for follower in &followers {
            self.follower_changed(cx, follower, false);
            let (target, follower) = (name(cx), cx.node().entity::<User>(follower.as_str()));
            cx.send_durable(&follower, LoseTarget { target });
        }
        Ok(ids.len() + following.len() + followers.len() > 0)
    }

    /// Returns the password hash, or `None` if there is no user with the name.
    #[message]
    pub(crate) fn password_hash(&self) -> Option<String> {
        self.account.as_ref().map(|account| account.password_hash.clone())
    }

    /// Returns the account, or `None` if there is no user with the name.
    #[message]
    pub(crate) fn account_of(&self) -> Option<Account> {
        self.account.clone()
    }

    /// Returns the public profile.
    #[message]
    pub(crate) fn describe(&self, cx: &mut Context<Self>) -> Result<Profile, SocialError> {
        let created = self.account(cx)?.created_ms;
        let User { posts, following, followers, .. } = *self;
        Ok(Profile { name: name(cx), created, posts, following, followers })
    }

    /// Follows a user that is known to exist; idempotent.
    #[message]
    pub(crate) fn follow(
        &mut self,
        cx: &mut Context<Self>,
        target: Name,
    ) -> Result<(), SocialError> {
        self.account(cx)?;
        if self.blocks > 0 && cx.cells::<Str, ()>(BLOCKED).contains(target.as_str())? {
            return Err(SocialError::Blocking(target));
        }
        let (following, full) = (&mut self.following, SocialError::FollowingFull);
        if add(cx, FOLLOWING, following, &target, FOLLOWING_MAX, full)? {
            User::tell_target(cx, &target, true);
            let reader = name(cx);
            refresh(cx, reader);
        }
        Ok(())
    }

    /// Stops following a user; idempotent.
    #[message]
    pub(crate) fn unfollow(
        &mut self,
        cx: &mut Context<Self>,
        target: Name,
    ) -> Result<(), SocialError> {
        self.account(cx)?;
        if remove(cx, FOLLOWING, &mut self.following, &target)? {
            User::tell_target(cx, &target, false);
            let reader = name(cx);
            refresh(cx, reader);
        }
        Ok(())
    }

    /// Stops following a user whose account was deleted.
    #[message(durable)]
    fn lose_target(&mut self, cx: &mut Context<Self>, target: Name) {
        match self.unfollow(cx, target) {
            Err(SocialError::NoSuchUser(_)) => {}
            outcome => or_try_again(outcome),
        }
    }

    /// Returns the names of the followed users, in alphabetical order.
    #[message]
    pub(crate) fn following(&self, cx: &mut Context<Self>) -> Result<Vec<Name>, SocialError> {
        self.account(cx)?;
        names(cx, FOLLOWING, self.following)
    }

    /// Records that another user follows this user, or does so no more. A name without an account stores nothing.
    #[message(durable)]
    fn note_follower(&mut self, cx: &mut Context<Self>, follower: Name, follows: bool) {
        if self.account.is_some() {
            self.follower_changed(cx, &follower, follows);
        }
    }

    /// Returns the first `limit` followers after a name, in alphabetical order, and whether there are more.
    #[message]
    pub(crate) fn followers(
        &self,
        cx: &mut Context<Self>,
        after: Option<Name>,
        limit: usize,
    ) -> Result<(Vec<Name>, bool), SocialError> {
        self.account(cx)?;
        Ok(self.some_followers(cx, after.as_ref(), limit)?)
    }

    /// Blocks a user and stops following them; idempotent.
    #[message]
    pub(crate) fn block(
        &mut self,
        cx: &mut Context<Self>,
        target: Name,
    ) -> Result<(), SocialError> {
        self.account(cx)?;
        let (blocks, full) = (&mut self.blocks, SocialError::BlocksFull);
        if add(cx, BLOCKED, blocks, &target, BLOCKS_MAX, full)? {
            refresh(cx, target.clone());
        }
        self.unfollow(cx, target)
    }

    /// Stops blocking a user; idempotent.
    #[message]
    pub(crate) fn unblock(
        &mut self,
        cx: &mut Context<Self>,
        target: Name,
    ) -> Result<(), SocialError> {
        self.account(cx)?;
        if remove(cx, BLOCKED, &mut self.blocks, &target)? {
            // The target may still follow, if it could not be reached by the block.
            refresh(cx, target);
        }
        Ok(())
    }

    /// Returns the names of the blocked users, in alphabetical order.
    #[message]
    pub(crate) fn blocked(&self, cx: &mut Context<Self>) -> Result<Vec<Name>, SocialError> {
        self.account(cx)?;
        names(cx, BLOCKED, self.blocks)
    }

    #[message]
    pub(crate) fn blocks(&self, cx: &mut Context<Self>, other: Name) -> Result<bool, SocialError> {
        self.account(cx)?;
        self.is_blocked(cx, &other)
    }

    /// Publishes a post, whose id is assigned within the turn.
    #[message]
    pub(crate) async fn publish(
        &mut self,
        cx: &mut Context<Self>,
        text: Text,
    ) -> Result<Made<Post>, SocialError> {
        self.account(cx)?;
        let (author, time) = (name(cx), Now::by_the_clock().ms());
        let node = cx.node();
        let id = cx.deps().ids.next(&node).await?;
        let cell = (time, text);
        cx.cells::<U64, PostCell>(POSTS).put(&id.get(), &cell);
        self.posts += 1;
        self.newest.invalidate();
        tracing::debug!(user = %author, post = %id, "publishes a post");
        let post = Post { id, author, text: cell.1, time };
        let shared = cx.deps().live.posts().share(post.clone());
        self.announce(cx, Change::Posted(shared));
        self.rank(cx, id, &post.text, ChangeKind::Posted);
        Ok(Made { number: id.get(), new: Some(post) })
    }

    #[message]
    pub(crate) fn delete_post(
        &mut self,
        cx: &mut Context<Self>,
        id: PostId,
    ) -> Result<(), SocialError> {
        self.account(cx)?;
        self.remove_post(cx, id)
    }

    fn remove_post(&mut self, cx: &mut Context<Self>, id: PostId) -> Result<(), SocialError> {
        let mut posts = cx.cells::<U64, PostCell>(POSTS);
        let (_, text) = posts.get(&id.get())?.ok_or(SocialError::NoSuchPost(id))?;
        posts.delete(&id.get());
        tracing::debug!(user = %name(cx), post = %id, "deletes a post");
        self.posts -= 1;
        self.newest.invalidate();
        self.forget_likes(cx, id)?;
        self.announce(cx, Change::Deleted(id));
        self.rank(cx, id, &text, ChangeKind::Deleted);
        Ok(())
    }

    /// Adds or removes the like of another user; idempotent.
    #[message]
    pub(crate) fn like(
        &mut self,
        cx: &mut Context<Self>,
        reader: Name,
        id: PostId,
        likes: bool,
    ) -> Result<(), SocialError> {
        self.set_like(cx, &reader, id, likes).map(drop)
    }

    /// Removes further likes of a deleted post.
    #[message(durable)]
    fn remove_likes(&mut self, cx: &mut Context<Self>, id: PostId) {
        or_try_again(self.remove_some_likes(cx, id));
    }

    #[message]
    pub(crate) fn find_post(
        &self,
        cx: &mut Context<Self>,
        id: PostId,
    ) -> Result<LikedPost, SocialError> {
        self.account(cx)?;
        self.liked_post(cx, id)?.ok_or(SocialError::NoSuchPost(id))
    }

    /// Returns a post and the number of its likes, unless it or the account was deleted or the reader is blocked.
    #[message]
    pub(crate) fn show(
        &self,
        cx: &mut Context<Self>,
        reader: Name,
        id: PostId,
    ) -> Result<Option<LikedPost>, SocialError> {
        let is_hidden = self.account.is_none() || self.is_blocked(cx, &reader)?;
        if is_hidden { Ok(None) } else { Ok(self.liked_post(cx, id)?) }
    }

    /// Returns the newest posts below `before` and not below `floor`, newest first: at most
    /// `limit`, and at most 256 KiB of text. A blocked reader gets none, and neither does the reader of a timeline if
    /// the account was deleted.
    #[message]
    pub(crate) fn posts(
        &self,
        cx: &mut Context<Self>,
        reader: Option<Name>,
        before: Option<PostId>,
        floor: Option<PostId>,
        limit: usize,
    ) -> Result<AuthorPage, SocialError> {
        if let Some(reader) = reader
            && (self.account.is_none() || self.is_blocked(cx, &reader)?)
        {
            return Ok(AuthorPage { is_hidden: true, ..AuthorPage::default() });
        }
        self.account(cx)?;
        self.posts_below(cx, before, floor, limit)
    }

    /// Returns the body of the answer with a page of the newest posts below `before`.
    #[message]
    pub(crate) fn posts_body(
        &self,
        cx: &mut Context<Self>,
        before: Option<PostId>,
        limit: usize,
        signer: Signer,
    ) -> Result<Bytes, SocialError> {
        self.account(cx)?;
        let live = cx.deps().live.clone();
        self.newest.get_or_make(live.bodies(), &signer, before, limit, || {
            let AuthorPage { posts, reach, .. } =
                self.posts_below(cx, before, None, wanted(limit))?;
            let posts = live.posts().find_all(posts);
            let page = PostPage::of(posts, limit, reach.is_some());
            Ok(page.encode(ListingName::posts(&name(cx)), &signer))
        })
    }

    fn posts_below(
        &self,
        cx: &mut Context<Self>,
        before: Option<PostId>,
        floor: Option<PostId>,
        limit: usize,
    ) -> Result<AuthorPage, SocialError> {
        let author = name(cx);
        let (oldest, end) = (floor.map_or(0, PostId::get), before.map_or(u64::MAX, PostId::get));
        let mut page = AuthorPage::default();
        let mut room = PageBudget::default();
        for cell in cx.cells::<U64, PostCell>(POSTS).range(&oldest..&end).rev().take(limit) {
            let (id, (time, text)) = cell?;
            if !room.take(&text) {
                page.reach = page.posts.last().map(|post| post.id);
                break;
            }
            page.posts.push(Post { id: PostId::new(id), author: author.clone(), text, time });
        }
        Ok(page)
    }

    fn liked_post(
        &self,
        cx: &mut Context<Self>,
        id: PostId,
    ) -> Result<Option<LikedPost>, CellError> {
        let cell = cx.cells::<U64, PostCell>(POSTS).get(&id.get())?;
        let Some((time, text)) = cell else { return Ok(None) };
        let post = Post { id, author: name(cx), text, time };
        Ok(Some(LikedPost { post, likes: self.like_count(cx, id)? }))
    }

    /// Sends a change in the posts to the live timelines, once the change is on disk.
    fn announce(&self, cx: &mut Context<Self>, change: Change) {
        let (author, live) = (name(cx), cx.deps().live.clone());
        cx.after_commit(move || live.publish(&author, change));
    }

    /// Sends the change of a post to the rankings, once the change is on disk.
    fn rank(&self, cx: &mut Context<Self>, id: PostId, text: &Text, kind: ChangeKind) {
        let change = PostChange { author: name(cx), id, tags: Tag::all_in(text), kind };
        let collectors = cx.deps().collectors.clone();
        cx.after_commit(move || collectors.offer(change));
    }

    fn is_blocked(&self, cx: &mut Context<Self>, other: &Name) -> Result<bool, SocialError> {
        Ok(self.blocks > 0 && cx.cells::<Str, ()>(BLOCKED).contains(other.as_str())?)
    }

    pub(crate) fn account(&self, cx: &mut Context<Self>) -> Result<&Account, SocialError> {
        self.account.as_ref().ok_or_else(|| SocialError::NoSuchUser(name(cx)))
    }
}

/// Requests that a reader's live timeline is built again, once the changes of this turn are on disk.
fn refresh(cx: &mut Context<User>, reader: Name) {
    let live = cx.deps().live.clone();
    cx.after_commit(move || live.refresh(&reader));
}

/// Forgets the copy of the revoked tokens outside of the process, and requests that the user's sockets check their
/// tokens again once the revocation is on disk.
fn recheck_tokens(cx: &mut Context<User>) {
    let reader = name(cx);
    cx.deps().revocations.forget(&reader);
    let live = cx.deps().live.clone();
    cx.after_commit(move || live.revoke(&reader));
}

/// Fails the turn of a durable message by a panic after an error, so that the message is tried again.
fn or_try_again(outcome: Result<(), impl Error>) {
    if let Err(error) = outcome {
        panic!("a durable message has to be tried again: {error}");
    }
}

/// Adds a name to a map of `count` names, unless it has it. Returns whether it was added.
///
/// # Errors
/// `full` if the map has `most` names.
fn add(
    cx: &mut Context<User>,
    map: &str,
    count: &mut u32,
    name: &Name,
    most: u32,
    full: SocialError,
) -> Result<bool, SocialError> {
    let mut names = cx.cells::<Str, ()>(map);
    if names.contains(name.as_str())? {
        return Ok(false);
    }
    if *count >= most {
        return Err(full);
    }
    names.put(name.as_str(), &());
    *count += 1;
    Ok(true)
}

/// Removes a name from a map of `count` names, if it has it. Returns whether it was removed.
fn remove(
    cx: &mut Context<User>,
    map: &str,
    count: &mut u32,
    name: &Name,
) -> Result<bool, SocialError> {
    let mut names = cx.cells::<Str, ()>(map);
    let present = names.contains(name.as_str())?;
    if present {
        names.delete(name.as_str());
        *count -= 1;
    }
    Ok(present)
}

/// Returns the names in a map, of which there are `count`.
fn names(cx: &mut Context<User>, map: &str, count: u32) -> Result<Vec<Name>, SocialError> {
    let mut names = Vec::with_capacity(count as usize);
    for cell in cx.cells::<Str, ()>(map).range(..) {
        names.extend(cell?.0.parse::<Name>());
    }
    Ok(names)
}

/// Returns the name of the user whose turn runs.
pub(crate) fn name(cx: &mut Context<User>) -> Name {
    match cx.key().parse() {
        Ok(name) => name,
        Err(_) => unreachable!("the service addresses users by their names"),
    }
}

/// Maximum number of users that a user may follow; bounds the cost of a timeline.
const FOLLOWING_MAX: u32 = 5000;

/// Maximum number of users that a user may block; bounds the length of the list of blocked users.
const BLOCKS_MAX: u32 = 5000;

/// Maximum number of posts, and of follows in each direction, that a turn of a closed account removes.
const CLEARED_AT_ONCE: usize = 100;

const FOLLOWING: &str = "following";
const BLOCKED: &str = "blocked";
const POSTS: &str = "posts";

#[cfg(test)]
mod tests {
    use throng_durable::{Entity, Node};

    use super::*;
    use crate::testing::on_a_node;

    pub(super) fn deps(runtime: &RuntimeHandle, node: &Node) -> Deps {
        let collectors = Collectors::start(runtime, node).unwrap();
        let (ids, live) = (Arc::new(IdGenerator::new(0)), Live::start(runtime).unwrap());
        Deps { ids, live, collectors, revocations: Revocations::default() }
    }

    pub(super) fn with_a_user(test: impl AsyncFnOnce(&Node, &Entity<User>)) {
        on_a_node(1, async |runtime, node| {
            node.register::<User>(deps(runtime, node));
            let alice = node.entity("alice");
            let account = Account { password_hash: String::new(), created_ms: 0 };
            alice.register(account).await.unwrap().unwrap();
            test(node, &alice).await;
        });
    }

    #[test]
    fn a_user_follows_at_most_the_maximum_number_of_users() {
        with_a_user(async |_, alice| {
            let somebody = |number: u32| format!("user_{number}").parse::<Name>().unwrap();
            for number in 0..FOLLOWING_MAX {
                alice.follow(somebody(number)).await.unwrap().unwrap();
            }
            let full = alice.follow(somebody(FOLLOWING_MAX)).await.unwrap();
            assert!(matches!(full, Err(SocialError::FollowingFull)));
            alice.follow(somebody(7)).await.unwrap().unwrap(); // followed already
            alice.unfollow(somebody(7)).await.unwrap().unwrap();
            alice.unfollow(somebody(7)).await.unwrap().unwrap();
            alice.follow(somebody(FOLLOWING_MAX)).await.unwrap().unwrap();
            let following = alice.following().await.unwrap().unwrap();
            assert_eq!(following.len(), FOLLOWING_MAX as usize);
            assert!(following.is_sorted() && !following.contains(&somebody(7)));
        });
    }
}
