//! The acceptor's thread.

use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use socket2::{SockRef, TcpKeepalive};
use tokio::runtime::Builder;
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;

use super::Settings;
use crate::call::code::Code;
use crate::call::time::Mono;
use crate::clock;
use crate::config::Limits;
use crate::ingress::Door;
use crate::ingress::answer::Room;
use crate::ingress::cores::{Core, Cores};
use crate::ingress::reply::problem::{NO_ROOM, NO_ROOM_FOR_ADDRESS};
use crate::ingress::seat::{Addresses, Seat};
use crate::ingress::serve::serve;
use crate::telemetry::labels::Bound;

/// After an accept that failed for want of descriptors or memory.
const BREATH: Duration = Duration::from_millis(100);

/// Between two lines about the same trouble.
const LOG_EVERY: Duration = Duration::from_secs(1);

/// Refused newcomers that are given time to read why; past it they are only closed.
const REFUSALS_MAX: usize = 64;

/// How long a refused newcomer is listened to before its socket is closed.
const REFUSAL_PATIENCE: Duration = Duration::from_millis(500);

/// When the kernel asks a silent caller whether it is there; a caller that lost its power is
/// noticed within two minutes.
const PROBE_AFTER: Duration = Duration::from_secs(60);
const PROBE_EVERY: Duration = Duration::from_secs(15);
const PROBES: u32 = 4;

pub(super) struct Acceptor<D: Door> {
    pub(super) listener: TcpListener,
    pub(super) cores: Arc<[Core]>,
    pub(super) rooms: Vec<Arc<Room<D>>>,
    pub(super) settings: Arc<Settings>,
    pub(super) stop: CancellationToken,
    /// Whoever waits in the kernel's queue at the stop is left to another process.
    pub(super) leaves: Arc<AtomicBool>,
    /// Callers' addresses, when each may have only so many connections.
    pub(super) addresses: Option<Arc<Addresses>>,
}

/// A bound that a newcomer meets, and what it reads then.
struct Full {
    bound: Bound,
    key: &'static str,
    limit: fn(&Limits) -> usize,
    says: &'static LazyLock<Vec<u8>>,
}

static FULL: Full = Full {
    bound: Bound::Connections,
    key: "limits.connections",
    limit: |limits| limits.connections,
    says: &NO_ROOM,
};

static ADDRESS_FULL: Full = Full {
    bound: Bound::ConnectionsPerAddress,
    key: "limits.connections_per_address",
    limit: |limits| limits.connections_per_address,
    says: &NO_ROOM_FOR_ADDRESS,
};

/// Lets one line through per [`LOG_EVERY`].
#[derive(Default)]
pub(in crate::ingress) struct Gate {
    last: Option<Mono>,
    held: u64,
}

impl<D: Door> Acceptor<D> {
    /// Starts the thread; what comes back resolves when it has let go of the socket.
    pub(super) fn start(self) -> io::Result<oneshot::Receiver<()>> {
        self.listener.set_nonblocking(true)?;
        let (done, stopped) = oneshot::channel();
        let runtime = Builder::new_current_thread().enable_all().build()?;
        std::thread::Builder::new()
            .name("callgate-accept".to_owned())
            .spawn(move || {
                if let Err(error) = runtime.block_on(self.run()) {
                    tracing::error!(%error, "the acceptor ended; no new connections are taken");
                }
                drop(done);
            })?;
        Ok(stopped)
    }

    async fn run(self) -> io::Result<()> {
        let listener = tokio::net::TcpListener::from_std(self.listener.try_clone()?)?;
        let mut gates = (Gate::default(), Gate::default());
        let refusing = Arc::new(AtomicUsize::new(0));
        loop {
            let accepted = tokio::select! {
                accepted = listener.accept() => accepted,
                () = self.stop.cancelled() => break,
            };
            // Off this runtime, so that the core can take the socket onto its own.
            match accepted.and_then(|(stream, peer)| Ok((stream.into_std()?, peer))) {
                Ok((stream, peer)) => self.take(stream, peer, &refusing, &mut gates.0),
                Err(error) => self.falter(&error, &mut gates.1).await,
            }
        }
        if self.leaves.load(Relaxed) {
            return Ok(());
        }
        // Whoever the kernel has already welcomed is served or told, not reset.
        while let Ok((stream, peer)) = self.listener.accept() {
            self.take(stream, peer, &refusing, &mut gates.0);
        }
        Ok(())
    }

