//! Letting a call in: a place at the call it names, its record, its claim.
//!
//! Nothing leaves before the claim is durable. A ledger that cannot be written refuses the call;
//! nothing is sent then, and neither id nor key is bound. Deliberately absent: what becomes of a
//! request whose id is known (`join` while the call runs, `repeat` afterwards).

use std::sync::Arc;

use bytes::Bytes;
use http::header::HOST;
use http::uri::PathAndQuery;
use http::{HeaderMap, HeaderValue};

use super::call::{Call, Decider, Place, Sendable};
use super::drive::Drive;
use super::join;
use super::running::{Asked, Entered, Lead};
use super::told::{Problem, Told};
use super::{Flow, Request, dedup, reading, record};
use crate::call::code::{Code, Repeat, Sent};
use crate::call::id::{CallId, IdSource};
use crate::call::machine::Machine;
use crate::call::policy::OnClientGone;
use crate::call::time::{Mono, Wall};
use crate::ledger::{Begun, Claim, LedgerError, NewCall, StoredRequest};
use crate::telemetry::labels::Bound;
use crate::telemetry::log::{AttemptLine, CallLine};
use crate::upstream::Core;
use crate::upstream::headers::{self, Hop};

/// A request at the door of its call.
pub(super) struct Visit {
    pub(super) request: Request<Bytes>,
    /// Path and query as they go to the tool.
    pub(super) target: PathAndQuery,
    /// The request's fields as every send carries them.
    pub(super) fields: HeaderMap,
    pub(super) asked: Asked,
    /// How long its caller waits for a call that is another request's to end.
    pub(super) until: Mono,
}

impl Flow {
    /// Makes the call (`effects: once`): records it, sends it, settles it or parks it. Runs to its
    /// end whether its caller stays or not. A repeat gets the first one's answer instead.
    pub async fn call(self: &Arc<Self>, core: &Core, mut request: Request<Bytes>) -> Told {
        let Ok(target) = request.route.tool.target(&request.target) else {
            let detail = "The path cannot be appended to the tool's address. Correct the path.";
            return Told::refused_unseen(
                Some((request.call_id, request.source)),
                Code::BadRequest,
                detail,
            );
        };
        let until = join::until(&request);
        let fields = self.prepared(&mut request);
        let visit = Visit {
            asked: Asked {
                client: request.client.clone(),
                call_id: request.call_id.clone(),
                fingerprint: record::fingerprint(
                    &request.method,
                    request.target.as_str(),
                    &request.body,
                ),
                key: None,
            },
            request,
            target,
            fields,
            until,
        };
        loop {
            match self.calls.enter(&visit.asked) {
                Entered::First(lead) => return self.lead(core, visit, lead).await,
                Entered::Second(seat) => {
                    if let Some(told) = self.join(core, &visit, &seat).await {
                        visit.line(&told, &[], core);
                        return told;
                    }
                }
            }
        }
    }

    /// The first one at its call: the ledger decides whether it may be sent.
    async fn lead(self: &Arc<Self>, core: &Core, visit: Visit, lead: Lead) -> Told {
        let told = match self.ledger.begin(self.record(&visit, core)).await {
            Ok(Begun::Claimed(claim)) => {
                lead.claimed();
                self.drive(core, visit, claim, &lead).await
            }
            Ok(Begun::Known(known) | Begun::KeyTaken(known)) => {
                self.repeat(core, &visit, *known).await
            }
            Ok(Begun::Foreign) => {
                let told = Told::refused(visit.named(), dedup::foreign_problem());
                visit.line(&told, &[], core);
                told
            }
            Err(e) => {
                let told = self.unrecorded(&visit.request, &e);
                visit.line(&told, &[], core);
                told
            }
        };
        lead.tell(&told);
        told
    }

    async fn drive(self: &Arc<Self>, core: &Core, visit: Visit, claim: Claim, lead: &Lead) -> Told {
        let recorded = core.clock.mono();
        let Visit {
            request,
            target,
            fields,
            ..
        } = visit;
        let (received, gone) = (request.received, request.gone.clone());
        let call = claimed(request, target, fields, claim, core.clock.wall());
        let policy = &call.route.conf.policy;
        let waiters = lead.attendance(gone, policy.on_client_gone == OnClientGone::Cancel);
        let machine = Machine::new(Arc::clone(policy), recorded);
        let mut drive = Drive::new(self, core, call, Decider::Line(machine), waiters);
        drive.received(received, recorded);
        drive.run().await
    }

    /// The call as the ledger takes it. Its credentials end here.
    fn record(
        &self,
        Visit {
            request,
            target,
            fields,
            asked,
            ..
        }: &Visit,
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
            fingerprint: asked.fingerprint,
            idempotency_key: asked.key.clone(),
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
            // A tool that is not told who calls sees one name space of call ids.
            exclusive_id: route.tool.tenant_header().is_none(),
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
) -> Call {
    let secret = &request.route.conf.secret_headers;
    let credential = record::credentials(&fields, secret).next().is_some();
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

impl Visit {
    /// The call's id, and who made it.
    pub(super) fn named(&self) -> Option<(CallId, IdSource)> {
        Some((self.request.call_id.clone(), self.request.source))
    }

    /// The line of a request that was not the first at its call.
    pub(super) fn line(&self, told: &Told, attempts: &[AttemptLine], core: &Core) {
        CallLine {
            call_id: Some(&self.request.call_id),
            source: Some(self.request.source),
            route: &self.request.route.conf.name,
            client: Some(&self.request.client),
            outcome: told.word,
            status: told.shown.status(),
            code: told.shown.code(),
            attempts,
            total: core.clock.mono().since(self.request.received),
            recorded: None,
            trace_id: reading::trace_id(&self.fields),
            clean: false,
        }
        .emit();
    }
}
