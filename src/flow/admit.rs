//! Letting a call in: its record, its claim, and the answer when the id is already known.
//!
//! Nothing leaves before the claim is durable. A ledger that cannot be written refuses the call;
//! nothing is sent then, and neither id nor key is bound.

use std::sync::Arc;

use bytes::Bytes;
use http::HeaderValue;
use http::header::HOST;
use http::uri::PathAndQuery;

use super::call::{Call, Decider, Place, Sendable};
use super::drive::Drive;
use super::told::{Problem, Told};
use super::{Flow, Request, dedup, reading, record};
use crate::call::code::{Code, Repeat, Sent};
use crate::call::machine::Machine;
use crate::ledger::{Begun, LedgerError, NewCall, StoredRequest};
use crate::telemetry::labels::{AvoidedBy, Bound};
use crate::telemetry::log::CallLine;
use crate::upstream::Core;
use crate::upstream::headers::{self, Hop};

impl Flow {
    /// Makes the call (`effects: once`): records it, sends it, settles it or parks it. Runs to its
    /// end whether its caller stays or not.
    pub async fn call(self: &Arc<Self>, core: &Core, request: Request<Bytes>) -> Told {
        let Ok(target) = request.route.tool.target(&request.target) else {
            let detail = "The path cannot be appended to the tool's address. Correct the path.";
            return Told::refused_unseen(
                Some((request.call_id, request.source)),
                Code::BadRequest,
                detail,
            );
        };
        let gone = request.gone.clone();
        let new = self.record(&request, &target, core);
        let (received, client) = (request.received, request.client.clone());
        match self.ledger.begin(new).await {
            Ok(Begun::Claimed(claim)) => {
                let recorded = core.clock.mono();
                let call = self.claimed(request, target, claim, core);
                let policy = Arc::clone(&call.route.conf.policy);
                let machine = Decider::Line(Machine::new(policy, recorded));
                let mut drive = Drive::new(self, core, call, machine, gone);
                drive.received(received, recorded);
                drive.run().await
            }
            Ok(begun) => {
                let told = self.known(&request, begun);
                self.line(&request, &client, &told, core);
                told
            }
            Err(e) => {
                let told = self.unrecorded(&request, &e);
                self.line(&request, &client, &told, core);
                told
            }
        }
    }

    /// The call as the ledger takes it. Its credentials end here.
    fn record(&self, request: &Request<Bytes>, target: &PathAndQuery, core: &Core) -> NewCall {
        let route = &request.route;
        let now = core.clock.wall();
        let mut prepared = request.headers.clone();
        self.prepare(&mut prepared, request);
        let (kept, credential) =
            record::without_credentials(&prepared, &route.conf.secret_headers);
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
                headers: kept,
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

    /// What ends at this hop goes, this hop's traces come.
    pub(super) fn prepare<B>(&self, fields: &mut http::HeaderMap, request: &Request<B>) {
        let host = request.host.as_deref().and_then(|host| HeaderValue::from_str(host).ok());
        let forwarded = headers::forwarded(request.peer.ip(), host.as_ref(), "http");
        let hop = Hop { node: &self.node, version: request.version, forwarded: &forwarded };
        if let Some(host) = host {
            fields.insert(HOST, host);
        }
        headers::prepare(fields, &request.route.conf.call_id.header, &hop);
    }

    fn claimed(
        &self,
        request: Request<Bytes>,
        target: PathAndQuery,
        claim: crate::ledger::Claim,
        core: &Core,
    ) -> Call {
        let mut prepared = request.headers.clone();
        self.prepare(&mut prepared, &request);
        let secret = &request.route.conf.secret_headers;
        let credential = record::credentials(&prepared, secret).next().is_some();
        Call {
            first_sent: core.clock.wall(),
            same_address: true,
            place: Place::Line,
            client: request.client,
            call_id: request.call_id,
            source: request.source,
            claim,
            request: Sendable {
                method: request.method,
                target,
                headers: prepared,
                idempotency_key: None,
                body: request.body,
                credential,
            },
            route: request.route,
        }
    }

    fn known(&self, request: &Request<Bytes>, begun: Begun) -> Told {
        let known = match begun {
            Begun::Known(known) | Begun::KeyTaken(known) => known,
            Begun::Foreign => {
                let call = Some((request.call_id.clone(), request.source));
                return Told::refused(call, dedup::reused_problem());
            }
            Begun::Claimed(_) => {
                let call = Some((request.call_id.clone(), request.source));
                return Told::refused(call, super::parting::internal());
            }
        };
        let told = dedup::told(&known);
        if told.word == super::told::Word::Replayed {
            request.route.metrics.avoided.inc(AvoidedBy::Replay);
        }
        told
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

    /// The line of a call that was not driven.
    fn line(
        &self,
        request: &Request<Bytes>,
        client: &crate::call::id::ClientName,
        told: &Told,
        core: &Core,
    ) {
        let trace_id = reading::trace_id(&request.headers);
        CallLine {
            call_id: Some(&request.call_id),
            source: Some(request.source),
            route: &request.route.conf.name,
            client: Some(client),
            outcome: told.word,
            status: told.shown.status(),
            code: told.shown.code(),
            attempts: &[],
            total: core.clock.mono().since(request.received),
            recorded: None,
            trace_id,
            clean: false,
        }
        .emit();
    }
}
