//! A user: one durable process and its messages.
//!
//! ```text
//! state   account (password hash, created), counts
//! cells   'f' NAME            → ()       followed users, by name
//!         'k' and 'o'                    idempotency keys, see `keys.rs`
//!         'p' POST-ID (be)    → text     posts, oldest first
//! ```
//!
//! Invariants: the state is small and of bounded size, because every turn that changes it writes
//! the whole state. Data that grows (posts, follows) is in cells, each written once. A process
//! without an account stands for an unregistered name, and stores nothing. Post ids rise from cell
//! to cell, because they are assigned within the author's turn.

use std::collections::VecDeque;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use throng::prelude::*;
use throng_durable::{Bytes, CellError, Durable, DurableContext, OldState, StateError};

use crate::ids::{IdError, IdGenerator, PostId};
use crate::keys::{IdempotencyKey, Keys, KeysFull, Now};
use crate::name::Name;
use crate::visible;

/// State of a registered user, or of an unregistered name.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(crate) struct User {
    account: Option<Account>,
    following: u32,
    posts: u64,
    keys: Keys,
}

/// State of version 1.
#[derive(Default, Serialize, Deserialize)]
struct UserVersion1 {
    account: Option<Account>,
    following: u32,
    posts: u64,
    /// Latest 32 idempotency keys and their posts, oldest first.
    recent: VecDeque<(IdempotencyKey, PostId)>,
}

/// Account, created by registration.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Account {
    /// Hash of the password, with salt and parameters (a PHC string).
    pub(crate) password_hash: String,
    /// Time of registration, in milliseconds since 1970.
    pub(crate) created_ms: u64,
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
}

/// Text of a post: 1 to 5000 characters, at least one of them visible.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Text(String);

/// The text cannot be posted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a post must have 1 to {} characters, at least one of them visible", Text::CHARACTERS_MAX)]
pub struct TextError;

impl Text {
    /// Maximum length of a text, in Unicode scalar values.
    pub const CHARACTERS_MAX: usize = 5000;

    /// Checks the text, which is kept unchanged.
    ///
    /// # Errors
    /// The text is too long, or has no visible character.
    pub fn new(text: impl Into<String>) -> Result<Text, TextError> {
        let text = text.into();
        let too_long = text.chars().nth(Text::CHARACTERS_MAX).is_some();
        if too_long || !visible::is_visible(&text) { Err(TextError) } else { Ok(Text(text)) }
    }

