//! TLS from files: a certificate chain and its private key, and the streams of connections.
//!
//! ```text
//! TCP ──► first byte ──no record of a handshake──► 400 in plain text, closed
//!             └──► handshake ──within the header timeout──► Stream::Tls ──► HTTP/1
//!                      ▲ certificate of this moment
//! Tls::load, Tls::reload ── files
//! ```
//!
//! Invariants: a connection has a place among `connections_max` before its first byte is read. Files that cannot be
//! used change nothing: [`Tls::reload`] keeps the certificate that it had. A private key that every user of the
//! machine can access is refused. rustls speaks TLS 1.2 and 1.3 only.

use std::fmt;
use std::fs::File;
use std::io::{self, IoSlice, Read};
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::{Arc, PoisonError, RwLock};
use std::task::{Context, Poll};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use axum::http::uri::Authority;
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::{self, PemObject};
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::{self, ServerConfig};
use tokio_rustls::server::TlsStream;

use crate::http::Problem;
use crate::http::connection::close_with;

mod validity;

use validity::Validity;

/// Certificate of a [`Server`](crate::http::Server) and its private key, which may be read from their files again while the
/// server runs. Clones share the certificate.
#[derive(Clone)]
pub struct Tls(Arc<TlsInner>);

struct TlsInner {
    certificate: PathBuf,
    key: PathBuf,
    config: RwLock<Arc<ServerConfig>>,
}

/// Error in loading a certificate or its private key.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TlsError {
    /// A file cannot be read.
    #[error("cannot read {path}")]
    File {
        /// Path of the file.
        path: PathBuf,
        /// Error of the operating system.
        source: io::Error,
    },
    /// A file lacks its content: a certificate chain, or a private key.
    #[error("{path} has no {wanted} in PEM")]
    Missing {
        /// Path of the file.
        path: PathBuf,
        /// Content that the file should have.
        wanted: &'static str,
    },
    /// A file has the right content in PEM, but the content is damaged or of an unknown kind.
    #[error("{path} cannot be used: {reason}")]
    Damaged {
        /// Path of the file.
        path: PathBuf,
        /// Reason for refusing the content.
        reason: String,
    },
    /// Every user of the machine can access the private key.
    #[error(
        "every user of this machine can access the private key {path}; set its mode to 600 or 640"
    )]
    Exposed {
        /// Path of the key's file.
        path: PathBuf,
    },
    /// The private key belongs to another certificate.
    #[error("the private key {key} does not belong to the first certificate in {certificate}")]
    Unmatched {
        /// Path of the certificate's file.
        certificate: PathBuf,
        /// Path of the key's file.
        key: PathBuf,
    },
    /// The certificate has expired, or is not valid yet.
    #[error("the first certificate in {path} {reason}")]
    OutOfDate {
        /// Path of the certificate's file.
        path: PathBuf,
        /// Text such as "expired 2 days ago".
        reason: String,
    },
}

impl Tls {
    /// Loads a chain of certificates, the server's first, and the private key of the first, from files in PEM. The key
    /// is in PKCS #8, PKCS #1 (RSA) or SEC 1 (EC), and not encrypted.
    ///
    /// A certificate that is out of date is loaded, and logged as an error. Clients refuse such a certificate, but they
    /// would not reach a node that does not start either.
    ///
    /// # Errors
    /// A file cannot be used.
    pub fn load(certificate: &Path, key: &Path) -> Result<Tls, TlsError> {
        let (config, validity) = read(certificate, key)?;
        if let Some(error) = out_of_date(certificate, validity) {
            tracing::error!(%error, "clients will refuse the certificate");
        }
        let (certificate, key) = (certificate.to_owned(), key.to_owned());
        Ok(Tls(Arc::new(TlsInner { certificate, key, config: RwLock::new(config) })))
    }

    /// Reads the files again. Later handshakes use the new certificate; open connections keep theirs. Blocks the thread
    /// while it reads.
    ///
    /// # Errors
    /// A file cannot be used, or the certificate is out of date. The previous certificate stays in use.
    pub fn reload(&self) -> Result<(), TlsError> {
        let TlsInner { certificate, key, config } = &*self.0;
        let (loaded, validity) = read(certificate, key)?;
        if let Some(error) = out_of_date(certificate, validity) {
            return Err(error);
        }
        *config.write().unwrap_or_else(PoisonError::into_inner) = loaded;
        Ok(())
    }

