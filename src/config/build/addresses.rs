//! The addresses of a tool: one `url`, or several `urls` that are one tool; and when one of them is
//! left alone.

use std::sync::Arc;

use super::scope::Scope;
use super::{Builder, names};
use crate::call::outcome::Cause;
use crate::config::ejection::Ejection;
use crate::config::file::read::Value;
use crate::config::route::{Address, Endpoint, Route};
use crate::config::words::Word;

impl Builder<'_> {
    /// The first address and the others; without a usable one an address nobody dials stands in.
    pub(super) fn addresses(&mut self, scope: &Scope<'_>) -> (Endpoint, Vec<Address>) {
        let (one, several) = (scope.get("url"), scope.get("urls"));
        match (&one, &several) {
            (Some(_), Some(_)) => self.refuse(
                &scope.blame(&["urls"]),
                "`url` and `urls` exclude each other; write every address of the tool into `urls`",
            ),
            (None, None) if scope.exists() => self.refuse(
                &scope.blame(&[]),
                "`url` is missing; expected an http:// or https:// URL, or several in `urls`",
            ),
            (_, _) => {}
        }
        let url = self.parsed(scope, "url", names::endpoint);
        let urls = self.each(scope, "urls", names::endpoint);
        let mut urls = url.into_iter().chain(urls.unwrap_or_default());
        let Some(first) = urls.next() else {
            return (nowhere(), Vec::new());
        };
        let others: Vec<_> = urls
            .map(|endpoint| Address {
                text: Arc::from(endpoint.address()),
                endpoint,
            })
            .collect();
        let other_kind = |other: &Address| {
            let (https, path) = (other.endpoint.https, &other.endpoint.base_path);
            https != first.https || *path != first.base_path
        };
        if one.is_none()
            && let Some(other) = others.iter().find(|other| other_kind(other))
        {
            let message = format!(
                "{} differs from {} in more than host and port; several urls are one tool, with \
                 one scheme and one path",
                other.text,
                first.address()
            );
            self.refuse(&scope.blame(&["urls"]), message);
        }
        (first, others)
    }

    /// `ejection`: on by itself where a tool has several addresses.
    pub(super) fn ejection(&mut self, scope: &Scope<'_>, several: bool) -> Option<Ejection> {
        let is_there = matches!(scope.get("ejection"), Some((Value::Map(_), _)));
        let scope = scope.section("ejection");
        if !scope.flag("enabled", is_there || several) {
            return None;
        }
        let usual = Ejection::default();
        let cause = |text: &str| Cause::from_word(text).ok_or_else(String::new);
        let count = |key, usual: u32| u32::try_from(scope.whole(key, usual as usize));
        let rule = Ejection {
            consecutive: count("consecutive", usual.consecutive).unwrap_or(u32::MAX),
            share: scope.number("share", usual.share),
            window: scope.duration("window", usual.window),
            samples: count("samples", usual.samples).unwrap_or(u32::MAX),
            base: scope.duration("base", usual.base),
            cap: scope.duration("cap", usual.cap),
            max_ejected: scope.number("max_ejected", usual.max_ejected),
            on: self.each(&scope, "on", cause).unwrap_or(usual.on),
        };
        if rule.cap < rule.base && !scope.any_bad(&["base", "cap"]) {
            let message = "`cap` is shorter than `base`; the time an address is left alone grows \
                           from `base` to `cap`";
            self.refuse(&scope.blame(&["cap", "base"]), message);
        }
        let never = rule.consecutive == 0 && rule.share == 0.0;
        if never && !scope.any_bad(&["consecutive", "share"]) {
            let message = "with `consecutive: 0` and `share: 0` nothing is ever ejected; write \
                           `enabled: false` for that";
            self.refuse(&scope.blame(&["consecutive", "share"]), message);
        }
        Some(rule)
    }

    /// Old addresses lead to one present one, or to several that know the same.
    pub(super) fn judge_addresses(&mut self, own: &Scope<'_>, route: &Route) {
        let upstream = &route.upstream;
        let several = !upstream.others.is_empty();
        if several && !upstream.formerly.is_empty() && !upstream.shared_state {
            let scope = own.section("upstream");
            let message = "several addresses, and nobody says which of them knows what the former \
                           one was sent; write `shared_state: true` if all do, else list the \
                           former address in `urls` until its calls are settled";
            self.refuse(&scope.blame(&["formerly"]), message);
        }
    }
}

/// An address nobody dials.
fn nowhere() -> Endpoint {
    names::endpoint("http://0.0.0.0:1").expect("a well-formed address")
}
