//! Parsers of single texts: names, addresses, header fields, URLs. Each says what it expected.

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use http::Method;
use http::Uri;
use http::header::{self, HeaderName, HeaderValue};
use jiff::tz::TimeZone;

use super::NAME_BYTES_MAX;
use crate::config::file::read::{authority, has_credentials};
use crate::config::resolved::LedgerUrl;
use crate::config::route::Endpoint;
use crate::config::template::JsonPointer;

/// Label values that mean something else: no route matched, the route was removed.
const TAKEN_NAMES: [&str; 2] = ["none", "gone"];

/// The longest part of a host's name (RFC 1035, 2.3.4).
const LABEL_BYTES_MAX: usize = 63;

/// Fields that frame a message, steer a connection, or are the gateway's own.
const RESERVED: [HeaderName; 14] = [
    header::CONNECTION,
    header::CONTENT_LENGTH,
    header::CONTENT_TYPE,
    header::EXPECT,
    header::FORWARDED,
    header::HOST,
    HeaderName::from_static("keep-alive"),
    header::PROXY_AUTHENTICATE,
    header::TE,
    header::TRAILER,
    header::TRANSFER_ENCODING,
    header::UPGRADE,
    header::VIA,
    HeaderName::from_static("prefer"),
];

pub(super) fn is_name_char(c: char) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-')
}

/// A name that may stand in a call id, a metric label and a path.
pub(super) fn node(text: &str) -> Result<Arc<str>, String> {
    let fits = (1..=NAME_BYTES_MAX).contains(&text.len()) && text.chars().all(is_name_char);
    if fits {
        Ok(Arc::from(text))
    } else {
        Err("1 to 48 letters, digits, `.`, `_` and `-`".to_owned())
    }
}

/// A route's name.
pub(super) fn route(text: &str) -> Result<Arc<str>, String> {
    if TAKEN_NAMES.contains(&text) {
        return Err("another name; metrics use `none` and `gone` for calls without a route".into());
    }
    node(text)
}

pub(super) fn socket(text: &str) -> Result<SocketAddr, String> {
    text.parse()
        .map_err(|_| "an IP address and port, such as 127.0.0.1:8080".to_owned())
}

pub(super) fn ledger(text: &str, base: &Path) -> Result<LedgerUrl, String> {
    if text == "memory:" {
        return Ok(LedgerUrl::Memory);
    }
    if text.starts_with("postgres:") || text.starts_with("postgresql:") {
        return Err("sqlite:PATH or memory:; Postgres is not in this version yet".to_owned());
    }
    match text.strip_prefix("sqlite:") {
        Some(":memory:") => Err("`memory:` for a ledger that forgets".to_owned()),
        Some(path) if !path.is_empty() && !path.starts_with("//") => {
            Ok(LedgerUrl::Sqlite(base.join(PathBuf::from(path))))
        }
        _ => Err("sqlite:PATH, such as sqlite:callgate.db, or memory:".to_owned()),
    }
}

pub(super) fn header_name(text: &str) -> Result<HeaderName, String> {
    HeaderName::from_bytes(text.as_bytes())
        .map_err(|_| "the name of a header field, such as X-Call-Id".to_owned())
}

/// A field an operator may give a meaning of its own.
pub(super) fn free_header_name(text: &str) -> Result<HeaderName, String> {
    let name = header_name(text)?;
    if RESERVED.contains(&name) {
        return Err(
            "a header field that does not frame the message or steer the connection".into(),
        );
    }
    Ok(name)
}

/// A field's value, marked so that no log shows it.
pub(super) fn header_value(text: &str) -> Result<HeaderValue, String> {
    let mut value = HeaderValue::from_str(text)
        .map_err(|_| "a header value: visible characters, no line breaks".to_owned())?;
    value.set_sensitive(true);
    Ok(value)
}

pub(super) fn pointer(text: &str) -> Result<JsonPointer, String> {
    JsonPointer::parse(text)
        .ok_or_else(|| "a JSON pointer, such as /state or /result/status".to_owned())
}

/// A time zone of the IANA database: the system's, else the one of the build.
pub(super) fn time_zone(text: &str) -> Result<TimeZone, String> {
    TimeZone::get(text).map_err(|_| "the name of a time zone, such as Europe/Berlin or UTC".into())
}

