//! How our enums stand in the file: words a person can read, and back.
//!
//! A word nobody knows is a damaged row and an error, never a guess.

use std::sync::Arc;

use http::StatusCode;
use rusqlite::Row;
use rusqlite::types::Type;

use crate::call::id::IdSource;
use crate::call::outcome::{Cause, NotSent, Outcome, Reading, Unclear};
use crate::call::receipt::{Answer, Doubt, State};
use crate::ledger::{Contradiction, Proof, SettledBy};

/// A value of the file that is not one of ours.
#[derive(Debug, thiserror::Error)]
#[error("column {column} holds {found:?}, which this callgate does not know")]
struct Unknown {
    column: usize,
    found: String,
}

/// The error of a row that cannot be read.
pub(super) fn damaged(column: usize, found: &str) -> rusqlite::Error {
    let unknown = Unknown {
        column,
        found: found.to_owned(),
    };
    rusqlite::Error::FromSqlConversionFailure(column, Type::Text, Box::new(unknown))
}

/// Reads a word from a column.
pub(super) fn word<T>(
    row: &Row<'_>,
    column: usize,
    parse: fn(&str) -> Option<T>,
) -> rusqlite::Result<T> {
    let text = row.get_ref(column)?.as_str()?;
    parse(text).ok_or_else(|| damaged(column, text))
}

/// Reads a word from a column that may be null.
pub(super) fn optional_word<T>(
    row: &Row<'_>,
    column: usize,
    parse: fn(&str) -> Option<T>,
) -> rusqlite::Result<Option<T>> {
    match row.get_ref(column)?.as_str_or_null()? {
        None => Ok(None),
        Some(text) => parse(text).map(Some).ok_or_else(|| damaged(column, text)),
    }
}

/// An outcome as `timeout`, `connect` or, with its status, `kept 503`.
pub(super) fn outcome_text(outcome: Outcome) -> String {
    match outcome {
        Outcome::NotSent(NotSent::Connect) => "connect".to_owned(),
        Outcome::NotSent(NotSent::Tls) => "tls".to_owned(),
        Outcome::NotSent(NotSent::HandedBack) => "handed-back".to_owned(),
        Outcome::NotSent(NotSent::Refused) => "refused".to_owned(),
        Outcome::Unclear(Unclear::Timeout) => "timeout".to_owned(),
        Outcome::Unclear(Unclear::Disconnect) => "disconnect".to_owned(),
        Outcome::Answered(reading) => {
            let word = match reading {
                Reading::Success(_) => "success",
                Reading::Failure(_) => "failure",
                Reading::Unbinding(_) => "unbinding",
                Reading::Pending(_) => "pending",
                Reading::Kept(_) => "kept",
            };
            format!("{word} {}", reading.status().as_u16())
        }
    }
}

pub(super) fn outcome(text: &str) -> Option<Outcome> {
    let reading: fn(StatusCode) -> Reading = match text.split_once(' ') {
        Some(("success", _)) => Reading::Success,
        Some(("failure", _)) => Reading::Failure,
        Some(("unbinding", _)) => Reading::Unbinding,
        Some(("pending", _)) => Reading::Pending,
        Some(("kept", _)) => Reading::Kept,
        Some(_) => return None,
        None => {
            return Some(match text {
                "connect" => Outcome::NotSent(NotSent::Connect),
                "tls" => Outcome::NotSent(NotSent::Tls),
                "handed-back" => Outcome::NotSent(NotSent::HandedBack),
                "refused" => Outcome::NotSent(NotSent::Refused),
                "timeout" => Outcome::Unclear(Unclear::Timeout),
                "disconnect" => Outcome::Unclear(Unclear::Disconnect),
                _ => return None,
            });
        }
    };
    let (_, status) = text.split_once(' ')?;
    Some(Outcome::Answered(reading(
        StatusCode::from_bytes(status.as_bytes()).ok()?,
    )))
}