    fn acceptor(&self) -> TlsAcceptor {
        // The configuration is replaced in a single step, so it is valid even if the lock is poisoned.
        self.0.config.read().unwrap_or_else(PoisonError::into_inner).clone().into()
    }
}

impl fmt::Debug for Tls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tls")
            .field("certificate", &self.0.certificate)
            .field("key", &self.0.key)
            .finish_non_exhaustive()
    }
}

/// Reads both files.
fn read(certificate: &Path, key: &Path) -> Result<(Arc<ServerConfig>, Option<Validity>), TlsError> {
    let chain = read_chain(certificate)?;
    let validity = chain.first().and_then(|first| Validity::of(first));
    let private = read_key(key)?;
    let config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_protocol_versions(rustls::DEFAULT_VERSIONS)
        .and_then(|builder| builder.with_no_client_auth().with_single_cert(chain, private));
    let mut config = config.map_err(|error| match error {
        rustls::Error::InconsistentKeys(_) => {
            TlsError::Unmatched { certificate: certificate.to_owned(), key: key.to_owned() }
        }
        rustls::Error::InvalidCertificate(_) => damaged(certificate, &error),
        error => damaged(key, &error),
    })?;
    // The server speaks nothing else, and a client without it gets an alert.
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok((Arc::new(config), validity))
}

fn damaged(path: &Path, reason: &dyn fmt::Display) -> TlsError {
    TlsError::Damaged { path: path.to_owned(), reason: reason.to_string() }
}

fn read_chain(path: &Path) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let failed = |source| TlsError::File { path: path.to_owned(), source };
    let text = std::fs::read(path).map_err(failed)?;
    let chain: Result<Vec<_>, pem::Error> = CertificateDer::pem_slice_iter(&text).collect();
    let chain = chain.map_err(|error| damaged(path, &error))?;
    if chain.is_empty() {
        return Err(TlsError::Missing { path: path.to_owned(), wanted: "certificate" });
    }
    Ok(chain)
}

fn read_key(path: &Path) -> Result<PrivateKeyDer<'static>, TlsError> {
    let failed = |source| TlsError::File { path: path.to_owned(), source };
    let mut file = File::open(path).map_err(failed)?;
    // A group may have access, because a program that renews certificates often has another user.
    if file.metadata().map_err(failed)?.permissions().mode() & 0o007 != 0 {
        return Err(TlsError::Exposed { path: path.to_owned() });
    }
    let mut text = Vec::new();
    file.read_to_end(&mut text).map_err(failed)?;
    PrivateKeyDer::from_pem_slice(&text).map_err(|error| match error {
        pem::Error::NoItemsFound => TlsError::Missing {
            path: path.to_owned(),
            wanted: "private key (without a passphrase)",
        },
        error => damaged(path, &error),
    })
}

/// Returns the error of a certificate that is out of date.
fn out_of_date(path: &Path, validity: Option<Validity>) -> Option<TlsError> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).ok()?.as_secs();
    let reason = validity?.problem_at(now.try_into().ok()?)?;
    Some(TlsError::OutOfDate { path: path.to_owned(), reason })
}

/// Listener for connections, which are secured if there is a certificate.
#[derive(Debug)]
pub(crate) struct Listener {
    tcp: TcpListener,
    tls: Option<Tls>,
}

/// Connection that was accepted, of which no byte has been read.
#[derive(Debug)]
pub(crate) struct Arrival {
    stream: TcpStream,
    tls: Option<Tls>,
}

impl Listener {
    pub(crate) fn new(tcp: TcpListener) -> Listener {
        Listener { tcp, tls: None }
    }

    pub(crate) fn secure(&mut self, tls: Tls) {
        self.tls = Some(tls);
    }

    /// Accepts a connection. May be cancelled without losing one.
    pub(crate) async fn accept(&self) -> io::Result<(Arrival, SocketAddr)> {
        let (stream, peer) = self.tcp.accept().await?;
        Ok((Arrival { stream, tls: self.tls.clone() }, peer))
    }
}

