//! How long a caller wants to wait (`Prefer`, RFC 7240): `wait=N`, `respond-async`.
//!
//! A preference is a wish, so one that cannot be read is no error: it is as if it were not there.
//! Of a preference that stands twice the first counts, also when it cannot be read. Deliberately
//! absent: every other preference, and what a wish comes to (`accept`, `join`).

use std::fmt;
use std::time::Duration;

use http::HeaderMap;

use crate::upstream::headers::PREFER;

/// The longest a wish is taken literally: a `wait` with more digits means "as long as you may".
const SECONDS_MAX: u32 = 1 << 30;

/// What a caller said about waiting.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Prefer {
    /// It need not be told the end: the promise that there will be one is enough.
    pub respond_async: bool,
    /// It waits this long, in whole seconds.
    pub wait: Option<Duration>,
}

impl Prefer {
    /// Reads the wishes of a request.
    #[must_use]
    pub fn read(headers: &HeaderMap) -> Self {
        let mut read = Self::default();
        let mut waits = false;
        for line in headers.get_all(PREFER) {
            let Ok(line) = line.to_str() else { continue };
            for preference in unquoted_split(line, ',') {
                // Parameters may follow; none is defined for these two.
                let stated = unquoted_split(preference, ';').next().unwrap_or_default();
                let (name, value) = match stated.split_once('=') {
                    Some((name, value)) => (name.trim(), value.trim().trim_matches('"')),
                    None => (stated.trim(), ""),
                };
                if name.eq_ignore_ascii_case("respond-async") {
                    read.respond_async |= value.is_empty();
                } else if name.eq_ignore_ascii_case("wait") && !std::mem::replace(&mut waits, true)
                {
                    read.wait = seconds(value);
                }
            }
        }
        read
    }

    /// Whether its caller may be told "accepted" in place of the end, which comes within `total`.
    #[must_use]
    pub fn may_be_accepted(&self, total: Duration) -> bool {
        self.respond_async || self.wait.is_some_and(|wait| wait < total)
    }
}

/// As `Preference-Applied` says it.
impl fmt::Display for Prefer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.wait, self.respond_async) {
            (Some(wait), true) => write!(f, "wait={}, respond-async", wait.as_secs()),
            (Some(wait), false) => write!(f, "wait={}", wait.as_secs()),
            (None, true) => f.write_str("respond-async"),
            (None, false) => Ok(()),
        }
    }
}

fn seconds(value: &str) -> Option<Duration> {
    let digits = !value.is_empty() && value.bytes().all(|byte| byte.is_ascii_digit());
    if !digits {
        tracing::debug!(
            value = value.escape_default().take(40).collect::<String>(),
            "`Prefer: wait` is no whole number of seconds and was ignored"
        );
        return None;
    }
    let seconds = value.parse().unwrap_or(SECONDS_MAX).min(SECONDS_MAX);
    Some(Duration::from_secs(seconds.into()))
}

/// The pieces of `text` between separators that stand in no quoted string.
fn unquoted_split(text: &str, separator: char) -> impl Iterator<Item = &str> {
    let (mut quoted, mut escaped) = (false, false);
    text.split(move |c| {
        let splits = c == separator && !quoted;
        if c == '"' && !escaped {
            quoted = !quoted;
        }
        escaped = quoted && c == '\\' && !escaped;
        splits
    })
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    fn of(lines: &[&'static str]) -> (Option<u64>, bool) {
        let mut headers = HeaderMap::new();
        for line in lines {
            headers.append(PREFER, HeaderValue::from_static(line));
        }
        let read = Prefer::read(&headers);
        (read.wait.map(|wait| wait.as_secs()), read.respond_async)
    }

    #[test]
    fn wishes_are_read_as_rfc_7240_writes_them() {
        for (lines, expected) in [
            (&[][..], (None, false)),
            (&["respond-async"], (None, true)),
            (&["Respond-Async; x"], (None, true)),
            (&["respond-async=\"\""], (None, true)),
            (&["respond-async=no"], (None, false)),
            (&["wait=3"], (Some(3), false)),
            (&["respond-async, Wait = 0"], (Some(0), true)),
            (&["wait=5", "respond-async"], (Some(5), true)),
            (
                &["return=minimal", "wait=\"7\"; x=1, wait=9"],
                (Some(7), false),
            ),
            (
                &["foo=\"a, wait=3\"; b=\"\\\", wait=4\", wait=5"],
                (Some(5), false),
            ),
            (
                &["wait=99999999999999999999"],
                (Some(u64::from(SECONDS_MAX)), false),
            ),
        ] {
            assert_eq!(of(lines), expected, "{lines:?}");
        }
    }

    #[test]
    fn what_cannot_be_read_is_as_if_it_were_not_there() {
        for line in [
            "wait=soon",
            "wait=-1",
            "wait=",
            "wait",
            "wait=1.5",
            "wait=+3",
            "=3",
            ",",
        ] {
            let mut headers = HeaderMap::new();
            headers.append(PREFER, HeaderValue::from_static(line));
            assert_eq!(Prefer::read(&headers), Prefer::default(), "{line}");
        }
        // The first `wait` counts, also when it says nothing.
        assert_eq!(of(&["wait=soon, wait=3"]), (None, false));
    }

    #[test]
    fn what_was_applied_is_said_in_the_words_of_the_wish() {
        for (wait, respond_async, said) in [
            (Some(5), true, "wait=5, respond-async"),
            (None, true, "respond-async"),
            (Some(0), false, "wait=0"),
        ] {
            let wait = wait.map(Duration::from_secs);
            let prefer = Prefer {
                respond_async,
                wait,
            };
            assert_eq!(prefer.to_string(), said);
        }
    }

    #[test]
    fn only_a_wait_that_may_end_before_the_call_leads_to_a_promise() {
        let total = Duration::from_secs(60);
        let may = |respond_async, wait: Option<u64>| {
            let wait = wait.map(Duration::from_secs);
            Prefer {
                respond_async,
                wait,
            }
            .may_be_accepted(total)
        };
        assert!(may(true, None) && may(true, Some(90)) && may(false, Some(59)));
        assert!(!may(false, None) && !may(false, Some(60)));
    }
}
