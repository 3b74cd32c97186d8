//! Options of a node that serves.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use crate::http::{Limits, Tls};

/// Options of a node that serves. The defaults are those of a service on a single machine:
///
/// ```
/// use throng_node::{DashboardAddress, Options};
///
/// let options = Options { dashboard: DashboardAddress::Off, ..Options::default() };
/// assert_eq!(options.listen, "127.0.0.1:7070".parse()?);
/// # Ok::<(), std::net::AddrParseError>(())
/// ```
#[derive(Clone, Debug)]
pub struct Options {
    /// Address of the service; port 0 picks a free port. 127.0.0.1:7070 by default.
    pub listen: SocketAddr,
    /// Certificate with which the service speaks HTTPS. SIGHUP reads its files again.
    pub tls: Option<Tls>,
    /// Address of the dashboard.
    pub dashboard: DashboardAddress,
    /// Directory of the admin socket and the dashboard's token. The data directory of the node by default; a program
    /// without durable processes has to set one.
    pub directory: Option<PathBuf>,
    /// Path of the admin socket. `admin.sock` in the directory by default.
    pub admin_socket: Option<PathBuf>,
    /// Bounds of the service's connections and requests. `connections_max` is reduced to what the limit of open files
    /// has room for.
    pub limits: Limits,
    /// Maximum number of WebSockets at once. Nine tenths of the connections by default, so that requests have room.
    pub sockets_max: Option<usize>,
    /// Further origins whose pages may open WebSockets, such as `https://example.org`.
    pub origins: Vec<String>,
    /// Time after the first signal in which the service still accepts connections, while `/readyz` is 503, so that
    /// load balancers send clients elsewhere first. Zero by default.
    pub drain_delay: Duration,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            listen: SocketAddr::from((Ipv4Addr::LOCALHOST, 7070)),
            tls: None,
            dashboard: DashboardAddress::Default,
            directory: None,
            admin_socket: None,
            limits: Limits { connections_per_network_max: 1_000, ..Limits::default() },
            sockets_max: None,
            origins: Vec::new(),
            drain_delay: Duration::ZERO,
        }
    }
}

impl Options {
    /// Returns the maximum number of WebSockets of a node that serves at most `connections_max` connections.
    pub(crate) fn sockets_max(&self, connections_max: usize) -> usize {
        let most = connections_max - connections_max / 10;
        self.sockets_max.map_or(most, |chosen| chosen.min(connections_max))
    }
}

/// Address of a dashboard.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DashboardAddress {
    /// 127.0.0.1:7071, or a free port if another program has that.
    #[default]
    Default,
    /// This address; port 0 picks a free port.
    At(SocketAddr),
    /// No dashboard.
    Off,
}

impl std::str::FromStr for DashboardAddress {
    type Err = std::net::AddrParseError;

    /// Parses an address, or `off`.
    fn from_str(text: &str) -> Result<DashboardAddress, Self::Err> {
        match text {
            "" | "off" => Ok(DashboardAddress::Off),
            address => address.parse().map(DashboardAddress::At),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_or_off_is_a_place_for_the_dashboard() {
        assert_eq!("off".parse(), Ok(DashboardAddress::Off));
        assert_eq!("".parse(), Ok(DashboardAddress::Off));
        let address = "127.0.0.1:0".parse().unwrap();
        assert_eq!("127.0.0.1:0".parse(), Ok(DashboardAddress::At(address)));
        assert!("on".parse::<DashboardAddress>().is_err());
    }
}
