//! HTTP/2 callers who mean harm: raw frames that cost them little and should cost the gateway no
//! more. Each is cut off or slowed, counted and logged, while others are served and memory stays.

use crate::fixture::{Act, Call, PATIENCE, Script, World, assert_between, ms};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

const DATA: u8 = 0;
const HEADERS: u8 = 1;
const PRIORITY: u8 = 2;
const RST_STREAM: u8 = 3;
const SETTINGS: u8 = 4;
const PING: u8 = 6;
const WINDOW_UPDATE: u8 = 8;
const CONTINUATION: u8 = 9;
const END_STREAM: u8 = 1;
const END_HEADERS: u8 = 4;
const ACK: u8 = 1;

const REFUSED_STREAM: [u8; 4] = [0, 0, 0, 7];

/// More memory than any of this may cost.
const MEMORY_MAX: u64 = 32 << 20;

/// A caller of raw frames.
struct Frames(TcpStream);

#[derive(Debug)]
struct Frame {
    kind: u8,
    flags: u8,
    stream: u32,
    payload: Vec<u8>,
}

impl Frames {
    fn to(world: &World, settings: &[(u16, u32)]) -> Self {
        let stream = TcpStream::connect(world.gateway.listen).expect("a connection");
        stream.set_nodelay(true).expect("an option");
        stream.set_read_timeout(Some(PATIENCE)).expect("a timeout");
        // A gateway that reads no more has slowed its caller down, and that is fine too.
        stream
            .set_write_timeout(Some(ms(1_000)))
            .expect("a timeout");
        let mut frames = Self(stream);
        let mut bytes = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec();
        let pairs = settings
            .iter()
            .flat_map(|(name, value)| [&name.to_be_bytes()[..], &value.to_be_bytes()[..]].concat());
        bytes.extend(frame(SETTINGS, 0, 0, &pairs.collect::<Vec<_>>()));
        assert!(frames.say(&bytes));
        frames
    }

    /// Whether the connection took it.
    fn say(&mut self, bytes: &[u8]) -> bool {
        self.0.write_all(bytes).is_ok()
    }

    /// Says it so often, as long as it is taken.
    fn flood(&mut self, bytes: &[u8], times: usize) -> bool {
        let many = bytes.repeat(100);
        (0..times / 100).all(|_| self.say(&many))
    }

    /// The next frame; `None` at the end, however it comes.
    fn next(&mut self) -> Option<Frame> {
        let mut head = [0; 9];
        self.0.read_exact(&mut head).ok()?;
        let length = u32::from_be_bytes([0, head[0], head[1], head[2]]) as usize;
        let mut payload = vec![0; length];
        self.0.read_exact(&mut payload).ok()?;
        Some(Frame {
            kind: head[3],
            flags: head[4],
            stream: u32::from_be_bytes([head[5], head[6], head[7], head[8]]),
            payload,
        })
    }

    /// Waits until the gateway has read everything that was said.
    fn settle(&mut self) -> bool {
        if !self.say(&frame(PING, 0, 0, b"settled?")) {
            return false;
        }
        loop {
            match self.next() {
                None => return false,
                Some(frame) if frame.kind == PING && frame.flags & ACK != 0 => return true,
                Some(_) => {}
            }
        }
    }

    /// Reads until the connection is gone.
    fn wait_end(&mut self) {
        let began = Instant::now();
        while self.next().is_some() {}
        assert!(began.elapsed() < PATIENCE, "it was left open");
    }
}

fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).expect("short").to_be_bytes();
    let mut bytes = vec![length[1], length[2], length[3], kind, flags];
    bytes.extend_from_slice(&stream.to_be_bytes());
    bytes.extend_from_slice(payload);
    bytes
}

/// A header block of literals that are not indexed (RFC 7541, 6.2.2).
fn block(fields: &[(&str, &str)]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for (name, value) in fields {
        bytes.push(0);
        for text in [name, value] {
            bytes.push(u8::try_from(text.len()).expect("under 127 bytes"));
            bytes.extend_from_slice(text.as_bytes());
        }
    }
    bytes
}

fn request(method: &str, id: &str) -> Vec<u8> {
    block(&[
        (":method", method),
        (":scheme", "http"),
        (":authority", "h"),
        (":path", "/tool"),
        ("x-call-id", id),
    ])
}

