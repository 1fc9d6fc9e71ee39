//! A door for `fuzz/` and the replay of its corpus: one answer of a receipt endpoint, read without
//! a connection. No part of the interface; nothing else calls it.

use super::Asked;
use super::mapping::Mapping;
use crate::call::id::CallId;
use crate::config::route::ReceiptRule;
use crate::upstream::Answer;

/// What a complete answer to a question about `id` says under `rule`.
#[must_use]
pub fn read(rule: &ReceiptRule, callgate: bool, id: &CallId, answer: Answer) -> Asked {
    Mapping::new(rule, callgate).read(id, answer)
}
