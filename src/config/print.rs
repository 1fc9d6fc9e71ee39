//! The effective configuration, written out: what `check --print` and the admin API show.
//!
//! Every value stands where an operator would write it, defaults and inheritance worked in, so the
//! text is itself a valid configuration that means the same. Secrets are masked; a dollar sign is
//! doubled, because the text was filled in already.

use serde_json::{Map, Value, json};

use super::alert::AlertRule;
use super::clients::Client;
use super::file::fill::escape;
use super::file::to_yaml;
use super::file::units::{show_duration, show_size};
use super::limits::RouteLimits;
use super::resolved::{Config, LedgerUrl};
use super::reversal::ReversalRule;
use super::route::{Effects, Endpoint, Idempotency, ReceiptRule, Route, Upstream, Words};
use super::snapshot::{resend_words, when_words};
use super::words::Word;
use crate::call::policy::{Policy, Receipts, Retry, Reversal};
use crate::call::receipt::State;

/// What stands for a secret.
const MASK: &str = "***";

impl Config {
    /// The effective configuration as YAML.
    #[must_use]
    pub fn print(&self) -> String {
        let memory = self.memory(self.cores()).to_string();
        let memory: String = memory.lines().map(|line| format!("# {line}\n")).collect();
        memory + &to_yaml(&self.effective())
    }

    /// The effective configuration as JSON, key by key as in the file.
    #[must_use]
    pub fn effective(&self) -> Value {
        let mut admin = json!({ "listen": self.admin.listen.to_string() });
        if self.admin.token.is_some() {
            admin["token"] = MASK.into();
        }
        let url = match &self.ledger.url {
            LedgerUrl::Memory => "memory:".to_owned(),
            LedgerUrl::Sqlite(path) => escape(&format!("sqlite:{}", path.display())),
        };
        json!({
            "node": &*self.node,
            "log": { "level": word(self.log.level), "format": word(self.log.format) },
            "workers": self.workers,
            "listen": self.listen.to_string(),
            "limits": {
                "connections": self.limits.connections,
                "calls": self.limits.calls,
                "bodies": show_size(self.limits.bodies),
                "async_calls": self.limits.async_calls,
                "connections_per_address": self.limits.connections_per_address,
                "headers": self.limits.headers,
                "header_bytes": show_size(self.limits.header_bytes),
                "header_timeout": show_duration(self.limits.header_timeout),
                "body_timeout": show_duration(self.limits.body_timeout),
                "keepalive": show_duration(self.limits.keepalive),
            },
            "admin": admin,
            "ledger": {
                "url": url,
                "sync": word(self.ledger.sync),
                "queue": self.ledger.queue,
                "retention": show_duration(self.ledger.retention),
            },
            "drain": {
                "delay": show_duration(self.drain.delay),
                "grace": show_duration(self.drain.grace),
            },
            "clients": self.clients.iter().map(show_client).collect::<Vec<_>>(),
            "routes": self.routes.iter().map(|route| show_route(route)).collect::<Vec<_>>(),
        })
    }
}

fn show_client(client: &Client) -> Value {
    let path = client.key_file.display().to_string();
    json!({
        "name": &*client.name,
        "key_file": escape(&path),
        "formerly": texts(client.formerly.iter()),
    })
}

fn show_route(route: &Route) -> Value {
    let policy = &*route.policy;
    let mut shown = Map::new();
    let mut put = |key: &str, value: Value| {
        shown.insert(key.to_owned(), value);
    };
    put("name", (&*route.name).into());
    put("match", show_match(route));
    put("upstream", show_upstream(&route.upstream));
    match route.effects {
        Effects::Once => put("effects", "once".into()),
        Effects::None => put("effects", "none".into()),
        Effects::ByMethod => {}
    }
    put("secret_headers", texts(route.secret_headers.iter()));
    let mut call_id =
        json!({ "header": route.call_id.header.as_str(), "prefix": &*route.call_id.prefix });
    if let Some(pointer) = &route.call_id.body {
        call_id["body"] = escape(pointer.as_str()).into();
    }
    put("call_id", call_id);
    if let (Some(rule), Some(numbers)) = (&route.receipt, &policy.receipt) {
        put("receipt", show_receipt(rule, numbers));
    }
    if let Some(answer) = &route.answer {
        let state = escape(answer.state.as_str());
        put(
            "answer",
            json!({ "state": state, "states": show_states(&answer.states) }),
        );
    }
    put("accepted", word(route.accepted));
    if route.limits != RouteLimits::default() {
        put("limits", show_limits(&route.limits));
    }
    put("timeouts", show_timeouts(policy));
    put("retry", show_retry(&policy.retry));
    put(
        "body",
        json!({
            "max_request": show_size(route.body.max_request),
            "max_kept_response": show_size(route.body.max_kept_response),
        }),
    );
    put("idempotency", show_keys(&route.idempotency));
    put("compensation", show_compensation(route));
    put(
        "unresolved_status",
        policy.unresolved_status.as_u16().into(),
    );
    if let Some(answer) = policy.unresolved_answer.word() {
        put("unresolved_answer", answer.into());
    }
    put("response", word(route.response));
    put("on_client_gone", word(policy.on_client_gone));
    put("detect_new_ids", word(route.detect_new_ids));
    put("formerly", texts(route.formerly.iter()));
    Value::Object(shown)
}

