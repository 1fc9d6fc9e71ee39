//! JSON bodies as bytes: where a value stands, and the same body with one field set.
//!
//! Where a name stands twice in one object, readers disagree about which one counts: nothing that
//! stands behind it decides anything here.
//!
//! A caller's body is never written anew: numbers, spaces, order and doubled fields stay as they
//! were sent, so that a tool that signs or hashes what it reads sees nothing but the one field. The
//! text is proved to be JSON first; what walks over it afterwards may trust its shape.

use std::borrow::Cow;
use std::collections::HashSet;
use std::fmt;
use std::ops::Range;

use serde::de::{Deserialize, Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};

use crate::config::template::JsonPointer;

/// Why nothing can be found, or set, at a place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Trouble {
    /// The body is no JSON.
    NoJson,
    /// Nothing stands there.
    Missing,
    /// What stands there is no text.
    NoText,
    /// A name on the way stands twice in one object: readers disagree about which one counts.
    Twice,
}

/// A body that was proved to be JSON.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Json<'a>(&'a [u8]);

/// What stands at a place.
enum Found {
    /// A value.
    Value(Range<usize>),
    /// Nothing, but its object does: it opens here.
    Object { open: usize, empty: bool },
}

impl<'a> Json<'a> {
    /// Proves `body` to be JSON.
    pub(crate) fn read(body: &'a [u8]) -> Result<Self, Trouble> {
        match serde_json::from_slice::<IgnoredAny>(body) {
            Ok(IgnoredAny) => Ok(Self(body)),
            Err(_) => Err(Trouble::NoJson),
        }
    }

