//! [`Nats`]: a connection to the servers, which makes and opens logs.
//!
//! ```text
//! connect ─▶ version ─▶ JetStream is on ─▶ all servers flush (with the system account)
//! create ──▶ stream is there? ─no─▶ make it ─▶ settings fit? ─▶ NatsLog
//! ```
//!
//! While the servers elect a leader they do not answer, or answer that something is missing. So each step is tried
//! again, at growing distances, until [`Options::patience`] is over; the last reason is the error.

use std::sync::Arc;
use std::time::Duration;

use async_nats::jetstream::context::{AccountErrorKind, CreateStreamErrorKind, GetStreamErrorKind};
use async_nats::jetstream::stream::{Config, Info};
use async_nats::jetstream::{Context, ContextBuilder, ErrorCode};
use tokio::time::Instant;

use crate::error::NatsError;
use crate::log::NatsLog;
use crate::options::Options;
use crate::{settings, system, version};

/// Time for the answer to a request about a stream. Without a leader no answer comes.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(3);

/// Number of acknowledgements that the client can wait for; above the windows of all shards.
const ACKS: usize = 65_536;

/// A connection to NATS. Clones share it.
#[derive(Clone, Debug)]
pub struct Nats {
    context: Context,
    options: Arc<Options>,
}

/// Reason for which a step has failed.
#[derive(Debug)]
pub(crate) enum Failure {
    /// The step may succeed later.
    Passing(NatsError),
    /// The step cannot succeed before somebody acts.
    Lasting(NatsError),
}

impl Nats {
    /// Connects to the servers, and checks that they keep what they acknowledge; see [`Options::system`].
    ///
    /// Afterwards the connection is restored whenever it is lost. Call it within a runtime of tokio, which carries out
    /// the appends of all logs.
    ///
    /// # Errors
    ///
    /// After [`Options::patience`] if the servers do not answer, and at once if they cannot be used.
    pub async fn connect(options: Options) -> Result<Nats, NatsError> {
        let patience = options.patience;
        let client = patiently(patience, || options.connect(&options.credentials)).await?;
        let context =
            ContextBuilder::new().timeout(REQUEST_TIMEOUT).max_ack_inflight(ACKS).build(client);
        let nats = Nats { context, options: Arc::new(options) };
        nats.check_server()?;
        patiently(patience, || nats.check_account()).await?;
        if let Some(credentials) = &nats.options.system {
            let client = patiently(patience, || nats.options.connect(credentials)).await?;
            let replicas = nats.options.replicas;
            patiently(patience, || system::check(&client, replicas)).await?;
            // The check is done, so a connection that cannot be closed in order may break.
            let _ = client.drain().await;
        }
        Ok(nats)
    }

    /// Opens a log, after it has made it if it does not exist. Nodes may do so at the same time.
    ///
    /// A log that has existed is not to be made again, because its records are missing then: [`open`](Nats::open) it.
    /// The name has letters, digits, `-` and `_`.
    ///
    /// # Errors
    ///
    /// After [`Options::patience`] if the servers do not answer, and at once if the log cannot be used.
    pub async fn create(&self, name: &str) -> Result<NatsLog, NatsError> {
        self.find(name, true).await
    }

    /// Opens a log that exists.
    ///
    /// # Errors
    ///
    /// After [`Options::patience`] if the servers do not answer, and at once if the log cannot be used or is missing.
    pub async fn open(&self, name: &str) -> Result<NatsLog, NatsError> {
        self.find(name, false).await
    }

    async fn find(&self, name: &str, may_create: bool) -> Result<NatsLog, NatsError> {
        let is_fit = |c: char| c.is_ascii_alphanumeric() || "-_".contains(c);
        if name.is_empty() || !name.chars().all(is_fit) {
            let reason = format!("{name:?} has other characters than letters, digits, - and _");
            return Err(NatsError::Option { option: "name", reason });
        }
        // The client may have moved to another server since it connected.
        self.check_server()?;
        let needed = settings::needed(name, self.options.replicas);
        let patience = self.options.patience;
        let info = patiently(patience, || self.step(&needed, may_create)).await?;
        settings::check(&info.config, &needed)?;
        Ok(NatsLog::new(self.context.clone(), self.options.ack_timeout, name, info.created))
    }

    fn check_server(&self) -> Result<(), NatsError> {
        let server = self.context.client().server_info();
        version::check(&server.server_name, &server.version)
    }

    async fn check_account(&self) -> Result<(), Failure> {
        let Err(error) = self.context.query_account().await else { return Ok(()) };
        let reason = error.to_string();
        Err(match error.kind() {
            AccountErrorKind::JetStream(error) if is_off(error.error_code()) => {
                Failure::Lasting(NatsError::NoJetStream(reason))
            }
            AccountErrorKind::JetStreamUnavailable
                if !self.context.client().server_info().jetstream =>
            {
                Failure::Lasting(NatsError::NoJetStream(reason))
            }
            AccountErrorKind::JetStreamUnavailable => {
                Failure::Passing(NatsError::NoJetStream(reason))
            }
            _ => Failure::Passing(NatsError::Unavailable(reason)),
        })
    }

    /// Looks for a stream, and makes it if it is not there and may be made.
    async fn step(&self, needed: &Config, may_create: bool) -> Result<Info, Failure> {
        let stream = needed.name.clone();
        match self.context.get_stream(&stream).await {
            Ok(found) => return Ok(found.cached_info().clone()),
            Err(error) => match error.kind() {
                GetStreamErrorKind::JetStream(answer)
                    if answer.error_code() == ErrorCode::STREAM_NOT_FOUND =>
                {
                    if !may_create {
                        return Err(Failure::Lasting(NatsError::NoLog(stream)));
                    }
                }
                _ => return Err(Failure::Passing(NatsError::Unavailable(error.to_string()))),
            },
        }
        let error = match self.context.create_stream(needed).await {
            Ok(made) => return Ok(made.cached_info().clone()),
            Err(error) => error,
        };
        let reason = error.to_string();
        let CreateStreamErrorKind::JetStream(answer) = error.kind() else {
            return Err(Failure::Passing(NatsError::Unavailable(reason)));
        };
        let refused = NatsError::Refused { stream, reason: reason.clone() };
        Err(match answer.error_code() {
            code if is_off(code) => Failure::Lasting(NatsError::NoJetStream(reason)),
            ErrorCode::STREAM_REPLICAS_NOT_SUPPORTED
            | ErrorCode::STREAM_SUBJECT_OVERLAP
            | ErrorCode::STREAM_INVALID_CONFIG => Failure::Lasting(refused),
            // Among the others are another node's stream, made in between, and servers that have yet to join.
            _ => Failure::Passing(refused),
        })
    }
}

fn is_off(code: ErrorCode) -> bool {
    [ErrorCode::JETSTREAM_NOT_ENABLED, ErrorCode::JETSTREAM_NOT_ENABLED_FOR_ACCOUNT].contains(&code)
}

/// Tries a step until it succeeds, cannot succeed, or has been tried for some time.
async fn patiently<T, S>(patience: Duration, mut step: impl FnMut() -> S) -> Result<T, NatsError>
where
    S: Future<Output = Result<T, Failure>>,
{
    let end = Instant::now() + patience;
    let mut pause = Duration::from_millis(50);
    loop {
        let error = match step().await {
            Ok(value) => return Ok(value),
            Err(Failure::Lasting(error)) => return Err(error),
            Err(Failure::Passing(error)) => error,
        };
        if Instant::now() + pause >= end {
            return Err(error);
        }
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(Duration::from_secs(1));
    }
}
