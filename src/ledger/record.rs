//! What a call looks like when it enters the ledger, and what its claim answers.
//!
//! Everything here is plain values: the ledger strips no header, reads no clock and decides no
//! policy; the caller hands it what is to be kept. What is written later stands in `step`, what is
//! read in `view`.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, Method, StatusCode};

use super::view::CallView;
use crate::call::id::{CallId, ClientName, Fingerprint, IdSource};
use crate::call::time::Wall;

/// One process instance: what a claim belongs to. Never reused, also not by a restart.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Owner(Arc<str>);

/// The number of a call's row. Never reused while the process lives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RowId(pub i64);

/// The right to write intentions for a call, until somebody else claims it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Claim {
    /// The call's row.
    pub row: RowId,
    /// Which use of the call id this is: 1 for the first, one more each time a released or expired
    /// id is claimed again.
    pub life: u32,
    /// The fencing number; it grows with every claim of the row.
    pub fence: i64,
}

/// What keys belong to besides their client (`idempotency.scope`): routes with the same scope
/// share their keys.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyScope {
    /// Its name: the route's, unless the operator named another one.
    pub name: Arc<str>,
    /// Names it had before, under which keys may still bind; those of the route among them.
    pub formerly: Box<[Arc<str>]>,
}

impl KeyScope {
    /// A scope that never had another name.
    #[must_use]
    pub fn new(name: &Arc<str>) -> Self {
        Self {
            name: Arc::clone(name),
            formerly: Box::default(),
        }
    }

    /// The name it has and those it had.
    pub fn names(&self) -> impl Iterator<Item = &Arc<str>> {
        std::iter::once(&self.name).chain(&self.formerly)
    }
}

/// A call as it enters the ledger.
#[derive(Clone, Debug)]
pub struct NewCall {
    /// Whose call it is.
    pub client: ClientName,
    /// Its id.
    pub call_id: CallId,
    /// Who made the id.
    pub source: IdSource,
    /// The route's name.
    pub route: Arc<str>,
    /// The upstream address it is first sent to.
    pub upstream: Arc<str>,
    /// The other addresses of the same tool: a call id is one there, wherever it was first sent.
    pub siblings: Arc<[Arc<str>]>,
    /// The snapshot of the policy it lives by, as text; equal snapshots are stored once.
    pub policy: Arc<str>,
    /// What makes a repeat the same request.
    pub fingerprint: Fingerprint,
    /// The idempotency key, when the call has one.
    pub idempotency_key: Option<Arc<str>>,
    /// What that key belongs to, besides the client.
    pub scope: Arc<KeyScope>,
    /// The key before it was hashed, for people who look for it.
    pub business_key: Option<Arc<str>>,
    /// Whether an unresolved call with the same request stands in the way (`detect_new_ids`).
    pub wary: bool,
    /// What is sent, and sent again.
    pub request: StoredRequest,
    /// The trace it belongs to (`traceparent`), for sends by rounds.
    pub trace: Option<Arc<str>>,
    /// Who claims it.
    pub owner: Owner,
    /// Until when the claim holds without a heartbeat.
    pub lease_until: Wall,
    /// The time of the claim.
    pub now: Wall,
    /// How long id and key are remembered after the end (`idempotency.window`).
    pub window: Duration,
    /// Whether the first send is noted in the same commit. Without it the call is `RECEIVED`.
    pub first_send: bool,
    /// Whether the caller was promised the call (an accepted asynchronous call, a batch item): a
    /// crash before its first send queues it, instead of closing it as never sent.
    pub promised: bool,
    /// Whether clients share one name space at the tool (no `upstream.tenant_header`): then another
    /// client's use of the id is refused.
    pub exclusive_id: bool,
    /// The call id this one undoes: in the same commit it is marked as never to be sent any more
    /// at this upstream, also when no such call has arrived.
    pub reverses: Option<CallId>,
}

impl NewCall {
    /// What decides whether it repeats a call.
    pub(super) fn again(&self) -> Again<'_> {
        Again {
            client: &self.client,
            call_id: &self.call_id,
            fingerprint: self.fingerprint,
            key: self.idempotency_key.as_ref(),
            now: self.now,
        }
    }

    /// Whether `address` is one of its tool's.
    pub(super) fn is_at(&self, address: &str) -> bool {
        self.addresses().any(|its| **its == *address)
    }

    /// The addresses of its tool.
    pub(super) fn addresses(&self) -> impl Iterator<Item = &Arc<str>> {
        std::iter::once(&self.upstream).chain(&*self.siblings)
    }

    /// Whether `name` is the name of this call's route, or one it had.
    pub(super) fn is_route(&self, name: &str) -> bool {
        *self.route == *name || self.scope.formerly.iter().any(|old| **old == *name)
    }
}

