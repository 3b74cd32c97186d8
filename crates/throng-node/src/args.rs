//! The settings of a node as arguments of clap, to flatten into the command line of a program.
//!
//! ```
//! use clap::Parser;
//! use throng_node::args::{Log, NodeArgs};
//!
//! #[derive(Parser)]
//! struct Cli {
//!     #[command(flatten)]
//!     log: Log,
//!     #[command(flatten)]
//!     node: NodeArgs,
//! }
//!
//! let Cli { log, node } = Cli::parse_from(["my-node", "--listen", "127.0.0.1:0", "--log", "warn"]);
//! log.start(node.access_log);
//! assert_eq!(node.options()?.listen.port(), 0);
//! # Ok::<(), throng_node::args::CertificateError>(())
//! ```
//!
//! Each setting is a long flag with an environment variable of the same name, behind `THRONG_`.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum};
use tracing_subscriber::filter::Targets;

use crate::http::{ForwardedHeader, Limits, Network, Tls, TlsError, TrustedProxies};
use crate::log::{self, Format};
use crate::options::{DashboardAddress, Options};

/// Settings of the log on standard error.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Log")]
pub struct Log {
    /// Log level on standard error: error, warn, info, debug or trace, optionally per target
    /// (`info,throng_node=debug`)
    #[arg(long, global = true, value_name = "FILTER", env = "THRONG_LOG", default_value = "info")]
    #[arg(help_heading = "Log")]
    pub log: Targets,

    /// Format of the log: lines for people, or an object of JSON in each line, also for panics and for the error that
    /// ends the program, unless the settings themselves are wrong
    #[arg(long, global = true, value_name = "FORMAT", env = "THRONG_LOG_FORMAT", value_enum)]
    #[arg(help_heading = "Log", default_value_t = Format::Text)]
    pub log_format: Format,
}

impl Log {
    /// Starts to log; see [`log::start`].
    ///
    /// # Panics
    /// If the program has a subscriber already.
    pub fn start(&self, access_log: bool) {
        log::start(self.log.clone(), self.log_format, access_log);
    }
}

/// Settings of a node that serves, but for those of its data.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Network")]
pub struct NodeArgs {
    /// Log each answered request, whatever the level: method, path without the query, status, bytes,
    /// time, client and request id
    #[arg(long, env = "THRONG_ACCESS_LOG", help_heading = "Log")]
    pub access_log: bool,

    /// Address to listen on; port 0 picks a free port
    #[arg(long, value_name = "ADDRESS", env = "THRONG_LISTEN", default_value = "127.0.0.1:7070")]
    pub listen: SocketAddr,

    /// Further origins whose pages may open sockets, such as `https://example.org`, separated by
    /// commas; behind a proxy that speaks TLS, list the service's own origin
    #[arg(long, value_name = "ORIGINS", env = "THRONG_ORIGINS", value_delimiter = ',')]
    #[arg(value_parser = parse_origin)]
    pub origins: Vec<String>,

    /// Networks of reverse proxies, such as `10.0.0.0/8` or `127.0.0.1`, separated by commas. The client of their
    /// requests is the last address in --forwarded-header that is not in these networks. From other clients the
    /// header is ignored
    #[arg(long, value_name = "NETWORKS", env = "THRONG_TRUSTED_PROXIES", value_delimiter = ',')]
    pub trusted_proxies: Vec<Network>,

    /// Header in which the trusted proxies name their client; they must not pass on one of a client as it came
    #[arg(long, value_name = "HEADER", env = "THRONG_FORWARDED_HEADER", value_enum)]
    #[arg(default_value_t = HeaderName::XForwardedFor)]
    pub forwarded_header: HeaderName,

    /// File of the certificates in PEM, the node's own first; with it, the service speaks HTTPS. SIGHUP
    /// reads both files again
    #[arg(long, value_name = "FILE", env = "THRONG_TLS_CERT", help_heading = "TLS")]
    pub tls_cert: Option<PathBuf>,

