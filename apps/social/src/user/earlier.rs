//! States and cells that earlier versions of the program stored.
//!
//! ```text
//! version                  1        2                        3, 4, 5
//! cells in the map ""      f NAME   f NAME                   map "following"
//!                          p POST   p POST                   map "posts"
//!                                   k KEY, o POST            maps "keys", "keys-by-post"
//! idempotency keys         state    cells; those of 1 stay   cells
//!                                   until the next post
//! ```
//!
//! The maps of version 3 have the same keys, without the first byte, and the same values. Version 4 adds the
//! revoked tokens and the number of blocks to the state. Version 5 adds the followers and the outbox; the follows of a
//! user of an earlier version are yet to be announced.

use serde::Serialize;
use serde::de::DeserializeOwned;
use throng::prelude::*;
use throng_durable::{Bytes, CellError, DurableContext, OldState, StateError};

use crate::ids::PostId;
use crate::keys::{BY_POST, IdempotencyKey, KEYS, Keys};
use crate::post::Text;

use super::outbox::Outbox;
use super::{FOLLOWING, POSTS, User};

/// Converts a state of an earlier version, whose cells are yet to be moved.
pub(super) fn migrate(old: OldState<'_>) -> Result<User, StateError> {
    let ((account, following, posts, keys, unmoved), (revoked, blocks)) = match old.version() {
        1 => {
            let (account, following, posts, recent) = old.decode()?;
            ((account, following, posts, Keys::default(), Some(recent)), Default::default())
        }
        2 => {
            let (account, following, posts, (keys, recent)) = old.decode()?;
            ((account, following, posts, keys, Some(recent)), Default::default())
        }
        3 => (old.decode()?, Default::default()),
        4 => {
            let (account, following, posts, keys, unmoved, revoked, blocks) = old.decode()?;
            ((account, following, posts, keys, unmoved), (revoked, blocks))
        }
        _ => return Err(old.not_migrated()),
    };
    let outbox = Outbox::unannounced();
    Ok(User {
        account,
        following,
        posts,
        keys,
        unmoved,
        revoked,
        blocks,
        outbox,
        ..User::default()
    })
}

/// Moves the cells of an earlier version, if the user has some, into the maps of this version.
///
/// A commit must fit the queue of the store. If there are too many cells for one, the process ends
/// with some of them moved, and the next activation goes on.
pub(super) fn move_cells(user: &mut User, cx: &mut Context<User>) -> Result<(), CellError> {
    let Some(keys) = &mut user.unmoved else { return Ok(()) };
    for (key, id) in keys.drain(..) {
        user.keys.remember(cx, &key, id);
    }
    let mut room = MOVED_AT_ONCE;
    move_map::<()>(cx, b'f', FOLLOWING, &mut room)?;
    move_map::<Text>(cx, b'p', POSTS, &mut room)?;
    move_map::<PostId>(cx, b'k', KEYS, &mut room)?;
    move_map::<IdempotencyKey>(cx, b'o', BY_POST, &mut room)?;
    if room > 0 {
        user.unmoved = None;
    } else {
        cx.stop(ExitReason::Normal);
    }
    Ok(())
}

/// Moves cells whose keys begin with `kind` into another map, as many as there is room for.
fn move_map<V: Serialize + DeserializeOwned + 'static>(
    cx: &mut Context<User>,
    kind: u8,
    map: &str,
    room: &mut usize,
) -> Result<(), CellError> {
    let mut old = cx.cells::<Bytes, V>("");
    let found = old.prefix([kind]).take(*room);
    let found = found.map(|cell| cell.map(|(key, value)| (key.to_vec(), value)));
    let found: Vec<_> = found.collect::<Result<_, _>>()?;
    *room -= found.len();
    for (key, value) in found {
        cx.cells::<Bytes, V>("").delete(&key);
        cx.cells::<Bytes, V>(map).put(&key[1..], &value);
    }
    Ok(())
}

