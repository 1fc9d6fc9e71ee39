//! The tool as the flow knows it: where its paths begin and which fields every send carries.

use std::sync::Arc;

use bytes::{BufMut, Bytes, BytesMut};
use http::uri::{InvalidUri, PathAndQuery};
use http::{HeaderMap, HeaderName, HeaderValue};

use super::headers;
use super::{Destination, SetupError};
use crate::config::route::{HostMode, Upstream};

/// One tool; shared by every call of its route. Built once per load of the configuration.
#[derive(Debug)]
pub struct Tool {
    destination: Arc<Destination>,
    address: Arc<str>,
    base_path: Arc<str>,
    strip_prefix: Option<Arc<str>>,
    host_mode: HostMode,
    headers: HeaderMap,
    tenant_header: Option<HeaderName>,
}

impl Tool {
    /// The tool of a route, with connections for `cores` cores (the background runtime included).
    ///
    /// # Errors
    /// What can never work: a bad CA file, a host TLS cannot verify, a field in
    /// `upstream.headers` that the gateway itself answers for.
    pub fn new(upstream: &Upstream, cores: usize) -> Result<Arc<Self>, SetupError> {
        let Upstream {
            endpoint,
            ca,
            pool,
            resolve,
            ..
        } = upstream;
        let destination = Destination::new(endpoint, ca.as_ref(), *pool, (cores, *resolve))?;
        Self::over(upstream, destination)
    }

    /// The tool of a route over the connections of another one that is reached the same way.
    ///
    /// # Errors
    /// A field in `upstream.headers` that the gateway itself answers for.
    pub fn over(
        upstream: &Upstream,
        destination: Arc<Destination>,
    ) -> Result<Arc<Self>, SetupError> {
        if let Some(own) = upstream.headers.keys().find(|name| headers::is_own(name)) {
            return Err(SetupError::OwnField(own.clone()));
        }
        Ok(Arc::new(Self {
            destination,
            address: Arc::clone(&upstream.address),
            base_path: Arc::clone(&upstream.endpoint.base_path),
            strip_prefix: upstream.strip_prefix.clone(),
            host_mode: upstream.host,
            headers: upstream.headers.clone(),
            tenant_header: upstream.tenant_header.clone(),
        }))
    }

    /// The normalised URL: what ledger rows keep, and what "the same upstream" means.
    #[must_use]
    pub fn address(&self) -> &Arc<str> {
        &self.address
    }

    /// Where its requests go.
    #[must_use]
    pub const fn destination(&self) -> &Arc<Destination> {
        &self.destination
    }

    /// `upstream.headers`.
    #[must_use]
    pub const fn headers(&self) -> &HeaderMap {
        &self.headers
    }

    /// The field that tells the tool who calls, if it is told.
    #[must_use]
    pub const fn tenant_header(&self) -> Option<&HeaderName> {
        self.tenant_header.as_ref()
    }

    /// The `Host` field the tool's own name makes.
    #[must_use]
    pub fn host(&self) -> &HeaderValue {
        self.destination.host()
    }

    /// Whose `Host` is sent.
    #[must_use]
    pub const fn host_mode(&self) -> HostMode {
        self.host_mode
    }

    /// The tool's path for a caller's: the prefix is taken off at a segment boundary, the rest is
    /// appended to the URL's path, byte for byte.
    ///
    /// # Errors
    /// Only for a path that could not be parsed in the first place.
    pub fn target(&self, asked: &PathAndQuery) -> Result<PathAndQuery, InvalidUri> {
        let rest = match &self.strip_prefix {
            Some(prefix) => without(asked.as_str(), prefix),
            None => asked.as_str(),
        };
        // The whole server, as OPTIONS means it, is nothing a path can be appended to.
        let whole = rest == "*";
        if whole || (self.base_path.is_empty() && rest.len() == asked.as_str().len()) {
            return Ok(asked.clone());
        }
        let mut path = BytesMut::with_capacity(self.base_path.len() + rest.len() + 1);
        path.put_slice(self.base_path.as_bytes());
        if !rest.starts_with('/') {
            path.put_u8(b'/');
        }
        path.put_slice(rest.as_bytes());
        PathAndQuery::from_maybe_shared(Bytes::from(path))
    }
}

/// `path` without `prefix`, where the prefix ends at a segment's end.
fn without<'a>(path: &'a str, prefix: &str) -> &'a str {
    match path.strip_prefix(prefix) {
        Some(rest) if rest.is_empty() || rest.starts_with(['/', '?']) => rest,
        Some(_) | None => path,
    }
}
