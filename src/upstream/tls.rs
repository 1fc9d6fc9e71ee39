//! TLS to tools: rustls with ring, the system's roots, and a route's own CA file beside them.
//!
//! The provider is named explicitly, so that no process-wide default can change what is spoken.
//! Deliberately absent: client certificates, and any way to skip verification.

use std::sync::{Arc, OnceLock};

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tokio_rustls::TlsConnector;

use super::SetupError;
use super::dial::Alpn;
use crate::config::route::{CaFile, Endpoint};

/// What a TLS connection to one host needs.
#[derive(Clone)]
pub(super) struct Tls {
    http1: TlsConnector,
    http2: TlsConnector,
    both: TlsConnector,
    pub(super) name: ServerName<'static>,
}

impl Tls {
    /// # Errors
    /// The CA file holds no certificate that can be read, or the host is no name TLS can verify.
    pub(super) fn new(endpoint: &Endpoint, ca: Option<&CaFile>) -> Result<Self, SetupError> {
        let name = ServerName::try_from(endpoint.host.to_string()).map_err(|source| {
            SetupError::HostName {
                host: endpoint.host.to_string(),
                source,
            }
        })?;
        let roots = match ca {
            None => Arc::clone(system_roots()),
            Some(file) => Arc::new(with_own(file)?),
        };
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let mut config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(SetupError::Tls)?
            .with_root_certificates(roots)
            .with_no_client_auth();
        let mut connector = |protocols: &[&[u8]]| {
            config.alpn_protocols = protocols.iter().map(|name| name.to_vec()).collect();
            TlsConnector::from(Arc::new(config.clone()))
        };
        Ok(Self {
            http1: connector(&[b"http/1.1"]),
            http2: connector(&[b"h2"]),
            both: connector(&[b"h2", b"http/1.1"]),
            name,
        })
    }

    /// What shakes hands and offers these protocols.
    pub(super) const fn connector(&self, alpn: Alpn) -> &TlsConnector {
        match alpn {
            Alpn::Http1 => &self.http1,
            Alpn::Http2 => &self.http2,
            Alpn::Both => &self.both,
        }
    }
}

/// The system's roots, read once: parsing them takes milliseconds.
fn system_roots() -> &'static Arc<RootCertStore> {
    static ROOTS: OnceLock<Arc<RootCertStore>> = OnceLock::new();
    ROOTS.get_or_init(|| {
        let mut roots = RootCertStore::empty();
        let found = rustls_native_certs::load_native_certs();
        let (taken, refused) = roots.add_parsable_certificates(found.certs);
        if taken == 0 {
            tracing::warn!(
                refused,
                errors = ?found.errors,
                "no system root certificates: https tools need a ca_file"
            );
        }
        Arc::new(roots)
    })
}

fn with_own(file: &CaFile) -> Result<RootCertStore, SetupError> {
    let path = || file.path.clone();
    let mut roots = RootCertStore::clone(system_roots());
    let mut found = 0;
    for certificate in CertificateDer::pem_slice_iter(&file.pem) {
        let certificate = certificate.map_err(|source| SetupError::CaFile {
            path: path(),
            source,
        })?;
        roots
            .add(certificate)
            .map_err(|source| SetupError::CaCertificate {
                path: path(),
                source,
            })?;
        found += 1;
    }
    if found == 0 {
        return Err(SetupError::CaEmpty { path: path() });
    }
    Ok(roots)
}
