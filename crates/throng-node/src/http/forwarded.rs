//! The client behind a proxy.
//!
//! ```text
//!   client ──► proxy ──► proxy ──► node             X-Forwarded-For: made up, client, proxy
//!   203.0.113.7  10.0.0.2  10.0.0.1                                   ◄── read ──┘
//! ```
//!
//! Each proxy appends the address of its own client, so the list is read from its end, for as long as the hop that
//! appended an address is trusted. The first address that is no trusted proxy is the client.
//!
//! Invariants: the header is read only if the connection comes from a trusted proxy. An entry left of an address that
//! is not trusted is never used, because that client may have sent it. Only the header that the operator has named is
//! read: a proxy passes other headers on as they came.

use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::str::FromStr;

use axum::http::HeaderMap;

/// Network of addresses, such as `10.0.0.0/8`, or a single address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Network {
    /// First address of the network.
    address: IpAddr,
    /// Number of leading bits that all addresses of the network share.
    prefix: u8,
}

/// The text is not a network.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "a network is an address, such as 10.0.0.1, or the first address of a network with its bits, such as 10.0.0.0/8"
)]
pub struct NetworkError;

impl Network {
    /// Returns whether `address` is in the network.
    pub fn contains(&self, address: IpAddr) -> bool {
        match (self.address, address.to_canonical()) {
            (IpAddr::V4(own), IpAddr::V4(other)) => {
                let mask = u32::MAX.checked_shl(32 - u32::from(self.prefix)).unwrap_or(0);
                own.to_bits() == other.to_bits() & mask
            }
            (IpAddr::V6(own), IpAddr::V6(other)) => {
                let mask = u128::MAX.checked_shl(128 - u32::from(self.prefix)).unwrap_or(0);
                own.to_bits() == other.to_bits() & mask
            }
            _ => false,
        }
    }
}

impl FromStr for Network {
    type Err = NetworkError;

    fn from_str(text: &str) -> Result<Network, NetworkError> {
        let (address, prefix) = match text.split_once('/') {
            Some((address, prefix)) => (address, Some(prefix)),
            None => (text, None),
        };
        let address: IpAddr = address.parse().map_err(|_| NetworkError)?;
        let bits = if address.is_ipv4() { 32 } else { 128 };
        let prefix = match prefix {
            Some(prefix) if prefix.bytes().all(|byte| byte.is_ascii_digit()) => {
                prefix.parse().map_err(|_| NetworkError)?
            }
            Some(_) => return Err(NetworkError),
            None => bits,
        };
        let network = Network { address, prefix };
        // An address with bits behind the prefix is more likely a mistake than a network.
        if prefix <= bits && network.contains(address) { Ok(network) } else { Err(NetworkError) }
    }
}

/// Header in which a proxy names its client.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ForwardedHeader {
    /// `X-Forwarded-For`, a list of addresses.
    #[default]
    XForwardedFor,
    /// `Forwarded` (RFC 7239), a list of hops with `for=ADDRESS`.
    Forwarded,
}

/// Proxies that are trusted to name their client; none by default.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TrustedProxies {
    /// Networks of the proxies.
    pub networks: Vec<Network>,
    /// Header that the proxies set.
    pub header: ForwardedHeader,
}

impl TrustedProxies {
    /// Returns whether `address` is one of the proxies.
    pub(crate) fn contains(&self, address: IpAddr) -> bool {
        self.networks.iter().any(|network| network.contains(address))
    }

    /// Returns the client of a request that came from `peer`.
    pub(crate) fn client(&self, peer: IpAddr, headers: &HeaderMap) -> IpAddr {
        let mut client = peer;
        if !self.contains(client) {
            return client;
        }
        let name = match self.header {
            ForwardedHeader::XForwardedFor => "x-forwarded-for",
            ForwardedHeader::Forwarded => "forwarded",
        };
        for line in headers.get_all(name).iter().rev() {
            // A client may have sent the beginning of a line, such as an open quote, so nothing in a line that cannot
            // be read is certain.
            let hops = line.to_str().ok().and_then(|line| split(line, ','));
            let Some(hops) = hops else { return client };
            for hop in hops.into_iter().rev() {
                let address = match self.header {
                    ForwardedHeader::XForwardedFor => address_of(hop.trim()),
                    ForwardedHeader::Forwarded => forwarded_for(hop),
                };
                // A proxy that does not name its client counts as the client.
                let Some(address) = address else { return client };
                client = address.to_canonical();
                if !self.contains(client) {
                    return client;
                }
            }
        }
        client
    }
}