/// Maximum number of cells that a turn moves. The longest posts make 40 MB of that many cells, and
/// a store's queue takes 64 MiB by default.
const MOVED_AT_ONCE: usize = 2000;

#[cfg(test)]
mod tests {
    use std::path::Path;

    use serde::Deserialize;
    use throng_durable::{Durable, Entity, EntityError, Node};
    use throng_store::Batch;

    use super::*;
    use crate::ids::IdGenerator;
    use crate::user::tests::deps;
    use crate::user::{Account, UserClient};

    type RecentKeys = Vec<(IdempotencyKey, PostId)>;

    /// User as version 1 stored it: account, numbers of follows and posts, latest keys.
    #[derive(Durable, Default, Serialize, Deserialize)]
    #[durable(kind = "user")]
    struct User1(Option<Account>, u32, u64, RecentKeys);

    /// User as version 2 stored it. The keys that version 1 had left in the state come last, after
    /// the number of those in cells.
    #[derive(Durable, Default, Serialize, Deserialize)]
    #[durable(kind = "user", version = 2)]
    struct User2(Option<Account>, u32, u64, (u32, RecentKeys));

    /// User as version 3 stored it: account, numbers of follows and posts, number of keys, cells to be moved.
    #[derive(Durable, Default, Serialize, Deserialize)]
    #[durable(kind = "user", version = 3)]
    struct User3(Option<Account>, u32, u64, u32, Option<RecentKeys>);

    #[process(client = Client3)]
    impl User3 {
        /// Does the same, in the maps of this version.
        #[message(name = Fill3)]
        fn fill(&mut self, cx: &mut Context<Self>, ids: Vec<PostId>) {
            *self = User3(account(), 1, ids.len() as u64, ids.len() as u32, None);
            cx.cells::<Bytes, ()>(FOLLOWING).put(b"bob", &());
            for (number, id) in ids.iter().enumerate() {
                cx.cells::<Bytes, Text>(POSTS).put(&id.get().to_be_bytes(), &text(number));
                cx.cells::<Bytes, PostId>(KEYS).put(format!("key-{number}").as_bytes(), id);
                cx.cells::<Bytes, IdempotencyKey>(BY_POST)
                    .put(&id.get().to_be_bytes(), &key(number));
            }
        }
    }

    /// User as version 4 stored it: as version 3, then the revoked tokens and the number of blocks.
    #[derive(Durable, Default, Serialize, Deserialize)]
    #[durable(kind = "user", version = 4)]
    struct User4(Option<Account>, u32, u64, u32, Option<RecentKeys>, (u64, Vec<(u64, u64)>), u32);

    #[process(client = Client4)]
    impl User4 {
        /// Follows bob and as many others, and blocks somebody.
        #[message(name = Fill4)]
        fn fill(&mut self, cx: &mut Context<Self>, others: u32) {
            *self = User4(account(), others + 1, 0, 0, None, (5, Vec::new()), 1);
            cx.cells::<Bytes, ()>(FOLLOWING).put(b"bob", &());
            for number in 0..others {
                cx.cells::<Bytes, ()>(FOLLOWING).put(format!("user_{number}").as_bytes(), &());
            }
            cx.cells::<Bytes, ()>("blocked").put(b"carol", &());
        }
    }

    #[process(client = Client1)]
    impl User1 {
        /// Follows, and posts a text for each id under a key.
        #[message(name = Fill1)]
        fn fill(&mut self, cx: &mut Context<Self>, ids: Vec<PostId>) {
            let keys = ids.iter().enumerate().map(|(number, id)| (key(number), *id));
            *self = User1(account(), 1, ids.len() as u64, keys.collect());
            put_follow_and_posts(cx, &ids);
        }
    }

