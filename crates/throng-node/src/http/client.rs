//! The client address of a request.

use std::net::{IpAddr, Ipv6Addr};

use axum::extract::FromRequestParts;
use axum::http::StatusCode;
use axum::http::request::Parts;

use crate::http::Problem;

/// Extracts the address of the client: the remote address of the connection, or, if that is a proxy in
/// [`Limits::trusted_proxies`](crate::http::Limits::trusted_proxies), the address for which the proxy has forwarded the
/// request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClientAddress(pub IpAddr);

impl ClientAddress {
    /// Returns the address that stands for the client: an IPv6 client is its whole network of 64 bits, of which a
    /// single machine may use any address.
    pub fn network(self) -> IpAddr {
        match self.0.to_canonical() {
            IpAddr::V6(address) => {
                Ipv6Addr::from_bits(address.to_bits() & (u128::MAX << 64)).into()
            }
            address => address,
        }
    }
}

impl<S: Send + Sync> FromRequestParts<S> for ClientAddress {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _state: &S) -> Result<Self, Problem> {
        // A `Server` inserts the address; a router that is called in another way has no client.
        parts.extensions.get().copied().ok_or_else(|| {
            let detail = "the client's address is unknown";
            Problem::new(StatusCode::INTERNAL_SERVER_ERROR, "internal", detail)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_network_of_a_machine_is_one_client() {
        let network = |text: &str| ClientAddress(text.parse().unwrap()).network();
        let same = |a: &str, b: &str| network(a) == network(b);
        assert!(same("2001:db8::1", "2001:db8::ffff:1:2:3"));
        assert!(!same("2001:db8::1", "2001:db8:0:1::1"));
        assert!(same("::ffff:10.0.0.1", "10.0.0.1"));
        assert!(!same("10.0.0.1", "10.0.0.2"));
    }
}
