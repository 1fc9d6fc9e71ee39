//! The memory that bodies may take, over all cores (`limits.bodies`).
//!
//! A body that came in one piece lies in the buffer it was read into, for which its connection
//! answers. One that came in several is gathered into memory of its own. That is counted here, by
//! what was allocated, and for as long as anybody holds it: the bytes themselves give it back when
//! the last of their clones is dropped, be that in a waiter, in the ledger's queue or at a slow
//! caller's socket. So there is no path on which it can be forgotten.
//!
//! Deliberately absent: what a refusal means. Of a request it is a 503, of an answer that it is
//! passed on and not kept.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};

use bytes::Bytes;

use crate::telemetry::labels::Bound;
use crate::telemetry::metrics::Metrics;

/// Bytes that are not worth counting: about what a call costs beside its body.
const UNCOUNTED_MAX: usize = 16 * 1024;

/// The least that is allocated at once.
const STEP: usize = 16 * 1024;

/// What all gathered bodies of a process may take; clones are the same.
#[derive(Clone, Debug)]
pub struct Bodies(Arc<State>);

#[derive(Debug)]
struct State {
    most: usize,
    held: AtomicUsize,
    /// The bound was reached and not left behind since.
    full: AtomicBool,
    metrics: Option<Arc<Metrics>>,
}

/// As much is held as may be held.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the bodies that are held take as much memory as limits.bodies allows")]
pub struct Full;

/// A body being gathered.
#[derive(Debug)]
pub struct Gathering {
    bytes: Vec<u8>,
    share: Share,
}

/// Bytes of a known length that somebody else allocated.
struct Kept {
    bytes: Bytes,
    _share: Share,
}

/// So many bytes of the whole, given back on drop.
#[derive(Debug)]
struct Share {
    of: Bodies,
    bytes: usize,
}

impl Default for Bodies {
    /// Without a bound: for what is no gateway.
    fn default() -> Self {
        Self::of(usize::MAX, None)
    }
}

impl Bodies {
    /// At most so many bytes; whatever finds no room is counted.
    #[must_use]
    pub fn new(most: usize, metrics: &Arc<Metrics>) -> Self {
        Self::of(most, Some(Arc::clone(metrics)))
    }

    fn of(most: usize, metrics: Option<Arc<Metrics>>) -> Self {
        Self(Arc::new(State {
            most,
            held: AtomicUsize::new(0),
            full: AtomicBool::new(false),
            metrics,
        }))
    }

    /// Bytes held at the moment.
    #[must_use]
    pub fn held(&self) -> usize {
        self.0.held.load(Relaxed)
    }

    /// Counts bytes that were allocated elsewhere for as long as they live.
    ///
    /// # Errors
    /// [`Full`], and the bytes are dropped.
    pub fn keep(&self, bytes: Bytes) -> Result<Bytes, Full> {
        if bytes.len() <= UNCOUNTED_MAX {
            return Ok(bytes);
        }
        let mut share = self.nothing();
        share.grow(bytes.len(), bytes.len())?;
        Ok(Bytes::from_owner(Kept {
            bytes,
            _share: share,
        }))
    }

    /// Begins to gather a body.
    #[must_use]
    pub fn gather(&self) -> Gathering {
        Gathering {
            bytes: Vec::new(),
            share: self.nothing(),
        }
    }

    fn nothing(&self) -> Share {
        Share {
            of: self.clone(),
            bytes: 0,
        }
    }

    /// Keeps the gauge beside the count.
    fn moved(&self, bytes: usize, by: fn(i64, i64) -> i64) {
        if let Some(metrics) = &self.0.metrics {
            let bytes = i64::try_from(bytes).unwrap_or(i64::MAX);
            metrics.bodies_held.add(by(0, bytes));
        }
    }

    fn reached(&self) {
        let state = &*self.0;
        if let Some(metrics) = &state.metrics {
            metrics.bounds.inc(Bound::Bodies);
        }
        if !state.full.swap(true, Relaxed) {
            tracing::warn!(
                held = self.held(),
                most = state.most,
                "bodies take as much memory as limits.bodies allows; requests with long bodies \
                 are refused and long answers are not kept"
            );
        }
    }
}

impl Gathering {
    /// Adds a piece. `whole` is what the body will come to, as far as anybody knows; room for it is
    /// made at once only if that is no more than a doubling, since an announcement is no memory.
    ///
    /// # Errors
    /// [`Full`], and the piece was not added.
    pub fn push(&mut self, piece: &[u8], whole: usize) -> Result<(), Full> {
        let (capacity, needed) = (self.bytes.capacity(), self.bytes.len() + piece.len());
        if needed > capacity {
            let doubled = needed.max(capacity.saturating_mul(2)).max(STEP);
            let wished = whole.clamp(needed, doubled);
            self.share.grow(wished - capacity, needed - capacity)?;
            let room = self.share.bytes - self.bytes.len();
            self.bytes.reserve_exact(room);
        }
        self.bytes.extend_from_slice(piece);
        Ok(())
    }

