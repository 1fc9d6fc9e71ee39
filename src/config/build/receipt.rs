//! How a tool is asked, and how its words are read: `receipt` and `answer`.

use http::uri::PathAndQuery;
use http::{Method, StatusCode};

use super::scope::Scope;
use super::{Builder, names};
use crate::call::policy::Receipts;
use crate::call::receipt::State;
use crate::config::defaults;
use crate::config::file::read::Value;
use crate::config::route::{
    AnswerRule, Credentials, Endpoint, ReceiptRule, ResultPointers, Upstream, UpstreamKind, Words,
};
use crate::config::template::{JsonPointer, Part, Template};

/// Statuses that say something else than "never heard of it": not allowed, too early, too often.
const NEVER_NOT_FOUND: [u16; 6] = [401, 403, 407, 408, 425, 429];

impl Builder<'_> {
    /// Builds `receipt`: how to ask, and the numbers a decision needs.
    pub(super) fn receipt(
        &mut self,
        scope: &Scope<'_>,
        upstream: &Upstream,
    ) -> (ReceiptRule, Receipts) {
        let given = self.parsed(scope, "url", receipt_url);
        // Another callgate answers at its root, whatever path the upstream's url has.
        let at_root = given.is_none() && upstream.kind == UpstreamKind::Callgate;
        let (elsewhere, path) = given.unwrap_or_else(|| (None, standard_path(upstream.kind)));
        let post = scope.text("method").is_some_and(|(text, _)| text == "POST");
        let body = self.parsed(scope, "body", template);
        if body.is_some() && !post && !scope.any_bad(&["method"]) {
            self.refuse(
                &scope.blame(&["body"]),
                "only a POST has a body; add `method: POST`",
            );
        }
        let named = [Some(&path), body.as_ref()]
            .into_iter()
            .flatten()
            .any(names_the_call);
        if !named && !scope.any_bad(&["url", "body"]) {
            self.warn(
                &scope.blame(&["url"]),
                "neither url nor body names {call_id}; the tool has only the X-Call-Id field to \
                 tell calls apart",
            );
        }
        let rule = ReceiptRule {
            elsewhere,
            at_root,
            path,
            method: if post { Method::POST } else { Method::GET },
            body,
            state: self.pointer(scope, "state", "/state"),
            call_id: self
                .parsed(scope, "call_id", id_pointer)
                .unwrap_or_else(|| default_pointer("/callId")),
            states: self.states(scope),
            not_found: self.not_found(scope),
            result: self.result_pointers(&scope.section("result")),
            max_body: scope.size("max_body", defaults::RECEIPT_BODY_MAX),
            credentials: scope.word("credentials", Credentials::Forward),
        };
        let default = Receipts::default();
        let numbers = Receipts {
            settle: scope.duration("settle", default.settle),
            retention: scope.duration("retention", default.retention),
            records: scope.word("records", default.records),
            believe_not_found: scope.word("believe_not_found", default.believe_not_found),
        };
        (rule, numbers)
    }

    /// Builds `answer`: how the body of a 2xx is read.
    pub(super) fn answer(&mut self, scope: &Scope<'_>) -> AnswerRule {
        AnswerRule {
            state: self.pointer(scope, "state", "/state"),
            states: self.states(scope),
        }
    }

    fn pointer(&mut self, scope: &Scope<'_>, key: &str, default: &str) -> JsonPointer {
        self.parsed(scope, key, names::pointer)
            .unwrap_or_else(|| default_pointer(default))
    }

    fn result_pointers(&mut self, scope: &Scope<'_>) -> ResultPointers {
        let default = ResultPointers::default();
        let mut pointer = |key, parse: fn(&str) -> _| self.parsed(scope, key, parse);
        // The whole receipt may be the body, and a bare number the status.
        ResultPointers {
            status: pointer("status", names::pointer).unwrap_or(default.status),
            headers: pointer("headers", names::member).unwrap_or(default.headers),
            body: pointer("body", names::pointer).unwrap_or(default.body),
            encoding: pointer("encoding", names::member).unwrap_or(default.encoding),
        }
    }

    /// The tool's words: a state that is listed has exactly these, one that is not has its own
    /// name.
    fn states(&mut self, scope: &Scope<'_>) -> Words {
        let scope = scope.section("states");
        let mut pairs: Vec<(Box<str>, State)> = Vec::new();
        for state in State::ALL {
            let Some((elements, path)) = scope.list(state.as_str()) else {
                pairs.push((Box::from(state.as_str()), state));
                continue;
            };
            for (at, element) in elements.iter().enumerate() {
                let Value::Text(word) = element else { continue };
                if word.is_empty() {
                    self.refuse(&path.index(at), "expected a word, found nothing");
                }
                pairs.push((Box::from(word.as_str()), state));
            }
        }
        for (at, (word, state)) in pairs.iter().enumerate() {
            if let Some((_, first)) = pairs[..at].iter().find(|(known, _)| known == word) {
                let message = format!(
                    "the word {word:?} stands for {} and for {}; every word has one meaning (a \
                     state that is not listed has its own name)",
                    first.as_str(),
                    state.as_str()
                );
                self.refuse(&scope.blame(&[state.as_str(), first.as_str()]), message);
            }
        }
        Words::new(pairs)
    }

    fn not_found(&mut self, scope: &Scope<'_>) -> Vec<StatusCode> {
        let Some((elements, path)) = scope.list("not_found") else {
            return vec![StatusCode::NOT_FOUND];
        };
        let mut statuses = Vec::new();
        for (at, element) in elements.iter().enumerate() {
            let Value::Whole(number) = element else {
                continue;
            };
            let status = u16::try_from(*number)
                .ok()
                .filter(|n| may_mean_not_found(*n));
            match status.and_then(|n| StatusCode::from_u16(n).ok()) {
                Some(status) => statuses.push(status),
                None => self.refuse(
                    &path.index(at),
                    format!(
                        "expected a status that means \"never heard of it\": 404, another 4xx but \
                         not 401, 403, 407, 408, 425 or 429, or 204; found {number}"
                    ),
                ),
            }
        }
        statuses
    }
}

