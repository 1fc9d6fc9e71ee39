//! HTTP/1.1's corners, in exact bytes on both sides: trailers, interim answers, answers without a
//! body, expectations, slow bodies.

use crate::fixture::{
    Act, Call, Config, Cut, Gateway, PATIENCE, Reply, Script, World, assert_between, find, ms,
};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener};
use std::sync::mpsc::{Receiver, channel};
use std::time::Instant;

const CONTINUE: &str = "HTTP/1.1 100 Continue\r\n\r\n";

/// A tool of exact bytes: reads until `end` has come, in lower case, then says `answer`.
fn exact(end: &'static str, answer: &'static str) -> (SocketAddr, Receiver<String>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("an address");
    let (seen, all) = channel();
    std::thread::spawn(move || {
        for socket in listener.incoming() {
            let mut socket = socket.expect("a connection");
            let (mut read, mut piece) = (Vec::new(), [0; 1024]);
            while find(&read.to_ascii_lowercase(), end.as_bytes()).is_none() {
                match socket.read(&mut piece) {
                    Ok(n) if n > 0 => read.extend_from_slice(&piece[..n]),
                    _ => break,
                }
            }
            if !read.is_empty() {
                socket.write_all(answer.as_bytes()).expect("it is read");
                seen.send(String::from_utf8_lossy(&read).into_owned())
                    .expect("the test waits");
            }
        }
    });
    (address, all)
}

#[test]
fn trailers_pass_both_ways_where_nothing_is_collected() {
    let answer = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTrailer: X-Sum\r\n\r\n\
        2\r\nok\r\n0\r\nX-Sum: 7\r\n\r\n";
    let (tool, seen) = exact("0\r\nx-up: 9\r\n\r\n", answer);
    let gateway = Gateway::start(&Config::for_address(tool).route("effects", "none"));
    let mut client = gateway.client();
    client.send_raw(
        b"POST /tool HTTP/1.1\r\nHost: h\r\nTE: trailers\r\nConnection: TE\r\nTrailer: X-Up\r\n\
          Transfer-Encoding: chunked\r\n\r\n2\r\nhi\r\n0\r\nX-Up: 9\r\n\r\n",
    );
    let mut told = Vec::new();
    while find(&told, b"0\r\nx-sum: 7\r\n\r\n").is_none() {
        told = client.more().expect("the trailers");
    }
    let told = String::from_utf8_lossy(&told).to_lowercase();
    assert!(told.contains("\r\ntrailer: x-sum\r\n"), "{told}");
    let seen = seen
        .recv_timeout(PATIENCE)
        .expect("a request")
        .to_lowercase();
    for field in ["te: trailers", "connection: te", "trailer: x-up"] {
        assert!(
            seen.contains(&format!("\r\n{field}\r\n")),
            "{field}: {seen}"
        );
    }
}

#[test]
fn a_caller_that_does_not_ask_for_trailers_is_told_none() {
    let answer = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTrailer: X-Sum\r\n\r\n\
        2\r\nok\r\n0\r\nX-Sum: 7\r\n\r\n";
    let (tool, seen) = exact("\r\n\r\n", answer);
    let gateway = Gateway::start(&Config::for_address(tool).route("effects", "none"));
    let answer = gateway.call(&Call::get("/tool"));
    assert_eq!((answer.status, &answer.body[..]), (200, &b"ok"[..]));
    let seen = seen
        .recv_timeout(PATIENCE)
        .expect("a request")
        .to_lowercase();
    assert!(!seen.contains("\r\nte:"), "{seen}");
}

#[test]
fn interim_answers_of_a_tool_are_not_the_answer() {
    let interim = "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n";
    let answer = Reply::new(201, "made").render("interim");
    let answer = [interim.as_bytes(), &answer].concat();
    for piecewise in [false, true] {
        let act = Act::read_all().commit();
        let act = match piecewise {
            false => act.say(&answer),
            true => act.say(interim).wait(50).say(&answer[interim.len()..]),
        };
        let world = World::prompt(Script::new().otherwise(act));
        for id in ["one", "two"] {
            let answer = world.call(&Call::with_id(id));
            assert_eq!((answer.status, &answer.body[..]), (201, &b"made"[..]));
            assert_eq!(answer.field("link"), None);
        }
        assert_eq!(world.tool.a(), 2);
    }
}

#[test]
fn answers_without_a_body_leave_the_connection_in_order() {
    // Each of them claims a length that does not come.
    let bare = |status: &str| format!("HTTP/1.1 {status}\r\nContent-Length: 5\r\n\r\n");
    let table = [
        ("GET", "204 No Content", 204),
        ("GET", "304 Not Modified", 304),
        ("HEAD", "200 OK", 200),
    ];
    for (method, says, status) in table {
        let script = Script::new()
            .request(1, Act::read_all().say(bare(says)))
            .otherwise(Act::works());
        let world = World::two_ports(script, |config| config.slow(2)).without_history();
        let mut client = world.gateway.client();
        client.send(&Call::new(method, "/tool"));
        let head = client.head().expect("a head");
        assert!(
            head.text().contains(&format!(" {status} ")),
            "{}",
            head.text()
        );
        // Neither side takes what follows for the missing five bytes.
        for id in ["next", "last"] {
            let answer = client.call(&Call::with_id(id));
            assert_eq!(answer.status, 201, "{}", answer.text());
        }
        assert_eq!(world.tool.a(), 3);
    }
}

