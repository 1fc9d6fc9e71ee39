//! Header fields as they lie in the file: a line each, frequent ones by a letter.
//!
//! Fields are most of what a small call takes besides its bodies, and much of that is the names of
//! the same two dozen. A short line is a capital letter, the value and `\n`; any other is
//! `name: value\r\n`, as every line was up to schema 9. Names have no capitals, so that both can be
//! told apart, and both are still read with any SQLite shell: the table `header_letters` has the
//! names. Deliberately absent: a dictionary of values, which would outlive the calls they are of.

use http::header::{
    ACCEPT, ACCEPT_ENCODING, ACCEPT_LANGUAGE, CACHE_CONTROL, CONTENT_ENCODING, CONTENT_LENGTH,
    CONTENT_TYPE, ETAG, FORWARDED, HOST, HeaderName, LAST_MODIFIED, LOCATION, ORIGIN, REFERER,
    SERVER, USER_AGENT, VARY, VIA,
};
use http::{HeaderMap, HeaderValue};

/// Letters of names. A letter is never given to another name: rows keep it.
const LETTERS: [(u8, HeaderName); 24] = [
    (b'A', ACCEPT),
    (b'C', CACHE_CONTROL),
    (b'D', HeaderName::from_static("x-correlation-id")),
    (b'E', ACCEPT_ENCODING),
    (b'F', FORWARDED),
    (b'G', ETAG),
    (b'H', HOST),
    (b'I', HeaderName::from_static("x-real-ip")),
    (b'K', CONTENT_ENCODING),
    (b'L', ACCEPT_LANGUAGE),
    (b'M', LAST_MODIFIED),
    (b'N', CONTENT_LENGTH),
    (b'O', ORIGIN),
    (b'P', HeaderName::from_static("x-forwarded-for")),
    (b'Q', HeaderName::from_static("x-forwarded-proto")),
    (b'R', REFERER),
    (b'S', SERVER),
    (b'T', CONTENT_TYPE),
    (b'U', USER_AGENT),
    (b'V', VIA),
    (b'W', HeaderName::from_static("x-forwarded-host")),
    (b'X', HeaderName::from_static("x-request-id")),
    (b'Y', VARY),
    (b'Z', LOCATION),
];

/// The one letter that stands for a whole line, which nearly every call has twice.
const JSON: (u8, &str) = (b'J', "application/json");

/// The fields of `headers`, in their order.
pub(super) fn to_text(headers: &HeaderMap) -> Vec<u8> {
    let length = headers
        .iter()
        .map(|(name, value)| name.as_str().len() + value.len() + 4)
        .sum();
    let mut text = Vec::with_capacity(length);
    for (name, value) in headers {
        if name == CONTENT_TYPE && value == JSON.1 {
            text.extend_from_slice(&[JSON.0, b'\n']);
        } else if let Some(letter) = letter_of(name) {
            text.push(letter);
            text.extend_from_slice(value.as_bytes());
            text.push(b'\n');
        } else {
            text.extend_from_slice(name.as_str().as_bytes());
            text.extend_from_slice(b": ");
            text.extend_from_slice(value.as_bytes());
            text.extend_from_slice(b"\r\n");
        }
    }
    text
}

/// The fields of such lines; `None` when they were not written by callgate.
pub(super) fn from_text(text: &[u8]) -> Option<HeaderMap> {
    let mut headers = HeaderMap::with_capacity(8);
    let mut rest = text;
    while let [first, ..] = rest {
        // No value holds an LF, so the first one ends the line.
        let end = rest.iter().position(|byte| *byte == b'\n')?;
        let (line, after) = (rest.get(..end)?, rest.get(end + 1..)?);
        let (name, value) = if first.is_ascii_uppercase() {
            short(*first, line.get(1..)?)?
        } else {
            plain(line)?
        };
        headers.append(name, value);
        rest = after;
    }
    Some(headers)
}

fn short(letter: u8, value: &[u8]) -> Option<(HeaderName, HeaderValue)> {
    if letter == JSON.0 {
        return value
            .is_empty()
            .then(|| (CONTENT_TYPE, HeaderValue::from_static(JSON.1)));
    }
    let place = LETTERS
        .binary_search_by_key(&letter, |(its, _)| *its)
        .ok()?;
    Some((
        LETTERS.get(place)?.1.clone(),
        HeaderValue::from_bytes(value).ok()?,
    ))
}

fn plain(line: &[u8]) -> Option<(HeaderName, HeaderValue)> {
    let line = line.strip_suffix(b"\r")?;
    let colon = line.windows(2).position(|two| two == b": ")?;
    Some((
        HeaderName::from_bytes(line.get(..colon)?).ok()?,
        HeaderValue::from_bytes(line.get(colon + 2..)?).ok()?,
    ))
}

