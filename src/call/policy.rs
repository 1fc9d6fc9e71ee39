//! The numbers and choices one call lives by: a snapshot it keeps for its whole life.
//!
//! The values come from `config`, already proved; `Retry::new` refuses what could break the
//! arithmetic, so that no later code has to look again. Deliberately absent: addresses, headers
//! and templates, which are the route's and not the decision's.

use std::fmt;
use std::time::Duration;

use http::StatusCode;

use super::outcome::Cause;
use super::receipt::{Answer, State};
use super::time::Chance;

/// The most resends a call may have in line; more than three is warned about.
pub const MAX_RETRIES_MAX: u8 = 5;

/// Everything the in-line machine and the recovery machine look at.
#[derive(Clone, Debug, PartialEq)]
pub struct Policy {
    /// Bounds of every wait.
    pub timeouts: Timeouts,
    /// When and how often a call is sent again.
    pub retry: Retry,
    /// What the tool can be asked; `None` when the route has no receipt endpoint.
    pub receipt: Option<Receipts>,
    /// What happens to a call that could not be settled in line.
    pub compensation: Compensation,
    /// The status of `unresolved` (504, 503, 502, 409 or 202).
    pub unresolved_status: StatusCode,
    /// What the caller is shown when the call stays unresolved and a 5xx answer was kept.
    pub unresolved_answer: UnresolvedAnswer,
    /// What the caller's leaving changes.
    pub on_client_gone: OnClientGone,
}

/// Bounds of the waits of one call (`timeouts`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timeouts {
    /// TCP connect and TLS handshake.
    pub connect: Duration,
    /// One attempt: the whole answer when collected, its head when streamed.
    pub attempt: Duration,
    /// The longest gap between two reads of an answer.
    pub idle: Duration,
    /// One receipt query.
    pub receipt: Duration,
    /// Everything in line, from the durable record.
    pub total: Duration,
    /// How long past its attempt timeout an exchange may still speak.
    pub late: Duration,
}

/// When and how often a call is sent again (`retry`).
#[derive(Clone, Debug, PartialEq)]
pub struct Retry {
    max_retries: u8,
    base: Duration,
    factor: f64,
    cap: Duration,
    jitter: f64,
    on: Vec<Cause>,
    resend_on: ResendOn,
}

/// Which receipt answers allow a resend (`retry.resend_on`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ResendOn {
    /// `[]`: nothing does.
    Nothing,
    /// `[NOT_FOUND]`: the default.
    NotFound,
    /// `[NOT_FOUND, UNKNOWN]`: the operator declares that the tool dedupes by call id.
    NotFoundOrUnknown,
}

/// What the tool's receipts are like (`receipt`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Receipts {
    /// How long after closing the earlier exchanges "not found" becomes believable.
    pub settle: Duration,
    /// How long the tool remembers.
    pub retention: Duration,
    /// When the tool's receipt begins to exist.
    pub records: Records,
    /// Whether "not found" needs a proof of the endpoint first.
    pub believe_not_found: BelieveNotFound,
}

/// When the tool's receipt begins to exist (`receipt.records`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Records {
    /// As soon as the call arrives.
    Arrival,
    /// With the commit of the work: "not found" while it may run means nothing.
    Commit,
}

/// Whether "not found" needs a proof of the endpoint (`receipt.believe_not_found`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BelieveNotFound {
    /// Only after the endpoint recognised an id that was sent.
    Proven,
    /// From the first answer on.
    Always,
}

/// What happens to a call that could not be settled in line (`compensation`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Compensation {
    /// Gaps before round 1, 2, ..; one to five, growing.
    pub rounds: Vec<Duration>,
    /// Whether a round that believes NOT_FOUND may resend.
    pub resend: bool,
    /// How long a worker's claim holds without a heartbeat.
    pub lease: Duration,
    /// What a receipt FAILED does to the dead letter.
    pub on_failed: OnFailed,
    /// When a call that stays unclear is undone; `None` when it never is.
    pub reversal: Option<Reversal>,
}

/// When a call that stays unclear is undone (`compensation.reversal`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reversal {
    /// When the receipt says UNKNOWN.
    pub unknown: bool,
    /// When the receipt says NOT_FOUND and is believed.
    pub not_found: bool,
    /// How long every exchange must have been closed.
    pub min_age: Duration,
    /// How long after its first send a call may still be undone.
    pub max_age: Duration,
}

/// What a receipt FAILED does to a dead letter (`compensation.on_failed`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnFailed {
    /// The row ends as `FAILED`.
    Drop,
    /// A human shall see it.
    Keep,
}

/// What the caller is shown when a 5xx answer was kept (`unresolved_answer`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UnresolvedAnswer {
    /// Not set: `problem` when the gateway made the call id, else `upstream`.
    ByIdSource,
    /// The gateway's own problem document.
    Problem,
    /// The tool's last complete 5xx answer.
    Upstream,
}

/// What the caller's leaving changes (`on_client_gone`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnClientGone {
    /// Nothing: the call runs on and is recorded.
    Finish,
    /// No new send starts; the call is still settled.
    Cancel,
}

