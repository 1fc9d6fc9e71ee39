//! The YAML file as it was written: one strict pass to a tree, and positions on demand.
//!
//! This is the only place that reads or writes YAML. The first pass stops at what makes a file no
//! configuration at all: syntax, duplicate keys, a second document, too much of anything.
//! Everything else is found by walking the tree, so that all mistakes come at once. The YAML crate
//! gives positions with errors only; [`position`] therefore walks the file again and fails on
//! purpose at the key in question. That costs a parse per mistake, which nobody waits for, and it
//! is exact for flow maps, quotes and aliases alike.

use std::cell::{Cell, RefCell};
use std::collections::HashSet;
use std::fmt;

use serde::de::{
    DeserializeSeed, Deserializer, EnumAccess, Error, IgnoredAny, MapAccess, SeqAccess, Visitor,
};

use super::report::{End, Finding, Path, Position, Report, Step};

pub mod fill;
pub mod keys;
pub mod read;
pub mod tags;
pub mod units;

/// The longest file read, in bytes.
pub const FILE_BYTES_MAX: usize = 1 << 20;
/// The most values one file may hold, counted after aliases were followed.
pub const VALUES_MAX: usize = 100_000;
/// How deep maps and lists may nest; the deepest key of ours stands at eight.
pub const DEPTH_MAX: usize = 16;

/// A YAML value.
#[derive(Clone, Debug, PartialEq)]
pub enum Tree {
    /// Nothing was written.
    Null,
    /// `true` or `false`.
    Flag(bool),
    /// A whole number.
    Whole(i64),
    /// Any other number.
    Number(f64),
    /// Text, quoted or not.
    Text(String),
    /// A list.
    List(Vec<Self>),
    /// A map, in the order of the file; every key once.
    Map(Vec<(String, Self)>),
}

impl Tree {
    /// What the operator sees: `30`, `"text"`, `a list`.
    #[must_use]
    pub fn shown(&self) -> String {
        match self {
            Self::Null => "nothing".to_owned(),
            Self::Flag(flag) => flag.to_string(),
            Self::Whole(whole) => whole.to_string(),
            Self::Number(number) => number.to_string(),
            Self::Text(text) => {
                let cut: String = text.chars().take(60).collect();
                format!("{cut:?}")
            }
            Self::List(_) => "a list".to_owned(),
            Self::Map(_) => "a map".to_owned(),
        }
    }
}

/// Reads the one document of `text`; an empty file is an empty map.
///
/// # Errors
/// A report of one finding: bad syntax, a duplicate key, a second document, or a bound.
pub fn parse(text: &str, file: &str) -> Result<Tree, Report> {
    if text.len() > FILE_BYTES_MAX {
        return Err(Report::whole(
            file,
            format!("longer than {FILE_BYTES_MAX} bytes"),
        ));
    }
    // Without aliases a value takes a byte at least, so only aliases of aliases can pass this.
    let most = text.len().clamp(1_000, VALUES_MAX);
    let bounds = Bounds::new(most);
    let mut documents = serde_yaml::Deserializer::from_str(text);
    let Some(first) = documents.next() else {
        return Ok(Tree::Map(Vec::new()));
    };
    let tree = Grow {
        bounds: &bounds,
        depth: 0,
    }
    .deserialize(first)
    .map_err(|error| stopped(text, file, &error, bounds.refusal.take()))?;
    if let Some(second) = documents.next() {
        let seek = Seek {
            steps: &[],
            end: End::Value,
        };
        let message = "a second document; a configuration is exactly one".to_owned();
        let place = seek
            .deserialize(second)
            .err()
            .and_then(|error| place(&error));
        return Err(stop(text, file, place, message));
    }
    if let Some(place) = tag(text, most) {
        return Err(stop(text, file, place, tags::REFUSED.to_owned()));
    }
    Ok(if tree == Tree::Null {
        Tree::Map(Vec::new())
    } else {
        tree
    })
}

/// Where a tag stands that the first pass did not see, in a file that is well-formed.
fn tag(text: &str, most: usize) -> Option<Option<Position>> {
    let marked = tags::stumbling(text)?;
    let bounds = Bounds::new(most);
    let grow = Grow {
        bounds: &bounds,
        depth: 0,
    };
    let document = serde_yaml::Deserializer::from_str(&marked).next()?;
    let error = grow.deserialize(document).err()?;
    Some(place(&error))
}

