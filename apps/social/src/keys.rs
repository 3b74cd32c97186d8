//! Idempotency keys of a user or a room: the post or message made under each key, kept for a day.
//!
//! ```text
//! cells   keys            KEY → MADE, time    the post, or the message, that was made under a key
//!         keys-by-post    ID  → KEY, time     the same keys by the id of the post or message, oldest first
//! state   count           = number of cells in each map
//! ```
//!
//! Invariants: each cell has its counterpart in the other map. A key is found until it is
//! [`IdempotencyKey::KEPT`] old, and never after. No key is removed early to make room: a user's post
//! beyond [`IdempotencyKey::COUNT_MAX`] keys is refused. A room's keys have no maximum number: each belongs to
//! a message, which is kept for longer than the key.

use std::time::Duration;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use throng_durable::{CellError, DurableContext, Str, U64};

use crate::error::SocialError;
use crate::ids::{PostId, since_1970};
use crate::name::Name;

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

    /// Returns the key under which a room keeps this key of one of its members. It has a space, so that it
    /// differs from the keys of all other members.
    pub(crate) fn of_member(&self, member: &Name) -> IdempotencyKey {
        IdempotencyKey(format!("{member} {}", self.0))
    }
}

/// Reference to a post or a message that was made under a key.
pub(crate) trait Made: Copy + Serialize + DeserializeOwned + 'static {
    /// Returns the number of the post or message: later ones have higher numbers.
    fn number(self) -> u64;
}

impl Made for PostId {
    fn number(self) -> u64 {
        self.get()
    }
}

/// Number of a message in its room.
impl Made for u64 {
    fn number(self) -> u64 {
        self
    }
}

/// Number of the keys, in the state of the user or room; the keys themselves are cells.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(crate) struct Keys(u32);

impl Keys {
    /// Returns the post or message that was made under the key; an expired key is removed and not found.
    pub(crate) fn find<M: Made>(
        &mut self,
        cx: &mut (impl DurableContext + ?Sized),
        key: &IdempotencyKey,
        now: Now,
    ) -> Result<Option<M>, CellError> {
        match cx.cells::<Str, (M, u64)>(KEYS).get(&key.0)? {
            Some((made, made_ms)) if !now.remembers(made_ms) => {
                self.forget(cx, key, made.number());
                Ok(None)
            }
            found => Ok(found.map(|(made, _)| made)),
        }
    }

    /// Removes some expired keys.
    ///
    /// # Errors
    /// [`SocialError::KeysFull`] if there are `most` keys, so that there is no room for another one.
    pub(crate) fn make_room(
        &mut self,
        cx: &mut (impl DurableContext + ?Sized),
        now: Now,
        most: u32,
    ) -> Result<(), SocialError> {
        let mut by_post = cx.cells::<U64, (IdempotencyKey, u64)>(BY_POST);
        let oldest = by_post.range(..).take(FORGOTTEN_AT_ONCE);
        for (id, (key, made_ms)) in oldest.collect::<Result<Vec<_>, _>>()? {
            if now.remembers(made_ms) {
                let full = self.0 >= most;
                let retry_after = now.until_forgotten(made_ms);
                return if full { Err(SocialError::KeysFull { retry_after }) } else { Ok(()) };
            }
            self.forget(cx, &key, id);
        }
        Ok(())
    }

    /// Records the post or message that was made under the key, which [`find`](Keys::find) has not found.
    pub(crate) fn remember<M: Made>(
        &mut self,
        cx: &mut (impl DurableContext + ?Sized),
        key: &IdempotencyKey,
        made: M,
        now: Now,
    ) {
        cx.cells::<Str, (M, u64)>(KEYS).put(&key.0, &(made, now.ms()));
        let by_post = (key.clone(), now.ms());
        cx.cells::<U64, (IdempotencyKey, u64)>(BY_POST).put(&made.number(), &by_post);
        self.0 += 1;
    }

