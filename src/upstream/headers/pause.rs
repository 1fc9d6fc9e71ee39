//! `Retry-After`, in both of its forms (RFC 9110, 10.2.3): so many seconds, or an instant.
//!
//! Whoever reads it bounds the wait; a tool's clock that is wrong holds nobody for longer than a
//! tool that names as many seconds would.

use std::time::{Duration, UNIX_EPOCH};

use http::HeaderMap;
use http::header::RETRY_AFTER;

use crate::call::time::Wall;

/// How long to wait from `now` on, saturating; nothing for an instant that has passed. `None`
/// without the field, and when it says neither form.
#[must_use]
pub fn retry_after(headers: &HeaderMap, now: Wall) -> Option<Duration> {
    let text = headers.get(RETRY_AFTER)?.to_str().ok()?.trim();
    if !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit()) {
        // Digits alone fail to be read only by being too many.
        return Some(Duration::from_secs(text.parse().unwrap_or(u64::MAX)));
    }
    let at = httpdate::parse_http_date(text).ok()?;
    let at = at.duration_since(UNIX_EPOCH).unwrap_or_default();
    let at = Wall(i64::try_from(at.as_millis()).unwrap_or(i64::MAX));
    Some(at.since(now))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 2026-11-30 12:00:00 UTC, a Monday, and 250 ms.
    const NOW: Wall = Wall(1_796_040_000_250);

    fn check(said: &str, expected: Option<Duration>) {
        let headers = HeaderMap::from_iter([(RETRY_AFTER, said.parse().unwrap())]);
        assert_eq!(retry_after(&headers, NOW), expected, "{said}");
    }

    #[test]
    fn a_pause_is_read_in_seconds_however_many() {
        let max = Duration::from_secs(u64::MAX);
        check("0", Some(Duration::ZERO));
        check(" 7 ", Some(Duration::from_secs(7)));
        check("99999999999", Some(Duration::from_secs(99_999_999_999)));
        check("18446744073709551616", Some(max));
        check("99999999999999999999999", Some(max));
        for said in ["", "-1", "+5", "1.5", "7 s", "soon", "7, 8"] {
            check(said, None);
        }
        assert_eq!(retry_after(&HeaderMap::new(), NOW), None);
    }

    #[test]
    fn a_pause_is_read_as_an_instant_in_all_three_forms() {
        let left = Some(Duration::from_millis(89_750));
        check("Mon, 30 Nov 2026 12:01:30 GMT", left);
        check("Monday, 30-Nov-26 12:01:30 GMT", left);
        check("Mon Nov 30 12:01:30 2026", left);
        check("Mon, 30 Nov 2026 11:59:59 GMT", Some(Duration::ZERO));
        check("Thu, 01 Jan 1970 00:00:00 GMT", Some(Duration::ZERO));
        let far = retry_after(
            &HeaderMap::from_iter([(
                RETRY_AFTER,
                "Fri, 31 Dec 9999 23:59:59 GMT".parse().unwrap(),
            )]),
            NOW,
        );
        assert!(far > Some(Duration::from_secs(1 << 37)), "{far:?}");
        check("Mon, 31 Nov 2026 12:01:30 CET", None);
    }
}