    /// File of the certificate's private key in PEM, without a passphrase, and not for every user of the
    /// machine
    #[arg(long, value_name = "FILE", env = "THRONG_TLS_KEY", help_heading = "TLS")]
    pub tls_key: Option<PathBuf>,

    #[command(flatten)]
    dashboard: DashboardArgs,

    /// Path of the socket for `throng top`; by default `admin.sock` in the data directory
    #[arg(long, value_name = "PATH", env = "THRONG_ADMIN_SOCKET", help_heading = "Storage")]
    pub admin_socket: Option<PathBuf>,

    /// Maximum number of connections served at once; fewer if the limit of open files has no room for so many
    #[arg(long, value_name = "NUMBER", env = "THRONG_CONNECTIONS_MAX", default_value_t = 10_000)]
    #[arg(value_parser = parse_maximum, help_heading = "Limits")]
    pub connections_max: usize,

    /// Maximum time for the head of a request to arrive
    #[arg(long, value_name = "DURATION", env = "THRONG_HEADER_TIMEOUT", default_value = "10s")]
    #[arg(value_parser = parse_positive, help_heading = "Limits")]
    pub header_timeout: Duration,

    /// Maximum time from the head of a request to its answer
    #[arg(long, value_name = "DURATION", env = "THRONG_REQUEST_TIMEOUT", default_value = "30s")]
    #[arg(value_parser = parse_positive, help_heading = "Limits")]
    pub request_timeout: Duration,

    /// Maximum number of sockets at once; by default nine tenths of --connections-max, so that sockets leave room for
    /// requests
    #[arg(long, value_name = "NUMBER", env = "THRONG_SOCKETS_MAX", help_heading = "Limits")]
    pub sockets_max: Option<usize>,

    /// Maximum number of connections of a client network; connections of trusted proxies do not count
    #[arg(long, value_name = "NUMBER", env = "THRONG_CONNECTIONS_PER_NETWORK_MAX")]
    #[arg(default_value_t = 1_000, value_parser = parse_maximum, help_heading = "Limits of clients")]
    pub connections_per_network_max: usize,

    /// Maximum time for requests in flight to finish when the node stops
    #[arg(long, value_name = "DURATION", env = "THRONG_DRAIN_TIMEOUT", default_value = "10s")]
    #[arg(value_parser = humantime::parse_duration, help_heading = "Stopping")]
    pub drain_timeout: Duration,

    /// Time after the first stop signal in which the node still accepts connections, while `/readyz`
    /// is 503, so that load balancers send clients elsewhere first
    #[arg(long, value_name = "DURATION", env = "THRONG_DRAIN_DELAY", default_value = "0s")]
    #[arg(value_parser = humantime::parse_duration, help_heading = "Stopping")]
    pub drain_delay: Duration,
}

/// Settings of the dashboard.
#[derive(Clone, Copy, Debug, Args)]
#[command(next_help_heading = "Dashboard")]
pub struct DashboardArgs {
    /// Address of the dashboard, for the operator; port 0 picks a free port, `off` disables it
    ///
    /// By default 127.0.0.1:7071, or a free port if that is taken.
    #[arg(long, value_name = "ADDRESS", env = "THRONG_ADMIN_LISTEN")]
    admin_listen: Option<DashboardAddress>,
}

impl DashboardArgs {
    /// Returns the address of the dashboard.
    pub fn address(&self) -> DashboardAddress {
        self.admin_listen.unwrap_or_default()
    }
}

/// Header in which a proxy names its client.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum HeaderName {
    /// `X-Forwarded-For`
    XForwardedFor,
    /// `Forwarded`, of RFC 7239
    Forwarded,
}

/// Error in the settings of TLS.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CertificateError {
    /// One of the two files is not set: set both, or none.
    #[error("--tls-cert and --tls-key need each other; set both, or none")]
    Half,
    /// The files cannot be used.
    #[error("cannot serve with TLS")]
    Files(#[source] TlsError),
}

