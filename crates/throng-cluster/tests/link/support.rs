//! Certificates, nodes, and peers that keep no rule.

use std::fs::{self, Permissions};
use std::net::{Ipv4Addr, SocketAddr};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair, date_time_ymd};
use throng_cluster::link::frame::{Frame, Hello, Limits};
use throng_cluster::link::{
    ALPN, CallError, Deadline, Files, Identity, IdentityError, Links, Options, Peer, Refusal,
    Service, Stats, Target,
};
use throng_cluster::{BoxFuture, Incarnation};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::sync::Notify;
use tokio::time::{sleep, timeout};
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::{ClientConfig, RootCertStore, ServerConfig};
use tokio_rustls::{TlsAcceptor, TlsConnector};

/// Bound on the wait for an event that has to come.
pub(crate) const PATIENCE: Duration = Duration::from_secs(15);

/// An authority that signs the certificates of nodes.
pub(crate) struct Ca {
    issuer: Issuer<'static, KeyPair>,
    pem: String,
}

/// A certificate and its key, in PEM.
pub(crate) struct Certificate {
    pub(crate) cert: String,
    pub(crate) key: String,
}

impl Ca {
    pub(crate) fn new() -> Ca {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().unwrap();
        let pem = params.self_signed(&key).unwrap().pem();
        Ca { issuer: Issuer::new(params, key), pem }
    }

    pub(crate) fn issue(&self, cluster: &str) -> Certificate {
        self.issue_until(cluster, 4000)
    }

    pub(crate) fn issue_until(&self, cluster: &str, year: i32) -> Certificate {
        let mut params = CertificateParams::new([format!("{cluster}.throng")]).unwrap();
        params.not_after = date_time_ymd(year, 1, 1);
        let key = KeyPair::generate().unwrap();
        let cert = params.signed_by(&key, &self.issuer).unwrap().pem();
        Certificate { cert, key: key.serialize_pem() }
    }

    fn roots(&self) -> RootCertStore {
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from_pem_slice(self.pem.as_bytes()).unwrap()).unwrap();
        roots
    }
}

impl Certificate {
    fn der(&self) -> (Vec<CertificateDer<'static>>, PrivateKeyDer<'static>) {
        let key = PrivateKeyDer::from_pem_slice(self.key.as_bytes()).unwrap();
        (vec![CertificateDer::from_pem_slice(self.cert.as_bytes()).unwrap()], key)
    }
}

/// Writes the files of a node into a directory.
pub(crate) fn write(directory: &Path, ca: &Ca, certificate: &Certificate) -> Files {
    let [ca_file, cert, key] = ["ca.pem", "cert.pem", "key.pem"].map(|name| directory.join(name));
    fs::write(&ca_file, &ca.pem).unwrap();
    fs::write(&cert, &certificate.cert).unwrap();
    fs::write(&key, &certificate.key).unwrap();
    fs::set_permissions(&key, Permissions::from_mode(0o600)).unwrap();
    Files { ca: ca_file, cert, key }
}

pub(crate) fn load(
    ca: &Ca,
    certificate: &Certificate,
    cluster: &str,
) -> Result<Identity, IdentityError> {
    let directory = tempfile::tempdir().unwrap();
    Identity::load(write(directory.path(), ca, certificate), cluster)
}

/// A service that does what the request says, and otherwise answers with it.
#[derive(Default)]
pub(crate) struct Obedient {
    pub(crate) begun: AtomicU64,
    pub(crate) dropped: Arc<AtomicU64>,
    pub(crate) release: Arc<Notify>,
}

