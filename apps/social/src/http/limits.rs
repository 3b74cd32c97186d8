//! Limits of each account and of each client network.
//!
//! ```text
//! request ──► token? ──valid──► reads or writes of the account
//!                └──none, bad──► reads of the network
//!
//!                                         one token for        given back
//! registrations of a network              each attempt         if it repeats another
//! logins of a network                     each password        if it is right
//! tokens of a network                     each bad token       never
//! ```
//!
//! Invariants:
//! * Every route of the API takes a token before its handler runs, so no route can be forgotten.
//! * Only a valid token that is not revoked takes from an account, so nobody else can use up what a user may do.
//! * A valid token is admitted whatever the network has sent: a machine that guesses cannot shut its neighbours out
//!   of their sessions. Its wrong tokens are refused, and a token has too many bits to be guessed.
//! * No password is checked while the network's bucket is empty, whether it is right or wrong.

use std::collections::HashMap;
use std::fmt::Write;
use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use axum::http::Method;
use throng::PrometheusText;
use throng_node::http::{Limited, Rate, RateTable};

use crate::error::SocialError;
use crate::name::Name;

/// Rates and caps of the service.
#[derive(Clone, Debug)]
pub struct Rates {
    /// Requests of an account that change nothing; and all requests of a client network without a valid token.
    pub reads: Rate,
    /// Requests of an account that may change something, with messages and typing in rooms.
    pub writes: Rate,
    /// Registrations of a client network.
    pub registrations: Rate,
    /// Wrong passwords of a client network.
    pub logins: Rate,
    /// Invalid tokens of a client network.
    pub tokens: Rate,
    /// Maximum number of sockets of an account.
    pub sockets_per_account_max: usize,
}

impl Default for Rates {
    /// Returns rates that limit nothing.
    fn default() -> Rates {
        Rates {
            reads: Rate::UNLIMITED,
            writes: Rate::UNLIMITED,
            registrations: Rate::UNLIMITED,
            logins: Rate::UNLIMITED,
            tokens: Rate::UNLIMITED,
            sockets_per_account_max: usize::MAX,
        }
    }
}

/// Limits of the routes, with the state of each account and client network. Clones share the state. The default limits
/// nothing.
#[derive(Clone, Debug)]
pub struct RateLimits(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    reads: RateTable<Name>,
    writes: RateTable<Name>,
    network_reads: RateTable<IpAddr>,
    registrations: RateTable<IpAddr>,
    logins: RateTable<IpAddr>,
    tokens: RateTable<IpAddr>,
    sockets_per_account_max: usize,
    /// Open sockets of each account that has one.
    sockets: Mutex<HashMap<Name, usize>>,
    sockets_refused: AtomicU64,
}

/// Kind of a request that an account makes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Class {
    Read,
    Write,
}

/// Place of a socket among those of its account, given back when dropped.
#[derive(Debug)]
pub(crate) struct AccountSocket {
    limits: RateLimits,
    name: Name,
}

impl Default for RateLimits {
    fn default() -> RateLimits {
        RateLimits::new(&Rates::default())
    }
}

impl RateLimits {
    /// Creates the limits; all buckets are full.
    pub fn new(rates: &Rates) -> RateLimits {
        RateLimits(Arc::new(Inner {
            reads: RateTable::new(rates.reads, KEYS_MAX),
            writes: RateTable::new(rates.writes, KEYS_MAX),
            network_reads: RateTable::new(rates.reads, KEYS_MAX),
            registrations: RateTable::new(rates.registrations, KEYS_MAX),
            logins: RateTable::new(rates.logins, KEYS_MAX),
            tokens: RateTable::new(rates.tokens, KEYS_MAX),
            sockets_per_account_max: rates.sockets_per_account_max,
            sockets: Mutex::default(),
            sockets_refused: AtomicU64::new(0),
        }))
    }

    /// Appends the counts to a text in the Prometheus format.
    pub fn write_prometheus(&self, text: &mut String) {
        let inner = &*self.0;
        // Writing to a `String` never fails.
        const NAME: &str = "throng_rate_limited_total";
        let _ = writeln!(text, "# HELP {NAME} Requests that were refused by a rate limit.");
        let _ = writeln!(text, "# TYPE {NAME} counter");
        for (class, refused) in [
            ("reads", inner.reads.refused() + inner.network_reads.refused()),
            ("writes", inner.writes.refused()),
            ("registrations", inner.registrations.refused()),
            ("logins", inner.logins.refused()),
            ("tokens", inner.tokens.refused()),
        ] {
            let _ = writeln!(text, "{NAME}{{class=\"{class}\"}} {refused}");
        }
        let mut others = PrometheusText::default();
        let buckets = "Accounts and networks whose rates are in memory.";
        others.gauge("throng_rate_buckets", buckets, self.buckets());
        let refused = inner.sockets_refused.load(Ordering::Relaxed); // Relaxed: it guards no other data.
        let sockets = "Sockets beyond the maximum of their account.";
        others.counter("throng_sockets_refused_of_account_total", sockets, refused);
        text.push_str(&others.into_text());
    }

    fn buckets(&self) -> usize {
        let Inner { reads, writes, network_reads, registrations, logins, tokens, .. } = &*self.0;
        let networks = [network_reads, registrations, logins, tokens].map(RateTable::buckets);
        reads.buckets() + writes.buckets() + networks.iter().sum::<usize>()
    }

    /// Admits a request of an account.
    pub(crate) fn admit(&self, class: Class, name: &Name) -> Result<(), Limited> {
        match class {
            Class::Read => self.0.reads.take(name),
            Class::Write => self.0.writes.take(name),
        }
    }