    /// The word at a place: text as it reads, a number or a flag as it is written. No number loses
    /// a digit on the way.
    pub(crate) fn word(self, at: &JsonPointer) -> Result<Cow<'a, str>, Trouble> {
        let Found::Value(place) = self.find(at)? else {
            return Err(Trouble::Missing);
        };
        let value = &self.0[place];
        match value.first() {
            Some(b'"') => string(value).ok_or(Trouble::NoJson),
            Some(b'{' | b'[' | b'n') | None => Err(Trouble::Missing),
            Some(_) => std::str::from_utf8(value)
                .map(Cow::Borrowed)
                .map_err(|_| Trouble::NoJson),
        }
    }

    /// The text at a place; `None` when nothing stands there, or `null`.
    ///
    /// # Errors
    /// What stands there is no text that can be read, or a name on the way stands twice.
    pub(crate) fn text(self, at: &JsonPointer) -> Result<Option<Cow<'a, str>>, Trouble> {
        let place = match self.find(at) {
            Ok(Found::Value(place)) => place,
            Ok(Found::Object { .. }) | Err(Trouble::Missing) => return Ok(None),
            Err(trouble @ (Trouble::NoJson | Trouble::NoText | Trouble::Twice)) => {
                return Err(trouble);
            }
        };
        let value = &self.0[place];
        match value.first() {
            Some(b'n') => Ok(None),
            Some(b'"') => string(value).map(Some).ok_or(Trouble::NoText),
            Some(_) | None => Err(Trouble::NoText),
        }
    }

    /// Whether nobody can say what stands at a place, because a name on the way there, or in what
    /// stands there, stands twice.
    pub(crate) fn is_doubled(self, at: &JsonPointer) -> bool {
        match self.find(at) {
            Ok(Found::Value(place)) => serde_json::from_slice::<Unique>(&self.0[place]).is_err(),
            Ok(Found::Object { .. }) => false,
            Err(trouble) => trouble == Trouble::Twice,
        }
    }

    /// A name that stands twice in the object that the body is.
    pub(crate) fn doubled_name(self) -> Option<Cow<'a, str>> {
        let mut names = HashSet::new();
        let members = self.members(self.past_space(0));
        members
            .filter_map(Result::ok)
            .find_map(|(name, _)| (!names.insert(name.clone())).then_some(name))
    }

    /// The body with this text at a place: in place of the value there, or as the first field of
    /// its object, every other byte as it was.
    pub(crate) fn with(self, at: &JsonPointer, text: &str) -> Result<Vec<u8>, Trouble> {
        let quoted = serde_json::Value::from(text).to_string();
        let (place, new) = match self.find(at)? {
            Found::Value(place) => (place, quoted),
            Found::Object { open, empty } => {
                let name = at.as_str().rsplit('/').next().unwrap_or_default();
                let name = serde_json::Value::from(unescaped(name).as_ref());
                let comma = if empty { "" } else { "," };
                (open + 1..open + 1, format!("{name}:{quoted}{comma}"))
            }
        };
        let mut body = Vec::with_capacity(self.0.len() + new.len());
        body.extend_from_slice(&self.0[..place.start]);
        body.extend_from_slice(new.as_bytes());
        body.extend_from_slice(&self.0[place.end..]);
        Ok(body)
    }

    fn find(self, at: &JsonPointer) -> Result<Found, Trouble> {
        let mut here = self.past_space(0);
        let mut names = at.as_str().split('/').skip(1).peekable();
        while let Some(name) = names.next() {
            let name = unescaped(name);
            let next = match self.0.get(here) {
                Some(b'{') => self.member(here, &name)?,
                Some(b'[') => self.element(here, &name),
                _ => return Err(Trouble::Missing),
            };
            here = match next {
                Some(next) => next,
                None if names.peek().is_none() && self.0[here] == b'{' => {
                    let empty = self.0.get(self.past_space(here + 1)) == Some(&b'}');
                    return Ok(Found::Object { open: here, empty });
                }
                None => return Err(Trouble::Missing),
            };
        }
        Ok(Found::Value(here..self.past_value(here)))
    }

    /// Where the value of a member of the object at `open` begins.
    fn member(self, open: usize, wanted: &str) -> Result<Option<usize>, Trouble> {
        let mut found = None;
        for member in self.members(open) {
            let (name, value) = member?;
            if name == wanted && found.replace(value).is_some() {
                return Err(Trouble::Twice);
            }
        }
        Ok(found)
    }

    /// The names in the object at `open`, and where their values begin; nothing for what is none.
    fn members(self, open: usize) -> impl Iterator<Item = Result<(Cow<'a, str>, usize), Trouble>> {
        let is_object = self.0.get(open) == Some(&b'{');
        let mut next = is_object.then(|| self.past_space(open + 1));
        std::iter::from_fn(move || {
            let here = next.take().filter(|at| self.0.get(*at) == Some(&b'"'))?;
            let name_end = self.past_value(here);
            let value = self.past_space(self.past_space(name_end) + 1);
            let end = self.past_space(self.past_value(value));
            next = (self.0.get(end) == Some(&b',')).then(|| self.past_space(end + 1));
            let name = string(&self.0[here..name_end]).ok_or(Trouble::NoJson);
            Some(name.map(|name| (name, value)))
        })
    }

    /// Where an element of the array at `open` begins.
    fn element(self, open: usize, wanted: &str) -> Option<usize> {
        let plain = wanted == "0" || !wanted.starts_with(['0', '+']);
        let wanted: usize = wanted.parse().ok().filter(|_| plain)?;
        let mut here = self.past_space(open + 1);
        for _ in 0..wanted {
            here = self.past_space(self.past_value(here));
            if self.0.get(here) != Some(&b',') {
                return None;
            }
            here = self.past_space(here + 1);
        }
        (self.0.get(here) != Some(&b']')).then_some(here)
    }

    fn past_space(self, from: usize) -> usize {
        let space = |byte: &u8| matches!(byte, b' ' | b'\t' | b'\n' | b'\r');
        let rest = self.0.get(from..).unwrap_or_default();
        from + rest.iter().take_while(|byte| space(byte)).count()
    }

    /// The end of the value that begins at `from`.
    fn past_value(self, from: usize) -> usize {
        let mut depth = 0_usize;
        let mut here = from;
        while let Some(byte) = self.0.get(here) {
            match byte {
                b'"' => here = self.past_string(here),
                b'{' | b'[' => {
                    depth += 1;
                    here += 1;
                }
                b'}' | b']' if depth == 0 => return here,
                b'}' | b']' => {
                    depth -= 1;
                    here += 1;
                }
                b',' | b':' | b' ' | b'\t' | b'\n' | b'\r' if depth == 0 => return here,
                _ => here += 1,
            }
            if depth == 0 && matches!(byte, b'"' | b'}' | b']') {
                return here;
            }
        }
        here
    }

    fn past_string(self, quote: usize) -> usize {
        let mut here = quote + 1;
        while let Some(byte) = self.0.get(here) {
            here += match byte {
                b'"' => return here + 1,
                b'\\' => 2,
                _ => 1,
            };
        }
        here
    }
}

