//! Connections that are used again, and those that must not be (C01, C02, C61g).

use super::*;
use crate::upstream::dial;

const OK: &str = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";

/// One exchange on `sock`, which stays open.
async fn again(rig: &Rig, sock: &mut Sock, answer: &str) -> Ended {
    let script = async {
        sock.request().await;
        sock.write(answer).await;
    };
    tokio::join!(rig.send(post(b"again"), TERMS), script).0
}

#[tokio::test]
async fn one_connection_carries_many_exchanges() {
    let rig = Rig::new().await;
    let (ended, mut sock) = rig.exchange_keeping(OK, TERMS).await;
    collected(ended);
    let chunked =
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\no\r\n1\r\nk\r\n0\r\n\r\n";
    let empty = "HTTP/1.1 204 No Content\r\n\r\n";
    let oops = "HTTP/1.1 500 Oops\r\nContent-Length: 0\r\n\r\n";
    for answer in [OK, chunked, empty, oops, OK].repeat(4) {
        collected(again(&rig, &mut sock, answer).await);
        assert_eq!(rig.tool.destination().idle_connections(), 1);
    }
}

#[tokio::test]
async fn an_answer_that_ends_its_connection_is_not_followed_on_it() {
    let rig = Rig::new().await;
    let endings = [
        "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\nok",
        "HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\nok",
        // Two bytes too many: complete, but what follows is nobody's.
        "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nokXX",
        "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok\
         HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n",
    ];
    for answer in endings {
        let (ended, _sock) = rig.exchange_keeping(answer, TERMS).await;
        assert_eq!(&collected(ended).body[..], b"ok", "{answer}");
        assert_eq!(rig.tool.destination().idle_connections(), 0, "{answer}");
    }
}

/// C01 a and b: the request went out on a reused connection, the tool read it and closed.
#[tokio::test]
async fn a_reused_connection_that_dies_under_a_request_is_unclear() {
    for by_reset in [false, true] {
        let rig = Rig::new().await;
        let (_, mut sock) = rig.exchange_keeping(OK, TERMS).await;
        let mut exchange = rig.send(post(b"again"), TERMS);
        let script = async {
            let (head, body) = sock.request().await;
            if by_reset {
                sock.rst();
            } else {
                sock.fin().await;
            }
            (head, body)
        };
        let (ended, (_, body)) = tokio::join!(&mut exchange, script);
        assert_eq!(body, b"again");
        assert_eq!(unclear(&ended), Unclear::Disconnect);
        assert!(!exchange.reconnected());
        assert_eq!(rig.tool.destination().idle_connections(), 0);
    }
}

/// C01 c: the tool closed before the request was written, with or without our having noticed.
#[tokio::test]
async fn a_connection_the_tool_has_closed_is_never_used() {
    for (by_reset, noticed) in [(false, false), (false, true), (true, false), (true, true)] {
        let rig = Rig::new().await;
        let (_, mut sock) = rig.exchange_keeping(OK, TERMS).await;
        if by_reset {
            sock.rst();
        } else {
            sock.fin().await;
        }
        if noticed {
            // Lets the connection's own task see the end.
            crate::clock::sleep(Duration::from_millis(20)).await;
        }
        let ended = rig.exchange(OK, TERMS).await;
        collected(ended);
    }
}

#[tokio::test]
async fn a_connection_with_bytes_nobody_asked_for_is_never_used() {
    let rig = Rig::new().await;
    let (_, mut sock) = rig.exchange_keeping(OK, TERMS).await;
    sock.write("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nwrong")
        .await;
    let answer = collected(rig.exchange(OK, TERMS).await);
    assert_eq!(&answer.body[..], b"ok");
}

