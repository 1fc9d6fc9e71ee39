//! The tool of a route: address, header fields, certificates, idle connections.

use std::io::Read;
use std::sync::Arc;

use http::HeaderMap;
use http::header::HeaderName;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;

use super::limits::{concurrency, retry_budget};
use super::scope::Scope;
use super::{Builder, names};
use crate::config::defaults;
use crate::config::file::read::Value;
use crate::config::load::open_plain;
use crate::config::report::Path;
use crate::config::route::{
    CaFile, Endpoint, HostMode, PoolConfig, Protocol, Upstream, UpstreamKind,
};

/// Read of a file of certificates; twenty times what a system's own bundle has.
const CA_BYTES_MAX: u64 = 4 << 20;

impl Builder<'_> {
    /// Builds `upstream`.
    pub(super) fn upstream(&mut self, scope: &Scope<'_>) -> Upstream {
        let (endpoint, others) = self.addresses(scope);
        let url = if scope.get("url").is_some() {
            "url"
        } else {
            "urls"
        };
        let protocol = scope.word("protocol", Protocol::Http1);
        if protocol == Protocol::Auto && !endpoint.https && !scope.any_bad(&[url]) {
            let message = "without TLS nothing is agreed on; say http1 or http2";
            self.refuse(&scope.blame(&["protocol"]), message);
        }
        let former = |text: &str| names::endpoint(text).map(|old| Arc::from(old.address()));
        let pool = scope.section("pool");
        let idle = PoolConfig::default();
        Upstream {
            address: Arc::from(endpoint.address()),
            strip_prefix: self.parsed(scope, "strip_prefix", names::prefix),
            host: scope.word("host", HostMode::Tool),
            headers: self.own_headers(scope),
            ca: self.ca_file(scope, url, &endpoint),
            kind: scope.word("kind", UpstreamKind::Tool),
            pool: PoolConfig {
                idle: pool.duration("idle", idle.idle),
                max_idle: pool.whole("max_idle", idle.max_idle),
                protocol,
            },
            late_max: scope.whole("late_max", defaults::LATE_MAX),
            tenant_header: self.tenant_header(scope),
            concurrency: concurrency(scope),
            retry_budget: retry_budget(scope),
            formerly: self.each(scope, "formerly", former).unwrap_or_default(),
            shared_state: scope.flag("shared_state", false),
            resolve: scope.duration("resolve", defaults::RESOLVE),
            ejection: self.ejection(scope, !others.is_empty()),
            others,
            endpoint,
        }
    }

    /// The fields that `headers` of this section sets.
    pub(super) fn own_headers(&mut self, scope: &Scope<'_>) -> HeaderMap {
        let mut headers = HeaderMap::new();
        let Some((Value::Map(entries), path)) = scope.get("headers") else {
            return headers;
        };
        for (name, value) in entries {
            let path = path.key(name);
            let Some(name) = self.parse(name, &path, settable) else {
                continue;
            };
            let Value::Text(text) = value else { continue };
            match names::header_value(text) {
                Ok(_) if headers.contains_key(&name) => {
                    self.refuse_secret(
                        &path,
                        "this field is set twice; upper and lower case are \
                         the same",
                    );
                }
                Ok(value) => {
                    headers.insert(name, value);
                }
                Err(expected) => self.refuse_secret(&path, &format!("expected {expected}")),
            }
        }
        headers
    }

    fn tenant_header(&mut self, scope: &Scope<'_>) -> Option<HeaderName> {
        let name = self.parsed(scope, "tenant_header", tenant)?;
        if sets(scope, &name) {
            let message = "`upstream.headers` sets this field already; the tool would be told the \
                           same client for everybody";
            self.refuse(&scope.blame(&["tenant_header"]), message);
        }
        Some(name)
    }

    /// Notes a mistake whose source line is not to be shown.
    pub(super) fn refuse_secret(&mut self, path: &Path, message: &str) {
        self.refuse(path, message);
        if let Some(last) = self.mistakes.last_mut() {
            last.secret = true;
        }
    }

    /// The certificates of `ca_file`, for the address that `url` names.
    pub(super) fn ca_file(
        &mut self,
        scope: &Scope<'_>,
        url: &str,
        endpoint: &Endpoint,
    ) -> Option<CaFile> {
        let (text, at) = scope.text("ca_file")?;
        if !endpoint.https && !scope.any_bad(&[url]) {
            self.refuse(
                &at,
                "only an https:// address has certificates; remove this key",
            );
            return None;
        }
        let path = self.base.join(text);
        let mut pem = Vec::new();
        let read = open_plain(&path).and_then(|file| file.take(CA_BYTES_MAX).read_to_end(&mut pem));
        if let Err(error) = read {
            self.refuse(&at, format!("cannot read {}: {error}", path.display()));
            return None;
        }
        let certificates: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&pem).collect();
        if certificates.is_ok_and(|list| !list.is_empty()) {
            return Some(CaFile {
                path,
                pem: Arc::from(pem),
            });
        }
        let message = format!(
            "expected PEM certificates in {}, found none",
            path.display()
        );
        self.refuse(&at, message);
        None
    }
}

/// A field that may be set on every send: not one of the call's own, nor of the message.
fn settable(text: &str) -> Result<HeaderName, String> {
    let name = names::free_header_name(text);
    match name {
        Ok(name) if name.as_str().starts_with("x-call-") || name == "idempotency-key" => {
            Err("a header field other than those that tell calls apart".to_owned())
        }
        Err(_) if text.eq_ignore_ascii_case("host") => {
            Err("a header field other than Host; use `upstream.host: keep`".to_owned())
        }
        // A fixed content type is odd but harmless on its own.
        Err(_) if text.eq_ignore_ascii_case("content-type") => names::header_name(text),
        other => other,
    }
}

/// The field that tells the tool who calls: no credential, since nothing of it is secret.
fn tenant(text: &str) -> Result<HeaderName, String> {
    let name = settable(text)?;
    let credentials = [
        "authorization",
        "proxy-authorization",
        "cookie",
        "x-api-key",
    ];
    if credentials.contains(&name.as_str()) {
        return Err("a header field that carries no credential, such as X-Tenant".to_owned());
    }
    Ok(name)
}

/// Whether `upstream.headers` sets this field.
fn sets(scope: &Scope<'_>, name: &HeaderName) -> bool {
    let Some((Value::Map(entries), _)) = scope.get("headers") else {
        return false;
    };
    entries
        .iter()
        .any(|(field, _)| field.eq_ignore_ascii_case(name.as_str()))
}
