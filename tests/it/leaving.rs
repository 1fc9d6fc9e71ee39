//! Callers that leave at any time and in any way: C54.
//!
//! A thousand of them, quick and at once, each gone at its own moment by a FIN, a close or a
//! reset, some before their request was whole. Every call the gateway took is finished and
//! recorded, whoever shut only his sending side is answered, nothing is left in flight, and a
//! caller who comes back finds the stored answer.

use crate::fixture::{Act, Call, Client, Cut, Script, World, ms};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use std::time::{SystemTime, UNIX_EPOCH};

const CALLERS: usize = 1_000;
const AT_ONCE: usize = 25;

#[derive(Clone, Copy, Debug)]
enum Way {
    /// Shuts the sending side and waits.
    HalfClose,
    /// Closes, whatever is still to come.
    Close,
    Reset,
    /// Leaves in the middle of its request.
    Halfway,
}

#[derive(Clone, Debug)]
struct Caller {
    id: String,
    way: Way,
    after: std::time::Duration,
}

#[test]
fn c54_a_thousand_callers_leave_at_random_times_and_every_call_ends() {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    let seed = now.map_or(1, |it| it.as_secs());
    eprintln!("seed {seed}");
    let mut dice = StdRng::seed_from_u64(seed);
    let mut script = Script::new();
    for n in 1..=CALLERS {
        let before = dice.random_range(0..15);
        let act = Act::read_all().wait(before).commit();
        script = script.request(n, act.wait(dice.random_range(0..15)).answer_result());
    }
    // `comes_back` looks at every call itself, and closer.
    let world = World::with(script, |config| config.slow(5)).without_history();
    let callers: Vec<Caller> = (0..CALLERS)
        .map(|n| Caller {
            id: format!("leaves-{n}"),
            way: match dice.random_range(0..10) {
                0..3 => Way::HalfClose,
                3..6 => Way::Close,
                6..9 => Way::Reset,
                _ => Way::Halfway,
            },
            after: ms(dice.random_range(0..35)),
        })
        .collect();
    std::thread::scope(|threads| {
        for share in callers.chunks(CALLERS / AT_ONCE) {
            let world = &world;
            threads.spawn(move || share.iter().for_each(|caller| leaves(world, caller)));
        }
    });
    nothing_is_left(&world);
    comes_back(&world, &callers);
    nothing_is_left(&world);
}

fn leaves(world: &World, caller: &Caller) {
    let mut client = world.gateway.client();
    let call = Call::with_id(&caller.id);
    match caller.way {
        Way::Halfway => {
            let bytes = call.bytes();
            client.send_raw(&bytes[..bytes.len() - 3]);
        }
        Way::HalfClose | Way::Close | Way::Reset => client.send(&call),
    }
    match caller.way {
        Way::HalfClose => {
            std::thread::sleep(caller.after / 4);
            client.fin();
            let answer = client.answer();
            assert_eq!(answer.status, 201, "{}: {}", caller.id, answer.text());
            assert_eq!(client.wait_closed(), Cut::Fin);
        }
        Way::Close | Way::Halfway => std::thread::sleep(caller.after),
        Way::Reset => {
            std::thread::sleep(caller.after);
            client.reset();
        }
    }
}

/// No call in flight, none in the queue, no connection left behind by those who left.
fn nothing_is_left(world: &World) {
    let gateway = &world.gateway;
    gateway.wait_metric("callgate_calls_in_flight", &[("route", "tool")], 0.0);
    assert!(gateway.dead_letters().is_empty());
    let sockets = || {
        let folder = format!("/proc/{}/fd", gateway.pid());
        let all = std::fs::read_dir(folder).expect("a running process has files");
        let named = all.filter_map(|file| std::fs::read_link(file.ok()?.path()).ok());
        named
            .filter(|it| it.to_string_lossy().starts_with("socket:"))
            .count()
    };
    // Two listeners, the connections to the tool, and no caller's.
    let kept = AT_ONCE * 2 + 16;
    gateway.wait_until("the callers' sockets are closed", || {
        (sockets() <= kept).then_some(())
    });
}

/// Every call the tool saw is recorded with its answer; one that never arrived is made now.
fn comes_back(world: &World, callers: &[Caller]) {
    let mut client = Client::connect(world.gateway.listen);
    for caller in callers {
        let known = world.tool.sends(&caller.id).len();
        let answer = client.call(&Call::with_id(&caller.id));
        let outcome = answer.outcome();
        assert_eq!(answer.status, 201, "{caller:?}: {}", answer.text());
        assert_eq!(answer.body, br#"{"done":true}"#, "{caller:?}");
        match caller.way {
            Way::Halfway => assert_eq!((known, outcome.as_str()), (0, "answered"), "{caller:?}"),
            // A reset kills what the gateway had not yet read: such a call never was.
            Way::Reset if known == 0 => assert_eq!(outcome, "answered", "{caller:?}"),
            Way::HalfClose | Way::Close | Way::Reset => {
                assert_eq!((known, outcome.as_str()), (1, "replayed"), "{caller:?}");
            }
        }
        assert_eq!(world.tool.sends(&caller.id).len(), 1, "{caller:?}");
    }
    assert_eq!((world.tool.a(), world.tool.e()), (CALLERS, CALLERS));
}
