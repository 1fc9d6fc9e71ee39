//! What a filter is made of, in the words of an address, of a job and of the command line.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::bad;
use crate::admin::problem::Problem;
use crate::call::id::ClientName;
use crate::call::receipt::{Answer, State};
use crate::call::time::Wall;
use crate::ledger::{DeadState, Filter};
use crate::telemetry::log::escaped;

/// Which dead letters are meant; every one that is given must match. Written as JSON it is the
/// name of a job's filter: always in this order, and only what is given.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub(in crate::admin) struct Criteria {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) state: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) route: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) client: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) older_than: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) error: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) receipt: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) key: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) text: Option<String>,
}

impl Criteria {
    /// Whether every dead letter is meant.
    pub(in crate::admin) fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// The same with its words as the ledger spells them, so that two people who mean the same
    /// write the same.
    pub(in crate::admin) fn canonical(mut self) -> Self {
        for word in [&mut self.state, &mut self.receipt].into_iter().flatten() {
            word.make_ascii_uppercase();
        }
        if let Some(text) = &mut self.text {
            text.make_ascii_lowercase();
        }
        self
    }

    /// What the ledger is asked, at this time.
    pub(in crate::admin) fn filter(&self, now: Wall) -> Result<Filter, Problem> {
        let shared = |text: &Option<String>| text.as_deref().map(Arc::from);
        let age = self.older_than.as_deref();
        Ok(Filter {
            state: self.state.as_deref().map(state).transpose()?,
            route: shared(&self.route),
            client: self.client.as_deref().map(ClientName::new),
            parked_before: age.map(|age| older_than(age, now)).transpose()?,
            error: shared(&self.error),
            key: shared(&self.key),
            receipt: self.receipt.as_deref().map(receipt).transpose()?,
            text: shared(&self.text),
            ..Filter::default()
        })
    }
}

fn state(word: &str) -> Result<DeadState, Problem> {
    DeadState::from_word(&word.to_ascii_uppercase()).ok_or_else(|| {
        let words = DeadState::ALL.map(DeadState::as_str).join(", ");
        let shown = escaped(word.as_bytes());
        bad(format!("`{shown}` is no state; use one of {words}."))
    })
}

/// An answer of a receipt: a state, or that it never heard of the call.
fn receipt(word: &str) -> Result<Answer, Problem> {
    let answers = || {
        State::ALL
            .into_iter()
            .map(Answer::State)
            .chain([Answer::NotFound])
    };
    let wanted = word.to_ascii_uppercase();
    answers()
        .find(|answer| answer.as_str() == wanted)
        .ok_or_else(|| {
            let words: Vec<_> = answers().map(Answer::as_str).collect();
            let shown = escaped(word.as_bytes());
            bad(format!(
                "`{shown}` is no answer of a receipt; use one of {}.",
                words.join(", ")
            ))
        })
}

/// The time before which something this old happened.
pub(in crate::admin) fn older_than(age: &str, now: Wall) -> Result<Wall, Problem> {
    let wrong = || {
        let shown = escaped(age.as_bytes());
        bad(format!(
            "`older_than` is an age such as 90s, 15m or 2h, not `{shown}`."
        ))
    };
    let age = humantime::parse_duration(age).map_err(|_| wrong())?;
    let ms = i64::try_from(age.as_millis()).map_err(|_| wrong())?;
    Ok(Wall(now.0.saturating_sub(ms)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_people_who_mean_the_same_write_the_same() {
        let one: Criteria =
            serde_json::from_str(r#"{"text":"Reset","state":"manual","receipt":"not_found"}"#)
                .unwrap();
        let two: Criteria =
            serde_json::from_str(r#"{"receipt":"NOT_FOUND","state":"MANUAL","text":"RESET"}"#)
                .unwrap();
        let text = |criteria: Criteria| serde_json::to_string(&criteria.canonical()).unwrap();
        assert_eq!(text(one.clone()), text(two));
        assert_eq!(
            text(one),
            r#"{"state":"MANUAL","receipt":"NOT_FOUND","text":"reset"}"#
        );
        assert!(Criteria::default().is_empty());
        assert!(serde_json::from_str::<Criteria>(r#"{"stat":"MANUAL"}"#).is_err());
    }
}
