//! The scripted peer: a listener on port 0 and sockets that say exact bytes.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use http::HeaderMap;
use socket2::SockRef;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpSocket, TcpStream};

use crate::config::route::{Endpoint, HostMode, PoolConfig, Protocol, Upstream, UpstreamKind};

pub(in crate::upstream) struct Peer(TcpListener);

pub(in crate::upstream) struct Sock {
    tcp: TcpStream,
    /// Read, and not yet taken as part of a request.
    ahead: Vec<u8>,
}

impl Peer {
    pub(in crate::upstream) async fn bind() -> Self {
        Self(TcpListener::bind("127.0.0.1:0").await.unwrap())
    }

    /// A peer whose accepted sockets have the smallest receive buffer the kernel allows.
    pub(in crate::upstream) fn bind_narrow() -> Self {
        let socket = TcpSocket::new_v4().unwrap();
        socket.set_recv_buffer_size(4096).unwrap();
        socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
        Self(socket.listen(16).unwrap())
    }

    pub(in crate::upstream) fn addr(&self) -> SocketAddr {
        self.0.local_addr().unwrap()
    }

    pub(in crate::upstream) fn endpoint(&self) -> Endpoint {
        endpoint(self.addr())
    }

    pub(in crate::upstream) async fn accept(&self) -> Sock {
        let (tcp, _) = self.0.accept().await.unwrap();
        tcp.set_nodelay(true).unwrap();
        Sock {
            tcp,
            ahead: Vec::new(),
        }
    }

    pub(in crate::upstream) async fn accept_tcp(&self) -> TcpStream {
        self.0.accept().await.unwrap().0
    }
}

impl Sock {
    /// The next request: its head as text, and its body unless chunked.
    pub(in crate::upstream) async fn request(&mut self) -> (String, Vec<u8>) {
        self.try_request()
            .await
            .expect("a request before the connection ends")
    }

    pub(in crate::upstream) async fn try_request(&mut self) -> Option<(String, Vec<u8>)> {
        let end = loop {
            if let Some(at) = self.ahead.windows(4).position(|w| w == b"\r\n\r\n") {
                break at + 4;
            }
            self.more().await?;
        };
        let head = String::from_utf8(self.ahead[..end].to_vec()).unwrap();
        let length = head
            .lines()
            .find_map(|line| {
                line.to_ascii_lowercase()
                    .strip_prefix("content-length:")
                    .map(number)
            })
            .unwrap_or(0);
        while self.ahead.len() < end + length {
            self.more().await?;
        }
        let rest = self.ahead.split_off(end + length);
        let body = self.ahead.split_off(end);
        self.ahead = rest;
        Some((head, body))
    }

    /// A chunked request's body, decoded; its head was taken by [`Sock::request`].
    pub(in crate::upstream) async fn chunked(&mut self) -> Vec<u8> {
        while !self.ahead.windows(5).any(|w| w == b"0\r\n\r\n") {
            self.more().await.unwrap();
        }
        let mut body = Vec::new();
        let mut rest = &self.ahead[..];
        loop {
            let line = rest.windows(2).position(|w| w == b"\r\n").unwrap();
            let size = std::str::from_utf8(&rest[..line]).unwrap();
            let size = usize::from_str_radix(size, 16).unwrap();
            if size == 0 {
                return body;
            }
            body.extend_from_slice(&rest[line + 2..line + 2 + size]);
            rest = &rest[line + 4 + size..];
        }
    }

    async fn more(&mut self) -> Option<()> {
        match self.tcp.read_buf(&mut self.ahead).await {
            Ok(0) | Err(_) => None,
            Ok(_) => Some(()),
        }
    }

    pub(in crate::upstream) async fn write(&mut self, bytes: impl AsRef<[u8]>) {
        self.tcp.write_all(bytes.as_ref()).await.unwrap();
    }

    /// Writes until the other side is gone; for answers nobody reads to their end.
    pub(in crate::upstream) async fn write_while_open(&mut self, bytes: &[u8]) -> bool {
        self.tcp.write_all(bytes).await.is_ok()
    }

    /// Ends our direction with a FIN.
    pub(in crate::upstream) async fn fin(&mut self) {
        self.tcp.shutdown().await.unwrap();
    }

    /// Ends the connection with a RST.
    pub(in crate::upstream) fn rst(self) {
        self.tcp.set_zero_linger().unwrap();
    }

    /// How the other side ends the connection, after whatever it still sends; `true`: by a reset.
    pub(in crate::upstream) async fn ended_by_reset(&mut self) -> bool {
        let mut all = std::mem::take(&mut self.ahead);
        self.tcp.read_to_end(&mut all).await.is_err()
    }

    /// Everything that still arrives, and whether a reset ended it.
    pub(in crate::upstream) async fn drain(&mut self) -> (Vec<u8>, bool) {
        let mut all = std::mem::take(&mut self.ahead);
        let reset = self.tcp.read_to_end(&mut all).await.is_err();
        (all, reset)
    }

    /// Waits until the socket has something to read, without reading it.
    pub(in crate::upstream) async fn readable(&self) {
        assert_eq!(self.tcp.peek(&mut [0]).await.unwrap(), 1);
    }

    pub(in crate::upstream) fn recv_buffer(&self) -> usize {
        SockRef::from(&self.tcp).recv_buffer_size().unwrap()
    }
}

fn number(text: &str) -> usize {
    text.trim().parse().unwrap()
}

pub(in crate::upstream) fn endpoint(addr: SocketAddr) -> Endpoint {
    Endpoint {
        https: false,
        host: Arc::from(addr.ip().to_string()),
        port: addr.port(),
        authority: Arc::from(addr.to_string()),
        base_path: Arc::from(""),
    }
}

pub(in crate::upstream) fn upstream(endpoint: &Endpoint) -> Upstream {
    Upstream {
        address: Arc::from(format!("http://{}", endpoint.authority)),
        endpoint: endpoint.clone(),
        strip_prefix: None,
        host: HostMode::Tool,
        headers: HeaderMap::new(),
        ca: None,
        kind: UpstreamKind::Tool,
        pool: PoolConfig {
            idle: Duration::from_secs(15),
            max_idle: 256,
            protocol: Protocol::Http1,
        },
        late_max: 64,
        tenant_header: None,
        concurrency: None,
        retry_budget: None,
        formerly: Vec::new(),
        others: Vec::new(),
        shared_state: false,
        resolve: Duration::from_secs(30),
        ejection: None,
    }
}

/// An address nobody listens on.
pub(in crate::upstream) async fn nobody() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    listener.local_addr().unwrap()
}
