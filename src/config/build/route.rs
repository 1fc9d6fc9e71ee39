//! One route: its own keys over `defaults`, and its policy.

use std::sync::Arc;

use http::StatusCode;

use super::scope::Scope;
use super::{Builder, names};
use crate::call::outcome::Cause;
use crate::call::policy::{
    Compensation, Policy, Receipts, ResendOn, Retry, RetryNumbers, Reversal, Timeouts,
    UnresolvedAnswer,
};
use crate::config::defaults;
use crate::config::file::read::Value;
use crate::config::file::units::show_duration;
use crate::config::key_template::KeyTemplate;
use crate::config::matcher::{Matcher, PathPattern};
use crate::config::report::Path;
use crate::config::route::{
    Accepted, BodyLimits, CallIdRule, DetectNewIds, Effects, Idempotency, ResponseMode, Route,
};
use crate::config::words::Word;

impl Builder<'_> {
    /// Builds every route, in order.
    pub(super) fn routes(&mut self, root: &Scope<'_>) -> Vec<Arc<Route>> {
        let beneath = root.section("defaults");
        let Some((elements, path)) = root.list("routes") else {
            return Vec::new();
        };
        let mut routes: Vec<Arc<Route>> = Vec::with_capacity(elements.len());
        for (at, element) in elements.iter().enumerate() {
            let path = path.index(at);
            let own = Scope::new(element, &path);
            let route = self.route(&own, &beneath, &path);
            self.judge_order(&own, &route, &routes);
            self.judge_shared(&own, &route, &routes);
            self.judge_addresses(&own, &route);
            routes.push(Arc::new(route));
        }
        self.judge_former_routes(elements, &path, &routes);
        routes
    }

    fn route(&mut self, own: &Scope<'_>, beneath: &Scope<'_>, path: &Path) -> Route {
        let scope = own.clone().over(beneath);
        let name = self
            .parsed(own, "name", names::route)
            .unwrap_or_else(|| Arc::from(path.to_string()));
        let upstream = self.upstream(&own.section("upstream"));
        let asked = matches!(own.get("receipt"), Some((Value::Map(_), _)));
        let receipt = asked.then(|| self.receipt(&own.section("receipt"), &upstream));
        let (receipt, receipts) = receipt.unzip();
        let answer = matches!(own.get("answer"), Some((Value::Map(_), _)))
            .then(|| self.answer(&own.section("answer")));
        let compensation = scope.section("compensation");
        let (reversal, numbers) = self.reversal(own, &compensation).unzip();
        let route = Route {
            matcher: self.matcher(&own.section("match")),
            effects: effects(own),
            secret_headers: self
                .each(own, "secret_headers", names::header_name)
                .unwrap_or_default(),
            call_id: self.call_id(&own.section("call_id"), &name),
            answer,
            accepted: own.word("accepted", Accepted::Final),
            body: body(&scope.section("body")),
            response: scope.word("response", ResponseMode::Auto),
            idempotency: self.idempotency(&scope.section("idempotency")),
            reversal,
            reversible: compensation.flag("reversible", true),
            limits: self.route_limits(&own.section("limits")),
            detect_new_ids: scope.word("detect_new_ids", DetectNewIds::default()),
            formerly: self.each(own, "formerly", names::route).unwrap_or_default(),
            compensation_workers: scope
                .section("compensation")
                .whole("workers", defaults::COMPENSATION_WORKERS),
            alert: self.alert(&scope.section("compensation").section("alert")),
            policy: Arc::new(self.policy(&scope, receipts, numbers)),
            name,
            upstream,
            receipt,
        };
        self.judge(&scope, &route);
        route
    }

    fn matcher(&mut self, scope: &Scope<'_>) -> Matcher {
        let pattern = |text: &str| PathPattern::parse(text).map_err(str::to_owned);
        Matcher {
            host: self.parsed(scope, "host", names::host),
            path: self
                .parsed(scope, "path", pattern)
                .unwrap_or_else(PathPattern::everything),
            methods: self.each(scope, "methods", names::method),
        }
    }

    fn call_id(&mut self, scope: &Scope<'_>, name: &Arc<str>) -> CallIdRule {
        CallIdRule {
            header: self
                .parsed(scope, "header", names::free_header_name)
                .unwrap_or(defaults::CALL_ID_HEADER),
            prefix: self
                .parsed(scope, "prefix", names::node)
                .unwrap_or_else(|| name.clone()),
            body: self.parsed(scope, "body", names::member),
        }
    }

    fn idempotency(&mut self, scope: &Scope<'_>) -> Idempotency {
        let default = Idempotency::default();
        let send = scope.section("send");
        Idempotency {
            header: self
                .parsed(scope, "header", names::free_header_name)
                .unwrap_or(default.header),
            key: self.parsed(scope, "key", KeyTemplate::parse),
            time_zone: self
                .parsed(scope, "time_zone", names::time_zone)
                .unwrap_or(default.time_zone),
            hash: scope.word("hash", default.hash),
            required: scope.flag("required", default.required),
            window: scope.duration("window", default.window),
            send_header: self.parsed(&send, "header", names::free_header_name),
            send_body: self.parsed(&send, "body", names::member),
            scope: self.parsed(scope, "scope", names::node),
            exclude: self
                .each(scope, "exclude", names::member)
                .unwrap_or(default.exclude),
        }
    }

    fn policy(
        &mut self,
        scope: &Scope<'_>,
        receipt: Option<Receipts>,
        reversal: Option<Reversal>,
    ) -> Policy {
        let default = Policy::default();
        let status = scope.whole(
            "unresolved_status",
            usize::from(default.unresolved_status.as_u16()),
        );
        let answer = scope.text("unresolved_answer");
        Policy {
            timeouts: timeouts(&scope.section("timeouts")),
            retry: self.retry(&scope.section("retry")),
            receipt,
            compensation: Compensation {
                reversal,
                ..compensation(&scope.section("compensation"))
            },
            unresolved_status: u16::try_from(status)
                .ok()
                .and_then(|status| StatusCode::from_u16(status).ok())
                .unwrap_or(default.unresolved_status),
            unresolved_answer: answer
                .and_then(|(text, _)| UnresolvedAnswer::from_word(text))
                .unwrap_or(UnresolvedAnswer::ByIdSource),
            on_client_gone: scope.word("on_client_gone", default.on_client_gone),
        }
    }

    fn retry(&mut self, scope: &Scope<'_>) -> Retry {
        let default = RetryNumbers::default();
        let on = |text: &str| Cause::from_word(text).ok_or_else(String::new);
        let numbers = RetryNumbers {
            max_retries: u8::try_from(scope.whole("max_retries", usize::from(default.max_retries)))
                .unwrap_or(u8::MAX),
            base: scope.duration("base", default.base),
            factor: scope.number("factor", default.factor),
            cap: scope.duration("cap", default.cap),
            jitter: scope.number("jitter", default.jitter),
            on: self.each(scope, "on", on).unwrap_or(default.on),
            resend_on: self.resend_on(scope),
        };
        let (base, cap) = (numbers.base, numbers.cap);
        Retry::new(numbers).unwrap_or_else(|error| {
            // The reader proved every number by itself and told what it refused; what is left is
            // that two of them do not fit together.
            if !scope.any_bad(&["base", "cap"]) {
                let message = format!(
                    "expected {}; `base` is {}, `cap` is {}",
                    error.expected,
                    show_duration(base),
                    show_duration(cap)
                );
                self.refuse(&scope.blame(&[error.key, "base"]), message);
            }
            Retry::new(RetryNumbers::default()).expect("the defaults are in range")
        })
    }

    fn resend_on(&mut self, scope: &Scope<'_>) -> ResendOn {
        let plain = |text: &str| Ok(text.to_owned());
        let Some(words) = self.each(scope, "resend_on", plain) else {
            return RetryNumbers::default().resend_on;
        };
        let has = |word: &str| words.iter().any(|given| given == word);
        match (has("NOT_FOUND"), has("UNKNOWN")) {
            (false, false) => ResendOn::Nothing,
            (true, false) => ResendOn::NotFound,
            (true, true) => ResendOn::NotFoundOrUnknown,
            (false, true) => {
                let form = "expected [], [NOT_FOUND] or [NOT_FOUND, UNKNOWN]: whoever resends \
                            after UNKNOWN also does after NOT_FOUND";
                self.refuse(&scope.blame(&["resend_on"]), form);
                ResendOn::NotFound
            }
        }
    }
}

