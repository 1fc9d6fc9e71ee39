//! Requests out of a grammar, sound and not: whatever comes, every answer is one, no byte is read
//! twice, and the tool sees no request that nobody made.
//!
//! A case is one connection: a request of the grammar and a plain one right behind it. Of a sound
//! one both are answered; of a broken one nothing reaches the tool and the connection ends; one
//! that is only refused may also be skipped to its end; of one with a random byte changed only what
//! holds for all. `CALLGATE_GRAMMAR` is how many cases there are, `CALLGATE_GRAMMAR_SEED` the seed;
//! a failure prints the bytes.

use crate::fixture::{Client, Config, Cut, Gateway, PATIENCE, find};
use parking_lot::Mutex;
use std::collections::HashMap;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;

const CASES: u64 = 10_000;
const THREADS: u64 = 8;

/// A request inside a body: if it ever reaches the tool, somebody lost count.
const SMUGGLED: &str = "\r\n0\r\n\r\nPOST /tool HTTP/1.1\r\nHost: h\r\nX-Call-Id: smuggled\r\n\
    Content-Length: 0\r\n\r\n";

/// Splitmix64: the same everywhere, for ever.
struct Dice(u64);

impl Dice {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, n: usize) -> usize {
        usize::try_from(self.next() % n as u64).expect("it is below n")
    }

    fn one<'a, T: ?Sized>(&mut self, of: &[&'a T]) -> &'a T {
        of[self.below(of.len())]
    }
}