    /// Returns the text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// Refusal of a request by a user's process.
#[derive(Debug, thiserror::Error)]
pub(crate) enum UserError {
    #[error("there is no user with this name")]
    NoAccount,
    #[error("the name is already taken")]
    NameTaken,
    #[error("the user follows the maximum number of users")]
    FollowingFull,
    #[error("the idempotency key was used for a different text")]
    KeyReused,
    #[error("the user has the maximum number of remembered idempotency keys")]
    KeysFull(KeysFull),
    #[error("cannot assign a post id")]
    NoId(#[source] IdError),
    #[error("cannot read the user's cells")]
    Cells(#[from] CellError),
}

impl Process for User {}

impl Durable for User {
    const KIND: &'static str = "user";
    const VERSION: u16 = 2;
    type Deps = ();

    fn initial(_: &str, (): &()) -> Self {
        User::default()
    }

    fn migrate(old: OldState<'_>) -> Result<Self, StateError> {
        match old.version() {
            1 => old.decode().map(|UserVersion1 { account, following, posts, recent }| User {
                account,
                following,
                posts,
                keys: Keys::of_version_1(recent),
            }),
            _ => Err(old.not_migrated()),
        }
    }
}

/// Registers the user, unless the name is taken.
#[derive(Debug)]
pub(crate) struct Register(pub(crate) Account);

impl Message for Register {
    type Reply = Result<(), UserError>;
}

impl Handle<Register> for User {
    async fn handle(
        &mut self,
        Register(account): Register,
        _: &mut Context<Self>,
    ) -> Result<(), UserError> {
        if self.account.is_some() {
            return Err(UserError::NameTaken);
        }
        self.account = Some(account);
        Ok(())
    }
}

/// Requests the password hash; the reply is `None` if there is no user with the name.
#[derive(Debug)]
pub(crate) struct ReadPasswordHash;

impl Message for ReadPasswordHash {
    type Reply = Option<String>;
}

impl Handle<ReadPasswordHash> for User {
    async fn handle(&mut self, _: ReadPasswordHash, _: &mut Context<Self>) -> Option<String> {
        self.account.as_ref().map(|account| account.password_hash.clone())
    }
}

/// Requests the public profile, under the given name.
#[derive(Debug)]
pub(crate) struct Describe(pub(crate) Name);

impl Message for Describe {
    type Reply = Option<Profile>;
}

impl Handle<Describe> for User {
    async fn handle(&mut self, Describe(name): Describe, _: &mut Context<Self>) -> Option<Profile> {
        let account = self.account.as_ref()?;
        Some(Profile {
            name,
            created: account.created_ms,
            posts: self.posts,
            following: self.following,
        })
    }
}

/// Follows a user that is known to exist; idempotent.
#[derive(Debug)]
pub(crate) struct Follow(pub(crate) Name);

impl Message for Follow {
    type Reply = Result<(), UserError>;
}

impl Handle<Follow> for User {
    async fn handle(
        &mut self,
        Follow(target): Follow,
        cx: &mut Context<Self>,
    ) -> Result<(), UserError> {
        self.account()?;
        let key = following_key(&target);
        if !cx.cells::<Bytes, ()>("").contains(&key)? {
            if self.following >= FOLLOWING_MAX {
                return Err(UserError::FollowingFull);
            }
            cx.cells::<Bytes, ()>("").put(&key, &());
            self.following += 1;
        }
        Ok(())
    }
}

/// Stops following a user; idempotent.
#[derive(Debug)]
pub(crate) struct Unfollow(pub(crate) Name);

impl Message for Unfollow {
    type Reply = Result<(), UserError>;
}

impl Handle<Unfollow> for User {
    async fn handle(
        &mut self,
        Unfollow(target): Unfollow,
        cx: &mut Context<Self>,
    ) -> Result<(), UserError> {
        self.account()?;
        let key = following_key(&target);
        if cx.cells::<Bytes, ()>("").contains(&key)? {
            cx.cells::<Bytes, ()>("").delete(&key);
            self.following -= 1;
        }
        Ok(())
    }
}

/// Requests the names of the followed users, in alphabetical order.
#[derive(Debug)]
pub(crate) struct ListFollowing;

impl Message for ListFollowing {
    type Reply = Result<Vec<Name>, UserError>;
}

impl Handle<ListFollowing> for User {
    async fn handle(
        &mut self,
        _: ListFollowing,
        cx: &mut Context<Self>,
    ) -> Result<Vec<Name>, UserError> {
        self.account()?;
        let mut names = Vec::with_capacity(self.following as usize);
        for entry in cx.cells::<Bytes, ()>("").prefix([FOLLOWING]) {
            let (key, ()) = entry?;
            names.extend(following_name(key));
        }
        Ok(names)
    }
}

/// Publishes a post, whose id is assigned within the turn.
#[derive(Debug)]
pub(crate) struct Publish {
    pub(crate) text: Text,
    pub(crate) key: Option<IdempotencyKey>,
    pub(crate) ids: Arc<IdGenerator>,
}

/// Outcome of a [`Publish`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Published {
    pub(crate) id: PostId,
    /// Whether the key was known: the post existed already, and no new post was made.
    pub(crate) repeated: bool,
}

impl Message for Publish {
    type Reply = Result<Published, UserError>;
}

impl Handle<Publish> for User {
    async fn handle(
        &mut self,
        message: Publish,
        cx: &mut Context<Self>,
    ) -> Result<Published, UserError> {
        let Publish { text, key, ids } = message;
        self.account()?;
        if let Some(key) = &key {
            let now = Now::by_the_clock();
            if let Some(id) = self.keys.find(cx, key, now)? {
                let posted = cx.cells::<Bytes, Text>("").get(&post_key(id))?;
                return if posted.is_some_and(|posted| posted == text) {
                    Ok(Published { id, repeated: true })
                } else {
                    Err(UserError::KeyReused)
                };
            }
            self.keys.make_room(cx, now)?.map_err(UserError::KeysFull)?;
        }
        let id = ids.next().await.map_err(UserError::NoId)?;
        // The key is recorded first, because this may fail: a turn that replies with an error is
        // committed like any other.
        if let Some(key) = key {
            self.keys.remember(cx, &key, id)?;
        }
        cx.cells::<Bytes, Text>("").put(&post_key(id), &text);
        self.posts += 1;
        Ok(Published { id, repeated: false })
    }
}

/// Requests the newest posts below `before` and not below `floor`, newest first: at most `limit`,
/// and at most [`PAGE_BYTES_MAX`] of text.
#[derive(Debug)]
pub(crate) struct ListPosts {
    pub(crate) before: Option<PostId>,
    pub(crate) floor: Option<PostId>,
    pub(crate) limit: usize,
}

/// Reply to [`ListPosts`].
#[derive(Debug, Default)]
pub(crate) struct PostPage {
    pub(crate) posts: Vec<(PostId, Text)>,
    /// Whether a further requested post did not fit. Never true for an empty page.
    pub(crate) cut: bool,
}

impl Message for ListPosts {
    type Reply = Result<PostPage, UserError>;
}

impl Handle<ListPosts> for User {
    async fn handle(
        &mut self,
        message: ListPosts,
        cx: &mut Context<Self>,
    ) -> Result<PostPage, UserError> {
        let ListPosts { before, floor, limit } = message;
        self.account()?;
        let oldest = post_key(floor.unwrap_or(PostId::new(0)));
        let end = post_key(before.unwrap_or(PostId::new(u64::MAX)));
        let mut page = PostPage::default();
        let mut room = PageBudget::default();
        for entry in cx.cells::<Bytes, Text>("").range(&oldest[..]..&end[..]).rev().take(limit) {
            let (key, text) = entry?;
            if !room.take(&text) {
                page.cut = true;
                break;
            }
            page.posts.extend(post_id(key).map(|id| (id, text)));
        }
        Ok(page)
    }
}

/// Remaining room for text on a page; the first post always fits.
#[derive(Debug, Default)]
pub(crate) struct PageBudget {
    bytes_taken: usize,
}

impl PageBudget {
    /// Reserves room for `text`; returns false if there is not enough left.
    pub(crate) fn take(&mut self, text: &Text) -> bool {
        let bytes = self.bytes_taken + text.as_str().len();
        if self.bytes_taken > 0 && bytes > PAGE_BYTES_MAX {
            return false;
        }
        self.bytes_taken = bytes; // a text has at least one byte
        true
    }
}

impl User {
    fn account(&self) -> Result<&Account, UserError> {
        self.account.as_ref().ok_or(UserError::NoAccount)
    }
}

/// Maximum bytes of text on a page, unless a single post has more. Otherwise a page of a hundred
/// long posts would take megabytes of memory for each reader, however slow.
pub(crate) const PAGE_BYTES_MAX: usize = 256 * 1024;

/// Maximum number of users that a user may follow; bounds the cost of a timeline.
const FOLLOWING_MAX: u32 = 5000;

/// First byte of a cell's key, which tells the cell's content; see also `keys.rs`.
const FOLLOWING: u8 = b'f';
const POST: u8 = b'p';

fn following_key(name: &Name) -> Vec<u8> {
    let mut key = vec![FOLLOWING];
    key.extend_from_slice(name.as_str().as_bytes());
    key
}

fn following_name(key: &[u8]) -> Option<Name> {
    std::str::from_utf8(key.strip_prefix(&[FOLLOWING])?).ok()?.parse().ok()
}

fn post_key(id: PostId) -> [u8; 9] {
    let mut key = [POST; 9];
    key[1..].copy_from_slice(&id.get().to_be_bytes());
    key
}

fn post_id(key: &[u8]) -> Option<PostId> {
    let number = key.strip_prefix(&[POST])?.try_into().ok()?;
    Some(PostId::new(u64::from_be_bytes(number)))
}

#[cfg(test)]
mod tests {
    use std::sync::OnceLock;