/// The proof is the request handed back; it allows one fresh connection, and is noted.
#[tokio::test]
async fn a_request_handed_back_by_a_reused_connection_goes_out_on_a_fresh_one() {
    let rig = Rig::new().await;
    for fresh_one_answers in [true, false] {
        let to = rig.tool.destination();
        let (dialled, sock) =
            tokio::join!(dial::dial(&rig.core, to, TERMS.connect), rig.peer.accept());
        let mut conn = dialled.unwrap();
        conn.reused = true;
        sock.rst();
        while conn.is_usable() {
            tokio::task::yield_now().await;
        }
        let mut exchange = rig.send_over(conn, post(b"once"));
        let script = async {
            let mut sock = rig.peer.accept().await;
            let (_, body) = sock.request().await;
            if fresh_one_answers {
                sock.write(OK).await;
            }
            body
        };
        let (ended, body) = tokio::join!(&mut exchange, script);
        assert_eq!(body, b"once");
        assert!(exchange.reconnected());
        if fresh_one_answers {
            collected(ended);
        } else {
            assert_eq!(unclear(&ended), Unclear::Disconnect);
        }
    }
}

/// A fresh connection that hands the request back ends the attempt: it is not tried a third time.
#[tokio::test]
async fn a_request_handed_back_by_a_fresh_connection_was_not_sent() {
    let rig = Rig::new().await;
    let to = rig.tool.destination();
    let (dialled, sock) = tokio::join!(dial::dial(&rig.core, to, TERMS.connect), rig.peer.accept());
    let conn = dialled.unwrap();
    sock.rst();
    while conn.is_usable() {
        tokio::task::yield_now().await;
    }
    let mut exchange = rig.send_over(conn, post(b"never"));
    assert_eq!(not_sent(&(&mut exchange).await), NotSent::HandedBack);
    assert!(!exchange.reconnected());
    assert!(exchange.trouble().is_some());
}

/// C02: accept, read nothing, close. One connection an exchange, and never a silent resend.
#[tokio::test]
async fn a_tool_that_accepts_and_closes_sees_one_connection_an_exchange() {
    let rig = Rig::new().await;
    let accepted = Arc::new(std::sync::atomic::AtomicUsize::new(0));
    let count = Arc::clone(&accepted);
    let Rig { core, tool, peer } = rig;
    tokio::spawn(async move {
        loop {
            drop(peer.accept().await);
            count.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
        }
    });
    for n in 1..=20 {
        let mut exchange = Exchange::new(&core, tool.destination(), post(b"x"), TERMS);
        let ended = (&mut exchange).await;
        assert!(
            matches!(
                ended,
                Ended::NotSent(NotSent::HandedBack) | Ended::Unclear(Unclear::Disconnect)
            ),
            "{ended:?}"
        );
        assert!(!exchange.reconnected());
        assert_eq!(accepted.load(std::sync::atomic::Ordering::SeqCst), n);
    }
}

/// C02, the variant: idle connections that all die while requests are being written.
#[tokio::test]
async fn primed_connections_that_die_are_replaced_at_most_once_and_never_resent_on() {
    let rig = Rig::new().await;
    let mut socks = Vec::new();
    let prime = async {
        for _ in 0..8 {
            socks.push(rig.peer.accept().await);
        }
        for sock in &mut socks {
            sock.request().await;
            sock.write(OK).await;
        }
    };
    let exchanges = (0..8).map(|_| rig.send(post(b"prime"), TERMS));
    let (ended, ()) = tokio::join!(join_all(exchanges), prime);
    ended.into_iter().for_each(|ended| drop(collected(ended)));
    assert_eq!(rig.tool.destination().idle_connections(), 8);
    socks.into_iter().for_each(Sock::rst);
    // Whatever was noticed when: each exchange is one request at the tool.
    let serve = async {
        let mut seen = 0;
        for _ in 0..8 {
            let mut sock = rig.peer.accept().await;
            sock.request().await;
            sock.write(OK).await;
            seen += 1;
        }
        seen
    };
    let exchanges = (0..8).map(|_| rig.send(post(b"after"), TERMS));
    let (ended, seen) = tokio::join!(join_all(exchanges), serve);
    ended.into_iter().for_each(|ended| drop(collected(ended)));
    assert_eq!(seen, 8);
}

async fn join_all(exchanges: impl Iterator<Item = Exchange>) -> Vec<Ended> {
    let tasks: Vec<_> = exchanges.map(tokio::spawn).collect();
    let mut ended = Vec::new();
    for task in tasks {
        ended.push(task.await.unwrap());
    }
    ended
}