    #[process(client = Client2)]
    impl User2 {
        /// Does the same; only the first key is in the state.
        #[message(name = Fill2)]
        fn fill(&mut self, cx: &mut Context<Self>, ids: Vec<PostId>) {
            let keys = (ids.len() as u32 - 1, vec![(key(0), ids[0])]);
            *self = User2(account(), 1, ids.len() as u64, keys);
            put_follow_and_posts(cx, &ids);
            for (number, id) in ids.iter().enumerate().skip(1) {
                let cell = format!("kkey-{number}");
                cx.cells::<Bytes, PostId>("").put(cell.as_bytes(), id);
                cx.cells::<Bytes, IdempotencyKey>("").put(&cell_of(b'o', *id), &key(number));
            }
        }
    }

    fn put_follow_and_posts(cx: &mut impl DurableContext, ids: &[PostId]) {
        cx.cells::<Bytes, ()>("").put(b"fbob", &());
        for (number, id) in ids.iter().enumerate() {
            cx.cells::<Bytes, Text>("").put(&cell_of(b'p', *id), &text(number));
        }
    }

    fn cell_of(kind: u8, id: PostId) -> Vec<u8> {
        [&[kind][..], &id.get().to_be_bytes()].concat()
    }

    fn account() -> Option<Account> {
        Some(Account { password_hash: String::new(), created_ms: 7 })
    }

    fn key(number: usize) -> IdempotencyKey {
        IdempotencyKey::new(&format!("key-{number}")).unwrap()
    }

    fn text(number: usize) -> Text {
        Text::new(format!("text {number}")).unwrap()
    }

    /// Runs `test` on a node on `data`, from start to shutdown.
    fn on<R>(data: &Path, test: impl AsyncFnOnce(&Node, &RuntimeHandle) -> R) -> R {
        let runtime = Runtime::builder().workers(1).start().unwrap();
        runtime.block_on(async |runtime| {
            let node = Node::open(data).start(runtime).unwrap();
            let result = test(&node, runtime).await;
            node.shutdown().await;
            result
        })
    }

    /// Stores a user of an earlier version with `count` posts, and returns their ids.
    fn fill(data: &Path, version: u16, count: usize) -> Vec<PostId> {
        on(data, async |node, _| {
            let (generator, mut ids) = (IdGenerator::new(0), Vec::new());
            for _ in 0..count {
                ids.push(generator.next(node).await.unwrap());
            }
            match version {
                1 => node.entity::<User1>("alice").fill(ids.clone()).await.unwrap(),
                3 => node.entity::<User3>("alice").fill(ids.clone()).await.unwrap(),
                _ => node.entity::<User2>("alice").fill(ids.clone()).await.unwrap(),
            }
            ids
        })
    }

    /// Checks that the user has everything, and can post.
    async fn assert_moved(node: &Node, alice: &Entity<User>, ids: &[PostId]) {
        let profile = alice.describe().await.unwrap().unwrap();
        let expected = (7, 1, ids.len() as u64);
        assert_eq!((profile.created, profile.following, profile.posts), expected);
        assert_eq!(alice.following().await.unwrap().unwrap(), ["bob".parse().unwrap()]);
        let posts = alice.posts(None, None, None, usize::MAX).await.unwrap().unwrap().posts;
        for (number, post) in posts.iter().rev().enumerate() {
            assert_eq!((post.id, &post.text), (ids[number], &text(number)));
        }
        let count = ids.len();
        for (number, repeated) in
            [(0, true), (1, true), (count - 1, true), (count, false), (count, true)]
        {
            let posted = alice.publish(text(number), Some(key(number))).await.unwrap().unwrap();
            assert_eq!(posted.repeated, repeated, "{number}");
        }
        // A follow, the posts, and two cells for each key: none is left where it was. The follow leaves the outbox
        // when bob has acknowledged it.
        let expected = 1 + 3 * (ids.len() + 1);
        for _ in 0..10_000 {
            let snapshot = node.store().snapshot().unwrap();
            if snapshot.prefix(b"C\0\x02\x05alice").count() == expected {
                return;
            }
            tokio::time::sleep(std::time::Duration::from_millis(1)).await;
        }
        panic!("a cell is left, or missing");
    }

