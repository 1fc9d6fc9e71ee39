//! The undo request of a call: made once, sent under an id of its own until its end is known.
//!
//! What it says is filled in from the call before its first send and kept by the ledger, so that
//! every repeat is the same request, byte for byte, whatever the configuration says by then.
//! Deliberately absent: when it is sent and what its answer means.

use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use http::header::{ACCEPT, CONTENT_LENGTH, CONTENT_TYPE, HOST, HeaderName, VIA};
use http::uri::PathAndQuery;
use http::{HeaderMap, HeaderValue, Method, Version};
use serde_json::Value;

use super::exchange::{Exchange, Outgoing, Terms};
use super::headers::{self, Node};
use super::json::Json;
use super::receipt::fill::{Form, push};
use super::{Core, Destination, Payload, SetupError};
use crate::call::id::{CallId, ClientName};
use crate::config::reversal::{ReversalRule, UndoPart, UndoTemplate};
use crate::config::route::Upstream;
use crate::config::template::JsonPointer;

/// Where and how a route's calls are undone.
pub struct ReversalEndpoint {
    destination: Arc<Destination>,
    base_path: Arc<str>,
    rule: ReversalRule,
    body_is: Form,
    headers: HeaderMap,
    tenant_header: Option<HeaderName>,
}

/// The call that is undone, as far as its undo request may name it.
#[derive(Clone, Copy, Debug)]
pub struct Undone<'a> {
    /// Its id.
    pub call_id: &'a CallId,
    /// The reversal's own id.
    pub reversal_id: &'a CallId,
    /// Its idempotency key.
    pub key: Option<&'a str>,
    /// Its body.
    pub body: &'a [u8],
    /// Its receipt, as it came last.
    pub receipt: Option<&'a [u8]>,
}

/// The request, as every send of it makes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UndoRequest {
    /// Its method.
    pub method: Method,
    /// Path and query.
    pub target: Arc<str>,
    /// Its body.
    pub body: Bytes,
}

/// What one send says besides the request.
#[derive(Clone, Copy, Debug)]
pub struct Send<'a> {
    /// The route's field for the call id.
    pub field: &'a HeaderName,
    /// The call that is undone.
    pub call_id: &'a CallId,
    /// The reversal's own id.
    pub reversal_id: &'a CallId,
    /// Whose call it is.
    pub client: &'a ClientName,
    /// Which send of the reversal this is, from 1.
    pub n: u32,
    /// The trace of the call that is undone.
    pub traceparent: Option<&'a HeaderValue>,
    /// This gateway.
    pub node: &'a Node,
}

impl ReversalEndpoint {
    /// The endpoint of a route, with connections for `cores` cores.
    ///
    /// # Errors
    /// What can never work, as for [`super::Tool::new`].
    pub fn new(
        upstream: &Upstream,
        rule: &ReversalRule,
        cores: usize,
    ) -> Result<Arc<Self>, SetupError> {
        let (endpoint, pool) = match &rule.elsewhere {
            Some(elsewhere) => (elsewhere, upstream.pool.elsewhere(elsewhere)),
            None => (&upstream.endpoint, upstream.pool),
        };
        let over = (cores, upstream.resolve);
        let destination = Destination::new(endpoint, upstream.ca.as_ref(), pool, over)?;
        let begins = rule.body.as_ref().and_then(|body| body.parts().first());
        let begins = match begins {
            Some(UndoPart::Text(text)) => Some(&**text),
            Some(_) | None => None,
        };
        Ok(Arc::new(Self {
            destination,
            base_path: Arc::clone(&endpoint.base_path),
            body_is: Form::of_text(begins),
            headers: upstream.headers.clone(),
            tenant_header: upstream.tenant_header.clone(),
            rule: rule.clone(),
        }))
    }

    /// Where undo requests go.
    #[must_use]
    pub const fn destination(&self) -> &Arc<Destination> {
        &self.destination
    }

