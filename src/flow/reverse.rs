//! Undoing a call: performing the machine's step, and what a caller's own reversal says.
//!
//! That the call is being undone is durable before the undo request leaves, and from then on the
//! ledger refuses every further send of the original. The request has an id of its own, the same
//! in every send, so that a tool that dedupes by id undoes once. Deliberately absent: when a call
//! is undone (`call/recovery`), and what is told about it (`dedup`).

use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, StatusCode};

use super::drive::Drive;
use super::reading;
use super::told::Problem;
use crate::call::code::{Code, Repeat, Sent};
use crate::call::id::CallId;
use crate::call::outcome::{Outcome, Reading, Unclear};
use crate::call::step::{Event, Step, Undo};
use crate::entropy;
use crate::ledger::{Entry, Intention, StoredUndo};
use crate::telemetry::labels::UndoResult;
use crate::upstream::headers::{TRACEPARENT, X_CALL_REVERSES};
use crate::upstream::reversal::{Send, UndoRequest, Undone};
use crate::upstream::{Ended, Mode, Terms};

/// The longest answer to a reversal that is read; its status is what counts.
const ANSWER_MAX: usize = 64 << 10;

impl Drive {
    /// Sends the reversal for the `n`th time.
    pub(super) async fn reverse(&mut self, n: u32) -> Step {
        let reversal_id = entropy::reversal_id(&self.call.client, &self.call.call_id);
        let Some(request) = self.undo_request(&reversal_id) else {
            tracing::error!(
                call_id = %self.call.call_id,
                route = %self.call.route.conf.name,
                "the reversal cannot be made: its template names something that neither the call \
                 nor its receipt has, or the route has no reversal any more; a human decides"
            );
            return self.on(Event::Reversed(Undo::Unsendable));
        };
        let lease_until = self.flow.lease_until(&self.call.route, self.wall());
        let intention = Intention::Reverse {
            n,
            request: request.clone(),
            lease_until,
        };
        if let Err(step) = self.intend(intention).await {
            return step;
        }
        let began = self.now();
        let (outcome, detail) = match self.undone(n, &reversal_id, request).await {
            Ok(ended) => ended,
            Err(step) => return step,
        };
        let undo = undo(outcome);
        self.call
            .route
            .metrics
            .reversals
            .inc(UndoResult::from(undo));
        self.undone = Some(outcome);
        self.history.push(Entry::Undone {
            at: self.wall(),
            n,
            outcome,
            took: self.now().since(began),
            detail,
        });
        tracing::info!(
            call_id = %self.call.call_id,
            %reversal_id,
            n,
            outcome = outcome.as_str(),
            "the reversal was sent"
        );
        self.on(Event::Reversed(undo))
    }

    /// The undo request: the one kept with its first send, or one made now.
    fn undo_request(&self, reversal_id: &CallId) -> Option<StoredUndo> {
        if let Some(kept) = &self.call.undo {
            return Some(kept.clone());
        }
        let endpoint = self.call.home().reversal.as_ref()?;
        let key = self.call.request.idempotency_key.as_ref();
        let made = endpoint.request(&Undone {
            call_id: &self.call.call_id,
            reversal_id,
            key: key.and_then(|key| key.to_str().ok()),
            body: &self.call.request.body,
            receipt: self.receipt.document.as_deref(),
        })?;
        let UndoRequest {
            method,
            target,
            body,
        } = made;
        Some(StoredUndo {
            method,
            target,
            body,
        })
    }

    /// One send of it, to its end or the attempt timeout.
    async fn undone(
        &mut self,
        n: u32,
        reversal_id: &CallId,
        request: StoredUndo,
    ) -> Result<(Outcome, Option<std::sync::Arc<str>>), Step> {
        let StoredUndo {
            method,
            target,
            body,
        } = request;
        let request = UndoRequest {
            method,
            target,
            body,
        };
        let timeouts = self.call.route.conf.policy.timeouts;
        let terms = Terms {
            connect: timeouts.connect,
            idle: timeouts.idle,
            max_kept: ANSWER_MAX,
            mode: Mode::Collect,
        };
        let send = Send {
            field: &self.call.route.conf.call_id.header,
            call_id: &self.call.call_id,
            reversal_id,
            client: &self.call.client,
            n,
            traceparent: self.call.request.headers.get(TRACEPARENT),
            node: &self.flow.node,
        };
        let site = self.call.route.asked(self.call.site);
        let endpoint = self.call.route.sites[site].reversal.as_ref();
        let exchange =
            endpoint.and_then(|endpoint| endpoint.send(&self.core, &request, &send, terms));
        let Some(mut exchange) = exchange else {
            return Ok((Outcome::Unclear(Unclear::Disconnect), None));
        };
        let bound: Duration = self.call.route.conf.policy.timeouts.attempt;
        let patience = self.core.wheel.sleep(bound);
        let first = async {
            tokio::select! {
                biased;
                ended = &mut exchange => Some(ended),
                () = patience => None,
            }
        };
        let ended = self.beside(first, false).await?;
        let trouble = exchange.trouble().map(std::sync::Arc::from);
        let outcome = match ended {
            Some(Ended::Collected(answer)) => {
                let conf = &self.call.route.conf;
                reading::read_undo(conf, answer.status, &answer.headers, &answer.body)
            }
            Some(Ended::Streaming(stream)) => {
                let conf = &self.call.route.conf;
                reading::read_undo(conf, stream.status, &stream.headers, &Bytes::new())
            }
            Some(Ended::NotSent(why)) => Outcome::NotSent(why),
            Some(Ended::Unclear(why)) => Outcome::Unclear(why),
            None => {
                exchange.overdue();
                Outcome::Unclear(Unclear::Timeout)
            }
        };
        exchange.reset().await;
        Ok((outcome, trouble))
    }
}

