//! The places of callers: how many connections are open, in all and from one address, and how many
//! requests are worked on.
//!
//! A place is taken by the acceptor and given back wherever the connection ends. Addresses are
//! counted only when one may have fewer than all; an IPv6 caller counts by its /64, which is what
//! one subscriber is given (RFC 6177). A request has a turn of its own, because it may outlive its
//! connection, and on HTTP/2 there are many on one; it keeps that until its answer is out.
//! Deliberately absent: what whoever finds no place reads (`listener`, `answer`).

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use parking_lot::Mutex;
use tokio_util::task::task_tracker::TaskTrackerToken;

use crate::config::Limits;

/// The bits of an IPv6 address that name a subscriber's network.
const NETWORK: u128 = !0 << 64;

/// Connections by address.
pub(super) struct Addresses {
    most: usize,
    open: Mutex<HashMap<IpAddr, usize>>,
}

/// One of an address's places; given back on drop.
pub(super) struct FromAddress {
    addresses: Arc<Addresses>,
    address: IpAddr,
}

/// One connection's place.
pub(super) struct Seat {
    _open: TaskTrackerToken,
    _from: Option<FromAddress>,
}

/// The requests that are worked on, over all cores.
pub(super) struct Requests {
    most: usize,
    open: AtomicUsize,
}

/// One of them; given back on drop.
pub(super) struct Turn(Arc<Requests>);

impl Requests {
    pub(super) fn at_most(most: usize) -> Arc<Self> {
        let open = AtomicUsize::new(0);
        Arc::new(Self { most, open })
    }

    /// A turn, unless as many are taken as there are.
    pub(super) fn take(self: &Arc<Self>) -> Option<Turn> {
        let one_more = |open| (open < self.most).then_some(open + 1);
        let taken = self.open.fetch_update(Relaxed, Relaxed, one_more);
        taken.is_ok().then(|| Turn(Arc::clone(self)))
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        self.0.open.fetch_sub(1, Relaxed);
    }
}

impl Addresses {
    /// `None` when one address may have all places there are.
    pub(super) fn bounded(limits: &Limits) -> Option<Arc<Self>> {
        let most = limits.connections_per_address;
        (most < limits.connections).then(|| {
            Arc::new(Self {
                most,
                open: Mutex::default(),
            })
        })
    }

    /// A place for a caller at `address`; `None` when its address has as many as it may.
    pub(super) fn take(self: &Arc<Self>, address: IpAddr) -> Option<FromAddress> {
        let address = network(address);
        let mut open = self.open.lock();
        let taken = open.entry(address).or_default();
        if *taken >= self.most {
            return None;
        }
        *taken += 1;
        Some(FromAddress {
            addresses: Arc::clone(self),
            address,
        })
    }
}

impl Drop for FromAddress {
    fn drop(&mut self) {
        let mut open = self.addresses.open.lock();
        if let Some(taken) = open.get_mut(&self.address) {
            *taken -= 1;
            // Else every address that ever called would stay here.
            if *taken == 0 {
                open.remove(&self.address);
            }
        }
    }
}

impl Seat {
    pub(super) const fn new(open: TaskTrackerToken, from: Option<FromAddress>) -> Self {
        Self {
            _open: open,
            _from: from,
        }
    }
}

fn network(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(v6) => IpAddr::V6(Ipv6Addr::from_bits(v6.to_bits() & NETWORK)),
        v4 @ IpAddr::V4(_) => v4,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn addresses(most: usize) -> Arc<Addresses> {
        let limits = Limits {
            connections_per_address: most,
            ..Limits::default()
        };
        Addresses::bounded(&limits).expect("fewer than all")
    }

    #[test]
    fn an_address_has_its_places_and_gives_them_back() {
        let addresses = addresses(2);
        let one = "192.0.2.1".parse().unwrap();
        let held = [addresses.take(one), addresses.take(one)];
        assert!(held.iter().all(Option::is_some));
        assert!(addresses.take(one).is_none());
        assert!(addresses.take("192.0.2.2".parse().unwrap()).is_some());
        drop(held);
        assert!(addresses.take(one).is_some());
        assert!(addresses.open.lock().is_empty(), "an address stays behind");
    }

    #[test]
    fn a_network_of_ipv6_is_one_address_and_a_mapped_one_is_ipv4() {
        let addresses = addresses(1);
        let _held = addresses.take("2001:db8::1".parse().unwrap()).unwrap();
        assert!(
            addresses
                .take("2001:db8::ffff:2".parse().unwrap())
                .is_none()
        );
        assert!(addresses.take("2001:db8:0:1::1".parse().unwrap()).is_some());
        let _held = addresses.take("::ffff:192.0.2.1".parse().unwrap()).unwrap();
        assert!(addresses.take("192.0.2.1".parse().unwrap()).is_none());
    }

    #[test]
    fn no_more_requests_have_a_turn_than_may_and_each_gives_it_back() {
        let requests = Requests::at_most(2);
        let held = [requests.take(), requests.take()];
        assert!(held.iter().all(Option::is_some));
        assert!(requests.take().is_none());
        drop(held);
        let taken = std::thread::scope(|threads| {
            let taking = || (0..500).filter_map(|_| requests.take()).count();
            let all: Vec<_> = (0..4).map(|_| threads.spawn(taking)).collect();
            all.into_iter().map(|it| it.join().unwrap()).sum::<usize>()
        });
        assert!(taken >= 500, "{taken}");
        assert_eq!(requests.open.load(Relaxed), 0);
    }

    #[test]
    fn nothing_is_counted_when_an_address_may_have_all() {
        assert!(Addresses::bounded(&Limits::default()).is_none());
    }
}