fn effects(scope: &Scope<'_>) -> Effects {
    match scope.text("effects") {
        Some(("once", _)) => Effects::Once,
        Some(("none", _)) => Effects::None,
        _ => Effects::ByMethod,
    }
}

fn body(scope: &Scope<'_>) -> BodyLimits {
    let default = BodyLimits::default();
    BodyLimits {
        max_request: scope.size("max_request", default.max_request),
        max_kept_response: scope.size("max_kept_response", default.max_kept_response),
    }
}

fn timeouts(scope: &Scope<'_>) -> Timeouts {
    let default = Timeouts::default();
    Timeouts {
        connect: scope.duration("connect", default.connect),
        attempt: scope.duration("attempt", default.attempt),
        idle: scope.duration("idle", default.idle),
        receipt: scope.duration("receipt", default.receipt),
        total: scope.duration("total", default.total),
        late: scope.duration("late", default.late),
    }
}

fn compensation(scope: &Scope<'_>) -> Compensation {
    let default = Compensation::default();
    let rounds = scope.list("rounds").map(|(elements, _)| {
        let gap = |element: &Value| match element {
            Value::Duration(gap) => Some(*gap),
            _ => None,
        };
        elements.iter().filter_map(gap).collect()
    });
    Compensation {
        rounds: rounds.unwrap_or(default.rounds),
        resend: scope.flag("resend", default.resend),
        lease: scope.duration("lease", default.lease),
        on_failed: scope.word("on_failed", default.on_failed),
        reversal: None,
    }
}
