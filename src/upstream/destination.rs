//! One place requests go to: its address, its TLS, its connections.
//!
//! A tool is one, and its receipt endpoint is another even at the same address, so that a receipt
//! endpoint that drips never holds a connection an attempt could use.

use std::collections::HashMap;
use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use http::HeaderValue;
use parking_lot::Mutex;

use super::addresses::Name;
use super::http2;
use super::pool::Pool;
use super::stand_in::StandInDialer;
use super::tls::Tls;
use crate::call::time::Mono;
use crate::config::route::{CaFile, Endpoint, PoolConfig};

/// An address with its per-core pool of connections; shared by every call that goes there.
pub struct Destination {
    pub(super) place: Place,
    pub(super) tls: Option<Tls>,
    pub(super) pool: Pool,
    /// Where HTTP/2 may be spoken.
    pub(super) http2: Option<http2::Pool>,
    /// How its connections are kept, and on how many cores.
    kept: (PoolConfig, usize),
    /// Set by a simulation only: where connections come from instead of TCP.
    pub(super) stand_in: OnceLock<StandInDialer>,
    authority: Arc<str>,
    host: HeaderValue,
    /// The same for single addresses of its name, where each of them is weighed for itself.
    single: Mutex<HashMap<SocketAddr, Arc<Self>>>,
}

/// Where the socket goes.
pub(super) enum Place {
    /// An address that needs no look-up.
    Address(SocketAddr),
    /// A name, looked up behind the calls.
    Name(Arc<Name>),
}

/// Why a destination cannot be built: the configuration's fault, found before anything is sent.
#[derive(Debug, thiserror::Error)]
pub enum SetupError {
    /// TLS cannot verify such a host.
    #[error("`{host}` is no host name that TLS can verify")]
    HostName {
        /// The host as configured.
        host: String,
        /// What is wrong with it.
        source: rustls::pki_types::InvalidDnsNameError,
    },
    /// The host cannot stand in a `Host` field.
    #[error("`{authority}` cannot stand in a Host field")]
    Authority {
        /// Host and port as configured.
        authority: String,
        /// What is wrong with them.
        source: http::header::InvalidHeaderValue,
    },
    /// The CA file is not PEM.
    #[error("cannot read certificates from {}", path.display())]
    CaFile {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        source: rustls::pki_types::pem::Error,
    },
    /// A certificate of the CA file cannot be used.
    #[error("a certificate in {} cannot be used as a root", path.display())]
    CaCertificate {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        source: rustls::Error,
    },
    /// The CA file holds no certificate.
    #[error("{} holds no certificate", path.display())]
    CaEmpty {
        /// The file.
        path: PathBuf,
    },
    /// TLS itself could not be set up.
    #[error("TLS cannot be set up")]
    Tls(#[source] rustls::Error),
    /// `upstream.headers` may not set what the gateway answers for.
    #[error("upstream.headers may not set `{0}`: the gateway sets or removes it itself")]
    OwnField(http::HeaderName),
    /// A path of the receipt endpoint is no path.
    #[error("`{path}` is no path of a URL")]
    Path {
        /// The path with a sample id filled in.
        path: String,
        /// What is wrong with it.
        source: http::uri::InvalidUri,
    },
}

impl Destination {
    /// A destination whose pool has one shard for each of `cores`; a host name is looked up again
    /// `every` so often.
    ///
    /// # Errors
    /// Anything about the address or its CA file that can never work.
    pub(super) fn new(
        endpoint: &Endpoint,
        ca: Option<&CaFile>,
        pool: PoolConfig,
        (cores, every): (usize, Duration),
    ) -> Result<Arc<Self>, SetupError> {
        let tls = if endpoint.https {
            Some(Tls::new(endpoint, ca)?)
        } else {
            None
        };
        let host =
            HeaderValue::from_str(&endpoint.authority).map_err(|source| SetupError::Authority {
                authority: endpoint.authority.to_string(),
                source,
            })?;
        let place = match endpoint.host.parse::<IpAddr>() {
            Ok(ip) => Place::Address(SocketAddr::new(ip, endpoint.port)),
            Err(_) => Place::Name(Name::new(&endpoint.host, endpoint.port, every)),
        };
        let authority = Arc::clone(&endpoint.authority);
        let http2 = http2::Pool::new(pool, tls.is_some(), cores);
        Ok(Arc::new(Self {
            place,
            tls,
            pool: Pool::new(pool, cores),
            http2,
            kept: (pool, cores),
            stand_in: OnceLock::new(),
            authority,
            host,
            single: Mutex::default(),
        }))
    }

    /// The same tool at one address of its name, with connections of its own.
    pub(super) fn at(&self, address: SocketAddr) -> Arc<Self> {
        let (pool, cores) = self.kept;
        let mut single = self.single.lock();
        let made = single.entry(address).or_insert_with(|| {
            Arc::new(Self {
                place: Place::Address(address),
                tls: self.tls.clone(),
                pool: Pool::new(pool, cores),
                http2: http2::Pool::new(pool, self.is_tls(), cores),
                kept: self.kept,
                stand_in: OnceLock::new(),
                authority: Arc::clone(&self.authority),
                host: self.host.clone(),
                single: Mutex::default(),
            })
        });
        Arc::clone(made)
    }

    /// Forgets the addresses that its name does not lead to any more.
    pub(super) fn keep(&self, addresses: &[SocketAddr]) {
        self.single.lock().retain(|at, _| addresses.contains(at));
    }

    /// The host name, when it is one.
    #[must_use]
    pub const fn name(&self) -> Option<&Arc<Name>> {
        match &self.place {
            Place::Address(_) => None,
            Place::Name(name) => Some(name),
        }
    }

    /// `host` or `host:port`.
    #[must_use]
    pub fn authority(&self) -> &str {
        &self.authority
    }

    /// The `Host` field of requests to here.
    #[must_use]
    pub const fn host(&self) -> &HeaderValue {
        &self.host
    }

    /// Takes every further connection from `dialer`, which stands in for TCP. For simulation; the
    /// first one given stays.
    #[doc(hidden)]
    pub fn dial_by(&self, dialer: StandInDialer) {
        if let Place::Name(name) = &self.place {
            // The system's resolver knows nothing of a simulated network, and takes real time.
            name.resolve_by(Box::new(|_, _| {
                Box::pin(async { Err(std::io::Error::other("the network is simulated")) })
            }));
        }
        drop(self.stand_in.set(dialer));
    }

    /// A request that left at `left` was not answered in time: connections that have rested since
    /// before that are not used any more.
    pub fn distrust(&self, left: Mono) {
        self.pool.distrust(left);
    }

    /// Whether connections are TLS.
    #[must_use]
    pub const fn is_tls(&self) -> bool {
        self.tls.is_some()
    }

    /// Whether a connection to here can switch to another protocol, as HTTP/1.1's can.
    #[must_use]
    pub fn can_switch(&self) -> bool {
        !self.http2.as_ref().is_some_and(http2::Pool::is_only)
    }

    /// HTTP/2 connections that take requests, over all cores.
    #[must_use]
    pub fn shared_connections(&self) -> usize {
        self.http2.as_ref().map_or(0, http2::Pool::connections)
    }

    /// Idle HTTP/1.1 connections over all cores.
    #[must_use]
    pub fn idle_connections(&self) -> usize {
        self.pool.idle()
    }
}

impl fmt::Debug for Destination {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = if self.tls.is_some() { "https" } else { "http" };
        write!(f, "Destination({scheme}://{})", self.authority)
    }
}
