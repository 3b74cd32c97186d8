//! Admission of connections: a bound for each client network, and counts of open and of refused connections.
//!
//! Invariant: a network is in the table while it has a connection, so the table is no larger than the number of
//! connections.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use crate::http::ClientAddress;

/// Connections of a server by network, and counts of open and of refused connections. Clones share everything.
#[derive(Clone, Debug, Default)]
pub struct Connections(Arc<Inner>);

#[derive(Debug, Default)]
struct Inner {
    networks: Mutex<HashMap<IpAddr, usize>>,
    open: AtomicUsize,
    refused: AtomicU64,
    refused_of_network: AtomicU64,
}

/// Place of a connection among those of its network, given back when dropped.
#[derive(Debug)]
pub(crate) struct ConnectionPlace {
    connections: Connections,
    network: IpAddr,
}

impl Connections {
    /// Returns the number of connections that are being served, sockets among them.
    pub fn open(&self) -> usize {
        self.0.open.load(Ordering::Relaxed) // Relaxed: the counts guard no other data.
    }

    pub(crate) fn note_open(&self, open: usize) {
        self.0.open.store(open, Ordering::Relaxed); // Relaxed: as above
    }

    /// Returns the number of connections that were refused because the server had its maximum number.
    pub fn refused(&self) -> u64 {
        self.0.refused.load(Ordering::Relaxed) // Relaxed: the counts guard no other data.
    }

    /// Returns the number of connections that were refused because their network had its maximum number.
    pub fn refused_of_network(&self) -> u64 {
        self.0.refused_of_network.load(Ordering::Relaxed) // Relaxed: as above
    }

    pub(crate) fn count_refused(&self) {
        self.0.refused.fetch_add(1, Ordering::Relaxed); // Relaxed: as above
    }

    /// Takes a place for a connection of `client`, or counts a refusal if `max` connections of its network have one.
    pub(crate) fn enter(&self, client: ClientAddress, max: usize) -> Option<ConnectionPlace> {
        let network = client.network();
        let mut networks = self.0.networks.lock().unwrap_or_else(PoisonError::into_inner);
        let count = networks.get(&network).copied().unwrap_or(0);
        if count >= max {
            drop(networks);
            self.0.refused_of_network.fetch_add(1, Ordering::Relaxed); // Relaxed: as above
            return None;
        }
        networks.insert(network, count + 1);
        drop(networks);
        Some(ConnectionPlace { connections: self.clone(), network })
    }
}

impl Drop for ConnectionPlace {
    fn drop(&mut self) {
        let networks = &self.connections.0.networks;
        let mut networks = networks.lock().unwrap_or_else(PoisonError::into_inner);
        match networks.get_mut(&self.network) {
            Some(count) if *count > 1 => *count -= 1,
            _ => {
                networks.remove(&self.network);
                // Frees the memory that a flood of connections has taken.
                if networks.capacity() > 4 * networks.len() + 64 {
                    networks.shrink_to_fit();
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_network_has_so_many_places_and_the_table_is_empty_afterwards() {
        let connections = Connections::default();
        let enter = |address: &str| connections.enter(ClientAddress(address.parse().unwrap()), 2);
        let (one, two) = (enter("2001:db8::1"), enter("2001:db8::2"));
        assert!(one.is_some() && two.is_some());
        assert!(enter("2001:db8::3").is_none(), "of the same network");
        let other = enter("2001:db8:0:1::1");
        assert!(other.is_some(), "of another network");
        drop(one);
        let three = enter("2001:db8::3");
        assert!(three.is_some(), "one place was given back");
        assert!(enter("2001:db8::4").is_none(), "and no more than one");
        drop((two, three, other));
        assert!(connections.0.networks.lock().unwrap().is_empty());
        assert_eq!((connections.refused_of_network(), connections.refused()), (2, 0));
    }

    #[test]
    fn the_memory_of_many_networks_goes_back() {
        let connections = Connections::default();
        let address = |number: u32| ClientAddress(IpAddr::from(number.to_be_bytes()));
        let places: Vec<_> =
            (0..10_000).map(|number| connections.enter(address(number), 1)).collect();
        assert!(places.iter().all(Option::is_some));
        drop(places);
        assert!(connections.0.networks.lock().unwrap().capacity() <= 64);
    }
}
