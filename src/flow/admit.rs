//! Letting a call in: its record, its claim, and the answer when the id is already known.
//!
//! Nothing leaves before the claim is durable. A ledger that cannot be written refuses the call;
//! nothing is sent then, and neither id nor key is bound.

use std::sync::Arc;

use bytes::Bytes;
use http::header::HOST;
use http::uri::PathAndQuery;
use http::{HeaderMap, HeaderValue};

use super::call::{Call, Decider, Place, Sendable};
use super::drive::Drive;
use super::told::{Problem, Told, Word};
use super::{Flow, Request, dedup, parting, reading, record};
use crate::call::code::{Code, Repeat, Sent};
use crate::call::machine::Machine;
use crate::call::time::Wall;
use crate::ledger::{Begun, Claim, LedgerError, NewCall, StoredRequest};
use crate::telemetry::labels::{AvoidedBy, Bound};
use crate::telemetry::log::CallLine;
use crate::upstream::Core;
use crate::upstream::headers::{self, Hop};

impl Flow {
    /// Makes the call (`effects: once`): records it, sends it, settles it or parks it. Runs to its
    /// end whether its caller stays or not.
    pub async fn call(self: &Arc<Self>, core: &Core, mut request: Request<Bytes>) -> Told {
        let Ok(target) = request.route.tool.target(&request.target) else {
            let detail = "The path cannot be appended to the tool's address. Correct the path.";
            return Told::refused_unseen(
                Some((request.call_id, request.source)),
                Code::BadRequest,
                detail,
            );
        };
        let fields = self.prepared(&mut request);
        let new = self.record(&request, &target, &fields, core);
        let credential = new.request.credential;
        match self.ledger.begin(new).await {
            Ok(Begun::Claimed(claim)) => {
                let recorded = core.clock.mono();
                let times = (request.received, recorded);
                let gone = request.gone.clone();
                let call = claimed(request, target, fields, claim, core.clock.wall(), credential);
                let machine = Machine::new(Arc::clone(&call.route.conf.policy), recorded);
                let mut drive = Drive::new(self, core, call, Decider::Line(machine), gone);
                drive.received(times.0, times.1);
                drive.run().await
            }
            Ok(begun) => {
                let told = known(&request, begun);
                line(&request, &fields, &told, core);
                told
            }
            Err(e) => {
                let told = self.unrecorded(&request, &e);
                line(&request, &fields, &told, core);
                told
            }
        }
    }

    /// The call as the ledger takes it. Its credentials end here.
    fn record(
        &self,
        request: &Request<Bytes>,
        target: &PathAndQuery,
        fields: &HeaderMap,
        core: &Core,
    ) -> NewCall {
        let route = &request.route;
        let now = core.clock.wall();
        let (headers, credential) = record::without_credentials(fields, &route.conf.secret_headers);
        NewCall {
            client: request.client.clone(),
            call_id: request.call_id.clone(),
            source: request.source,
            route: Arc::clone(&route.conf.name),
            upstream: Arc::clone(route.tool.address()),
            policy: Arc::clone(&route.policy_text),
            fingerprint: record::fingerprint(
                &request.method,
                request.target.as_str(),
                &request.body,
            ),
            idempotency_key: None,
            business_key: None,
            request: StoredRequest {
                method: request.method.clone(),
                target: Arc::from(target.as_str()),
                headers,
                body: request.body.clone(),
                credential,
            },
            trace: None,
            owner: self.owner.clone(),
            lease_until: self.lease_until(route, now),
            now,
            window: route.conf.idempotency.window,
            first_send: true,
            promised: false,
            exclusive_id: true,
        }
    }

    /// The request's fields as every send carries them: what ends at this hop is gone, this hop's
    /// traces are there.
    pub(super) fn prepared<B>(&self, request: &mut Request<B>) -> HeaderMap {
        let mut fields = std::mem::take(&mut request.headers);
        let host = request.authority.as_deref();
        if let Some(host) = host.and_then(|host| HeaderValue::from_str(host).ok()) {
            fields.insert(HOST, host);
        }
        let forwarded = headers::forwarded(request.peer.ip(), fields.get(HOST), "http");
        let hop = Hop {
            node: &self.node,
            version: request.version,
            forwarded: &forwarded,
        };
        headers::prepare(&mut fields, &request.route.conf.call_id.header, &hop);
        fields
    }

    fn unrecorded(&self, request: &Request<Bytes>, error: &LedgerError) -> Told {
        let (code, detail) = match error {
            LedgerError::Overloaded { .. } => {
                self.metrics.bounds.inc(Bound::LedgerQueue);
                let detail = "Too many records wait for the ledger; nothing was sent. Repeat the \
                              call under the same id a little later.";
                (Code::Overloaded, detail)
            }
            _ => {
                tracing::error!(
                    call_id = %request.call_id,
                    error = %error,
                    "the ledger cannot be written; the call was refused and nothing was sent"
                );
                let detail = "The durable record could not be written, so nothing was sent. \
                              Repeat the call under the same id.";
                (Code::LedgerUnavailable, detail)
            }
        };
        let mut problem = Problem::new(code, detail, Sent::Unknown, Repeat::SameCallIdOnly);
        problem.retry_after = Some(std::time::Duration::from_secs(1));
        Told::refused(Some((request.call_id.clone(), request.source)), problem)
    }
}

fn claimed(
    request: Request<Bytes>,
    target: PathAndQuery,
    fields: HeaderMap,
    claim: Claim,
    now: Wall,
    credential: bool,
) -> Call {
    Call {
        first_sent: now,
        same_address: true,
        place: Place::Line,
        client: request.client,
        call_id: request.call_id,
        source: request.source,
        claim,
        request: Sendable {
            method: request.method,
            target,
            headers: fields,
            idempotency_key: None,
            body: request.body,
            credential,
        },
        route: request.route,
    }
}

fn known(request: &Request<Bytes>, begun: Begun) -> Told {
    let refused = |problem| Told::refused(Some((request.call_id.clone(), request.source)), problem);
    let known = match begun {
        Begun::Known(known) | Begun::KeyTaken(known) => known,
        Begun::Foreign => return refused(dedup::reused_problem()),
        Begun::Claimed(_) => return refused(parting::internal()),
    };
    let told = dedup::told(&known);
    if told.word == Word::Replayed {
        request.route.metrics.avoided.inc(AvoidedBy::Replay);
    }
    told
}

/// The line of a call that was not driven.
fn line(request: &Request<Bytes>, fields: &HeaderMap, told: &Told, core: &Core) {
    CallLine {
        call_id: Some(&request.call_id),
        source: Some(request.source),
        route: &request.route.conf.name,
        client: Some(&request.client),
        outcome: told.word,
        status: told.shown.status(),
        code: told.shown.code(),
        attempts: &[],
        total: core.clock.mono().since(request.received),
        recorded: None,
        trace_id: reading::trace_id(fields),
        clean: false,
    }
    .emit();
}