    #[test]
    fn follows_of_an_earlier_version_reach_the_lists_of_followers() {
        // More than two windows.
        const OTHERS: u32 = 250;
        let data = tempfile::tempdir().unwrap();
        on(data.path(), async |node, _| {
            node.entity::<User4>("alice").fill(OTHERS).await.unwrap();
        });
        on(data.path(), async |node, runtime| {
            node.register::<User>(deps(runtime, node));
            let user = |name: &str| node.entity::<User>(name);
            for name in
                ["bob".to_owned()].into_iter().chain((0..OTHERS).map(|n| format!("user_{n}")))
            {
                user(&name).register(account().unwrap()).await.unwrap().unwrap();
                assert_eq!(user(&name).followers(None, 9).await.unwrap().unwrap().0, []);
            }
            let profile = user("alice").describe().await.unwrap().unwrap();
            assert_eq!((profile.created, profile.following), (7, OTHERS + 1));
            assert!(user("alice").blocks("carol".parse().unwrap()).await.unwrap().unwrap());
            let revoked = user("alice").revoked_tokens().await.unwrap().unwrap();
            assert!(!revoked.accepts(5) && revoked.accepts(6));
            // An unfollow beside the announcements has the last word.
            user("alice").unfollow("user_99".parse().unwrap()).await.unwrap().unwrap();
            for name in
                ["bob".to_owned()].into_iter().chain((0..OTHERS).map(|n| format!("user_{n}")))
            {
                let expected = usize::from(name != "user_99");
                let mut attempts = 0;
                while user(&name).followers(None, 9).await.unwrap().unwrap().0.len() != expected {
                    attempts += 1;
                    assert!(attempts < 10_000, "{name} has no follower");
                    tokio::time::sleep(std::time::Duration::from_millis(1)).await;
                }
            }
        });
    }

    #[test]
    fn a_user_of_an_earlier_version_keeps_everything() {
        for (version, count) in [(1, 32), (2, 32), (2, MOVED_AT_ONCE / 2), (3, 32)] {
            let data = tempfile::tempdir().unwrap();
            let ids = fill(data.path(), version, count);
            on(data.path(), async |node, runtime| {
                node.register::<User>(deps(runtime, node));
                let alice = node.entity::<User>("alice");
                // Three cells for each post.
                let moved = if version == 3 { 0 } else { 3 * count };
                for _ in 0..moved / MOVED_AT_ONCE {
                    let unmoved = alice.describe().await;
                    assert!(matches!(unmoved, Err(EntityError::Died)), "{unmoved:?}");
                }
                assert_moved(node, &alice, &ids).await;
                // The first map of these users is the nameless one, of version 3 another.
                let snapshot = node.store().snapshot().unwrap();
                let left = snapshot.prefix(b"C\0\x02\x05alice\0\x01").count();
                assert_eq!(left, usize::from(version == 3), "{version}");
            });
        }
    }

    #[test]
    fn no_cell_is_lost_if_a_cell_cannot_be_moved() {
        const DAMAGED: &[u8] = b"C\0\x02\x05alice\0\x01kkey-9";
        let data = tempfile::tempdir().unwrap();
        let ids = fill(data.path(), 2, 32);
        on(data.path(), async |node, runtime| {
            node.register::<User>(deps(runtime, node));
            let whole = node.store().snapshot().unwrap().get(DAMAGED).unwrap().unwrap().to_vec();
            node.store().write(Batch::new().put(DAMAGED, b"\x80")).await.unwrap();
            let alice = node.entity::<User>("alice");
            for _ in 0..2 {
                let failed = alice.describe().await;
                assert!(matches!(failed, Err(EntityError::Panicked(_))), "{failed:?}");
            }
            node.store().write(Batch::new().put(DAMAGED, whole)).await.unwrap();
            assert_moved(node, &alice, &ids).await;
        });
    }
}
