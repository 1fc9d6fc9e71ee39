//! The gateway's end of a connection: a stand-in for a socket, so that the gateway's own HTTP
//! client runs over the network of `net`.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use callgate::upstream::{Dialling, StandIn, StandInDialer};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::net::Left;
use crate::world::World;

/// The gateway's end of a connection.
struct Pipe {
    world: World,
    conn: usize,
    life: u32,
    resets: bool,
}

/// Opens connections to an address of the tool, or to its receipt endpoint there.
pub(crate) fn dialer(world: &World, (site, asks): (usize, bool), life: u32) -> StandInDialer {
    let world = world.clone();
    Box::new(move || -> Dialling {
        let world = world.clone();
        Box::pin(async move {
            let (opened, takes) = world.lock().dialled((site, asks), life);
            tokio::time::sleep(Duration::from_millis(takes)).await;
            match opened {
                Some(Ok(conn)) => {
                    let pipe = Pipe {
                        world,
                        conn,
                        life,
                        resets: false,
                    };
                    Ok(Box::new(pipe) as Box<dyn StandIn>)
                }
                Some(Err(error)) => Err(error),
                None => std::future::pending().await,
            }
        })
    })
}

impl AsyncRead for Pipe {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let mut state = self.world.lock();
        if !state.is_alive(self.life) {
            return Poll::Pending;
        }
        let of = &mut state.net.conns[self.conn];
        if !of.inbox.is_empty() {
            let taken = of.inbox.len().min(buf.remaining());
            buf.put_slice(&of.inbox[..taken]);
            of.inbox.drain(..taken);
            return Poll::Ready(Ok(()));
        }
        match of.ended {
            Some(false) => Poll::Ready(Ok(())),
            Some(true) => Poll::Ready(Err(io::ErrorKind::ConnectionReset.into())),
            None => {
                of.reader = Some(cx.waker().clone());
                Poll::Pending
            }
        }
    }
}

impl AsyncWrite for Pipe {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let mut state = self.world.lock();
        if !state.touched(self.life) {
            return Poll::Pending;
        }
        let wrote = state.wrote(self.conn, bytes);
        if wrote.is_pending() {
            state.net.conns[self.conn].writer = Some(cx.waker().clone());
        }
        wrote
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

impl StandIn for Pipe {
    fn is_quiet(&self) -> bool {
        let state = self.world.lock();
        let of = &state.net.conns[self.conn];
        of.inbox.is_empty() && of.ended.is_none()
    }

    fn reset(&mut self) {
        self.resets = true;
    }
}

impl Drop for Pipe {
    fn drop(&mut self) {
        let mut state = self.world.lock();
        if !state.is_alive(self.life) {
            return;
        }
        let left = if self.resets {
            Left::Reset
        } else {
            Left::Closed
        };
        state.net.conns[self.conn].left = left;
    }
}
