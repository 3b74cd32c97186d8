//! A bound on wrong tokens, by the address of the client.
//!
//! Each address may fail [`BURST`] times at once and then once per [`INTERVAL`]; further tokens from it are not
//! looked at, right or wrong. An address is stored as the instant at which its failures are forgotten, and
//! only until then.
//!
//! Invariant: at most [`ADDRESSES_MAX`] addresses are stored. While so many have failed, further addresses count
//! as exhausted.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use throng_server::ClientAddress;

/// Number of failures that an address may have at once.
const BURST: u32 = 10;

/// Time after which an address may fail once more. A token has 256 bits, so the bound is for the log and the
/// processor; one second is no obstacle for an operator who mistypes.
const INTERVAL: Duration = Duration::from_secs(1);

/// Maximum number of addresses with recent failures.
const ADDRESSES_MAX: usize = 1024;

/// Failures by address.
#[derive(Debug, Default)]
pub(super) struct Attempts(Mutex<HashMap<IpAddr, Instant>>);

/// Too many failures: the client must wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Exhausted {
    pub(super) retry_after_seconds: u64,
}

impl Attempts {
    /// Returns whether `client` may try a token.
    ///
    /// # Errors
    /// The client, or its network, has failed too often.
    pub(super) fn check(&self, client: IpAddr) -> Result<(), Exhausted> {
        self.check_at(client, Instant::now())
    }

    /// Counts a wrong token of `client`.
    pub(super) fn count_failure(&self, client: IpAddr) {
        self.count_failure_at(client, Instant::now());
    }

    fn check_at(&self, client: IpAddr, now: Instant) -> Result<(), Exhausted> {
        let mut forgotten = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let wait = match forgotten.get(&ClientAddress(client).network()) {
            Some(at) => (*at + INTERVAL).saturating_duration_since(now + INTERVAL * BURST),
            None => {
                if forgotten.len() >= ADDRESSES_MAX {
                    forgotten.retain(|_, at| *at > now);
                }
                if forgotten.len() < ADDRESSES_MAX { Duration::ZERO } else { INTERVAL }
            }
        };
        if wait.is_zero() {
            return Ok(());
        }
        Err(Exhausted { retry_after_seconds: wait.as_secs().max(1) })
    }

    fn count_failure_at(&self, client: IpAddr, now: Instant) {
        let mut forgotten = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let at = forgotten.entry(ClientAddress(client).network()).or_insert(now);
        *at = (*at).max(now) + INTERVAL;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_that_fails_too_often_waits_and_others_do_not() {
        let attempts = Attempts::default();
        let now = Instant::now();
        let [client, other]: [IpAddr; 2] = [[127, 0, 0, 1].into(), [127, 0, 0, 2].into()];
        for _ in 0..BURST {
            assert_eq!(attempts.check_at(client, now), Ok(()));
            attempts.count_failure_at(client, now);
        }
        assert_eq!(attempts.check_at(client, now), Err(Exhausted { retry_after_seconds: 1 }));
        assert_eq!(attempts.check_at(other, now), Ok(()));
        let later = now + INTERVAL;
        assert_eq!(attempts.check_at(client, later), Ok(()));
        attempts.count_failure_at(client, later);
        assert!(attempts.check_at(client, later).is_err(), "one more, not all again");
        assert_eq!(attempts.check_at(client, later + INTERVAL * BURST), Ok(()));
    }

    #[test]
    fn addresses_are_forgotten_and_bounded() {
        let attempts = Attempts::default();
        let now = Instant::now();
        let address = |number: usize| IpAddr::from((number as u32).to_be_bytes());
        for number in 0..ADDRESSES_MAX {
            attempts.count_failure_at(address(number), now);
        }
        assert!(attempts.check_at(address(ADDRESSES_MAX), now).is_err());
        assert_eq!(
            attempts.check_at(address(0), now),
            Ok(()),
            "a stored address has its own count"
        );
        assert_eq!(attempts.check_at(address(ADDRESSES_MAX), now + INTERVAL), Ok(()));
        assert!(attempts.0.lock().unwrap().is_empty());
    }

    #[test]
    fn addresses_of_a_network_count_together() {
        let attempts = Attempts::default();
        let now = Instant::now();
        for last in 0..BURST {
            attempts.count_failure_at(format!("2001:db8::{last}").parse().unwrap(), now);
        }
        assert!(attempts.check_at("2001:db8::ffff".parse().unwrap(), now).is_err());
        assert_eq!(attempts.check_at("2001:db8:0:1::1".parse().unwrap(), now), Ok(()));
    }
}
