//! Idempotency keys of a user: the post made under each key, kept for a day.
//!
//! ```text
//! cells   'k' KEY            → POST-ID    the post that was made under a key
//!         'o' POST-ID (be)   → KEY        the same keys, oldest first
//! state   count              = number of 'o' cells
//! ```
//!
//! Invariants: each 'k' cell has its 'o' cell and vice versa. A key is found until it is
//! [`IdempotencyKey::KEPT`] old, and never after. No key is removed early to make room: a post
//! beyond [`IdempotencyKey::COUNT_MAX`] keys is refused.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use throng_durable::{Bytes, CellError, DurableContext};

use crate::ids::{PostId, since_1970};

/// Name that a client gives to a request, which makes repeating the request harmless: 1 to 128
/// visible ASCII characters.
///
/// A user's key is kept for [`KEPT`](IdempotencyKey::KEPT) after the post that was made under it. A
/// user who has made [`COUNT_MAX`](IdempotencyKey::COUNT_MAX) posts with keys within that time
/// cannot make another post with a key before the oldest key expires.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct IdempotencyKey(String);

impl IdempotencyKey {
    /// Maximum length of a key, in bytes.
    pub const BYTES_MAX: usize = 128;

    /// Time for which a key is kept.
    pub const KEPT: Duration = Duration::from_secs(24 * 60 * 60);

    /// Maximum number of keys that are kept per user; they take about 3 MB on disk at most.
    pub const COUNT_MAX: u32 = 10_000;

    /// Returns the key with this text, or `None` if the text is not a valid key.
    pub fn new(text: &str) -> Option<IdempotencyKey> {
        let fits = (1..=IdempotencyKey::BYTES_MAX).contains(&text.len())
            && text.bytes().all(|byte| byte.is_ascii_graphic());
        fits.then(|| IdempotencyKey(text.to_owned()))
    }
}

/// Part of the keys in the user's state; the keys themselves are cells.
#[derive(Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Keys {
    count: u32,
    /// Keys of a state of version 1, oldest first; the next post with a key moves them into cells.
    unmoved: Vec<(IdempotencyKey, PostId)>,
}

/// The user has the maximum number of unexpired keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct KeysFull {
    /// Time until the oldest key expires.
    pub(crate) retry_after: Duration,
}

impl Keys {
    /// Takes over the keys of a state of version 1.
    pub(crate) fn of_version_1(keys: impl IntoIterator<Item = (IdempotencyKey, PostId)>) -> Keys {
        Keys { count: 0, unmoved: keys.into_iter().collect() }
    }

    /// Returns the post that was made under the key, if the key has not expired.
    pub(crate) fn find(
        &mut self,
        cx: &mut impl DurableContext,
        key: &IdempotencyKey,
        now: Now,
    ) -> Result<Option<PostId>, CellError> {
        while let Some((key, id)) = self.unmoved.first().cloned() {
            self.remember(cx, &key, id)?;
            self.unmoved.remove(0);
        }
        let id = cx.cells::<Bytes, PostId>(MAP).get(&key_cell(key))?;
        Ok(id.filter(|id| now.remembers(*id)))
    }

    /// Removes some expired keys, and returns whether there is room for another key.
    pub(crate) fn make_room(
        &mut self,
        cx: &mut impl DurableContext,
        now: Now,
    ) -> Result<Result<(), KeysFull>, CellError> {
        let mut cells = cx.cells::<Bytes, IdempotencyKey>(MAP);
        let oldest = cells.prefix([ORDER]).take(FORGOTTEN_AT_ONCE);
        let oldest = oldest.map(|cell| cell.map(|(order, key)| (post_of(order), key)));
        let oldest: Vec<_> = oldest.collect::<Result<_, _>>()?;
        let mut first_remembered = None;
        for (order, key) in oldest {
            let Some(id) = order else { continue };
            if now.remembers(id) {
                first_remembered = Some(id);
                break;
            }
            self.forget(cx, &key, id);
        }
        Ok(match first_remembered {
            Some(id) if self.count >= IdempotencyKey::COUNT_MAX => {
                Err(KeysFull { retry_after: now.until_forgotten(id) })
            }
            _ => Ok(()),
        })
    }

    /// Records that the post was made under the key.
    pub(crate) fn remember(
        &mut self,
        cx: &mut impl DurableContext,
        key: &IdempotencyKey,
        id: PostId,
    ) -> Result<(), CellError> {
        // The key may have expired without having been removed.
        if let Some(before) = cx.cells::<Bytes, PostId>(MAP).get(&key_cell(key))? {
            self.forget(cx, key, before);
        }
        cx.cells::<Bytes, PostId>(MAP).put(&key_cell(key), &id);
        cx.cells::<Bytes, IdempotencyKey>(MAP).put(&order_cell(id), key);
        self.count += 1;
        Ok(())
    }

