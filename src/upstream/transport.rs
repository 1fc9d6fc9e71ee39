//! A connected socket: TCP, TLS over it, or a simulation's.
//!
//! Deliberately absent: whose turn it is, which is `wire`'s to know.

use std::io;
use std::mem::MaybeUninit;
use std::pin::Pin;
use std::task::{Context, Poll};

use socket2::SockRef;
use tokio::io::{AsyncRead, AsyncWrite, Interest, ReadBuf};
use tokio::net::TcpStream;
use tokio_rustls::client::TlsStream;

use super::stand_in::StandIn;

/// A connected socket, TLS on top or not.
pub(super) enum Transport {
    Plain(TcpStream),
    Tls(Box<TlsStream<TcpStream>>),
    /// A simulation's.
    StandIn(Box<dyn StandIn>),
}

impl Transport {
    /// Whether the socket is open and there is nothing to read.
    pub(super) fn is_quiet(&self) -> bool {
        let tcp = match self {
            Self::Plain(tcp) => tcp,
            Self::Tls(tls) => tls.get_ref().0,
            Self::StandIn(stand_in) => return stand_in.is_quiet(),
        };
        let mut byte = [MaybeUninit::uninit(); 1];
        match SockRef::from(tcp).peek(&mut byte) {
            Ok(_) => false,
            Err(e) => e.kind() == io::ErrorKind::WouldBlock,
        }
    }

    /// Whether the runtime has heard nothing of the socket since it was last read: no bytes, no
    /// end, no error. It hears when it next asks the kernel. `false` is no answer.
    pub(super) fn is_silent(&self) -> bool {
        match self {
            Self::Plain(tcp) => tcp.try_io(Interest::READABLE, || Ok(())).is_err(),
            // What TLS has read ahead is not the socket's to know.
            Self::Tls(_) | Self::StandIn(_) => false,
        }
    }

    /// Whether TLS agreed on HTTP/2.
    pub(super) fn is_http2(&self) -> bool {
        match self {
            Self::Tls(tls) => tls.get_ref().1.alpn_protocol() == Some(b"h2"),
            Self::Plain(_) | Self::StandIn(_) => false,
        }
    }

    /// Makes the coming close a reset. It fails only on a socket that is already dead.
    pub(super) fn reset(&mut self) {
        let tcp = match self {
            Self::Plain(tcp) => &*tcp,
            Self::Tls(tls) => tls.get_ref().0,
            Self::StandIn(stand_in) => return stand_in.reset(),
        };
        if let Err(e) = tcp.set_zero_linger() {
            tracing::debug!(error = %e, "linger 0 refused by a dying socket");
        }
    }
}

impl AsyncRead for Transport {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(tcp) => Pin::new(tcp).poll_read(cx, buf),
            Self::Tls(tls) => Pin::new(tls).poll_read(cx, buf),
            Self::StandIn(stand_in) => Pin::new(stand_in).poll_read(cx, buf),
        }
    }
}

impl AsyncWrite for Transport {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Plain(tcp) => Pin::new(tcp).poll_write(cx, buf),
            Self::Tls(tls) => Pin::new(tls).poll_write(cx, buf),
            Self::StandIn(stand_in) => Pin::new(stand_in).poll_write(cx, buf),
        }
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Plain(tcp) => Pin::new(tcp).poll_write_vectored(cx, bufs),
            Self::Tls(tls) => Pin::new(tls).poll_write_vectored(cx, bufs),
            Self::StandIn(stand_in) => Pin::new(stand_in).poll_write_vectored(cx, bufs),
        }
    }

    fn is_write_vectored(&self) -> bool {
        match self {
            Self::Plain(tcp) => tcp.is_write_vectored(),
            Self::Tls(tls) => tls.is_write_vectored(),
            Self::StandIn(stand_in) => stand_in.is_write_vectored(),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(tcp) => Pin::new(tcp).poll_flush(cx),
            Self::Tls(tls) => Pin::new(tls).poll_flush(cx),
            Self::StandIn(stand_in) => Pin::new(stand_in).poll_flush(cx),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(tcp) => Pin::new(tcp).poll_shutdown(cx),
            Self::Tls(tls) => Pin::new(tls).poll_shutdown(cx),
            Self::StandIn(stand_in) => Pin::new(stand_in).poll_shutdown(cx),
        }
    }
}
