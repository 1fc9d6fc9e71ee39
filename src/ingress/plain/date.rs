//! The `Date` of answers, made once a second.

use jiff::Timestamp;
use jiff::fmt::rfc2822::DateTimePrinter;
use parking_lot::Mutex;

use crate::clock::Clock;

/// How long a date is: `Sun, 06 Nov 1994 08:49:37 GMT`.
const BYTES: usize = 29;

/// One core's dates.
pub(in crate::ingress) struct Dates {
    clock: Clock,
    /// A second since 1970, and its text.
    last: Mutex<(i64, [u8; BYTES])>,
}

impl Dates {
    pub(in crate::ingress) const fn new(clock: Clock) -> Self {
        // No clock stands there.
        let never = (i64::MIN, [b' '; BYTES]);
        Self {
            clock,
            last: Mutex::new(never),
        }
    }

    /// Appends the present date.
    pub(super) fn put(&self, text: &mut Vec<u8>) {
        let second = self.clock.wall().0.div_euclid(1_000);
        let mut last = self.last.lock();
        if last.0 != second {
            *last = (second, printed(second));
        }
        text.extend_from_slice(&last.1);
    }
}

fn printed(second: i64) -> [u8; BYTES] {
    let at = Timestamp::from_second(second).unwrap_or(Timestamp::UNIX_EPOCH);
    let text = DateTimePrinter::new().timestamp_to_rfc9110_string(&at);
    let text = text.ok().filter(|text| text.len() == BYTES);
    // Only a year of five digits has none; a clock that far off is not worth a failed answer.
    let text = text.unwrap_or_else(|| "Thu, 01 Jan 1970 00:00:00 GMT".to_owned());
    let mut bytes = [b' '; BYTES];
    bytes.copy_from_slice(text.as_bytes());
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_date_reads_as_http_writes_it() {
        assert_eq!(&printed(784_111_777), b"Sun, 06 Nov 1994 08:49:37 GMT");
        assert_eq!(&printed(i64::MAX), b"Thu, 01 Jan 1970 00:00:00 GMT");
        let dates = Dates::new(Clock::start());
        let mut text = Vec::new();
        dates.put(&mut text);
        dates.put(&mut text);
        assert_eq!(text.len(), 2 * BYTES);
        assert!(text.ends_with(b" GMT"));
    }
}