    fn forget(&mut self, cx: &mut impl DurableContext, key: &IdempotencyKey, id: PostId) {
        let mut cells = cx.cells::<Bytes, ()>(MAP);
        cells.delete(&key_cell(key));
        cells.delete(&order_cell(id));
        self.count = self.count.saturating_sub(1);
    }
}

/// Time of a turn, in milliseconds since 1970.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Now(u64);

impl Now {
    /// Reads the system's clock.
    pub(crate) fn by_the_clock() -> Now {
        Now(u64::try_from(since_1970().as_millis()).unwrap_or(u64::MAX))
    }

    /// Returns whether a key for this post is unexpired. A post from more than a day in the future
    /// was made while the clock was wrong; its key must not stay until then.
    fn remembers(self, id: PostId) -> bool {
        self.0.abs_diff(id.time_ms()) < KEPT_MS
    }

    fn until_forgotten(self, id: PostId) -> Duration {
        Duration::from_millis(id.time_ms().saturating_add(KEPT_MS).saturating_sub(self.0))
    }
}

const KEPT_MS: u64 = IdempotencyKey::KEPT.as_millis() as u64;

/// Number of expired keys that a turn removes at most: more than it adds, so their number falls.
const FORGOTTEN_AT_ONCE: usize = 8;

/// Name of the map of all cells.
const MAP: &str = "";

/// First byte of a cell's key, which tells the cell's content; see also `user.rs`.
const KEY: u8 = b'k';
const ORDER: u8 = b'o';

fn key_cell(IdempotencyKey(key): &IdempotencyKey) -> Vec<u8> {
    [&[KEY], key.as_bytes()].concat()
}

fn order_cell(id: PostId) -> [u8; 9] {
    let mut cell = [ORDER; 9];
    cell[1..].copy_from_slice(&id.get().to_be_bytes());
    cell
}

fn post_of(order_cell: &[u8]) -> Option<PostId> {
    let number = order_cell.strip_prefix(&[ORDER])?.try_into().ok()?;
    Some(PostId::new(u64::from_be_bytes(number)))
}

#[cfg(test)]
mod tests {
    use throng::prelude::*;
    use throng_durable::{Durable, Node};

    use super::*;

    /// Entity that keeps only keys.
    #[derive(Durable, Debug, Default, Serialize, Deserialize)]
    #[durable(kind = "keeper")]
    struct Keeper(Keys);

    impl Process for Keeper {}

    /// Uses a key for a post at a given time.
    struct Use {
        key: IdempotencyKey,
        id: PostId,
        now: Now,
    }

    #[derive(Debug, PartialEq, Eq)]
    enum Used {
        First,
        Again(PostId),
        Full(Duration),
    }

    impl Message for Use {
        type Reply = Result<Used, CellError>;
    }

    impl Handle<Use> for Keeper {
        async fn handle(
            &mut self,
            Use { key, id, now }: Use,
            cx: &mut Context<Self>,
        ) -> Result<Used, CellError> {
            let Keeper(keys) = self;
            if let Some(id) = keys.find(cx, &key, now)? {
                return Ok(Used::Again(id));
            }
            if let Err(KeysFull { retry_after }) = keys.make_room(cx, now)? {
                return Ok(Used::Full(retry_after));
            }
            keys.remember(cx, &key, id)?;
            Ok(Used::First)
        }
    }

    /// Adds `add` to the count of keys; returns the count, and the number of cells.
    struct Count {
        add: u32,
    }

    impl Message for Count {
        type Reply = (u32, usize);
    }

    impl Handle<Count> for Keeper {
        async fn handle(&mut self, Count { add }: Count, cx: &mut Context<Self>) -> (u32, usize) {
            self.0.count += add;
            let cells =
                [KEY, ORDER].map(|kind| cx.cells::<Bytes, String>(MAP).prefix([kind]).count());
            assert_eq!(cells[0], cells[1]);
            (self.0.count, cells[0])
        }
    }

    /// Installs the keys as a state of version 1, and makes the cell of `damaged` unreadable.
    struct Begin {
        keys: Vec<(IdempotencyKey, PostId)>,
        damaged: IdempotencyKey,
    }

    impl Message for Begin {
        type Reply = ();
    }

    impl Handle<Begin> for Keeper {
        async fn handle(&mut self, Begin { keys, damaged }: Begin, cx: &mut Context<Self>) {
            self.0 = Keys::of_version_1(keys);
            cx.cells::<Bytes, ()>(MAP).put(&key_cell(&damaged), &());
        }
    }

    /// Removes the cell of a key.
    struct Remove(IdempotencyKey);

    impl Message for Remove {
        type Reply = ();
    }

    impl Handle<Remove> for Keeper {
        async fn handle(&mut self, Remove(key): Remove, cx: &mut Context<Self>) {
            cx.cells::<Bytes, ()>(MAP).delete(&key_cell(&key));
        }
    }

