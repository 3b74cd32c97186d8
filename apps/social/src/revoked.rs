//! Tokens of a user that are revoked before they expire.
//!
//! A user's token is identified by the time of its issue in milliseconds; tokens that were issued in the same
//! millisecond count as the same token. Nobody can log in with these times, in memory or on the disk.
//!
//! Invariant: a revoked token is not accepted again before it expires; the check of its signature refuses it
//! afterwards. There is room for [`SINGLE_MAX`] tokens that are revoked singly. A further revocation gives up the
//! entry of the token that was issued first, and revokes all tokens that were issued until then instead.

use serde::{Deserialize, Serialize};

use crate::clock::Now;

/// Times of a token, in milliseconds since 1970.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Issued {
    /// Time of issue.
    pub at: u64,
    /// Time of expiry.
    pub expires: u64,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Revoked {
    /// Tokens that were issued at this time or earlier are revoked.
    until: u64,
    /// Times of issue and expiry of tokens that were revoked singly, in the order of their issue.
    single: Vec<(u64, u64)>,
}

impl Revoked {
    /// Whether a token that was issued at this time is not revoked.
    pub(crate) fn accepts(&self, issued: u64) -> bool {
        issued > self.until && self.single.binary_search_by_key(&issued, |(at, _)| *at).is_err()
    }

    pub(crate) fn revoke(&mut self, token: Issued, now: Now) {
        self.single.retain(|(_, expires)| *expires > now.ms());
        if let Err(place) = self.single.binary_search_by_key(&token.at, |(at, _)| *at) {
            self.single.insert(place, (token.at, token.expires));
        }
        if self.single.len() > SINGLE_MAX {
            let (oldest, _) = self.single.remove(0);
            self.until = self.until.max(oldest);
        }
    }

    pub(crate) fn revoke_all(&mut self, now: Now) {
        self.until = self.until.max(now.ms());
        self.single.retain(|(at, _)| *at > now.ms());
    }
}

/// Maximum number of tokens that are revoked singly: a kilobyte of the user's state.
const SINGLE_MAX: usize = 64;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const TTL: u64 = 1000;

    fn token(at: u64) -> Issued {
        Issued { at, expires: at + TTL }
    }

    proptest! {
        #[test]
        fn a_revoked_token_is_never_accepted_again(
            steps in prop::collection::vec((0..2000_u64, prop::option::weighted(0.98, 0..2000_u64)), 1..200),
        ) {
            let (mut revoked, mut expected) = (Revoked::default(), Vec::new());
            let mut now = 0;
            for (later, at) in steps {
                now = now.max(later);
                match at {
                    // Only a token that is valid can ask for its own end.
                    Some(at) if at <= now && now < at + TTL => {
                        revoked.revoke(token(at), Now::at(now));
                        expected.push(at);
                    }
                    Some(_) => {}
                    None => {
                        revoked.revoke_all(Now::at(now));
                        expected.extend(0..=now);
                    }
                }
                for at in &expected {
                    prop_assert!(!revoked.accepts(*at) || *at + TTL <= now, "{at} at {now}");
                }
                prop_assert!(revoked.accepts(now + 1));
                prop_assert!(revoked.single.len() <= SINGLE_MAX);
            }
        }
    }

    #[test]
    fn other_tokens_stay_valid_unless_there_is_no_room() {
        let mut revoked = Revoked::default();
        for number in 0..SINGLE_MAX as u64 {
            revoked.revoke(token(10 + 2 * number), Now::at(200));
            assert!(revoked.accepts(10 + 2 * number + 1) && revoked.accepts(9));
        }
        revoked.revoke(token(500), Now::at(600));
        let accepted: Vec<u64> = (0..14).filter(|at| revoked.accepts(*at)).collect();
        assert_eq!(accepted, [11, 13], "the oldest takes the earlier ones with it");
        assert!(!revoked.accepts(500) && revoked.accepts(501));
    }
}
