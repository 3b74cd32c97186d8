//! [`Identity`]: the certificate of a node, and the rule by which it knows the other nodes of its cluster.
//!
//! ```text
//!  ca.pem ─────── signs ──────┬───────────────────────────┐
//!                             ▼                           ▼
//!  node a   cert.pem: shop.throng, key.pem     node b   cert.pem: shop.throng, key.pem
//!           dials ─────────── TLS 1.3 ────────▶ accepts
//!           b's chain ends at the CA,           a's chain ends at the CA,
//!           in date, for shop.throng            in date, for shop.throng
//! ```
//!
//! The certificate of a node has the DNS name `<cluster>.throng` among its alternative names, may be used for clients
//! and for servers (or does not say), and says nothing about hosts: a node is found by its address and known by its
//! incarnation. Nodes of one cluster trust each other.
//!
//! 1. Both sides of a connection have shown a certificate for this cluster. A node of another cluster under the same
//!    CA is refused.
//! 2. No session is resumed, so that each connection has checked the certificates of its own time.
//! 3. Files that peers would refuse change nothing: [`Identity::reload`] keeps what it has.

use std::fmt;
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError, RwLock};

use tokio_rustls::rustls::client::danger::ServerCertVerifier;
use tokio_rustls::rustls::client::{Resumption, WebPkiServerVerifier, verify_server_name};
use tokio_rustls::rustls::crypto::{CryptoProvider, ring};
use tokio_rustls::rustls::pki_types::pem::{self, PemObject};
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use tokio_rustls::rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use tokio_rustls::rustls::server::{
    NoServerSessionStorage, ParsedCertificate, WebPkiClientVerifier,
};
use tokio_rustls::rustls::version::TLS13;
use tokio_rustls::rustls::{self, ClientConfig, RootCertStore, ServerConfig};

/// Name of the protocol inside TLS, so that no other service under the same CA is taken for a node.
pub const ALPN: &[u8] = b"throng-link";

/// Files of a node, in PEM.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Files {
    /// Certificates of the authorities that sign those of nodes. Two, while one takes the place of the other.
    pub ca: PathBuf,
    /// Certificate of the node, followed by those between it and the authority.
    pub cert: PathBuf,
    /// Private key of the node's certificate, which only the node's user and its group may access.
    pub key: PathBuf,
}

/// Certificate of a node and the authorities that it trusts. Clones share what is reloaded.
#[derive(Clone)]
pub struct Identity(Arc<Inner>);

struct Inner {
    files: Files,
    cluster: String,
    name: ServerName<'static>,
    configs: RwLock<Configs>,
}

#[derive(Clone)]
struct Configs {
    client: Arc<ClientConfig>,
    server: Arc<ServerConfig>,
}

/// Error in loading the files of a node.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum IdentityError {
    /// The name of the cluster cannot be a part of a DNS name.
    #[error(
        "the cluster cannot be named {0:?}; take 1 to 63 lower-case letters, digits and hyphens, \
         no hyphen first or last"
    )]
    Name(String),
    /// A file cannot be read.
    #[error("cannot read {path}")]
    File {
        /// Path of the file.
        path: PathBuf,
        /// Error of the operating system.
        source: io::Error,
    },
    /// A file has no such content, or the content is damaged.
    #[error("{path} has no usable {wanted} in PEM: {reason}")]
    Damaged {
        /// Path of the file.
        path: PathBuf,
        /// Content that the file should have.
        wanted: &'static str,
        /// Reason for refusing the content.
        reason: String,
    },
    /// Every user of the machine can access the private key.
    #[error(
        "every user of this machine can access the private key {0}; set its mode to 600 or 640"
    )]
    Exposed(PathBuf),
    /// The private key belongs to another certificate.
    #[error("the private key {key} does not belong to the first certificate in {cert}")]
    Unmatched {
        /// Path of the certificate's file.
        cert: PathBuf,
        /// Path of the key's file.
        key: PathBuf,
    },
    /// The other nodes of the cluster would refuse the certificate.
    #[error(
        "the other nodes would refuse the certificate in {cert}: {reason}; it needs to be in date, signed by an \
         authority in {ca}, for the DNS name {name}, and usable for clients and for servers"
    )]
    Unfit {
        /// Path of the certificate's file.
        cert: PathBuf,
        /// Path of the authorities' file.
        ca: PathBuf,
        /// DNS name that nodes of the cluster have.
        name: String,
        /// Reason for which a peer would refuse it.
        reason: String,
    },
}