impl NodeArgs {
    /// Checks that none or both of the files of TLS are set.
    ///
    /// # Errors
    /// [`CertificateError::Half`]
    pub fn check(&self) -> Result<(), CertificateError> {
        let is_whole = self.tls_cert.is_some() == self.tls_key.is_some();
        if is_whole { Ok(()) } else { Err(CertificateError::Half) }
    }

    /// Returns whether the node has a dashboard.
    pub fn has_dashboard(&self) -> bool {
        self.dashboard.address() != DashboardAddress::Off
    }

    /// Loads the certificate, if there is one, and returns the options of the node.
    ///
    /// # Errors
    /// The files of TLS cannot be used.
    pub fn options(&self) -> Result<Options, CertificateError> {
        self.check()?;
        let tls = match (&self.tls_cert, &self.tls_key) {
            (Some(certificate), Some(key)) => {
                Some(Tls::load(certificate, key).map_err(CertificateError::Files)?)
            }
            _ => None,
        };
        let header = match self.forwarded_header {
            HeaderName::XForwardedFor => ForwardedHeader::XForwardedFor,
            HeaderName::Forwarded => ForwardedHeader::Forwarded,
        };
        Ok(Options {
            listen: self.listen,
            tls,
            dashboard: self.dashboard.address(),
            directory: None,
            admin_socket: self.admin_socket.clone(),
            limits: Limits {
                connections_max: self.connections_max,
                connections_per_network_max: self.connections_per_network_max,
                trusted_proxies: TrustedProxies { networks: self.trusted_proxies.clone(), header },
                header_timeout: self.header_timeout,
                request_timeout: self.request_timeout,
                drain_timeout: self.drain_timeout,
                ..Limits::default()
            },
            sockets_max: self.sockets_max,
            origins: self.origins.clone(),
            drain_delay: self.drain_delay,
        })
    }
}

/// The text is not a maximum.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a maximum is a whole number of at least 1")]
pub struct MaximumError;

/// Parses the maximum of something that a node cannot do without.
///
/// # Errors
/// The text is not a whole number of at least 1.
pub fn parse_maximum(text: &str) -> Result<usize, MaximumError> {
    text.parse().ok().filter(|maximum| *maximum > 0).ok_or(MaximumError)
}

/// The text is not a duration above zero.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum PositiveError {
    /// The text is not a duration.
    #[error(transparent)]
    Malformed(#[from] humantime::DurationError),
    /// The duration is zero.
    #[error("this duration must be above zero, because nothing would be possible within it")]
    Zero,
}

/// Parses a duration above zero, such as `30s`, `1h 30m` or `30d`.
///
/// # Errors
/// The text is no duration, or zero.
pub fn parse_positive(text: &str) -> Result<Duration, PositiveError> {
    let duration = humantime::parse_duration(text)?;
    if duration.is_zero() { Err(PositiveError::Zero) } else { Ok(duration) }
}

/// Text that browsers never send as an origin.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "an origin is http:// or https:// with a host, and has no path, such as https://example.org"
)]
struct OriginError;

/// Parses an origin as browsers send it: a scheme, a host, and possibly a port.
fn parse_origin(text: &str) -> Result<String, OriginError> {
    let host = text.strip_prefix("https://").or_else(|| text.strip_prefix("http://"));
    let host = host.ok_or(OriginError)?;
    let is_host = host.parse::<axum::http::uri::Authority>().is_ok() && !host.contains('@');
    if is_host { Ok(text.to_owned()) } else { Err(OriginError) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_origin_is_a_scheme_and_a_host() {
        for origin in ["https://example.org", "http://localhost:8080", "https://[::1]:443"] {
            assert_eq!(parse_origin(origin).unwrap(), origin);
        }
        for other in ["", "example.org", "https://", "https://a/b", "ftp://a", "https://u@a", "*"] {
            assert!(parse_origin(other).is_err(), "{other}");
        }
    }
}