impl Service for Obedient {
    fn call(
        &self,
        _: Peer,
        request: Bytes,
        deadline: Deadline,
    ) -> BoxFuture<Result<Bytes, Refusal>> {
        self.begun.fetch_add(1, Ordering::SeqCst);
        let (release, dropped) = (self.release.clone(), Dropped(self.dropped.clone()));
        Box::pin(async move {
            let _dropped = dropped;
            match &request[..] {
                b"wait" => release.notified().await,
                b"refuse" => return Err(Refusal("not here".into())),
                b"panic" => panic!("the service was told to panic"),
                b"long" => return Ok(vec![7; 1 << 20].into()),
                b"time" => return Ok(deadline.remaining().as_millis().to_string().into()),
                _ => {}
            }
            Ok(request)
        })
    }
}

struct Dropped(Arc<AtomicU64>);

impl Drop for Dropped {
    fn drop(&mut self) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

pub(crate) struct Node {
    pub(crate) links: Arc<Links>,
    pub(crate) service: Arc<Obedient>,
    pub(crate) target: Target,
}

impl Node {
    pub(crate) async fn start(ca: &Ca, number: u128, options: Options) -> Node {
        let identity = load(ca, &ca.issue("shop"), "shop").unwrap();
        Node::start_at("127.0.0.1:0", identity, number, options).await
    }

    pub(crate) async fn start_at(
        address: &str,
        identity: Identity,
        number: u128,
        options: Options,
    ) -> Node {
        let listener = TcpListener::bind(address).await.unwrap();
        let (address, node) = (listener.local_addr().unwrap().to_string(), Incarnation(number));
        let service = Arc::new(Obedient::default());
        let links = Links::start(listener, identity, node, service.clone(), options);
        Node { links: Arc::new(links), service, target: Target { address, node } }
    }

    pub(crate) async fn call(
        &self,
        to: &Target,
        request: &'static str,
    ) -> Result<Bytes, CallError> {
        self.links.call(to, request.into(), PATIENCE).await
    }

    /// Calls in the background.
    pub(crate) fn spawn_call(
        &self,
        to: &Target,
        request: impl Into<Bytes>,
        within: Duration,
    ) -> tokio::task::JoinHandle<Result<Bytes, CallError>> {
        let (links, to, request) = (self.links.clone(), to.clone(), request.into());
        tokio::spawn(async move { links.call(&to, request, within).await })
    }

    /// Waits until the counters say so.
    pub(crate) async fn until(&self, wanted: impl Fn(&Stats) -> bool) {
        let reached = async {
            while !wanted(&self.links.stats()) {
                sleep(Duration::from_millis(5)).await;
            }
        };
        let reached = timeout(PATIENCE, reached).await;
        reached.unwrap_or_else(|_| panic!("never reached: {:#?}", self.links.stats()));
    }

    pub(crate) async fn until_begun(&self, requests: u64) {
        self.until(|_| self.service.begun.load(Ordering::SeqCst) >= requests).await;
    }
}

/// A peer that speaks TLS and frames, and otherwise does what the test wants.
pub(crate) struct Raw<S> {
    pub(crate) stream: S,
    bytes: BytesMut,
}

pub(crate) type Dialed = Raw<tokio_rustls::client::TlsStream<TcpStream>>;
pub(crate) type Accepted = Raw<tokio_rustls::server::TlsStream<TcpStream>>;

pub(crate) fn hello(number: u128) -> Hello {
    Hello {
        versions: 1..=1,
        cluster: "shop".to_owned(),
        node: Incarnation(number),
        levels: 0..=0,
        limits: LIMITS,
    }
}

pub(crate) const LIMITS: Limits =
    Limits { request_bytes: 1 << 20, reply_bytes: 2 << 20, requests: 100 };

/// Connects to a node with any certificate, or none.
pub(crate) async fn dial(
    to: &Target,
    ca: &Ca,
    certificate: Option<&Certificate>,
) -> std::io::Result<Dialed> {
    let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()));
    let config = config.with_safe_default_protocol_versions().unwrap();
    let config = config.with_root_certificates(ca.roots());
    let mut config = match certificate.map(Certificate::der) {
        Some((chain, key)) => config.with_client_auth_cert(chain, key).unwrap(),
        None => config.with_no_client_auth(),
    };
    config.alpn_protocols = vec![ALPN.to_vec()];
    let tcp = TcpStream::connect(&to.address).await?;
    let connector = TlsConnector::from(Arc::new(config));
    let stream = connector.connect("shop.throng".try_into().unwrap(), tcp).await?;
    Ok(Raw { stream, bytes: BytesMut::new() })
}

