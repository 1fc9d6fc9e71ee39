//! What a configuration lets the process take of memory, at most.
//!
//! A sum of limits times what each of them is worth when the worst comes to the worst: every
//! connection with a head half read and an answer half written, every call with the longest head,
//! every queue full. So the process stays far below it as long as callers behave. Deliberately
//! absent: the rows of batches that are being taken in (about 36 bytes each), which depend on a
//! file and not on a key.

use std::fmt;

use super::{Config, LedgerUrl, Limits};

const KIB: usize = 1 << 10;
const MIB: usize = 1 << 20;

/// The parser's own bound on a head lies above ours, so that a head which is only a little too
/// long is told so in a document.
const HEAD_BUFFER_MIN: usize = 64 * KIB;

/// A piece of a body on its way through the process, once on each side.
const PIECE: usize = 64 * KIB;

/// Everything of a connection but its buffers: tasks, timers, its place in tables.
const CONNECTION: usize = 8 * KIB;

/// Everything of a call but heads and bodies: its future, its machine, its history.
const CALL: usize = 48 * KIB;

/// A body too short to be counted among the bodies, and the head of a tool's answer.
const SHORT: usize = 16 * KIB;

/// A connection to a tool at rest. Only one over which a long answer came has as much.
const RESTING: usize = 128 * KIB;

/// What a JSON document becomes while it is read, per byte of it.
const PARSED: usize = 16;

/// The program, its tables and its logs.
const GROUND: usize = 48 * MIB;

/// SQLite: four connections with a cache each, the statements, and the calls that were met lately.
const SQLITE: usize = 32 * MIB;

/// The operators' listener: answers under way, and what it reads of bodies.
const OPERATORS: usize = 64 * MIB;

/// One line of the sum.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part {
    /// Which limit.
    pub what: &'static str,
    /// How many of them.
    pub count: usize,
    /// Bytes of each.
    pub each: usize,
}

/// The most a process takes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Memory(pub Vec<Part>);

/// What the parser may hold of one request's head, and of an answer on its way out.
#[must_use]
pub fn head_buffer(limits: &Limits) -> usize {
    limits.header_bytes.saturating_mul(2).max(HEAD_BUFFER_MIN)
}

impl Config {
    /// The most that a process with this configuration takes, on so many cores.
    #[must_use]
    pub fn memory(&self, cores: usize) -> Memory {
        let limits = &self.limits;
        let head = head_buffer(limits);
        let call = CALL + head + limits.header_bytes + SHORT * 2 + PIECE * 2;
        let record = limits.header_bytes + SHORT * 2;
        let longest = |of: fn(&super::Route) -> usize| self.routes.iter().map(|r| of(r)).max();
        let request = longest(|route| route.body.max_request).unwrap_or(0);
        let receipt = longest(|route| route.receipt.as_ref().map_or(0, |it| it.max_body));
        let document = request.max(receipt.unwrap_or(0));
        let rounds = self.routes.iter().map(|route| route.compensation_workers);
        let part = |what, count, each| Part { what, count, each };
        let (late, resting) = self.tools(cores);
        let sqlite = usize::from(matches!(self.ledger.url, LedgerUrl::Sqlite(_)));
        Memory(vec![
            part(
                "limits.connections",
                limits.connections,
                head * 2 + PIECE + CONNECTION,
            ),
            part("limits.calls", limits.calls, call),
            part("limits.bodies", 1, limits.bodies),
            part("upstream.late_max", late, call),
            part("upstream.pool", resting, RESTING),
            part("compensation.workers", rounds.sum(), call + request),
            part("ledger.queue", self.ledger.queue * 2, record),
            part(
                "a document being read, per core",
                cores + 1,
                document * PARSED,
            ),
            part("SQLite", sqlite, SQLITE),
            part("the operators' listener", 1, OPERATORS),
            part("the process", 1, GROUND),
        ])
    }

    /// The cores it serves on: `workers`, or one per processor.
    #[must_use]
    pub fn cores(&self) -> usize {
        match self.workers {
            0 => std::thread::available_parallelism().map_or(1, Into::into),
            workers => workers,
        }
    }

    /// Late exchanges and resting connections, over all tools.
    fn tools(&self, cores: usize) -> (usize, usize) {
        let mut seen = Vec::new();
        let (mut late, mut resting) = (0_usize, 0_usize);
        for route in &self.routes {
            let upstream = &route.upstream;
            if seen.contains(&&upstream.address) {
                continue;
            }
            seen.push(&upstream.address);
            late = late.saturating_add(upstream.late_max);
            resting = resting.saturating_add(upstream.pool.max_idle.saturating_mul(cores + 1));
        }
        (late, resting)
    }
}

impl Part {
    /// Bytes of all of them.
    #[must_use]
    pub const fn bytes(&self) -> usize {
        self.count.saturating_mul(self.each)
    }
}

impl Memory {
    /// All of it, in bytes.
    #[must_use]
    pub fn bytes(&self) -> usize {
        let parts = self.0.iter().map(Part::bytes);
        parts.fold(0, usize::saturating_add)
    }

    /// The same in whole MiB, rounded up.
    #[must_use]
    pub fn mib(&self) -> usize {
        self.bytes().div_ceil(MIB)
    }
}

impl fmt::Display for Memory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "at most about {} MiB with these limits:", self.mib())?;
        for part in self.0.iter().filter(|part| part.bytes() > 0) {
            let (mib, kib) = (part.bytes().div_ceil(MIB), part.each.div_ceil(KIB));
            write!(f, "{mib:>8} MiB  {}", part.what)?;
            match part.count {
                1 => writeln!(f)?,
                count => writeln!(f, ", {count} x {kib} KiB")?,
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    fn of(more: &str) -> Memory {
        let text = format!("{more}routes: [{{ name: a, upstream: {{ url: 'http://t' }} }}]\n");
        let config = super::super::parse(&text, "test", Path::new("/"), &|_| None).unwrap();
        config.memory(2)
    }

    #[test]
    fn every_limit_counts_and_lower_ones_count_less() {
        let usual = of("");
        let told = usual.to_string();
        let first = format!("at most about {} MiB with these limits:", usual.mib());
        assert!(told.starts_with(&first), "{told}");
        assert!(told.contains("limits.calls, 10000 x"), "{told}");
        for lower in [
            "limits: { connections: 10 }\n",
            "limits: { calls: 10 }\n",
            "limits: { bodies: 8MiB }\n",
            "ledger: { queue: 10 }\n",
            "ledger: { url: 'memory:' }\n",
            "defaults: { body: { max_request: 1KiB } }\n",
            "defaults: { compensation: { workers: 1 } }\n",
        ] {
            assert!(of(lower).bytes() < usual.bytes(), "{lower}");
        }
        let small =
            "limits: { connections: 500, calls: 200, bodies: 32MiB }\nledger: { queue: 512 }\n";
        assert!(of(small).mib() < 640, "{}", of(small));
    }
}
