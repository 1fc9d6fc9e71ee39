//! Tags, which say what a value is taken for: `!!str 7`, `!!python/object {}`.
//!
//! The YAML crate tells of local ones (`!name`) and reads past all others as if they were not
//! there. So a file that may have one is read a second time with these written as local ones, byte
//! for byte, which leaves every place where it was; in texts and comments that changes nothing
//! anybody looks at.

/// What the tags of the core schema say, a plain value says by itself.
const CORE: [&str; 7] = ["str", "int", "float", "bool", "null", "seq", "map"];

/// How their names begin when they are written in full.
const PREFIX: &str = "tag:yaml.org,2002:";

/// What is told of a tag.
pub const REFUSED: &str = "a tag; a configuration has plain values only: remove the tag (those of \
                           YAML's core schema, such as !!str, may stay)";

/// The text with everything that may be a foreign tag, or define one, as what the reader stumbles
/// over; `None` where there is nothing of that kind.
#[must_use]
pub fn stumbling(text: &str) -> Option<String> {
    let mut marked = text.to_owned();
    for (at, found) in text.match_indices("!!") {
        if !is_core(&text[at + found.len()..]) {
            marked.replace_range(at + 1..=at + 1, "-");
        }
    }
    for (at, found) in text.match_indices("!<") {
        let name = &text[at + found.len()..];
        if let Some(end) = name.find('>')
            && !name.strip_prefix(PREFIX).is_some_and(is_core)
        {
            let verbatim = at + 1..at + found.len() + end + 1;
            marked.replace_range(verbatim.clone(), &"-".repeat(verbatim.len()));
        }
    }
    // No token begins with this letter.
    for (at, _) in text.match_indices("%TAG") {
        marked.replace_range(at..=at, "@");
    }
    (marked != text).then_some(marked)
}

fn is_core(name: &str) -> bool {
    let end = |c: char| c.is_whitespace() || matches!(c, ',' | '[' | ']' | '{' | '}' | '>');
    let name = name.split(end).next().unwrap_or(name);
    CORE.contains(&name)
}