/// Where the key or value at `path` stands in `text`.
#[must_use]
pub fn position(text: &str, path: &Path, end: End) -> Option<Position> {
    let document = serde_yaml::Deserializer::from_str(text).next()?;
    Seek {
        steps: path.steps(),
        end,
    }
    .deserialize(document)
    .err()
    .and_then(|error| place(&error))
}

/// Writes a value as YAML.
#[must_use]
pub fn to_yaml(value: &serde_json::Value) -> String {
    serde_yaml::to_string(value).expect("JSON values are plain YAML")
}

fn place(error: &serde_yaml::Error) -> Option<Position> {
    error.location().map(|at| Position {
        line: at.line(),
        column: at.column(),
    })
}

fn stopped(text: &str, file: &str, error: &serde_yaml::Error, own: Option<String>) -> Report {
    let place = place(error);
    if let Some(message) = own {
        return stop(text, file, place, message);
    }
    let raw = error.to_string();
    let reason = raw.split(" at line ").next().unwrap_or(&raw);
    let line = place
        .and_then(|at| text.lines().nth(at.line - 1))
        .unwrap_or("");
    let indent = &line[..line.len() - line.trim_start().len()];
    let hint = if indent.contains('\t') {
        "; indent with spaces, YAML takes no tabs"
    } else if line.contains("${") {
        "; inside { } and [ ] put \"${NAME}\" into quotes"
    } else {
        ""
    };
    stop(text, file, place, format!("not valid YAML: {reason}{hint}"))
}

fn stop(text: &str, file: &str, position: Option<Position>, message: String) -> Report {
    let source = position
        .and_then(|at| text.lines().nth(at.line - 1))
        .filter(|line| !may_hold_secret(line))
        .map(str::to_owned);
    let finding = Finding {
        position,
        path: String::new(),
        message,
        source,
    };
    Report {
        file: file.to_owned(),
        findings: vec![finding],
        left_out: 0,
        unread: false,
    }
}

/// Whether a line looks as if it held a secret; without a tree there is only its looks.
fn may_hold_secret(line: &str) -> bool {
    let line = line.to_ascii_lowercase();
    [
        "token",
        "authorization",
        "cookie",
        "key",
        "secret",
        "password",
        "headers",
        "@",
    ]
    .iter()
    .any(|word| line.contains(word))
}

/// What the first pass counts, and our own reason when it stops.
struct Bounds {
    values: Cell<usize>,
    most: usize,
    refusal: RefCell<Option<String>>,
}

impl Bounds {
    const fn new(most: usize) -> Self {
        Self {
            values: Cell::new(0),
            most,
            refusal: RefCell::new(None),
        }
    }

    fn refuse<T, E: Error>(&self, message: String) -> Result<T, E> {
        let error = E::custom(&message);
        self.refusal.replace(Some(message));
        Err(error)
    }
}

/// Grows the tree below one value.
#[derive(Clone, Copy)]
struct Grow<'b> {
    bounds: &'b Bounds,
    depth: usize,
}

impl Grow<'_> {
    fn below<E: Error>(self) -> Result<Self, E> {
        if self.depth >= DEPTH_MAX {
            return self
                .bounds
                .refuse(format!("nested deeper than {DEPTH_MAX} levels"));
        }
        Ok(Self {
            depth: self.depth + 1,
            ..self
        })
    }
}