fn show_limits(limits: &RouteLimits) -> Value {
    let mut shown = Map::new();
    for (key, rate) in [("rate", limits.rate), ("client_rate", limits.client_rate)] {
        if let Some(rate) = rate {
            shown.insert(key.to_owned(), rate.to_string().into());
        }
    }
    if let Some(most) = limits.client_concurrent {
        shown.insert("client_concurrent".to_owned(), most.into());
    }
    Value::Object(shown)
}

fn show_match(route: &Route) -> Value {
    let mut shown = Map::new();
    if let Some(host) = &route.matcher.host {
        shown.insert("host".to_owned(), (&**host).into());
    }
    shown.insert(
        "path".to_owned(),
        escape(route.matcher.path.as_str()).into(),
    );
    if let Some(methods) = &route.matcher.methods {
        shown.insert("methods".to_owned(), texts(methods.iter()));
    }
    Value::Object(shown)
}

fn show_upstream(upstream: &Upstream) -> Value {
    let urls: Vec<String> = upstream.addresses().map(|url| escape(url)).collect();
    let mut shown = match &*urls {
        [url] => json!({ "url": url }),
        urls => json!({ "urls": urls }),
    };
    shown["shared_state"] = upstream.shared_state.into();
    if let Some(prefix) = &upstream.strip_prefix {
        shown["strip_prefix"] = escape(prefix).into();
    }
    shown["host"] = word(upstream.host);
    shown["protocol"] = word(upstream.pool.protocol);
    let masked = |name: &http::HeaderName| (name.as_str().to_owned(), MASK.into());
    shown["headers"] = Value::Object(upstream.headers.keys().map(masked).collect());
    if let Some(ca) = &upstream.ca {
        shown["ca_file"] = escape(&ca.path.display().to_string()).into();
    }
    shown["kind"] = word(upstream.kind);
    shown["pool"] = json!({
        "idle": show_duration(upstream.pool.idle),
        "max_idle": upstream.pool.max_idle,
    });
    shown["late_max"] = upstream.late_max.into();
    if let Some(field) = &upstream.tenant_header {
        shown["tenant_header"] = field.as_str().into();
    }
    if let Some(concurrency) = &upstream.concurrency {
        shown["concurrency"] = json!({
            "max": concurrency.max,
            "queue": concurrency.queue,
            "adaptive": word(concurrency.adaptive),
        });
    }
    if let Some(budget) = &upstream.retry_budget {
        shown["retry_budget"] = json!({
            "ratio": budget.ratio,
            "floor": budget.floor,
            "per_client": budget.per_client,
            "rounds": budget.rounds,
            "receipts": budget.receipts,
        });
    }
    shown["resolve"] = show_duration(upstream.resolve).into();
    shown["ejection"] = upstream.ejection.as_ref().map_or_else(
        || json!({ "enabled": false }),
        |rule| {
            json!({
                "enabled": true,
                "consecutive": rule.consecutive,
                "share": rule.share,
                "window": show_duration(rule.window),
                "samples": rule.samples,
                "base": show_duration(rule.base),
                "cap": show_duration(rule.cap),
                "max_ejected": rule.max_ejected,
                "on": rule.on.iter().copied().map(word).collect::<Vec<_>>(),
            })
        },
    );
    shown["formerly"] = upstream.formerly.iter().map(|url| escape(url)).collect();
    shown
}

fn show_receipt(rule: &ReceiptRule, numbers: &Receipts) -> Value {
    let base = rule
        .elsewhere
        .as_ref()
        .map(Endpoint::address)
        .unwrap_or_default();
    let mut shown = json!({ "method": rule.method.as_str() });
    if !rule.at_root {
        shown["url"] = escape(&format!("{base}{}", rule.path)).into();
    }
    if let Some(body) = &rule.body {
        shown["body"] = escape(&body.to_string()).into();
    }
    let pointer = |pointer: &super::template::JsonPointer| Value::from(escape(pointer.as_str()));
    shown["credentials"] = word(rule.credentials);
    shown["state"] = pointer(&rule.state);
    shown["call_id"] = pointer(&rule.call_id);
    shown["states"] = show_states(&rule.states);
    shown["not_found"] = rule
        .not_found
        .iter()
        .map(|status| status.as_u16())
        .collect();
    shown["result"] = json!({
        "status": pointer(&rule.result.status),
        "headers": pointer(&rule.result.headers),
        "body": pointer(&rule.result.body),
        "encoding": pointer(&rule.result.encoding),
    });
    shown["max_body"] = show_size(rule.max_body).into();
    shown["records"] = word(numbers.records);
    shown["settle"] = show_duration(numbers.settle).into();
    shown["retention"] = show_duration(numbers.retention).into();
    shown["believe_not_found"] = word(numbers.believe_not_found);
    shown
}

