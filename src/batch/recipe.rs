//! What request a row means: method, path, header fields, body, with columns filled in.
//!
//! Filling in depends on where the text goes: percent-encoded in a path, escaped inside a JSON
//! body, as it stands elsewhere. A row that lacks a column it needs is a bad row, never half a
//! request. Deliberately absent: the call id (`intake` gives it), and credentials, which are never
//! stored and belong into the route's `upstream.headers`.

use std::borrow::Cow;

use bytes::Bytes;
use http::header::{CONTENT_LENGTH, CONTENT_TYPE, HOST};
use http::uri::PathAndQuery;
use http::{HeaderMap, HeaderName, HeaderValue, Method};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::Value;

use super::rows::Row;
use crate::config::matcher;
use crate::telemetry::log::visible;

/// RFC 3986's unreserved bytes stay as they are.
const IN_PATH: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'-')
    .remove(b'.')
    .remove(b'_')
    .remove(b'~');

/// Fields that carry a credential, or belong to one hop.
const REFUSED: [&str; 11] = [
    "authorization",
    "proxy-authorization",
    "cookie",
    "x-api-key",
    "connection",
    "transfer-encoding",
    "te",
    "trailer",
    "upgrade",
    "keep-alive",
    "prefer",
];

/// The most header fields of a recipe.
const FIELDS_MAX: usize = 64;

/// A recipe as it is typed.
#[derive(Clone, Debug, Default)]
pub struct Typed {
    /// The method; `POST` unless given.
    pub method: Option<String>,
    /// The path, with `{column}` parts; the route's own unless given.
    pub path: Option<String>,
    /// The body, with `{column}` parts; the row as a JSON object unless given.
    pub body: Option<String>,
    /// Header fields, `Name: value`, with `{column}` parts.
    pub headers: Vec<String>,
}

/// A recipe, read.
#[derive(Clone, Debug)]
pub struct Recipe {
    /// The method of every request.
    pub method: Method,
    path: Option<Text>,
    body: Option<Text>,
    is_json: bool,
    headers: Vec<(HeaderName, Text)>,
}

/// The request of a row.
#[derive(Clone, Debug)]
pub struct Made {
    /// Path and query, before the route's tool sees it.
    pub target: PathAndQuery,
    /// Its fields.
    pub headers: HeaderMap,
    /// Its body.
    pub body: Bytes,
}

/// Text with places for columns.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Text(Vec<Piece>);

#[derive(Clone, Debug, PartialEq, Eq)]
enum Piece {
    Literal(String),
    Column(String),
}

impl Recipe {
    /// Reads a recipe.
    ///
    /// # Errors
    /// What cannot be used, and what to do, for people.
    pub fn read(typed: &Typed) -> Result<Self, String> {
        let method = typed.method.as_deref().unwrap_or("POST");
        let method = Method::from_bytes(method.to_ascii_uppercase().as_bytes())
            .map_err(|_| format!("`{}` is no method", visible(method)))?;
        let path = typed.path.as_deref().map(Text::read);
        if typed
            .path
            .as_deref()
            .is_some_and(|path| !path.starts_with('/'))
        {
            return Err("the path must begin with `/`".to_owned());
        }
        if typed.headers.len() > FIELDS_MAX {
            return Err(format!("more than {FIELDS_MAX} header fields"));
        }
        let body = typed.body.as_deref();
        let is_json = body.is_none_or(|body| body.trim_start().starts_with(['{', '[', '"']));
        Ok(Self {
            method,
            path,
            body: body.map(Text::read),
            is_json,
            headers: typed
                .headers
                .iter()
                .map(|line| field(line))
                .collect::<Result<_, _>>()?,
        })
    }

    /// Whether every column that is named is among these.
    ///
    /// # Errors
    /// Those that are not, for people.
    pub fn check(&self, columns: &[String]) -> Result<(), String> {
        let texts = self.path.iter().chain(&self.body);
        let texts = texts.chain(self.headers.iter().map(|(_, text)| text));
        let mut missing: Vec<String> = texts
            .flat_map(Text::columns)
            .filter(|name| !columns.iter().any(|known| known == name))
            .map(|name| format!("`{}`", visible(name)))
            .collect();
        missing.sort_unstable();
        missing.dedup();
        if missing.is_empty() {
            return Ok(());
        }
        let known: Vec<String> = columns.iter().map(|name| visible(name)).collect();
        Err(format!(
            "no column is called {}; the header row has {}",
            missing.join(", "),
            known.join(", ")
        ))
    }

