//! Which requests a route takes: host, path pattern, methods.
//!
//! Patterns are split once at load; matching walks both sides without allocating. Paths are
//! compared as sent, percent-encoding included: decoding first would let `%2F` cross a segment.

use std::sync::Arc;

use http::Method;

/// The longest pattern, in segments; nobody needs more, and it bounds the walk.
pub const SEGMENTS_MAX: usize = 64;

/// What a request must look like (`match`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Matcher {
    /// The host, lower case, without port; `None` takes every host.
    pub host: Option<Arc<str>>,
    /// The path.
    pub path: PathPattern,
    /// The methods; `None` takes every method.
    pub methods: Option<Vec<Method>>,
}

/// A path pattern: literal segments, `{name}` for exactly one, `**` for any number.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PathPattern {
    text: Arc<str>,
    segments: Arc<[Segment]>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Segment {
    Literal(Box<str>),
    Capture(Box<str>),
    Rest,
}

/// Whether a path walks: `.` or `..` as a segment, also written with `%2e` or followed by `;`. A
/// tool may resolve it to a path that no route was meant to match.
#[must_use]
pub fn walks(path: &str) -> bool {
    let may = path.bytes().any(|b| b == b'.' || b == b'%');
    may && path.split('/').any(|segment| {
        let name = segment.split(';').next().unwrap_or(segment);
        let dots = name.to_ascii_lowercase().replace("%2e", ".");
        dots == "." || dots == ".."
    })
}

impl Matcher {
    /// Whether a request is taken. `host` is the request's, with or without port, in any case;
    /// `path` is the path alone, without the query.
    #[must_use]
    pub fn matches(&self, host: Option<&str>, path: &str, method: &Method) -> bool {
        self.takes_method(method) && self.takes_host(host) && self.path.matches(path)
    }

    /// Whether no later route can ever be reached.
    #[must_use]
    pub fn takes_everything(&self) -> bool {
        let rest_only = *self.path.segments == [Segment::Rest];
        self.host.is_none() && self.methods.is_none() && rest_only
    }

    fn takes_method(&self, method: &Method) -> bool {
        self.methods
            .as_ref()
            .is_none_or(|methods| methods.contains(method))
    }

    fn takes_host(&self, host: Option<&str>) -> bool {
        self.host.as_ref().is_none_or(|wanted| {
            host.is_some_and(|given| without_port(given).eq_ignore_ascii_case(wanted))
        })
    }
}

/// The host without `:port`; an IPv6 address keeps its brackets.
pub(crate) fn without_port(host: &str) -> &str {
    let after_brackets = host.rfind(']').map_or(0, |at| at + 1);
    match host[after_brackets..].find(':') {
        Some(at) => &host[..after_brackets + at],
        None => host,
    }
}

impl PathPattern {
    /// Reads a pattern.
    ///
    /// # Errors
    /// What was expected, in words for the operator.
    pub fn parse(text: &str) -> Result<Self, &'static str> {
        let Some(rest) = text.strip_prefix('/') else {
            return Err("a path that begins with `/`");
        };
        if text.contains(['?', '#']) || text.contains(char::is_whitespace) {
            return Err("a path without query, fragment or spaces");
        }
        if walks(text) {
            return Err("a path without `.` and `..` as segments, which no request may have");
        }
        let segments = rest
            .split('/')
            .map(Segment::parse)
            .collect::<Result<Vec<_>, _>>()?;
        if segments.len() > SEGMENTS_MAX {
            return Err("a path of at most 64 segments");
        }
        let repeated = segments.iter().enumerate().any(|(at, segment)| {
            matches!(segment, Segment::Capture(_)) && segments[..at].contains(segment)
        });
        if repeated {
            return Err("every {name} only once");
        }
        if segments
            .iter()
            .filter(|segment| **segment == Segment::Rest)
            .count()
            > 1
        {
            return Err("`**` at most once");
        }
        Ok(Self {
            text: Arc::from(text),
            segments: Arc::from(segments),
        })
    }

    /// `/**`.
    #[must_use]
    pub fn everything() -> Self {
        Self {
            text: Arc::from("/**"),
            segments: Arc::from([Segment::Rest]),
        }
    }

    /// The pattern as it was written.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// The first segment, where it is written out: no path that begins with another one matches.
    pub(crate) fn first_literal(&self) -> Option<&str> {
        match self.segments.first() {
            Some(Segment::Literal(text)) => Some(text),
            Some(Segment::Capture(_) | Segment::Rest) | None => None,
        }
    }

    /// Whether `path` matches. `/orders/**` takes `/orders`, `/orders/` and everything below.
    #[must_use]
    pub fn matches(&self, path: &str) -> bool {
        self.walk(path, &mut |_, _| {})
    }

    /// The values of the `{name}`s, as sent (still percent-encoded); `None` when `path` does not
    /// match.
    #[must_use]
    pub fn captures<'a>(&'a self, path: &'a str) -> Option<Vec<(&'a str, &'a str)>> {
        let mut found = Vec::new();
        self.walk(path, &mut |name, value| found.push((name, value)))
            .then_some(found)
    }

    fn walk<'a>(&'a self, path: &'a str, capture: &mut impl FnMut(&'a str, &'a str)) -> bool {
        let Some(path) = path.strip_prefix('/') else {
            return false;
        };
        let rest_at = self
            .segments
            .iter()
            .position(|segment| *segment == Segment::Rest);
        let Some(rest_at) = rest_at else {
            let mut given = path.split('/');
            return self
                .segments
                .iter()
                .all(|segment| segment.takes(given.next(), capture))
                && given.next().is_none();
        };
        let (before, after) = (&self.segments[..rest_at], &self.segments[rest_at + 1..]);
        let count = path.split('/').count();
        // The front may not reach into what the end needs; "nothing left" is allowed for `**`.
        if count < before.len() + after.len() {
            return false;
        }
        let mut front = path.split('/');
        let mut end = path.split('/').skip(count - after.len());
        before
            .iter()
            .all(|segment| segment.takes(front.next(), capture))
            && after
                .iter()
                .all(|segment| segment.takes(end.next(), capture))
    }
}