fn may_mean_not_found(status: u16) -> bool {
    status == 204 || ((400..=499).contains(&status) && !NEVER_NOT_FOUND.contains(&status))
}

fn names_the_call(template: &Template) -> bool {
    template.names(&Part::CallId) || template.names(&Part::IdempotencyKey)
}

fn default_pointer(text: &str) -> JsonPointer {
    JsonPointer::parse(text).expect("a default pointer begins with a slash")
}

/// Where a receipt names its call: the whole receipt is no id.
fn id_pointer(text: &str) -> Result<JsonPointer, String> {
    names::member(text).map_err(|_| {
        "a JSON pointer to a field, such as /callId; an id that is not in a receipt is not compared"
            .to_owned()
    })
}

fn template(text: &str) -> Result<Template, String> {
    Template::parse(text)
        .map_err(|name| format!("{{call_id}} or {{idempotency_key}} instead of {{{name}}}"))
}

/// A URL's place, if the text begins with one, and the path.
pub(super) fn place_of(text: &str) -> Result<(Option<Endpoint>, &str), String> {
    // A path may hold a URL, but it is none: `//host/path` would be asked of the upstream.
    let at = match text.find("://") {
        _ if text.starts_with("//") => {
            return Err("a path with one slash in front, or an http:// or https:// URL".to_owned());
        }
        Some(at) if !text.starts_with('/') => at,
        Some(_) | None => return Ok((None, text)),
    };
    let slash = text[at + 3..]
        .find('/')
        .map_or(text.len(), |slash| at + 3 + slash);
    Ok((Some(names::endpoint(&text[..slash])?), &text[slash..]))
}

/// A path below the upstream's, or a URL whose path may have places.
fn receipt_url(text: &str) -> Result<(Option<Endpoint>, Template), String> {
    let (endpoint, path) = place_of(text)?;
    let template = template(path)?;
    let braces = template
        .parts()
        .iter()
        .any(|part| matches!(part, Part::Literal(text) if text.contains(['{', '}', '#'])));
    let example = path
        .replace("{call_id}", "x")
        .replace("{idempotency_key}", "x");
    if braces || !path.starts_with('/') || PathAndQuery::try_from(example.as_str()).is_err() {
        let form = "a path such as /receipts/{call_id}, or an http:// or https:// URL with one, \
                    without fragment";
        return Err(form.to_owned());
    }
    Ok((endpoint, template))
}

/// Where receipts are when `url` is not given.
fn standard_path(kind: UpstreamKind) -> Template {
    let path = match kind {
        UpstreamKind::Tool => defaults::RECEIPT_PATH,
        UpstreamKind::Callgate => defaults::CALLGATE_RECEIPT_PATH,
    };
    Template::parse(path).expect("a default names known places only")
}