/// A value in which no name stands twice.
struct Unique;

impl<'de> Deserialize<'de> for Unique {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_any(Self)
    }
}

impl<'de> Visitor<'de> for Unique {
    type Value = Self;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value in which no name stands twice")
    }

    fn visit_unit<E>(self) -> Result<Self, E> {
        Ok(self)
    }

    fn visit_bool<E>(self, _: bool) -> Result<Self, E> {
        Ok(self)
    }

    fn visit_i64<E>(self, _: i64) -> Result<Self, E> {
        Ok(self)
    }

    fn visit_u64<E>(self, _: u64) -> Result<Self, E> {
        Ok(self)
    }

    fn visit_f64<E>(self, _: f64) -> Result<Self, E> {
        Ok(self)
    }

    fn visit_str<E>(self, _: &str) -> Result<Self, E> {
        Ok(self)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Self, A::Error> {
        while seq.next_element::<Self>()?.is_some() {}
        Ok(self)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self, A::Error> {
        let mut names = HashSet::new();
        while let Some((name, Self)) = map.next_entry::<String, Self>()? {
            if !names.insert(name) {
                return Err(A::Error::custom("a name stands twice"));
            }
        }
        Ok(self)
    }
}

/// What a JSON string says.
pub(crate) fn string(quoted: &[u8]) -> Option<Cow<'_, str>> {
    let inner = quoted.get(1..quoted.len().checked_sub(1)?)?;
    if inner.contains(&b'\\') {
        serde_json::from_slice(quoted).ok().map(Cow::Owned)
    } else {
        std::str::from_utf8(inner).ok().map(Cow::Borrowed)
    }
}

