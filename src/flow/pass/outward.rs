//! The request as each send of it goes out: an ordinary one's first send straight from its lines,
//! every other from a map of its fields.

use std::sync::Arc;

use http::{HeaderMap, HeaderValue};

use super::{Pass, PassBody};
use crate::call::outcome::Cause;
use crate::flow::{Flow, Request, reading};
use crate::upstream::fields::Final;
use crate::upstream::headers::{self, Hop, Length, Mark, Trailers};
use crate::upstream::{Outgoing, Payload};

/// The request's fields on their way to the tool.
pub(super) enum Outward {
    /// Prepared once, stamped per send; shared with the exchange, so that they are copied only when
    /// they are sent again beside it.
    Prepared(Arc<HeaderMap>),
    /// An ordinary request's: its lines, and this hop's element of `Forwarded`.
    Lines(HeaderValue),
}

impl Outward {
    pub(super) fn of(flow: &Flow, request: &mut Request<PassBody>) -> Self {
        if let Some(text) = request.headers.text()
            && matches!(request.body, PassBody::Whole(_))
        {
            return Self::Lines(request.caller.forwarded(Some(text.host())));
        }
        let mut trailers = Trailers::of(&request.headers);
        if matches!(request.body, PassBody::Whole(_)) {
            trailers.promise_none();
        }
        let mut fields = flow.prepared(request);
        trailers.say(&mut fields);
        Self::Prepared(Arc::new(fields))
    }
}

impl Pass<'_> {
    /// The request of send `n`.
    pub(super) fn outgoing(&mut self, n: u8, cause: Option<Cause>) -> Outgoing {
        let route = &self.request.route;
        let (body, length) = match &self.request.body {
            PassBody::Whole(bytes) => (
                Payload::from(bytes.clone()),
                Length::Known(bytes.len() as u64),
            ),
            PassBody::Arriving(upload) => (upload.lend(), Length::AsAnnounced),
        };
        let mark = Mark {
            field: &route.conf.call_id.header,
            call_id: &self.request.call_id,
            client: &self.request.client,
            source: self.request.source,
            attempt: u32::from(n),
            cause,
            key: None,
            traceparent: None,
        };
        let tool = &route.sites[self.site].tool;
        let written = match (
            &self.outward,
            &self.request.body,
            self.request.headers.text(),
        ) {
            (Outward::Lines(forwarded), PassBody::Whole(body), Some(text)) => {
                let way = (&self.request.method, &self.target);
                headers::written(text, way, &self.hop(forwarded), &mark, tool, body)
            }
            _ => None,
        };
        let headers = match written {
            Some(written) => written,
            None => {
                let mut fields = self.prepared();
                let changed = Arc::make_mut(&mut fields);
                headers::stamp(changed, &mark, tool, &self.request.method, length);
                self.outward = Outward::Prepared(Arc::clone(&fields));
                Final::Map(fields)
            }
        };
        Outgoing {
            method: self.request.method.clone(),
            target: self.target.clone(),
            headers,
            body,
        }
    }

    fn hop(&self, forwarded: &HeaderValue) -> Hop<'_> {
        Hop {
            node: &self.flow.node,
            version: self.request.version,
            forwarded: forwarded.clone(),
        }
    }

    /// The fields as a map, taken out of their place; made now, where lines were enough so far.
    fn prepared(&mut self) -> Arc<HeaderMap> {
        let nothing = Outward::Prepared(Arc::default());
        match std::mem::replace(&mut self.outward, nothing) {
            Outward::Prepared(fields) => fields,
            Outward::Lines(forwarded) => {
                let mut fields = HeaderMap::clone(&self.request.headers);
                let id_field = &self.request.route.conf.call_id.header;
                headers::prepare(&mut fields, id_field, self.hop(&forwarded));
                Arc::new(fields)
            }
        }
    }

    /// The trace the request belongs to.
    pub(super) fn trace_id(&self) -> Option<&str> {
        match &self.outward {
            Outward::Prepared(fields) => reading::trace_id(fields),
            Outward::Lines(_) => reading::trace_id(&self.request.headers),
        }
    }
}
