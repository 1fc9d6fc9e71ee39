//! Every mistake of one configuration, with its place, the key it is about and the way out.
//!
//! A report is made once per load and holds all mistakes, because an operator who fixes them one
//! by one runs `check` ten times. Source lines are shown except where they could hold a secret.

use std::fmt;

/// Mistakes shown; a file with more of them is not a configuration.
pub const MISTAKES_MAX: usize = 100;

/// What is wrong with a configuration. Never empty.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Report {
    /// The file, as the operator named it.
    pub file: String,
    /// The mistakes, in the order of the file.
    pub findings: Vec<Finding>,
    /// Mistakes left out past [`MISTAKES_MAX`].
    pub left_out: usize,
    /// The file could not be read, so that nothing is known of what it says.
    pub unread: bool,
}

/// One mistake.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// Where it stands; `None` for a mistake about the file as a whole.
    pub position: Option<Position>,
    /// The key, such as `routes[0].retry.base`; empty when no key is to blame.
    pub path: String,
    /// What is wrong, what was expected, and what to do.
    pub message: String,
    /// The line of the file, unless it may hold a secret.
    pub source: Option<String>,
}

/// A place in the file; both counted from 1, the column in characters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Position {
    /// The line.
    pub line: usize,
    /// The character in the line.
    pub column: usize,
}

/// A key's place in the tree of the file.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Path(Vec<Step>);

/// One step down the tree.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    /// To the value of a key.
    Key(String),
    /// To an element of a list.
    Index(usize),
}

/// A mistake before its position is looked up.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mistake {
    /// The key it is about.
    pub path: Path,
    /// Which end of that key the position shall point at.
    pub at: End,
    /// What is wrong, what was expected, and what to do.
    pub message: String,
    /// Whether the line may hold a secret.
    pub secret: bool,
}

/// Which end of a key a position points at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// The key itself: it should not be here.
    Key,
    /// Its value, which is wrong or lacks something.
    Value,
}

impl Report {
    /// A report of one mistake about the file as a whole.
    #[must_use]
    pub fn whole(file: &str, message: String) -> Self {
        let finding = Finding {
            position: None,
            path: String::new(),
            message,
            source: None,
        };
        Self {
            file: file.to_owned(),
            findings: vec![finding],
            left_out: 0,
            unread: false,
        }
    }

    /// A report of one mistake at a place, of which no line can be shown.
    #[must_use]
    pub fn at(file: &str, place: Position, message: String) -> Self {
        let mut report = Self::whole(file, message);
        report.findings[0].position = Some(place);
        report
    }

    /// A report of a file that could not be read.
    #[must_use]
    pub fn unread(file: &str, message: String) -> Self {
        Self {
            unread: true,
            ..Self::whole(file, message)
        }
    }

    /// The same mistakes without places, for a configuration nobody wrote as a file.
    #[must_use]
    pub fn without_places(mut self) -> Self {
        for finding in &mut self.findings {
            finding.position = None;
            finding.source = None;
        }
        self
    }
}

impl Path {
    /// The path of a key below this one.
    #[must_use]
    pub fn key(&self, key: &str) -> Self {
        self.down(Step::Key(key.to_owned()))
    }

    /// The path of a list element below this one.
    #[must_use]
    pub fn index(&self, at: usize) -> Self {
        self.down(Step::Index(at))
    }

    fn down(&self, step: Step) -> Self {
        let mut steps = self.0.clone();
        steps.push(step);
        Self(steps)
    }

    /// The steps from the root.
    #[must_use]
    pub fn steps(&self) -> &[Step] {
        &self.0
    }
}

impl Mistake {
    /// A value that is wrong, or lacks something.
    #[must_use]
    pub fn value(path: &Path, message: impl Into<String>) -> Self {
        Self {
            path: path.clone(),
            at: End::Value,
            message: message.into(),
            secret: false,
        }
    }

    /// A key that should not be where it stands.
    #[must_use]
    pub fn key(path: &Path, message: impl Into<String>) -> Self {
        Self {
            at: End::Key,
            ..Self::value(path, message)
        }
    }
}

impl fmt::Display for Path {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, step) in self.0.iter().enumerate() {
            match step {
                // A key may hold anything; a line of a log may not.
                Step::Key(key) if at == 0 => write!(f, "{}", key.escape_debug())?,
                Step::Key(key) => write!(f, ".{}", key.escape_debug())?,
                Step::Index(index) => write!(f, "[{index}]")?,
            }
        }
        Ok(())
    }
}

impl fmt::Display for Finding {
    /// `line:column: path: message`, then the source line with a caret.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(Position { line, column }) = self.position {
            write!(f, "{line}:{column}: ")?;
        }
        if !self.path.is_empty() {
            write!(f, "{}: ", self.path)?;
        }
        f.write_str(&self.message)?;
        let (Some(Position { line, column }), Some(source)) = (self.position, &self.source) else {
            return Ok(());
        };
        let shown: String = source.chars().take(100).collect();
        write!(f, "\n{line:>6} | {shown}")?;
        if column <= 100 {
            // Tabs are kept, so that the caret stands under its character on any terminal.
            let lead = source.chars().take(column - 1);
            let lead: String = lead.map(|c| if c == '\t' { '\t' } else { ' ' }).collect();
            write!(f, "\n       | {lead}^")?;
        }
        Ok(())
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, finding) in self.findings.iter().enumerate() {
            if at > 0 {
                f.write_str("\n")?;
            }
            let gap = if finding.position.is_some() { "" } else { " " };
            write!(f, "{}:{gap}{finding}", self.file)?;
        }
        if self.left_out > 0 {
            write!(f, "\n{}: and {} more mistakes", self.file, self.left_out)?;
        }
        Ok(())
    }
}

impl std::error::Error for Report {}