/// A way to the tool that died without a word takes every idle connection with it: after one
/// request that was not answered in time none of them is used, except what has shown since that it
/// lives.
#[tokio::test]
async fn after_a_silent_request_the_next_one_uses_no_connection_that_rested_meanwhile() {
    let rig = Rig::new().await;
    let mut socks = Vec::new();
    let prime = async {
        for _ in 0..3 {
            socks.push(rig.peer.accept().await);
        }
        for sock in &mut socks {
            sock.request().await;
            sock.write(OK).await;
        }
    };
    let exchanges = (0..3).map(|_| rig.send(post(b"prime"), TERMS));
    let (ended, ()) = tokio::join!(join_all(exchanges), prime);
    ended.into_iter().for_each(|ended| drop(collected(ended)));
    let to = rig.tool.destination();
    assert_eq!(to.idle_connections(), 3);
    let left = rig.core.clock.mono();
    let mut silent = rig.send(post(b"silent"), TERMS);
    let patience = tokio::time::sleep(Duration::from_millis(30));
    tokio::select! {
        ended = &mut silent => panic!("nobody answers: {ended:?}"),
        () = patience => {}
    }
    assert!(silent.written());
    to.distrust(left);
    // It stays open and may still speak; the next one dials.
    let (ended, mut sock) = rig.exchange_keeping(OK, TERMS).await;
    collected(ended);
    assert_eq!(
        to.idle_connections(),
        1,
        "only the one that has answered since"
    );
    let (ended, ()) = tokio::join!(rig.send(post(b"again"), TERMS), async {
        sock.request().await;
        sock.write(OK).await;
    });
    collected(ended);
    drop(silent);
}

/// C61g: idle connections expire by our own timer, before the tool closes them under a request.
#[tokio::test]
async fn an_idle_connection_expires_without_anybody_looking() {
    let idle = Duration::from_millis(60);
    let rig = Rig::with(|upstream| upstream.pool.idle = idle).await;
    let (_, mut sock) = rig.exchange_keeping(OK, TERMS).await;
    assert_eq!(rig.tool.destination().idle_connections(), 1);
    // The tool sees it close in the ordinary way.
    assert!(!sock.ended_by_reset().await);
    assert_eq!(rig.tool.destination().idle_connections(), 0);
    let (ended, _sock) = rig.exchange_keeping(OK, TERMS).await;
    collected(ended);
}

#[tokio::test]
async fn no_more_than_max_idle_connections_are_kept() {
    for max_idle in [0, 2] {
        let rig = Rig::with(|upstream| upstream.pool.max_idle = max_idle).await;
        let serve = async {
            let mut socks = Vec::new();
            for _ in 0..5 {
                socks.push(rig.peer.accept().await);
            }
            for sock in &mut socks {
                sock.request().await;
                sock.write(OK).await;
            }
            socks
        };
        let exchanges = (0..5).map(|_| rig.send(post(b"x"), TERMS));
        let (ended, _socks) = tokio::join!(join_all(exchanges), serve);
        ended.into_iter().for_each(|ended| drop(collected(ended)));
        assert_eq!(rig.tool.destination().idle_connections(), max_idle);
    }
}

#[tokio::test]
async fn each_core_keeps_its_own_connections() {
    let peer = Peer::bind().await;
    let tool = Tool::new(&peer::upstream(&peer.endpoint()), 2).unwrap();
    let cores = [0, 1].map(|index| Core::start(index, Clock::start()));
    let mut socks = Vec::new();
    for core in &cores {
        let script = async {
            let mut sock = peer.accept().await;
            sock.request().await;
            sock.write(OK).await;
            sock
        };
        let exchange = Exchange::new(core, tool.destination(), post(b"x"), TERMS);
        let (ended, sock) = tokio::join!(exchange, script);
        collected(ended);
        socks.push(sock);
    }
    assert_eq!(tool.destination().idle_connections(), 2);
}

/// The background runtime has threads: its connection's task may come round a little later.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn connections_are_used_again_on_a_runtime_with_threads_too() {
    let rig = Rig::new().await;
    let (ended, mut sock) = rig.exchange_keeping(OK, TERMS).await;
    collected(ended);
    for _ in 0..50 {
        while rig.tool.destination().idle_connections() == 0 {
            tokio::task::yield_now().await;
        }
        collected(again(&rig, &mut sock, OK).await);
    }
}
