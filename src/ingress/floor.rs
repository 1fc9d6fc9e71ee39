//! One core's share of the callers' connections, and the sweep that ends the overdue ones.
//!
//! The sweep looks at every connection once per tick: ten thousand glances a tick are cheaper than
//! a timer per request, and an idle or slow caller may well live a tick longer. It sleeps while
//! there are no connections. Deliberately absent: the pause of a request's body, which its reader
//! times (`body`), since only the reader knows that it waits.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::Settings;
use super::cores::Core;
use super::listener::Gate;
use super::plain::Dates;
use super::reply::SLOW_HEAD;
use super::seat::Seat;
use super::streams::Excess;
use super::wire::{Phase, Wire};
use crate::call::code::Code;
use crate::telemetry::labels::Bound;

/// Longest and shortest tick: drained connections close within the first, short limits in tests
/// are met within the second.
const TICK_MAX: Duration = Duration::from_millis(100);
const TICK_MIN: Duration = Duration::from_millis(10);

/// How long a closing caller may go on sending before it is cut off.
const LINGER: Duration = Duration::from_secs(2);

/// One core's connections.
pub(super) struct Floor {
    pub(super) core: Core,
    lines: Mutex<HashMap<u64, Arc<Wire>>>,
    next: AtomicU64,
    /// A connection came while the sweep slept.
    occupied: Notify,
    /// The present tick.
    now: Arc<AtomicU32>,
    tick: Duration,
    bounds: Bounds,
    pub(super) settings: Arc<Settings>,
    /// What the plain server writes into `Date`.
    pub(super) dates: Dates,
    /// Connections are asked to leave with their next answer.
    pub(super) leaving: CancellationToken,
    /// Lines about HTTP/2 callers that were cut off.
    abuse: Mutex<Gate>,
    /// No new work.
    pub(super) draining: CancellationToken,
    /// Calls that run, also those whose caller has left.
    pub(super) calls: TaskTracker,
    /// Connections that are open or on their way here.
    pub(super) open: TaskTracker,
}

/// The limits in ticks.
struct Bounds {
    head: u32,
    idle: u32,
    stall: u32,
    linger: u32,
}

/// A place on the floor; given back on drop.
pub(super) struct Place {
    floor: Arc<Floor>,
    id: u64,
    _seat: Seat,
}

impl Floor {
    pub(super) fn new(core: Core, settings: Arc<Settings>) -> Arc<Self> {
        let limits = &settings.limits;
        let shortest = limits
            .header_timeout
            .min(limits.body_timeout)
            .min(limits.keepalive);
        let tick = (shortest / 8).clamp(TICK_MIN, TICK_MAX);
        let ticks = |d: Duration| {
            let whole = d.as_nanos().div_ceil(tick.as_nanos());
            // One more: the first tick after a change may come at once.
            u32::try_from(whole)
                .unwrap_or(u32::MAX - 1)
                .saturating_add(1)
        };
        let bounds = Bounds {
            head: ticks(limits.header_timeout),
            idle: ticks(limits.keepalive),
            stall: ticks(limits.body_timeout),
            linger: ticks(LINGER),
        };
        let floor = Arc::new(Self {
            core,
            lines: Mutex::default(),
            next: AtomicU64::new(0),
            occupied: Notify::new(),
            now: Arc::new(AtomicU32::new(1)),
            tick,
            bounds,
            dates: Dates::new(settings.clock.clone()),
            settings,
            leaving: CancellationToken::new(),
            abuse: Mutex::default(),
            draining: CancellationToken::new(),
            calls: TaskTracker::new(),
            open: TaskTracker::new(),
        });
        let sweeping = Arc::clone(&floor);
        floor
            .core
            .run(async move { while sweeping.sweep_once().await {} });
        floor
    }

    /// The tick, for a new connection.
    pub(super) fn now(&self) -> Arc<AtomicU32> {
        Arc::clone(&self.now)
    }

    /// Puts a connection under the sweep's eyes. `seat` counts it since it was dealt.
    pub(super) fn enter(self: &Arc<Self>, wire: Arc<Wire>, seat: Seat) -> Place {
        let id = self.next.fetch_add(1, Relaxed);
        self.lines.lock().insert(id, wire);
        self.occupied.notify_one();
        Place {
            floor: Arc::clone(self),
            id,
            _seat: seat,
        }
    }

    /// Gives back the place of a connection that never got here.
    pub(super) fn turn_away(&self, seat: Seat) {
        self.core.connections().fetch_sub(1, Relaxed);
        drop(seat);
    }

    /// Counts an HTTP/2 caller that was cut off, and says so.
    pub(super) fn note_excess(&self, wire: &Wire, excess: Excess) {
        self.settings.metrics.bounds.inc(Bound::Http2Abuse);
        let open = self.abuse.lock().open(self.settings.clock.mono());
        if let Some(held) = open {
            let (peer, excess) = (wire.peer(), excess.as_str());
            tracing::warn!(%peer, excess, held, "an HTTP/2 caller went too far and was cut off");
        }
    }

    /// Closes every connection on which nothing was asked and nothing is owed.
    pub(super) fn close_silent(&self) {
        for wire in self.lines.lock().values() {
            // Bytes that wait unread are a request that was faster: it is told, not cut off.
            let asked = wire.is_multiplexed() || wire.stalled_ticks().is_some();
            if wire.phase().is_silent() && !asked && !wire.has_unread() {
                wire.close();
            }
        }
    }

    /// Closes every connection.
    pub(super) fn close_all(&self) {
        self.lines.lock().values().for_each(|wire| wire.close());
    }

    /// One turn; false when no connection is left and none will come.
    async fn sweep_once(&self) -> bool {
        while self.lines.lock().is_empty() && !self.draining.is_cancelled() {
            tokio::select! {
                () = self.occupied.notified() => {}
                () = self.draining.cancelled() => {}
            }
        }
        self.core.wheel().sleep(self.tick).await;
        let next = self.now.load(Relaxed).wrapping_add(1).max(1);
        self.now.store(next, Relaxed);
        self.lines.lock().values().for_each(|wire| self.judge(wire));
        if self.draining.is_cancelled() {
            self.close_silent();
            return !self.open.is_empty();
        }
        true
    }

    /// Ends the connection if it is overdue.
    fn judge(&self, wire: &Wire) {
        let bounds = &self.bounds;
        if wire.is_multiplexed() {
            let ms = u32::try_from(self.tick.as_millis()).unwrap_or(u32::MAX);
            if let Some(excess) = wire.streams().tick(ms, wire.now(), bounds.stall) {
                return wire.cut_off(excess);
            }
        }
        if let Some(ticks) = wire.stalled_ticks() {
            // A caller that does not read what it asked for.
            if ticks > bounds.stall {
                tracing::debug!(peer = %wire.peer(), "a caller did not read its answer");
                wire.abort();
                wire.close();
            }
            return;
        }
        let bound = match wire.phase() {
            Phase::Busy | Phase::Answered => return,
            Phase::Fresh | Phase::Head | Phase::Unread => bounds.head,
            Phase::Idle => bounds.idle,
            Phase::Closing => bounds.linger,
        };
        if wire.phase_ticks() <= bound {
            return;
        }
        if wire.phase().is_silent() && wire.has_unread() {
            // A request that was just faster.
            return;
        }
        if wire.phase() == Phase::Head {
            self.settings.unrouted.refused.inc(Code::RequestTimeout);
            wire.last_words(&SLOW_HEAD);
        }
        wire.close();
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.floor.lines.lock().remove(&self.id);
        self.floor.core.connections().fetch_sub(1, Relaxed);
    }
}
