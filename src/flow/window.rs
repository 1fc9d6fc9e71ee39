//! Keys with a window in them (`{day}`, `{minute}`): one operation a day, or a minute.
//!
//! The window is the one in which the call was first seen, in the route's time zone, and stays with
//! its call id: a repeat after midnight is the same call. So a key is kept here as it was before
//! its windows were filled in, to be made again for the moment the ledger names. A day is a local
//! date, however many hours it has; a minute carries its offset, since an hour that is gone through
//! twice has all its minutes twice.

use std::sync::Arc;

use jiff::Timestamp;
use jiff::tz::TimeZone;

use super::key::{self, Key};
use super::told::Problem;
use crate::call::time::Wall;
use crate::config::route::KeyHash;

/// A derived key before its windows were filled in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Windowed {
    pub(super) pieces: Arc<[Piece]>,
    pub(super) zone: TimeZone,
    pub(super) hash: KeyHash,
}

/// A piece of such a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Piece {
    /// What was taken from the request, or stands in the template.
    Text(Box<str>),
    /// The local date.
    Day,
    /// The local date and minute, with their offset from UTC.
    Minute,
}

impl Windowed {
    /// The key of a call first seen at this time.
    pub(super) fn at(&self, first_seen: Wall) -> Result<Key, Problem> {
        let at = Timestamp::from_millisecond(first_seen.0).unwrap_or(Timestamp::MAX);
        let local = at.to_zoned(self.zone.clone());
        let text = self.text(|piece| match piece {
            Piece::Text(text) => text.to_string(),
            Piece::Day => local.strftime("%Y-%m-%d").to_string(),
            Piece::Minute => local.strftime("%Y-%m-%dT%H:%M%z").to_string(),
        });
        let key = key::made(text, self.hash)?;
        Ok(Key {
            windowed: Some(self.clone()),
            ..key
        })
    }

    /// What makes two keys of one call id the same, whatever the time: each is the key of its own
    /// first sight.
    pub(super) fn open(&self) -> Arc<str> {
        Arc::from(self.text(|piece| match piece {
            Piece::Text(text) => text.to_string(),
            Piece::Day => "{day}".to_owned(),
            Piece::Minute => "{minute}".to_owned(),
        }))
    }

    fn text(&self, of: impl Fn(&Piece) -> String) -> String {
        self.pieces.iter().map(of).collect()
    }
}

#[cfg(test)]
mod tests;
