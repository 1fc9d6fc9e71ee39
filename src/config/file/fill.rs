//! `${NAME}`, `${NAME:-default}` and `$$` in scalar values.
//!
//! Filling happens after the file became a tree, so that a value can never add keys, and what was
//! filled in is not looked at again.

/// Why a text could not be filled in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Unfilled {
    /// The environment has no such name.
    Missing(String),
    /// `${` without `}`.
    Unclosed,
    /// What stands between the braces is not a name.
    BadName(String),
}

/// Fills in every place of `text`; `None` when it has none.
///
/// # Errors
/// Says which place cannot be filled.
pub fn fill(
    text: &str,
    lookup: &dyn Fn(&str) -> Option<String>,
) -> Result<Option<String>, Unfilled> {
    let mut filled = String::with_capacity(text.len());
    let mut rest = text;
    let mut changed = false;
    while let Some(at) = rest.find('$') {
        filled.push_str(&rest[..at]);
        let after = &rest[at + 1..];
        if let Some(past) = after.strip_prefix('$') {
            filled.push('$');
            rest = past;
        } else if let Some(inner) = after.strip_prefix('{') {
            let close = inner.find('}').ok_or(Unfilled::Unclosed)?;
            filled.push_str(&value(&inner[..close], lookup)?);
            rest = &inner[close + 1..];
        } else {
            // A dollar alone is text: passwords and patterns are full of them.
            filled.push('$');
            rest = after;
            continue;
        }
        changed = true;
    }
    filled.push_str(rest);
    Ok(changed.then_some(filled))
}

/// The value of `NAME` or `NAME:-default`; as in a shell, the default also replaces an empty one.
fn value(inside: &str, lookup: &dyn Fn(&str) -> Option<String>) -> Result<String, Unfilled> {
    let (name, default) = match inside.split_once(":-") {
        Some((name, default)) => (name, Some(default)),
        None => (inside, None),
    };
    let named = !name.is_empty()
        && !name.starts_with(|c: char| c.is_ascii_digit())
        && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_');
    if !named {
        return Err(Unfilled::BadName(name.to_owned()));
    }
    match (lookup(name), default) {
        (Some(value), None) => Ok(value),
        (Some(value), Some(_)) if !value.is_empty() => Ok(value),
        (_, Some(default)) => Ok(default.to_owned()),
        (None, None) => Err(Unfilled::Missing(name.to_owned())),
    }
}

/// Text that fills in to `text` itself.
#[must_use]
pub fn escape(text: &str) -> String {
    text.replace('$', "$$")
}

impl std::fmt::Display for Unfilled {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Missing(name) => write!(
                f,
                "the environment has no {name}; set it, or give a default: ${{{name}:-...}}"
            ),
            Self::Unclosed => f.write_str("`${` without `}`; a dollar sign itself is `$$`"),
            Self::BadName(name) => write!(
                f,
                "{name:?} is not the name of an environment variable; expected ${{NAME}} or \
                 ${{NAME:-default}}, and `$$` for a dollar sign itself"
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_filled_once_and_dollars_can_be_escaped() {
        let lookup = |name: &str| match name {
            "A" => Some("1".to_owned()),
            "EMPTY" => Some(String::new()),
            "NESTED" => Some("${A} $$".to_owned()),
            _ => None,
        };
        let table = [
            ("plain", Ok(None)),
            ("a$b $", Ok(None)),
            ("${A}", Ok(Some("1"))),
            ("x${A}y${A}", Ok(Some("x1y1"))),
            ("${B:-two}", Ok(Some("two"))),
            ("${B:-}", Ok(Some(""))),
            ("${EMPTY}", Ok(Some(""))),
            ("${EMPTY:-d}", Ok(Some("d"))),
            ("$${A}", Ok(Some("${A}"))),
            ("${NESTED}", Ok(Some("${A} $$"))),
            ("${B}", Err(Unfilled::Missing("B".to_owned()))),
            ("${A", Err(Unfilled::Unclosed)),
            ("${}", Err(Unfilled::BadName(String::new()))),
            ("${a-b}", Err(Unfilled::BadName("a-b".to_owned()))),
            ("${1A}", Err(Unfilled::BadName("1A".to_owned()))),
        ];
        for (text, expected) in table {
            assert_eq!(
                fill(text, &lookup),
                expected.map(|t| t.map(str::to_owned)),
                "{text}"
            );
        }
        let odd = "a$b${C}$$";
        assert_eq!(fill(&escape(odd), &lookup), Ok(Some(odd.to_owned())));
    }
}