/// A place in a document, not the document itself.
pub(super) fn member(text: &str) -> Result<JsonPointer, String> {
    let inside = pointer(text).ok().filter(|at| !at.as_str().is_empty());
    inside.ok_or_else(|| "a JSON pointer to a field, such as /requestId".to_owned())
}

pub(super) fn method(text: &str) -> Result<Method, String> {
    let form = || "a method in upper case, such as POST; CONNECT is not one of them".to_owned();
    let shouted = text.bytes().all(|b| !b.is_ascii_lowercase());
    let read = Method::from_bytes(text.as_bytes()).map_err(|_| form())?;
    if shouted && read != Method::CONNECT {
        Ok(read)
    } else {
        Err(form())
    }
}

pub(super) fn host(text: &str) -> Result<Arc<str>, String> {
    let bracketed = text.starts_with('[') && text.ends_with(']');
    let name = !text.is_empty() && text.chars().all(is_name_char);
    if bracketed || name {
        Ok(Arc::from(text.to_ascii_lowercase()))
    } else {
        Err("a host name without port, such as tools.internal".to_owned())
    }
}

/// A path to take away: begins with `/`, does not end with one.
pub(super) fn prefix(text: &str) -> Result<Arc<str>, String> {
    let trimmed = text.trim_end_matches('/');
    let plain = !text.contains(['?', '#', '*', '{', '}']) && !text.contains(char::is_whitespace);
    if trimmed.starts_with('/') && plain {
        Ok(Arc::from(trimmed))
    } else {
        Err("a path, such as /orders".to_owned())
    }
}

/// An `http` or `https` URL without credentials, query, fragment and places to fill in.
pub(in crate::config) fn endpoint(text: &str) -> Result<Endpoint, String> {
    let form = || "an http:// or https:// URL, such as http://127.0.0.1:9000".to_owned();
    let (scheme, rest) = text.split_once("://").ok_or_else(form)?;
    let https = match scheme.to_ascii_lowercase().as_str() {
        "http" => false,
        "https" => true,
        "grpc" | "grpcs" => {
            return Err(format!(
                "{}; a gRPC tool is an http:// or https:// one with `protocol: http2`",
                form()
            ));
        }
        _ => return Err(form()),
    };
    if has_credentials(text) {
        return Err(format!(
            "{}, without user and password; send them as a field, Authorization in \
             `upstream.headers` (in `headers` beside it for an alert or a reversal)",
            form()
        ));
    }
    if rest.contains(['?', '#']) {
        return Err(format!("{}, without query or fragment", form()));
    }
    if !rest.is_ascii() || rest.contains(['{', '}']) {
        return Err(format!("{}, percent-encoded", form()));
    }
    let uri: Uri = text.parse().map_err(|_| form())?;
    let host = uri
        .host()
        .filter(|host| is_host(host))
        .ok_or_else(form)?
        .to_ascii_lowercase();
    let default = if https { 443 } else { 80 };
    let port = match port_of(authority(rest)) {
        None => default,
        // `host:`, `host:+80` and `host:99999` have a colon past the brackets but no port.
        Some(port) => (port.bytes().all(|b| b.is_ascii_digit()))
            .then(|| port.parse().ok())
            .flatten()
            .filter(|port| *port != 0)
            .ok_or_else(form)?,
    };
    let authority = if port == default {
        host.clone()
    } else {
        format!("{host}:{port}")
    };
    Ok(Endpoint {
        https,
        host: Arc::from(host.trim_start_matches('[').trim_end_matches(']')),
        port,
        authority: Arc::from(authority),
        base_path: Arc::from(uri.path().trim_end_matches('/')),
    })
}

fn port_of(authority: &str) -> Option<&str> {
    let after = authority.rsplit(']').next()?;
    after.split_once(':').map(|(_, port)| port)
}