/// What the answer to a reversal says about the call.
fn undo(outcome: Outcome) -> Undo {
    match outcome {
        Outcome::NotSent(_) | Outcome::Unclear(_) => Undo::Unclear,
        Outcome::Answered(Reading::Success(status)) if status.is_success() => Undo::Done,
        Outcome::Answered(Reading::Failure(_)) => Undo::Refused,
        Outcome::Answered(Reading::Unbinding(status)) if is_definite(status) => Undo::Refused,
        Outcome::Answered(
            Reading::Success(_) | Reading::Unbinding(_) | Reading::Pending(_) | Reading::Kept(_),
        ) => Undo::Unclear,
    }
}

/// Whether a repeat would meet the same refusal.
fn is_definite(status: StatusCode) -> bool {
    status.is_client_error()
        && ![
            StatusCode::REQUEST_TIMEOUT,
            StatusCode::TOO_EARLY,
            StatusCode::TOO_MANY_REQUESTS,
        ]
        .contains(&status)
}

/// The call that a request undoes, as its caller says.
///
/// # Errors
/// The refusal to tell: a name that is no call id, or its own.
pub(super) fn reversed_by(fields: &HeaderMap, own: &CallId) -> Result<Option<CallId>, Problem> {
    let mut lines = fields.get_all(X_CALL_REVERSES).iter();
    let Some(line) = lines.next() else {
        return Ok(None);
    };
    let named = CallId::parse(line.as_bytes()).ok();
    match named.filter(|id| id != own && lines.next().is_none()) {
        Some(id) => Ok(Some(id)),
        None => Err(Problem::new(
            Code::BadRequest,
            "The field x-call-reverses must stand once and name another call by its id: 1 to 256 \
             bytes of visible ASCII without a comma.",
            Sent::Unknown,
            Repeat::SameCallIdOnly,
        )),
    }
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;
    use crate::call::outcome::NotSent;

    #[test]
    fn an_answer_to_a_reversal_is_done_refused_or_unclear() {
        let table = [
            (200, Undo::Done),
            (204, Undo::Done),
            (202, Undo::Done),
            (303, Undo::Unclear),
            (304, Undo::Unclear),
            (400, Undo::Refused),
            (401, Undo::Refused),
            (404, Undo::Refused),
            (409, Undo::Refused),
            (408, Undo::Unclear),
            (425, Undo::Unclear),
            (429, Undo::Unclear),
            (500, Undo::Unclear),
            (503, Undo::Unclear),
        ];
        for (status, expected) in table {
            let reading = Reading::by_status(StatusCode::from_u16(status).unwrap());
            assert_eq!(undo(Outcome::Answered(reading)), expected, "{status}");
        }
        assert_eq!(undo(Outcome::NotSent(NotSent::Connect)), Undo::Unclear);
        assert_eq!(undo(Outcome::Unclear(Unclear::Timeout)), Undo::Unclear);
    }

    #[test]
    fn a_request_names_at_most_one_other_call_that_it_undoes() {
        let own = CallId::parse(b"rev-1").unwrap();
        let read = |lines: &[&'static str]| {
            let mut fields = HeaderMap::new();
            for line in lines {
                fields.append(X_CALL_REVERSES, HeaderValue::from_static(line));
            }
            reversed_by(&fields, &own)
        };
        assert_eq!(read(&[]).unwrap(), None);
        assert_eq!(read(&["c-1"]).unwrap(), CallId::parse(b"c-1").ok());
        for bad in [&["rev-1"][..], &[""], &["a,b"], &["a", "a"]] {
            let problem = read(bad).unwrap_err();
            assert_eq!(problem.code, Code::BadRequest, "{bad:?}");
        }
    }
}