    /// Bytes so far.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.bytes.len()
    }

    /// Whether nothing was added.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// The body, counted until the last clone is dropped.
    #[must_use]
    pub fn done(self) -> Bytes {
        if self.bytes.is_empty() {
            return Bytes::new();
        }
        Bytes::from_owner(self)
    }
}

impl AsRef<[u8]> for Gathering {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl AsRef<[u8]> for Kept {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl Share {
    /// Takes `wished` more bytes, or, where these are too many, `needed` ones.
    fn grow(&mut self, wished: usize, needed: usize) -> Result<(), Full> {
        let state = &*self.of.0;
        let take = |more: usize| {
            let taken = state.held.fetch_update(Relaxed, Relaxed, |held| {
                held.checked_add(more).filter(|held| *held <= state.most)
            });
            taken.is_ok().then_some(more)
        };
        let Some(more) = take(wished).or_else(|| take(needed)) else {
            self.of.reached();
            return Err(Full);
        };
        self.bytes += more;
        self.of.moved(more, i64::saturating_add);
        Ok(())
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        self.of.moved(self.bytes, i64::saturating_sub);
        let state = &*self.of.0;
        let before = state.held.fetch_sub(self.bytes, Relaxed);
        let left = before - self.bytes;
        // Well below the bound, so that a level that hovers there is told once.
        if left <= state.most / 2 && state.full.load(Relaxed) {
            state.full.store(false, Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bodies(most: usize) -> (Bodies, Arc<Metrics>) {
        let metrics = Arc::new(Metrics::new("test"));
        (Bodies::new(most, &metrics), metrics)
    }

    fn reached(metrics: &Metrics) -> u64 {
        metrics.bounds.get(Bound::Bodies)
    }

    #[test]
    fn bytes_count_until_their_last_clone_is_dropped() {
        let (bodies, metrics) = bodies(100_000);
        let mut one = bodies.gather();
        one.push(&[1; 40_000], 40_000).unwrap();
        one.push(&[2; 30_000], 30_000).unwrap();
        let one = one.done();
        assert_eq!((one.len(), one[39_999], one[40_000]), (70_000, 1, 2));
        assert!((70_000..=80_000).contains(&bodies.held()), "{bodies:?}");
        let clone = one.slice(10..20);
        drop(one);
        assert!(bodies.held() >= 70_000, "{bodies:?}");
        let mut two = bodies.gather();
        assert_eq!(two.push(&[0; 40_000], 40_000), Err(Full));
        two.push(&[0; 16_000], 90_000).unwrap();
        assert_eq!(reached(&metrics), 1);
        drop((clone, two.done()));
        assert_eq!(bodies.held(), 0);
    }

    #[test]
    fn an_announcement_takes_no_more_than_a_doubling() {
        let (bodies, _) = bodies(usize::MAX);
        let mut body = bodies.gather();
        body.push(&[0; 10], 1 << 30).unwrap();
        assert_eq!(bodies.held(), STEP);
        body.push(&[0; STEP], 1 << 30).unwrap();
        assert_eq!(bodies.held(), STEP * 2);
    }

    #[test]
    fn what_was_allocated_elsewhere_counts_when_it_is_long() {
        let (bodies, metrics) = bodies(30_000);
        let short = bodies.keep(Bytes::from(vec![0; UNCOUNTED_MAX])).unwrap();
        assert_eq!(bodies.held(), 0);
        let long = bodies.keep(Bytes::from(vec![7; 20_000])).unwrap();
        assert_eq!((bodies.held(), long.len()), (20_000, 20_000));
        assert_eq!(bodies.keep(long.slice(1..18_000)), Err(Full));
        assert_eq!(reached(&metrics), 1);
        drop((long, short));
        assert_eq!(bodies.held(), 0);
    }

    #[test]
    fn many_threads_never_hold_more_than_there_is() {
        let (bodies, _) = bodies(1_000_000);
        std::thread::scope(|threads| {
            for _ in 0..4 {
                threads.spawn(|| {
                    let mut kept = Vec::new();
                    for n in 0..2_000_usize {
                        let mut body = bodies.gather();
                        if body.push(&vec![0; 1 + n % 90_000], 0).is_ok() {
                            kept.push(body.done());
                        }
                        assert!(bodies.held() <= 1_000_000);
                        if n % 7 == 0 {
                            kept.clear();
                        }
                    }
                });
            }
        });
        assert_eq!(bodies.held(), 0);
    }
}
