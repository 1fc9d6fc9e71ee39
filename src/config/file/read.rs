//! The strict walk: a tree and the table of keys in, typed values and every mistake out.
//!
//! A value that was refused becomes [`Value::Bad`], so that the walk goes on and later rules know
//! not to judge it a second time.

use std::time::Duration;

use super::Tree;
use super::fill::fill;
use super::keys::{Key, Kind};
use super::units::{self, DURATION_FORM, SIZE_FORM};
use crate::config::report::{Mistake, Path};

/// A value whose kind was checked.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// Refused; the mistake is noted.
    Bad,
    /// Text, a secret, or one of the allowed words.
    Text(String),
    /// `true` or `false`.
    Flag(bool),
    /// A whole number within its bounds.
    Whole(u64),
    /// A number within its bounds.
    Number(f64),
    /// A duration.
    Duration(Duration),
    /// A size in bytes.
    Size(usize),
    /// A list.
    List(Vec<Self>),
    /// A map.
    Map(Vec<(String, Self)>),
}

/// Looks up a name of the environment.
pub type Lookup<'a> = &'a dyn Fn(&str) -> Option<String>;

/// Walks a tree and collects mistakes.
pub struct Reader<'a> {
    lookup: Lookup<'a>,
    /// What was found wrong so far.
    pub mistakes: Vec<Mistake>,
    /// Secrets as they stand in the file; no line with one of them is ever shown.
    pub secrets: Vec<String>,
}

/// A scalar with its places filled in.
enum Filled {
    /// As it was written.
    Written,
    /// From the environment, where everything is text.
    From(String),
    /// Not possible; the mistake is noted.
    Failed,
}

impl<'a> Reader<'a> {
    /// A reader that fills `${NAME}` in by `lookup`.
    #[must_use]
    pub const fn new(lookup: Lookup<'a>) -> Self {
        Self {
            lookup,
            mistakes: Vec::new(),
            secrets: Vec::new(),
        }
    }

    /// Reads a map with the keys of `section`.
    pub fn section(&mut self, tree: &Tree, section: &'static [Key], path: &Path) -> Value {
        let entries = match tree {
            Tree::Map(entries) => entries.as_slice(),
            // A section whose keys are all commented out.
            Tree::Null => &[],
            other => return self.refuse(path, "a map", other),
        };
        let mut values = Vec::with_capacity(entries.len());
        for (name, tree) in entries {
            let path = path.key(name);
            match section.iter().find(|key| key.name == *name) {
                Some(key) => values.push((name.clone(), self.value(tree, &key.kind, &path))),
                None => self
                    .mistakes
                    .push(Mistake::key(&path, unknown(name, section))),
            }
        }
        for key in section.iter().filter(|key| key.must) {
            if !entries.iter().any(|(name, _)| name == key.name) {
                self.mistakes.push(Mistake::value(
                    path,
                    format!(
                        "`{}` is missing; expected {}",
                        key.name,
                        expected(&key.kind)
                    ),
                ));
            }
        }
        Value::Map(values)
    }

    fn value(&mut self, tree: &Tree, kind: &'static Kind, path: &Path) -> Value {
        match (kind, tree) {
            (Kind::Section(section), _) | (Kind::Presence(section), Tree::Map(_)) => {
                self.section(tree, section, path)
            }
            (Kind::Presence(_), Tree::Null) => {
                let form = "a map; its presence means something, so write {} for all defaults";
                self.refuse(path, form, tree)
            }
            (Kind::List { of, min, max }, Tree::List(elements)) => {
                self.list(elements, of, (*min, *max), path)
            }
            (Kind::Named(of), Tree::Map(entries)) => {
                let read = |(name, tree): &(String, Tree)| {
                    (name.clone(), self.value(tree, of, &path.key(name)))
                };
                Value::Map(entries.iter().map(read).collect())
            }
            _ => self.scalar(tree, kind, path),
        }
    }