    fn take(
        &self,
        stream: TcpStream,
        peer: SocketAddr,
        refusing: &Arc<AtomicUsize>,
        gate: &mut Gate,
    ) {
        // A caller that left meanwhile; there is nobody to tell.
        if prepare(&stream).is_err() {
            return;
        }
        let core = Cores::least_loaded(&self.cores);
        let open: usize = self
            .cores
            .iter()
            .map(|core| core.connections().load(Relaxed))
            .sum();
        if open >= self.settings.limits.connections {
            return self.refuse(core, stream, refusing, gate, &FULL);
        }
        let from = match self.addresses.as_ref().map(|all| all.take(peer.ip())) {
            Some(None) => return self.refuse(core, stream, refusing, gate, &ADDRESS_FULL),
            Some(from) => from,
            None => None,
        };
        let room = &self.rooms[core.index()];
        core.connections().fetch_add(1, Relaxed);
        let seat = Seat::new(room.floor.open.token(), from);
        core.run(serve(Arc::clone(room), stream, peer, seat));
    }

    fn refuse(
        &self,
        core: &Core,
        stream: TcpStream,
        refusing: &Arc<AtomicUsize>,
        gate: &mut Gate,
        full: &'static Full,
    ) {
        self.settings.metrics.bounds.inc(full.bound);
        self.settings.unrouted.refused.inc(Code::Overloaded);
        if let Some(held) = gate.open(self.settings.clock.mono()) {
            let limit = (full.limit)(&self.settings.limits);
            let key = full.key;
            tracing::warn!(
                key,
                limit,
                held,
                "a limit is reached; newcomers are refused"
            );
        }
        if refusing.fetch_add(1, Relaxed) >= REFUSALS_MAX {
            refusing.fetch_sub(1, Relaxed);
            return;
        }
        let refusing = Arc::clone(refusing);
        core.run(async move {
            say_no_room(stream, full.says).await;
            refusing.fetch_sub(1, Relaxed);
        });
    }

    /// Out of descriptors or memory: the backlog waits, a busy loop would only add to it.
    async fn falter(&self, error: &io::Error, gate: &mut Gate) {
        let is_callers = matches!(
            error.kind(),
            io::ErrorKind::ConnectionAborted
                | io::ErrorKind::ConnectionReset
                | io::ErrorKind::Interrupted
        );
        if is_callers {
            return;
        }
        if let Some(held) = gate.open(self.settings.clock.mono()) {
            tracing::error!(%error, held, "accepting failed; raise the limit of open files");
        }
        clock::sleep(BREATH).await;
    }
}

impl Gate {
    /// Whether a line may be written now, and how many were held back since the last.
    pub(in crate::ingress) fn open(&mut self, now: Mono) -> Option<u64> {
        if self.last.is_some_and(|last| now.since(last) < LOG_EVERY) {
            self.held += 1;
            return None;
        }
        self.last = Some(now);
        Some(std::mem::take(&mut self.held))
    }
}

fn prepare(stream: &TcpStream) -> io::Result<()> {
    stream.set_nonblocking(true)?;
    stream.set_nodelay(true)?;
    let probes = TcpKeepalive::new()
        .with_time(PROBE_AFTER)
        .with_interval(PROBE_EVERY)
        .with_retries(PROBES);
    SockRef::from(stream).set_tcp_keepalive(&probes)
}

/// Tells a newcomer why, and reads on a little: a close over unread bytes would be a reset, which
/// can overtake the answer.
async fn say_no_room(mut stream: TcpStream, says: &[u8]) {
    if stream.write_all(says).is_err() || stream.shutdown(Shutdown::Write).is_err() {
        return;
    }
    let until_closed = async {
        let mut waste = [0; 4096];
        let mut pause = clock::sleep(Duration::from_millis(1));
        loop {
            pause.await;
            pause = clock::sleep(Duration::from_millis(10));
            match stream.read(&mut waste) {
                Ok(0) => return,
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(_) => return,
            }
        }
    };
    drop(tokio::time::timeout(REFUSAL_PATIENCE, until_closed).await);
}
