//! What can stand in for the socket of a connection: the seam of the simulation (`tests/sim`).
//!
//! A simulated world brings its own network, so that the whole gateway above the socket runs as it
//! is, over virtual time. Deliberately absent: any use of it in the product; without a dialer of
//! this kind a destination speaks TCP.

use std::future::Future;
use std::io;
use std::pin::Pin;

use tokio::io::{AsyncRead, AsyncWrite};

/// A connection of a simulated network.
pub trait StandIn: AsyncRead + AsyncWrite + Send + Unpin {
    /// Whether it is open and there is nothing to read.
    fn is_quiet(&self) -> bool;

    /// Makes the coming close a reset: what was not delivered dies with the connection.
    fn reset(&mut self);
}

/// Opens connections of a simulated network.
pub type StandInDialer = Box<dyn Fn() -> Dialling + Send + Sync>;

/// A simulated connection being opened.
pub type Dialling = Pin<Box<dyn Future<Output = io::Result<Box<dyn StandIn>>> + Send>>;

/// One end of a pipe within a test, as a connection.
#[cfg(test)]
pub(crate) struct Pipe(pub(crate) tokio::io::DuplexStream);

#[cfg(test)]
mod pipe {
    use std::io;
    use std::pin::Pin;
    use std::task::{Context, Poll};

    use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

    use super::{Pipe, StandIn};

    impl StandIn for Pipe {
        fn is_quiet(&self) -> bool {
            true
        }

        fn reset(&mut self) {}
    }

    impl AsyncRead for Pipe {
        fn poll_read(
            mut self: Pin<&mut Self>,
            cx: &mut Context<'_>,
            into: &mut ReadBuf<'_>,
        ) -> Poll<io::Result<()>> {
            Pin::new(&mut self.0).poll_read(cx, into)
        }
    }

    impl AsyncWrite for Pipe {
        fn poll_write(
            mut self: Pin<&mut Self>,
            cx: &mut Context<'_>,
            bytes: &[u8],
        ) -> Poll<io::Result<usize>> {
            Pin::new(&mut self.0).poll_write(cx, bytes)
        }

        fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
            Pin::new(&mut self.0).poll_flush(cx)
        }

        fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
            Pin::new(&mut self.0).poll_shutdown(cx)
        }
    }
}
