//! The certificate of the service: its files by settings, read again at each SIGHUP.
//!
//! ```text
//! --tls-cert, --tls-key ── start ──► Tls ──► handshakes
//!         └──────────────── SIGHUP ─► ▲ if the files can be used; otherwise an error is logged
//! ```

use std::path::PathBuf;

use clap::Args;
use throng_server::{Tls, TlsError};

/// Settings of TLS.
#[derive(Debug, Args)]
#[command(next_help_heading = "TLS")]
pub(crate) struct TlsFiles {
    /// File of the certificates in PEM, the node's own first; with it, the service speaks HTTPS. SIGHUP
    /// reads both files again
    #[arg(long, value_name = "FILE", env = "THRONG_TLS_CERT")]
    tls_cert: Option<PathBuf>,

    /// File of the certificate's private key in PEM, without a passphrase, and not for every user of the
    /// machine
    #[arg(long, value_name = "FILE", env = "THRONG_TLS_KEY")]
    tls_key: Option<PathBuf>,
}

/// One of the two settings of TLS is missing.
#[derive(Clone, Copy, Debug, thiserror::Error)]
#[error("--tls-cert and --tls-key need each other; set both, or none")]
pub(crate) struct HalfOfTls;

/// Error in loading the certificate at the start.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CertificateError {
    #[error(transparent)]
    Half(#[from] HalfOfTls),
    #[error(transparent)]
    Files(#[from] TlsError),
}

/// Certificate of the service.
#[derive(Debug)]
pub(crate) struct Certificate {
    pub(crate) tls: Tls,
}

impl TlsFiles {
    /// Checks that none or both of the files are set.
    ///
    /// # Errors
    /// One of them is set.
    pub(crate) fn check(&self) -> Result<(), HalfOfTls> {
        if self.tls_cert.is_some() == self.tls_key.is_some() { Ok(()) } else { Err(HalfOfTls) }
    }

    /// Loads the certificate, if the settings name one.
    ///
    /// # Errors
    /// The files cannot be used.
    pub(crate) fn load(&self) -> Result<Option<Certificate>, CertificateError> {
        self.check()?;
        let (Some(certificate), Some(key)) = (&self.tls_cert, &self.tls_key) else {
            return Ok(None);
        };
        Ok(Some(Certificate { tls: Tls::load(certificate, key)? }))
    }
}

impl Certificate {
    /// Reads the files again, for the connections from then on.
    pub(crate) async fn reload(&self) {
        let tls = self.tls.clone();
        match tokio::task::spawn_blocking(move || tls.reload()).await {
            Ok(Ok(())) => tracing::info!("read the certificate and its key again"),
            Ok(Err(error)) => tracing::error!(
                error = crate::error_chain(&error),
                "cannot use the new certificate; the old one stays"
            ),
            // The runtime is shutting down.
            Err(_) => {}
        }
    }
}
