//! Settings of the message service, beside those of its node; each is defined once: name, environment variable, default,
//! limits and help.
//!
//! `config` reads the value of a setting from a file under the name of its flag, and needs no change for another setting.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use social::Rates;
use throng_node::Options;
use throng_node::args::parse_positive;
use throng_node::http::Rate;

/// Settings of the data on disk.
#[derive(Debug, Args)]
#[command(next_help_heading = "Storage")]
pub(crate) struct Storage {
    /// Directory for all data; created if it does not exist
    #[arg(long, value_name = "DIRECTORY", env = "THRONG_DATA", default_value = "./throng-data")]
    pub(crate) data: PathBuf,

    /// Keep the log, for `throng store restore`; its files in `log/kept` are yours to remove
    #[arg(long, env = "THRONG_KEEP_LOG")]
    pub(crate) keep_log: bool,
}

/// Logins, and limits of accounts and client networks. A network is an IPv4 address, or the 64 bits of an IPv6 network.
#[derive(Debug, Args)]
#[command(next_help_heading = "Limits of clients")]
pub(crate) struct Accounts {
    /// Time for which a login is valid
    #[arg(long, value_name = "DURATION", env = "THRONG_TOKEN_TTL", default_value = "30d")]
    #[arg(value_parser = parse_positive, help_heading = "Logins")]
    pub(crate) token_ttl: Duration,

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

    /// Maximum number of sockets of an account
    #[arg(long, value_name = "NUMBER", env = "THRONG_SOCKETS_PER_ACCOUNT_MAX")]
    #[arg(default_value_t = 100)]
    sockets_per_account_max: usize,

    /// Switch all limits of clients off, for benchmarks and tests
    #[arg(long, env = "THRONG_UNLIMITED")]
    unlimited: bool,
}

impl Accounts {
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

    /// Returns the options of a node, without the limit of a client network if there are no limits.
    pub(crate) fn bound(&self, mut options: Options) -> Options {
        if self.unlimited {
            options.limits.connections_per_network_max = usize::MAX;
        }
        options
    }
}

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
    let period = humantime::parse_duration(&format!("{one}{period}")).map_err(|_| RateError)?;
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