    /// Returns the id of a post that is made `ms` milliseconds into the test.
    fn post(ms: u64) -> PostId {
        PostId::new(ms << 22)
    }

    /// Returns the time `ms` milliseconds into the test.
    fn at(ms: u64) -> Now {
        Now(post(ms).time_ms())
    }

    fn key(number: u64) -> IdempotencyKey {
        IdempotencyKey::new(&format!("key-{number}")).unwrap()
    }

    fn on_a_node(test: impl AsyncFnOnce(&throng_durable::Entity<Keeper>)) {
        let data = tempfile::tempdir().unwrap();
        let runtime = Runtime::builder().workers(1).start().unwrap();
        runtime.block_on(async |runtime| {
            let node = Node::open(data.path()).start(runtime).unwrap();
            test(&node.entity::<Keeper>("one")).await;
            node.shutdown().await;
        });
    }

    #[test]
    fn an_idempotency_key_is_short_and_visible() {
        assert!(IdempotencyKey::new(&"k".repeat(128)).is_some());
        for bad in ["", "a b", "é", "a\n", &"k".repeat(129)] {
            assert_eq!(IdempotencyKey::new(bad), None, "{bad:?}");
        }
    }

    #[test]
    fn a_key_is_kept_for_a_day_and_no_longer() {
        on_a_node(async |keeper| {
            let used = async |number, ms| {
                let used = Use { key: key(number), id: post(ms), now: at(ms) };
                keeper.call(used).await.unwrap().unwrap()
            };
            assert_eq!(used(0, 5).await, Used::First);
            for number in 1..40 {
                assert_eq!(used(number, 5 + number).await, Used::First);
            }
            assert_eq!(used(0, 5 + KEPT_MS - 1).await, Used::Again(post(5)));
            assert_eq!(used(0, 5 + KEPT_MS).await, Used::First);
            assert_eq!(used(0, 5 + KEPT_MS).await, Used::Again(post(5 + KEPT_MS)));
            assert_eq!(keeper.call(Count { add: 0 }).await.unwrap(), (40, 40));
            // Later keys remove expired keys, several at a time.
            for number in 100..110 {
                assert_eq!(used(number, 3 * KEPT_MS + number).await, Used::First);
            }
            assert_eq!(keeper.call(Count { add: 0 }).await.unwrap(), (10, 10));
        });
    }

    #[test]
    fn a_key_beyond_the_maximum_is_refused_until_the_oldest_expires() {
        on_a_node(async |keeper| {
            let used = async |number, ms| {
                let used = Use { key: key(number), id: post(ms), now: at(ms) };
                keeper.call(used).await.unwrap().unwrap()
            };
            assert_eq!(used(0, 0).await, Used::First);
            keeper.call(Count { add: IdempotencyKey::COUNT_MAX - 2 }).await.unwrap();
            assert_eq!(used(1, 1000).await, Used::First);
            let left = Duration::from_millis(KEPT_MS - 2000);
            assert_eq!(used(2, 2000).await, Used::Full(left));
            assert_eq!(used(0, 2000).await, Used::Again(post(0)), "none was forgotten for it");
            assert_eq!(used(1, 2000).await, Used::Again(post(1000)));
            assert_eq!(used(2, KEPT_MS - 1).await, Used::Full(Duration::from_millis(1)));
            assert_eq!(used(2, KEPT_MS).await, Used::First);
        });
    }

    #[test]
    fn no_key_of_version_1_is_lost_if_a_key_cannot_be_moved() {
        on_a_node(async |keeper| {
            let keys = (0..5).map(|number| (key(number), post(number))).collect();
            keeper.call(Begin { keys, damaged: key(2) }).await.unwrap();
            let used = async |number| {
                keeper.call(Use { key: key(number), id: post(10), now: at(10) }).await.unwrap()
            };
            for _ in 0..2 {
                assert!(matches!(used(0).await, Err(CellError::Decode(_))));
            }
            keeper.call(Remove(key(2))).await.unwrap();
            for number in 0..5 {
                assert_eq!(used(number).await.unwrap(), Used::Again(post(number)));
            }
            assert_eq!(keeper.call(Count { add: 0 }).await.unwrap(), (5, 5));
        });
    }

    #[test]
    fn a_key_from_a_wrong_clock_does_not_stay_until_then() {
        on_a_node(async |keeper| {
            let used = async |id, now| {
                let used = Use { key: key(0), id: post(id), now: at(now) };
                keeper.call(used).await.unwrap().unwrap()
            };
            assert_eq!(used(10 * KEPT_MS, 10 * KEPT_MS).await, Used::First);
            assert_eq!(
                used(10 * KEPT_MS + 1, 9 * KEPT_MS + 1).await,
                Used::Again(post(10 * KEPT_MS))
            );
            assert_eq!(used(10 * KEPT_MS + 1, 0).await, Used::First);
        });
    }
}