fn show_states(words: &Words) -> Value {
    let of = |state: State| -> Value {
        words
            .iter()
            .filter(|(_, meant)| *meant == state)
            .map(|(word, _)| escape(word))
            .collect()
    };
    Value::Object(
        State::ALL
            .map(|state| (state.as_str().to_owned(), of(state)))
            .into_iter()
            .collect(),
    )
}

fn show_timeouts(policy: &Policy) -> Value {
    let t = policy.timeouts;
    json!({
        "connect": show_duration(t.connect),
        "attempt": show_duration(t.attempt),
        "idle": show_duration(t.idle),
        "receipt": show_duration(t.receipt),
        "total": show_duration(t.total),
        "late": show_duration(t.late),
    })
}

fn show_retry(retry: &Retry) -> Value {
    let n = retry.numbers();
    json!({
        "max_retries": n.max_retries,
        "base": show_duration(n.base),
        "factor": n.factor,
        "cap": show_duration(n.cap),
        "jitter": n.jitter,
        "on": n.on.into_iter().map(word).collect::<Vec<_>>(),
        "resend_on": resend_words(n.resend_on),
    })
}

fn show_keys(keys: &Idempotency) -> Value {
    let mut shown = json!({
        "header": keys.header.as_str(),
        "time_zone": keys.time_zone.iana_name(),
        "hash": word(keys.hash),
        "required": keys.required,
        "window": show_duration(keys.window),
    });
    if let Some(template) = &keys.key {
        shown["key"] = template.to_string().into();
    }
    let mut send = Map::new();
    if let Some(header) = &keys.send_header {
        send.insert("header".to_owned(), header.as_str().into());
    }
    if let Some(body) = &keys.send_body {
        send.insert("body".to_owned(), body.as_str().into());
    }
    if !send.is_empty() {
        shown["send"] = Value::Object(send);
    }
    if let Some(scope) = &keys.scope {
        shown["scope"] = (&**scope).into();
    }
    let exclude = keys.exclude.iter().map(|place| escape(place.as_str()));
    shown["exclude"] = exclude.collect();
    shown
}

fn show_compensation(route: &Route) -> Value {
    let compensation = &route.policy.compensation;
    let rounds = compensation.rounds.iter().copied();
    let mut shown = json!({
        "rounds": rounds.map(show_duration).collect::<Vec<_>>(),
        "resend": compensation.resend,
        "lease": show_duration(compensation.lease),
        "workers": route.compensation_workers,
        "on_failed": word(compensation.on_failed),
        "reversible": route.reversible,
    });
    if let Some(rule) = &route.alert {
        shown["alert"] = show_alert(rule);
    }
    if let (Some(rule), Some(numbers)) = (&route.reversal, compensation.reversal) {
        shown["reversal"] = show_reversal(rule, numbers);
    }
    shown
}

/// The path of a webhook often is its secret.
fn show_alert(rule: &AlertRule) -> Value {
    let masked = |name: &http::HeaderName| (name.as_str().to_owned(), MASK.into());
    let mut shown = json!({
        "webhook": format!("{}/{MASK}", rule.origin()),
        "on": rule.on.iter().copied().map(word).collect::<Vec<_>>(),
        "repeat": show_duration(rule.repeat),
        "headers": Value::Object(rule.headers.keys().map(masked).collect()),
    });
    if let Some(age) = rule.oldest_over {
        shown["oldest_over"] = show_duration(age).into();
    }
    if let Some(ca) = &rule.ca {
        shown["ca_file"] = escape(&ca.path.display().to_string()).into();
    }
    if let Some(secret) = &rule.secret {
        shown["secret_file"] = escape(&secret.path().display().to_string()).into();
    }
    shown
}

fn show_reversal(rule: &ReversalRule, numbers: Reversal) -> Value {
    let base = rule
        .elsewhere
        .as_ref()
        .map(Endpoint::address)
        .unwrap_or_default();
    let masked = |name: &http::HeaderName| (name.as_str().to_owned(), MASK.into());
    let mut shown = json!({
        "url": escape(&format!("{base}{}", rule.path)),
        "method": rule.method.as_str(),
        "headers": Value::Object(rule.headers.keys().map(masked).collect()),
        "when": when_words(numbers).collect::<Vec<_>>(),
        "min_age": show_duration(numbers.min_age),
        "max_age": show_duration(numbers.max_age),
    });
    if let Some(body) = &rule.body {
        shown["body"] = escape(&body.to_string()).into();
    }
    shown
}

fn word(value: impl Word) -> Value {
    value.word().map_or(Value::Null, Value::from)
}

fn texts(items: impl Iterator<Item = impl ToString>) -> Value {
    items.map(|item| item.to_string()).collect()
}