/// Returns the address of the parameter `for` in an element of `Forwarded`.
fn forwarded_for(hop: &str) -> Option<IpAddr> {
    let mut values = split(hop, ';')?.into_iter().filter_map(|pair| {
        let (name, value) = pair.trim().split_once('=')?;
        name.eq_ignore_ascii_case("for").then_some(value)
    });
    let value = values.next().filter(|_| values.next().is_none())?;
    let unquoted = value.strip_prefix('"').and_then(|value| value.strip_suffix('"'));
    // No address has a character that would be escaped.
    address_of(unquoted.unwrap_or(value))
}

/// Parses an address, possibly with a port: `10.0.0.1:80`, `[2001:db8::1]:80`, `[2001:db8::1]`.
fn address_of(text: &str) -> Option<IpAddr> {
    let bracketed = text.strip_prefix('[').and_then(|text| text.strip_suffix(']'));
    if let Some(inside) = bracketed {
        return inside.parse::<Ipv6Addr>().ok().map(IpAddr::V6);
    }
    let with_port = || text.parse::<SocketAddr>().ok().map(|address| address.ip());
    text.parse().ok().or_else(with_port)
}

/// Splits a header's value at a separator outside of quotes; `None` if a quote is open at the end.
fn split(text: &str, separator: char) -> Option<Vec<&str>> {
    let (mut is_quoted, mut is_escaped) = (false, false);
    let parts = text.split(|c| {
        let escapes = is_quoted && !is_escaped && c == '\\';
        if c == '"' && !is_escaped {
            is_quoted = !is_quoted;
        }
        is_escaped = escapes;
        c == separator && !is_quoted
    });
    let parts = parts.collect();
    if is_quoted { None } else { Some(parts) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn network(text: &str) -> Network {
        text.parse().unwrap()
    }

    #[test]
    fn a_network_has_the_addresses_that_share_its_bits() {
        for (text, inside, outside) in [
            ("10.0.0.0/8", "10.255.0.1", "11.0.0.1"),
            ("10.0.0.1", "10.0.0.1", "10.0.0.2"),
            ("0.0.0.0/0", "1.2.3.4", "::1"),
            ("10.0.0.1", "::ffff:10.0.0.1", "::10.0.0.1"),
            ("2001:db8::/32", "2001:db8:7::1", "2001:db9::1"),
            ("::/0", "2001::", "10.0.0.1"),
            ("::1", "::1", "::2"),
        ] {
            assert!(network(text).contains(inside.parse().unwrap()), "{inside} in {text}");
            assert!(!network(text).contains(outside.parse().unwrap()), "{outside} not in {text}");
        }
        for text in
            ["", "10", "10.0.0.0/33", "10.0.0.1/8", "::1/129", "10.0.0.0/", "10.0.0.0/+8", "a/8"]
        {
            assert_eq!(text.parse::<Network>(), Err(NetworkError), "{text}");
        }
    }

    #[test]
    fn only_a_trusted_proxy_is_believed_and_only_up_to_the_first_other_hop() {
        use ForwardedHeader::{Forwarded, XForwardedFor};
        let (proxy, stranger) = ("10.0.0.1", "203.0.113.9");
        for (header, peer, lines, expected) in [
            // Nobody else is believed.
            (XForwardedFor, stranger, &["198.51.100.1"][..], stranger),
            (Forwarded, stranger, &["for=198.51.100.1"], stranger),
            // The last hop that is not trusted.
            (XForwardedFor, proxy, &["198.51.100.1"], "198.51.100.1"),
            (XForwardedFor, proxy, &["6.6.6.6, 198.51.100.1"], "198.51.100.1"),
            (XForwardedFor, proxy, &["6.6.6.6, 198.51.100.1, 10.0.0.2"], "198.51.100.1"),
            (XForwardedFor, proxy, &["6.6.6.6", "198.51.100.1", "10.0.0.2"], "198.51.100.1"),
            (XForwardedFor, "::ffff:10.0.0.1", &["198.51.100.1"], "198.51.100.1"),
            // All hops are proxies: the first of them is the client.
            (XForwardedFor, proxy, &["10.0.0.3,10.0.0.2"], "10.0.0.3"),
            // A proxy that names no client, or no address, stands for it.
            (XForwardedFor, proxy, &[], proxy),
            (XForwardedFor, proxy, &[""], proxy),
            (XForwardedFor, proxy, &["198.51.100.1, unknown"], proxy),
            (XForwardedFor, proxy, &["198.51.100.1, unknown, 10.0.0.2"], "10.0.0.2"),
            (XForwardedFor, proxy, &["198.51.100.1,"], proxy),
            // Ports and notations.
            (XForwardedFor, proxy, &["198.51.100.1:4711"], "198.51.100.1"),
            (XForwardedFor, proxy, &["2001:db8::7"], "2001:db8::7"),
            (XForwardedFor, proxy, &["[2001:db8::7]:80"], "2001:db8::7"),
            (XForwardedFor, proxy, &["[2001:db8::7]"], "2001:db8::7"),
            (XForwardedFor, proxy, &["::ffff:198.51.100.1"], "198.51.100.1"),
            (Forwarded, proxy, &["for=198.51.100.1;proto=https"], "198.51.100.1"),
            (Forwarded, proxy, &["For=\"[2001:db8::7]:80\""], "2001:db8::7"),
            (Forwarded, proxy, &["for=6.6.6.6, by=x;for=198.51.100.1"], "198.51.100.1"),
            (Forwarded, proxy, &["for=6.6.6.6", "for=198.51.100.1, for=10.0.0.2"], "198.51.100.1"),
            // A client cannot hide the hop that a proxy appends in quotes of its own.
            (Forwarded, proxy, &["for=6.6.6.6;x=\", for=198.51.100.1"], proxy),
            (Forwarded, proxy, &["for=6.6.6.6;x=\"\\\", for=\"198.51.100.1\""], proxy),
            (Forwarded, proxy, &["for=\"a, for=6.6.6.6", "for=198.51.100.1"], "198.51.100.1"),
            (Forwarded, proxy, &["for=6.6.6.6;host=\"x, for=7.7.7.7\""], "6.6.6.6"),
            (Forwarded, proxy, &["for=198.51.100.1;host=\"\\\", for=7.7.7.7\""], "198.51.100.1"),
            (Forwarded, proxy, &["for=6.6.6.6;for=7.7.7.7"], proxy),
            (Forwarded, proxy, &["for=unknown"], proxy),
            (Forwarded, proxy, &["for=_hidden, for=10.0.0.2"], "10.0.0.2"),
            (Forwarded, proxy, &["proto=https"], proxy),
        ] {
            let proxies = TrustedProxies { networks: vec![network("10.0.0.0/8")], header };
            let (name, other) = match header {
                XForwardedFor => ("x-forwarded-for", "forwarded"),
                Forwarded => ("forwarded", "x-forwarded-for"),
            };
            let mut headers = HeaderMap::new();
            // The other header is the client's own, whatever it says.
            headers.append(other, "for=6.6.6.6".parse().unwrap());
            headers.append(other, "6.6.6.6".parse().unwrap());
            for line in lines {
                headers.append(name, line.parse().unwrap());
            }
            let client = proxies.client(peer.parse().unwrap(), &headers);
            assert_eq!(client.to_string(), expected, "{header:?} {lines:?} of {peer}");
            // Without trusted proxies, nobody is believed.
            let peer: IpAddr = peer.parse().unwrap();
            assert_eq!(TrustedProxies::default().client(peer, &headers), peer);
        }
    }
}
