//! A call that the gateway makes by itself, from what was written down for it.
//!
//! It becomes a request like a caller's and takes the same way; what makes it different is that it
//! is promised: nobody else would send it. Deliberately absent: where it was written down.

use std::net::Ipv4Addr;
use std::sync::Arc;

use bytes::Bytes;
use http::Version;
use http::uri::{InvalidUri, PathAndQuery};
use tokio_util::sync::CancellationToken;

use super::told::Problem;
use super::{Flow, Prefer, Request, Route, key};
use crate::call::id::{CallId, ClientName, IdSource};
use crate::call::time::Wall;
use crate::ledger::StoredRequest;
use crate::upstream::headers::Caller;

/// Everything that makes a call of the gateway's own.
#[derive(Clone, Debug)]
pub struct Errand {
    /// The route it takes.
    pub route: Arc<Route>,
    /// Whose call it is.
    pub client: ClientName,
    /// Its id, the same whenever it is run.
    pub call_id: CallId,
    /// Who made the id.
    pub source: IdSource,
    /// What is sent, with path and query as a caller would send them.
    pub request: StoredRequest,
    /// When it was written down: windows of its key are of this time.
    pub seen_at: Wall,
}

impl Flow {
    /// The errand as a request.
    ///
    /// # Errors
    /// Its target is no path.
    pub fn errand(&self, errand: &Errand) -> Result<Request<Bytes>, InvalidUri> {
        let target = PathAndQuery::try_from(&*errand.request.target)?;
        Ok(Request {
            route: Arc::clone(&errand.route),
            client: errand.client.clone(),
            call_id: errand.call_id.clone(),
            source: errand.source,
            // It was written down with its id, perhaps long ago, and may have been begun since.
            minted: false,
            method: errand.request.method.clone(),
            target,
            authority: errand.route.conf.matcher.host.clone(),
            headers: errand.request.headers.clone().into(),
            body: errand.request.body.clone(),
            caller: Arc::new(Caller::at(Ipv4Addr::LOCALHOST.into())),
            version: Version::HTTP_11,
            // Nobody can leave who was never there.
            gone: CancellationToken::new(),
            received: self.clock.mono(),
            prefer: Prefer::default(),
            promised: true,
            promise: None,
            first_seen: Some(errand.seen_at),
        })
    }

    /// The business key of a request as a person reads it: before it was hashed, or the client's
    /// own. A window in it (`{day}`) is that of now; the call has that of its first send.
    ///
    /// # Errors
    /// The refusal the request would be told: a part of the key is missing, or a key is demanded.
    pub fn key_shown(&self, request: &Request<Bytes>) -> Result<Option<Arc<str>>, Problem> {
        let seen = request.first_seen.unwrap_or_else(|| self.clock.wall());
        Ok(key::of(request, seen)?.map(|key| key.business.unwrap_or(key.text)))
    }
}
