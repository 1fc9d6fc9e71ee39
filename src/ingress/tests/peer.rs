//! A caller that writes exact bytes.

use std::net::SocketAddr;
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

/// Longer than anything here takes; only a hang meets it.
const PATIENCE: Duration = Duration::from_secs(20);

pub(super) struct Peer {
    pub(super) stream: TcpStream,
    read: Vec<u8>,
}

#[derive(Debug)]
pub(super) struct Answer {
    pub(super) status: u16,
    head: String,
    pub(super) body: String,
}

impl Answer {
    pub(super) fn header(&self, name: &str) -> Option<&str> {
        let mut lines = self
            .head
            .lines()
            .skip(1)
            .filter_map(|line| line.split_once(": "));
        lines
            .find(|(n, _)| n.eq_ignore_ascii_case(name))
            .map(|(_, value)| value)
    }

    pub(super) fn count(&self, name: &str) -> usize {
        let lines = self.head.lines().filter_map(|line| line.split_once(':'));
        lines.filter(|(n, _)| n.eq_ignore_ascii_case(name)).count()
    }

    pub(super) fn json(&self) -> serde_json::Value {
        serde_json::from_str(&self.body).expect(&self.body)
    }

    /// The code of a problem document that is told correctly.
    pub(super) fn code(&self) -> String {
        assert_eq!(
            self.header("content-type"),
            Some("application/problem+json"),
            "{self:?}"
        );
        assert!(
            self.header("proxy-status")
                .is_some_and(|s| s.starts_with("callgate; error="))
        );
        let document = self.json();
        assert_eq!(document["status"], self.status);
        document["code"].as_str().unwrap().to_owned()
    }
}

impl Peer {
    pub(super) async fn connect(to: SocketAddr) -> Self {
        Self {
            stream: TcpStream::connect(to).await.unwrap(),
            read: Vec::new(),
        }
    }

    pub(super) async fn send(&mut self, bytes: impl AsRef<[u8]>) {
        self.stream.write_all(bytes.as_ref()).await.unwrap();
    }

    /// Sends a request with these further head lines (each ending in CRLF) and this body.
    pub(super) async fn post(&mut self, path: &str, lines: &str, body: &str) {
        let length = body.len();
        let request = format!(
            "POST {path} HTTP/1.1\r\nHost: t\r\nContent-Length: {length}\r\n{lines}\r\n{body}"
        );
        self.send(request).await;
    }

    pub(super) async fn get(&mut self, path: &str) -> Answer {
        self.send(format!("GET {path} HTTP/1.1\r\nHost: t\r\n\r\n"))
            .await;
        self.answer().await
    }

    /// One whole answer.
    pub(super) async fn answer(&mut self) -> Answer {
        self.answer_to(false).await
    }

    /// One answer to a HEAD request when `head`.
    pub(super) async fn answer_to(&mut self, head: bool) -> Answer {
        let lines = self.head().await;
        let status = lines
            .split(' ')
            .nth(1)
            .and_then(|s| s.parse().ok())
            .expect(&lines);
        let mut answer = Answer {
            status,
            head: lines,
            body: String::new(),
        };
        let length = answer
            .header("content-length")
            .map(|n| n.parse::<usize>().unwrap());
        let body = if head || matches!(status, 100 | 204 | 304) {
            Vec::new()
        } else if answer.header("transfer-encoding").is_some() {
            self.chunks().await
        } else if let Some(length) = length {
            self.bytes(length).await
        } else {
            self.rest().await.unwrap()
        };
        answer.body = String::from_utf8(body).unwrap();
        answer
    }

    pub(super) async fn head(&mut self) -> String {
        loop {
            if let Some(end) = self.read.windows(4).position(|w| w == b"\r\n\r\n") {
                let rest = self.read.split_off(end + 4);
                let head = std::mem::replace(&mut self.read, rest);
                return String::from_utf8(head).unwrap();
            }
            assert!(
                self.more().await.unwrap() > 0,
                "closed before the head: {:?}",
                self.text()
            );
        }
    }

    async fn chunks(&mut self) -> Vec<u8> {
        let mut body = Vec::new();
        loop {
            let line = self.line().await;
            let length = usize::from_str_radix(line.trim(), 16).unwrap();
            let chunk = self.bytes(length + 2).await;
            if length == 0 {
                return body;
            }
            body.extend_from_slice(&chunk[..length]);
        }
    }

    async fn line(&mut self) -> String {
        loop {
            if let Some(end) = self.read.windows(2).position(|w| w == b"\r\n") {
                let rest = self.read.split_off(end + 2);
                return String::from_utf8(std::mem::replace(&mut self.read, rest)).unwrap();
            }
            assert!(self.more().await.unwrap() > 0, "closed inside a line");
        }
    }

    async fn bytes(&mut self, n: usize) -> Vec<u8> {
        while self.read.len() < n {
            assert!(
                self.more().await.unwrap() > 0,
                "closed after {:?}",
                self.text()
            );
        }
        let rest = self.read.split_off(n);
        std::mem::replace(&mut self.read, rest)
    }

    /// Everything until the connection ends; `Err` when it ends in a reset.
    pub(super) async fn rest(&mut self) -> std::io::Result<Vec<u8>> {
        while self.more().await? > 0 {}
        Ok(std::mem::take(&mut self.read))
    }

    /// The connection ends without another byte.
    pub(super) async fn assert_closed(&mut self) {
        // A reset is an end, too.
        let rest = self.rest().await.unwrap_or_default();
        assert_eq!(String::from_utf8_lossy(&rest), "");
    }

    async fn more(&mut self) -> std::io::Result<usize> {
        let read = self.stream.read_buf(&mut self.read);
        tokio::time::timeout(PATIENCE, read)
            .await
            .expect("the gateway says nothing")
    }

    fn text(&self) -> String {
        String::from_utf8_lossy(&self.read).into_owned()
    }
}
