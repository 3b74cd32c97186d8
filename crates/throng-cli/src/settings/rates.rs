//! Settings of the limits of accounts and client networks, and of the proxies that name the clients.

use clap::{Args, ValueEnum};
use social::Rates;
use std::time::Duration;
use throng_server::{ForwardedHeader, Network, Rate, TrustedProxies};

use super::parse_maximum;
use crate::duration;

/// Limits of accounts and client networks. A network is an IPv4 address, or the 64 bits of an IPv6 network.
#[derive(Debug, Args)]
#[command(next_help_heading = "Limits of clients")]
pub(crate) struct ClientLimits {
    /// Requests of an account that change nothing, and all requests of a client network without a valid token:
    /// so many at once, and so many in each period; or `off`
    #[arg(long, value_name = "RATE", env = "THRONG_RATE_READS", default_value = "6000/m")]
    #[arg(value_parser = parse_rate)]
    rate_reads: Rate,

    /// Requests of an account that may change something, and its messages and typing in rooms
    #[arg(long, value_name = "RATE", env = "THRONG_RATE_WRITES", default_value = "600/m")]
    #[arg(value_parser = parse_rate)]
    rate_writes: Rate,

    /// Registrations of a client network
    #[arg(long, value_name = "RATE", env = "THRONG_RATE_REGISTRATIONS", default_value = "100/h")]
    #[arg(value_parser = parse_rate)]
    rate_registrations: Rate,

    /// Wrong passwords of a client network; beyond it, right ones are refused as well
    #[arg(long, value_name = "RATE", env = "THRONG_RATE_LOGINS", default_value = "100/h")]
    #[arg(value_parser = parse_rate)]
    rate_logins: Rate,

    /// Invalid tokens of a client network; valid ones are admitted beyond it
    #[arg(long, value_name = "RATE", env = "THRONG_RATE_TOKENS", default_value = "60/m")]
    #[arg(value_parser = parse_rate)]
    rate_tokens: Rate,

    /// Maximum number of connections of a client network; connections of trusted proxies do not count
    #[arg(long, value_name = "NUMBER", env = "THRONG_CONNECTIONS_PER_NETWORK_MAX")]
    #[arg(default_value_t = 1_000, value_parser = parse_maximum)]
    connections_per_network_max: usize,

    /// Maximum number of sockets of an account
    #[arg(long, value_name = "NUMBER", env = "THRONG_SOCKETS_PER_ACCOUNT_MAX")]
    #[arg(default_value_t = 100)]
    sockets_per_account_max: usize,

    /// Switch all limits of this group off, for benchmarks and tests
    #[arg(long, env = "THRONG_UNLIMITED")]
    unlimited: bool,
}

/// Settings of reverse proxies before the node.
#[derive(Debug, Args)]
#[command(next_help_heading = "Network")]
pub(crate) struct Proxies {
    /// Networks of reverse proxies, such as `10.0.0.0/8` or `127.0.0.1`, separated by commas. The client of their
    /// requests is the last address in --forwarded-header that is not in these networks. From other clients the
    /// header is ignored
    #[arg(long, value_name = "NETWORKS", env = "THRONG_TRUSTED_PROXIES", value_delimiter = ',')]
    trusted_proxies: Vec<Network>,

    /// Header in which the trusted proxies name their client; they must not pass on one of a client as it came
    #[arg(long, value_name = "HEADER", env = "THRONG_FORWARDED_HEADER", value_enum)]
    #[arg(default_value_t = HeaderName::XForwardedFor)]
    forwarded_header: HeaderName,
}

/// Header in which a proxy names its client.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum HeaderName {
    XForwardedFor,
    Forwarded,
}

impl ClientLimits {
    /// Returns the rates and caps of the service.
    pub(crate) fn rates(&self) -> Rates {
        if self.unlimited {
            return Rates::default();
        }
        Rates {
            reads: self.rate_reads,
            writes: self.rate_writes,
            registrations: self.rate_registrations,
            logins: self.rate_logins,
            tokens: self.rate_tokens,
            sockets_per_account_max: self.sockets_per_account_max,
        }
    }

    /// Returns the maximum number of connections of a client network.
    pub(crate) fn connections_per_network_max(&self) -> usize {
        if self.unlimited { usize::MAX } else { self.connections_per_network_max }
    }
}

impl Proxies {
    /// Returns the proxies that the server trusts.
    pub(crate) fn trusted(&self) -> TrustedProxies {
        let header = match self.forwarded_header {
            HeaderName::XForwardedFor => ForwardedHeader::XForwardedFor,
            HeaderName::Forwarded => ForwardedHeader::Forwarded,
        };
        TrustedProxies { networks: self.trusted_proxies.clone(), header }
    }
}

/// The text is not a rate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "a rate is a number of requests and a period of at most a year, such as 10/s, 600/m or 20/30s; or off"
)]
struct RateError;

/// Parses a rate: `10/s`, `20/30s`, `off`.
fn parse_rate(text: &str) -> Result<Rate, RateError> {
    if text == "off" {
        return Ok(Rate::UNLIMITED);
    }
    let (requests, period) = text.split_once('/').ok_or(RateError)?;
    let is_number = !requests.is_empty() && requests.bytes().all(|byte| byte.is_ascii_digit());
    let requests = requests.parse().ok().filter(|_| is_number).ok_or(RateError)?;
    // A unit alone is one of it.
    let one = if period.starts_with(|c: char| c.is_ascii_digit()) { "" } else { "1" };
    let period: Duration = duration::parse(&format!("{one}{period}")).map_err(|_| RateError)?;
    Rate::new(requests, period).ok_or(RateError)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_is_a_number_and_a_period_or_off() {
        for (text, requests, seconds) in
            [("10/s", 10, 1), ("600/m", 600, 60), ("20/30s", 20, 30), ("1/d", 1, 86_400)]
        {
            let rate = Rate::new(requests, Duration::from_secs(seconds)).unwrap();
            assert_eq!(parse_rate(text), Ok(rate), "{text}");
        }
        assert_eq!(parse_rate("off"), Ok(Rate::UNLIMITED));
        for text in [
            "", "10", "/s", "0/s", "10/", "10/0s", "+1/s", "1.5/s", "10/y", "1/366d", "OFF", "1 /s",
        ] {
            assert_eq!(parse_rate(text), Err(RateError), "{text}");
        }
    }
}