/// Connects to a node, and exchanges HELLO as a node of its cluster.
pub(crate) async fn introduce(to: &Target, ca: &Ca) -> Dialed {
    let mut raw = dial(to, ca, Some(&ca.issue("shop"))).await.unwrap();
    raw.send(&Frame::Hello(hello(77))).await;
    assert!(matches!(raw.next().await, Some(Frame::Hello(_))));
    raw
}

/// A listener that takes connections of nodes with any certificate.
pub(crate) struct Trap {
    listener: TcpListener,
    acceptor: TlsAcceptor,
    pub(crate) target: Target,
}

impl Trap {
    pub(crate) async fn new(certificate: &Certificate) -> Trap {
        let config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()));
        let config = config.with_safe_default_protocol_versions().unwrap();
        let (chain, key) = certificate.der();
        let mut config = config.with_no_client_auth().with_single_cert(chain, key).unwrap();
        config.alpn_protocols = vec![ALPN.to_vec()];
        let socket = TcpSocket::new_v4().unwrap();
        // Small, so that a trap that does not read is noticed soon.
        socket.set_recv_buffer_size(64 << 10).unwrap();
        socket.bind(SocketAddr::from((Ipv4Addr::LOCALHOST, 0))).unwrap();
        let listener = socket.listen(8).unwrap();
        let address = listener.local_addr().unwrap();
        let target = Target { address: address.to_string(), node: Incarnation(77) };
        Trap { listener, acceptor: Arc::new(config).into(), target }
    }

    /// Takes a connection, and sends a HELLO.
    pub(crate) async fn accept(&self, hello: Hello) -> std::io::Result<Accepted> {
        let (tcp, _) = timeout(PATIENCE, self.listener.accept()).await??;
        let stream = self.acceptor.accept(tcp).await?;
        let mut raw = Raw { stream, bytes: BytesMut::new() };
        raw.send(&Frame::Hello(hello)).await;
        Ok(raw)
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> Raw<S> {
    pub(crate) async fn send(&mut self, frame: &Frame) {
        let mut bytes = BytesMut::new();
        frame.encode(&mut bytes);
        self.send_bytes(&bytes).await;
    }

    /// Sends bytes, unless the peer has closed the connection.
    pub(crate) async fn send_bytes(&mut self, bytes: &[u8]) {
        let _ = self.stream.write_all(bytes).await;
        let _ = self.stream.flush().await;
    }

    pub(crate) async fn request(&mut self, id: u64, payload: &'static str, within: Duration) {
        self.send(&Frame::Request { id, within, payload: payload.into() }).await;
    }

    /// Returns the number of the next request.
    pub(crate) async fn next_request(&mut self) -> u64 {
        loop {
            match self.next().await.expect("a request") {
                Frame::Request { id, .. } => return id,
                other => assert!(matches!(other, Frame::Hello(_)), "{other:?}"),
            }
        }
    }

    /// Returns the next frame but heartbeats; `None` once the peer has closed the connection.
    pub(crate) async fn next(&mut self) -> Option<Frame> {
        let next = timeout(PATIENCE, async {
            loop {
                match Frame::decode(&mut self.bytes, &LIMITS).unwrap() {
                    Some(Frame::Heartbeat) => continue,
                    Some(frame) => return Some(frame),
                    None => self.bytes.reserve(64 << 10),
                }
                if !self.stream.read_buf(&mut self.bytes).await.is_ok_and(|bytes| bytes > 0) {
                    return None;
                }
            }
        });
        next.await.expect("a frame, or the end of the connection")
    }
}