impl Identity {
    /// Loads the files of a node of a cluster.
    ///
    /// # Errors
    ///
    /// A file cannot be used, or the other nodes of the cluster would refuse the certificate.
    pub fn load(files: Files, cluster: &str) -> Result<Identity, IdentityError> {
        let is_part = |byte| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'-');
        let is_label = (1..=63).contains(&cluster.len())
            && cluster.bytes().all(is_part)
            && !cluster.starts_with('-')
            && !cluster.ends_with('-');
        let name = ServerName::try_from(format!("{cluster}.throng")).ok().filter(|_| is_label);
        let name = name.ok_or_else(|| IdentityError::Name(cluster.to_owned()))?;
        let configs = RwLock::new(read(&files, &name)?);
        Ok(Identity(Arc::new(Inner { files, cluster: cluster.to_owned(), name, configs })))
    }

    /// Reads the files again. Later connections use what they say; those that are open keep what they have. Blocks the
    /// thread while it reads.
    ///
    /// # Errors
    ///
    /// See [`Identity::load`]. What was loaded before stays in use.
    pub fn reload(&self) -> Result<(), IdentityError> {
        let configs = read(&self.0.files, &self.0.name)?;
        // The whole value is replaced, so it is valid even if the lock is poisoned.
        *self.0.configs.write().unwrap_or_else(PoisonError::into_inner) = configs;
        Ok(())
    }

    /// Returns the name of the cluster.
    pub fn cluster(&self) -> &str {
        &self.0.cluster
    }

    fn configs(&self) -> Configs {
        self.0.configs.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(super) fn connector(&self) -> (tokio_rustls::TlsConnector, ServerName<'static>) {
        (self.configs().client.into(), self.0.name.clone())
    }

    pub(super) fn acceptor(&self) -> tokio_rustls::TlsAcceptor {
        self.configs().server.into()
    }
}

impl fmt::Debug for Identity {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Inner { files, cluster, .. } = &*self.0;
        let mut debug = formatter.debug_struct("Identity");
        debug.field("files", files).field("cluster", cluster).finish_non_exhaustive()
    }
}

/// Reads the files, and checks them as a peer would.
fn read(files: &Files, name: &ServerName<'static>) -> Result<Configs, IdentityError> {
    let authorities = read_certificates(&files.ca)?;
    let chain = read_certificates(&files.cert)?;
    let key = read_key(&files.key)?;

    let of_ca = |reason: &dyn fmt::Display| damaged(&files.ca, "certificate", reason);
    let mut roots = RootCertStore::empty();
    for authority in authorities {
        roots.add(authority).map_err(|error| of_ca(&error))?;
    }
    let (roots, provider) = (Arc::new(roots), Arc::new(ring::default_provider()));
    let servers = WebPkiServerVerifier::builder_with_provider(roots.clone(), provider.clone());
    let servers = servers.build().map_err(|error| of_ca(&error))?;
    let clients = WebPkiClientVerifier::builder_with_provider(roots, provider.clone());
    let clients = clients.build().map_err(|error| of_ca(&error))?;
    let clients = Arc::new(NodeVerifier { chain: clients, name: name.clone() });

    let (first, between) = chain.split_first().ok_or_else(|| of_ca(&"it is empty"))?;
    let now = UnixTime::now();
    servers
        .verify_server_cert(first, between, name, &[], now)
        .and_then(|_| clients.verify_client_cert(first, between, now))
        .map_err(|error| IdentityError::Unfit {
            cert: files.cert.clone(),
            ca: files.ca.clone(),
            name: name.to_str().into_owned(),
            reason: error.to_string(),
        })?;

    let configs = configs(provider, servers, clients, chain, key);
    configs.map_err(|error| match error {
        rustls::Error::InconsistentKeys(_) => {
            IdentityError::Unmatched { cert: files.cert.clone(), key: files.key.clone() }
        }
        error => damaged(&files.key, "private key", &error),
    })
}

