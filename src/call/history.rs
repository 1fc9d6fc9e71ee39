//! Why did this run twice, or did it? The facts behind `why`, and its verdict.
//!
//! A person asks at three in the morning, from a story that may have holes. So the verdict comes
//! from a closed list, every word of it has one condition, and where the facts do not carry a word
//! it is `unknown`. Beside it four questions are answered, each with its evidence, because a
//! verdict names one cause and an incident often has two. Deliberately absent: the words of the
//! timeline, which are the reader's business, and any look at a body.

mod questions;
mod sends;

use std::time::Duration;

use super::outcome::Outcome;
use super::receipt::Answer;
use super::time::Wall;

pub use questions::{Certain, Question, Reply, answer, same_id_by_log};
use sends::Sends;

/// Everything a judgement is made from.
#[derive(Clone, Debug)]
pub struct Facts {
    /// The call id.
    pub id: String,
    /// What happened to the present life of the call, oldest first.
    pub events: Vec<Event>,
    /// How it stands.
    pub end: End,
    /// When it was recorded.
    pub received: Wall,
    /// Its idempotency key.
    pub key: Option<String>,
    /// Until when its key is remembered once it is settled.
    pub remembered_until: Wall,
    /// Ids that came with its key and were told its answer.
    pub aliases: Vec<String>,
    /// Other calls of the same caller that may be the same operation.
    pub kin: Vec<Kin>,
    /// An operator has freed its key.
    pub key_released: bool,
    /// Contradictions on record, in their own words.
    pub differences: Vec<String>,
    /// How long an attempt may take (`timeouts.attempt`).
    pub attempt: Option<Duration>,
    /// Whether the tool can be asked for receipts.
    pub has_receipts: bool,
}

/// What happened to a call, as far as it decides.
#[derive(Clone, Debug, PartialEq)]
pub enum Event {
    /// It was sent.
    Sent {
        /// When.
        at: Wall,
        /// Which send, 1-based.
        n: u32,
        /// An operator had it sent.
        by_hand: bool,
    },
    /// A send ended.
    Ended {
        /// When.
        at: Wall,
        /// Which send.
        n: u32,
        /// How.
        outcome: Outcome,
        /// After how long.
        took: Duration,
        /// After its attempt timeout.
        late: bool,
    },
    /// The receipt was asked.
    Receipt {
        /// When.
        at: Wall,
        /// What it counts as: a `NOT_FOUND` here was believed.
        answer: Answer,
    },
}

/// How a call stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// Nobody knows yet.
    Open,
    /// The answer to this send settled it.
    Answer {
        /// Which send.
        n: u32,
        /// Whether the work was done.
        success: bool,
    },
    /// A receipt settled it.
    Receipt {
        /// Whether the work was done.
        success: bool,
    },
    /// It was never sent.
    NeverSent,
    /// It was undone.
    Reversed,
    /// A human settled it.
    Operator,
}

/// Another call that may be the same operation.
#[derive(Clone, Debug, PartialEq)]
pub struct Kin {
    /// Its id.
    pub id: String,
    /// The gateway made the id, because the caller sent none.
    pub made_here: bool,
    /// It has the same key.
    pub same_key: bool,
    /// It is the same request.
    pub same_request: bool,
    /// It has a key at all.
    pub keyed: bool,
    /// When it was recorded.
    pub received: Wall,
    /// Its work was done, or may have been.
    pub may_have_acted: bool,
    /// Whether it is settled.
    pub settled: bool,
    /// Until when its key is remembered once it is settled.
    pub remembered_until: Wall,
}

/// The closed list of verdicts, in the order of the documentation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Verdict {
    /// The tool was given the work at most once.
    Once,
    /// Receipts ruled out, or settled, whatever was unclear: once.
    OnceByReceipt,
    /// The caller came again with another id and no key that would have held the two together.
    NewIdFromCaller,
    /// The tool did the work twice under one id.
    ToolIgnoredId,
    /// A human had it sent again.
    ManualResend,
    /// The same key came again after its window.
    KeyWindowExpired,
    /// The same request came with different keys.
    KeyNotStable,
    /// What the tool answered and what its receipts say does not fit together.
    ReceiptAndAnswerDisagree,
    /// The facts do not say.
    Unknown,
}

/// A verdict and the sentence that carries it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Judgement {
    /// The word.
    pub verdict: Verdict,
    /// Why, and what to do next.
    pub because: String,
}

