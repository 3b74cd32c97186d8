//! [`NatsError`]: errors of connecting, and of making and opening logs, one variant per reaction of the operator.

/// Error of connecting to NATS, or of making or opening a log.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum NatsError {
    /// The servers did not answer in time: see whether most of them run and reach each other, and try again.
    #[error("the NATS servers cannot be reached: {0}")]
    Unavailable(String),
    /// An option cannot be used: mend it.
    #[error("the option {option} cannot be used: {reason}")]
    Option {
        /// Name of the field of [`Options`](crate::Options), or of the argument.
        option: &'static str,
        /// Reason against its value.
        reason: String,
    },
    /// Server and program do not accept each other: mend the credentials, the certificates, or the permissions.
    #[error("access to the NATS servers was denied: {0}")]
    Denied(String),
    /// A server is too old: upgrade it.
    #[error(
        "the NATS server {server} has version {found}, and version {needed} is the oldest that is \
         supported; upgrade it"
    )]
    Version {
        /// Name of the server.
        server: String,
        /// Version of the server.
        found: String,
        /// Oldest version that is supported.
        needed: &'static str,
    },
    /// JetStream is off: turn it on in the configuration of the servers and of the account.
    #[error("JetStream is not enabled: {0}")]
    NoJetStream(String),
    /// A server acknowledges what a power cut may take: set `sync_interval: always` there, and reload.
    #[error(
        "the NATS server {server} acknowledges records before they are on its disk; set \
         `sync_interval: always` in its section `jetstream`"
    )]
    Unsynced {
        /// Name of the server.
        server: String,
    },
    /// The stream of the log has another setting than the log needs.
    #[error(
        "the stream {stream} has {setting} = {found}, and a log needs {needed}; change it with \
         `nats stream edit {stream}`, or, if NATS refuses that, choose another log"
    )]
    Setting {
        /// Name of the stream.
        stream: String,
        /// Name of the setting, as NATS has it.
        setting: String,
        /// Value of the setting.
        found: String,
        /// Value that the log needs.
        needed: String,
    },
    /// The log does not exist: create it, if it has never existed.
    #[error("the log {0} does not exist")]
    NoLog(String),
    /// The servers refuse to make the stream: give the reason room, such as more servers or more storage.
    #[error("the NATS servers refuse to make the stream {stream}: {reason}")]
    Refused {
        /// Name of the stream.
        stream: String,
        /// Answer of the servers.
        reason: String,
    },
}