/// A request in its parts.
#[derive(Clone)]
struct Wish {
    line: String,
    fields: Vec<String>,
    body: Vec<u8>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Sort {
    Sound,
    /// Sound framing, and no request for all that.
    Refused,
    Broken,
    Changed,
}

impl Wish {
    fn bytes(&self) -> Vec<u8> {
        let mut bytes = format!("{}\r\n{}\r\n", self.line, self.fields.concat()).into_bytes();
        bytes.extend_from_slice(&self.body);
        bytes
    }
}

fn sound(dice: &mut Dice, id: &str) -> Wish {
    let line = dice.one(&[
        "POST /tool HTTP/1.1",
        "PUT /tool?x=1&y=%2F HTTP/1.1",
        "PATCH /a//b;c=d/..e HTTP/1.1",
        "POST http://h/tool HTTP/1.1",
        "\r\nPOST /tool HTTP/1.1",
        "QUERY /tool HTTP/1.1",
        "POST /tool?a='b'&c={d} HTTP/1.1",
    ]);
    let mut fields = vec!["Host: h\r\n".to_owned(), format!("X-Call-Id: {id}\r\n")];
    for _ in 0..dice.below(4) {
        let field = dice.one(&[
            "X-A:1\r\n",
            "X-A: \t 1 \t\r\n",
            "x-empty:\r\n",
            "X-Long: 0123456789012345678901234567890123456789\r\n",
            "Accept: */*, text/plain;q=0.5\r\n",
            "X-Bytes: \u{fc}\u{e9}\r\n",
            "Connection: keep-alive\r\n",
            "!#$%&'*+-.^_`|~0: odd name\r\n",
            "TE: trailers\r\n",
        ]);
        fields.push(field.to_owned());
    }
    let text = format!("{}{SMUGGLED}", "x".repeat(dice.below(40)));
    let (framing, body) = match dice.below(3) {
        0 => ("Content-Length: 0\r\n".to_owned(), Vec::new()),
        1 => (
            format!("Content-Length: {}\r\n", text.len()),
            text.into_bytes(),
        ),
        _ => (
            "Transfer-Encoding: chunked\r\n".to_owned(),
            chunks(dice, text.as_bytes()),
        ),
    };
    fields.insert(dice.below(fields.len() + 1), framing);
    Wish {
        line: line.to_owned(),
        fields,
        body,
    }
}

/// A body in chunks of any size, with what chunks may carry.
fn chunks(dice: &mut Dice, mut text: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    while !text.is_empty() {
        let size = 1 + dice.below(text.len());
        let extension = dice.one(&["", "", ";a", ";a=b", ";a=\"b;c\"", " ;a"]);
        let zeros = dice.one(&["", "0", "000"]);
        bytes.extend(format!("{zeros}{size:x}{extension}\r\n").bytes());
        bytes.extend_from_slice(&text[..size]);
        bytes.extend_from_slice(b"\r\n");
        text = &text[size..];
    }
    let trailer = dice.one(&["", "", "X-Sum: 1\r\n"]);
    bytes.extend(format!("0\r\n{trailer}\r\n").bytes());
    bytes
}

/// Fields that are none.
const BROKEN_FIELDS: &[&str] = &[
    "Bad Name: 1\r\n",
    "X-A : 1\r\n",
    ": 1\r\n",
    "no colon\r\n",
    "X-Nul: \0\r\n",
    "X-Del: \u{7f}\r\n",
    "X-Cr: a\rb\r\n",
    "X(: 1\r\n",
    "Transfer-Encoding\r\n",
];

/// Framing that means nothing, or two things.
const BROKEN_LENGTHS: &[&str] = &[
    "Content-Length: +5\r\n",
    "Content-Length: 5x\r\n",
    "Content-Length: -1\r\n",
    "Content-Length: 0x5\r\n",
    "Content-Length: 5, 6\r\n",
    "Content-Length: 5\r\nContent-Length: 6\r\n",
    "Content-Length: 99999999999999999999\r\n",
    "Content-Length: 5 5\r\n",
    "Transfer-Encoding: xchunked\r\n",
    "Transfer-Encoding: chunked, chunked\r\n",
    "Transfer-Encoding: chunked, identity\r\n",
    "Transfer-Encoding: gzip\r\n",
    "Transfer-Encoding: \"chunked\"\r\n",
];

/// Chunks that are none.
const BROKEN_CHUNKS: &[&str] = &[
    "0x5\r\nhello\r\n",
    "g\r\nhello\r\n",
    "-5\r\nhello\r\n",
    "\r\nhello\r\n",
    "5\r\nhelloX\r\n",
    "5\r\nhello0\r\n\r\n",
    "11111111111111111\r\nhello\r\n",
    "5 5\r\nhello\r\n",
    "5\rhello\r\n",
    "+5\r\nhello\r\n",
];

/// A request line that is none.
fn broken_line(dice: &mut Dice, plain: &str) -> String {
    let (method, rest) = plain.split_once(' ').expect("a request line");
    let (target, _) = rest.split_once(' ').expect("a request line");
    match dice.below(9) {
        0 => format!("{method} {target}"),
        1 => format!("{method}  HTTP/1.1"),
        2 => format!("{method} {target} HTTP/1.2.3"),
        3 => format!("{method} {target} http/1.1"),
        4 => format!("{method} {target} HTTP/11"),
        5 => format!("ME(THOD {target} HTTP/1.1"),
        6 => format!("{method} {target} x HTTP/1.1"),
        7 => format!("{method} /\u{1}{target} HTTP/1.1"),
        _ => format!("{method} {target} HTTP/3.0"),
    }
}

/// Breaks one rule that no reading of the request survives.
fn broken(dice: &mut Dice, id: &str) -> Wish {
    let mut wish = sound(dice, id);
    let framing = |wish: &mut Wish, lines: &str, body: &str| {
        wish.fields
            .retain(|f| !f.starts_with("Content-Length") && !f.starts_with("Transfer-Encoding"));
        wish.fields.push(lines.to_owned());
        wish.body = format!("{body}{SMUGGLED}").into_bytes();
    };
    match dice.below(4) {
        0 => {
            wish.line = broken_line(dice, wish.line.trim_start());
        }
        1 => {
            let field = dice.one(BROKEN_FIELDS);
            let at = dice.below(wish.fields.len() + 1);
            wish.fields.insert(at, field.to_owned());
        }
        2 => framing(&mut wish, dice.one(BROKEN_LENGTHS), "hello"),
        _ => {
            let body = dice.one(BROKEN_CHUNKS);
            framing(&mut wish, "Transfer-Encoding: chunked\r\n", body);
        }
    }
    wish
}

/// What came to the tool: how often each call id.
type Seen = Arc<Mutex<HashMap<String, usize>>>;

/// A tool that answers at once and counts.
fn tool() -> (SocketAddr, Seen) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("an address");
    let seen = Seen::default();
    let counts = Arc::clone(&seen);
    std::thread::spawn(move || {
        for socket in listener.incoming() {
            let (socket, counts) = (socket.expect("a connection"), Arc::clone(&counts));
            std::thread::spawn(move || serve(socket, &counts));
        }
    });
    (address, seen)
}