/// What a tool's own log says about a call.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ToolLog {
    /// Lines with exactly this id.
    pub lines: usize,
    /// How many of them tell of an execution; `None` when no line does.
    pub executions: Option<usize>,
    /// Ids that are this one, changed on the way.
    pub altered: Vec<String>,
    /// Other ids with the same business key that this gateway does not know.
    pub strangers: Vec<String>,
}

/// Two calls with the same request further apart than this are two wishes, not one repeated.
const SAME_WISH_WITHIN: Duration = Duration::from_secs(24 * 3_600);

impl Verdict {
    /// Every verdict, in the order of the documentation.
    pub const ALL: [Self; 9] = [
        Self::Once,
        Self::OnceByReceipt,
        Self::NewIdFromCaller,
        Self::ToolIgnoredId,
        Self::ManualResend,
        Self::KeyWindowExpired,
        Self::KeyNotStable,
        Self::ReceiptAndAnswerDisagree,
        Self::Unknown,
    ];

    /// The word.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Once => "once",
            Self::OnceByReceipt => "once-by-receipt",
            Self::NewIdFromCaller => "new-id-from-caller",
            Self::ToolIgnoredId => "tool-ignored-id",
            Self::ManualResend => "manual-resend",
            Self::KeyWindowExpired => "key-window-expired",
            Self::KeyNotStable => "key-not-stable",
            Self::ReceiptAndAnswerDisagree => "receipt-and-answer-disagree",
            Self::Unknown => "unknown",
        }
    }

    /// The verdict a word names.
    #[must_use]
    pub fn from_word(word: &str) -> Option<Self> {
        Self::ALL
            .into_iter()
            .find(|verdict| verdict.as_str() == word)
    }
}

/// Judges a call. Total: every story has a verdict.
#[must_use]
pub fn judge(facts: &Facts) -> Judgement {
    let sends = Sends::of(&facts.events);
    by_hand(&sends)
        .or_else(|| another_call(facts))
        .or_else(|| contradiction(facts, &sends))
        .unwrap_or_else(|| alone(facts, &sends))
}

/// Adds what the tool's own log says to a verdict that was made without it.
#[must_use]
pub fn with_log(base: Judgement, log: &ToolLog) -> Judgement {
    let carried = matches!(
        base.verdict,
        Verdict::Once | Verdict::OnceByReceipt | Verdict::Unknown
    );
    match log.executions {
        Some(times @ 2..) => Judgement {
            verdict: Verdict::ToolIgnoredId,
            because: format!(
                "The tool's log has {times} executions under this one id: the tool does not \
                 recognise an id it has seen. Make it look the id up before it acts."
            ),
        },
        _ if carried && !log.strangers.is_empty() => Judgement {
            verdict: Verdict::NewIdFromCaller,
            because: format!(
                "The tool's log has the same business key under ids that did not come through this \
                 gateway as this call: {}. Somebody sent the same operation again by another way.",
                log.strangers.join(", ")
            ),
        },
        Some(1) if base.verdict == Verdict::Unknown => Judgement {
            verdict: Verdict::Once,
            because:
                "The gateway does not know, but the tool's log has exactly one execution under \
                      this id."
                    .to_owned(),
        },
        Some(_) | None => base,
    }
}

fn by_hand(sends: &Sends) -> Option<Judgement> {
    let n = sends.by_hand()?;
    Some(Judgement {
        verdict: Verdict::ManualResend,
        because: format!(
            "An operator had it sent again (send {n}), under the same id. Whether that was a \
             second effect depends on the tool recognising the id: compare its log with --log."
        ),
    })
}

/// A second call for the same wish, when both may have acted.
fn another_call(facts: &Facts) -> Option<Judgement> {
    let acted = match facts.end {
        End::Answer { success, .. } | End::Receipt { success } => success,
        End::NeverSent => false,
        End::Open | End::Reversed | End::Operator => true,
    };
    let twins = facts.kin.iter().filter(|kin| acted && facts.is_twin(kin));
    let (twin, verdict) = twins
        .map(|twin| (twin, facts.why_twin(twin)))
        .min_by_key(|(_, verdict)| *verdict == Verdict::Unknown)?;
    let id = &twin.id;
    let because = match verdict {
        Verdict::KeyWindowExpired => format!(
            "The same key came again, as {id}, after the window in which it was remembered \
             (idempotency.window): it was a new call by then. A longer window would have met it."
        ),
        Verdict::KeyNotStable => format!(
            "The same request came as {id} with another key: the caller's key changes between \
             repeats of one operation. Derive it from what stays the same (idempotency.key)."
        ),
        Verdict::NewIdFromCaller if twin.made_here => format!(
            "The same request came again as {id}, without an id and without a key: the gateway had \
             to take it for a new call. The caller should send X-Call-Id or Idempotency-Key."
        ),
        Verdict::NewIdFromCaller => format!(
            "The same request came again under another id, {id}, and no key held the two together. \
             The caller should repeat with the same id, or send Idempotency-Key."
        ),
        Verdict::ManualResend => format!(
            "An operator freed the key, and {id} ran with it: that was asked for, not an accident."
        ),
        _ => format!(
            "{id} ran with the same key, which was not free by any rule on record: the route's key \
             settings may have been changed in between."
        ),
    };
    Some(Judgement { verdict, because })
}