    use throng_store::{Batch, Store};

    use super::*;

    #[test]
    fn a_text_has_something_to_see_and_an_end() {
        for good in [
            "a",
            " a ",
            "\u{200b}a\0",
            "ä",
            "👨\u{200d}👩\u{200d}👧",
            &"x".repeat(5000),
            &"😀".repeat(5000),
        ] {
            assert_eq!(Text::new(good).map(|text| text.as_str().len()), Ok(good.len()));
        }
        let unseen = ["\0", "\u{200b}\u{feff}", "\u{2060} \u{ad}", "\u{e0041}\u{fe0f}"];
        for bad in
            unseen.into_iter().chain(["", " ", "\n\t\u{a0}", &"x".repeat(5001), &"😀".repeat(5001)])
        {
            assert_eq!(Text::new(bad), Err(TextError), "{} bytes", bad.len());
        }
    }

    #[test]
    fn cells_sort_as_what_they_hold_and_read_back() {
        let ids = [0, 1, 255, 256, 1 << 62].map(PostId::new);
        let keys = ids.map(post_key);
        assert!(keys.is_sorted_by(|a, b| a < b));
        assert_eq!(keys.map(|key| post_id(&key)), ids.map(Some));

        let name: Name = "alice_7".parse().unwrap();
        let key = following_key(&name);
        assert_eq!(following_name(&key), Some(name));
        assert_eq!(post_id(&key), None);
    }

