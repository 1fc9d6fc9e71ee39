//! When the next request is due.
//!
//! The open loop's clock is a thread of its own: a runtime's timers are right to a millisecond, a
//! sleeping thread to some 60 µs.

use std::cell::Cell;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::Semaphore;

pub(crate) enum Pace {
    /// As soon as the last one is answered.
    Closed {
        until: Instant,
        length: Duration,
        left: Cell<u64>,
    },
    /// One every `period`, whatever became of those before.
    Open {
        began: Instant,
        period: Duration,
        length: Duration,
        taken: Cell<u64>,
        total: u64,
        /// One permit for each call whose time has come.
        due: Arc<Semaphore>,
    },
}

impl Pace {
    pub(crate) fn closed(length: Duration, count: Option<u64>) -> Self {
        let length = if count.is_some() {
            Duration::from_secs(3600)
        } else {
            length
        };
        Self::Closed {
            until: Instant::now() + length,
            length,
            left: Cell::new(count.unwrap_or(u64::MAX)),
        }
    }

    pub(crate) fn open(rate: f64, length: Duration) -> Self {
        let total = (rate * length.as_secs_f64()) as u64;
        let period = Duration::from_secs_f64(1.0 / rate);
        let began = Instant::now();
        let due = Arc::new(Semaphore::new(0));
        let permits = Arc::clone(&due);
        std::thread::spawn(move || {
            let mut released = 0;
            while released < total {
                let reached = (began.elapsed().as_secs_f64() * rate) as u64 + 1;
                let reached = reached.min(total);
                permits.add_permits((reached - released) as usize);
                released = reached;
                let next = period.mul_f64(released as f64);
                std::thread::sleep(next.saturating_sub(began.elapsed()));
            }
        });
        Self::Open {
            began,
            period,
            length,
            taken: Cell::new(0),
            total,
            due,
        }
    }

    pub(crate) fn length(&self) -> Duration {
        match self {
            Self::Closed { length, .. } | Self::Open { length, .. } => *length,
        }
    }

    /// Waits for the next request's time and tells which it was; `None` when it is over.
    pub(crate) async fn turn(&self) -> Option<Instant> {
        match self {
            Self::Closed { until, left, .. } => {
                let now = Instant::now();
                let over = now >= *until || left.get() == 0;
                left.set(left.get().saturating_sub(u64::from(!over)));
                (!over).then_some(now)
            }
            Self::Open {
                began,
                period,
                length,
                taken,
                total,
                due,
            } => {
                // Whoever takes the last one closes the gate behind it.
                due.acquire().await.ok()?.forget();
                let over = began.elapsed() > *length + *period;
                let n = taken.get();
                if over || n + 1 >= *total {
                    due.close();
                }
                if over {
                    return None;
                }
                taken.set(n + 1);
                Some(*began + period.mul_f64(n as f64))
            }
        }
    }

    /// Calls whose time came and that no connection was free for until the end.
    pub(crate) fn unsent(&self) -> u64 {
        match self {
            Self::Closed { .. } => 0,
            Self::Open { taken, total, .. } => total - taken.get(),
        }
    }
}