fn serve(mut socket: TcpStream, counts: &Seen) {
    let (mut held, mut piece) = (Vec::new(), [0; 4096]);
    loop {
        while let Some(end) = find(&held, b"\r\n\r\n") {
            let head = String::from_utf8_lossy(&held[..end]).to_lowercase();
            let value = |name: &str| {
                let mut lines = head.lines().filter_map(|line| line.split_once(": "));
                lines
                    .find(|(n, _)| *n == name)
                    .map(|(_, value)| value.to_owned())
            };
            let length = value("content-length").map_or(0, |n| n.parse().expect("a length"));
            assert_eq!(
                value("transfer-encoding"),
                None,
                "one framing towards the tool"
            );
            if held.len() < end + 4 + length {
                break;
            }
            held.drain(..end + 4 + length);
            let id = value("x-call-id").expect("every call is named");
            *counts.lock().entry(id).or_default() += 1;
            let told = socket.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok");
            if told.is_err() {
                return;
            }
        }
        match socket.read(&mut piece) {
            Ok(n) if n > 0 => held.extend_from_slice(&piece[..n]),
            _ => return,
        }
    }
}

/// The answers of a connection until it ends or says no more.
fn answers(client: &mut Client, most: usize) -> Result<Vec<u16>, String> {
    let mut statuses = Vec::new();
    while statuses.len() < most {
        match client.try_answer() {
            Ok(answer) if answer.cut.is_none() => statuses.push(answer.status),
            Ok(answer) => return Err(format!("a cut answer: {}", answer.text())),
            Err(Cut::Malformed(what)) => return Err(format!("no answer: {what}")),
            Err(Cut::Silent) => return Err("neither an answer nor an end".to_owned()),
            Err(_) => break,
        }
    }
    Ok(statuses)
}

/// What is wrong with the answers of a case, and with what came to the tool of either request.
fn verdict(
    statuses: &Result<Vec<u16>, String>,
    sort: Sort,
    own: usize,
    behind: usize,
) -> Option<String> {
    match (statuses, sort) {
        (Err(error), _) => Some(error.clone()),
        (Ok(told), Sort::Refused)
            if (told.as_slice(), own, behind) != (&[400, 200], 0, 1)
                && (told.as_slice(), own, behind) != (&[400], 0, 0) =>
        {
            Some("a refused request is skipped to its end, or ends its connection".to_owned())
        }
        (Ok(told), Sort::Sound) if *told != [200, 200] || (own, behind) != (1, 1) => {
            Some("a sound request and the one behind it are answered, each once".to_owned())
        }
        (Ok(told), Sort::Broken) if told.len() > 1 || told.iter().any(|s| *s < 400) => {
            Some("a broken request is refused and ends its connection".to_owned())
        }
        (Ok(_), Sort::Broken) if (own, behind) != (0, 0) => {
            Some("nothing of a broken request reaches the tool".to_owned())
        }
        (Ok(told), _) if own > 1 || behind > 1 || own + behind > told.len() => {
            Some("more came to the tool than was answered".to_owned())
        }
        (Ok(_), _) => None,
    }
}

fn case(gateway: &Gateway, seen: &Seen, seed: u64, n: u64) -> Result<(), String> {
    let mut dice = Dice(seed ^ n.wrapping_mul(0x2545_f491_4f6c_dd1d));
    // So that no id becomes another one by a single byte.
    let check = dice.next() & 0xffff_ffff;
    let (id, next) = (format!("g-{n}-{check:x}"), format!("n-{n}-{check:x}"));
    let sort = match dice.below(10) {
        0..3 => Sort::Sound,
        3 => Sort::Refused,
        4..8 => Sort::Broken,
        _ => Sort::Changed,
    };
    let mut bytes = match sort {
        Sort::Broken => broken(&mut dice, &id).bytes(),
        Sort::Refused => {
            let mut wish = sound(&mut dice, &id);
            let field = dice.one(&["Host: other\r\n", "X-Call-Id: two\r\n", "Host: h\r\n"]);
            wish.fields.push(field.to_owned());
            wish.bytes()
        }
        Sort::Sound | Sort::Changed => sound(&mut dice, &id).bytes(),
    };
    if sort == Sort::Changed {
        // Not in the body: that may hold anything.
        let head = find(&bytes[2..], b"\r\n\r\n").map_or(bytes.len(), |at| at + 6);
        let at = dice.below(head);
        bytes[at] = u8::try_from(dice.below(256)).expect("a byte");
    }
    let whole = bytes.len();
    bytes.extend(
        format!(
            "POST /tool HTTP/1.1\r\nHost: h\r\nX-Call-Id: {next}\r\nConnection: close\r\n\
             Content-Length: 2\r\n\r\nhi"
        )
        .bytes(),
    );
    let mut client = gateway.client();
    client.set_patience(PATIENCE);
    client.send_raw(&bytes);
    // A body that lost its length may be waited for; nothing more is coming.
    client.fin();
    let statuses = answers(&mut client, 3);
    let count = |id: &str| seen.lock().get(id).copied().unwrap_or(0);
    let (own, behind) = (count(&id), count(&next));
    let wrong = verdict(&statuses, sort, own, behind);
    match wrong {
        None => Ok(()),
        Some(what) => Err(format!(
            "{what}\ncase {n} of seed {seed}, {sort:?}: {statuses:?}, {own} and {behind} at the \
             tool\n{}\n---\n{}",
            bytes[..whole].escape_ascii(),
            bytes[whole..].escape_ascii(),
        )),
    }
}