    #[test]
    fn a_user_follows_at_most_the_maximum_number_of_users() {
        let data = tempfile::tempdir().unwrap();
        let runtime = Runtime::builder().workers(1).start().unwrap();
        runtime.block_on(async |runtime| {
            let node = throng_durable::Node::open(data.path()).start(runtime).unwrap();
            let alice = node.entity::<User>("alice");
            let somebody = |number: u32| format!("user_{number}").parse::<Name>().unwrap();
            let account = Account { password_hash: String::new(), created_ms: 0 };
            alice.call(Register(account)).await.unwrap().unwrap();
            for number in 0..FOLLOWING_MAX {
                alice.call(Follow(somebody(number))).await.unwrap().unwrap();
            }
            let full = alice.call(Follow(somebody(FOLLOWING_MAX))).await.unwrap();
            assert!(matches!(full, Err(UserError::FollowingFull)));
            alice.call(Follow(somebody(7))).await.unwrap().unwrap(); // followed already
            alice.call(Unfollow(somebody(7))).await.unwrap().unwrap();
            alice.call(Unfollow(somebody(7))).await.unwrap().unwrap();
            alice.call(Follow(somebody(FOLLOWING_MAX))).await.unwrap().unwrap();
            let following = alice.call(ListFollowing).await.unwrap().unwrap();
            assert_eq!(following.len(), FOLLOWING_MAX as usize);
            assert!(following.is_sorted() && !following.contains(&somebody(7)));
            node.shutdown().await;
        });
    }

    /// Store of `a_post_is_not_kept_without_its_key`, set before a cell in it is to be damaged.
    static DAMAGED: OnceLock<Store> = OnceLock::new();

    /// Cell of the key "again", as the store names it.
    const KEY_CELL: &[u8] = b"C\0\x02\x05alice\0\x01kagain"; // kind 2, after the lease; map 1

    /// Damages the cell; the clock is read between the search for a key and its insertion.
    fn damaging_clock() -> u64 {
        if let Some(store) = DAMAGED.get() {
            store.write(Batch::new().put(KEY_CELL, b"\x80")).wait().unwrap();
        }
        0
    }