    /// The request that undoes this call; `None` when it names something that neither the call nor
    /// its receipt has.
    #[must_use]
    pub fn request(&self, undone: &Undone<'_>) -> Option<UndoRequest> {
        let filled = fill(&self.rule.path, undone, Form::Url)?;
        let slash = if filled.starts_with('/') { "" } else { "/" };
        let target = format!("{}{slash}{filled}", self.base_path);
        PathAndQuery::try_from(target.as_str()).ok()?;
        let body = match &self.rule.body {
            None => Bytes::new(),
            Some(template) => Bytes::from(fill(template, undone, self.body_is)?),
        };
        let is_sound = body.is_empty()
            || self.body_is == Form::Url
            || serde_json::from_slice::<serde::de::IgnoredAny>(&body).is_ok();
        is_sound.then(|| UndoRequest {
            method: self.rule.method.clone(),
            target: Arc::from(target),
            body,
        })
    }

    /// Begins to send it; `None` when what was kept of it is no request any more.
    #[must_use]
    pub fn send(
        &self,
        core: &Core,
        request: &UndoRequest,
        send: &Send<'_>,
        terms: Terms,
    ) -> Option<Exchange> {
        let target = PathAndQuery::try_from(&*request.target).ok()?;
        let outgoing = Outgoing {
            method: request.method.clone(),
            target,
            headers: self.fields(request, send).into(),
            body: Payload::from(request.body.clone()),
        };
        Some(Exchange::new(core, &self.destination, outgoing, terms))
    }

    fn fields(&self, request: &UndoRequest, send: &Send<'_>) -> HeaderMap {
        let mut fields = HeaderMap::with_capacity(12);
        fields.insert(HOST, self.destination.host().clone());
        fields.insert(ACCEPT, HeaderValue::from_static("application/json"));
        fields.insert(VIA, send.node.via(Version::HTTP_11));
        if let Some(trace) = send.traceparent {
            fields.insert(headers::TRACEPARENT, trace.clone());
        }
        if !request.body.is_empty() {
            fields.insert(CONTENT_TYPE, self.body_is.media_type());
        }
        fields.insert(CONTENT_LENGTH, HeaderValue::from(request.body.len()));
        headers::set_all(&mut fields, &self.headers);
        headers::set_all(&mut fields, &self.rule.headers);
        if let Some(tenant) = &self.tenant_header {
            fields.insert(tenant, headers::client_value(send.client));
        }
        fields.insert(send.field, headers::id_value(send.reversal_id));
        fields.insert(
            headers::X_CALL_ID_SOURCE,
            HeaderValue::from_static("gateway"),
        );
        fields.insert(headers::X_CALL_REVERSES, headers::id_value(send.call_id));
        fields.insert(headers::X_CALL_ATTEMPT, HeaderValue::from(send.n));
        fields
    }
}

/// The template with its places filled.
fn fill(template: &UndoTemplate, undone: &Undone<'_>, form: Form) -> Option<String> {
    let mut text = String::with_capacity(64);
    for part in template.parts() {
        match part {
            UndoPart::Text(literal) => text.push_str(literal),
            UndoPart::CallId => push(&mut text, undone.call_id.as_str(), form),
            UndoPart::ReversalId => push(&mut text, undone.reversal_id.as_str(), form),
            UndoPart::IdempotencyKey => push(&mut text, undone.key?, form),
            UndoPart::Body(pointer) => {
                push_value(&mut text, &value_at(undone.body, pointer)?, form)?;
            }
            UndoPart::Receipt(pointer) => {
                push_value(&mut text, &value_at(undone.receipt?, pointer)?, form)?;
            }
        }
    }
    Some(text)
}

/// What stands at a place; nothing where readers would disagree about it.
fn value_at(document: &[u8], pointer: &JsonPointer) -> Option<Value> {
    let json = Json::read(document).ok()?;
    let mut document: Value = serde_json::from_slice(document).ok()?;
    let value = document.pointer_mut(pointer.as_str())?.take();
    (!json.is_doubled(pointer)).then_some(value)
}

/// A value of a document: text as it stands between its quotes, anything else as JSON writes it.
fn push_value(text: &mut String, value: &Value, form: Form) -> Option<()> {
    match (value, form) {
        (Value::String(word), _) => push(text, word, form),
        (Value::Number(_) | Value::Bool(_), Form::Url) => push(text, &value.to_string(), form),
        (Value::Null | Value::Array(_) | Value::Object(_), Form::Url) => return None,
        (_, Form::Json) => text.push_str(&value.to_string()),
    }
    Some(())
}

impl fmt::Debug for ReversalEndpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let method = &self.rule.method;
        write!(
            f,
            "ReversalEndpoint({method} {:?}{})",
            self.destination, self.rule.path
        )
    }
}

#[cfg(test)]
mod tests;
