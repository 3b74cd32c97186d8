//! [`Options`]: the servers, the rights, and the times of a connection.
//!
//! A connection is kept for ever: the client tries the servers again every 50 ms, and notices within seconds that one
//! of them is silent.

use std::error::Error;
use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use async_nats::{Client, ConnectError, ConnectErrorKind, ConnectOptions, ServerAddr};

use crate::error::NatsError;
use crate::nats::Failure;

const RECONNECT_DELAY: Duration = Duration::from_millis(50);

/// Interval of pings; the client leaves a server that owes it the third. The default of a minute would leave a node
/// with a server that has stopped.
const PING_INTERVAL: Duration = Duration::from_secs(2);

/// Number of commands that wait for the connection: the windows of all shards fit.
const COMMANDS: usize = 8192;

/// Options of a connection.
///
/// ```
/// use throng_nats::{Credentials, Options};
/// let mut options = Options::new(["nats://a.example:4222", "nats://b.example:4222"]);
/// options.credentials = Credentials::File("throng.creds".into());
/// ```
#[derive(Clone, Debug)]
pub struct Options {
    /// Addresses of servers, such as `nats://host:4222` or `tls://host:4222`; the client learns the others from them.
    pub servers: Vec<String>,
    /// Proof of the account of throng. Nobody else may publish in this account.
    pub credentials: Credentials,
    /// Credentials of the system account. With them, [`Nats::connect`](crate::Nats::connect) asks all servers for
    /// their versions and whether they flush before they acknowledge, and refuses those that do not.
    ///
    /// Without them it knows only the version of the server that it is connected to: no request of another account
    /// tells the setting `sync_interval`, so the operator has to see to `sync_interval: always` on each server. With
    /// the default of two minutes, a power cut of two servers takes acknowledged records. A server that is started
    /// later is not asked.
    pub system: Option<Credentials>,
    /// File of certificates, in PEM, of the authorities that are trusted; without it those of the system are. With it
    /// the connection is by TLS, whatever the addresses say.
    pub authorities: Option<PathBuf>,
    /// Certificate of the client.
    pub certificate: Option<Certificate>,
    /// Number of servers that keep a copy of each log; 3 by default. 1 suits a single server for development.
    pub replicas: usize,
    /// Time after the call of an append at which its outcome is unknown; a second by default.
    ///
    /// An append on a healthy cluster takes some 10 ms, 100 ms on a busy one. After an unknown outcome the owner
    /// claims its log again, and turns in flight may fail, so the time is many times that. It is also what a planned
    /// stop of the leader costs; the election after a crash takes four seconds and more, whatever the time.
    pub ack_timeout: Duration,
    /// Time for which connecting, and making and opening a log, is tried; 30 seconds by default. The election of a
    /// leader of all servers takes up to ten.
    pub patience: Duration,
}

impl Options {
    /// Returns the options for some servers, without credentials.
    pub fn new<A: Into<String>>(servers: impl IntoIterator<Item = A>) -> Options {
        Options {
            servers: servers.into_iter().map(Into::into).collect(),
            credentials: Credentials::None,
            system: None,
            authorities: None,
            certificate: None,
            replicas: 3,
            ack_timeout: Duration::from_secs(1),
            patience: Duration::from_secs(30),
        }
    }

    /// Connects once, with the rights of some credentials.
    pub(crate) async fn connect(&self, credentials: &Credentials) -> Result<Client, Failure> {
        let unusable = |option, reason| Failure::Lasting(NatsError::Option { option, reason });
        let servers = self.servers.iter().map(|server| server.parse::<ServerAddr>());
        let servers: Vec<_> =
            servers.collect::<Result<_, _>>().map_err(|e| unusable("servers", e.to_string()))?;
        if servers.is_empty() {
            return Err(unusable("servers", "it names none".into()));
        }
        let mut options = ConnectOptions::new()
            .name("throng")
            .max_reconnects(None)
            .reconnect_delay_callback(|_| RECONNECT_DELAY)
            .ping_interval(PING_INTERVAL)
            .client_capacity(COMMANDS);
        options = match credentials.clone() {
            Credentials::None => options,
            Credentials::Password { user, password } => options.user_and_password(user, password),
            Credentials::Token(token) => options.token(token),
            Credentials::File(path) => {
                let options = options.credentials_file(&path).await;
                options.map_err(|e| unusable("credentials", format!("{}: {e}", path.display())))?
            }
        };
        if let Some(path) = &self.authorities {
            options = options.add_root_certificates(path.clone()).require_tls(true);
        }
        if let Some(Certificate { chain, key }) = &self.certificate {
            options = options.add_client_certificate(chain.clone(), key.clone());
        }
        options.connect(servers).await.map_err(|error| {
            let reason = error.to_string();
            match error.kind() {
                ConnectErrorKind::ServerParse => {
                    Failure::Lasting(NatsError::Option { option: "servers", reason })
                }
                ConnectErrorKind::Authentication
                | ConnectErrorKind::AuthorizationViolation
                | ConnectErrorKind::Tls => Failure::Lasting(NatsError::Denied(reason)),
                _ if is_about_certificates(&error) => Failure::Lasting(NatsError::Denied(reason)),
                _ => Failure::Passing(NatsError::Unavailable(reason)),
            }
        })
    }
}

/// Whether TLS refused to connect: the client reports that as an error of the socket.
fn is_about_certificates(error: &ConnectError) -> bool {
    let error = error.source().and_then(|source| source.downcast_ref::<std::io::Error>());
    let cause = error.and_then(std::io::Error::get_ref);
    cause.is_some_and(|cause| cause.is::<async_nats::rustls::Error>())
}

/// Proof of the rights of a client.
#[derive(Clone)]
pub enum Credentials {
    /// No proof, or one in the addresses of the servers, which events and errors may tell.
    None,
    /// A user of the servers' configuration.
    Password {
        /// Name of the user.
        user: String,
        /// Password of the user.
        password: String,
    },
    /// A token of the servers' configuration.
    Token(String),
    /// A file with a JWT and a key, as `nsc` makes it.
    File(PathBuf),
}

impl fmt::Debug for Credentials {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Options end up in logs.
        match self {
            Credentials::None => write!(formatter, "None"),
            Credentials::Password { user, .. } => write!(formatter, "Password({user:?}, …)"),
            Credentials::Token(_) => write!(formatter, "Token(…)"),
            Credentials::File(path) => write!(formatter, "File({path:?})"),
        }
    }
}

/// Certificate of a client, for servers that demand one.
#[derive(Clone, Debug)]
pub struct Certificate {
    /// File of the certificate and those up to an authority, in PEM.
    pub chain: PathBuf,
    /// File of its private key, in PEM.
    pub key: PathBuf,
}