/// The letter of a name. By its text and not by the table: this is done for each field of a call.
fn letter_of(name: &HeaderName) -> Option<u8> {
    Some(match name.as_str() {
        "accept" => b'A',
        "cache-control" => b'C',
        "x-correlation-id" => b'D',
        "accept-encoding" => b'E',
        "forwarded" => b'F',
        "etag" => b'G',
        "host" => b'H',
        "x-real-ip" => b'I',
        "content-encoding" => b'K',
        "accept-language" => b'L',
        "last-modified" => b'M',
        "content-length" => b'N',
        "origin" => b'O',
        "x-forwarded-for" => b'P',
        "x-forwarded-proto" => b'Q',
        "referer" => b'R',
        "server" => b'S',
        "content-type" => b'T',
        "user-agent" => b'U',
        "via" => b'V',
        "x-forwarded-host" => b'W',
        "x-request-id" => b'X',
        "vary" => b'Y',
        "location" => b'Z',
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::open;
    use super::*;
    use crate::call::time::Wall;
    use crate::ledger::record::headers_to_text;

    #[test]
    fn frequent_fields_are_short_and_all_are_lines() {
        let mut headers = HeaderMap::new();
        headers.append("content-type", HeaderValue::from_static("application/json"));
        headers.append("x-err", HeaderValue::from_static("7"));
        headers.append("host", HeaderValue::from_static("tools.internal"));
        headers.append("accept", HeaderValue::from_static(""));
        headers.append("x-latin", HeaderValue::from_bytes(b"caf\xe9 \xff").unwrap());
        let text = to_text(&headers);
        assert_eq!(
            text,
            b"J\nx-err: 7\r\nHtools.internal\nA\nx-latin: caf\xe9 \xff\r\n"
        );
        assert_eq!(from_text(&text), Some(headers));
        assert_eq!(from_text(b""), Some(HeaderMap::new()));
    }

    #[test]
    fn every_letter_is_that_of_its_name() {
        for (letter, name) in &LETTERS {
            assert_eq!(letter_of(name), Some(*letter), "{name}");
        }
        assert!(LETTERS.is_sorted_by_key(|(letter, _)| *letter));
        assert!(LETTERS.iter().all(|(letter, _)| *letter != JSON.0));
    }

    #[test]
    fn the_file_explains_every_letter() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("callgate.db");
        let conn = open::writer(&path, open::Sync::Normal, Wall(1)).unwrap();
        let told: Vec<(String, String)> = conn
            .prepare("SELECT letter, field FROM header_letters ORDER BY letter")
            .unwrap()
            .query_map([], |row| Ok((row.get(0)?, row.get(1)?)))
            .unwrap()
            .collect::<Result<_, _>>()
            .unwrap();
        let mut known: Vec<(String, String)> = LETTERS
            .iter()
            .map(|(letter, name)| (char::from(*letter).into(), name.as_str().into()))
            .collect();
        known.push((
            char::from(JSON.0).into(),
            format!("content-type: {}", JSON.1),
        ));
        known.sort();
        assert_eq!(told, known);
    }

    #[test]
    fn other_texts_are_damaged() {
        for broken in [
            &b"x"[..],
            b"x: 1",
            b"x: 1\n",
            b"x:1\r\n",
            b"x y: 1\r\n",
            b"x: \x01\r\n",
            b"J\r\n",
            b"Japplication/xml\n",
            b"Htools.internal",
            b"Htools.internal\r\n",
            b"H\x01\n",
            b"B1\n",
            b"\n",
        ] {
            assert_eq!(from_text(broken), None, "{broken:?}");
        }
    }

    fn any_headers() -> impl Strategy<Value = HeaderMap> {
        let frequent = (0..LETTERS.len()).prop_map(|n| LETTERS[n].1.clone());
        let rare = "[a-z0-9!#$%&'*+.^_`|~-]{1,12}"
            .prop_map(|name| HeaderName::from_bytes(name.as_bytes()).unwrap());
        let byte = prop_oneof![Just(b'\t'), 0x20..=0x7e_u8, 0x80..=0xff_u8];
        let value = prop_oneof![
            Just(JSON.1.as_bytes().to_vec()),
            proptest::collection::vec(byte, 0..20)
        ];
        let value = value.prop_map(|bytes| HeaderValue::from_bytes(&bytes).unwrap());
        let field = (prop_oneof![frequent, rare], value);
        proptest::collection::vec(field, 0..12).prop_map(|fields| {
            let mut headers = HeaderMap::new();
            for (name, value) in fields {
                headers.append(name, value);
            }
            headers
        })
    }

    proptest! {
        #[test]
        fn fields_survive_byte_for_byte_and_in_order(headers in any_headers()) {
            for text in [to_text(&headers), headers_to_text(&headers)] {
                let read = from_text(&text).unwrap();
                let pairs = |of: &HeaderMap| -> Vec<(HeaderName, HeaderValue)> {
                    of.iter().map(|(name, value)| (name.clone(), value.clone())).collect()
                };
                prop_assert_eq!(pairs(&read), pairs(&headers));
            }
        }
    }
}
