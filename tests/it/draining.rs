//! SIGTERM with everything under way at once: C55.

use crate::fixture::{Act, Call, Client, Cut, Receipts, Script, World, assert_between, ms};
use serde_json::json;
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::Instant;

/// What one of those who keep coming was told: nothing when nobody took its connection.
type Heard = (String, Option<Result<u16, Cut>>);

/// Two hundred callers a second, each with a connection and a call of its own.
fn keep_coming(address: SocketAddr, over: &AtomicBool) -> Vec<Heard> {
    let mut callers = Vec::new();
    std::thread::scope(|threads| {
        let mut waiting = Vec::new();
        let mut next = Instant::now();
        for n in 0.. {
            if over.load(SeqCst) {
                break;
            }
            waiting.push(threads.spawn(move || {
                let id = format!("comes-{n}");
                let Ok(stream) = TcpStream::connect(address) else {
                    return (id, None);
                };
                let mut client = Client::over(stream);
                client.send(&Call::with_id(&id));
                let heard = client.try_answer().map(|answer| answer.status);
                (id, Some(heard))
            }));
            next += ms(5);
            std::thread::sleep(next.saturating_duration_since(Instant::now()));
        }
        let heard = waiting.into_iter().map(|caller| caller.join());
        callers.extend(heard.map(|heard| heard.expect("no caller panicked")));
    });
    callers
}

/// A gateway with one call in the queue to be, one in its back-off, and one that takes a second.
fn busy() -> World {
    let script = Script::new()
        .request(1, Act::read_all().commit().reset())
        .request(2, Act::read_all().reset())
        .request(3, Act::read_all().commit().wait(1_000).answer_result())
        .otherwise(Act::works())
        .receipts_of("queued", vec![Act::state("PROCESSING")])
        .receipts(Receipts::at_commit());
    World::with(script, |config| {
        config
            .slow(5)
            .set("drain/grace", "2s")
            .set("defaults/timeouts/total", "30s")
            .set("defaults/retry", json!({ "max_retries": 1, "base": "16s" }))
            .set(
                "defaults/compensation/rounds",
                json!(["1s", "2s", "3s", "1h"]),
            )
            .set("defaults/compensation/resend", true)
    })
    .without_history()
}

fn sends(world: &World, n: usize, id: &str) -> Client {
    let mut client = world.gateway.client();
    client.send(&Call::with_id(id));
    world.tool.wait_request(n);
    client
}

#[test]
fn c55_a_drain_answers_what_runs_parks_what_waits_and_ends_in_time() {
    let mut world = busy();
    let _queued = sends(&world, 1, "queued");
    let _backing_off = sends(&world, 2, "backs-off");
    world.gateway.wait_until("it was asked about", || {
        (!world.tool.queries("backs-off").is_empty()).then_some(())
    });
    let mut idle = world.gateway.client();
    assert_eq!(
        idle.call(&Call::get("/_callgate/receipts/none")).status,
        404
    );
    let mut fresh = world.gateway.client();
    let mut half = world.gateway.client();
    half.send_raw(b"POST /tool HTTP/1.1\r\nHost: t\r\n");
    let mut running = sends(&world, 3, "runs");
    let (address, over) = (world.gateway.listen, AtomicBool::new(false));
    let heard = std::thread::scope(|threads| {
        let coming = threads.spawn(|| keep_coming(address, &over));
        world.tool.wait_request(6);
        world.gateway.signal_term();
        let began = Instant::now();
        for silent in [&mut idle, &mut fresh] {
            assert!(matches!(silent.wait_closed(), Cut::Fin | Cut::Reset));
        }
        half.send_raw(b"Content-Length: 0\r\n\r\n");
        half.answer().problem(503, "draining");
        let answer = running.answer();
        assert_eq!(
            (answer.status, answer.must("connection").as_str()),
            (201, "close")
        );
        let status = world.gateway.wait_exit();
        assert!(status.success(), "{status}");
        assert_between(began.elapsed(), 0, 4_000, "a grace of two seconds");
        over.store(true, SeqCst);
        coming.join().expect("no panic")
    });
    everybody_heard_what_is(&world, &heard);
    // What waited is on record, and the next process sees to it.
    world.restart();
    for id in ["queued", "backs-off"] {
        let state = world.gateway.history(id)["deadLetter"]["state"].clone();
        assert!(state.is_string(), "{id} was lost");
    }
    world
        .gateway
        .wait_until("the one that backed off is sent", || {
            (world.tool.sends("backs-off").len() == 2).then_some(())
        });
    assert_eq!(world.call(&Call::with_id("runs")).outcome(), "replayed");
}

/// Each send is somebody's answer: of those that came, and of the three from before.
fn everybody_heard_what_is(world: &World, heard: &[Heard]) {
    let told = |status| {
        heard
            .iter()
            .filter(|(_, heard)| *heard == Some(Ok(status)))
            .count()
    };
    let cut: Vec<_> = heard
        .iter()
        .filter(|(_, heard)| matches!(heard, Some(Err(_))))
        .collect();
    let nobody = heard.iter().filter(|(_, heard)| heard.is_none()).count();
    eprintln!(
        "{} done, {} told that it drains, {nobody} not taken, {} cut: {cut:?}",
        told(201),
        told(503),
        cut.len()
    );
    assert_eq!(
        told(201) + told(503) + nobody + cut.len(),
        heard.len(),
        "{heard:?}"
    );
    assert!(told(201) >= 3);
    assert_eq!(world.tool.a(), told(201) + 3);
    for (id, _) in cut {
        assert!(
            world.tool.sends(id).is_empty(),
            "{id} was sent, and its caller heard nothing"
        );
    }
}
