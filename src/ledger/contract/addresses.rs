//! Promises about a tool with several addresses: a call belongs to one of them, and its id to all.

use std::sync::Arc;

use super::*;
use crate::ledger::Entry;

const HERE: &str = "http://tool:9000";
const THERE: &str = "http://sibling:9000";

/// A call of a tool with two addresses, first sent to `address`.
fn call_at(text: &str, address: &str) -> NewCall {
    let other = if address == HERE { THERE } else { HERE };
    NewCall {
        upstream: address.into(),
        siblings: Arc::from([Arc::from(other)]),
        ..call(text)
    }
}

fn moved(n: u32, to: &str) -> Intention {
    Intention::Send {
        n,
        cause: None,
        moved: Some(to.into()),
        lease_until: secs(60),
    }
}

pub(crate) fn a_call_moves_to_another_address_in_the_step_that_sends_it(make: Factory) {
    let world = make();
    let claim = world.claim(call_at("c", HERE));
    assert_eq!(
        world.append(claim, secs(1), moved(3, THERE)),
        Written::Stale
    );
    assert_eq!(&*world.view("c").upstream, HERE, "nothing was changed");
    world.applied(claim, secs(1), moved(2, THERE));
    let view = world.view("c");
    assert_eq!((&*view.upstream, view.sends), (THERE, 2));
    let at = secs(1);
    let expected = [
        Entry::Moved {
            at,
            from: HERE.into(),
            to: THERE.into(),
        },
        Entry::Sent {
            at,
            n: 2,
            cause: None,
        },
    ];
    assert_eq!(view.history[1..], expected);
    let stale = Claim {
        fence: claim.fence - 1,
        ..claim
    };
    assert_eq!(world.append(stale, secs(2), moved(3, HERE)), Written::Stale);
    assert_eq!(&*world.view("c").upstream, THERE);
}

pub(crate) fn another_client_cannot_use_an_id_at_a_sibling_address(make: Factory) {
    let world = make();
    world.claim(call_at("c", HERE));
    let other = |address| NewCall {
        client: ClientName::new("other"),
        ..call_at("c", address)
    };
    for address in [HERE, THERE] {
        assert!(
            matches!(world.begin(other(address)), Begun::Foreign),
            "{address}"
        );
    }
}

pub(crate) fn an_undone_id_is_never_sent_to_any_address_of_its_tool(make: Factory) {
    let world = make();
    world.claim(NewCall {
        reverses: Some(id("late")),
        ..call_at("rev-1", HERE)
    });
    let told = world.begin(call_at("late", THERE));
    assert!(matches!(told, Begun::Undone { sends: 0 }), "{told:?}");
    let running = world.claim(call_at("runs", THERE));
    world.claim(NewCall {
        reverses: Some(id("runs")),
        ..call_at("rev-2", HERE)
    });
    assert_eq!(
        world.append(running, secs(1), moved(2, HERE)),
        Written::Stale
    );
}
