//! [`Claims`]: the keys of unique indexes that turns on their way to the disk have taken.
//!
//! ```text
//!  claim ──▶ held by a turn ──(submitted)──▶ in flight ──(durable, or lost)──▶ the store tells
//!                └──(turn dropped)──▶ free
//! ```
//!
//! Turns run on several threads, and the store does not show what is not durable yet. So a turn claims its new key
//! here first, and looks for another owner in the store after that: of two turns with one key, the second one finds
//! the claim of the first, or its entry.
//!
//! A key that a turn gives up is free once that turn is durable. Nothing is noted of it here.
//!
//! Invariants: a claim stays until the store shows the entry, or the submission is lost. The claims are as many as
//! turns are in flight, and at most as many again, since those that are over are removed as others come.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard};

use throng_store::{Outcomes, Submission};

use crate::due::lock;

/// Claims of the keys of a kind's unique indexes; see the file's head.
#[derive(Debug, Default)]
pub(crate) struct Claims(Mutex<Table>);

#[derive(Debug, Default)]
struct Table {
    claimed: HashMap<Box<[u8]>, Claimed>,
    /// Number of the last claim.
    last: u64,
    /// Number of claims at which those that are over are removed.
    trim_at: usize,
}

/// Least number of claims at which those that are over are removed.
const TRIM_MIN: usize = 64;

#[derive(Debug)]
struct Claimed {
    owner: Box<[u8]>,
    /// Number of the claim of a turn that is not submitted.
    held: Option<u64>,
    /// The last submission with the key.
    submitted: Submission,
}

impl Claimed {
    fn is_over(&self, outcomes: &Outcomes) -> bool {
        self.held.is_none() && self.submitted <= outcomes.settled_through()
    }
}

/// A claim of a turn that is not submitted. Its drop gives the claim up.
#[derive(Debug)]
pub(crate) struct Claim {
    claims: Arc<Claims>,
    key: Box<[u8]>,
    number: u64,
}

impl Claims {
    /// Claims a key for an owner.
    ///
    /// # Errors
    ///
    /// The owner whose turn has the key and is on its way to the disk.
    pub(crate) fn claim(
        self: &Arc<Self>,
        key: &[u8],
        owner: &[u8],
        outcomes: &Outcomes,
    ) -> Result<Claim, Box<[u8]>> {
        let mut table = self.lock();
        if table.claimed.len() >= table.trim_at {
            table.claimed.retain(|_, claimed| !claimed.is_over(outcomes));
            table.trim_at = (2 * table.claimed.len()).max(TRIM_MIN);
        }
        table.last += 1;
        let number = table.last;
        match table.claimed.get_mut(key) {
            Some(other) if *other.owner != *owner && !other.is_over(outcomes) => {
                return Err(other.owner.clone());
            }
            Some(own) if *own.owner == *owner => own.held = Some(number),
            _ => {
                let (owner, submitted) = (owner.into(), Submission::START);
                let claimed = Claimed { owner, held: Some(number), submitted };
                table.claimed.insert(key.into(), claimed);
            }
        }
        Ok(Claim { claims: self.clone(), key: key.into(), number })
    }

    fn lock(&self) -> MutexGuard<'_, Table> {
        lock(&self.0)
    }
}

impl Claim {
    /// Notes that the turn is submitted.
    pub(crate) fn submitted(self, submission: Submission) {
        if let Some(claimed) = self.claims.lock().claimed.get_mut(&self.key) {
            claimed.submitted = claimed.submitted.max(submission);
        }
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        let mut table = self.claims.lock();
        if let Some(claimed) = table.claimed.get_mut(&self.key)
            && claimed.held == Some(self.number)
        {
            claimed.held = None;
            if claimed.submitted == Submission::START {
                table.claimed.remove(&self.key);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use throng_store::{Batch, Bytes, Store};

    use super::*;

    fn owner(claim: Result<Claim, Box<[u8]>>) -> Result<Claim, String> {
        claim.map_err(|owner| String::from_utf8(owner.into()).unwrap())
    }

    #[test]
    fn a_claim_holds_until_its_turn_is_dropped_or_durable() {
        let directory = tempfile::tempdir().unwrap();
        let store = Store::open(directory.path()).unwrap();
        let table = store.default_database::<Bytes, Bytes>();
        let outcomes = store.outcomes();
        let claims = Arc::new(Claims::default());
        let claim =
            |key: &str, by: &str| owner(claims.claim(key.as_bytes(), by.as_bytes(), &outcomes));

        let held = claim("k", "a").unwrap();
        assert_eq!(claim("k", "b").unwrap_err(), "a");
        drop(claim("l", "b").unwrap());
        drop(held);
        let dropped = claim("k", "b").unwrap();
        drop(dropped);

        // A claim of a later turn of the same entity that is dropped leaves the one in flight.
        let (entered, enters) = std::sync::mpsc::channel();
        let (release, released) = std::sync::mpsc::channel::<()>();
        let blocked = store.update(move |_| {
            entered.send(()).unwrap();
            let _ = released.recv();
            Ok::<_, throng_store::ReadError>(())
        });
        enters.recv().unwrap();
        let mut batch = Batch::new().put(&table, b"k", b"a");
        let in_flight = store.submit(&mut batch, Submission::START).unwrap();
        claim("k", "a").unwrap().submitted(in_flight);
        drop(claim("k", "a").unwrap());
        assert_eq!(claim("k", "b").unwrap_err(), "a");
        drop(release);
        blocked.wait().unwrap();
        store.settled(in_flight).wait().unwrap();
        drop(claim("k", "b").unwrap());
    }

    #[test]
    fn claims_that_are_over_are_removed() {
        let directory = tempfile::tempdir().unwrap();
        let store = Store::open(directory.path()).unwrap();
        let table = store.default_database::<Bytes, Bytes>();
        let claims = Arc::new(Claims::default());
        for number in 0..10_000u32 {
            let key = number.to_be_bytes();
            let claim = claims.claim(&key, b"a", &store.outcomes()).unwrap();
            let mut batch = Batch::new().put(&table, &key, b"a");
            let submission = store.submit(&mut batch, Submission::START).unwrap();
            claim.submitted(submission);
            if number % 50 == 49 {
                store.settled(submission).wait().unwrap();
            }
        }
        assert!(claims.lock().claimed.len() <= 2 * TRIM_MIN);
    }
}
