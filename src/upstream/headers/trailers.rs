//! What two neighbours agree about trailers (RFC 9110, 6.5 and 10.1.4).
//!
//! Where a body is passed on as it arrives its trailers are too, so this hop makes the same
//! agreement onwards that was made with it. A body that is collected first loses its trailers, and
//! promises none. Deliberately absent: trailers themselves; they travel with the body.

use http::header::{CONNECTION, TE, TRAILER};
use http::{HeaderMap, HeaderValue};

/// The agreement in a message's fields.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Trailers {
    /// The sender wants to be told trailers.
    wanted: bool,
    /// Which ones are to come.
    named: Vec<HeaderValue>,
}

impl Trailers {
    /// What `headers` say, before what ends at this hop is taken out of them.
    #[must_use]
    pub fn of(headers: &HeaderMap) -> Self {
        let mut tokens = headers.get_all(TE).iter().flat_map(tokens);
        Self {
            wanted: tokens.any(|token| token.eq_ignore_ascii_case(b"trailers")),
            named: headers.get_all(TRAILER).iter().cloned().collect(),
        }
    }

    /// None are to come: the body was collected.
    pub fn promise_none(&mut self) {
        self.named.clear();
    }

    /// Says the same to the next hop.
    pub fn say(self, headers: &mut HeaderMap) {
        if self.wanted {
            headers.insert(TE, HeaderValue::from_static("trailers"));
            headers.insert(CONNECTION, HeaderValue::from_static("te"));
        }
        for named in self.named {
            headers.append(TRAILER, named);
        }
    }
}

fn tokens(line: &HeaderValue) -> impl Iterator<Item = &[u8]> {
    line.as_bytes()
        .split(|b| *b == b',')
        .map(<[u8]>::trim_ascii)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fields(lines: &[(&'static str, &'static str)]) -> HeaderMap {
        lines
            .iter()
            .map(|(name, value)| (name.parse().unwrap(), HeaderValue::from_static(value)))
            .collect()
    }

    #[test]
    fn the_agreement_is_made_again_and_nothing_else_of_it() {
        type Lines = &'static [(&'static str, &'static str)];
        let table: [(Lines, Lines); 5] = [
            (
                &[("te", "trailers")],
                &[("te", "trailers"), ("connection", "te")],
            ),
            (
                &[("te", "deflate;q=0.5, Trailers"), ("trailer", "x-a, x-b")],
                &[
                    ("te", "trailers"),
                    ("connection", "te"),
                    ("trailer", "x-a, x-b"),
                ],
            ),
            (&[("trailer", "x-a")], &[("trailer", "x-a")]),
            (&[("te", "gzip")], &[]),
            (&[], &[]),
        ];
        for (said, expected) in table {
            let mut onwards = HeaderMap::new();
            Trailers::of(&fields(said)).say(&mut onwards);
            assert_eq!(onwards, fields(expected), "{said:?}");
        }
    }
}