    fn forget(
        &mut self,
        cx: &mut (impl DurableContext + ?Sized),
        key: &IdempotencyKey,
        number: u64,
    ) {
        // Only the key is of interest, so the type of the value does not matter.
        cx.cells::<Str, (PostId, u64)>(KEYS).delete(&key.0);
        cx.cells::<U64, (IdempotencyKey, u64)>(BY_POST).delete(&number);
        self.0 = self.0.saturating_sub(1);
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

    /// Milliseconds since 1970.
    pub(crate) fn ms(self) -> u64 {
        self.0
    }

    #[cfg(test)]
    pub(crate) fn at(ms: u64) -> Now {
        Now(ms)
    }

    /// Returns whether a key of this time is unexpired. A key from more than a day in the future was made while the
    /// clock was wrong, and must not stay until then.
    fn remembers(self, made_ms: u64) -> bool {
        self.0.abs_diff(made_ms) < KEPT_MS
    }

    fn until_forgotten(self, made_ms: u64) -> Duration {
        Duration::from_millis(made_ms.saturating_add(KEPT_MS).saturating_sub(self.0))
    }
}

const KEPT_MS: u64 = IdempotencyKey::KEPT.as_millis() as u64;

/// Number of expired keys that a turn removes at most: more than it adds, so their number falls.
const FORGOTTEN_AT_ONCE: usize = 8;

/// Names of the maps of cells; see also `user.rs`.
const KEYS: &str = "keys";
const BY_POST: &str = "keys-by-post";

#[cfg(test)]
mod tests {
    use throng::prelude::*;
    use throng_durable::Durable;

    use super::*;
    use crate::testing::on_a_node;

    /// Entity that keeps only keys.
    #[derive(Durable, Debug, Default, Serialize, Deserialize)]
    #[durable(kind = "keeper")]
    struct Keeper(Keys);

    #[derive(Debug, PartialEq, Eq)]
    enum Used {
        First,
        Again(PostId),
        Full(Duration),
    }

    #[process]
    impl Keeper {
        /// Uses the key with a number for a post, both at `ms` milliseconds into the test.
        #[message(name = Use)]
        fn used(&mut self, cx: &mut Context<Self>, number: u64, id: PostId, now: Now) -> Used {
            let (keys, key) = (&mut self.0, key(number));
            if let Some(id) = keys.find(cx, &key, now).unwrap() {
                return Used::Again(id);
            }
            match keys.make_room(cx, now, IdempotencyKey::COUNT_MAX) {
                Ok(()) => keys.remember(cx, &key, id, Now::at(id.time_ms())),
                Err(SocialError::KeysFull { retry_after }) => return Used::Full(retry_after),
                Err(error) => panic!("{error}"),
            }
            Used::First
        }

        /// Adds `add` to the count of keys; returns the count, and the number of cells.
        #[message]
        fn count(&mut self, cx: &mut Context<Self>, add: u32) -> (u32, usize) {
            self.0.0 += add;
            let keys = cx.cells::<Str, (PostId, u64)>(KEYS).range(..).count();
            assert_eq!(cx.cells::<U64, (IdempotencyKey, u64)>(BY_POST).range(..).count(), keys);
            (self.0.0, keys)
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

    fn with_a_keeper(test: impl AsyncFnOnce(&throng_durable::Entity<Keeper>)) {
        on_a_node(1, async |_, node| test(&node.entity::<Keeper>("one")).await);
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
        with_a_keeper(async |keeper| {
            let used = async |number, ms| keeper.used(number, post(ms), at(ms)).await.unwrap();
            assert_eq!(used(0, 5).await, Used::First);
            for number in 1..40 {
                assert_eq!(used(number, 5 + number).await, Used::First);
            }
            assert_eq!(used(0, 5 + KEPT_MS - 1).await, Used::Again(post(5)));
            assert_eq!(used(0, 5 + KEPT_MS).await, Used::First);
            assert_eq!(used(0, 5 + KEPT_MS).await, Used::Again(post(5 + KEPT_MS)));
            assert_eq!(keeper.count(0).await.unwrap(), (40, 40));
            // Later keys remove expired keys, several at a time.
            for number in 100..110 {
                assert_eq!(used(number, 3 * KEPT_MS + number).await, Used::First);
            }
            assert_eq!(keeper.count(0).await.unwrap(), (10, 10));
        });
    }

    #[test]
    fn a_key_beyond_the_maximum_is_refused_until_the_oldest_expires() {
        with_a_keeper(async |keeper| {
            let used = async |number, ms| keeper.used(number, post(ms), at(ms)).await.unwrap();
            assert_eq!(used(0, 0).await, Used::First);
            keeper.count(IdempotencyKey::COUNT_MAX - 2).await.unwrap();
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
    fn a_key_from_a_wrong_clock_does_not_stay_until_then() {
        with_a_keeper(async |keeper| {
            let used = async |id, now| keeper.used(0, post(id), at(now)).await.unwrap();
            assert_eq!(used(10 * KEPT_MS, 10 * KEPT_MS).await, Used::First);
            assert_eq!(
                used(10 * KEPT_MS + 1, 9 * KEPT_MS + 1).await,
                Used::Again(post(10 * KEPT_MS))
            );
            assert_eq!(used(10 * KEPT_MS + 1, 0).await, Used::First);
        });
    }
}
