//! A view of a Rust file that the rules can trust: code with comments and the insides of string
//! literals blanked out (same lines, same columns), the literals beside it, and which lines are
//! test code. A scanner, not a parser: it knows tokens, not grammar, which is enough for paths,
//! braces and names and has no dependency to keep up with the language.

/// One scanned file.
#[derive(Debug)]
pub(crate) struct Rust {
    pub(crate) path: String,
    pub(crate) text: String,
    /// The text with comments and the insides of literals turned into blanks.
    pub(crate) code: String,
    /// Every string literal with the line (1-based) it begins on, as written between its quotes.
    pub(crate) literals: Vec<(usize, String)>,
    /// Per line of the file (index 0 is line 1): inside `#[cfg(test)]` or in a test file.
    tests: Vec<bool>,
}

impl Rust {
    pub(crate) fn new(path: &str, text: &str) -> Self {
        let (code, literals) = blank(text);
        let tests = test_lines(path, &code);
        Self {
            path: path.to_owned(),
            text: text.to_owned(),
            code,
            literals,
            tests,
        }
    }

    /// The lines of code outside tests, numbered from 1.
    pub(crate) fn product_lines(&self) -> impl Iterator<Item = (usize, &str)> {
        let numbered = self.code.lines().enumerate().map(|(i, line)| (i + 1, line));
        numbered.filter(|(n, _)| !self.is_test(*n))
    }

    /// The literals outside tests.
    pub(crate) fn product_literals(&self) -> impl Iterator<Item = (usize, &str)> {
        let all = self.literals.iter().map(|(n, s)| (*n, s.as_str()));
        all.filter(|(n, _)| !self.is_test(*n))
    }

    pub(crate) fn is_test(&self, line: usize) -> bool {
        self.tests.get(line - 1).copied().unwrap_or(false)
    }

    /// Below `src/`, so part of the product.
    pub(crate) fn is_source(&self) -> bool {
        self.path.starts_with("src/")
    }
}

/// 1-based line of a byte offset.
pub(crate) fn line_of(code: &str, at: usize) -> usize {
    code.as_bytes()[..at]
        .iter()
        .filter(|b| **b == b'\n')
        .count()
        + 1
}

pub(crate) fn is_word(b: u8) -> bool {
    b.is_ascii_alphanumeric() || b == b'_'
}

/// Offsets at which `word` stands alone, not as part of a longer name.
pub(crate) fn words<'a>(code: &'a str, word: &'a str) -> impl Iterator<Item = usize> + 'a {
    let bytes = code.as_bytes();
    code.match_indices(word)
        .map(|(at, _)| at)
        .filter(move |at| {
            let before = at.checked_sub(1).is_none_or(|i| !is_word(bytes[i]));
            let after = bytes.get(at + word.len()).is_none_or(|b| !is_word(*b));
            before && (after || !word.ends_with(|c: char| c.is_ascii_alphanumeric() || c == '_'))
        })
}

/// The offset just behind the bracket that closes the one at `open`.
pub(crate) fn closing(code: &str, open: usize) -> Option<usize> {
    let bytes = code.as_bytes();
    let pair = match bytes[open] {
        b'{' => b'}',
        b'(' => b')',
        _ => b']',
    };
    let mut depth = 0usize;
    for (i, b) in bytes.iter().enumerate().skip(open) {
        if *b == bytes[open] {
            depth += 1;
        } else if *b == pair {
            depth -= 1;
            if depth == 0 {
                return Some(i + 1);
            }
        }
    }
    None
}

fn blank(text: &str) -> (String, Vec<(usize, String)>) {
    let bytes = text.as_bytes();
    let mut code = bytes.to_vec();
    let mut literals = Vec::new();
    let mut at = 0;
    while at < bytes.len() {
        let (from, to) = match token(bytes, at) {
            Token::Comment { end } => (at, end),
            Token::Text {
                inside,
                inside_end,
                end,
            } => {
                literals.push((line_of(text, at), text[inside..inside_end].to_owned()));
                at = end;
                (inside, inside_end)
            }
            Token::Char { end } => (at + 1, end - 1),
            Token::Other { end } => {
                at = end;
                continue;
            }
        };
        for b in &mut code[from..to] {
            if *b != b'\n' {
                *b = b' ';
            }
        }
        at = at.max(to);
    }
    (
        String::from_utf8(code).expect("whole characters were blanked"),
        literals,
    )
}

enum Token {
    Comment {
        end: usize,
    },
    Text {
        inside: usize,
        inside_end: usize,
        end: usize,
    },
    Char {
        end: usize,
    },
    Other {
        end: usize,
    },
}

fn token(bytes: &[u8], at: usize) -> Token {
    let rest = &bytes[at..];
    if rest.starts_with(b"//") {
        let length = rest.iter().position(|b| *b == b'\n').unwrap_or(rest.len());
        return Token::Comment { end: at + length };
    }
    if rest.starts_with(b"/*") {
        return Token::Comment {
            end: block_comment(bytes, at),
        };
    }
    if rest[0] == b'"' {
        return plain_string(bytes, at);
    }
    if rest[0] == b'\'' {
        return char_or_lifetime(bytes, at);
    }
    if is_word(rest[0]) {
        let length = rest.iter().position(|b| !is_word(*b)).unwrap_or(rest.len());
        let raw = matches!(&rest[..length], b"r" | b"br" | b"cr");
        if raw && let Some(found) = raw_string(bytes, at + length) {
            return found;
        }
        return Token::Other { end: at + length };
    }
    Token::Other { end: at + 1 }
}