impl<'de> DeserializeSeed<'de> for Grow<'_> {
    type Value = Tree;

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<Tree, D::Error> {
        let count = self.bounds.values.get() + 1;
        self.bounds.values.set(count);
        if count > self.bounds.most {
            let most = self.bounds.most;
            return self
                .bounds
                .refuse(format!("more than {most} values with all aliases followed"));
        }
        from.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Grow<'_> {
    type Value = Tree;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a plain value without a tag")
    }

    fn visit_unit<E: Error>(self) -> Result<Tree, E> {
        Ok(Tree::Null)
    }

    // A file without any value.
    fn visit_none<E: Error>(self) -> Result<Tree, E> {
        Ok(Tree::Null)
    }

    fn visit_bool<E: Error>(self, flag: bool) -> Result<Tree, E> {
        Ok(Tree::Flag(flag))
    }

    fn visit_i64<E: Error>(self, whole: i64) -> Result<Tree, E> {
        Ok(Tree::Whole(whole))
    }

    fn visit_u64<E: Error>(self, whole: u64) -> Result<Tree, E> {
        // Past i64 every bound of ours is long exceeded, so the nearest number says enough.
        Ok(Tree::Whole(i64::try_from(whole).unwrap_or(i64::MAX)))
    }

    fn visit_f64<E: Error>(self, number: f64) -> Result<Tree, E> {
        Ok(Tree::Number(number))
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Tree, E> {
        Ok(Tree::Text(text.to_owned()))
    }

    fn visit_enum<A: EnumAccess<'de>>(self, _: A) -> Result<Tree, A::Error> {
        self.bounds.refuse(tags::REFUSED.to_owned())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Tree, A::Error> {
        let below = self.below()?;
        let mut elements = Vec::new();
        while let Some(element) = list.next_element_seed(below)? {
            elements.push(element);
        }
        Ok(Tree::List(elements))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Tree, A::Error> {
        let below = self.below()?;
        let mut seen = HashSet::new();
        let mut entries = Vec::new();
        while let Some(key) = map.next_key_seed(NewKey {
            bounds: self.bounds,
            seen: &mut seen,
        })? {
            entries.push((key, map.next_value_seed(below)?));
        }
        Ok(Tree::Map(entries))
    }
}

/// Takes a key that was not seen in its map before.
struct NewKey<'k, 'b> {
    bounds: &'b Bounds,
    seen: &'k mut HashSet<String>,
}

impl<'de> DeserializeSeed<'de> for NewKey<'_, '_> {
    type Value = String;

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<String, D::Error> {
        from.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for NewKey<'_, '_> {
    type Value = String;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a key that is text")
    }

    fn visit_str<E: Error>(self, key: &str) -> Result<String, E> {
        if self.seen.insert(key.to_owned()) {
            return Ok(key.to_owned());
        }
        self.bounds.refuse(format!(
            "the key {key:?} stands in this map twice; keep one of them"
        ))
    }

    fn visit_enum<A: EnumAccess<'de>>(self, _: A) -> Result<String, A::Error> {
        self.bounds.refuse(tags::REFUSED.to_owned())
    }
}

/// Walks to a place and fails there, so that the error carries its position.
#[derive(Clone, Copy)]
struct Seek<'p> {
    steps: &'p [Step],
    end: End,
}

impl Seek<'_> {
    fn here<E: Error>(self) -> Result<(), E> {
        if self.steps.is_empty() {
            Err(E::custom("here"))
        } else {
            Ok(())
        }
    }
}

impl<'de> DeserializeSeed<'de> for Seek<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<(), D::Error> {
        from.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Seek<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("any value")
    }

    fn visit_unit<E: Error>(self) -> Result<(), E> {
        self.here()
    }

    fn visit_none<E: Error>(self) -> Result<(), E> {
        self.here()
    }

    fn visit_bool<E: Error>(self, _: bool) -> Result<(), E> {
        self.here()
    }

    fn visit_i64<E: Error>(self, _: i64) -> Result<(), E> {
        self.here()
    }

    fn visit_u64<E: Error>(self, _: u64) -> Result<(), E> {
        self.here()
    }

    fn visit_f64<E: Error>(self, _: f64) -> Result<(), E> {
        self.here()
    }

    fn visit_str<E: Error>(self, _: &str) -> Result<(), E> {
        self.here()
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<(), A::Error> {
        let Some((Step::Index(wanted), steps)) = self.steps.split_first() else {
            return self.here();
        };
        for _ in 0..*wanted {
            list.next_element::<IgnoredAny>()?;
        }
        list.next_element_seed(Seek { steps, ..self })?;
        while list.next_element::<IgnoredAny>()?.is_some() {}
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        let Some((Step::Key(wanted), steps)) = self.steps.split_first() else {
            return self.here();
        };
        let stop = (steps.is_empty() && self.end == End::Key).then_some(wanted.as_str());
        while let Some(key) = map.next_key_seed(StopAt(stop))? {
            if key == *wanted {
                map.next_value_seed(Seek { steps, ..self })?;
            } else {
                map.next_value::<IgnoredAny>()?;
            }
        }
        Ok(())
    }
}

/// Takes a key, or fails at the one that is sought.
struct StopAt<'p>(Option<&'p str>);

impl<'de> DeserializeSeed<'de> for StopAt<'_> {
    type Value = String;

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<String, D::Error> {
        from.deserialize_str(self)
    }
}

impl Visitor<'_> for StopAt<'_> {
    type Value = String;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a key")
    }

    fn visit_str<E: Error>(self, key: &str) -> Result<String, E> {
        if self.0 == Some(key) {
            Err(E::custom("here"))
        } else {
            Ok(key.to_owned())
        }
    }
}