/// What settled a call, as `answer 2` or `receipt`.
pub(super) fn settled_by_text(by: SettledBy) -> String {
    match by {
        SettledBy::Answer(n) => format!("answer {n}"),
        SettledBy::Receipt => "receipt".to_owned(),
        SettledBy::NeverSent => "never-sent".to_owned(),
        SettledBy::Reversal => "reversal".to_owned(),
        SettledBy::Operator => "operator".to_owned(),
    }
}

pub(super) fn settled_by(text: &str) -> Option<SettledBy> {
    match text {
        "receipt" => Some(SettledBy::Receipt),
        "never-sent" => Some(SettledBy::NeverSent),
        "reversal" => Some(SettledBy::Reversal),
        "operator" => Some(SettledBy::Operator),
        _ => text
            .strip_prefix("answer ")?
            .parse()
            .ok()
            .map(SettledBy::Answer),
    }
}

pub(super) fn cause(text: &str) -> Option<Cause> {
    Cause::ALL.into_iter().find(|cause| cause.as_str() == text)
}

pub(super) fn answer(text: &str) -> Option<Answer> {
    if text == Answer::NotFound.as_str() {
        return Some(Answer::NotFound);
    }
    State::from_word(text).map(Answer::State)
}

pub(super) fn doubt(text: &str) -> Option<Doubt> {
    Doubt::ALL.into_iter().find(|doubt| doubt.as_str() == text)
}

pub(super) fn source(text: &str) -> Option<IdSource> {
    [IdSource::Client, IdSource::Gateway]
        .into_iter()
        .find(|source| source.as_str() == text)
}

pub(super) fn contradiction(text: &str) -> Option<Contradiction> {
    Contradiction::ALL
        .into_iter()
        .find(|kind| kind.as_str() == text)
}

pub(super) const fn proof_word(proof: Proof) -> &'static str {
    match proof {
        Proof::Proven => "proven",
        Proof::Broken => "broken",
    }
}

pub(super) fn proof(text: &str) -> Option<Proof> {
    [Proof::Proven, Proof::Broken]
        .into_iter()
        .find(|proof| proof_word(*proof) == text)
}

/// Any text, shared.
pub(super) fn text(row: &Row<'_>, column: usize) -> rusqlite::Result<Arc<str>> {
    Ok(Arc::from(row.get_ref(column)?.as_str()?))
}

/// Any text that may be null, shared.
pub(super) fn optional_text(row: &Row<'_>, column: usize) -> rusqlite::Result<Option<Arc<str>>> {
    Ok(row.get_ref(column)?.as_str_or_null()?.map(Arc::from))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_outcome_comes_back_from_its_word() {
        let status = StatusCode::from_u16(207).unwrap();
        let all = [
            Outcome::NotSent(NotSent::Connect),
            Outcome::NotSent(NotSent::Tls),
            Outcome::NotSent(NotSent::HandedBack),
            Outcome::NotSent(NotSent::Refused),
            Outcome::Unclear(Unclear::Timeout),
            Outcome::Unclear(Unclear::Disconnect),
            Outcome::Answered(Reading::Success(status)),
            Outcome::Answered(Reading::Failure(status)),
            Outcome::Answered(Reading::Unbinding(status)),
            Outcome::Answered(Reading::Pending(status)),
            Outcome::Answered(Reading::Kept(status)),
        ];
        for one in all {
            assert_eq!(outcome(&outcome_text(one)), Some(one));
        }
        for stranger in ["", "kept", "kept x", "kept 99", "lost 200", "Timeout"] {
            assert_eq!(outcome(stranger), None, "{stranger:?}");
        }
    }

    #[test]
    fn every_other_word_comes_back_too() {
        for by in [
            SettledBy::Answer(3),
            SettledBy::Receipt,
            SettledBy::NeverSent,
            SettledBy::Reversal,
            SettledBy::Operator,
        ] {
            assert_eq!(settled_by(&settled_by_text(by)), Some(by));
        }
        for one in State::ALL
            .map(Answer::State)
            .into_iter()
            .chain([Answer::NotFound])
        {
            assert_eq!(answer(one.as_str()), Some(one));
        }
        assert_eq!(settled_by("answer x"), None);
        assert_eq!(answer("DONE"), None);
        assert_eq!(doubt("none"), None);
    }
}