    fn list(
        &mut self,
        elements: &[Tree],
        of: &'static Kind,
        (min, max): (usize, usize),
        path: &Path,
    ) -> Value {
        if elements.len() < min || elements.len() > max {
            let form = format!(
                "a list of {min} to {max} elements, found {}",
                elements.len()
            );
            self.mistakes
                .push(Mistake::value(path, format!("expected {form}")));
            return Value::Bad;
        }
        let elements = elements.iter().enumerate();
        Value::List(
            elements
                .map(|(at, tree)| self.value(tree, of, &path.index(at)))
                .collect(),
        )
    }

    fn scalar(&mut self, tree: &Tree, kind: &'static Kind, path: &Path) -> Value {
        if let Tree::Text(text) = tree
            && (matches!(kind, Kind::Secret(_)) || has_credentials(text))
        {
            self.secrets.extend(
                text.lines()
                    .filter(|line| !line.is_empty())
                    .map(str::to_owned),
            );
        }
        let (tree, filled) = match self.filled(tree, kind, path) {
            Filled::Written => (tree.clone(), false),
            Filled::From(text) => (Tree::Text(text), true),
            Filled::Failed => return Value::Bad,
        };
        let read = match (&tree, kind) {
            (Tree::Text(text), Kind::Text(_) | Kind::Secret(_)) => Some(Value::Text(text.clone())),
            (Tree::Text(text), Kind::Word(words)) => words
                .contains(&text.as_str())
                .then(|| Value::Text(text.clone())),
            (Tree::Text(text), Kind::Duration { zero }) => units::duration(text)
                .filter(|read| *zero || !read.is_zero())
                .map(Value::Duration),
            (Tree::Text(text), Kind::Size { min, max }) => units::size(text)
                .filter(|read| (*min..=*max).contains(&(*read as u64)))
                .map(Value::Size),
            (Tree::Flag(flag), Kind::Flag) => Some(Value::Flag(*flag)),
            (Tree::Text(text), Kind::Flag) if filled => text.parse().ok().map(Value::Flag),
            (_, Kind::Whole { min, max }) => whole(&tree, filled)
                .filter(|n| (*min..=*max).contains(n))
                .map(Value::Whole),
            (_, Kind::OneOf(numbers)) => whole(&tree, filled)
                .filter(|n| numbers.contains(n))
                .map(Value::Whole),
            // NaN is inside no range.
            (_, Kind::Number { min, max }) => number(&tree, filled)
                .filter(|n| (*min..=*max).contains(n))
                .map(Value::Number),
            _ => None,
        };
        read.unwrap_or_else(|| self.refuse_scalar(path, kind, &tree))
    }

    fn filled(&mut self, tree: &Tree, kind: &Kind, path: &Path) -> Filled {
        let Tree::Text(text) = tree else {
            return Filled::Written;
        };
        match fill(text, self.lookup) {
            Ok(None) => Filled::Written,
            Ok(Some(text)) => Filled::From(text),
            Err(why) => {
                let secret = matches!(kind, Kind::Secret(_));
                let mistake = Mistake::value(path, why.to_string());
                self.mistakes.push(Mistake { secret, ..mistake });
                Filled::Failed
            }
        }
    }

    fn refuse_scalar(&mut self, path: &Path, kind: &Kind, found: &Tree) -> Value {
        if matches!(kind, Kind::Secret(_)) {
            let form = format!("expected {}, as text in quotes", expected(kind));
            self.mistakes.push(Mistake {
                secret: true,
                ..Mistake::value(path, form)
            });
            return Value::Bad;
        }
        let bare = matches!(found, Tree::Whole(_) | Tree::Number(_));
        let hint = match kind {
            Kind::Text(_) if bare => "; put it into quotes when it is meant as text",
            Kind::Duration { .. } if bare => "; a bare number says no unit",
            Kind::Size { .. } if bare => "; a bare number says no unit",
            _ => "",
        };
        self.mistakes.push(Mistake::value(
            path,
            format!("expected {}, found {}{hint}", expected(kind), found.shown()),
        ));
        Value::Bad
    }