impl Arrival {
    /// Does the handshake, if the server has a certificate. Returns `None` if the handshake failed, took longer than
    /// `time`, or was under way when `drain` became true; the connection is closed then.
    pub(crate) async fn secure(
        self,
        time: Duration,
        mut drain: watch::Receiver<bool>,
    ) -> Option<Stream> {
        let Arrival { stream, tls } = self;
        // Small answers must not wait for the client's acknowledgement of earlier answers.
        let _ = stream.set_nodelay(true);
        let Some(tls) = tls else { return Some(Stream::Plain(stream)) };
        // Boxed, because a socket would keep the memory of the handshake.
        let handshake = Box::pin(timeout(time, shake_hands(stream, tls.acceptor())));
        let outcome = tokio::select! {
            outcome = handshake => outcome,
            // A dropped sender counts as a drain, too.
            _ = drain.wait_for(|drain| *drain) => return None,
        };
        match outcome {
            Ok(Ok(secured)) => secured,
            Ok(Err(error)) => {
                tracing::debug!(%error, "TLS handshake failed");
                None
            }
            Err(_) => {
                tracing::debug!("TLS handshake timed out");
                None
            }
        }
    }
}

async fn shake_hands(stream: TcpStream, acceptor: TlsAcceptor) -> io::Result<Option<Stream>> {
    let mut first = [0];
    if stream.peek(&mut first).await? == 0 {
        return Ok(None);
    }
    if first[0] != HANDSHAKE_RECORD {
        close_with(Stream::Plain(stream), Some(tls_required())).await;
        return Ok(None);
    }
    let secured = acceptor.accept(stream).await?;
    Ok(Some(Stream::Tls(Box::new(secured))))
}

fn tls_required() -> Problem {
    let detail = "this port speaks TLS; use https:// or wss://";
    Problem::new(StatusCode::BAD_REQUEST, "tls-required", detail)
}

/// Stream of a connection.
#[derive(Debug)]
pub(crate) enum Stream {
    Plain(TcpStream),
    /// Boxed, because its state is many times as large.
    Tls(Box<TlsStream<TcpStream>>),
}

/// Extension of requests that came over TLS.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Secure;

impl Stream {
    pub(crate) fn is_secure(&self) -> bool {
        matches!(self, Stream::Tls(_))
    }
}

/// Returns the header that makes browsers use only TLS for the host of a request, which came over TLS. The host
/// `localhost` gets no header, because other programs may serve it on other ports without TLS.
pub(crate) fn strict_transport(request: &HeaderMap) -> Option<HeaderValue> {
    let host = Authority::try_from(request.get(header::HOST)?.as_bytes()).ok()?;
    let is_local = host.host().eq_ignore_ascii_case("localhost");
    // Thirty days: when a node stops using TLS, its visitors can reach it again after that time.
    (!is_local).then(|| HeaderValue::from_static("max-age=2592000"))
}

impl AsyncRead for Stream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match &mut *self {
            Stream::Plain(stream) => Pin::new(stream).poll_read(cx, buffer),
            Stream::Tls(stream) => Pin::new(stream).poll_read(cx, buffer),
        }
    }
}

impl AsyncWrite for Stream {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        match &mut *self {
            Stream::Plain(stream) => Pin::new(stream).poll_write(cx, bytes),
            Stream::Tls(stream) => Pin::new(stream).poll_write(cx, bytes),
        }
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffers: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        match &mut *self {
            Stream::Plain(stream) => Pin::new(stream).poll_write_vectored(cx, buffers),
            Stream::Tls(stream) => Pin::new(stream).poll_write_vectored(cx, buffers),
        }
    }

    fn is_write_vectored(&self) -> bool {
        match self {
            Stream::Plain(stream) => stream.is_write_vectored(),
            Stream::Tls(stream) => stream.is_write_vectored(),
        }
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut *self {
            Stream::Plain(stream) => Pin::new(stream).poll_flush(cx),
            Stream::Tls(stream) => Pin::new(stream).poll_flush(cx),
        }
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut *self {
            Stream::Plain(stream) => Pin::new(stream).poll_shutdown(cx),
            Stream::Tls(stream) => Pin::new(stream).poll_shutdown(cx),
        }
    }
}