/// A name of a pointer without its escapes.
pub(crate) fn unescaped(name: &str) -> Cow<'_, str> {
    if name.contains('~') {
        Cow::Owned(name.replace("~1", "/").replace("~0", "~"))
    } else {
        Cow::Borrowed(name)
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use proptest::prelude::*;

    use super::*;

    fn at(text: &str) -> JsonPointer {
        JsonPointer::parse(text).unwrap()
    }

    fn word(body: &str, place: &str) -> Result<String, Trouble> {
        let json = Json::read(body.as_bytes())?;
        json.word(&at(place)).map(Cow::into_owned)
    }

    fn with(body: &str, place: &str) -> Result<String, Trouble> {
        let set = Json::read(body.as_bytes())?.with(&at(place), "k\"1")?;
        Ok(String::from_utf8(set).unwrap())
    }

    #[test]
    fn what_a_doubled_name_leads_to_is_doubled_and_nothing_else() {
        let body =
            r#" {"a":{"x":1,"y":{"z":1,"z":2}},"b":[{"c":1,"c":1}],"d":1,"d":2,"e":"\u0061"}"#;
        let json = Json::read(body.as_bytes()).unwrap();
        for (place, doubled) in [
            ("/a", true),
            ("/a/x", false),
            ("/a/y", true),
            ("/a/y/z", true),
            ("/b", true),
            ("/b/0/c", true),
            ("/d", true),
            ("/d/x", true),
            ("/e", false),
            ("/none", false),
        ] {
            assert_eq!(json.is_doubled(&at(place)), doubled, "{place}");
        }
        assert_eq!(json.doubled_name().as_deref(), Some("d"));
        let escaped = Json::read(br#"{"a":1,"\u0061":2}"#).unwrap();
        assert_eq!(escaped.doubled_name().as_deref(), Some("a"));
        assert!(escaped.is_doubled(&at("/a")));
        for sound in ["{}", "[]", r#"{"a":{"a":{}}}"#, "7"] {
            let sound = Json::read(sound.as_bytes()).unwrap();
            assert_eq!(sound.doubled_name(), None);
        }
    }

    #[test]
    fn a_word_is_found_as_it_was_written() {
        let body = r#" { "a" : "x\u0041" , "n": 12345678901234567890123.10, "b": [0, {"c":true}],
            "s/l": "}", "t~": "{", "e": "", "z": null, "d": 1, "d": 2 } "#;
        let table = [
            ("/a", Ok("xA")),
            ("/n", Ok("12345678901234567890123.10")),
            ("/b/0", Ok("0")),
            ("/b/1/c", Ok("true")),
            ("/s~1l", Ok("}")),
            ("/t~0", Ok("{")),
            ("/e", Ok("")),
            ("/z", Err(Trouble::Missing)),
            ("/b", Err(Trouble::Missing)),
            ("/b/2", Err(Trouble::Missing)),
            ("/b/00", Err(Trouble::Missing)),
            ("/a/x", Err(Trouble::Missing)),
            ("/x", Err(Trouble::Missing)),
            ("/d", Err(Trouble::Twice)),
        ];
        for (place, expected) in table {
            assert_eq!(word(body, place), expected.map(str::to_owned), "{place}");
        }
        assert_eq!(word("\"whole\"", ""), Ok("whole".to_owned()));
        for broken in ["", "{", "{} x", "a=1", "\u{feff}{}"] {
            assert_eq!(word(broken, "/a"), Err(Trouble::NoJson), "{broken}");
        }
    }

    #[test]
    fn a_field_is_set_and_every_other_byte_stays() {
        let table = [
            ("{}", "/id", Ok(r#"{"id":"k\"1"}"#)),
            ("{ }", "/id", Ok(r#"{"id":"k\"1" }"#)),
            (
                "{ \"n\": 1.50 }\n",
                "/id",
                Ok("{\"id\":\"k\\\"1\", \"n\": 1.50 }\n"),
            ),
            (r#"{"id":"old","n":1}"#, "/id", Ok(r#"{"id":"k\"1","n":1}"#)),
            (r#"{"id": null }"#, "/id", Ok(r#"{"id": "k\"1" }"#)),
            (
                r#"{"a":{"b":[]}}"#,
                "/a/id",
                Ok(r#"{"a":{"id":"k\"1","b":[]}}"#),
            ),
            (
                r#"{"a":[{"x":1}]}"#,
                "/a/0/x",
                Ok(r#"{"a":[{"x":"k\"1"}]}"#),
            ),
            (r#"{"a":{}}"#, "/b~1/id", Err(Trouble::Missing)),
            ("{}", "/a~1b", Ok(r#"{"a/b":"k\"1"}"#)),
            ("[]", "/id", Err(Trouble::Missing)),
            ("[]", "/0", Err(Trouble::Missing)),
            ("7", "/id", Err(Trouble::Missing)),
            (r#"{"id":1,"id":2}"#, "/id", Err(Trouble::Twice)),
        ];
        for (body, place, expected) in table {
            assert_eq!(with(body, place), expected.map(str::to_owned), "{body}");
        }
    }

    /// Small documents of every kind, with text that needs escaping.
    pub(crate) fn any_json() -> impl Strategy<Value = serde_json::Value> {
        let leaf = prop_oneof![
            Just(serde_json::Value::Null),
            any::<bool>().prop_map(serde_json::Value::from),
            any::<i64>().prop_map(serde_json::Value::from),
            "[a-c\"\\\\{}\\[\\],: \u{e9}]{0,6}".prop_map(serde_json::Value::from),
        ];
        leaf.prop_recursive(4, 32, 4, |inner| {
            prop_oneof![
                proptest::collection::vec(inner.clone(), 0..4).prop_map(serde_json::Value::from),
                proptest::collection::btree_map("[a-c\"/~]{0,2}", inner, 0..4)
                    .prop_map(|map| serde_json::Value::Object(map.into_iter().collect())),
            ]
        })
    }

    proptest! {
        #[test]
        fn it_agrees_with_a_parser(
            value in any_json(), place in "(/[a-c01]{0,2}){0,3}", pretty in any::<bool>()
        ) {
            let text = if pretty {
                serde_json::to_string_pretty(&value).unwrap()
            } else {
                value.to_string()
            };
            let json = Json::read(text.as_bytes()).unwrap();
            let pointer = at(&place);
            prop_assert_eq!(json.word(&pointer).ok(), pointer.word(&value));
            if let Ok(set) = json.with(&pointer, "new") {
                let read: serde_json::Value = serde_json::from_slice(&set).unwrap();
                prop_assert_eq!(read.pointer(&place), Some(&"new".into()));
            } else {
                prop_assert!(value.pointer(&place).is_none());
            }
        }
    }
}
