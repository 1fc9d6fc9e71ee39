//! What is sent, and what a right answer is. A figure for wrong answers is worth nothing, so whole
//! answers are compared, every one.

use clap::ValueEnum;
use httparse::Header;

/// The body of a call, in bytes; the tool counts nothing else.
const BODY_BYTES: usize = 512;

/// The header lines of a service client. With Host and Content-Length they are ten.
const FIELDS: &str = "\
Content-Type: application/json\r\n\
Accept: application/json\r\n\
Accept-Encoding: identity\r\n\
Accept-Language: en\r\n\
User-Agent: versus/1 (load generator)\r\n\
X-Request-Id: 0f8fad5b-d9cb-469f-a165-70867728950e\r\n\
X-Tenant: billing\r\n\
X-Region: eu-central\r\n";

/// Callers that ask for each call at once in `join`.
const JOINED: u64 = 64;

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Mode {
    /// New calls, each with a body of its own.
    Post,
    /// The receipts of calls that are settled.
    Receipt,
    /// Calls that are settled, asked for again.
    Replay,
    /// New calls, each sent by many callers at once.
    Join,
}

#[derive(clap::Args)]
pub(crate) struct Plan {
    #[arg(long, value_enum, default_value = "post")]
    mode: Mode,
    #[arg(long, default_value = "/tool")]
    path: String,
    /// Sends a call id of its own with each call: this, a dash and the call's number.
    #[arg(long)]
    id: Option<String>,
    /// In `receipt` and `replay`: how many calls there are, numbered from 0.
    #[arg(long, default_value_t = 1000)]
    ids: u64,
    /// The field in which the id goes.
    #[arg(long, default_value = "X-Call-Id")]
    id_field: String,
    /// The number of the first call, so that several runs send different ones.
    #[arg(long, default_value_t = 0)]
    first: u64,
    /// Statuses that refuse a call without being an error.
    #[arg(long, value_delimiter = ',')]
    refused: Vec<u16>,
}

pub(crate) enum Verdict {
    Right,
    Refused,
    Wrong(String),
}

impl Plan {
    fn number(&self, n: u64) -> u64 {
        match self.mode {
            Mode::Post => self.first + n,
            Mode::Receipt | Mode::Replay => n % self.ids,
            Mode::Join => self.first + n / JOINED,
        }
    }

    /// The id of the n-th request, where the caller sends one.
    fn id(&self, number: u64) -> Option<String> {
        self.id.as_ref().map(|prefix| format!("{prefix}-{number}"))
    }

    /// Writes the n-th request over what `into` held.
    pub(crate) fn write(&self, n: u64, into: &mut Vec<u8>) {
        use std::io::Write;

        into.clear();
        let number = self.number(n);
        let id = self.id(number);
        let done = if self.mode == Mode::Receipt {
            let id = id.unwrap_or_default();
            let target = format_args!("/_callgate/receipts/{id}");
            write!(
                into,
                "GET {target} HTTP/1.1\r\nHost: versus\r\n{FIELDS}\r\n"
            )
        } else {
            let path = &self.path;
            let head = "HTTP/1.1\r\nHost: versus\r\nContent-Length: 512\r\nCache-Control: no-store";
            write!(into, "POST {path} {head}\r\n{FIELDS}").and_then(|()| {
                if let Some(id) = id {
                    write!(into, "{}: {id}\r\n", self.id_field)?;
                }
                into.extend_from_slice(b"\r\n");
                let start = into.len();
                write!(into, r#"{{"n":"{number:012}","pad":""#)?;
                into.resize(start + BODY_BYTES - 2, b'x');
                into.extend_from_slice(br#""}"#);
                Ok(())
            })
        };
        done.expect("a vector takes what it is given");
    }

    pub(crate) fn judge(&self, n: u64, status: u16, fields: &[Header<'_>], body: &[u8]) -> Verdict {
        if self.refused.contains(&status) {
            return Verdict::Refused;
        }
        let right = status == 200
            && match self.mode {
                Mode::Receipt => {
                    let text = String::from_utf8_lossy(body);
                    let id = self.id(self.number(n)).unwrap_or_default();
                    text.contains(&format!(r#""callId":"{id}""#))
                        && text.contains(r#""state":"SUCCESS""#)
                }
                Mode::Replay => is_the_tools(body) && replayed(fields),
                Mode::Post | Mode::Join => is_the_tools(body),
            };
        if right {
            return Verdict::Right;
        }
        let body = String::from_utf8_lossy(&body[..body.len().min(300)]).into_owned();
        Verdict::Wrong(format!("{status} {body}"))
    }
}

/// What the tool answers: `{"ok":true,"pad":"xx.."}`, 200 bytes.
fn is_the_tools(body: &[u8]) -> bool {
    let inner = body
        .strip_prefix(br#"{"ok":true,"pad":""#)
        .and_then(|rest| rest.strip_suffix(br#""}"#));
    body.len() == 200 && inner.is_some_and(|pad| pad.iter().all(|b| *b == b'x'))
}

fn replayed(fields: &[Header<'_>]) -> bool {
    let mut replayed = fields
        .iter()
        .filter(|f| f.name.eq_ignore_ascii_case("idempotent-replayed"));
    replayed.any(|f| f.value == b"true")
}