/// The request as it is kept for resends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredRequest {
    /// Its method.
    pub method: Method,
    /// Path and query, as they go to the tool.
    pub target: Arc<str>,
    /// Its header fields; credentials were removed by the caller.
    pub headers: HeaderMap,
    /// Its body.
    pub body: Bytes,
    /// Whether a credential was removed: such a call is not resent without one.
    pub credential: bool,
}

/// The undo request of a call as it is kept, so that every send of it is the same request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredUndo {
    /// Its method.
    pub method: Method,
    /// Path and query.
    pub target: Arc<str>,
    /// Its body.
    pub body: Bytes,
}

/// The answer to a claim of a call id and key.
#[derive(Clone, Debug)]
pub enum Begun {
    /// The id and the key are the caller's; the call may be sent once this is read.
    Claimed(Claim),
    /// The id belongs to a call of this client that is running or remembered.
    Known(Box<Known>),
    /// The key belongs to a call with another id.
    KeyTaken(Box<Known>),
    /// Another client uses this id at the same upstream. No details for this one.
    Foreign,
    /// The client has undone this id before, perhaps before it arrived: it is never sent.
    Undone {
        /// Sends noted under it, if any.
        sends: u32,
    },
    /// Nothing stands in the way of the id or key, but the same request of this client waits in
    /// the compensation queue under another id. Only for those who are wary of that.
    Alike(Box<Known>),
}

/// A call that was there before.
#[derive(Clone, Debug)]
pub struct Known {
    /// Whether the request is the same: its fingerprint, and for a known id the key as well.
    pub same_request: bool,
    /// The call. When it is settled and the request is the same, its window runs anew from now.
    pub call: Arc<CallView>,
}

/// A request as far as it decides whether it repeats a call.
#[derive(Clone, Copy, Debug)]
pub struct Again<'a> {
    /// Whose it is.
    pub client: &'a ClientName,
    /// The id it names.
    pub call_id: &'a CallId,
    /// What makes it the same request.
    pub fingerprint: Fingerprint,
    /// Its idempotency key, when it has one.
    pub key: Option<&'a Arc<str>>,
    /// When it is looked at.
    pub now: Wall,
}

/// A stored answer: what was told, or would be told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reply {
    /// Its status.
    pub status: StatusCode,
    /// Its header fields, without those that are not kept (the caller removed them).
    pub headers: HeaderMap,
    /// Its body, as far as it was kept.
    pub body: Kept,
}

/// How much of a body was kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Kept {
    /// All of it.
    Whole(Bytes),
    /// Too large to keep; only what identifies it.
    Digest {
        /// Its length in bytes.
        bytes: u64,
        /// Its SHA-256; none of one that was on record before it was read, and never came whole.
        sha256: Option<[u8; 32]>,
    },
}

impl Claim {
    /// Enough for a fact; no intention fits it.
    #[must_use]
    pub const fn none(row: RowId, life: u32) -> Self {
        Self {
            row,
            life,
            fence: 0,
        }
    }

    /// Whether somebody holds it.
    #[must_use]
    pub const fn is_one(self) -> bool {
        self.fence > 0
    }
}

impl Owner {
    /// The instance with this name.
    #[must_use]
    pub fn new(name: &str) -> Self {
        Self(Arc::from(name))
    }

    /// Whose a call is that has ended.
    #[must_use]
    pub fn nobody() -> Self {
        Self::new("")
    }

    /// Its name.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Display for RowId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Header fields as `name: value\r\n` lines, byte for byte: the form whose digest stands for them.
#[must_use]
pub fn headers_to_text(headers: &HeaderMap) -> Vec<u8> {
    let length = headers
        .iter()
        .map(|(n, v)| n.as_str().len() + v.len() + 4)
        .sum();
    let mut text = Vec::with_capacity(length);
    for (name, value) in headers {
        text.extend_from_slice(name.as_str().as_bytes());
        text.extend_from_slice(b": ");
        text.extend_from_slice(value.as_bytes());
        text.extend_from_slice(b"\r\n");
    }
    text
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    #[test]
    fn headers_are_lines_in_their_order() {
        let mut headers = HeaderMap::new();
        headers.append("x-err", HeaderValue::from_static("7"));
        headers.append("link", HeaderValue::from_static("<a>; rel=\"b: c\""));
        headers.append("link", HeaderValue::from_static(""));
        let text = headers_to_text(&headers);
        assert_eq!(text, b"x-err: 7\r\nlink: <a>; rel=\"b: c\"\r\nlink: \r\n");
    }
}
