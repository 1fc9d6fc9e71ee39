//! A door for `fuzz/` and the replay of its corpus: the one form in which JSON bodies are compared.
//! No part of the interface; nothing else calls it.

use super::canonical::canonical;
use crate::config::template::JsonPointer;

/// The one form of a JSON body without these places; `None` when it has none.
#[must_use]
pub fn one_form(body: &[u8], exclude: &[JsonPointer]) -> Option<Vec<u8>> {
    canonical(body, exclude)
}
