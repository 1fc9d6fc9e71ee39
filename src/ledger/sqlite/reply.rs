//! A stored answer as the columns it fills.

use super::fields;
use crate::ledger::{Kept, Reply};

/// The five columns of a reply; all null without one.
#[derive(Default)]
pub(super) struct Columns<'a> {
    pub(super) status: Option<u16>,
    pub(super) bytes: Option<i64>,
    pub(super) sha256: Option<&'a [u8]>,
    pub(super) headers: Option<Vec<u8>>,
    pub(super) body: Option<&'a [u8]>,
}

impl<'a> Columns<'a> {
    pub(super) fn of(reply: Option<&'a Reply>) -> Self {
        let Some(reply) = reply else {
            return Self::default();
        };
        let (bytes, sha256, body) = match &reply.body {
            Kept::Whole(body) => (None, None, Some(&**body)),
            Kept::Digest { bytes, sha256 } => (
                Some(i64::try_from(*bytes).unwrap_or(i64::MAX)),
                sha256.as_ref().map(|sum| &sum[..]),
                None,
            ),
        };
        Self {
            status: Some(reply.status.as_u16()),
            bytes,
            sha256,
            headers: Some(fields::to_text(&reply.headers)),
            body,
        }
    }
}