    /// The request that a row means.
    ///
    /// # Errors
    /// What the row lacks, for people.
    pub fn make(&self, row: &Row, path: &str) -> Result<Made, String> {
        let target = match &self.path {
            Some(text) => text.fill(row, in_path)?,
            None => path.to_owned(),
        };
        let target = PathAndQuery::try_from(target.as_str())
            .map_err(|_| format!("`{}` is no path", visible(&target)))?;
        if matcher::walks(target.path()) {
            let shown = visible(target.path());
            return Err(format!(
                "`{shown}` has `.` or `..` as a segment: another path"
            ));
        }
        let body = match &self.body {
            None => row.object(),
            Some(text) if self.is_json => {
                let body = text.fill(row, in_json)?;
                if let Err(error) = serde_json::from_str::<serde::de::IgnoredAny>(&body) {
                    return Err(format!("its body is no JSON once filled in: {error}"));
                }
                Bytes::from(body)
            }
            Some(text) => Bytes::from(text.fill(row, as_it_stands)?),
        };
        Ok(Made {
            target,
            headers: self.fields(row)?,
            body,
        })
    }

    fn fields(&self, row: &Row) -> Result<HeaderMap, String> {
        let mut headers = HeaderMap::new();
        for (name, text) in &self.headers {
            let value = text.fill(row, as_it_stands)?;
            let value = value.trim();
            let plain = Some(value).filter(|value| value.is_ascii());
            let value = plain.and_then(|value| HeaderValue::from_str(value).ok());
            let value = value.ok_or_else(|| {
                format!("the field {name} would hold what a header cannot: visible ASCII only")
            })?;
            headers.append(name.clone(), value);
        }
        if !headers.contains_key(CONTENT_TYPE) {
            let kind = if self.is_json {
                "application/json"
            } else {
                "text/plain; charset=utf-8"
            };
            headers.insert(CONTENT_TYPE, HeaderValue::from_static(kind));
        }
        Ok(headers)
    }
}

fn field(line: &str) -> Result<(HeaderName, Text), String> {
    let wrong = || {
        let shown = visible(line);
        format!("`{shown}` is no header field; it looks like `Name: value`")
    };
    let (name, value) = line.split_once(':').ok_or_else(wrong)?;
    let name = HeaderName::from_bytes(name.trim().as_bytes()).map_err(|_| wrong())?;
    if REFUSED.contains(&name.as_str()) || name == HOST || name == CONTENT_LENGTH {
        return Err(format!(
            "the field {name} cannot come with a batch: credentials are never stored, and framing \
             is the gateway's; put a credential into the route's upstream.headers"
        ));
    }
    Ok((name, Text::read(value.trim())))
}

impl Text {
    /// Reads `{column}` parts out of `text`. A brace that does not enclose a plain name is text, so
    /// that a JSON body needs no escaping.
    fn read(text: &str) -> Self {
        let mut pieces = Vec::new();
        let mut literal = String::new();
        let mut rest = text;
        while let Some(open) = rest.find('{') {
            literal.push_str(&rest[..open]);
            let inner = &rest[open + 1..];
            let end = inner.find(['{', '}', '"', ':', ',', '\n']);
            let name = end.filter(|at| inner[*at..].starts_with('}'));
            let name = name.map_or("", |at| inner[..at].trim());
            match (end, name) {
                (Some(at), name) if !name.is_empty() => {
                    if !literal.is_empty() {
                        pieces.push(Piece::Literal(std::mem::take(&mut literal)));
                    }
                    pieces.push(Piece::Column(name.to_owned()));
                    rest = &inner[at + 1..];
                }
                _ => {
                    literal.push('{');
                    rest = inner;
                }
            }
        }
        literal.push_str(rest);
        if !literal.is_empty() {
            pieces.push(Piece::Literal(literal));
        }
        Self(pieces)
    }

    fn columns(&self) -> impl Iterator<Item = &str> {
        self.0.iter().filter_map(|piece| match piece {
            Piece::Column(name) => Some(name.as_str()),
            Piece::Literal(_) => None,
        })
    }

    fn fill(
        &self,
        row: &Row,
        escape: fn(&str) -> Result<Cow<'_, str>, &'static str>,
    ) -> Result<String, String> {
        let mut text = String::new();
        for piece in &self.0 {
            match piece {
                Piece::Literal(literal) => text.push_str(literal),
                Piece::Column(name) => {
                    let shown = || visible(name);
                    let value = row
                        .value(name)
                        .ok_or_else(|| format!("it has no `{}`", shown()))?;
                    let value = escape(&value).map_err(|why| format!("its `{}` {why}", shown()))?;
                    text.push_str(&value);
                }
            }
        }
        Ok(text)
    }
}

fn in_path(value: &str) -> Result<Cow<'_, str>, &'static str> {
    match value {
        "" => Err("is empty and would make another path"),
        "." | ".." => Err("would make another path"),
        value => Ok(utf8_percent_encode(value, IN_PATH).into()),
    }
}

