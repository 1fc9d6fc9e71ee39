//! One kept connection: a request out, a whole answer in. Raw bytes and httparse, since whatever
//! the generator takes of its core, the tool beside it lacks.
//!
//! Deliberately absent: chunked answers (none of the rows sends one here; it would be an error, not
//! a wrong figure), pipelining.

use std::net::SocketAddr;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::request::{Plan, Verdict};

const HEADERS_MAX: usize = 64;
const READ_BYTES: usize = 8 * 1024;

/// Why there is no answer to judge.
pub(crate) enum Failed {
    Connect(String),
    /// Reset, closed or not HTTP, before the answer was whole.
    Broken(String),
}

pub(crate) struct Connection {
    to: SocketAddr,
    socket: Option<TcpStream>,
    out: Vec<u8>,
    read: Vec<u8>,
    /// Times that the other side closed a connection after an answer.
    pub(crate) renewed: u64,
}

impl Connection {
    pub(crate) fn new(to: SocketAddr) -> Self {
        Self {
            to,
            socket: None,
            out: Vec::with_capacity(1024),
            read: Vec::with_capacity(READ_BYTES),
            renewed: 0,
        }
    }

    pub(crate) async fn open(&mut self) -> Result<(), Failed> {
        if self.socket.is_none() {
            let told = |e: std::io::Error| Failed::Connect(e.to_string());
            let socket = TcpStream::connect(self.to).await.map_err(told)?;
            socket.set_nodelay(true).map_err(told)?;
            self.read.clear();
            self.socket = Some(socket);
        }
        Ok(())
    }

    /// Sends the n-th request and judges its answer.
    pub(crate) async fn call(&mut self, plan: &Plan, n: u64) -> Result<Verdict, Failed> {
        self.open().await?;
        plan.write(n, &mut self.out);
        let result = self.exchange(plan, n).await;
        match &result {
            Ok((_, true)) => {}
            Ok((_, false)) => {
                self.renewed += 1;
                self.socket = None;
            }
            Err(_) => self.socket = None,
        }
        result.map(|(verdict, _)| verdict)
    }

    /// The verdict, and whether the connection is kept.
    async fn exchange(&mut self, plan: &Plan, n: u64) -> Result<(Verdict, bool), Failed> {
        let broken = |what: &dyn std::fmt::Display| Failed::Broken(what.to_string());
        let Some(socket) = &mut self.socket else {
            return Err(broken(&"not open"));
        };
        socket.write_all(&self.out).await.map_err(|e| broken(&e))?;
        loop {
            if socket
                .read_buf(&mut self.read)
                .await
                .map_err(|e| broken(&e))?
                == 0
            {
                return Err(broken(&format_args!(
                    "closed after {} bytes of an answer",
                    self.read.len()
                )));
            }
            let mut fields = [httparse::EMPTY_HEADER; HEADERS_MAX];
            let mut answer = httparse::Response::new(&mut fields);
            let parsed = answer.parse(&self.read).map_err(|e| broken(&e))?;
            let httparse::Status::Complete(head) = parsed else {
                continue;
            };
            let length = length(answer.headers).ok_or_else(|| broken(&"no Content-Length"))?;
            if self.read.len() < head + length {
                continue;
            }
            if self.read.len() > head + length {
                return Err(broken(&"more than one answer to one request"));
            }
            let status = answer.code.unwrap_or_default();
            let verdict = plan.judge(n, status, answer.headers, &self.read[head..]);
            let kept = !closes(answer.headers);
            self.read.clear();
            return Ok((verdict, kept));
        }
    }
}

fn length(fields: &[httparse::Header<'_>]) -> Option<usize> {
    let field = fields
        .iter()
        .find(|f| f.name.eq_ignore_ascii_case("content-length"))?;
    std::str::from_utf8(field.value).ok()?.trim().parse().ok()
}

fn closes(fields: &[httparse::Header<'_>]) -> bool {
    let mut named = fields
        .iter()
        .filter(|f| f.name.eq_ignore_ascii_case("connection"));
    named.any(|f| f.value.eq_ignore_ascii_case(b"close"))
}