fn block_comment(bytes: &[u8], at: usize) -> usize {
    let (mut depth, mut i) = (0usize, at);
    while i < bytes.len() {
        if bytes[i..].starts_with(b"/*") {
            (depth, i) = (depth + 1, i + 2);
        } else if bytes[i..].starts_with(b"*/") {
            (depth, i) = (depth - 1, i + 2);
            if depth == 0 {
                return i;
            }
        } else {
            i += 1;
        }
    }
    bytes.len()
}

fn plain_string(bytes: &[u8], at: usize) -> Token {
    let mut i = at + 1;
    while i < bytes.len() && bytes[i] != b'"' {
        i += if bytes[i] == b'\\' { 2 } else { 1 };
    }
    let inside_end = i.min(bytes.len());
    Token::Text {
        inside: at + 1,
        inside_end,
        end: (i + 1).min(bytes.len()),
    }
}

/// `at` is behind the `r`: any number of `#`, then the quote. Not a string: `r#type`, a name.
fn raw_string(bytes: &[u8], at: usize) -> Option<Token> {
    let hashes = bytes[at..].iter().take_while(|b| **b == b'#').count();
    let inside = at + hashes + 1;
    if bytes.get(inside - 1) != Some(&b'"') {
        return None;
    }
    let mut close = vec![b'"'];
    close.resize(hashes + 1, b'#');
    let length = bytes[inside..]
        .windows(close.len())
        .position(|w| w == close)?;
    let inside_end = inside + length;
    Some(Token::Text {
        inside,
        inside_end,
        end: inside_end + close.len(),
    })
}

fn char_or_lifetime(bytes: &[u8], at: usize) -> Token {
    if bytes.get(at + 1) == Some(&b'\\') {
        // The escaped character may itself be a quote; its end is the next one behind it.
        let length = bytes[at + 3..]
            .iter()
            .position(|b| *b == b'\'')
            .unwrap_or(0);
        return Token::Char {
            end: at + 3 + length + 1,
        };
    }
    // One character, of up to four bytes, and a quote; anything else is a lifetime or a label.
    let width = match bytes.get(at + 1) {
        Some(b) if *b >= 0xf0 => 4,
        Some(b) if *b >= 0xe0 => 3,
        Some(b) if *b >= 0xc0 => 2,
        _ => 1,
    };
    if bytes.get(at + 1 + width) == Some(&b'\'') {
        return Token::Char {
            end: at + width + 2,
        };
    }
    Token::Other { end: at + 1 }
}

fn test_lines(path: &str, code: &str) -> Vec<bool> {
    let count = code.lines().count();
    let whole =
        !path.starts_with("src/") || path.ends_with("/tests.rs") || path.contains("/tests/");
    let mut tests = vec![whole; count];
    for at in code.match_indices("#[cfg(test)]").map(|(at, _)| at) {
        let item = &code[at..];
        let Some(end) = item.find(['{', ';']) else {
            continue;
        };
        let stop = match item.as_bytes()[end] {
            b'{' => closing(code, at + end).unwrap_or(code.len()),
            _ => at + end + 1,
        };
        let (first, last) = (line_of(code, at), line_of(code, stop - 1));
        tests[first - 1..last].fill(true);
    }
    tests
}

#[test]
fn comments_and_literals_are_blanked_and_columns_stay() {
    let text = "let a = \"fn {\"; // fn b() {\nlet c = '{'; /* { /* } */ { */ let d: &'a str;\n";
    let scanned = Rust::new("src/a.rs", text);
    assert_eq!(scanned.code.len(), text.len());
    assert!(
        !scanned.code.contains('{') && !scanned.code.contains('}'),
        "{}",
        scanned.code
    );
    assert!(scanned.code.contains("let d: &'a str;"), "{}", scanned.code);
    assert_eq!(scanned.literals, [(1, "fn {".to_owned())]);
}

#[test]
fn raw_strings_escapes_and_raw_names_are_told_apart() {
    let text = r####"f(r#"a " {"#, b"\"{", '\'', '\u{7b}', r#type);"####;
    let scanned = Rust::new("src/a.rs", text);
    assert!(!scanned.code.contains('{'), "{}", scanned.code);
    assert!(scanned.code.ends_with("r#type);"), "{}", scanned.code);
    let literals: Vec<&str> = scanned.literals.iter().map(|(_, s)| s.as_str()).collect();
    assert_eq!(literals, ["a \" {", "\\\"{"]);
}

#[test]
fn test_code_is_known_by_its_attribute_or_its_file() {
    let inline = Rust::new(
        "src/a.rs",
        "fn a() {}\n#[cfg(test)]\nmod tests {\n}\nfn b() {}\n",
    );
    assert_eq!(
        (1..=5).map(|n| inline.is_test(n)).collect::<Vec<_>>(),
        [false, true, true, true, false]
    );
    assert!(Rust::new("src/a/tests.rs", "fn a() {}\n").is_test(1));
    assert!(!Rust::new("src/a/contests.rs", "fn a() {}\n").is_test(1));
}