fn contradiction(facts: &Facts, sends: &Sends) -> Option<Judgement> {
    let because = if let Some(told) = facts.differences.first() {
        format!(
            "What the tool said later contradicts what is recorded ({told}). It was written down \
             and not applied: one of the two is wrong, ask the tool's people."
        )
    } else {
        let n = sends.denied_and_done()?;
        format!(
            "The receipt said NOT_FOUND about send {n}, and that send was answered with success \
             all the same: the receipt does not show work that is under way. Raise receipt.settle, \
             or say receipt.records: commit."
        )
    };
    Some(Judgement {
        verdict: Verdict::ReceiptAndAnswerDisagree,
        because,
    })
}

/// The call by itself.
fn alone(facts: &Facts, sends: &Sends) -> Judgement {
    let judgement = |verdict, because: String| Judgement { verdict, because };
    let open = sends.not_ruled_out();
    match facts.end {
        End::NeverSent => judgement(
            Verdict::Once,
            "Not even once: nothing of it ever left the gateway.".to_owned(),
        ),
        End::Open => judgement(
            Verdict::Unknown,
            "It is not settled: nobody knows yet whether the tool did it.".to_owned(),
        ),
        End::Reversed => judgement(
            Verdict::Unknown,
            "It stayed unclear and was undone: whether there was something to undo is not known."
                .to_owned(),
        ),
        End::Operator => judgement(
            Verdict::Unknown,
            "A human settled it; the tool itself never said what became of it.".to_owned(),
        ),
        End::Answer { .. } | End::Receipt { .. } if open > 1 => judgement(
            Verdict::Unknown,
            format!(
                "{open} sends may have reached the tool, all under one id, and no receipt rules \
                 one of them out: it ran once if the tool recognises ids. Compare its \
                 log with --log."
            ),
        ),
        End::Receipt { success } => judgement(Verdict::OnceByReceipt, settled_by_receipt(success)),
        End::Answer { .. } if sends.ruled_out() > 0 => judgement(
            Verdict::OnceByReceipt,
            "It was sent again only after the receipt had said that the tool never got it."
                .to_owned(),
        ),
        End::Answer { n, success } => judgement(Verdict::Once, settled_by_answer(n, success)),
    }
}

fn settled_by_receipt(success: bool) -> String {
    let word = if success { "done" } else { "failed" };
    format!(
        "Its end was unclear, and instead of sending it again the gateway asked the tool's \
         receipt, which says that it is {word}."
    )
}

fn settled_by_answer(n: u32, success: bool) -> String {
    match (n, success) {
        (_, false) => format!("The tool refused it in its answer to send {n}."),
        (1, true) => "It was sent once and answered.".to_owned(),
        (_, true) => format!("The earlier sends never left; send {n} was answered."),
    }
}

impl Facts {
    /// Whether a call is the same wish, and may have acted too.
    fn is_twin(&self, kin: &Kin) -> bool {
        let apart = kin
            .received
            .since(self.received)
            .max(self.received.since(kin.received));
        let same_wish = kin.same_key || (kin.same_request && apart <= SAME_WISH_WITHIN);
        kin.may_have_acted && same_wish
    }

    /// Why the two were not held together.
    fn why_twin(&self, kin: &Kin) -> Verdict {
        if kin.same_key && self.key.is_some() {
            let (first_until, second) = if kin.received <= self.received {
                (kin.settled.then_some(kin.remembered_until), self.received)
            } else {
                (Some(self.remembered_until), kin.received)
            };
            return if first_until.is_some_and(|until| until <= second) {
                Verdict::KeyWindowExpired
            } else if self.key_released {
                Verdict::ManualResend
            } else {
                Verdict::Unknown
            };
        }
        if self.key.is_some() && kin.keyed {
            Verdict::KeyNotStable
        } else {
            Verdict::NewIdFromCaller
        }
    }
}

#[cfg(test)]
mod tests;
