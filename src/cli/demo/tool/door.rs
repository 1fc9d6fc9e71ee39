//! The sockets of the faulty tool: listening, refusing, and the two ways to cut a connection.
//! While it refuses, the listener is closed but the port stays bound by a second socket that never
//! listens: otherwise the kernel could give the port to somebody's outgoing connection meanwhile.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use socket2::{SockRef, Socket};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::sync::watch;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

use super::{Cut, Desk, Health};

const BACKLOG: u32 = 256;
/// Pause after a failed accept or bind (out of descriptors): the tool must not spin.
const BREATH: Duration = Duration::from_millis(10);

/// Binds a free port of loopback and serves it until `closing`.
pub(super) fn open(desk: Arc<Desk>, closing: CancellationToken) -> io::Result<SocketAddr> {
    let anchor = bind(SocketAddr::from((Ipv4Addr::LOCALHOST, 0)))?;
    let address = anchor.local_addr()?;
    let first = bind(address)?.listen(BACKLOG)?;
    tokio::spawn(async move {
        let _anchor = anchor;
        closing
            .run_until_cancelled(attend(desk, address, first))
            .await;
    });
    Ok(address)
}

/// Accepts while the tool is not refusing, for ever.
async fn attend(desk: Arc<Desk>, address: SocketAddr, first: TcpListener) {
    let mut health = desk.health.subscribe();
    let mut listener = Some(first);
    loop {
        if let Some(open) = listener.take() {
            accept(&desk, open, &mut health).await;
        }
        let _ = health.wait_for(|health| *health != Health::Refusing).await;
        listener = bind(address).and_then(|socket| socket.listen(BACKLOG)).ok();
        if listener.is_none() {
            sleep(BREATH).await;
        }
    }
}

/// Accepts until the tool begins to refuse; the listener closes on return.
async fn accept(desk: &Arc<Desk>, listener: TcpListener, health: &mut watch::Receiver<Health>) {
    loop {
        let accepted = tokio::select! {
            biased;
            _ = health.wait_for(|health| *health == Health::Refusing) => return,
            accepted = listener.accept() => accepted,
        };
        match accepted {
            Ok((stream, _)) => {
                tokio::spawn(converse(Arc::clone(desk), stream));
            }
            Err(_) => sleep(BREATH).await,
        }
    }
}

/// One connection. When the tool begins to refuse, it ends after the exchange in hand.
async fn converse(desk: Arc<Desk>, stream: TcpStream) {
    let _ = stream.set_nodelay(true);
    // A second handle on the socket: hyper owns the stream, and the kind of cut is a socket option.
    let Ok(line) = SockRef::from(&stream).try_clone().map(Arc::new) else {
        return;
    };
    let mut health = desk.health.subscribe();
    let service = service_fn(|request| {
        let (desk, line) = (Arc::clone(&desk), Arc::clone(&line));
        async move {
            desk.serve(request)
                .await
                .inspect_err(|cut| prepare(*cut, &line))
        }
    });
    let serving = http1::Builder::new().serve_connection(TokioIo::new(stream), service);
    let mut serving = pin!(serving);
    tokio::select! {
        _ = serving.as_mut() => return,
        _ = health.wait_for(|health| *health == Health::Refusing) => {}
    }
    serving.as_mut().graceful_shutdown();
    let _ = serving.await;
}

/// Hyper closes the socket on an error of the service; with linger 0 that close is a reset.
fn prepare(cut: Cut, line: &Socket) {
    match cut {
        Cut::Reset => {
            let _ = line.set_linger(Some(Duration::ZERO));
        }
        Cut::Close => {}
    }
}

fn bind(address: SocketAddr) -> io::Result<TcpSocket> {
    let socket = TcpSocket::new_v4()?;
    socket.set_reuseaddr(true)?;
    socket.set_reuseport(true)?;
    socket.bind(address)?;
    Ok(socket)
}