fn abuse(world: &World) -> f64 {
    let labels = [("bound", "http2-abuse")];
    world
        .gateway
        .metrics()
        .value("callgate_bounds_reached_total", &labels)
}

/// Harms `world`; the caller was cut off, counted and logged, and nobody else has noticed.
fn is_cut_off(world: &World, why: &str, harm: impl FnOnce(&mut Frames)) {
    world.call(&Call::with_id("before"));
    world.gateway.forget_peak_memory();
    let before = world.gateway.memory("VmRSS:");
    let mut hostile = Frames::to(world, &[]);
    std::thread::scope(|scope| {
        let quiet = scope.spawn(|| {
            let mut client = world.gateway.client();
            for n in 0..10 {
                let began = Instant::now();
                let answer = client.call(&Call::with_id(&format!("quiet-{n}")));
                assert_eq!(answer.status, 201);
                assert_between(began.elapsed(), 0, 1_500, "a quiet caller");
            }
        });
        harm(&mut hostile);
        hostile.wait_end();
        quiet.join().expect("quiet callers are served");
    });
    let labels = [("bound", "http2-abuse")];
    world
        .gateway
        .wait_metric("callgate_bounds_reached_total", &labels, 1.0);
    let told = world.gateway.log().wait(PATIENCE, |line| {
        let line = line.to_string();
        line.contains("went too far") && line.contains(why)
    });
    assert!(told.is_some(), "{}", world.gateway.log_tail());
    let peak = world.gateway.memory("VmHWM:");
    let more = peak.saturating_sub(before);
    assert!(more < MEMORY_MAX, "{more} bytes for {why}");
}

fn world(script: Script) -> World {
    World::two_ports(script, |config| config.slow(5)).without_history()
}

#[test]
fn requests_that_are_reset_at_once_in_one_burst_are_cut_off() {
    is_cut_off(&world(Script::new()), "frames", |hostile| {
        let mut burst = Vec::new();
        for n in 0..2_000 {
            let stream = 2 * n + 1;
            let flags = END_STREAM | END_HEADERS;
            burst.extend(frame(HEADERS, flags, stream, &request("GET", "burst")));
            burst.extend(frame(RST_STREAM, 0, stream, &[0, 0, 0, 8]));
        }
        hostile.say(&burst);
    });
}

#[test]
fn requests_that_are_reset_one_by_one_are_cut_off_too() {
    let hangs = Script::new().otherwise(Act::read_all().wait(1_000).commit().answer_result());
    let world = World::two_ports(hangs.request(1, Act::works()), |config| {
        config.slow(5).set("workers", 1)
    })
    .without_history();
    world.call(&Call::with_id("before"));
    let mut hostile = Frames::to(&world, &[]);
    let mut reset = 0;
    for n in 0..400 {
        let stream = 2 * n + 1;
        let flags = END_STREAM | END_HEADERS;
        let asked = frame(
            HEADERS,
            flags,
            stream,
            &request("GET", &format!("slow-{n}")),
        );
        // Each is at work before it is reset, so no burst is ever seen.
        if !(hostile.say(&asked) && hostile.settle()) {
            break;
        }
        hostile.say(&frame(RST_STREAM, 0, stream, &[0, 0, 0, 8]));
        reset += 1;
    }
    assert!((256..=260).contains(&reset), "{reset}");
    hostile.wait_end();
    // Its end is seen a moment before it is counted.
    world
        .gateway
        .wait_until("it is counted", || (abuse(&world) == 1.0).then_some(()));
}

#[test]
fn floods_of_frames_that_ask_for_nothing_are_cut_off() {
    let floods = [
        frame(PING, 0, 0, b"pingping"),
        frame(SETTINGS, 0, 0, &[0, 4, 0, 0, 255, 255]),
        frame(PRIORITY, 0, 1, &[0, 0, 0, 0, 16]),
    ];
    for flood in floods {
        let world = world(Script::new());
        is_cut_off(&world, "PING, SETTINGS", |hostile| {
            hostile.flood(&flood, 200_000);
        });
    }
}