/// First byte of a TLS record that belongs to a handshake.
const HANDSHAKE_RECORD: u8 = 22;

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use axum::Router;
    use axum::response::Response;
    use axum::routing::get;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpSocket;
    use tokio_rustls::TlsConnector;
    use tokio_rustls::client;
    use tokio_rustls::rustls::{ClientConfig, RootCertStore};

    use super::*;
    use crate::http::{
        Answers, ClientAddress, Limits, SocketLimits, SocketUpgrade, Sockets, connection,
    };

    const HOUR: Duration = Duration::from_secs(3600);

    /// Bytes that the buffer of TLS holds, but not the buffers of the system in these tests.
    const BYTES: usize = 50_000;

    /// Serves a connection whose buffers in the system are small, and sends `request` as its client. The connection is
    /// over when the task ends.
    async fn serve(
        limits: Limits,
        request: &str,
    ) -> (client::TlsStream<TcpStream>, tokio::task::JoinHandle<()>) {
        let files = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/tls");
        let directory = tempfile::tempdir().unwrap();
        let key = directory.path().join("key");
        std::fs::copy(files.join("ec.key"), &key).unwrap();
        std::fs::set_permissions(&key, std::fs::Permissions::from_mode(0o600)).unwrap();

        let socket = TcpSocket::new_v4().unwrap();
        socket.set_send_buffer_size(4096).unwrap();
        socket.bind((Ipv4Addr::LOCALHOST, 0).into()).unwrap();
        let mut listener = Listener::new(socket.listen(1).unwrap());
        listener.secure(Tls::load(&files.join("ec.pem"), &key).unwrap());
        let socket = TcpSocket::new_v4().unwrap();
        socket.set_recv_buffer_size(4096).unwrap();
        let stream = socket.connect(listener.tcp.local_addr().unwrap()).await.unwrap();
        let (arrival, peer) = listener.accept().await.unwrap();
        let (drain, drained) = watch::channel(false);
        let client = ClientAddress(peer.ip());
        let task = tokio::spawn(async move {
            let (limits, answers) = (Arc::new(limits), Answers::default());
            connection::serve(arrival, client, router(), limits, answers, drained).await;
            drop(drain);
        });

        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from_pem_file(files.join("root.pem")).unwrap()).unwrap();
        let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .unwrap();
        let config = Arc::new(config.with_root_certificates(roots).with_no_client_auth());
        let name = "localhost".try_into().unwrap();
        let mut stream = TlsConnector::from(config).connect(name, stream).await.unwrap();
        stream.write_all(request.as_bytes()).await.unwrap();
        stream.flush().await.unwrap();
        (stream, task)
    }

    fn router() -> Router {
        let limits = SocketLimits { ping_interval: HOUR, idle_timeout: HOUR, ..Default::default() };
        Router::new()
            .route("/", get(async || "x".repeat(BYTES)))
            .route("/socket", get(say))
            .with_state(Sockets::new(limits, None::<String>))
    }

    async fn say(upgrade: SocketUpgrade) -> Response {
        let (response, inbox, outbox) = upgrade.accept();
        outbox.send("x".repeat(BYTES)).unwrap();
        // The socket stays open for as long as the process that serves it.
        tokio::spawn(async move { (tokio::time::sleep(HOUR).await, inbox).0 });
        response
    }

    #[tokio::test]
    async fn an_answer_in_the_buffer_of_tls_waits_only_for_so_long() {
        let limits = Limits {
            request_timeout: Duration::from_millis(100),
            header_timeout: HOUR,
            answer_timeout: HOUR,
            ..Limits::default()
        };
        let request = "GET / HTTP/1.1\r\nhost: x\r\n\r\n";
        let (stream, task) = serve(limits, request).await;
        timeout(Duration::from_secs(30), task).await.expect("the connection is cut").unwrap();
        drop(stream);
    }

    // One thread: the server has filled the buffers of the system before the client reads.
    #[tokio::test]
    async fn a_message_in_the_buffer_of_tls_is_written_when_the_client_reads() {
        let request = "GET /socket HTTP/1.1\r\nhost: x\r\nconnection: upgrade\r\nupgrade: websocket\r\n\
                       sec-websocket-version: 13\r\nsec-websocket-key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n";
        let (mut stream, task) = serve(Limits::default(), request).await;
        let read = async {
            let mut all = Vec::new();
            while all.iter().filter(|byte| **byte == b'x').count() < BYTES {
                assert_ne!(stream.read_buf(&mut all).await.unwrap(), 0, "the socket was closed");
            }
        };
        timeout(Duration::from_secs(20), read).await.expect("the whole message");
        task.abort();
    }
}
