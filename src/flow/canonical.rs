//! What makes a request the same request where fields of its body may differ
//! (`idempotency.exclude`).
//!
//! A JSON body is compared in one form: members sorted by their names, without spaces, texts and
//! numbers in one spelling (`200`, `200.0` and `2e2` are one number, exactly and to every digit),
//! and without what the route excludes. Whatever has no such form is compared byte for byte: other
//! formats, a name that stands twice in one object (readers disagree about it), text that is no
//! Unicode, and nesting past [`DEPTH_MAX`].

use std::borrow::Cow;
use std::ops::Range;

use http::Method;

use super::record;
use crate::call::id::Fingerprint;
use crate::config::template::JsonPointer;
use crate::upstream::json::{Json, string, unescaped};

/// As deep as the usual JSON readers go.
const DEPTH_MAX: usize = 128;

/// The names that are still to be passed on the way to an excluded place.
type Way<'a> = &'a [Cow<'a, str>];

/// What makes a request the same one.
#[must_use]
pub(super) fn fingerprint(
    method: &Method,
    path_and_query: &str,
    body: &[u8],
    exclude: &[JsonPointer],
) -> Fingerprint {
    if !exclude.is_empty()
        && let Some(canonical) = canonical(body, exclude)
    {
        return record::fingerprint(method, path_and_query, &canonical);
    }
    record::fingerprint(method, path_and_query, body)
}

/// The one form of a JSON body without some of its places; `None` when it has none.
pub(super) fn canonical(body: &[u8], exclude: &[JsonPointer]) -> Option<Vec<u8>> {
    Json::read(body).ok()?;
    let ways: Vec<Vec<Cow<'_, str>>> = exclude
        .iter()
        .map(|place| place.as_str().split('/').skip(1).map(unescaped).collect())
        .collect();
    let ways: Vec<Way<'_>> = ways.iter().map(Vec::as_slice).collect();
    let mut writer = Writer {
        body,
        here: 0,
        out: Vec::with_capacity(body.len()),
    };
    writer.value(&ways, 0)?;
    Some(writer.out)
}

/// Reads a body that was proved to be JSON, and writes its one form.
struct Writer<'a> {
    body: &'a [u8],
    here: usize,
    out: Vec<u8>,
}