impl Segment {
    fn parse(text: &str) -> Result<Self, &'static str> {
        if text == "**" {
            return Ok(Self::Rest);
        }
        if let Some(name) = text
            .strip_prefix('{')
            .and_then(|rest| rest.strip_suffix('}'))
        {
            let named =
                !name.is_empty() && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_');
            return if named {
                Ok(Self::Capture(Box::from(name)))
            } else {
                Err("a {name} of letters, digits and `_`")
            };
        }
        if text.contains(['*', '{', '}']) {
            return Err("`**` and {name} only as whole segments");
        }
        Ok(Self::Literal(Box::from(text)))
    }

    fn takes<'a>(
        &'a self,
        given: Option<&'a str>,
        capture: &mut impl FnMut(&'a str, &'a str),
    ) -> bool {
        match (self, given) {
            (Self::Literal(wanted), Some(given)) => **wanted == *given,
            // An empty segment captures nothing that could be used as a name.
            (Self::Capture(name), Some(given)) if !given.is_empty() => {
                capture(name, given);
                true
            }
            (Self::Capture(_) | Self::Literal(_) | Self::Rest, _) => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_walks_only_by_whole_segments_of_dots() {
        for path in [
            "/..",
            "/.",
            "/a/../b",
            "/a/./b",
            "/a/..",
            "/%2e%2E/b",
            "/a/.%2e",
            "/%2e",
            "/a/..;x=1/b",
        ] {
            assert!(walks(path), "{path}");
        }
        for path in [
            "/",
            "/a",
            "/a/...",
            "/a..b/c",
            "/.well-known/x",
            "/a/b.json",
            "/%2e%2e%2e",
            "/a%2fb",
            "/..a",
            "*",
        ] {
            assert!(!walks(path), "{path}");
        }
    }

    #[test]
    fn a_pattern_takes_what_it_says() {
        let table = [
            ("/orders", "/orders", true),
            ("/orders", "/orders/", false),
            ("/orders", "/ordersx", false),
            ("/orders", "/Orders", false),
            ("/orders/**", "/orders", true),
            ("/orders/**", "/orders/", true),
            ("/orders/**", "/orders/1/lines", true),
            ("/orders/**", "/ordersx", false),
            ("/orders/**", "/", false),
            ("/**", "/", true),
            ("/**", "/a/b/c", true),
            ("/", "/", true),
            ("/", "/a", false),
            ("/a/{id}", "/a/1", true),
            ("/a/{id}", "/a/", false),
            ("/a/{id}", "/a", false),
            ("/a/{id}", "/a/1/2", false),
            ("/a/{id}/b", "/a/x%2Fy/b", true),
            ("/a/**/z", "/a/z", true),
            ("/a/**/z", "/a/b/c/z", true),
            ("/a/**/z", "/a/b/c", false),
            ("/a/**/{last}", "/a", false),
            ("/**", "*", false),
            ("/**", "", false),
        ];
        for (pattern, path, expected) in table {
            let parsed = PathPattern::parse(pattern).unwrap();
            assert_eq!(parsed.matches(path), expected, "{pattern} {path}");
            assert_eq!(parsed.as_str(), pattern);
        }
    }

    #[test]
    fn captures_are_named_and_as_sent() {
        let pattern = PathPattern::parse("/a/{x}/**/{y}").unwrap();
        assert_eq!(
            pattern.captures("/a/1/2/3%20"),
            Some(vec![("x", "1"), ("y", "3%20")])
        );
        assert_eq!(
            pattern.captures("/a/1/2"),
            Some(vec![("x", "1"), ("y", "2")])
        );
        assert_eq!(pattern.captures("/a/1"), None);
    }

    #[test]
    fn a_wrong_pattern_is_refused() {
        for bad in [
            "", "a", "/a?b", "/a#b", "/a b", "/a*", "/a/{}", "/{a}{b}", "/{a-b}", "/**/**",
        ] {
            assert!(PathPattern::parse(bad).is_err(), "{bad}");
        }
        assert!(PathPattern::parse("/{a}/{a}").is_err());
        assert!(PathPattern::parse(&"/a".repeat(SEGMENTS_MAX + 1)).is_err());
        assert!(PathPattern::parse(&"/a".repeat(SEGMENTS_MAX)).is_ok());
    }

    #[test]
    fn host_and_method_narrow_a_match() {
        let matcher = Matcher {
            host: Some(Arc::from("tools.internal")),
            path: PathPattern::parse("/**").unwrap(),
            methods: Some(vec![Method::POST, Method::PUT]),
        };
        let table = [
            (Some("tools.internal"), Method::POST, true),
            (Some("Tools.Internal:8080"), Method::PUT, true),
            (Some("tools.internal"), Method::GET, false),
            (Some("other"), Method::POST, false),
            (None, Method::POST, false),
        ];
        for (host, method, expected) in table {
            assert_eq!(
                matcher.matches(host, "/x", &method),
                expected,
                "{host:?} {method}"
            );
        }
        assert_eq!(without_port("[::1]:80"), "[::1]");
        assert_eq!(without_port("[::1]"), "[::1]");
        assert_eq!(without_port("a:80"), "a");
    }
}