    /// Admits a request from a network without a valid token.
    pub(super) fn of_network(&self, network: IpAddr) -> Result<(), Limited> {
        self.0.network_reads.take(&network)
    }

    /// Admits a registration from a network. The caller calls [`Attempt::give_back`] if it repeated an earlier one.
    pub(super) fn registration(&self, network: IpAddr) -> Result<Attempt<'_>, Limited> {
        Attempt::begin(&self.0.registrations, network)
    }

    /// Admits the check of a password from a network; see [`Attempt::until`].
    pub(super) fn login(&self, network: IpAddr) -> Result<Attempt<'_>, Limited> {
        Attempt::begin(&self.0.logins, network)
    }

    /// Counts an invalid token from a network.
    pub(crate) fn bad_token(&self, network: IpAddr) -> Result<(), Limited> {
        self.0.tokens.take(&network)
    }

    /// Takes a place for a socket of an account, or counts a refusal if the account has its maximum number of sockets.
    pub(crate) fn socket(&self, name: &Name) -> Option<AccountSocket> {
        let mut sockets = self.0.sockets.lock().unwrap_or_else(PoisonError::into_inner);
        let open = sockets.get(name).copied().unwrap_or(0);
        if open >= self.0.sockets_per_account_max {
            drop(sockets);
            self.0.sockets_refused.fetch_add(1, Ordering::Relaxed); // Relaxed: it guards no other data.
            return None;
        }
        sockets.insert(name.clone(), open + 1);
        drop(sockets);
        Some(AccountSocket { limits: self.clone(), name: name.clone() })
    }
}

impl Drop for AccountSocket {
    fn drop(&mut self) {
        let sockets = &self.limits.0.sockets;
        let mut sockets = sockets.lock().unwrap_or_else(PoisonError::into_inner);
        match sockets.get_mut(&self.name) {
            Some(open) if *open > 1 => *open -= 1,
            _ => drop(sockets.remove(&self.name)),
        }
    }
}

/// Attempt that has taken a token.
#[must_use]
pub(super) struct Attempt<'t> {
    table: &'t RateTable<IpAddr>,
    network: IpAddr,
}

impl<'t> Attempt<'t> {
    /// Takes the token before the attempt, so that no more attempts run at a time than there are tokens.
    fn begin(table: &'t RateTable<IpAddr>, network: IpAddr) -> Result<Attempt<'t>, Limited> {
        table.take(&network)?;
        Ok(Attempt { table, network })
    }

    /// Checks a password. Gives the token back unless it is wrong: a check that did not take place is no attempt.
    pub(super) async fn until<T>(
        self,
        check: impl Future<Output = Result<T, SocialError>>,
    ) -> Result<T, SocialError> {
        let outcome = check.await;
        if !matches!(outcome, Err(SocialError::WrongCredentials)) {
            self.give_back();
        }
        outcome
    }

    pub(super) fn give_back(self) {
        self.table.give_back(&self.network);
    }
}

impl Class {
    pub(super) fn of(method: &Method) -> Class {
        if method.is_safe() { Class::Read } else { Class::Write }
    }
}

/// Maximum number of buckets of a table: some megabytes. Beyond it, the fullest buckets are forgotten.
const KEYS_MAX: usize = 1 << 16;

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn one_an_hour() -> Rate {
        Rate::new(1, Duration::from_secs(3600)).unwrap()
    }

    fn limits() -> RateLimits {
        let rate = one_an_hour();
        let (reads, writes, registrations, logins, tokens) = (rate, rate, rate, rate, rate);
        let sockets_per_account_max = 2;
        let rates = Rates { reads, writes, registrations, logins, tokens, sockets_per_account_max };
        RateLimits::new(&rates)
    }

    #[test]
    fn an_account_has_so_many_sockets_and_the_table_is_empty_afterwards() {
        let limits = limits();
        let [alice, bob] = ["alice", "bob"].map(|name| name.parse::<Name>().unwrap());
        let places = [limits.socket(&alice), limits.socket(&alice), limits.socket(&bob)];
        assert!(places.iter().all(Option::is_some));
        assert!(limits.socket(&alice).is_none());
        let [first, second, third] = places;
        drop(first);
        let again = limits.socket(&alice);
        assert!(again.is_some() && limits.socket(&alice).is_none(), "one place was given back");
        drop((second, third, again));
        assert!(limits.0.sockets.lock().unwrap().is_empty());
    }

    #[test]
    fn refusals_are_counted_by_class() {
        let limits = limits();
        let (alice, here) = ("alice".parse().unwrap(), [10, 0, 0, 1].into());
        for _ in 0..2 {
            let _ = limits.admit(Class::Read, &alice);
            let _ = limits.of_network(here);
            let _ = limits.bad_token(here);
        }
        let _places: Vec<_> = (0..3).map(|_| limits.socket(&alice)).collect();
        let mut text = String::new();
        limits.write_prometheus(&mut text);
        for line in [
            "throng_rate_limited_total{class=\"reads\"} 2",
            "throng_rate_limited_total{class=\"writes\"} 0",
            "throng_rate_limited_total{class=\"tokens\"} 1",
            "throng_rate_buckets 3",
            "throng_sockets_refused_of_account_total 1",
        ] {
            assert!(text.lines().any(|written| written == line), "{line}\n{text}");
        }
    }

    #[test]
    fn the_default_limits_nothing() {
        let limits = RateLimits::default();
        let alice = "alice".parse().unwrap();
        for _ in 0..10_000 {
            assert_eq!(limits.admit(Class::Write, &alice), Ok(()));
        }
        assert_eq!(limits.buckets(), 0);
    }
}