/// Whether an address or a name can be dialled: one that ends in a number is an address.
fn is_host(host: &str) -> bool {
    if let Some(six) = host.strip_prefix('[') {
        let six = six.strip_suffix(']');
        return six.is_some_and(|six| six.parse::<Ipv6Addr>().is_ok());
    }
    let mut labels = host.strip_suffix('.').unwrap_or(host).split('.');
    let is_label = |label: &str| (1..=LABEL_BYTES_MAX).contains(&label.len());
    let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_');
    let is_number = |label: &str| label.bytes().all(|b| b.is_ascii_digit());
    let numbered = labels.clone().next_back().is_some_and(is_number);
    labels.all(|label| is_label(label) && label.chars().all(is_plain))
        && (!numbered || host.parse::<Ipv4Addr>().is_ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_endpoint_is_taken_apart_and_written_in_one_form() {
        let table = [
            ("http://127.0.0.1:9000", Some("http://127.0.0.1:9000")),
            ("http://127.0.0.1:9000/", Some("http://127.0.0.1:9000")),
            (
                "HTTP://Tool.Internal:80/Base/",
                Some("http://tool.internal/Base"),
            ),
            ("https://tool", Some("https://tool")),
            ("https://tool:443/a/b", Some("https://tool/a/b")),
            ("https://[::1]:8443", Some("https://[::1]:8443")),
            ("http://[::1]", Some("http://[::1]")),
            ("tool:9000", None),
            ("ftp://tool", None),
            ("grpc://tool", None),
            ("http://", None),
            ("http://tool:", None),
            ("http://tool:0", None),
            ("http://tool:99999", None),
            ("http://tool:+80", None),
            ("http://tool:080", Some("http://tool")),
            ("http://tool.:8080", Some("http://tool.:8080")),
            ("http://tool_1.a-b", Some("http://tool_1.a-b")),
            ("http://tool/@scope/a@b", Some("http://tool/@scope/a@b")),
            ("http://tool..b", None),
            ("http://.", None),
            ("http://a,b", None),
            ("http://[::zz]", None),
            ("http://1.2.3.999", None),
            ("http://1.2.3", None),
            ("unix:/run/tool", None),
            ("http+unix://tool", None),
            ("//tool", None),
            ("http://user@tool", None),
            ("http://user:pw@tool", None),
            ("http://@tool", None),
            ("http://tool\\@other", None),
            ("http://tool/{call_id}", None),
            ("http://tool/\u{fc}", None),
            ("http://tool?x=1", None),
            ("http://tool/#x", None),
            ("http://to ol", None),
        ];
        for (text, expected) in table {
            let read = endpoint(text).ok().map(|endpoint| endpoint.address());
            assert_eq!(read.as_deref(), expected, "{text}");
        }
        let six = endpoint("https://[::1]:8443/x").unwrap();
        assert_eq!(
            (&*six.host, six.port, &*six.authority),
            ("::1", 8443, "[::1]:8443")
        );
    }

    #[test]
    fn single_texts_are_proved() {
        assert!(node("a.b_c-9").is_ok() && node("").is_err() && node("a b").is_err());
        assert!(node(&"a".repeat(48)).is_ok() && node(&"a".repeat(49)).is_err());
        assert!(route("orders").is_ok() && route("none").is_err() && route("gone").is_err());
        assert!(method("POST").is_ok() && method("post").is_err() && method("CONNECT").is_err());
        assert!(host("Tools.Internal").is_ok_and(|h| &*h == "tools.internal"));
        assert!(host("tools:80").is_err() && host("").is_err());
        assert!(prefix("/orders/").is_ok_and(|p| &*p == "/orders") && prefix("/").is_err());
        assert!(free_header_name("Host").is_err() && free_header_name("X-A").is_ok());
        assert!(header_value("a\nb").is_err() && header_value("a").unwrap().is_sensitive());
        let base = Path::new("/etc/callgate");
        let sqlite = |path: &str| Ok(LedgerUrl::Sqlite(PathBuf::from(path)));
        assert_eq!(ledger("sqlite:a.db", base), sqlite("/etc/callgate/a.db"));
        assert_eq!(ledger("sqlite:/var/a.db", base), sqlite("/var/a.db"));
        assert_eq!(ledger("memory:", base), Ok(LedgerUrl::Memory));
        for bad in [
            "sqlite:",
            "sqlite::memory:",
            "sqlite://a",
            "a.db",
            "postgres://x/y",
        ] {
            assert!(ledger(bad, base).is_err(), "{bad}");
        }
    }
}
