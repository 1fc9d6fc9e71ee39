//! The only reader of chance: draws for jitter, and the maker of call ids.
//!
//! Everything random in the gateway comes through here, so that a test or a simulation can replace
//! it by a seed. Deliberately absent: the clock (a minted id takes its time as an argument), and
//! anything secret: these draws spread load and tell processes apart, they guard nothing.

use std::fmt::Write as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use parking_lot::Mutex;
use rand::rngs::StdRng;
use rand::{RngExt as _, SeedableRng as _};
use sha2::{Digest, Sha256};

use crate::call::id::{CallId, ClientName};
use crate::call::time::{Chance, Wall};

/// The longest node name and the longest id prefix, in bytes. Two of them and the rest of a minted
/// id stay far below the 256 bytes a call id may have.
pub const NAME_BYTES_MAX: usize = 48;

/// A source of chance; cheap to clone, usable from every thread.
#[derive(Clone, Debug)]
pub struct Entropy(Source);

#[derive(Clone, Debug)]
enum Source {
    /// The generator of the drawing thread: no lock, no contention between cores.
    Thread,
    /// One seeded sequence, for tests and simulation.
    Seeded(Arc<Mutex<StdRng>>),
}

/// Makes call ids for calls that came without one. One per process: its counter is what keeps two
/// ids of one process apart.
#[derive(Debug)]
pub struct Minter {
    node: Box<str>,
    /// Four random hex digits of this process start: they keep the ids of two processes apart
    /// that mint in the same millisecond, also after a restart.
    start: u16,
    counter: AtomicU32,
}

impl Entropy {
    /// Chance from the operating system, through a generator per thread.
    #[must_use]
    pub const fn from_os() -> Self {
        Self(Source::Thread)
    }

    /// A sequence that is the same for the same seed.
    #[must_use]
    pub fn seeded(seed: u64) -> Self {
        Self(Source::Seeded(Arc::new(Mutex::new(StdRng::seed_from_u64(
            seed,
        )))))
    }

    /// One draw in `[0, 1)`.
    #[must_use]
    pub fn chance(&self) -> Chance {
        Chance::new(match &self.0 {
            Source::Thread => thread_rng().random(),
            Source::Seeded(rng) => rng.lock().random(),
        })
    }

    /// 64 random bits.
    #[must_use]
    pub fn bits(&self) -> u64 {
        match &self.0 {
            Source::Thread => thread_rng().random(),
            Source::Seeded(rng) => rng.lock().random(),
        }
    }

    /// A name for this process, as the ledger keeps it in `owner`: the node and 16 hex digits, so
    /// that a restarted process is never taken for its predecessor.
    #[must_use]
    pub fn instance(&self, node: &str) -> String {
        format!("{node}-{:016x}", self.bits())
    }
}

/// The id of the reversal of a call: no chance in it, so that every send of it, in whatever
/// process, goes under the same one.
///
/// # Panics
/// Never: what it makes is a call id.
#[must_use]
pub fn reversal_id(client: &ClientName, call_id: &CallId) -> CallId {
    let mut hash = Sha256::new();
    for part in [
        client.as_str().as_bytes(),
        &[0],
        call_id.as_str().as_bytes(),
    ] {
        hash.update(part);
    }
    let mut text = String::from("rev-");
    for byte in hash.finalize() {
        write!(text, "{byte:02x}").expect("a String takes every write");
    }
    CallId::parse(text.as_bytes()).expect("68 letters and digits are a call id")
}

impl Minter {
    /// A maker of ids that end in `node`.
    ///
    /// # Panics
    /// When `node` is not `[A-Za-z0-9._-]{1,48}`; the configuration proves that it is.
    #[must_use]
    pub fn new(node: &str, entropy: &Entropy) -> Self {
        assert!(is_name(node), "the configuration proved the node name");
        let start = u16::try_from(entropy.bits() & 0xffff).expect("16 bits were kept");
        Self {
            node: Box::from(node),
            start,
            counter: AtomicU32::new(0),
        }
    }

    /// A new id: `{prefix}-{unix ms}-{12 hex}-{node}`.
    ///
    /// No two ids of one process are equal: the counter returns to a number only after 2^32 ids,
    /// which takes longer than a millisecond.
    ///
    /// # Panics
    /// When `prefix` is not `[A-Za-z0-9._-]{1,48}`; the configuration proves that it is.
    #[must_use]
    pub fn mint(&self, prefix: &str, at: Wall) -> CallId {
        debug_assert!(is_name(prefix), "the configuration proved the prefix");
        let count = self.counter.fetch_add(1, Ordering::Relaxed);
        let mut id = Text::<{ 2 * NAME_BYTES_MAX + FIXED }>::new();
        id.put(prefix.as_bytes());
        id.put(b"-");
        id.put_decimal(at.0);
        id.put(b"-");
        id.put_hex::<4>(u32::from(self.start));
        id.put_hex::<8>(count);
        id.put(b"-");
        id.put(self.node.as_bytes());
        CallId::parse(id.bytes()).expect("prefix, digits and node are visible ASCII")
    }
}

/// The bytes of a minted id beside its two names: three dashes, the time, twelve hex digits.
const FIXED: usize = 3 + 20 + 12;

/// Text of at most `N` bytes, written without the machinery of formatting: an id is made for nearly
/// every request.
struct Text<const N: usize> {
    bytes: [u8; N],
    len: usize,
}

