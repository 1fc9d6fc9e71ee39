//! A request at the door of its call, with all that is known about it before the ledger is asked.
//!
//! Deliberately absent: every decision (`admit`).

use bytes::Bytes;
use http::uri::PathAndQuery;
use http::{HeaderMap, HeaderValue};

use super::call::{Call, Place, Sendable};
use super::key::Key;
use super::running::Asked;
use super::sites::Choice;
use super::told::{Problem, Told};
use super::{Request, reading, record};
use super::{allow, dedup};
use crate::call::id::{CallId, IdSource};
use crate::call::time::{Mono, Wall};
use crate::ledger::{CallView, Claim};
use crate::telemetry::log::{AttemptLine, CallLine};
use crate::upstream::Core;

/// A request at the door of its call.
pub(super) struct Visit {
    pub(super) request: Request<Bytes>,
    /// Path and query as they go to the tool.
    pub(super) target: PathAndQuery,
    /// The request's fields as every send carries them.
    pub(super) fields: HeaderMap,
    pub(super) asked: Asked,
    pub(super) key: Option<Key>,
    /// When it was first seen, where its key depends on that.
    pub(super) seen: Option<Wall>,
    /// The call it undoes, as its caller says.
    pub(super) reverses: Option<CallId>,
    /// How long its caller waits for a call that is another request's to end.
    pub(super) until: Mono,
    /// Its place among the tool's sends, where they are bounded.
    pub(super) place: Option<allow::Place>,
    /// The address it is first sent to.
    pub(super) site: usize,
    /// How that was chosen.
    pub(super) choice: Option<Choice>,
}

impl Visit {
    /// The call that this request has made its own.
    pub(super) fn claimed(self, claim: Claim, now: Wall) -> Call {
        let idempotency_key = self.key_value();
        let request = self.request;
        // Who was promised the call reads its answer only while it waits for it all the same.
        let waits = request.prefer.wait.is_some_and(|wait| !wait.is_zero());
        let is_read = !request.promised || waits;
        let secret = &request.route.conf.secret_headers;
        let credential = record::credentials(&self.fields, secret).next().is_some();
        Call {
            first_sent: now,
            same_address: true,
            recognised: false,
            was_told: false,
            moves: false,
            site: self.site,
            via: self.site,
            first: Some(self.choice.unwrap_or(Choice::Plain)),
            place: Place::Line,
            is_read,
            client: request.client,
            call_id: request.call_id,
            source: request.source,
            claim,
            undo: None,
            request: Sendable {
                method: request.method,
                target: self.target,
                headers: self.fields,
                idempotency_key,
                body: request.body,
                credential,
            },
            route: request.route,
        }
    }

    /// The key as the tool gets it.
    pub(super) fn key_value(&self) -> Option<HeaderValue> {
        let key = self.key.as_ref()?;
        Some(HeaderValue::from_str(&key.text).expect("a key is visible ASCII"))
    }

    /// Takes the key that this call id has had since `call` was first seen, where it has windows
    /// and everything else in it is the same; whether that changed it.
    pub(super) fn takes_key_of(&mut self, call: &CallView) -> bool {
        let windowed = self.key.as_ref().and_then(|key| key.windowed.as_ref());
        let Some(Ok(then)) = windowed.map(|windowed| windowed.at(call.received_at)) else {
            return false;
        };
        let is_its = call.idempotency_key.as_ref() == Some(&then.text);
        let takes = call.fingerprint == self.asked.fingerprint
            && is_its
            && self.key.as_ref() != Some(&then);
        if takes {
            self.key = Some(then);
        }
        takes
    }

    /// What is told about a call of this id that this request is not.
    pub(super) fn mismatch(&self, call: &CallView) -> Problem {
        if call.fingerprint == self.asked.fingerprint {
            dedup::other_key_problem(call.idempotency_key.as_deref())
        } else {
            dedup::reused_problem()
        }
    }

    /// What is told about a call that another request with this one's key began.
    pub(super) fn about_first(&self, told: Told, first: &CallId) -> Told {
        if *first == self.request.call_id {
            return told;
        }
        Told {
            call: self.named(),
            original: Some(first.clone()),
            ..told
        }
    }

    /// A refusal of this request.
    pub(super) fn refused(&self, problem: Problem, core: &Core) -> Told {
        self.lined(Told::refused(self.named(), problem), core)
    }

    /// What is told, with its line in the log.
    pub(super) fn lined(&self, told: Told, core: &Core) -> Told {
        self.line(&told, &[], core);
        told
    }

    /// The call's id, and who made it.
    pub(super) fn named(&self) -> Option<(CallId, IdSource)> {
        Some((self.request.call_id.clone(), self.request.source))
    }

    /// The line of a request that was not the first at its call.
    pub(super) fn line(&self, told: &Told, attempts: &[AttemptLine], core: &Core) {
        CallLine {
            trace_id: reading::trace_id(&self.fields),
            ..self.request.line(told, attempts, core.clock.mono())
        }
        .emit();
    }
}
