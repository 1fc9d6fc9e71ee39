//! Letting a call in: a place at the call it names, its record, its claim.
//!
//! Nothing leaves before the claim is durable. A ledger that cannot be written refuses the call;
//! nothing is sent then, and neither id nor key is bound. Deliberately absent: what becomes of a
//! request whose id is known (`join` while the call runs, `repeat` afterwards).

use std::pin::pin;
use std::sync::Arc;

use bytes::Bytes;
use http::header::HOST;
use http::{HeaderMap, HeaderValue};
use tokio_util::task::task_tracker::TaskTrackerToken;

use super::allow::{self, Held};
use super::call::Decider;
use super::drive::Drive;
use super::join;
use super::key::{self, Key};
use super::running::{Asked, Entered, Lead};
use super::sites::Choice;
use super::told::{Problem, Told};
use super::visit::Visit;
use super::{Flow, Request, canonical, dedup, record, reverse};
use crate::call::code::{Code, Repeat, Sent};
use crate::call::machine::Machine;
use crate::call::policy::OnClientGone;
use crate::call::time::Wall;
use crate::config::route::DetectNewIds;
use crate::crash::{self, Point};
use crate::ledger::{Again, Begun, Claim, Known, LedgerError, NewCall, StoredRequest};
use crate::telemetry::labels::Bound;
use crate::upstream::Core;
use crate::upstream::headers::{self, Hop, X_CALL_REVERSES};

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
        let slot = request.route.slot(&request.client, &self.metrics);
        let _slot = match slot {
            Ok(slot) => slot,
            Err(problem) => {
                return Told::refused(Some((request.call_id, request.source)), problem);
            }
        };
        if self.finds_nothing(&request) {
            return request.turned_away(self.overloaded(), core);
        }
        let until = join::until(&request);
        let fingerprint = canonical::fingerprint(
            &request.method,
            request.target.as_str(),
            &request.body,
            &request.route.conf.idempotency.exclude,
        );
        let now = request.first_seen.unwrap_or_else(|| core.clock.wall());
        let key = identified(&mut request, now);
        let fields = self.prepared(&mut request);
        let reverses = reverse::reversed_by(&fields, &request.call_id);
        let (key, reverses, refused) = match (key, reverses) {
            (Ok(key), Ok(reverses)) => (key, reverses, None),
            (Err(problem), _) | (Ok(_), Err(problem)) => (None, None, Some(problem)),
        };
        let visit = Visit {
            asked: Asked {
                client: request.client.clone(),
                call_id: request.call_id.clone(),
                fingerprint,
                key: key.as_ref().map(Key::compared),
            },
            seen: key
                .as_ref()
                .and_then(|key| key.windowed.as_ref())
                .filter(|_| request.first_seen.is_none())
                .map(|_| now),
            key,
            reverses,
            request,
            target,
            fields,
            until,
            place: None,
            site: 0,
            choice: None,
        };
        if let Some(problem) = refused {
            return visit.refused(problem, core);
        }
        if let Some(known) = self.recalled(&visit, now) {
            return Box::pin(self.repeat(core, &visit, *known, None)).await;
        }
        // On the heap from here on, once: the doors in front move what they are given from one
        // future into the next.
        Box::pin(self.enter(core, Box::new(visit))).await
    }

    /// Whether this request would be refused for want of a place whatever the ledger says, so that
    /// nothing has to be made ready for it: not a hash of its body, and not its fields. No record
    /// can have its id, which was made for it a moment ago, and without a key no other call can be
    /// its first; one that undoes a call, or that may be a repeat under a new id
    /// (`detect_new_ids: block`), hears of that first.
    fn finds_nothing(&self, request: &Request<Bytes>) -> bool {
        let conf = &request.route.conf;
        let has = |name| request.headers.contains_key(name);
        request.minted
            && request.route.is_full(&request.client)
            && !self.draining.is_cancelled()
            && conf.idempotency.key.is_none()
            && !has(&conf.idempotency.header)
            && !has(&X_CALL_REVERSES)
            && conf.detect_new_ids != DetectNewIds::Block
    }

    fn overloaded(&self) -> Problem {
        allow::overloaded(&self.metrics, Repeat::SameCallIdOnly, Sent::Unknown)
    }

    /// The settled call that this request repeats, where it was met or read a moment ago: there is
    /// nothing to join, to claim or to send then.
    fn recalled(&self, visit: &Visit, now: Wall) -> Option<Box<Known>> {
        if self.draining.is_cancelled() {
            return None;
        }
        self.ledger.recall(&Again {
            client: &visit.request.client,
            call_id: &visit.request.call_id,
            fingerprint: visit.asked.fingerprint,
            key: visit.key.as_ref().map(|key| &key.text),
            now,
        })
    }

    async fn enter(self: &Arc<Self>, core: &Core, visit: Box<Visit>) -> Told {
        loop {
            match self.calls.enter(&visit.asked) {
                Entered::First(lead) => return self.lead(core, visit, lead).await,
                Entered::Second(seat) => {
                    if let Some(told) = Box::pin(self.join(core, &visit, &seat)).await {
                        return told;
                    }
                }
            }
        }
    }

    /// The first one at its call.
    async fn lead(self: &Arc<Self>, core: &Core, visit: Box<Visit>, mut lead: Lead) -> Told {
        let _place = match self.place(&visit.request) {
            Ok(place) => place,
            Err(problem) => {
                // Those who joined may not need a place.
                drop(lead);
                return visit.refused(problem, core);
            }
        };
        let conf = &visit.request.route.conf;
        let alone = visit.is_nameless() && conf.detect_new_ids == DetectNewIds::Block;
        let before = lead.stand(&conf.name, alone);
        let told = match before.filter(|_| visit.is_nameless()) {
            Some(first) => match visit.suspected(&first, core.clock.mono()) {
                Some(refused) => visit.lined(refused, core),
                None => self.begin(core, visit, &lead, false).await,
            },
            None => {
                let wary = visit.is_nameless();
                self.begin(core, visit, &lead, wary).await
            }
        };
        lead.tell(&told);
        told
    }

    /// The ledger decides whether the call may be sent. A `wary` one is not, at first, while the
    /// same request waits in the compensation queue.
    async fn begin(
        self: &Arc<Self>,
        core: &Core,
        mut visit: Box<Visit>,
        lead: &Lead,
        mut wary: bool,
    ) -> Told {
        let mut joins = true;
        crash::at(Point::Arrived);
        // Held before the look: whoever lets the ledger go waits for it, or this call sees that.
        let in_line = self.in_line.token();
        if self.draining.is_cancelled() {
            return visit.refused(allow::draining(), core);
        }
        loop {
            if let Err(problem) = self.aim_first(core, &mut visit).await {
                return visit.refused(problem, core);
            }
            let new = NewCall {
                wary,
                ..self.record(&visit, core)
            };
            let known = match self.ledger.begin(new).await {
                Ok(Begun::Claimed(claim)) => {
                    return self.drive(core, visit, (claim, in_line), lead).await;
                }
                Ok(Begun::Known(known)) if known.same_request => known,
                Ok(Begun::KeyTaken(known)) if known.same_request => known,
                Ok(Begun::KeyTaken(_)) => return visit.refused(dedup::key_reused_problem(), core),
                // Its key is that of its first sight.
                Ok(Begun::Known(known)) if visit.takes_key_of(&known.call) => continue,
                Ok(Begun::Known(known)) => return visit.refused(visit.mismatch(&known.call), core),
                Ok(Begun::Undone { sends }) => {
                    let told =
                        dedup::undone(visit.request.call_id.clone(), visit.request.source, sends);
                    visit.line(&told, &[], core);
                    return told;
                }
                Ok(Begun::Alike(first)) => {
                    match visit.suspected(&first.call.call_id, core.clock.mono()) {
                        Some(refused) => return visit.lined(refused, core),
                        None => {
                            wary = false;
                            continue;
                        }
                    }
                }
                Ok(Begun::Foreign) => return visit.refused(dedup::foreign_problem(), core),
                Err(e) => return visit.refused(self.unrecorded(&visit.request, &e), core),
            };
            let call = &known.call;
            let runs = call.dead_letter.is_none();
            let elsewhere =
                call.call_id != visit.request.call_id || call.client != visit.request.client;
            (visit.place, visit.choice) = (None, None);
            if call.settled.is_some() || !elsewhere || (runs && !joins) {
                return Box::pin(self.repeat(core, &visit, *known, None)).await;
            }
            if let Some(told) = Box::pin(self.join_first(core, &visit, &known)).await {
                return told;
            }
            // It ended meanwhile; its end is recorded before whatever is asked from here on.
            joins = false;
        }
    }

    /// Finds what the first send needs; what was given back while another call was waited for is
    /// found anew, because the record names the address.
    async fn aim_first(&self, core: &Core, visit: &mut Visit) -> Result<(), Problem> {
        if visit.request.route.is_bounded() && visit.place.is_none() {
            Box::pin(self.find_place(core, visit)).await?;
        }
        if visit.request.route.addresses.is_some() && visit.choice.is_none() {
            self.find_address(core, visit).await;
        }
        Ok(())
    }

    async fn drive(
        self: &Arc<Self>,
        core: &Core,
        mut visit: Box<Visit>,
        (claim, in_line): (Claim, TaskTrackerToken),
        lead: &Lead,
    ) -> Told {
        let place = visit.place.take();
        let recorded = core.clock.mono();
        let promised = visit.request.promised;
        let running = promised.then(|| lead.promised());
        let promise = visit.request.promise.take();
        if let (Some(promise), Some(named), Some(running)) = (promise, visit.named(), running) {
            promise.keep(named, running);
        }
        lead.claimed();
        crash::at(Point::Claimed);
        let (received, gone) = (visit.request.received, visit.request.gone.clone());
        let call = visit.claimed(claim, core.clock.wall());
        let policy = &call.route.conf.policy;
        let heeded = !promised && policy.on_client_gone == OnClientGone::Cancel;
        let waiters = lead.attendance(gone, heeded);
        let machine = if promised {
            Machine::promised(Arc::clone(policy), recorded)
        } else {
            Machine::new(Arc::clone(policy), recorded)
        };
        let mut drive = Drive::new(self, core, call, Decider::Line(machine), waiters);
        drive.received(received, recorded);
        drive.in_line = Some(in_line);
        drive.held = Held::first(place);
        drive.run().await
    }

    /// A place for the first send, before anything is recorded. Where it would have to be waited
    /// for, a call that is known needs none: whatever is still sent for it finds its own.
    async fn find_place(&self, core: &Core, visit: &mut Visit) -> Result<(), Problem> {
        let request = &visit.request;
        let (route, client) = (&request.route, &request.client);
        let policy = &route.conf.policy;
        let until = request.received.after(policy.timeouts.total);
        let leaves = policy.on_client_gone == OnClientGone::Cancel;
        // An id that was made a moment ago cannot be known; a key may be, whatever the id.
        let id = (!request.minted).then(|| request.call_id.clone());
        let key = visit.key.as_ref().map(|key| Arc::clone(&key.text));
        let key = key.map(|key| (key, Arc::clone(&route.scope)));
        let asks = route.is_busy() && (id.is_some() || key.is_some());
        // Asked beside the wait: the reads of those who are turned away hold up nobody else.
        let mut known = pin!(async {
            asks && (self.ledger.knows(client.clone(), id, key).await).is_ok_and(|known| known)
        });
        let mut looked = None;
        let mut place = pin!(route.place(client, &core.clock, until));
        visit.place = loop {
            tokio::select! {
                biased;
                // First: calls that are parked now give their places away, and nothing begins any
                // more.
                () = self.draining.cancelled() => return Err(allow::draining()),
                place = &mut place => match place {
                    Ok(place) => break place,
                    Err(()) => {
                        let is_known = match looked {
                            Some(is_known) => is_known,
                            None => known.await,
                        };
                        return if is_known { Ok(()) } else { Err(self.overloaded()) };
                    }
                },
                is_known = &mut known, if looked.is_none() => {
                    if is_known {
                        return Ok(());
                    }
                    looked = Some(false);
                }
                // Nobody waits, so that nothing is begun.
                () = request.gone.cancelled(), if leaves => return Err(self.overloaded()),
            }
        };
        Ok(())
    }

    /// The call as the ledger takes it. Its credentials end here.
    fn record(
        &self,
        Visit {
            request,
            target,
            fields,
            asked,
            key,
            seen,
            reverses,
            site,
            choice,
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
            upstream: Arc::clone(route.sites[*site].tool.address()),
            siblings: route.siblings_of(*site),
            policy: Arc::clone(&route.policy_text),
            fingerprint: asked.fingerprint,
            idempotency_key: key.as_ref().map(|key| Arc::clone(&key.text)),
            scope: Arc::clone(&route.scope),
            wary: false,
            business_key: key.as_ref().and_then(|key| key.business.clone()),
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
            now: seen.unwrap_or(now),
            window: route.conf.idempotency.window,
            // What has nowhere to go is recorded, and not as sent.
            first_send: !matches!(choice, Some(Choice::Out)),
            promised: request.promised,
            // A tool that is not told who calls sees one name space of call ids.
            exclusive_id: route.tool.tenant_header().is_none(),
            reverses: reverses.clone(),
        }
    }

    /// The request's fields as every send carries them: what ends at this hop is gone, this hop's
    /// traces are there.
    pub(super) fn prepared<B>(&self, request: &mut Request<B>) -> HeaderMap {
        let mut fields = std::mem::take(&mut request.headers).into_map();
        let host = request.authority.as_deref();
        if let Some(host) = host.and_then(|host| HeaderValue::from_str(host).ok()) {
            fields.insert(HOST, host);
        }
        let hop = Hop {
            node: &self.node,
            version: request.version,
            forwarded: request
                .caller
                .forwarded(fields.get(HOST).map(HeaderValue::as_bytes)),
        };
        headers::prepare(&mut fields, &request.route.conf.call_id.header, hop);
        fields
    }

    fn unrecorded(&self, request: &Request<Bytes>, error: &LedgerError) -> Problem {
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
        problem
    }
}

/// The key of the request, which is put into its body where the route says so.
fn identified(request: &mut Request<Bytes>, now: Wall) -> Result<Option<Key>, Problem> {
    let key = key::of(request, now)?;
    if let Some(key) = &key
        && let Some(body) = key::in_body(request, key)?
    {
        request.body = body;
    }
    Ok(key)
}