#[test]
fn a_head_that_never_ends_is_cut_off() {
    is_cut_off(&world(Script::new()), "frames", |hostile| {
        let first = request("GET", "endless");
        hostile.say(&frame(HEADERS, END_STREAM, 1, &first));
        let more = frame(CONTINUATION, 0, 1, &block(&[("x-more", "0123456789")]));
        hostile.flood(&more, 200_000);
    });
}

#[test]
fn a_body_in_countless_tiny_pieces_is_cut_off() {
    // The tool takes nothing of it, so nothing of it is passed on.
    let hangs = Script::new()
        .otherwise(Act::works())
        .request(2, Act::read_all());
    let world = World::two_ports(hangs, |config| {
        config.slow(5).route("body/max_request", "64MiB")
    })
    .without_history();
    world.call(&Call::with_id("before"));
    let mut hostile = Frames::to(&world, &[]);
    hostile.say(&frame(HEADERS, END_HEADERS, 1, &request("POST", "tiny")));
    hostile.flood(&frame(DATA, 0, 1, b""), 200_000);
    hostile.wait_end();
    let memory = world.gateway.memory("VmHWM:");
    assert!(memory < 256 << 20, "{memory}");
    assert_eq!(world.call(&Call::with_id("after")).status, 201);
}

#[test]
fn more_requests_at_once_than_are_allowed_are_refused_one_by_one() {
    let world = world(Script::new());
    let mut many = Frames::to(&world, &[]);
    for n in 0..300 {
        // Their bodies never come.
        let id = format!("open-{n}");
        many.say(&frame(
            HEADERS,
            END_HEADERS,
            2 * n + 1,
            &request("POST", &id),
        ));
    }
    let mut refused = Vec::new();
    while refused.len() < 200 {
        let frame = many.next().expect("the connection lives");
        if frame.kind == RST_STREAM {
            assert_eq!(frame.payload, REFUSED_STREAM);
            refused.push(frame.stream);
        }
    }
    assert_eq!(refused[0], 2 * 100 + 1);
    assert!(many.settle(), "the rest goes on");
    assert_eq!(world.call(&Call::with_id("other")).status, 201);
}

#[test]
fn a_caller_whose_windows_let_nothing_pass_is_cut_off() {
    const INITIAL_WINDOW: u16 = 4;
    let act = Act::read_all().answer(crate::fixture::Reply::new(200, vec![b'x'; 100_000]));
    let world = World::two_ports(Script::new().otherwise(act), |config| {
        config.slow(5).set("limits/body_timeout", "500ms")
    })
    .without_history();
    world.call(&Call::with_id("before"));
    let mut hostile = Frames::to(&world, &[(INITIAL_WINDOW, 0)]);
    let began = Instant::now();
    for n in 0..50 {
        let flags = END_STREAM | END_HEADERS;
        let asked = request("GET", &format!("window-{n}"));
        hostile.say(&frame(HEADERS, flags, 2 * n + 1, &asked));
    }
    hostile.wait_end();
    assert_between(began.elapsed(), 500, 10_000, "the cut");
    let labels = [("bound", "http2-abuse")];
    world
        .gateway
        .wait_metric("callgate_bounds_reached_total", &labels, 1.0);
    assert_eq!(world.call(&Call::with_id("after")).status, 200);
}

#[test]
fn a_stream_that_goes_on_outlives_the_idle_timeout_of_its_connection() {
    let head = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\
        Transfer-Encoding: chunked\r\n\r\n";
    let act = Act::read_all()
        .say(head)
        .drip(b"5\r\nevent\r\n", 12, Duration::from_millis(100))
        .say("0\r\n\r\n");
    let world = World::two_ports(Script::new().otherwise(act), |config| {
        config.slow(5).set("limits/keepalive", "300ms")
    })
    .without_history();
    let mut caller = Frames::to(&world, &[]);
    let flags = END_STREAM | END_HEADERS;
    caller.say(&frame(HEADERS, flags, 1, &request("GET", "events")));
    let mut bytes = 0;
    loop {
        let frame = caller.next().expect("the connection lives");
        if frame.kind == DATA {
            bytes += frame.payload.len();
            caller.say(&self::frame(WINDOW_UPDATE, 0, 0, &100u32.to_be_bytes()));
            if frame.flags & END_STREAM != 0 {
                break;
            }
        }
    }
    assert_eq!(bytes, 12 * 5);
    // And then it is idle.
    caller.wait_end();
}
