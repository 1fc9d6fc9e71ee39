//! Which routes may take a request, without asking each.
//!
//! Routes are told apart by the host they ask for and by the first segment of their path, where
//! these are written out. What shares host and segment is asked in order, as without an index.

use std::borrow::Cow;
use std::collections::HashMap;

use crate::config::matcher::{Matcher, without_port};

/// As many routes are asked one by one: that takes less than the looking up.
const ASKED_ONE_BY_ONE: usize = 16;

/// Positions of routes, by what a request must have for them.
#[derive(Debug)]
pub(super) struct Index {
    any_host: Shelf,
    /// By host, lower case and without port.
    hosts: HashMap<Box<str>, Shelf>,
}

/// Positions in order, by the first segment of the path.
#[derive(Debug, Default)]
struct Shelf {
    any_path: Vec<usize>,
    segments: HashMap<Box<str>, Vec<usize>>,
}

impl Index {
    /// `None` when there are too few to need one.
    pub(super) fn of(matchers: &[&Matcher]) -> Option<Self> {
        if matchers.len() <= ASKED_ONE_BY_ONE {
            return None;
        }
        let mut index = Self {
            any_host: Shelf::default(),
            hosts: HashMap::new(),
        };
        for (at, matcher) in matchers.iter().enumerate() {
            let shelf = match &matcher.host {
                None => &mut index.any_host,
                Some(host) => index.hosts.entry(Box::from(&**host)).or_default(),
            };
            let positions = match matcher.path.first_literal() {
                None => &mut shelf.any_path,
                Some(segment) => shelf.segments.entry(Box::from(segment)).or_default(),
            };
            positions.push(at);
        }
        Some(index)
    }

    /// The positions of all routes that may take such a request, in order.
    pub(super) fn candidates(
        &self,
        host: Option<&str>,
        path: &str,
    ) -> impl Iterator<Item = usize> + use<'_> {
        let segment = path.strip_prefix('/').and_then(|p| p.split('/').next());
        let own = host.and_then(|host| self.shelf(host));
        let mut lists: [&[usize]; 4] = [
            &self.any_host.any_path,
            self.any_host.below(segment),
            own.map_or(&[], |shelf| &shelf.any_path),
            own.map_or(&[], |shelf| shelf.below(segment)),
        ];
        std::iter::from_fn(move || {
            let nearest = lists.iter_mut().filter(|list| !list.is_empty());
            let nearest = nearest.min_by_key(|list| list[0])?;
            let (at, rest) = nearest.split_first()?;
            *nearest = rest;
            Some(*at)
        })
    }

    fn shelf(&self, host: &str) -> Option<&Shelf> {
        if self.hosts.is_empty() {
            return None;
        }
        let host = without_port(host);
        let lower = match host.bytes().any(|b| b.is_ascii_uppercase()) {
            true => Cow::Owned(host.to_ascii_lowercase()),
            false => Cow::Borrowed(host),
        };
        self.hosts.get(&*lower)
    }
}

impl Shelf {
    fn below(&self, segment: Option<&str>) -> &[usize] {
        segment
            .and_then(|segment| self.segments.get(segment))
            .map_or(&[], |positions| positions)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use http::Method;

    use super::*;
    use crate::config::matcher::PathPattern;

    const PATTERNS: [&str; 9] = [
        "/x", "/y/**", "/{n}", "/x/{n}", "/", "/y/z", "/{n}/z", "/**/z", "/**",
    ];
    const HOSTS: [Option<&str>; 3] = [None, Some("a.test"), Some("b.test")];

    fn matchers() -> Vec<Matcher> {
        let mut all = Vec::new();
        for methods in [Some(vec![Method::PUT]), None] {
            for host in HOSTS {
                all.extend(PATTERNS.map(|pattern| Matcher {
                    host: host.map(Arc::from),
                    path: PathPattern::parse(pattern).unwrap(),
                    methods: methods.clone(),
                }));
            }
        }
        all
    }

    #[test]
    fn the_index_finds_the_route_that_asking_each_finds() {
        let hosts = [
            None,
            Some("a.test"),
            Some("A.Test:80"),
            Some("b.test"),
            Some("c.test"),
        ];
        let paths = [
            "/", "/x", "/x/", "/x/1", "/y", "/y/", "/y/z", "/q/z", "/q/r/z", "*", "", "/X",
        ];
        let mut found = 0;
        let all = matchers();
        // Every stride visits all of them in another order: 53 is a prime.
        for stride in 1..53 {
            let order: Vec<Matcher> = (0..53).map(|n| all[n * stride % 53].clone()).collect();
            let index = Index::of(&order.iter().collect::<Vec<_>>()).unwrap();
            for (host, path) in hosts.iter().flat_map(|h| paths.map(|p| (*h, p))) {
                for method in [Method::POST, Method::PUT] {
                    let takes = |at: &usize| order[*at].matches(host, path, &method);
                    let expected = (0..53).find(takes);
                    let candidates = index.candidates(host, path).find(takes);
                    assert_eq!(candidates, expected, "{host:?} {path} {method} by {stride}");
                    found += usize::from(expected.is_some());
                }
            }
        }
        assert!(found > 4000, "only {found} requests matched at all");
    }

    #[test]
    fn of_many_routes_few_are_candidates() {
        let route = |n: usize| Matcher {
            host: n.is_multiple_of(2).then(|| Arc::from(format!("h{n}"))),
            path: PathPattern::parse(&format!("/r{n}/**")).unwrap(),
            methods: None,
        };
        let all: Vec<Matcher> = (0..1000).map(route).collect();
        let all: Vec<&Matcher> = all.iter().collect();
        let index = Index::of(&all).unwrap();
        let of = |host, path| index.candidates(host, path).collect::<Vec<_>>();
        assert_eq!(of(Some("h998"), "/r998/x"), [998]);
        assert_eq!(of(Some("h998"), "/r999"), [999]);
        assert!(of(None, "/r998/x").is_empty());
        assert!(Index::of(&all[..ASKED_ONE_BY_ONE]).is_none());
    }
}