fn number(name: &str, usual: u64) -> u64 {
    std::env::var(name).map_or(usual, |text| text.parse().expect("a number"))
}

#[test]
fn whatever_a_request_looks_like_it_is_one_request_or_none() {
    let (address, seen) = tool();
    let config = Config::for_address(address)
        .without_receipt()
        .slow(5)
        .set("ledger/url", "memory:");
    let gateway = Gateway::start(&config);
    let cases = number("CALLGATE_GRAMMAR", CASES);
    let seed = number("CALLGATE_GRAMMAR_SEED", 1);
    std::thread::scope(|scope| {
        let part = |first: u64| {
            let (gateway, seen) = (&gateway, &seen);
            scope.spawn(move || {
                let mut all = (first..cases).step_by(usize::try_from(THREADS).expect("few"));
                all.try_for_each(|n| case(gateway, seen, seed, n))
            })
        };
        let parts: Vec<_> = (0..THREADS).map(part).collect();
        for part in parts {
            if let Err(told) = part.join().expect("a case panicked") {
                panic!("{told}");
            }
        }
    });
    let seen = seen.lock();
    assert!(!seen.contains_key("smuggled"), "a body became a request");
    // Only where a byte of the id itself was changed may an unknown one have come.
    assert!(seen.values().all(|times| *times == 1), "a call came twice");
    assert_eq!(gateway.panics(), Vec::<String>::new());
}

#[test]
fn whatever_the_frames_of_http2_are_the_connection_ends_or_goes_on() {
    let (address, seen) = tool();
    let config = Config::for_address(address)
        .without_receipt()
        .slow(5)
        .set("ledger/url", "memory:");
    let gateway = Gateway::start(&config);
    let cases = number("CALLGATE_GRAMMAR", CASES) / 10;
    let seed = number("CALLGATE_GRAMMAR_SEED", 1);
    for n in 0..cases {
        let mut dice = Dice(seed ^ n.wrapping_mul(0x2545_f491_4f6c_dd1d));
        let mut bytes = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0".to_vec();
        for _ in 0..1 + dice.below(12) {
            frame(&mut dice, &mut bytes);
        }
        let mut stream = TcpStream::connect(gateway.listen).expect("a connection");
        stream.set_read_timeout(Some(PATIENCE)).expect("a timeout");
        // It may be gone before all is said.
        drop(stream.write_all(&bytes));
        drop(stream.shutdown(std::net::Shutdown::Write));
        let mut told = Vec::new();
        let end = stream.read_to_end(&mut told);
        let silent = end.is_err_and(|error| error.kind() == std::io::ErrorKind::WouldBlock);
        assert!(
            !silent,
            "neither an answer nor an end: {}",
            bytes.escape_ascii()
        );
    }
    assert!(
        seen.lock().values().all(|times| *times == 1),
        "a call came twice"
    );
    assert_eq!(gateway.panics(), Vec::<String>::new());
    let call = crate::fixture::Call::with_id("after");
    assert_eq!(gateway.call(&call).status, 200);
}

/// Appends a frame: mostly of a known kind, now and then with a request that can be read.
fn frame(dice: &mut Dice, bytes: &mut Vec<u8>) {
    let mut payload: Vec<u8> = (0..dice.below(40))
        .map(|_| u8::try_from(dice.below(256)).expect("a byte"))
        .collect();
    let mut kind = u8::try_from(dice.below(12)).expect("a byte");
    if dice.below(3) == 0 {
        kind = 1;
        payload = b"\x83\x86\x44\x05/tool\x41\x01h".to_vec();
    }
    let flags = u8::try_from(dice.below(64)).expect("a byte");
    let stream = u32::try_from(dice.below(8)).expect("few");
    let length = match dice.below(20) {
        0 => dice.below(1 << 24),
        _ => payload.len(),
    };
    bytes.extend_from_slice(&u32::try_from(length).expect("24 bits").to_be_bytes()[1..]);
    bytes.extend_from_slice(&[kind, flags]);
    bytes.extend_from_slice(&stream.to_be_bytes());
    bytes.extend_from_slice(&payload);
}