#[test]
fn c42_a_body_is_asked_for_at_once_and_never_of_the_tool() {
    let world = World::prompt(Script::new());
    let mut client = world.gateway.client();
    let call = Call::with_id("expects")
        .field("Expect", "100-continue")
        .body("body");
    let began = Instant::now();
    client.send_raw(&call.head_bytes());
    let interim = client.more().expect("an interim answer");
    assert_eq!(String::from_utf8_lossy(&interim), CONTINUE);
    assert_between(began.elapsed(), 0, 1_000, "100 Continue");
    client.send_raw(b"body");
    assert_eq!(client.answer().status, 201);
    assert!(world.tool.sends("expects")[0].head.all("expect").is_empty());
}

#[test]
fn c42_what_is_refused_is_told_without_asking_for_the_body() {
    let world = World::prompt_with(Script::new(), |config| config.route("limits/rate", "1/s"));
    let mut answer = None;
    for n in 0..10 {
        let mut client = world.gateway.client();
        let call = Call::with_id(&format!("rated-{n}"))
            .field("Expect", "100-continue")
            .body("body");
        client.send_raw(&call.head_bytes());
        let told = client.more().expect("an answer");
        if told != CONTINUE.as_bytes() {
            answer = Some(client.answer());
            client.wait_closed();
            break;
        }
        client.send_raw(b"body");
        assert_eq!(client.answer().status, 201);
    }
    let answer = answer.expect("the rate is one a second");
    assert_eq!(answer.field("connection").as_deref(), Some("close"));
    answer.problem(429, "rate-limited");
}

#[test]
fn c42_a_tools_417_is_passed_on_and_odd_expectations_change_nothing() {
    let says = Act::says(Reply::new(417, "no"));
    let world = World::prompt(Script::new().request(1, says));
    let call = Call::with_id("refused").field("Expect", "100-continue");
    let mut client = world.gateway.client();
    assert_eq!(client.call(&call).status, 417);
    assert_eq!(world.tool.a(), 1);
    let odd = Call::with_id("odd").field("Expect", "200-ok");
    assert_eq!(world.call(&odd).status, 201);
    // HTTP/1.0 knows no interim answers.
    let mut old = world.gateway.client();
    old.send_raw(
        b"POST /tool HTTP/1.0\r\nX-Call-Id: old\r\nExpect: 100-continue\r\n\
          Content-Length: 4\r\n\r\nbody",
    );
    let told = old.more().expect("an answer");
    assert!(!told.starts_with(b"HTTP/1.1 100") && !told.starts_with(b"HTTP/1.0 100"));
    assert_eq!(old.answer().status, 201);
    assert_eq!(world.tool.a(), 3);
}

#[test]
fn c52_a_stream_outlives_attempt_and_total() {
    let head = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\
        Transfer-Encoding: chunked\r\n\r\n";
    let act = Act::read_all()
        .commit()
        .say(head)
        .drip(b"8\r\ndata: 1\n\r\n", 12, ms(100))
        .say("0\r\n\r\n");
    let world = World::with(Script::new().otherwise(act), |config| {
        config.set("defaults/timeouts/total", "600ms")
    })
    .without_history();
    let mut client = world.gateway.client();
    let began = Instant::now();
    client.send(&Call::with_id("stream"));
    let head = client.head().expect("a head");
    assert_between(began.elapsed(), 0, 550, "the head");
    assert_eq!(client.count_body(&head), Ok(12 * 8));
    assert_between(began.elapsed(), 1_100, 5_000, "all events");
    assert_eq!(world.tool.a(), 1);
}

#[test]
fn a_body_that_drips_is_told_a_timeout_though_it_never_pauses() {
    let world = World::with(Script::new(), |config| {
        config.set("limits/body_timeout", "400ms")
    });
    let mut client = world.gateway.client();
    client.send_raw(&Call::with_id("drips").body(vec![b'x'; 10_000]).head_bytes());
    client.set_patience(ms(40));
    let began = Instant::now();
    let answer = loop {
        client.send_raw(b"x");
        match client.try_answer() {
            Err(Cut::Silent) => assert!(began.elapsed() < PATIENCE, "it may drip for ever"),
            other => break other.expect("an answer"),
        }
    };
    answer.problem(408, "request-timeout");
    assert_between(began.elapsed(), 400, 4_000, "the end of its patience");
    assert_eq!(world.tool.a(), 0);
}