    fn refuse(&mut self, path: &Path, form: &str, found: &Tree) -> Value {
        let message = format!("expected {form}, found {}", found.shown());
        self.mistakes.push(Mistake::value(path, message));
        Value::Bad
    }
}

/// Whether a URL names a user, and perhaps a password.
#[must_use]
pub fn has_credentials(text: &str) -> bool {
    let rest = text.split_once("://").map(|(_, rest)| rest);
    rest.is_some_and(|rest| authority(rest).contains('@'))
}

/// Host and port of a URL whose scheme is taken off.
#[must_use]
pub fn authority(rest: &str) -> &str {
    rest.split(['/', '?', '#']).next().unwrap_or(rest)
}

fn whole(tree: &Tree, filled: bool) -> Option<u64> {
    match tree {
        Tree::Whole(whole) => u64::try_from(*whole).ok(),
        Tree::Text(text) if filled => text.parse().ok(),
        _ => None,
    }
}

#[expect(
    clippy::cast_precision_loss,
    reason = "bounds of numbers are far below 2^52"
)]
fn number(tree: &Tree, filled: bool) -> Option<f64> {
    match tree {
        Tree::Whole(whole) => Some(*whole as f64),
        Tree::Number(number) => Some(*number),
        Tree::Text(text) if filled => text.parse().ok(),
        _ => None,
    }
}

/// What a kind looks like, in words for the operator.
#[must_use]
pub fn expected(kind: &Kind) -> String {
    match kind {
        Kind::Text(form) | Kind::Secret(form) => (*form).to_owned(),
        Kind::Word(words) => format!("one of {}", words.join(", ")),
        Kind::Flag => "true or false".to_owned(),
        Kind::Whole { min, max } => format!("a whole number from {min} to {max}"),
        Kind::OneOf(numbers) => {
            let numbers: Vec<_> = numbers.iter().map(u64::to_string).collect();
            format!("one of {}", numbers.join(", "))
        }
        Kind::Number { min, max } => format!("a number from {min} to {max}"),
        Kind::Duration { zero: true } => DURATION_FORM.to_owned(),
        Kind::Duration { zero: false } => format!("{DURATION_FORM}, longer than zero"),
        Kind::Size { min, max } => {
            let show = |bytes| units::show_size(usize::try_from(bytes).unwrap_or(usize::MAX));
            format!("{SIZE_FORM}, from {} to {}", show(*min), show(*max))
        }
        Kind::List { of, min, max } => {
            format!("a list of {min} to {max}, each {}", expected(of))
        }
        Kind::Named(_) | Kind::Section(_) | Kind::Presence(_) => "a map".to_owned(),
    }
}

/// An unknown key, with the nearest known one or all of them.
fn unknown(name: &str, section: &[Key]) -> String {
    if name == "<<" {
        return "merge keys are not supported; use `defaults`, or an alias for a whole value"
            .to_owned();
    }
    let near = section
        .iter()
        .map(|key| (distance(name, key.name), key.name))
        .min()
        .filter(|(far, key)| *far <= 3.min(key.len() / 3));
    match near {
        Some((_, key)) => format!("unknown key; did you mean `{key}`?"),
        None => {
            let known: Vec<_> = section.iter().map(|key| key.name).collect();
            format!("unknown key; known here: {}", known.join(", "))
        }
    }
}

/// How many letters have to be added, removed or changed to turn `a` into `b`.
fn distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, from) in a.chars().enumerate().take(64) {
        let mut corner = i;
        row[0] = i + 1;
        for (j, to) in b.iter().enumerate() {
            let change = corner + usize::from(from != *to);
            corner = row[j + 1];
            row[j + 1] = change.min(corner + 1).min(row[j] + 1);
        }
    }
    row[b.len()]
}
