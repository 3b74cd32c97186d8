//! Requests that make a post or a message once, however often they are repeated with the same idempotency key.
//!
//! The entity stores the number of what it has made under the key, for a day; see [`EntityCall::once`]. The text is not
//! stored with it, so a text that is deleted is gone. A request that is refused leaves its key unused.

use serde::{Deserialize, Serialize};
use throng::Turn;
use throng_durable::{Durable, EntityCall};

use crate::error::SocialError;
use crate::name::Name;

/// Name that a client gives to a request, which makes repeating the request within 24 hours harmless: 1 to 128
/// visible ASCII characters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IdempotencyKey(String);

impl IdempotencyKey {
    /// Maximum length of a key, in bytes.
    pub const BYTES_MAX: usize = 128;

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

/// Reply of a turn that makes a post or a message.
#[derive(Debug, Serialize, Deserialize)]
#[serde(bound = "")]
pub(crate) struct Made<T> {
    /// Number of the post or message.
    pub(crate) number: u64,
    /// The post or message itself; `None` in a stored reply, which a repeated request gets.
    #[serde(skip)]
    pub(crate) new: Option<T>,
}

/// Makes a call, once for each key.
pub(crate) async fn make<P, T, V>(
    call: EntityCall<P, T>,
    key: Option<IdempotencyKey>,
) -> Result<Made<V>, SocialError>
where
    P: Durable,
    T: Turn<P, Reply = Result<Made<V>, SocialError>>,
{
    match key {
        Some(key) => call.once(key.0).stored_if(Result::is_ok).await?,
        None => call.await?,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_idempotency_key_is_short_and_visible() {
        assert!(IdempotencyKey::new(&"k".repeat(128)).is_some());
        for bad in ["", "a b", "é", "a\n", &"k".repeat(129)] {
            assert_eq!(IdempotencyKey::new(bad), None, "{bad:?}");
        }
    }
}
