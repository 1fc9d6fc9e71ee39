//! The tool that both sides of the comparison stand in front of: it answers at once and does
//! nothing else, so that what is measured is what stands in front of it.
//!
//! It also keeps the books: every POST is checked (call id, length of the body) and counted, so
//! that the harness can tell a fast wrong answer from a right one. Raw sockets instead of an HTTP
//! library, since it shares its core with the load generator. Deliberately absent: chunked bodies,
//! HTTP/2, and any delay.
//!
//! Prints where it listens. With an argument, a file to be written, it also speaks TLS, at the
//! second address it prints, under a certificate for `localhost` that it makes and writes there.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use anyhow::{Context, Result, bail};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;

/// The body that the load generator sends.
const BODY_BYTES: usize = 512;
/// Larger than any request the comparison sends, so that reading one is one system call.
const READ_BYTES: usize = 16 * 1024;

/// POSTs that were in order, and answered with 200.
static DONE: AtomicU64 = AtomicU64::new(0);

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<()> {
    let plain = listen().await?;
    // The harness reads the addresses from here.
    println!("{}", plain.local_addr()?);
    let Some(file) = std::env::args_os().nth(1) else {
        return accept(plain, None).await;
    };
    let acceptor = acceptor(Path::new(&file))?;
    let tls = listen().await?;
    println!("{}", tls.local_addr()?);
    tokio::try_join!(accept(plain, None), accept(tls, Some(acceptor)))?;
    Ok(())
}

async fn listen() -> Result<TcpListener> {
    let listener = TcpListener::bind("127.0.0.1:0").await;
    listener.context("no free port on loopback")
}

async fn accept(listener: TcpListener, tls: Option<TlsAcceptor>) -> Result<()> {
    loop {
        let (socket, _) = listener.accept().await?;
        socket.set_nodelay(true)?;
        let tls = tls.clone();
        tokio::spawn(async move {
            // A connection that breaks is the harness's to notice: its answers are missing.
            let _ = match tls {
                None => serve(socket).await,
                Some(tls) => match tls.accept(socket).await {
                    Ok(socket) => serve(socket).await,
                    Err(e) => Err(e.into()),
                },
            };
        });
    }
}

/// A certificate of its own; `file` gets it, so that a caller can trust it.
fn acceptor(file: &Path) -> Result<TlsAcceptor> {
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned()])?;
    std::fs::write(file, made.cert.pem()).with_context(|| file.display().to_string())?;
    let key = rustls::pki_types::PrivatePkcs8KeyDer::from(made.signing_key.serialize_der());
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .with_no_client_auth()
        .with_single_cert(vec![made.cert.der().clone()], key.into())?;
    Ok(TlsAcceptor::from(Arc::new(config)))
}

async fn serve(mut socket: impl AsyncRead + AsyncWrite + Unpin) -> Result<()> {
    let mut buffer = Vec::with_capacity(READ_BYTES);
    let answer = answer("200 OK", &answer_body());
    loop {
        while let Some(request) = Request::parse(&buffer)? {
            let reply = match request.kind {
                Kind::Work if request.in_order() => {
                    DONE.fetch_add(1, Ordering::Relaxed);
                    answer.clone()
                }
                Kind::Work => self::answer("400 Bad Request", r#"{"error":"not in order"}"#),
                Kind::Receipt(id) => self::answer(
                    "200 OK",
                    &format!(r#"{{"callId":"{id}","state":"SUCCESS"}}"#),
                ),
                Kind::Count => self::answer("200 OK", &DONE.load(Ordering::Relaxed).to_string()),
            };
            let length = request.length;
            socket.write_all(&reply).await?;
            buffer.drain(..length);
        }
        if socket.read_buf(&mut buffer).await? == 0 {
            return Ok(());
        }
    }
}

enum Kind<'a> {
    Work,
    Receipt(&'a str),
    Count,
}

struct Request<'a> {
    kind: Kind<'a>,
    has_call_id: bool,
    body_bytes: usize,
    /// Head and body together.
    length: usize,
}

impl<'a> Request<'a> {
    /// The first whole request in the buffer, if there is one.
    fn parse(buffer: &'a [u8]) -> Result<Option<Self>> {
        let Some(head) = buffer.windows(4).position(|w| w == b"\r\n\r\n") else {
            return Ok(None);
        };
        let text = std::str::from_utf8(&buffer[..head]).context("the head is not text")?;
        let mut lines = text.split("\r\n");
        let mut first = lines.next().unwrap_or_default().split(' ');
        let kind = match (first.next(), first.next()) {
            (Some("POST"), Some(_)) => Kind::Work,
            (Some("GET"), Some("/count")) => Kind::Count,
            (Some("GET"), Some(path)) => {
                Kind::Receipt(path.strip_prefix("/receipts/").context("no such path")?)
            }
            _ => bail!("not a request: {text}"),
        };
        let (mut has_call_id, mut body_bytes) = (false, 0);
        for (name, value) in lines.filter_map(|line| line.split_once(':')) {
            if name.eq_ignore_ascii_case("content-length") {
                body_bytes = value
                    .trim()
                    .parse()
                    .context("content-length is no number")?;
            } else if name.eq_ignore_ascii_case("x-call-id") {
                has_call_id = !value.trim().is_empty();
            }
        }
        let length = head + 4 + body_bytes;
        let whole = buffer.len() >= length;
        Ok(whole.then_some(Self {
            kind,
            has_call_id,
            body_bytes,
            length,
        }))
    }

    fn in_order(&self) -> bool {
        self.has_call_id && self.body_bytes == BODY_BYTES
    }
}

/// 200 bytes of JSON; `run` compares them.
fn answer_body() -> String {
    let frame = r#"{"ok":true,"pad":""}"#.len();
    format!(r#"{{"ok":true,"pad":"{}"}}"#, "x".repeat(200 - frame))
}

fn answer(status: &str, body: &str) -> Vec<u8> {
    let length = body.len();
    let head = "Content-Type: application/json\r\nContent-Length: ";
    format!("HTTP/1.1 {status}\r\n{head}{length}\r\n\r\n{body}").into_bytes()
}
