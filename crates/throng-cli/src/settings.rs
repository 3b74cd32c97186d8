//! Settings of a node, each defined once: name, environment variable, default, limits and help.
//!
//! ```text
//! group         heading in --help   used by
//! Log           Log                 every command, for standard error
//! Network       Network             the listener
//! TlsFiles      TLS                 the listener; see `certificate.rs`
//! Proxies       Network             the server
//! Storage       Storage             the store, the key, the admin socket
//! Logins        Logins              the service
//! Bounds        Limits              the server
//! ClientLimits  Limits of clients   the server and the service
//! Stopping      Stopping            the drain
//! ```
//!
//! A setting is a field with a long flag and an environment variable of the same name; `config`
//! reads its value from a file under the name of the flag, and needs no change for another setting.

mod rates;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum};
use tracing_subscriber::filter::Targets;

use crate::duration;

pub(crate) use rates::{ClientLimits, Proxies};

/// Settings of the log on standard error.
#[derive(Debug, Args)]
pub(crate) struct Log {
    /// Log level on standard error: error, warn, info, debug or trace, optionally per target
    /// (`info,throng_server=debug`)
    #[arg(long, global = true, value_name = "FILTER", env = "THRONG_LOG", default_value = "info")]
    #[arg(help_heading = "Log")]
    pub(crate) log: Targets,

    /// Format of the log: lines for people, or an object of JSON in each line, also for panics and for the error that
    /// ends the program, unless the settings themselves are wrong
    #[arg(long, global = true, value_name = "FORMAT", env = "THRONG_LOG_FORMAT", value_enum)]
    #[arg(help_heading = "Log", default_value_t = LogFormat::Text)]
    pub(crate) log_format: LogFormat,
}

/// Format of the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum LogFormat {
    Text,
    Json,
}

/// Settings of the log of requests.
#[derive(Debug, Args)]
#[command(next_help_heading = "Log")]
pub(crate) struct AccessLog {
    /// Log each answered request, whatever the level: method, path without the query, status, bytes,
    /// time, client and request id
    #[arg(long, env = "THRONG_ACCESS_LOG")]
    pub(crate) access_log: bool,
}

/// Settings of the listener.
#[derive(Debug, Args)]
#[command(next_help_heading = "Network")]
pub(crate) struct Network {
    /// Address to listen on; port 0 picks a free port
    #[arg(long, value_name = "ADDRESS", env = "THRONG_LISTEN", default_value = "127.0.0.1:7070")]
    pub(crate) listen: SocketAddr,

    /// Further origins whose pages may open sockets, such as `https://example.org`, separated by
    /// commas; behind a proxy that speaks TLS, list the service's own origin
    #[arg(long, value_name = "ORIGINS", env = "THRONG_ORIGINS", value_delimiter = ',')]
    #[arg(value_parser = parse_origin)]
    pub(crate) origins: Vec<String>,
}

/// Settings of the data on disk, and of the files beside it.
#[derive(Debug, Args)]
#[command(next_help_heading = "Storage")]
pub(crate) struct Storage {
    /// Directory for all data; created if it does not exist
    #[arg(long, value_name = "DIRECTORY", env = "THRONG_DATA", default_value = "./throng-data")]
    pub(crate) data: PathBuf,

    /// Keep the log, for `throng store restore`; its files in `log/kept` are yours to remove
    #[arg(long, env = "THRONG_KEEP_LOG")]
    pub(crate) keep_log: bool,

    /// Path of the socket for `throng top`; by default `admin.sock` in the data directory
    #[arg(long, value_name = "PATH", env = "THRONG_ADMIN_SOCKET")]
    pub(crate) admin_socket: Option<PathBuf>,
}

/// Settings of the users' logins.
#[derive(Debug, Args)]
#[command(next_help_heading = "Logins")]
pub(crate) struct Logins {
    /// Time for which a login is valid
    #[arg(long, value_name = "DURATION", env = "THRONG_TOKEN_TTL", default_value = "30d")]
    #[arg(value_parser = duration::parse_positive)]
    pub(crate) token_ttl: Duration,
}

/// Bounds of the server's connections.
#[derive(Debug, Args)]
#[command(next_help_heading = "Limits")]
pub(crate) struct Bounds {
    /// Maximum number of connections served at once; fewer if the limit of open files has no room for so many
    #[arg(long, value_name = "NUMBER", env = "THRONG_CONNECTIONS_MAX", default_value_t = 10_000)]
    #[arg(value_parser = parse_maximum)]
    pub(crate) connections_max: usize,

    /// Maximum time for the head of a request to arrive
    #[arg(long, value_name = "DURATION", env = "THRONG_HEADER_TIMEOUT", default_value = "10s")]
    #[arg(value_parser = duration::parse_positive)]
    pub(crate) header_timeout: Duration,

    /// Maximum time from the head of a request to its answer
    #[arg(long, value_name = "DURATION", env = "THRONG_REQUEST_TIMEOUT", default_value = "30s")]
    #[arg(value_parser = duration::parse_positive)]
    pub(crate) request_timeout: Duration,

    /// Maximum number of sockets at once; by default nine tenths of --connections-max, so that sockets leave room for
    /// requests
    #[arg(long, value_name = "NUMBER", env = "THRONG_SOCKETS_MAX")]
    sockets_max: Option<usize>,
}

impl Bounds {
    /// Returns the maximum number of sockets at once, of a node that serves at most `connections_max` connections.
    pub(crate) fn sockets_max(&self, connections_max: usize) -> usize {
        let some = connections_max - connections_max / 10;
        self.sockets_max.map_or(some, |chosen| chosen.min(connections_max))
    }
}

/// Settings of a node's stop.
#[derive(Debug, Args)]
#[command(next_help_heading = "Stopping")]
pub(crate) struct Stopping {
    /// Maximum time for requests in flight to finish when the node stops
    #[arg(long, value_name = "DURATION", env = "THRONG_DRAIN_TIMEOUT", default_value = "10s")]
    #[arg(value_parser = duration::parse)]
    pub(crate) drain_timeout: Duration,

    /// Time after the first stop signal in which the node still accepts connections, while `/readyz`
    /// is 503, so that load balancers send clients elsewhere first
    #[arg(long, value_name = "DURATION", env = "THRONG_DRAIN_DELAY", default_value = "0s")]
    #[arg(value_parser = duration::parse)]
    pub(crate) drain_delay: Duration,
}

/// The text is not a maximum.
#[derive(Clone, Copy, Debug, thiserror::Error)]
#[error("a maximum is a whole number of at least 1")]
struct MaximumError;

/// Parses the maximum of something that a node cannot do without.
fn parse_maximum(text: &str) -> Result<usize, MaximumError> {
    text.parse().ok().filter(|maximum| *maximum > 0).ok_or(MaximumError)
}

/// Text that browsers never send as an origin.
#[derive(Clone, Copy, Debug, thiserror::Error)]
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
