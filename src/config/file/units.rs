//! Durations and sizes as text: always with a unit, printed back in the same form.
//!
//! A bare number is refused, because `timeout: 30` has meant seconds in one product and
//! milliseconds in the next. Durations are whole milliseconds, the precision of the ledger.

use std::time::Duration;

/// The longest duration; far past any sense, and no sum of ours can overflow with it.
pub const DURATION_MAX: Duration = Duration::from_secs(366 * 86_400);

/// What a duration looks like, in words for the operator.
pub const DURATION_FORM: &str = "a duration with its unit, such as 500ms, 8s or 1h 30m";
/// What a size looks like, in words for the operator.
pub const SIZE_FORM: &str = "a size with its unit, such as 512B, 64KiB or 1MiB";

const DURATION_UNITS: [(u128, &str); 5] = [
    (86_400_000, "d"),
    (3_600_000, "h"),
    (60_000, "m"),
    (1_000, "s"),
    (1, "ms"),
];
const SIZE_UNITS: [(u64, &str); 4] = [
    (1 << 30, "GiB"),
    (1 << 20, "MiB"),
    (1 << 10, "KiB"),
    (1, "B"),
];

/// Reads `8s`, `1h 30m`; `None` without a unit, past [`DURATION_MAX`], or below milliseconds.
#[must_use]
pub fn duration(text: &str) -> Option<Duration> {
    // humantime takes a bare 0; here every number says what it counts.
    if !text.ends_with(|c: char| c.is_ascii_alphabetic()) {
        return None;
    }
    let read = humantime::parse_duration(text).ok()?;
    (read <= DURATION_MAX && read.subsec_nanos().is_multiple_of(1_000_000)).then_some(read)
}

/// Writes a duration the way [`duration`] reads it.
#[must_use]
pub fn show_duration(d: Duration) -> String {
    let mut rest = d.as_millis();
    let mut words = Vec::new();
    for (unit, name) in DURATION_UNITS {
        if rest >= unit {
            words.push(format!("{}{name}", rest / unit));
            rest %= unit;
        }
    }
    if words.is_empty() {
        "0s".to_owned()
    } else {
        words.join(" ")
    }
}

/// Reads `64KiB`; `None` without a unit or past what a `usize` holds.
#[must_use]
pub fn size(text: &str) -> Option<usize> {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, unit) = text.split_at(digits);
    let (factor, _) = SIZE_UNITS
        .into_iter()
        .find(|(_, name)| *name == unit.trim_start())?;
    usize::try_from(number.parse::<u64>().ok()?.checked_mul(factor)?).ok()
}

/// Writes a size the way [`size`] reads it.
#[must_use]
pub fn show_size(bytes: usize) -> String {
    let bytes = bytes as u64;
    let fits = |unit: &(u64, &str)| bytes >= unit.0 && bytes.is_multiple_of(unit.0);
    let (unit, name) = SIZE_UNITS.into_iter().find(fits).unwrap_or((1, "B"));
    format!("{}{name}", bytes / unit)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_duration_says_its_unit() {
        let table = [
            ("500ms", Some(500)),
            ("2s", Some(2_000)),
            ("30 s", Some(30_000)),
            ("30m", Some(1_800_000)),
            ("1h 30m", Some(5_400_000)),
            ("1h30m", Some(5_400_000)),
            ("0s", Some(0)),
            ("7d", Some(604_800_000)),
            ("30", None),
            ("0", None),
            ("", None),
            ("-1s", None),
            (".5s", None),
            ("1e3", None),
            ("s", None),
            ("10us", None),
            ("1ns", None),
            ("400d", None),
            ("99999999999999999999s", None),
            ("1 fortnight", None),
        ];
        for (text, expected) in table {
            let read = duration(text);
            assert_eq!(read, expected.map(Duration::from_millis), "{text:?}");
            if let Some(read) = read {
                assert_eq!(duration(&show_duration(read)), Some(read), "{text:?}");
            }
        }
        assert_eq!(show_duration(Duration::from_millis(90_500)), "1m 30s 500ms");
    }

    #[test]
    fn a_size_says_its_unit() {
        let table = [
            ("512B", Some(512)),
            ("64KiB", Some(65_536)),
            ("1 MiB", Some(1 << 20)),
            ("0B", Some(0)),
            ("1024", None),
            ("1MB", None),
            ("1kib", None),
            ("KiB", None),
            ("-1B", None),
            ("1.5MiB", None),
            ("99999999999999999999GiB", None),
        ];
        for (text, expected) in table {
            assert_eq!(size(text), expected, "{text:?}");
            if let Some(read) = expected {
                assert_eq!(size(&show_size(read)), Some(read), "{text:?}");
            }
        }
        assert_eq!(show_size(256 * 1024), "256KiB");
        assert_eq!(show_size(1_000), "1000B");
    }
}