/// A value that would break the retry arithmetic, with the key it stands under.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PolicyError {
    /// The key below `retry`, such as `jitter`.
    pub key: &'static str,
    /// What was expected there.
    pub expected: &'static str,
}

/// The raw numbers of [`Retry`], before they are proved.
#[derive(Clone, Debug, PartialEq)]
pub struct RetryNumbers {
    /// Resends allowed, 0..=5.
    pub max_retries: u8,
    /// The first wait; more than zero.
    pub base: Duration,
    /// Growth per resend, 1..=10.
    pub factor: f64,
    /// The longest wait before jitter; at least `base`.
    pub cap: Duration,
    /// Spread to both sides, 0..=1.
    pub jitter: f64,
    /// The causes that may be resent.
    pub on: Vec<Cause>,
    /// The receipt answers that allow it.
    pub resend_on: ResendOn,
}

/// A send needs this share of `timeouts.attempt` before its caller is told: with less, a healthy
/// tool's answer could no longer arrive, and the send would only add an unclear attempt.
const USEFUL_SHARE_OF_ATTEMPT: u32 = 2;

impl Timeouts {
    /// The least time that makes a send worthwhile, in line and for a caller who repeats a call.
    #[must_use]
    pub fn useful(&self) -> Duration {
        self.attempt / USEFUL_SHARE_OF_ATTEMPT
    }
}

impl Reversal {
    /// Whether this answer wants a reversal (`when`).
    #[must_use]
    pub const fn wants(self, answer: Answer) -> bool {
        match answer {
            Answer::NotFound => self.not_found,
            Answer::State(State::Unknown) => self.unknown,
            Answer::State(State::Received | State::Processing | State::Success | State::Failed) => {
                false
            }
        }
    }
}

impl Retry {
    /// Proves the numbers.
    ///
    /// # Errors
    /// Names the first key that is out of its range.
    pub fn new(n: RetryNumbers) -> Result<Self, PolicyError> {
        let refuse = |key, expected| Err(PolicyError { key, expected });
        if n.max_retries > MAX_RETRIES_MAX {
            return refuse("max_retries", "a whole number from 0 to 5");
        }
        if n.base.is_zero() {
            return refuse("base", "a duration longer than zero");
        }
        if n.cap < n.base {
            return refuse("cap", "a duration of at least `base`");
        }
        // NaN fails both comparisons, which is why they are written as "is inside".
        if !(1.0..=10.0).contains(&n.factor) {
            return refuse("factor", "a number from 1 to 10");
        }
        if !(0.0..=1.0).contains(&n.jitter) {
            return refuse("jitter", "a number from 0 to 1");
        }
        Ok(Self {
            max_retries: n.max_retries,
            base: n.base,
            factor: n.factor,
            cap: n.cap,
            jitter: n.jitter,
            on: n.on,
            resend_on: n.resend_on,
        })
    }

    /// Resends allowed over the life of the call, in line and by repeats.
    #[must_use]
    pub const fn max_retries(&self) -> u8 {
        self.max_retries
    }

    /// The first wait, and how long a call is not asked about again for those who repeat it.
    #[must_use]
    pub const fn base(&self) -> Duration {
        self.base
    }

    /// Whether a resend may follow an attempt that ended for `cause`.
    #[must_use]
    pub fn resends_after(&self, cause: Cause) -> bool {
        self.on.contains(&cause)
    }

    /// Which receipt answers allow a resend.
    #[must_use]
    pub const fn resend_on(&self) -> ResendOn {
        self.resend_on
    }

    /// The wait before resend `n` (1-based; 0 counts as 1):
    /// `min(cap, base * factor^(n-1)) * (1 - jitter + 2*jitter*u)`. The cap comes before the
    /// jitter, so that capped waits spread too.
    #[must_use]
    pub fn backoff(&self, n: u32, chance: Chance) -> Duration {
        let steps = i32::try_from(n.saturating_sub(1)).unwrap_or(i32::MAX);
        // The power may overflow to infinity; `min` brings it back to the cap.
        let grown = self.base.as_secs_f64() * self.factor.powi(steps);
        self.spread(
            Duration::try_from_secs_f64(grown).map_or(self.cap, |d| d.min(self.cap)),
            chance,
        )
    }

    /// `d` with the jitter of this policy, also used for the gaps between rounds.
    #[must_use]
    pub fn spread(&self, d: Duration, chance: Chance) -> Duration {
        let factor = (2.0 * self.jitter).mul_add(chance.get(), 1.0 - self.jitter);
        Duration::try_from_secs_f64(d.as_secs_f64() * factor).unwrap_or(Duration::MAX)
    }

    /// The numbers as they were given, for a snapshot of this policy.
    #[must_use]
    pub fn numbers(&self) -> RetryNumbers {
        RetryNumbers {
            max_retries: self.max_retries,
            base: self.base,
            factor: self.factor,
            cap: self.cap,
            jitter: self.jitter,
            on: self.on.clone(),
            resend_on: self.resend_on,
        }
    }
}

impl fmt::Display for PolicyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "retry.{}: expected {}", self.key, self.expected)
    }
}

impl std::error::Error for PolicyError {}

#[cfg(test)]
mod tests;