    #[test]
    fn a_post_is_not_kept_without_its_key() {
        let data = tempfile::tempdir().unwrap();
        let runtime = Runtime::builder().workers(1).start().unwrap();
        runtime.block_on(async |runtime| {
            let node = throng_durable::Node::open(data.path()).start(runtime).unwrap();
            let ids = Arc::new(IdGenerator::new(&node, 0));
            let damaging_ids = Arc::new(IdGenerator::new(&node, 1).with_clock(damaging_clock));
            let alice = node.entity::<User>("alice");
            let account = Account { password_hash: String::new(), created_ms: 0 };
            alice.call(Register(account)).await.unwrap().unwrap();
            let publish = |ids: &Arc<IdGenerator>| Publish {
                text: Text::new("hello").unwrap(),
                key: IdempotencyKey::new("again"),
                ids: ids.clone(),
            };
            DAMAGED.set(node.store().clone()).unwrap();
            let failed = alice.call(publish(&damaging_ids)).await.unwrap();
            assert!(matches!(failed, Err(UserError::Cells(CellError::Decode(_)))), "{failed:?}");
            let page = ListPosts { before: None, floor: None, limit: 10 };
            assert!(alice.call(page).await.unwrap().unwrap().posts.is_empty());

            node.store().write(Batch::new().delete(KEY_CELL)).await.unwrap();
            let [first, second] = [0, 1].map(|_| alice.call(publish(&ids)));
            let (first, second) = (first.await.unwrap().unwrap(), second.await.unwrap().unwrap());
            assert_eq!((first.repeated, second.repeated), (false, true));
            let profile = alice.call(Describe("alice".parse().unwrap())).await.unwrap().unwrap();
            assert_eq!(profile.posts, 1);
            node.shutdown().await;
        });
    }

    /// User as version 1 of this program stored it.
    #[derive(Default, Serialize, Deserialize)]
    struct OldUser(UserVersion1);

    impl Process for OldUser {}

    impl Durable for OldUser {
        const KIND: &'static str = User::KIND;
        type Deps = ();
        fn initial(_: &str, (): &()) -> Self {
            OldUser::default()
        }
    }

    /// Posts in the format of that version.
    struct PublishThen(IdempotencyKey, Text, PostId);

    impl Message for PublishThen {
        type Reply = ();
    }

    impl Handle<PublishThen> for OldUser {
        async fn handle(
            &mut self,
            PublishThen(key, text, id): PublishThen,
            cx: &mut Context<Self>,
        ) {
            let OldUser(user) = self;
            user.account = Some(Account { password_hash: String::new(), created_ms: 7 });
            user.posts += 1;
            user.recent.push_back((key, id));
            cx.cells::<Bytes, Text>("").put(&post_key(id), &text);
        }
    }

    #[test]
    fn a_user_of_version_1_keeps_account_and_keys() {
        let data = tempfile::tempdir().unwrap();
        let key = |number: usize| IdempotencyKey::new(&format!("key-{number}")).unwrap();
        let text = |number: usize| Text::new(format!("text {number}")).unwrap();
        let runtime = Runtime::builder().workers(1).start().unwrap();
        let mut posted = runtime.block_on(async |runtime| {
            let node = throng_durable::Node::open(data.path()).start(runtime).unwrap();
            let ids = IdGenerator::new(&node, 0);
            let old = node.entity::<OldUser>("alice");
            let mut posted = Vec::new();
            for number in 0..32 {
                posted.push(ids.next().await.unwrap());
                let publish = PublishThen(key(number), text(number), posted[number]);
                old.call(publish).await.unwrap();
            }
            node.shutdown().await;
            posted
        });
        drop(runtime);

        let runtime = Runtime::builder().workers(1).start().unwrap();
        runtime.block_on(async |runtime| {
            let node = throng_durable::Node::open(data.path()).start(runtime).unwrap();
            let ids = Arc::new(IdGenerator::new(&node, 0));
            let alice = node.entity::<User>("alice");
            for number in [0, 31, 32, 32] {
                let (key, text) = (Some(key(number)), text(number));
                let publish = Publish { text, key, ids: ids.clone() };
                let published = alice.call(publish).await.unwrap().unwrap();
                assert_eq!(published.repeated, posted.contains(&published.id), "{number}");
                posted.push(published.id);
            }
            let profile = alice.call(Describe("alice".parse().unwrap())).await.unwrap().unwrap();
            assert_eq!((profile.created, profile.posts), (7, 33));
            node.shutdown().await;
        });
    }
}
