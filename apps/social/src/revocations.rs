//! Copies of the users' revoked tokens, so that the token of a request is checked without a call.
//!
//! ```text
//! request ──► copy of the user? ──yes──► accepted or not
//!                  └──no──► call the user ──► keep the copy, unless a revocation came in between
//!                                                    ▲
//! user, in the turn that revokes ──► forget ─────────┘ counts
//! ```
//!
//! Invariants:
//! * When a revocation is acknowledged, no copy is left from before it. The user forgets the copy within the turn. A
//!   copy that was asked for before the turn has an earlier generation, and is not kept. A copy that is asked for
//!   later comes with the revocation, and only once the revocation is on disk: a reply waits for its process's changes.
//! * There are at most `SHARDS * COPIES_MAX` copies.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::name::Name;
use crate::revoked::Revoked;

/// The copies of a service; cheap to clone.
#[derive(Clone, Debug, Default)]
pub(crate) struct Revocations(Arc<Shards>);

#[derive(Debug, Default)]
struct Shards {
    hasher: RandomState,
    shards: [Mutex<Shard>; SHARDS],
}

#[derive(Debug, Default)]
struct Shard {
    /// Number of calls of [`forget`](Revocations::forget) for users of this shard.
    generation: u64,
    copies: HashMap<Name, Revoked>,
}

impl Revocations {
    /// Returns whether a token that was issued at this time is not revoked; `None` without a copy of the user.
    pub(crate) fn accepts(&self, name: &Name, issued: u64) -> Option<bool> {
        self.shard(name).copies.get(name).map(|revoked| revoked.accepts(issued))
    }

    /// Returns the generation, to be read before the user is asked for its revoked tokens.
    pub(crate) fn generation(&self, name: &Name) -> u64 {
        self.shard(name).generation
    }

    /// Keeps a copy that was asked for in a generation, unless a revocation may have come since then.
    pub(crate) fn keep(&self, name: &Name, revoked: Revoked, generation: u64) {
        let mut shard = self.shard(name);
        if shard.generation != generation {
            return;
        }
        // A user that makes requests has a copy again soon. Tracking the order of use would cost more, at each request.
        if shard.copies.len() >= COPIES_MAX {
            shard.copies.clear();
        }
        shard.copies.insert(name.clone(), revoked);
    }

    /// Removes the copy of a user, within the turn that revokes tokens.
    pub(crate) fn forget(&self, name: &Name) {
        let mut shard = self.shard(name);
        shard.generation += 1;
        shard.copies.remove(name);
    }

    fn shard(&self, name: &Name) -> MutexGuard<'_, Shard> {
        let Shards { hasher, shards } = &*self.0;
        let shard = hasher.hash_one(name) as usize % SHARDS;
        // Each change is a single step, so a panic leaves the shard consistent.
        shards[shard].lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Number of locks, each for the users of a share of the hashes.
const SHARDS: usize = 16;

/// Maximum number of copies of a shard. A copy takes about a hundred bytes, and 16 more for each token that was revoked
/// singly, of which there are at most 64.
const COPIES_MAX: usize = 4_096;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::Now;

    fn name(number: usize) -> Name {
        format!("user_{number}").parse().unwrap()
    }

    fn revoked_until(time: u64) -> Revoked {
        let mut revoked = Revoked::default();
        revoked.revoke_all(Now::at(time));
        revoked
    }

    #[test]
    fn a_copy_from_before_a_revocation_is_never_used_after_it() {
        let (revocations, alice) = (Revocations::default(), name(1));
        assert_eq!(revocations.accepts(&alice, 7), None);
        let before = revocations.generation(&alice);
        revocations.keep(&alice, revoked_until(5), before);
        assert_eq!(revocations.accepts(&alice, 7), Some(true));
        assert_eq!(revocations.accepts(&alice, 5), Some(false));
        // The copy was kept before the revocation, and then one that was asked for before.
        revocations.forget(&alice);
        assert_eq!(revocations.accepts(&alice, 7), None);
        revocations.keep(&alice, revoked_until(5), before);
        assert_eq!(revocations.accepts(&alice, 7), None);
        // One that was asked for afterwards.
        revocations.keep(&alice, revoked_until(7), revocations.generation(&alice));
        assert_eq!(revocations.accepts(&alice, 7), Some(false));
    }

    #[test]
    fn the_number_of_copies_is_bounded() {
        let revocations = Revocations::default();
        for number in 0..3 * SHARDS * COPIES_MAX {
            let name = name(number);
            revocations.keep(&name, Revoked::default(), revocations.generation(&name));
            assert_eq!(revocations.accepts(&name, 1), Some(true));
        }
        let shards = revocations.0.shards.iter();
        let copies = shards.map(|shard| shard.lock().unwrap().copies.len());
        assert!(copies.max() <= Some(COPIES_MAX));
    }
}