fn in_json(value: &str) -> Result<Cow<'_, str>, &'static str> {
    let quoted = Value::from(value).to_string();
    Ok(Cow::Owned(quoted[1..quoted.len() - 1].to_owned()))
}

#[expect(clippy::unnecessary_wraps, reason = "one of three ways to escape")]
const fn as_it_stands(value: &str) -> Result<Cow<'_, str>, &'static str> {
    Ok(Cow::Borrowed(value))
}

#[cfg(test)]
mod tests {
    use super::super::rows::{Format, Rows};
    use super::*;

    fn row(text: &str) -> Row {
        let mut rows = Rows::open(Format::JsonLines, text.as_bytes()).unwrap();
        rows.row().unwrap().unwrap().unwrap()
    }

    fn recipe(path: Option<&str>, body: Option<&str>, headers: &[&str]) -> Recipe {
        Recipe::read(&Typed {
            method: None,
            path: path.map(str::to_owned),
            body: body.map(str::to_owned),
            headers: headers.iter().map(|line| (*line).to_owned()).collect(),
        })
        .unwrap()
    }

    #[test]
    fn without_a_word_a_row_is_posted_as_it_is() {
        let made = recipe(None, None, &[]).make(&row(r#"{"no": "RX1"}"#), "/track");
        let made = made.unwrap();
        assert_eq!(made.target, "/track");
        assert_eq!(made.body, r#"{"no": "RX1"}"#);
        assert_eq!(made.headers[CONTENT_TYPE], "application/json");
    }

    #[test]
    fn columns_are_filled_in_as_their_place_demands() {
        let row = row(r#"{"no":"a/b \"c\"","qty":3,"单号":"x"}"#);
        let body = r#"{"n":"{no}","q":{qty},"o":{},"t":"{ }"}"#;
        let recipe = recipe(
            Some("/t/{no}/{单号}?q={qty}"),
            Some(body),
            &["X-N: n-{qty}"],
        );
        let made = recipe.make(&row, "/").unwrap();
        assert_eq!(made.target, "/t/a%2Fb%20%22c%22/x?q=3");
        assert_eq!(made.body, r#"{"n":"a/b \"c\"","q":3,"o":{},"t":"{ }"}"#);
        assert_eq!(made.headers["x-n"], "n-3");
        let plain = Recipe::read(&Typed {
            body: Some("no={no}".to_owned()),
            ..Typed::default()
        });
        let made = plain.unwrap().make(&row, "/").unwrap();
        assert_eq!(made.body, "no=a/b \"c\"");
        assert_eq!(made.headers[CONTENT_TYPE], "text/plain; charset=utf-8");
    }

    #[test]
    fn a_row_without_what_is_needed_says_what() {
        let why = |path, body, header: &[&str], text| {
            let made = recipe(path, body, header).make(&row(text), "/");
            made.map(|made| made.target.to_string()).unwrap_err()
        };
        for (found, word) in [
            (why(Some("/t/{no}"), None, &[], "{}"), "no `no`"),
            (why(Some("/t/{no}"), None, &[], r#"{"no":""}"#), "is empty"),
            (
                why(Some("/t/{no}"), None, &[], r#"{"no":".."}"#),
                "another path",
            ),
            (
                why(Some("/t/../{no}"), None, &[], r#"{"no":"1"}"#),
                "another path",
            ),
            (
                why(None, Some("{\"q\":{q}}"), &[], r#"{"q":"x"}"#),
                "no JSON",
            ),
            (
                why(None, None, &["X-A: {a}"], r#"{"a":"ü"}"#),
                "visible ASCII",
            ),
        ] {
            assert!(found.contains(word), "{found}");
        }
    }

    #[test]
    fn a_recipe_that_cannot_work_is_refused_before_any_row() {
        let refused = |typed: Typed| Recipe::read(&typed).map(drop).unwrap_err();
        let header = |line: &str| Typed {
            headers: vec![line.to_owned()],
            ..Typed::default()
        };
        assert!(refused(header("Authorization: Bearer x")).contains("upstream.headers"));
        assert!(refused(header("no colon")).contains("Name: value"));
        let path = Typed {
            path: Some("track".to_owned()),
            ..Typed::default()
        };
        assert!(refused(path).contains("begin with"));
        let columns = ["no".to_owned(), "date".to_owned()];
        let missing = recipe(Some("/{No}"), Some("{\"d\":\"{date}\"}"), &[]).check(&columns);
        let missing = missing.unwrap_err();
        assert!(
            missing.contains("`No`") && missing.contains("no, date"),
            "{missing}"
        );
    }
}
