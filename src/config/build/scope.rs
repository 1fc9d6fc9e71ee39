//! A section of a route laid over the same section of `defaults`: the nearer layer that has a key
//! decides, key by key.

use std::time::Duration;

use crate::config::file::read::Value;
use crate::config::report::Path;
use crate::config::words::Word;

/// Layers of one section, the nearest first.
#[derive(Clone, Debug)]
pub(super) struct Scope<'a> {
    layers: Vec<(&'a [(String, Value)], Path)>,
    /// Where a mistake about the section as a whole points.
    home: Path,
}

impl<'a> Scope<'a> {
    /// A section of its own; anything but a map counts as empty.
    #[must_use]
    pub(super) fn new(value: &'a Value, path: &Path) -> Self {
        let mut scope = Self {
            layers: Vec::new(),
            home: path.clone(),
        };
        scope.push(value, path.clone());
        scope
    }

    /// This section, with what it does not say taken from `beneath`.
    #[must_use]
    pub(super) fn over(mut self, beneath: &Self) -> Self {
        self.layers.extend(beneath.layers.iter().cloned());
        self
    }

    fn push(&mut self, value: &'a Value, path: Path) {
        if let Value::Map(entries) = value {
            self.layers.push((entries, path));
        }
    }

    /// The section below `key`, with the same layers.
    #[must_use]
    pub(super) fn section(&self, key: &str) -> Self {
        let mut below = Self {
            layers: Vec::new(),
            home: self.home.clone(),
        };
        for (entries, path) in &self.layers {
            if let Some((_, value)) = entries.iter().find(|(name, _)| name == key) {
                below.push(value, path.key(key));
            }
        }
        if let Some((_, nearest)) = below.layers.first() {
            below.home = nearest.clone();
        }
        below
    }

    /// The value of `key` in the nearest layer that has it, with its path.
    #[must_use]
    pub(super) fn get(&self, key: &str) -> Option<(&'a Value, Path)> {
        self.layers.iter().find_map(|(entries, path)| {
            let (_, value) = entries.iter().find(|(name, _)| name == key)?;
            Some((value, path.key(key)))
        })
    }

    /// Whether any of `keys` was refused, so that no rule may judge them again.
    #[must_use]
    pub(super) fn any_bad(&self, keys: &[&str]) -> bool {
        keys.iter()
            .any(|key| matches!(self.get(key), Some((Value::Bad, _))))
    }

    /// Where a mistake about `keys` points: at the first of them that was written, else at the
    /// section.
    #[must_use]
    pub(super) fn blame(&self, keys: &[&str]) -> Path {
        keys.iter()
            .find_map(|key| self.get(key).map(|(_, path)| path))
            .unwrap_or_else(|| self.home.clone())
    }

    /// A duration, or the default.
    #[must_use]
    pub(super) fn duration(&self, key: &str, default: Duration) -> Duration {
        match self.get(key) {
            Some((Value::Duration(read), _)) => *read,
            _ => default,
        }
    }

    /// A duration that was written.
    #[must_use]
    pub(super) fn duration_set(&self, key: &str) -> Option<Duration> {
        match self.get(key) {
            Some((Value::Duration(read), _)) => Some(*read),
            _ => None,
        }
    }

    /// Whether the section was written, if only as an empty map.
    #[must_use]
    pub(super) fn exists(&self) -> bool {
        !self.layers.is_empty()
    }

    /// Whether nothing of the section was written in any layer.
    #[must_use]
    pub(super) fn is_empty(&self) -> bool {
        self.layers.iter().all(|(entries, _)| entries.is_empty())
    }

    /// A size, or the default.
    #[must_use]
    pub(super) fn size(&self, key: &str, default: usize) -> usize {
        match self.get(key) {
            Some((Value::Size(read), _)) => *read,
            _ => default,
        }
    }

    /// A whole number, or the default.
    #[must_use]
    pub(super) fn whole(&self, key: &str, default: usize) -> usize {
        match self.get(key) {
            Some((Value::Whole(read), _)) => usize::try_from(*read).unwrap_or(usize::MAX),
            _ => default,
        }
    }

    /// A number, or the default.
    #[must_use]
    pub(super) fn number(&self, key: &str, default: f64) -> f64 {
        match self.get(key) {
            Some((Value::Number(read), _)) => *read,
            _ => default,
        }
    }

    /// A flag, or the default.
    #[must_use]
    pub(super) fn flag(&self, key: &str, default: bool) -> bool {
        match self.get(key) {
            Some((Value::Flag(read), _)) => *read,
            _ => default,
        }
    }

    /// A word, or the default.
    #[must_use]
    pub(super) fn word<W: Word>(&self, key: &str, default: W) -> W {
        self.text(key)
            .and_then(|(text, _)| W::from_word(text))
            .unwrap_or(default)
    }

    /// Text that was written.
    #[must_use]
    pub(super) fn text(&self, key: &str) -> Option<(&'a str, Path)> {
        match self.get(key) {
            Some((Value::Text(text), path)) => Some((text, path)),
            _ => None,
        }
    }

    /// The elements of a list that was written.
    #[must_use]
    pub(super) fn list(&self, key: &str) -> Option<(&'a [Value], Path)> {
        match self.get(key) {
            Some((Value::List(elements), path)) => Some((elements, path)),
            _ => None,
        }
    }
}
