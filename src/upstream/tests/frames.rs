//! A scripted peer that speaks HTTP/2 in exact frames.

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

pub(super) const DATA: u8 = 0;
pub(super) const HEADERS: u8 = 1;
pub(super) const RST_STREAM: u8 = 3;
pub(super) const SETTINGS: u8 = 4;
pub(super) const PING: u8 = 6;
pub(super) const GOAWAY: u8 = 7;
pub(super) const WINDOW_UPDATE: u8 = 8;

pub(super) const END_STREAM: u8 = 1;
pub(super) const END_HEADERS: u8 = 4;
const ACK: u8 = 1;

/// `:status 200`, from HPACK's static table.
pub(super) const OK: &[u8] = &[0x88];

const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Frame {
    pub(super) kind: u8,
    pub(super) flags: u8,
    pub(super) stream: u32,
    pub(super) payload: Vec<u8>,
}

/// One connection of the scripted peer.
pub(super) struct Framed<S> {
    socket: S,
    /// Whether PINGs are answered.
    pub(super) pongs: bool,
    /// Requests that are arriving.
    asked: Vec<Asked>,
}

struct Asked {
    stream: u32,
    body: Vec<u8>,
    ended: bool,
}

impl<S: AsyncRead + AsyncWrite + Unpin> Framed<S> {
    /// Reads the preface and says its own settings.
    pub(super) async fn begin(mut socket: S, settings: &[(u16, u32)]) -> Self {
        let mut preface = [0; PREFACE.len()];
        socket.read_exact(&mut preface).await.unwrap();
        assert_eq!(preface, PREFACE);
        let mut framed = Self {
            socket,
            pongs: true,
            asked: Vec::new(),
        };
        let mut payload = Vec::new();
        for (name, value) in settings {
            payload.extend_from_slice(&name.to_be_bytes());
            payload.extend_from_slice(&value.to_be_bytes());
        }
        framed.write(SETTINGS, 0, 0, &payload).await;
        framed
    }

    /// Says nothing but the answer to the first PING.
    pub(super) async fn greeted(socket: S, settings: &[(u16, u32)]) -> Self {
        let mut framed = Self::begin(socket, settings).await;
        while framed.read().await.expect("a PING").kind != PING {}
        framed
    }

    pub(super) async fn write(&mut self, kind: u8, flags: u8, stream: u32, payload: &[u8]) {
        let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
        let mut bytes = vec![length[1], length[2], length[3], kind, flags];
        bytes.extend_from_slice(&stream.to_be_bytes());
        bytes.extend_from_slice(payload);
        self.socket.write_all(&bytes).await.unwrap();
        self.socket.flush().await.unwrap();
    }

    /// A whole answer of status 200.
    pub(super) async fn answer(&mut self, stream: u32, body: &[u8]) {
        self.write(HEADERS, END_HEADERS, stream, OK).await;
        self.write(DATA, END_STREAM, stream, body).await;
    }

    /// The next frame; settings and PINGs are answered in passing. `None` at the end.
    pub(super) async fn read(&mut self) -> Option<Frame> {
        let mut head = [0; 9];
        self.socket.read_exact(&mut head).await.ok()?;
        let length = u32::from_be_bytes([0, head[0], head[1], head[2]]) as usize;
        let mut payload = vec![0; length];
        self.socket.read_exact(&mut payload).await.ok()?;
        let frame = Frame {
            kind: head[3],
            flags: head[4],
            stream: u32::from_be_bytes([head[5], head[6], head[7], head[8]]),
            payload,
        };
        match frame.kind {
            SETTINGS if frame.flags & ACK == 0 => self.write(SETTINGS, ACK, 0, b"").await,
            PING if self.pongs && frame.flags & ACK == 0 => {
                self.write(PING, ACK, 0, &frame.payload).await;
            }
            _ => {}
        }
        Some(frame)
    }

    /// The next frame of this kind.
    pub(super) async fn next(&mut self, kind: u8) -> Frame {
        loop {
            let frame = self.read().await.expect("a frame before the end");
            if frame.kind == kind {
                return frame;
            }
        }
    }

    /// The next request that is there in full: its stream and its body.
    pub(super) async fn request(&mut self) -> (u32, Vec<u8>) {
        loop {
            if let Some(at) = self.asked.iter().position(|asked| asked.ended) {
                let Asked { stream, body, .. } = self.asked.remove(at);
                return (stream, body);
            }
            let frame = self.read().await.expect("a request before the end");
            match frame.kind {
                HEADERS => self.asked.push(Asked {
                    stream: frame.stream,
                    body: Vec::new(),
                    ended: frame.flags & END_STREAM != 0,
                }),
                DATA => {
                    let asked = self.asked.iter_mut();
                    let mut of_stream = asked.filter(|asked| asked.stream == frame.stream);
                    let asked = of_stream.next().expect("HEADERS come first");
                    asked.body.extend_from_slice(&frame.payload);
                    asked.ended |= frame.flags & END_STREAM != 0;
                }
                _ => {}
            }
        }
    }

    /// How the other side ends the connection, whatever it still sends; true: by a reset.
    pub(super) async fn ended_by_reset(&mut self) -> bool {
        let mut rest = Vec::new();
        self.socket.read_to_end(&mut rest).await.is_err()
    }
}
