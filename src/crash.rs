//! The boundaries at which a test lets the process die, as data.
//!
//! A crash is survived only if it is survived everywhere, so every place where the world and the
//! record can part has a name. With `CALLGATE_CRASH=NAME` or `NAME:N` in its environment a build
//! with debug assertions aborts, at once and without a destructor, when it passes that place (for
//! the N-th time). `tests/it/crashes.rs` walks all of them; tidy holds that none is left out. In a
//! release build passing a boundary is a constant function that does nothing, and neither the
//! variable nor a name exists. Deliberately absent: anything that could make a decision differ.

/// A boundary between what was done and what is recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Point {
    /// The request was read; nothing is recorded.
    Arrived,
    /// The claim is written, its group is not committed.
    ClaimWritten,
    /// A group is about to be committed.
    Committing,
    /// A group is committed; nobody was told.
    Committed,
    /// The claim is durable; nothing was sent.
    Claimed,
    /// A connection is there; no byte was written.
    Connected,
    /// Half of what was offered to the socket was written.
    MidRequest,
    /// The whole request is in the kernel's hands.
    Sent,
    /// The tool's answer was read; nothing of it is recorded.
    Answered,
    /// The attempt's time is over; the exchange is still open.
    TimedOut,
    /// A late answer was read; nothing of it is recorded.
    LateAnswer,
    /// A receipt was read; nothing of it is recorded.
    Heard,
    /// A backoff, or the rest after a close, begins.
    Waiting,
    /// Earlier exchanges were closed.
    Closed,
    /// A resend is on record; nothing of it was sent.
    ResendNoted,
    /// The call's end is about to be recorded.
    Settling,
    /// The call's end is durable; nobody was told.
    Settled,
    /// The caller is about to be told.
    Telling,
    /// The head of a long answer went to the caller; its end is not recorded.
    Streaming,
    /// The call is about to be parked.
    Parking,
    /// The call is parked; nobody was told.
    Parked,
    /// A round, or a repeat, has the lease of a dead letter.
    Leased,
    /// A known call was asked for again.
    Repeated,
    /// The start looks for calls of dead owners.
    Sweeping,
    /// Calls of dead owners are in the queue; nothing is served yet.
    Swept,
}

impl Point {
    /// All of them.
    #[cfg(debug_assertions)]
    pub const ALL: [Self; 25] = [
        Self::Arrived,
        Self::ClaimWritten,
        Self::Committing,
        Self::Committed,
        Self::Claimed,
        Self::Connected,
        Self::MidRequest,
        Self::Sent,
        Self::Answered,
        Self::TimedOut,
        Self::LateAnswer,
        Self::Heard,
        Self::Waiting,
        Self::Closed,
        Self::ResendNoted,
        Self::Settling,
        Self::Settled,
        Self::Telling,
        Self::Streaming,
        Self::Parking,
        Self::Parked,
        Self::Leased,
        Self::Repeated,
        Self::Sweeping,
        Self::Swept,
    ];

    /// Its name in `CALLGATE_CRASH`.
    #[cfg(debug_assertions)]
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Arrived => "arrived",
            Self::ClaimWritten => "claim-written",
            Self::Committing => "committing",
            Self::Committed => "committed",
            Self::Claimed => "claimed",
            Self::Connected => "connected",
            Self::MidRequest => "mid-request",
            Self::Sent => "sent",
            Self::Answered => "answered",
            Self::TimedOut => "timed-out",
            Self::LateAnswer => "late-answer",
            Self::Heard => "heard",
            Self::Waiting => "waiting",
            Self::Closed => "closed",
            Self::ResendNoted => "resend-noted",
            Self::Settling => "settling",
            Self::Settled => "settled",
            Self::Telling => "telling",
            Self::Streaming => "streaming",
            Self::Parking => "parking",
            Self::Parked => "parked",
            Self::Leased => "leased",
            Self::Repeated => "repeated",
            Self::Sweeping => "sweeping",
            Self::Swept => "swept",
        }
    }
}

/// Passes a boundary: nothing happens.
#[cfg(not(debug_assertions))]
pub const fn at(_: Point) {}

/// As much of `bytes` as is to be written before [`Point::MidRequest`]: all.
#[cfg(not(debug_assertions))]
#[must_use]
pub const fn part(bytes: &[u8]) -> &[u8] {
    bytes
}

#[cfg(debug_assertions)]
pub use armed::{at, part};

#[cfg(debug_assertions)]
mod armed {
    //! What a build with debug assertions does at a boundary.

    use std::sync::LazyLock;
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::Point;

    static PLAN: LazyLock<Option<(Point, u32)>> =
        LazyLock::new(|| std::env::var("CALLGATE_CRASH").ok().map(|plan| read(&plan)));
    static PASSED: AtomicU32 = AtomicU32::new(0);

    /// Passes a boundary; the process ends here if it was told to.
    pub fn at(point: Point) {
        if let Some((at, n)) = *PLAN
            && at == point
            && PASSED.fetch_add(1, Ordering::Relaxed) + 1 == n
        {
            // No destructor, no flush, no other thread gets a turn: what the disk and the sockets
            // have now is all there is.
            std::process::abort();
        }
    }

    /// As much of `bytes` as is to be written before [`Point::MidRequest`].
    #[must_use]
    pub fn part(bytes: &[u8]) -> &[u8] {
        match *PLAN {
            Some((Point::MidRequest, _)) => &bytes[..bytes.len().div_ceil(2)],
            Some(_) | None => bytes,
        }
    }

    pub(super) fn read(plan: &str) -> (Point, u32) {
        let (name, n) = plan.split_once(':').unwrap_or((plan, "1"));
        let point = Point::ALL.into_iter().find(|point| point.as_str() == name);
        let n = n.parse().expect("CALLGATE_CRASH is NAME or NAME:N");
        (point.expect("CALLGATE_CRASH names a boundary"), n)
    }

    #[cfg(test)]
    mod tests {
        use super::*;

        #[test]
        fn every_boundary_is_named_once_and_found_by_its_name() {
            for point in Point::ALL {
                assert_eq!(read(point.as_str()), (point, 1));
                assert_eq!(read(&format!("{}:7", point.as_str())), (point, 7));
            }
        }

        #[test]
        #[should_panic(expected = "names a boundary")]
        fn a_name_that_is_none_is_told() {
            read("nowhere");
        }
    }
}

#[cfg(all(test, not(debug_assertions)))]
mod tests {
    /// What is done at compile time is not done at run time.
    const _: () = super::at(super::Point::Arrived);
}
