//! A policy as compact JSON: what a ledger row keeps, so that a call is finished by the rules it
//! began under, also after a reload or an upgrade.
//!
//! The form is versioned and its fields are read strictly, but a field that a newer version added
//! takes its default: a row written by an older version must stay readable. Durations are whole
//! milliseconds, as the reader of the configuration guarantees.

use std::time::Duration;

use http::StatusCode;
use serde::{Deserialize, Serialize};

use super::words::Word;
use crate::call::policy::{
    Compensation, Policy, PolicyError, Receipts, ResendOn, Retry, RetryNumbers, Reversal, Timeouts,
    UnresolvedAnswer,
};

const NOT_FOUND: &str = "NOT_FOUND";
const UNKNOWN: &str = "UNKNOWN";

/// The form written; a higher one is refused.
const VERSION: u8 = 1;

/// Why a stored policy cannot be used. The ledger's file was damaged, or written by a newer
/// version; the call must not be decided by guesses.
#[derive(Debug, thiserror::Error)]
pub enum SnapshotError {
    /// Not the JSON that [`encode`] writes.
    #[error("the stored policy is not readable")]
    Json(#[from] serde_json::Error),
    /// Written by a newer version of callgate.
    #[error("the stored policy has form {0}, this version knows {VERSION}")]
    Newer(u8),
    /// A number out of its range.
    #[error("the stored policy is out of range")]
    Range(#[source] PolicyError),
    /// A word or status that means nothing here.
    #[error("the stored policy says {value:?} for {key}")]
    Word {
        /// The field.
        key: &'static str,
        /// What stands there.
        value: String,
    },
}

#[derive(Serialize, Deserialize)]
struct Form {
    v: u8,
    timeouts: TimeoutsForm,
    retry: RetryForm,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    receipt: Option<ReceiptForm>,
    compensation: CompensationForm,
    unresolved_status: u16,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    unresolved_answer: Option<String>,
    on_client_gone: String,
}

#[derive(Serialize, Deserialize)]
struct TimeoutsForm {
    connect: u64,
    attempt: u64,
    idle: u64,
    receipt: u64,
    total: u64,
    late: u64,
}

#[derive(Serialize, Deserialize)]
struct RetryForm {
    max: u8,
    base: u64,
    // As text: the JSON reader may round the last digit of a number.
    factor: String,
    cap: u64,
    jitter: String,
    on: Vec<String>,
    resend_on: Vec<String>,
}

#[derive(Serialize, Deserialize)]
struct ReceiptForm {
    settle: u64,
    retention: u64,
    records: String,
    believe: String,
}

#[derive(Serialize, Deserialize)]
struct CompensationForm {
    rounds: Vec<u64>,
    resend: bool,
    lease: u64,
    on_failed: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    reversal: Option<ReversalForm>,
}

#[derive(Serialize, Deserialize)]
struct ReversalForm {
    when: Vec<String>,
    min_age: u64,
    max_age: u64,
}

/// Writes a policy as one line of JSON.
#[must_use]
pub fn encode(policy: &Policy) -> String {
    let n = policy.retry.numbers();
    let t = policy.timeouts;
    let form = Form {
        v: VERSION,
        timeouts: TimeoutsForm {
            connect: ms(t.connect),
            attempt: ms(t.attempt),
            idle: ms(t.idle),
            receipt: ms(t.receipt),
            total: ms(t.total),
            late: ms(t.late),
        },
        retry: RetryForm {
            max: n.max_retries,
            base: ms(n.base),
            factor: n.factor.to_string(),
            cap: ms(n.cap),
            jitter: n.jitter.to_string(),
            on: n.on.iter().map(|cause| word(*cause)).collect(),
            resend_on: resend_words(n.resend_on)
                .iter()
                .map(|text| (*text).to_owned())
                .collect(),
        },
        receipt: policy.receipt.map(|receipt| ReceiptForm {
            settle: ms(receipt.settle),
            retention: ms(receipt.retention),
            records: word(receipt.records),
            believe: word(receipt.believe_not_found),
        }),
        compensation: CompensationForm {
            rounds: policy.compensation.rounds.iter().copied().map(ms).collect(),
            resend: policy.compensation.resend,
            lease: ms(policy.compensation.lease),
            on_failed: word(policy.compensation.on_failed),
            reversal: policy.compensation.reversal.map(|reversal| ReversalForm {
                when: when_words(reversal).map(str::to_owned).collect(),
                min_age: ms(reversal.min_age),
                max_age: ms(reversal.max_age),
            }),
        },
        unresolved_status: policy.unresolved_status.as_u16(),
        unresolved_answer: policy.unresolved_answer.word().map(str::to_owned),
        on_client_gone: word(policy.on_client_gone),
    };
    serde_json::to_string(&form).expect("plain numbers and words are JSON")
}

/// Reads what [`encode`] wrote.
///
/// # Errors
/// Says what of the text is not a policy.
pub fn decode(text: &str) -> Result<Policy, SnapshotError> {
    let form: Form = serde_json::from_str(text)?;
    if form.v > VERSION {
        return Err(SnapshotError::Newer(form.v));
    }
    let receipt = form.receipt.map(read_receipt).transpose()?;
    let answer = match form.unresolved_answer {
        Some(text) => read_word("unresolved_answer", &text)?,
        None => UnresolvedAnswer::ByIdSource,
    };
    let status = StatusCode::from_u16(form.unresolved_status).map_err(|_| SnapshotError::Word {
        key: "unresolved_status",
        value: form.unresolved_status.to_string(),
    })?;
    Ok(Policy {
        timeouts: Timeouts {
            connect: Duration::from_millis(form.timeouts.connect),
            attempt: Duration::from_millis(form.timeouts.attempt),
            idle: Duration::from_millis(form.timeouts.idle),
            receipt: Duration::from_millis(form.timeouts.receipt),
            total: Duration::from_millis(form.timeouts.total),
            late: Duration::from_millis(form.timeouts.late),
        },
        retry: read_retry(form.retry)?,
        receipt,
        compensation: Compensation {
            rounds: form
                .compensation
                .rounds
                .into_iter()
                .map(Duration::from_millis)
                .collect(),
            resend: form.compensation.resend,
            lease: Duration::from_millis(form.compensation.lease),
            on_failed: read_word("on_failed", &form.compensation.on_failed)?,
            reversal: form.compensation.reversal.map(read_reversal).transpose()?,
        },
        unresolved_status: status,
        unresolved_answer: answer,
        on_client_gone: read_word("on_client_gone", &form.on_client_gone)?,
    })
}

fn read_retry(form: RetryForm) -> Result<Retry, SnapshotError> {
    let on = form
        .on
        .iter()
        .map(|text| read_word("on", text))
        .collect::<Result<_, _>>()?;
    let known = [
        ResendOn::Nothing,
        ResendOn::NotFound,
        ResendOn::NotFoundOrUnknown,
    ];
    let resend_on = known
        .into_iter()
        .find(|choice| *resend_words(*choice) == *form.resend_on)
        .ok_or_else(|| SnapshotError::Word {
            key: "resend_on",
            value: form.resend_on.join(", "),
        })?;
    Retry::new(RetryNumbers {
        max_retries: form.max,
        base: Duration::from_millis(form.base),
        factor: read_number("factor", &form.factor)?,
        cap: Duration::from_millis(form.cap),
        jitter: read_number("jitter", &form.jitter)?,
        on,
        resend_on,
    })
    .map_err(SnapshotError::Range)
}

/// The words of `reversal.when`.
pub(super) fn when_words(reversal: Reversal) -> impl Iterator<Item = &'static str> {
    let words = [(reversal.unknown, UNKNOWN), (reversal.not_found, NOT_FOUND)];
    words
        .into_iter()
        .filter_map(|(on, word)| on.then_some(word))
}

fn read_reversal(form: ReversalForm) -> Result<Reversal, SnapshotError> {
    let mut reversal = Reversal {
        unknown: false,
        not_found: false,
        min_age: Duration::from_millis(form.min_age),
        max_age: Duration::from_millis(form.max_age),
    };
    for word in form.when {
        match &*word {
            UNKNOWN => reversal.unknown = true,
            NOT_FOUND => reversal.not_found = true,
            _ => {
                return Err(SnapshotError::Word {
                    key: "reversal.when",
                    value: word,
                });
            }
        }
    }
    Ok(reversal)
}

fn read_receipt(form: ReceiptForm) -> Result<Receipts, SnapshotError> {
    Ok(Receipts {
        settle: Duration::from_millis(form.settle),
        retention: Duration::from_millis(form.retention),
        records: read_word("records", &form.records)?,
        believe_not_found: read_word("believe", &form.believe)?,
    })
}

/// The words of `retry.resend_on`.
pub(super) const fn resend_words(choice: ResendOn) -> &'static [&'static str] {
    match choice {
        ResendOn::Nothing => &[],
        ResendOn::NotFound => &[NOT_FOUND],
        ResendOn::NotFoundOrUnknown => &[NOT_FOUND, UNKNOWN],
    }
}

fn read_word<W: Word>(key: &'static str, text: &str) -> Result<W, SnapshotError> {
    W::from_word(text).ok_or_else(|| SnapshotError::Word {
        key,
        value: text.to_owned(),
    })
}

fn read_number(key: &'static str, text: &str) -> Result<f64, SnapshotError> {
    text.parse().map_err(|_| SnapshotError::Word {
        key,
        value: text.to_owned(),
    })
}

fn word(value: impl Word) -> String {
    value.word().unwrap_or_default().to_owned()
}

fn ms(d: Duration) -> u64 {
    u64::try_from(d.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests;