impl<const N: usize> Text<N> {
    const fn new() -> Self {
        Self {
            bytes: [0; N],
            len: 0,
        }
    }

    fn bytes(&self) -> &[u8] {
        &self.bytes[..self.len]
    }

    fn put(&mut self, part: &[u8]) {
        self.bytes[self.len..self.len + part.len()].copy_from_slice(part);
        self.len += part.len();
    }

    fn put_hex<const DIGITS: usize>(&mut self, n: u32) {
        let mut digits = [0; DIGITS];
        for (at, digit) in digits.iter_mut().rev().enumerate() {
            *digit = b"0123456789abcdef"[(n >> (4 * at) & 0xf) as usize];
        }
        self.put(&digits);
    }

    fn put_decimal(&mut self, n: i64) {
        if n < 0 {
            self.put(b"-");
        }
        let mut rest = n.unsigned_abs();
        let mut digits = [0; 20];
        let mut from = digits.len();
        loop {
            from -= 1;
            digits[from] = b'0' + u8::try_from(rest % 10).expect("a digit");
            rest /= 10;
            if rest == 0 {
                return self.put(&digits[from..]);
            }
        }
    }
}

/// Whether `name` is `[A-Za-z0-9._-]{1,48}`: what may stand at either end of a minted id.
#[must_use]
pub fn is_name(name: &str) -> bool {
    let plain = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'_' | b'-');
    (1..=NAME_BYTES_MAX).contains(&name.len()) && name.bytes().all(plain)
}

#[expect(
    clippy::disallowed_methods,
    reason = "this is the one reader of chance"
)]
fn thread_rng() -> rand::rngs::ThreadRng {
    rand::rng()
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;
    use std::thread;

    use super::*;

    const NOON: Wall = Wall(1_794_000_000_000);

    #[test]
    fn a_minted_id_is_prefix_time_start_count_and_node() {
        let minter = Minter::new("node07", &Entropy::seeded(1));
        let start = format!("{:04x}", minter.start);
        let first = minter.mint("ord", NOON);
        let second = minter.mint("ord", NOON);
        assert_eq!(
            first.as_str(),
            format!("ord-1794000000000-{start}00000000-node07")
        );
        assert_eq!(
            second.as_str(),
            format!("ord-1794000000000-{start}00000001-node07")
        );
    }

    #[test]
    fn a_minted_id_reads_as_formatting_would_write_it() {
        let minter = Minter::new("n", &Entropy::seeded(7));
        for (count, ms) in [0, 9, 10, -5, 1_794_000_000_123, i64::MAX, i64::MIN]
            .into_iter()
            .enumerate()
        {
            let expected = format!("p-{ms}-{:04x}{count:08x}-n", minter.start);
            assert_eq!(minter.mint("p", Wall(ms)).as_str(), expected);
        }
    }

    #[test]
    fn no_two_ids_of_a_process_are_equal_within_one_millisecond() {
        const THREADS: usize = 8;
        const EACH: usize = 5_000;
        let minter = Minter::new("n", &Entropy::from_os());
        let minted = thread::scope(|scope| {
            let mint = || {
                (0..EACH)
                    .map(|_| minter.mint("r", NOON))
                    .collect::<Vec<_>>()
            };
            let threads: Vec<_> = (0..THREADS).map(|_| scope.spawn(mint)).collect();
            threads
                .into_iter()
                .flat_map(|t| t.join().unwrap())
                .collect::<HashSet<_>>()
        });
        assert_eq!(minted.len(), THREADS * EACH);
    }

    #[test]
    fn the_longest_names_still_make_a_call_id() {
        let long = "x".repeat(NAME_BYTES_MAX);
        let minter = Minter::new(&long, &Entropy::from_os());
        let id = minter.mint(&long, Wall(i64::MAX));
        assert!(id.as_str().len() <= crate::call::id::CALL_ID_BYTES_MAX);
    }

    #[test]
    fn a_name_is_what_the_configuration_allows() {
        for good in ["a", "node-07", "A.b_c", &"x".repeat(48)] {
            assert!(is_name(good), "{good}");
        }
        for bad in ["", "a b", "ä", "a,b", "a/b", &"x".repeat(49)] {
            assert!(!is_name(bad), "{bad}");
        }
    }

    #[test]
    fn a_reversal_has_one_id_for_ever_and_for_one_client() {
        let call = CallId::parse(b"order-1").unwrap();
        let of = |client: &str| reversal_id(&ClientName::new(client), &call);
        // SHA-256 over `billing`, NUL, `order-1`.
        assert_eq!(
            of("billing").as_str(),
            "rev-6a4c5c6dd5c8489d1422999764c15c8ab30873786d02b26b63a66277056a4bd2"
        );
        assert_eq!(of("billing"), of("billing"));
        assert_ne!(of("billing"), of("shipping"));
    }

    #[test]
    fn a_seed_repeats_its_sequence_and_draws_lie_in_range() {
        let draw = |seed| {
            let entropy = Entropy::seeded(seed);
            (0..64).map(|_| entropy.chance().get()).collect::<Vec<_>>()
        };
        assert_eq!(draw(7), draw(7));
        assert_ne!(draw(7), draw(8));
        let os = Entropy::from_os();
        assert!(
            (0..1_000)
                .map(|_| os.chance().get())
                .all(|u| (0.0..1.0).contains(&u))
        );
        assert_ne!(os.instance("n"), os.instance("n"));
    }
}