fn configs(
    provider: Arc<CryptoProvider>,
    servers: Arc<WebPkiServerVerifier>,
    clients: Arc<NodeVerifier>,
    chain: Vec<CertificateDer<'static>>,
    key: PrivateKeyDer<'static>,
) -> Result<Configs, rustls::Error> {
    let mut client = ClientConfig::builder_with_provider(provider.clone())
        .with_protocol_versions(&[&TLS13])?
        .with_webpki_verifier(servers)
        .with_client_auth_cert(chain.clone(), key.clone_key())?;
    client.alpn_protocols = vec![ALPN.to_vec()];
    client.resumption = Resumption::disabled();
    // The name is that of the cluster, which a listener on the wire need not know.
    client.enable_sni = false;
    let mut server = ServerConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&TLS13])?
        .with_client_cert_verifier(clients)
        .with_single_cert(chain, key)?;
    server.alpn_protocols = vec![ALPN.to_vec()];
    server.session_storage = Arc::new(NoServerSessionStorage {});
    server.send_tls13_tickets = 0;
    Ok(Configs { client: Arc::new(client), server: Arc::new(server) })
}

/// Check of a node that dials: a chain to the CA, as of any client, and the name of the cluster.
#[derive(Debug)]
struct NodeVerifier {
    chain: Arc<dyn ClientCertVerifier>,
    name: ServerName<'static>,
}

impl ClientCertVerifier for NodeVerifier {
    fn root_hint_subjects(&self) -> &[rustls::DistinguishedName] {
        self.chain.root_hint_subjects()
    }

    fn verify_client_cert(
        &self,
        first: &CertificateDer<'_>,
        between: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, rustls::Error> {
        let verified = self.chain.verify_client_cert(first, between, now)?;
        verify_server_name(&ParsedCertificate::try_from(first)?, &self.name)?;
        Ok(verified)
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &rustls::DigitallySignedStruct,
    ) -> Result<rustls::client::danger::HandshakeSignatureValid, rustls::Error> {
        self.chain.verify_tls12_signature(message, certificate, signature)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &rustls::DigitallySignedStruct,
    ) -> Result<rustls::client::danger::HandshakeSignatureValid, rustls::Error> {
        self.chain.verify_tls13_signature(message, certificate, signature)
    }

    fn supported_verify_schemes(&self) -> Vec<rustls::SignatureScheme> {
        self.chain.supported_verify_schemes()
    }
}

fn damaged(path: &Path, wanted: &'static str, reason: &dyn fmt::Display) -> IdentityError {
    IdentityError::Damaged { path: path.to_owned(), wanted, reason: reason.to_string() }
}

fn read_certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, IdentityError> {
    let failed = |source| IdentityError::File { path: path.to_owned(), source };
    let text = std::fs::read(path).map_err(failed)?;
    let certificates: Result<Vec<_>, pem::Error> = CertificateDer::pem_slice_iter(&text).collect();
    let certificates = certificates.map_err(|error| damaged(path, "certificate", &error))?;
    if certificates.is_empty() {
        return Err(damaged(path, "certificate", &"there is none"));
    }
    Ok(certificates)
}

fn read_key(path: &Path) -> Result<PrivateKeyDer<'static>, IdentityError> {
    let failed = |source| IdentityError::File { path: path.to_owned(), source };
    let mut file = File::open(path).map_err(failed)?;
    // Asked of the open file: between a check of the path and the reading, another file could take its place.
    if file.metadata().map_err(failed)?.permissions().mode() & 0o007 != 0 {
        return Err(IdentityError::Exposed(path.to_owned()));
    }
    let mut text = Vec::new();
    file.read_to_end(&mut text).map_err(failed)?;
    PrivateKeyDer::from_pem_slice(&text).map_err(|error| damaged(path, "private key", &error))
}
