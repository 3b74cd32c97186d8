//! A user: one durable process, and the messages it takes.
//!
//! ```text
//! state   account (password hash, created), counts
//! cells   'f' NAME            → ()       whom the user follows, by name
//!         'k' and 'o'                    idempotency keys, see `keys.rs`
//!         'p' POST-ID (be)    → text     what the user posted, oldest first
//! ```
//!
//! Invariants: the state is small and of bounded size, because every turn that changes it writes
//! it whole; what grows (posts, follows) lies in cells, each written once. A process without an
//! account is a name that nobody has; it keeps nothing. Post ids rise from cell to cell, because
//! they are given within the author's turn.

use std::collections::VecDeque;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use throng::prelude::*;
use throng_durable::{CellError, Durable, DurableContext, OldState, StateError};

use crate::ids::{IdError, IdGenerator, PostId};
use crate::keys::{IdempotencyKey, Keys, KeysFull, Now};
use crate::name::Name;
use crate::visible;

/// A user, or a name that nobody has yet.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(crate) struct User {
    account: Option<Account>,
    following: u32,
    posts: u64,
    keys: Keys,
}

/// The state of version 1.
#[derive(Default, Serialize, Deserialize)]
struct UserVersion1 {
    account: Option<Account>,
    following: u32,
    posts: u64,
    /// The latest 32 idempotency keys and the posts under them, oldest first.
    recent: VecDeque<(IdempotencyKey, PostId)>,
}

/// What registering leaves.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Account {
    /// The hash of the password, with salt and parameters (a PHC string).
    pub(crate) password_hash: String,
    /// Milliseconds since 1970.
    pub(crate) created_ms: u64,
}

/// What everybody may know of a user.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Profile {
    /// The user's name.
    pub name: Name,
    /// When the user registered, in milliseconds since 1970.
    pub created: u64,
    /// How many posts there are.
    pub posts: u64,
    /// How many others the user follows.
    pub following: u32,
}

/// The text of a post: 1 to 5000 characters, at least one of which can be seen.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Text(String);

/// A text that cannot be posted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a post must have 1 to {} characters, at least one of them visible", Text::CHARACTERS_MAX)]
pub struct TextError;

impl Text {
    /// The longest text, in Unicode scalar values.
    pub const CHARACTERS_MAX: usize = 5000;

    /// Checks the text; it is kept as it is.
    ///
    /// # Errors
    /// The text is too long, or there is nothing to see in it.
    pub fn new(text: impl Into<String>) -> Result<Text, TextError> {
        let text = text.into();
        let too_long = text.chars().nth(Text::CHARACTERS_MAX).is_some();
        if too_long || !visible::is_visible(&text) { Err(TextError) } else { Ok(Text(text)) }
    }

    /// The text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// Why a user refuses a change.
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

/// Takes the name, if nobody has it.
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

/// Asks for the password hash; none if nobody has the name.
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

/// Asks what everybody may know, under the name the asker used.
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

/// Follows somebody who is known to exist; following twice is following once.
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
        if cx.cells().get::<()>(&key)?.is_none() {
            if self.following >= FOLLOWING_MAX {
                return Err(UserError::FollowingFull);
            }
            cx.cells().put(&key, &());
            self.following += 1;
        }
        Ok(())
    }
}

/// Ceases to follow; somebody not followed stays so.
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
        if cx.cells().get::<()>(&key)?.is_some() {
            cx.cells().delete(&key);
            self.following -= 1;
        }
        Ok(())
    }
}

/// Asks whom the user follows, in alphabetic order.
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
        for entry in cx.cells().prefix::<()>([FOLLOWING]) {
            let (key, ()) = entry?;
            names.extend(following_name(&key));
        }
        Ok(names)
    }
}

/// Posts, under an id that is given within the turn.
#[derive(Debug)]
pub(crate) struct Publish {
    pub(crate) text: Text,
    pub(crate) key: Option<IdempotencyKey>,
    pub(crate) ids: Arc<IdGenerator>,
}

/// What a [`Publish`] came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Published {
    pub(crate) id: PostId,
    /// The key was known: this was posted before, and nothing new was.
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
            if let Some(id) = self.keys.find(&mut cx.cells(), key, now)? {
                let posted = cx.cells().get::<Text>(post_key(id))?;
                return if posted.is_some_and(|posted| posted == text) {
                    Ok(Published { id, repeated: true })
                } else {
                    Err(UserError::KeyReused)
                };
            }
            self.keys.make_room(&mut cx.cells(), now)?.map_err(UserError::KeysFull)?;
        }
        let id = ids.next().await.map_err(UserError::NoId)?;
        // First, because it may fail: a turn that answers an error is committed like any other.
        if let Some(key) = key {
            self.keys.remember(&mut cx.cells(), &key, id)?;
        }
        cx.cells().put(post_key(id), &text);
        self.posts += 1;
        Ok(Published { id, repeated: false })
    }
}

/// Asks for the newest posts below `before` and not below `floor`, newest first: at most `limit`,
/// and no more text than [`PAGE_BYTES_MAX`].
#[derive(Debug)]
pub(crate) struct ListPosts {
    pub(crate) before: Option<PostId>,
    pub(crate) floor: Option<PostId>,
    pub(crate) limit: usize,
}

/// What a [`ListPosts`] found.
#[derive(Debug, Default)]
pub(crate) struct PostPage {
    pub(crate) posts: Vec<(PostId, Text)>,
    /// There was no room for the next one, which was asked for, too. Never so on an empty page.
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
        for entry in cx.cells().range::<Text>(&oldest[..]..&end[..]).rev().take(limit) {
            let (key, text) = entry?;
            if !room.take(&text) {
                page.cut = true;
                break;
            }
            page.posts.extend(post_id(&key).map(|id| (id, text)));
        }
        Ok(page)
    }
}

/// The room that a page has for text; however little, there is room for one.
#[derive(Debug, Default)]
pub(crate) struct PageBudget {
    bytes_taken: usize,
}

impl PageBudget {
    /// Takes the room that `text` needs; false if there is not enough left.
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

/// The text on a page, unless a single post has more: a page of a hundred long posts would else be
/// megabytes, kept in memory for each reader, however slow.
pub(crate) const PAGE_BYTES_MAX: usize = 256 * 1024;

/// How many others a user may follow; bounds what a timeline has to ask.
const FOLLOWING_MAX: u32 = 5000;

/// The first byte of a cell's key says what the cell holds; see also `keys.rs`.
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
    fn one_follows_so_many_and_no_more() {
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

    /// The store of `a_post_is_not_kept_without_its_key`, once a cell in it is to be damaged.
    static DAMAGED: OnceLock<Store> = OnceLock::new();

    /// The cell of the key "again", as the store knows it.
    const KEY_CELL: &[u8] = b"\x04user\x05alice\x01kagain";

    /// The clock is read between the search for a key and its insertion.
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

    /// A user as version 1 of this program stores it.
    #[derive(Default, Serialize, Deserialize)]
    struct OldUser(UserVersion1);

    impl Process for OldUser {}

    impl Durable for OldUser {
        const KIND: &'static str = User::KIND;
    }

    /// Posts as that version did.
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
            cx.cells().put(post_key(id), &text);
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
