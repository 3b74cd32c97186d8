//! Trust of a client in the certificates of nodes: that of the system, and of a file.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::pki_types::CertificateDer;
use tokio_rustls::rustls::pki_types::pem::{self, PemObject};
use tokio_rustls::rustls::{self, ClientConfig, RootCertStore};

/// Authorities whose certificates a client accepts.
#[derive(Clone)]
pub(crate) struct Trust {
    roots: RootCertStore,
    config: Arc<ClientConfig>,
}

#[derive(Debug, thiserror::Error)]
pub(crate) enum TrustError {
    #[error("cannot read certificates in PEM from {path}")]
    Read { path: PathBuf, source: pem::Error },
    #[error("{path} has no certificate in PEM")]
    Empty { path: PathBuf },
    #[error("certificates are for a URL that begins with https://, and not for {url}")]
    NotHttps { url: String },
    #[error("{path} has a certificate that cannot be used")]
    Certificate { path: PathBuf, source: rustls::Error },
}

impl Trust {
    /// Trusts the authorities of the system, apart from those that cannot be used.
    pub(crate) fn of_system() -> Trust {
        let mut roots = RootCertStore::empty();
        roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        Trust::of(roots)
    }

    /// Trusts the authorities in a file in PEM as well.
    pub(crate) fn and_file(&self, path: &Path) -> Result<Trust, TrustError> {
        let read = |source| TrustError::Read { path: path.to_owned(), source };
        let unusable = |source| TrustError::Certificate { path: path.to_owned(), source };
        let mut roots = self.roots.clone();
        for certificate in CertificateDer::pem_file_iter(path).map_err(read)? {
            roots.add(certificate.map_err(read)?).map_err(unusable)?;
        }
        if roots.len() == self.roots.len() {
            return Err(TrustError::Empty { path: path.to_owned() });
        }
        Ok(Trust::of(roots))
    }

    fn of(roots: RootCertStore) -> Trust {
        // The program is built with a single provider of cryptography, which the builder finds.
        let config = ClientConfig::builder().with_root_certificates(roots.clone());
        Trust { roots, config: Arc::new(config.with_no_client_auth()) }
    }

    pub(crate) fn connector(&self) -> TlsConnector {
        self.config.clone().into()
    }
}

impl fmt::Debug for Trust {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Trust").finish_non_exhaustive()
    }
}