impl<'a> Writer<'a> {
    fn value(&mut self, ways: &[Way<'_>], depth: usize) -> Option<()> {
        if depth > DEPTH_MAX {
            return None;
        }
        match self.next()? {
            b'{' => self.object(ways, depth),
            b'[' => self.array(ways, depth),
            b'"' => {
                let text = self.text()?;
                self.quoted(&text)
            }
            b'-' | b'0'..=b'9' => {
                let place = self.plain();
                number(&self.body[place], &mut self.out);
                Some(())
            }
            _ => {
                let place = self.plain();
                self.out.extend_from_slice(&self.body[place]);
                Some(())
            }
        }
    }

    fn object(&mut self, ways: &[Way<'_>], depth: usize) -> Option<()> {
        self.open(b'{');
        let start = self.out.len();
        let mut members: Vec<(Cow<'a, str>, Range<usize>)> = Vec::new();
        while self.next()? != b'}' {
            let name = self.text()?;
            self.pass(b':')?;
            let from = self.out.len();
            self.quoted(&name)?;
            self.out.push(b':');
            self.member(&name, ways, depth, from)?;
            members.push((name, from..self.out.len()));
            if self.next()? == b',' {
                self.here += 1;
            }
        }
        self.here += 1;
        if !members.is_sorted_by(|a, b| a.0 < b.0) {
            members.sort_by(|a, b| a.0.cmp(&b.0));
            if members.windows(2).any(|pair| pair[0].0 == pair[1].0) {
                return None;
            }
        }
        self.lay(start, members.into_iter().map(|(_, place)| place), b'}');
        Some(())
    }

    fn array(&mut self, ways: &[Way<'_>], depth: usize) -> Option<()> {
        self.open(b'[');
        let start = self.out.len();
        let mut elements = Vec::new();
        while self.next()? != b']' {
            let from = self.out.len();
            // The index counts what was sent, whatever of it is excluded.
            self.member(&elements.len().to_string(), ways, depth, from)?;
            elements.push(from..self.out.len());
            if self.next()? == b',' {
                self.here += 1;
            }
        }
        self.here += 1;
        self.lay(start, elements.into_iter(), b']');
        Some(())
    }

    /// The value of a member or element; nothing is left of it from `from` on when it is excluded.
    fn member(&mut self, name: &str, ways: &[Way<'_>], depth: usize, from: usize) -> Option<()> {
        // Nearly everywhere there is none, and then nothing is allocated.
        let below: Vec<Way<'_>> = ways
            .iter()
            .filter(|way| way.first().is_some_and(|step| *step == name))
            .map(|way| &way[1..])
            .collect();
        self.value(&below, depth + 1)?;
        if below.iter().any(|way| way.is_empty()) {
            self.out.truncate(from);
        }
        Some(())
    }

    /// Puts what was written from `start` on into this order, with commas and an end.
    fn lay(&mut self, start: usize, places: impl Iterator<Item = Range<usize>>, end: u8) {
        let written = self.out.split_off(start);
        let mut first = true;
        for place in places.filter(|place| !place.is_empty()) {
            if !std::mem::take(&mut first) {
                self.out.push(b',');
            }
            let place = place.start - start..place.end - start;
            self.out.extend_from_slice(&written[place]);
        }
        self.out.push(end);
    }

    fn open(&mut self, bracket: u8) {
        self.here += 1;
        self.out.push(bracket);
    }

    /// The next byte that is no space.
    fn next(&mut self) -> Option<u8> {
        loop {
            let byte = *self.body.get(self.here)?;
            if !matches!(byte, b' ' | b'\t' | b'\n' | b'\r') {
                return Some(byte);
            }
            self.here += 1;
        }
    }

    fn pass(&mut self, byte: u8) -> Option<()> {
        (self.next()? == byte).then(|| self.here += 1)
    }

    /// The text that begins here.
    fn text(&mut self) -> Option<Cow<'a, str>> {
        let start = self.here;
        let mut here = start + 1;
        loop {
            here += match self.body.get(here)? {
                b'"' => break,
                b'\\' => 2,
                _ => 1,
            };
        }
        self.here = here + 1;
        string(&self.body[start..self.here])
    }

    fn quoted(&mut self, text: &str) -> Option<()> {
        serde_json::to_writer(&mut self.out, text).ok()
    }

    /// Where the number, or the word, that begins here stands.
    fn plain(&mut self) -> Range<usize> {
        let start = self.here;
        let ends = |byte: &u8| matches!(byte, b',' | b'}' | b']' | b' ' | b'\t' | b'\n' | b'\r');
        let rest = &self.body[start..];
        self.here += rest.iter().position(ends).unwrap_or(rest.len());
        start..self.here
    }
}

/// Writes a number in its one spelling: its digits without zeros at the ends, and a power of ten.
/// One whose power is beyond counting stays as it is written.
fn number(text: &[u8], out: &mut Vec<u8>) {
    let (mantissa, power) = match text.iter().position(|byte| matches!(byte, b'e' | b'E')) {
        Some(at) => (&text[..at], exponent(&text[at + 1..])),
        None => (text, Some(0)),
    };
    let (negative, mantissa) = match mantissa.strip_prefix(b"-") {
        Some(rest) => (true, rest),
        None => (false, mantissa),
    };
    let fraction = mantissa.iter().rev().position(|byte| *byte == b'.');
    let digits: Vec<u8> = mantissa
        .iter()
        .copied()
        .filter(u8::is_ascii_digit)
        .collect();
    let significant = without_leading(&digits);
    let short = without_trailing(significant);
    let trimmed = significant.len() - short.len();
    let shift = i64::try_from(trimmed)
        .ok()
        .zip(i64::try_from(fraction.unwrap_or(0)).ok());
    let power = power
        .zip(shift)
        .and_then(|(power, (more, less))| power.checked_add(more)?.checked_sub(less));
    match power {
        _ if significant.is_empty() => out.push(b'0'),
        Some(power) => {
            if negative {
                out.push(b'-');
            }
            out.extend_from_slice(short);
            out.extend_from_slice(format!("e{power}").as_bytes());
        }
        None => out.extend_from_slice(text),
    }
}

fn without_leading(digits: &[u8]) -> &[u8] {
    let first = digits.iter().position(|digit| *digit != b'0');
    &digits[first.unwrap_or(digits.len())..]
}

fn without_trailing(digits: &[u8]) -> &[u8] {
    let last = digits.iter().rposition(|digit| *digit != b'0');
    &digits[..last.map_or(0, |last| last + 1)]
}

fn exponent(text: &[u8]) -> Option<i64> {
    std::str::from_utf8(text).ok()?.parse().ok()
}

#[cfg(test)]
mod tests;
